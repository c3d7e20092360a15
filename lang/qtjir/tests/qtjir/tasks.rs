//! Tasks of programs, on the runtime.

use super::support::{Lines, program, summing};
use mainspring::{Budget, Caps, Config, Cx, Pool, Profile, Runtime, TaskError, TaskState};
use mainspring_qtjir::{Ended, Fault, FaultKind, Program, Quiet, Trap, task_fault};

fn on(runtime: &Runtime, program: &Program, args: &[u64]) -> Result<Ended, Fault> {
    match runtime.run(|cx| program.run_in_task("main", args, cx, &Quiet)) {
        Ok(ended) => ended,
        Err(error) => Err(task_fault(&error)),
    }
}

fn service() -> Runtime {
    Config::new(Profile::Service).workers(2).build().unwrap()
}

/// Two children that work, and their sum.
fn two() -> String {
    summing("work")
        + "fn @main(%0: i64) -> i64 {
b0:
  %1: nursery = Nursery_Begin
  %2: task<i64> = Spawn [CPU_Parallel] @work(%0)
  %3: task<i64> = Spawn [CPU_Parallel] @work(%0)
  %4: i64 = Await %2
  %5: i64 = Task_Join %3
  %6: i64 = Nursery_End %1
  %7: i64 = Add %4, %5
  Return %7
}
"
}

//= SCHED:10.2.2
//= SCHED:8.1.1
#[test]
fn children_run_and_are_joined() {
    let ended = on(&service(), &program(&two()), &[5000]).unwrap();
    assert_eq!(ended.value, Some(2 * (0..5000).sum::<u64>()));
    assert_eq!(ended.ops, 2, "an op for each spawn; the children pay for their own");
}

/// A child that fails, beside one that waits for ever.
const FAILS: &str = "error NotFound
error Other
fn @fails(%0: i64) -> i64 fails {
b0:
  Fail %0
}
fn @waits(%0: chan<i64>) -> i64 {
b0:
  %1: i64, %2: i64 = Recv %0
  Return %1
}
fn @main(%0: i64) -> i64 {
b0:
  %1: i64 = Int 0
  %2: chan<i64> = Channel_New i64, %1
  %3: nursery = Nursery_Begin
  %4: task<i64> = Spawn [CPU_Parallel] @waits(%2)
  %5: task<i64> = Spawn [CPU_Parallel] @fails(%0)
  %6: i64 = Nursery_End %3
  Return %6
}
";

//= NURS:error-propagation
//= SCHED:8.1.3
#[test]
fn the_first_error_is_the_nurserys_and_cancels_its_siblings() {
    let program = program(FAILS);
    for code in [6, 7] {
        assert_eq!(on(&service(), &program, &[code]).unwrap().value, Some(code));
    }
}

//= NURS:owner-cancel
#[test]
fn a_cancelled_owner_takes_its_nurseries_with_it() {
    // The level-1 task opens a nursery whose children wait for ever. Its sibling fails.
    let text = "error Stop
fn @waits(%0: chan<i64>) -> unit {
b0:
  %1: i64, %2: i64 = Recv %0
  Return
}
fn @level(%0: chan<i64>) -> unit {
b0:
  %1: nursery = Nursery_Begin
  %2: task<unit> = Spawn [CPU_Parallel] @waits(%0)
  %3: task<unit> = Spawn [CPU_Parallel] @waits(%0)
  %4: i64 = Nursery_End %1
  Return
}
fn @fails() -> unit fails {
b0:
  %1: i64 = Int 6
  Fail %1
}
fn @main() -> i64 {
b0:
  %1: i64 = Int 0
  %2: chan<i64> = Channel_New i64, %1
  %3: nursery = Nursery_Begin
  %4: task<unit> = Spawn [CPU_Parallel] @level(%2)
  Yield
  %5: task<unit> = Spawn [CPU_Parallel] @fails()
  %6: i64 = Nursery_End %3
  Return %6
}
";
    assert_eq!(on(&service(), &program(text), &[]).unwrap().value, Some(6));
}

//= NURS:owner-cancel
#[test]
fn a_nursery_that_is_cancelled_ends_its_children() {
    let text = FAILS.replace(
        "Spawn [CPU_Parallel] @fails(%0)\n",
        "Spawn [CPU_Parallel] @waits(%2)\n  Nursery_Cancel %3\n",
    );
    let cancelled = mainspring_qtjir::error_code("Cancelled").unwrap();
    assert_eq!(on(&service(), &program(&text), &[0]).unwrap().value, Some(cancelled as u64));
}

