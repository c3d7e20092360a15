//! Tasks, from source to result.

use super::{program, result, run, run_on, runtime};
use mainspring_qtjir::{FaultKind, Quiet, Trap, error_code};

const COMPUTE: &str = "error NotFound, Busy
fn compute(x: i64) -> i64 {
    var sum = 0
    for i in 0..x { sum = sum + i }
    return sum
}
fn fails(x: i64) -> !i64 {
    if x > 0 { fail NotFound }
    return x
}
fn waits(c: chan i64) { print(c.recv() catch 0) }
";

/// What `seen` is after a nursery of these tasks, whose error this handler saw.
fn seen(tasks: &str, handler: &str) -> i64 {
    result(&format!(
        "{COMPUTE}fn main() -> i64 {{
    let never = make(chan i64, 0)
    let started = make(chan i64, 8)
    var seen = 0
    nursery {{ {tasks} }} catch |e| {{ {handler} }}
    return seen
}}"
    ))
}

#[test]
fn tasks_give_their_results() {
    let source = format!(
        "{COMPUTE}fn main() -> i64 {{
    var sum = 0
    nursery {{
        let a = spawn compute(1000)
        let b = spawn compute(2000)
        sum = await a + await b
    }}
    return sum
}}"
    );
    assert_eq!(result(&source), (0..1000).sum::<i64>() + (0..2000).sum::<i64>());
}

#[test]
fn tasks_talk_through_channels() {
    let source = "fn produce(c: chan i64, n: i64) -> !{
    for i in 0..n { try c.send(i) }
    c.close()
}
fn main() -> i64 {
    let c = make(chan i64, 4)
    var sum = 0
    nursery {
        spawn produce(c, 100)
        var more = true
        while more {
            let got = c.recv() catch -1
            if got < 0 { more = false } else { sum = sum + got }
        }
    }
    return sum
}";
    assert_eq!(result(source), 4950);
}

//= NURS:error-propagation
#[test]
fn an_error_of_a_child_is_what_the_code_after_the_nursery_sees() {
    let tasks = "spawn waits(never)\n spawn fails(1)\n spawn waits(never)";
    let handler = "if e == error.NotFound { seen = 1 }\n if e == error.Busy { seen = 2 }";
    assert_eq!(seen(tasks, handler), 1);
}

//= NURS:error-propagation
#[test]
fn an_error_that_nobody_handles_is_the_callers() {
    let source = format!(
        "{COMPUTE}fn inner() -> ! {{ nursery {{ spawn fails(1) }} }}\nfn main() -> !i64 {{ try inner()\n return 1 }}"
    );
    let fault = run(&source).unwrap_err();
    assert_eq!(fault.to_string(), "13:4: error.NotFound (in main)");
    let source = format!("{COMPUTE}fn main() {{ nursery {{ spawn fails(1) }} }}");
    let fault = run(&source).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Unhandled { .. }), "{fault}");
    assert_eq!(
        fault.to_string(),
        "12:13: unhandled error.NotFound of a task: 7:4: error.NotFound (in fails) (in main)"
    );
}

#[test]
fn a_nursery_that_fails_leaves_its_variables_as_they_were() {
    let source = format!(
        "{COMPUTE}fn main() -> i64 {{
    var x = 5
    nursery {{
        x = 70
        let h = spawn fails(1)
        x = await h
    }} catch {{ x = x + 1 }}
    return x
}}"
    );
    assert_eq!(result(&source), 6);
}

//= NURS:nested-syntax
//= NURS:owner-cancel
#[test]
fn nested_nurseries_are_a_tree_that_ends_as_one() {
    let tasks = "
        spawn {
            nursery {
                spawn { nursery { spawn { try started.send(1)\n waits(never) } } }
                spawn { try started.send(1)\n waits(never) }
            }
        }
        let first = started.recv() catch 0
        let second = started.recv() catch 0
        spawn fails(first + second)";
    assert_eq!(seen(tasks, "if e == error.NotFound { seen = 1 }"), 1);
}

//= NURS:owner-cancel
#[test]
fn cancel_ends_all_tasks_of_the_nursery() {
    let tasks = "spawn waits(never)\n spawn { nursery { spawn waits(never) } }\n cancel";
    assert_eq!(seen(tasks, "if e == error.Cancelled { seen = 1 }"), 1);
}

#[test]
fn async_calls_carry_values_and_errors() {
    let source = "error Odd
async fn half(x: i64) -> !i64 {
    if x % 2 == 1 { fail Odd }
    return x / 2
}
fn main() -> i64 {
    var sum = 0
    nursery {
        let a = half(10)
        let b = half(11)
        sum = (await a catch 100) + (await b catch 1000)
    }
    return sum
}";
    assert_eq!(result(source), 1005);
}

#[test]
fn slices_and_structs_go_to_tasks_as_copies() {
    let source = "struct Point { x: i64, y: f64, tags: []i64 }
fn moved(p: Point) -> Point {
    p.x = p.x + 1
    p.tags[0] = 7
    return p
}
fn main() -> i64 {
    let p = Point { x: 1, y: 2.0, tags: [5, 6] }
    var got = 0
    nursery {
        let h = spawn moved(p)
        let q = await h
        got = q.x * 100 + q.tags[0] * 10 + q.tags[1]
    }
    return got * 1000 + p.x * 100 + p.tags[0]
}";
    assert_eq!(result(source), 276_105);
}

//= SCHED:8.1.1
#[test]
fn a_childs_budget_ends_it_and_its_nursery_says_so() {
    let source = "fn spin() -> i64 { while true { } }
fn main() -> i64 {
    var seen = 0
    nursery {
        spawn spin() with { ops: 5000 }
    } catch |e| { if e == error.BudgetExhausted { seen = 1 } }
    return seen
}";
    assert_eq!(result(source), 1);
}

#[test]
fn a_trap_of_a_child_has_its_place() {
    let source = "fn bad(s: []i64) -> i64 { return s[9] }
fn main() { nursery { spawn bad([1, 2, 3]) } }";
    let fault = run(source).unwrap_err();
    assert_eq!(fault.code(), error_code("Trapped").unwrap());
    assert!(fault.to_string().contains("1:35: index 9 of a slice of 3 (in bad)"), "{fault}");
}

#[test]
fn a_handle_is_used_once() {
    let source = "fn one() -> i64 { return 1 }
fn main() { nursery {
    let h = spawn one()
    print(await h)
    print(await h)
} }";
    let fault = run(source).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap(Trap::AwaitedTwice));
    assert_eq!(fault.pos.to_string(), "5:11");
}

#[test]
fn ops_are_the_same_on_any_number_of_workers() {
    let source = format!(
        "{COMPUTE}fn level(n: i64) -> i64 {{
    var sum = 0
    nursery {{
        let a = spawn compute(n)
        let b = spawn compute(n * 2)
        spawn {{ nursery {{ spawn compute(n * 3) }} }}
        sum = await a + await b
    }}
    return sum
}}
fn main() -> i64 {{
    var sum = 0
    nursery {{
        let a = spawn level(1500)
        let b = spawn level(2500)
        sum = await a + await b
    }}
    return sum
}}"
    );
    let program = program(&source);
    let first = run_on(&runtime(1), &program, &[], &Quiet).unwrap();
    assert_eq!(first.all_ops, 2 + 2 * 4 + 6 * (1500 + 2500));
    for workers in 1..=8 {
        assert_eq!(run_on(&runtime(workers), &program, &[], &Quiet).unwrap(), first, "{workers} workers");
    }
}
