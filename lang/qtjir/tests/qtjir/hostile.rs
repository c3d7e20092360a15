//! Hostile programs stop at their budget, and their neighbours do not notice.

use super::support::{program, summing};
use mainspring::{Budget, Component, Config, Exhaustion, NurseryOptions, Pool, Profile, TaskError};
use mainspring_qtjir::{Limits, Quiet};

/// Runs an attack beside a neighbour, and gives how the attack ended.
fn attack(text: &str, budget: Budget) -> Result<String, TaskError> {
    let (hostile, neighbour) = (program(text), program(&summing("main")));
    let pool =
        Pool { ops: 1 << 32, memory: 1 << 32, spawn_count: 1 << 16, channel_ops: 1 << 16, syscalls: 1 << 16 };
    let runtime = Config::new(Profile::Cluster).workers(1).root_pool(pool).build().unwrap();
    let alone = runtime.run(|cx| neighbour.run_in_task("main", &[20_000], cx, &Quiet)).unwrap().unwrap();
    let options = NurseryOptions::new().on_exhausted(Exhaustion::Cancel);
    runtime
        .nursery(options, |nursery| {
            let attacker = nursery.builder().budget(budget);
            let attacker = attacker
                .spawn(|cx| match hostile.run_in_task("main", &[], cx, &Quiet) {
                    Ok(ended) => format!("{ended:?}"),
                    Err(fault) => fault.to_string(),
                })
                .unwrap();
            let beside = nursery.spawn(|cx| neighbour.run_in_task("main", &[20_000], cx, &Quiet)).unwrap();
            assert_eq!(beside.wait().unwrap().unwrap(), alone, "the neighbour noticed");
            attacker.wait()
        })
        .unwrap()
}

const BUDGET: Budget =
    Budget { ops: 200_000, memory: 1 << 20, spawn_count: 50, channel_ops: 50, syscalls: 50 };

#[test]
fn an_endless_loop_stops_at_its_ops() {
    let text = "fn @main() -> unit {\nb0:\n  Jump b1\nb1:\n  Jump b1\n}";
    let error = attack(text, BUDGET).unwrap_err();
    assert!(matches!(error, TaskError::BudgetCut(Component::Ops)), "{error}");
}

#[test]
fn endless_recursion_stops_at_the_stack() {
    let text = "fn @main() -> i64 {\nb0:\n  %1: i64 = Call @main()\n  Return %1\n}";
    assert_eq!(attack(text, BUDGET).unwrap(), "3:3: calls nest too deep (in main)");
}

#[test]
fn endless_allocation_stops_at_its_memory() {
    let text = "fn @main() -> unit {\nb0:\n  %1: i64 = Int 1000\n  Jump b1\nb1:\n  %2: slice<i64> = Slice_New i64, %1\n  Jump b1\n}";
    let said = attack(text, BUDGET).unwrap();
    assert!(said.starts_with("6:3: memory budget exhausted"), "{said}");
}

#[test]
fn one_huge_allocation_is_refused() {
    let text = "fn @main() -> unit {\nb0:\n  %1: i64 = Int 1000000000000\n  %2: slice<i64> = Slice_New i64, %1\n  Return\n}";
    let said = attack(text, BUDGET).unwrap();
    assert!(said.starts_with("4:3: memory budget exhausted"), "{said}");
}

/// A budget that is larger than the host's memory is no way to end the process.
#[test]
fn an_allocation_that_the_host_has_no_memory_for_traps() {
    let text =
        "profile core\nfn @main(%0: i64) -> unit {\nb0:\n  %1: slice<i64> = Slice_New i64, %0\n  Return\n}";
    let run = |words: u64| program(text).run_alone("main", &[words], Limits::MAX, &Quiet);
    let fault = run((1 << 40) - 1).unwrap_err();
    assert_eq!(fault.to_string(), "4:3: the host has no memory left; allocate less (in main)");
    assert_eq!(run(1 << 40).unwrap_err().to_string(), "4:3: a size of 1099511627776 (in main)");
    run(1000).unwrap();
}

#[test]
fn a_spawn_bomb_stops_at_its_spawns() {
    let text = "fn @main() -> unit {
b0:
  %1: nursery = Nursery_Begin
  Jump b1
b1:
  %2: task<unit> = Spawn [CPU_Parallel] @main()
  %4: bool = Bool true
  Branch %4, b1, b2
b2:
  %3: i64 = Nursery_End %1
  Return
}
";
    let said = attack(text, BUDGET).unwrap();
    assert!(said.contains("spawn"), "{said}");
}

#[test]
fn messages_that_pile_up_are_the_senders() {
    // Each message is a copy of a large slice.
    let text = "fn @main() -> unit {
b0:
  %1: i64 = Int 10000
  %2: slice<i64> = Slice_New i64, %1
  %3: i64 = Int 1000
  %4: chan<slice<i64>> = Channel_New slice<i64>, %3
  Jump b1
b1:
  %5: i64 = Send %4, %2
  Jump b1
}
";
    let said = attack(text, BUDGET).unwrap();
    assert!(said.starts_with("9:3: memory budget exhausted"), "{said}");
}

#[test]
fn nurseries_without_end_stop_at_the_stack() {
    let text = "fn @main() -> unit {\nb0:\n  %1: nursery = Nursery_Begin\n  Call @main()\n  %2: i64 = Nursery_End %1\n  Return\n}";
    let said = attack(text, BUDGET).unwrap();
    assert!(said.contains("calls nest too deep"), "{said}");
}