/// An asynchronous call that can fail.
const ASYNC: &str = "error Odd
fn @half(%0: i64) -> i64 fails {
b0:
  %1: i64 = Int 1
  %2: i64 = And %0, %1
  %3: i64 = Shr %0, %1
  %4: bool = Eq %2, %1
  Branch %4, b1, b2
b1:
  %5: i64 = Int 6
  Fail %5
b2:
  Return %3
}
fn @main(%0: i64) -> i64 {
b0:
  %1: nursery = Nursery_Begin
  %2: future!<i64> = Async_Call [CPU_Parallel] @half(%0)
  %3: i64, %4: i64 = Await %2
  %5: i64 = Nursery_End %1
  %9: i64 = Int 0
  %10: bool = Eq %5, %9
  Branch %10, b1, b2
b1:
  %6: i64 = Int 100
  %7: i64 = Mul %4, %6
  %8: i64 = Add %7, %3
  Return %8
b2:
  Raise %5
}
";

//= NURS:lowering.async
#[test]
fn an_asynchronous_call_brings_its_result_through_a_channel() {
    let program = program(ASYNC);
    assert_eq!(on(&service(), &program, &[42]).unwrap().value, Some(21));
    // Its error is a value, and fails no nursery.
    assert_eq!(on(&service(), &program, &[41]).unwrap().value, Some(600));
    assert_eq!(on(&service(), &program, &[42]).unwrap().ops, 2, "a spawn and a receive");
    // It is a spawn, and it is a channel operation: without either it is refused.
    let poor = |pool: Pool| Config::new(Profile::Service).workers(1).root_pool(pool).build().unwrap();
    let rich =
        Pool { ops: 1 << 30, memory: 1 << 30, spawn_count: 1 << 16, channel_ops: 1 << 16, syscalls: 1 << 16 };
    assert_eq!(on(&poor(rich), &program, &[42]).unwrap().value, Some(21));
    // Without channel operations there is no result, and the nursery fails.
    let fault = on(&poor(Pool { channel_ops: 0, ..rich }), &program, &[42]).unwrap_err();
    assert!(fault.to_string().contains("channel_ops"), "{fault}");
}

#[test]
fn structs_and_slices_are_copied_between_tasks() {
    let text = "struct Pair { a: slice<i64>, b: slice<i64> }
fn @change(%0: Pair) -> Pair {
b0:
  %1: slice<i64> = Field %0, 0
  %2: slice<i64> = Field %0, 1
  %3: i64 = Int 0
  %4: i64 = Int 9
  Store %1, %3, %4
  %5: i64 = Load %2, %3
  Print %5
  Return %0
}
fn @main() -> i64 {
b0:
  %1: i64 = Int 3
  %2: i64 = Int 0
  %3: slice<i64> = Slice_New i64, %1
  %4: Pair = Struct_New Pair(%3, %3)
  %5: nursery = Nursery_Begin
  %6: task<Pair> = Spawn [CPU_Parallel] @change(%4)
  %7: Pair = Await %6
  %8: i64 = Nursery_End %5
  %9: slice<i64> = Field %7, 1
  %10: i64 = Load %9, %2
  %11: i64 = Load %3, %2
  %12: i64 = Int 10
  %13: i64 = Mul %10, %12
  %14: i64 = Add %13, %11
  Return %14
}
";
    // The child sees one slice under two names, as its parent does; what it writes there reaches the parent as a copy.
    let (program, lines) = (program(text), Lines::default());
    let ended = service().run(|cx| program.run_in_task("main", &[], cx, &lines)).unwrap().unwrap();
    assert_eq!(ended.value, Some(90));
    assert_eq!(lines.lines(), ["9"]);
    // Two objects, a spawn with a copy of its arguments; the copy of the result is the child's.
    assert_eq!(ended.ops, 4);
}

//= SCHED:10.2.4
//= SCHED:1.1.2
//= SCHED:15.1.2
#[test]
fn in_a_sovereign_program_only_capabilities_spawn() {
    let child = "fn @leaf(%0: i64) -> i64 {\nb0:\n  Return %0\n}\n";
    let spawns = |name: &str, caps: &str, what: &str| {
        format!(
            "fn @{name}({caps}) -> i64 {{\nb0:\n  %10: i64 = Int 40\n  %11: nursery = Nursery_Begin\n  {what}\n  \
             %13: i64 = Await %12\n  %14: i64 = Nursery_End %11\n  %15: i64 = Add %13, %14\n  Return %15\n}}\n"
        )
    };
    let leaf = "%12: task<i64> = Spawn [CPU_Parallel] @leaf(%10)";
    let direct = format!("profile sovereign\n{child}{}", spawns("main", "", leaf));
    let with_cap = format!(
        "profile sovereign\n{child}{}{}",
        spawns("inner", "%0: CapSpawn", leaf),
        spawns("main", "%0: CapSpawn", "%12: task<i64> = Spawn [CPU_Parallel] @inner(%0)")
    );
    // The child is not given what its parent has.
    let without = with_cap.replace("@inner(%0: CapSpawn)", "@inner()").replace("@inner(%0)", "@inner()");
    let budget =
        |amount: u64| Budget { ops: 10_000, memory: 4096, spawn_count: amount as u16, ..Budget::ZERO };
    let granted = || {
        let caps = Caps::root(10, budget(10), Budget::MAX, 10, 10);
        Config::new(Profile::Sovereign).workers(1).root_caps(caps).build().unwrap()
    };
    let nothing = Config::new(Profile::Sovereign).workers(1).build().unwrap();
    assert_eq!(on(&granted(), &program(&with_cap), &[0]).unwrap().value, Some(40));
    assert_eq!(on(&granted(), &program(&direct), &[]).unwrap().value, Some(40));
    let refused = Trap::Spawn(mainspring::SpawnError::NotPermitted);
    assert_eq!(on(&nothing, &program(&direct), &[]).unwrap_err().kind, FaultKind::Trap(refused));
    let trapped = mainspring_qtjir::error_code("Trapped").unwrap();
    assert_eq!(on(&granted(), &program(&without), &[0]).unwrap().value, Some(trapped as u64));
    // A budget of one's own choice needs a CapBudget, and so does a recharge of oneself.
    let create = "%12: task<i64> = Task_Create [CPU_Parallel] @leaf(%10), budget(%10, %10, %10, %10, %10)";
    let custom = direct.replace(leaf, create).replace("Nursery_Begin", "Nursery_Begin\n  Recharge_Self %10");
    let budgeted = Caps::root(10, budget(100), Budget::MAX, 10, 10);
    let sovereign = |caps: Caps| Config::new(Profile::Sovereign).workers(1).root_caps(caps).build().unwrap();
    let rich = direct.replace(leaf, create).replace("Int 40", "Int 40\n  %20: i64 = Int 0");
    let rich = rich.replace("budget(%10, %10, %10, %10, %10)", "budget(%10, %20, %20, %20, %20)");
    assert_eq!(on(&sovereign(budgeted), &program(&rich), &[]).unwrap().value, Some(40));
    let refused = Trap::Spawn(mainspring::SpawnError::NotPermitted);
    let fault = on(&sovereign(budgeted.without_budget()), &program(&rich), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap(refused));
    let refused = Trap::Recharge(mainspring::RechargeError::NotPermitted);
    let fault = on(&sovereign(budgeted.without_budget()), &program(&custom), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap(refused));
}

//= SCHED:10.2.3
#[test]
fn a_supervisor_recharges_its_children() {
    let text = "profile cluster
fn @spins(%0: i64) -> i64 {
b0:
  Jump b1(%0)
b1(%1: i64):
  %2: i64 = Int 0
  %3: bool = Gt %1, %2
  Branch %3, b2, b3
b2:
  %4: i64 = Int 1
  %5: i64 = Sub %1, %4
  Jump b1(%5)
b3:
  Return %0
}
fn @main(%0: i64) -> i64 {
b0:
  %1: i64 = Int 2000
  %9: i64 = Int 0
  %2: nursery = Nursery_Begin
  %3: task<i64> = Task_Create [CPU_Parallel] @spins(%1), budget(%0, %9, %9, %9, %9)
  Recharge %3, %1
  %4: i64 = Await %3
  %5: i64 = Nursery_End %2
  %6: i64 = Add %4, %5
  Return %6
}
";
    let cluster = || Config::new(Profile::Cluster).workers(1).build().unwrap();
    assert_eq!(on(&cluster(), &program(text), &[100]).unwrap().value, Some(2000));
    let without = text.replace("Recharge %3, %1\n", "Yield\n");
    let exhausted = mainspring_qtjir::error_code("BudgetExhausted").unwrap();
    assert_eq!(on(&cluster(), &program(&without), &[100]).unwrap().value, Some(exhausted as u64));
    // In another profile no task is a supervisor.
    let service = text.replace("profile cluster", "profile service");
    let fault = on(&self::service(), &program(&service), &[100]).unwrap_err();
    assert!(fault.to_string().contains("only a supervisor"), "{fault}");
}

#[test]
fn handles_end_with_their_nursery_and_are_used_once() {
    let twice = two().replace("Task_Join %3", "Task_Join %2");
    let fault = on(&service(), &program(&twice), &[5]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap(Trap::AwaitedTwice));
    let late = two().replace(
        "%5: i64 = Task_Join %3\n  %6: i64 = Nursery_End %1\n",
        "%6: i64 = Nursery_End %1\n  %5: i64 = Task_Join %3\n",
    );
    let fault = on(&service(), &program(&late), &[5]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap(Trap::StaleHandle));
}

//= SCHED:4.1.1d
#[test]
fn a_yield_lets_the_others_run() {
    // One worker: the child sets nothing unless its parent gives way. The parent yields until the child has sent.
    let text = "fn @says(%0: chan<i64>) -> unit {
b0:
  %1: i64 = Int 5
  %2: i64 = Send %0, %1
  Print_Text \"child\"
  Return
}
fn @main() -> i64 {
b0:
  %1: i64 = Int 1
  %2: chan<i64> = Channel_New i64, %1
  %3: nursery = Nursery_Begin
  %4: task<unit> = Spawn [CPU_Parallel] @says(%2)
  Yield
  Print_Text \"parent\"
  %5: i64, %6: i64 = Recv %2
  %7: i64 = Nursery_End %3
  Return %5
}
";
    let order = |text: &str| {
        let (program, lines) = (program(text), Lines::default());
        let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
        let ended = runtime.run(|cx| program.run_in_task("main", &[], cx, &lines)).unwrap().unwrap();
        assert_eq!(ended.value, Some(5));
        lines.lines()
    };
    assert_eq!(order(text), ["child", "parent"]);
    assert_eq!(order(&text.replace("  Yield\n", "")), ["parent", "child"], "without it the parent goes on");
}

/// Who waits for a message or a task leaves the worker as Blocked; who yields stays Ready.
//= SCHED:4.2.1
#[test]
fn a_yield_leaves_a_task_ready_and_a_wait_leaves_it_blocked() {
    let never = "%1: i64 = Int 0\n  %2: chan<i64> = Channel_New i64, %1\n";
    let yields = "fn @main() -> unit {\nb0:\n  Jump b1\nb1:\n  Yield\n  Jump b1\n}\n".to_owned();
    let receives =
        format!("fn @main() -> i64 {{\nb0:\n  {never}  %3: i64, %4: i64 = Recv %2\n  Return %3\n}}\n");
    let sends = format!("fn @main() -> i64 {{\nb0:\n  {never}  %3: i64 = Send %2, %1\n  Return %3\n}}\n");
    let awaits = format!(
        "fn @waits(%0: chan<i64>) -> i64 {{\nb0:\n  %1: i64, %2: i64 = Recv %0\n  Return %1\n}}\n\
         fn @main() -> i64 {{\nb0:\n  {never}  %3: nursery = Nursery_Begin\n  \
         %4: task<i64> = Spawn [CPU_Parallel] @waits(%2)\n  %5: i64 = Await %4\n  %6: i64 = Nursery_End %3\n  \
         Return %5\n}}\n"
    );
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    for (text, left_as) in [
        (yields, TaskState::Ready),
        (receives, TaskState::Blocked),
        (sends, TaskState::Blocked),
        (awaits, TaskState::Blocked),
    ] {
        let program = program(&text);
        let ended = runtime.run(|cx| {
            cx.nursery(|nursery| {
                let pool = nursery.pool().part(4);
                let run = |cx: &Cx| program.run_in_task("main", &[], cx, &Quiet).map(|_| ());
                let task = nursery.builder().pool(pool).spawn_try(run).unwrap();
                // One worker: this task runs again when the other has given way.
                (0..4).for_each(|_| cx.yield_now());
                assert_eq!(task.state(), left_as, "{text}");
                nursery.cancel();
            })
        });
        assert!(ended.unwrap().unwrap_err().error.is_cancelled());
    }
}

#[test]
fn a_run_out_of_its_pool_ends_with_a_typed_error() {
    let pool = Pool { ops: 100_000, memory: 1 << 20, spawn_count: 10, channel_ops: 10, syscalls: 10 };
    let runtime = Config::new(Profile::Service).workers(1).root_pool(pool).build().unwrap();
    let program = program(&two());
    let error = runtime.run(|cx| program.run_in_task("work", &[1_000_000], cx, &Quiet)).unwrap_err();
    assert!(matches!(error, TaskError::BudgetExhausted(mainspring::Component::Ops)), "{error}");
}

/// Three levels of tasks that compute, allocate and send.
const TREE: &str = "
fn @leaf(%0: i64, %1: chan<slice<i64>>) -> i64 {
b0:
  %2: i64 = Int 0
  %3: slice<i64> = Slice_New i64, %0
  Jump b1(%2)
b1(%4: i64):
  %5: bool = Lt %4, %0
  Branch %5, b2, b3
b2:
  Store %3, %4, %4
  %6: i64 = Int 1
  %7: i64 = Add %4, %6
  Jump b1(%7)
b3:
  %8: i64 = Send %1, %3
  Return %8
}
fn @middle(%0: i64, %1: chan<slice<i64>>) -> unit {
b0:
  %2: nursery = Nursery_Begin
  %3: task<i64> = Spawn [CPU_Parallel] @leaf(%0, %1)
  %4: task<i64> = Spawn [CPU_Parallel] @leaf(%0, %1)
  %5: i64 = Nursery_End %2
  Return
}
fn @main(%0: i64) -> i64 {
b0:
  %1: i64 = Int 4
  %2: chan<slice<i64>> = Channel_New slice<i64>, %1
  %3: nursery = Nursery_Begin
  %4: task<unit> = Spawn [CPU_Parallel] @middle(%0, %2)
  %5: task<unit> = Spawn [CPU_Parallel] @middle(%0, %2)
  %6: slice<i64>, %7: i64 = Recv %2
  %8: slice<i64>, %9: i64 = Recv %2
  %10: slice<i64>, %11: i64 = Recv %2
  %12: slice<i64>, %13: i64 = Recv %2
  %14: i64 = Nursery_End %3
  %15: i64 = Len %12
  Return %15
}
";

#[test]
fn ops_are_the_same_on_every_run_and_any_number_of_workers() {
    let program = program(TREE);
    let first = on(&service(), &program, &[3000]).unwrap();
    assert_eq!(first.value, Some(3000));
    // Per leaf: an allocation, its turns, a copy and a send. Above them: six spawns and four receives.
    assert_eq!(first.all_ops, 4 * (1 + 3000 + 1 + 1) + 6 + 4);
    for workers in 1..=8 {
        for run in 0..3 {
            let runtime = Config::new(Profile::Service).workers(workers).build().unwrap();
            assert_eq!(on(&runtime, &program, &[3000]).unwrap(), first, "{workers} workers, run {run}");
        }
    }
}

#[test]
fn the_order_of_tasks_is_the_same_for_the_same_seed() {
    let program = program(TREE);
    let trace = |seed: u64, workers: usize| {
        let runtime =
            Config::new(Profile::Service).workers(workers).deterministic_seed(seed).build().unwrap();
        let ended = on(&runtime, &program, &[3000]).unwrap();
        (ended, runtime.trace().unwrap())
    };
    for workers in [1, 3, 8] {
        assert_eq!(trace(7, workers), trace(7, workers));
    }
}

//= SCHED:3.3.1
#[test]
fn the_runtime_charges_what_the_program_counts() {
    let program = program(&two());
    let (counted, charged) = service()
        .run(|cx| {
            let before = cx.ops_used();
            let ended = program.run_in_task("work", &[5000], cx, &Quiet).unwrap();
            (ended.ops, cx.ops_used() - before)
        })
        .unwrap();
    assert_eq!((counted, charged), (5000, 5000));
}
