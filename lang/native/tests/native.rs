//! Compiled code does what the interpreter does: the same results, traps and charges.

use mainspring::{Budget, Component, Config, Exhaustion, NurseryOptions, Pool, Profile, TaskError};
use mainspring_janus::compile;
use mainspring_janus::testing::{random_loops, random_program, random_values};
use mainspring_native::{Metering, Options};
use mainspring_qtjir::{Ended, Fault, FaultKind, Limits, Output, Program, Quiet, Trap, task_fault};
use std::sync::Mutex;

/// As much of the stack as a program can ask for.
const DEEP: Options = Options { stack_bytes: 1 << 20, metering: Metering::Ops };

fn both(source: &str) -> (Program, Program) {
    let module = compile(source).unwrap_or_else(|mistakes| panic!("{}", mistakes.render("test.jan", source)));
    let interpreted = Program::compile(module.clone()).unwrap();
    let compiled = mainspring_native::compile(Program::compile(module).unwrap(), DEEP).unwrap();
    (interpreted, compiled)
}

/// Runs without a runtime, on a thread with a stack of 4 MiB.
fn alone(program: &Program, arg: u64, limits: Limits) -> (Result<Ended, Fault>, Vec<String>) {
    let lines = Lines::default();
    let ended = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(4 << 20);
        thread
            .spawn_scoped(scope, || program.run_alone("main", &[arg], limits, &lines))
            .unwrap()
            .join()
            .unwrap()
    });
    (ended, lines.0.into_inner().unwrap())
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Output for Lines {
    fn line(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

fn agree(source: &str, arg: u64, limits: Limits) -> Result<Ended, Fault> {
    let (interpreted, compiled) = both(source);
    let (one, other) = (alone(&interpreted, arg, limits), alone(&compiled, arg, limits));
    assert_eq!(one, other, "{source}");
    one.0
}

const LIMITS: Limits =
    Limits { ops: 300_000, memory: 1 << 24, spawn_count: 0, channel_ops: 0, syscalls: 100 };

#[test]
fn random_programs_agree_on_results_traps_and_charges() {
    let (mut ended, mut trapped) = (0, 0);
    for seed in 0..250 {
        match agree(&random_program(seed, false), seed, LIMITS) {
            Ok(_) => ended += 1,
            Err(_) => trapped += 1,
        }
    }
    assert!(ended > 50 && trapped > 10, "{ended} ended, {trapped} trapped: the programs test too little");
}

/// Indices near the ends of slices, in loops: where checks are left out, and must not be.
#[test]
fn random_loops_agree_on_results_traps_and_charges() {
    let (mut ended, mut trapped) = (0, 0);
    for seed in 0..300 {
        match agree(&random_loops(seed), seed, LIMITS) {
            Ok(_) => ended += 1,
            Err(_) => trapped += 1,
        }
    }
    assert!(ended > 50 && trapped > 50, "{ended} ended, {trapped} trapped: the programs test too little");
}

/// The ends of integers, shifts of any length, floats that are no numbers, and calls with more parameters than registers.
#[test]
fn random_values_agree_on_results_traps_and_prints() {
    let programs = std::env::var("MAINSPRING_PROGRAMS").ok().and_then(|count| count.parse().ok());
    let (mut ended, mut trapped) = (0, 0);
    for seed in 0..programs.unwrap_or(120u64) {
        match agree(&random_values(seed), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), LIMITS) {
            Ok(_) => ended += 1,
            Err(_) => trapped += 1,
        }
    }
    assert!(ended > 50 && trapped > 10, "{ended} ended, {trapped} trapped: the programs test too little");
}

/// A check that fails only in the last turn, or only for an argument that the compiler does not know, is made.
#[test]
fn a_check_that_can_fail_is_not_left_out() {
    let cases = [
        ("for i in 0..s.len + 1 { s[i] = 1 }", "index 1500 of a slice of 1500"),
        ("for i in 0..n { s[i] = 1 }", "index 1500 of a slice of 1500"),
        ("for i in 0..s.len { s[i + 1] = 1 }", "index 1500 of a slice of 1500"),
        ("for i in 0..s.len { s[i - 1] = 1 }", "index -1 of a slice of 1500"),
        ("for i in 0..s.len { t[i] = 1 }", "index 10 of a slice of 10"),
        ("for i in 0..5 { for j in 0..5 { t[i * 2 + j] = 1 } }", "index 10 of a slice of 10"),
        ("var i = 0\n while i <= t.len { t[i] = 1\n i = i + 1 }", "index 10 of a slice of 10"),
        ("var i = t.len\n while i > 0 - 2 { i = i - 1\n t[i] = 1 }", "index -1 of a slice of 10"),
        ("var i = 9223372036854775805\n while i > 0 { i = i + 1 }", "the result does not fit"),
        (
            "for i in n..n + 10 { if i < t.len { t[i] = 1 } else { t[i - n + 1] = 2 } }",
            "index 10 of a slice of 10",
        ),
        ("var i = 0\n while i < t.len { i = i + 1\n t[i] = 1 }", "index 10 of a slice of 10"),
        ("for i in 0..10 { let u = make([]i64, i)\n u[i / 2] = 1 }", "index 0 of a slice of 0"),
        ("t[n * 6148914691236517206] = 1", "the result does not fit"),
        // What was an index before says nothing of its neighbours.
        ("let i = n - 2000\n let a = t[i]\n t[i - 1] = a", "index -1 of a slice of 10"),
        ("let i = n - 1991\n t[i] = 5\n t[i + 1] = t[i]", "index 10 of a slice of 10"),
        ("let i = n - 1991\n t[i] = i + 9223372036854775807", "the result does not fit"),
        ("let i = n - 1991\n t[i] = 1\n t[0] = i - 0x8000000000000000", "the result does not fit"),
    ];
    for (body, says) in cases {
        let source = format!(
            "{{.profile: core.}}\nfn work(s: []i64, n: i64) -> i64 {{ let t = make([]i64, 10)\n {body}\n return t[0] }}
fn main(n: i64) -> i64 {{ return work(make([]i64, 1500), n) }}"
        );
        let fault = agree(&source, 2000, LIMITS).unwrap_err();
        assert!(fault.to_string().contains(says), "{body}: {fault}");
    }
}

/// What is measured against what gives the same results. Without checks nothing but memory and prints is charged.
#[test]
fn programs_without_checks_and_with_polls_give_the_same_results() {
    let mut same = 0;
    for seed in 0..60 {
        let source = random_program(seed, false);
        let (interpreted, _) = both(&source);
        let Ok(wanted) = alone(&interpreted, seed, LIMITS).0 else { continue };
        for metering in [Metering::None, Metering::Time] {
            let module = compile(&source).unwrap();
            let program = match metering {
                Metering::None => Program::compile_unmetered(module),
                _ => Program::compile(module),
            };
            let options = Options { metering, ..DEEP };
            let program = mainspring_native::compile(program.unwrap(), options).unwrap();
            let got = alone(&program, seed, LIMITS).0.unwrap();
            assert_eq!(got.value, wanted.value, "{metering:?}\n{source}");
            assert!(got.ops <= wanted.ops, "{metering:?}\n{source}");
        }
        same += 1;
    }
    assert!(same > 10, "{same} programs ended: the test shows too little");
}

#[test]
fn each_kind_of_trap_has_its_place() {
    let core = "{.profile: core.}\n";
    let cases = [
        ("fn main(n: i64) -> i64 { return n + 9223372036854775807 }", "2:35: the result does not fit"),
        ("fn main(n: i64) -> i64 { return n * 4611686018427387904 }", "2:35: the result does not fit"),
        ("fn main(n: i64) -> i64 { return -9223372036854775807 - n }", "2:54: the result does not fit"),
        ("fn main(n: i64) -> i64 { return 1 / (n - 2) }", "2:35: division by zero"),
        (
            "fn main(n: i64) -> i64 { return (0 - 9223372036854775807 - 1) / (1 - n) }",
            "2:63: the result does not fit",
        ),
        (
            "fn main(n: i64) -> i64 { return (0 - 9223372036854775807 - 1) % (1 - n) }",
            "2:63: the result does not fit",
        ),
        ("fn main(n: i64) -> i64 { return [1, 2][n] }", "2:39: index 2 of a slice of 2"),
        ("fn main(n: i64) -> i64 { return [1, 2][n - 3] }", "2:39: index -1 of a slice of 2"),
        (
            "struct P { x: i64 }\nfn main(n: i64) -> i64 { return make([]P, n)[0].x }",
            "3:48: this element was never set",
        ),
        ("fn main(n: i64) -> i64 { return make([]i64, n - 3).len }", "2:33: a size of -1"),
        ("fn main(n: i64) -> i64 { return make([]i64, n * 100000000).len }", "2:33: ran out of memory"),
        (
            "fn main(n: i64) -> i64 { while true { n_print(n) } }\nfn n_print(n: i64) { print(n) }",
            "3:22: ran out of syscalls",
        ),
        ("fn main(n: i64) -> i64 { while true { } }", "2:26: ran out of ops"),
        ("fn main(n: i64) -> i64 { return main(n) }", "2:33: calls nest too deep"),
    ];
    for (source, says) in cases {
        let fault = agree(&format!("{core}{source}"), 2, LIMITS).unwrap_err();
        assert!(fault.to_string().starts_with(says), "{source}: {fault}");
    }
}

/// Code that has read or written a word does not read it again, unless somebody may have written it since: by another name, at an index that
/// is not known, in a call or on another way.
#[test]
fn a_word_that_may_have_been_written_is_read_again() {
    let source = "{.profile: core.}
struct Pair { a: i64, f: f64, next: []i64 }
fn set(s: []i64, at: i64, to: i64) { s[at] = to }
fn alter(p: Pair) { p.a = p.a + 1\n p.f = p.f * 2.0 }
fn main(n: i64) -> i64 {
    let s = make([]i64, 4)\n let t = s\n let rows = [s, t]
    let p = Pair { a: 1, f: 1.5, next: s }\n let q = p
    s[0] = 1\n print(s[0])
    t[0] = 2\n print(s[0])
    rows[1][0] = 3\n print(s[0])\n print(p.next[0])
    set(t, 0, 4)\n print(s[0])
    s[n & 3] = 5\n print(s[0])
    s[0] = 6\n t[n & 3 | 1] = 7\n print(s[0])\n print(t[1])
    if n > 3 { t[0] = 8 }\n print(s[0])
    for i in 0..n { print(s[0])\n t[0] = s[0] + i }
    print(s[0])
    q.a = 9\n print(p.a)\n q.f = 2.5\n print(p.f)\n alter(q)\n print(p.a)\n print(p.f)
    p.next[1] = 10\n print(s[1])\n q.next = make([]i64, 2)\n print(p.next[1])
    var x = s[0]\n while x > 0 { s[0] = x - 1\n x = t[0] - n }
    return s[0] * 100 + x
}";
    let (interpreted, compiled) = both(source);
    let (one, other) = (alone(&interpreted, 4, LIMITS), alone(&compiled, 4, LIMITS));
    assert_eq!(one, other);
    let printed = [
        "1", "2", "3", "3", "4", "5", "6", "7", "8", "8", "8", "9", "11", "14", "9", "2.5", "10", "5.0",
        "10", "0",
    ];
    assert_eq!(one.1, printed);
    assert_eq!(one.0.unwrap().value, Some((3 * 100 - 1) as u64));
}

#[test]
fn errors_floats_structs_and_text_agree() {
    let source = "{.profile: core.}
error Odd, Big
struct Pair { a: i64, b: f64, c: []f64 }
fn half(n: i64) -> !i64 { if n % 2 == 1 { fail Odd }\n return n / 2 }
fn check(n: i64) -> ! { if n > 10 { fail Big } }
fn both(n: i64) -> !i64 { try check(n)\n return try half(n) }
fn mean(s: []f64) -> f64 { var sum = 0.0\n for x in s { sum = sum + x }\n return sum / float(len(s)) }
fn main(n: i64) -> i64 {
    let p = Pair { a: n, b: -1.5, c: [1.5, 2.5, float(n)] }
    p.b = mean(p.c) * p.b
    print(p.b)
    print(p.b < 0.0 and not (p.a == 3))
    print(\"a text\")
    print(int(0.0 / 0.0) + int(1.0e300) % 1000)
    return (both(n) catch 100) * 1000 + (both(n + 1) catch 7) * 10 + (both(12) catch 3)
}";
    let ended = agree(source, 4, LIMITS).unwrap();
    assert_eq!(ended.value, Some(2073));
}

/// Main and its tasks are interpreted; `work` and what it calls is compiled.
const MIXED: &str = "fn inner(n: i64) -> i64 { var left = n\n while left > 0 { left = left - 1 }\n return n }
fn work(n: i64) -> i64 { var sum = 0\n for i in 0..n { sum = sum + inner(i) }\n return sum }
fn main(n: i64) -> i64 {
    var sum = work(n)
    nursery {
        let a = spawn work(n * 2)
        let b = spawn work(n * 3)
        sum = sum + await a + await b
    }
    return sum
}";

#[test]
fn tasks_are_charged_alike_on_any_number_of_workers() {
    let (interpreted, compiled) = both(MIXED);
    let run = |program: &Program, workers: usize| {
        let runtime = Config::new(Profile::Service).workers(workers).stack_size(2 << 20).build().unwrap();
        runtime.run(|cx| program.run_in_task("main", &[60], cx, &Quiet)).unwrap().unwrap()
    };
    let first = run(&interpreted, 1);
    let turns = |n: u64| n + (0..n).map(|i| i + 1).sum::<u64>();
    assert_eq!(first.all_ops, turns(60) + turns(120) + turns(180) + 1 + 2);
    for workers in 1..=8 {
        assert_eq!(run(&compiled, workers), first, "{workers} workers");
    }
}

#[test]
fn random_programs_with_tasks_agree() {
    for seed in (0..60).step_by(2) {
        let (interpreted, compiled) = both(&random_program(seed, true));
        let run = |program: &Program| {
            let runtime = Config::new(Profile::Service).workers(2).stack_size(2 << 20).build().unwrap();
            match runtime.run(|cx| program.run_in_task("main", &[seed], cx, &Quiet)) {
                Ok(ended) => ended,
                Err(error) => Err(task_fault(&error)),
            }
        };
        assert_eq!(run(&interpreted), run(&compiled), "seed {seed}");
    }
}

/// The same program, seed and budgets: the same result, the same ops and the same order of every dispatch and steal, whether it is
/// interpreted or compiled, on any number of workers. `MAINSPRING_PROGRAMS` says how many programs.
#[test]
fn interpreted_and_compiled_runs_have_one_trace() {
    let programs = std::env::var("MAINSPRING_PROGRAMS").ok().and_then(|count| count.parse().ok());
    let (mut with_tasks, mut steps) = (0, 0);
    for seed in 0..programs.unwrap_or(24u64) {
        let (interpreted, compiled) = both(&random_program(seed, true));
        let run = |program: &Program, workers: usize| {
            let config = Config::new(Profile::Service).workers(workers).stack_size(2 << 20);
            let runtime = config.deterministic_seed(seed).fail_on_deadlock().build().unwrap();
            let ended = match runtime.run(|cx| program.run_in_task("main", &[seed], cx, &Quiet)) {
                Ok(ended) => ended,
                Err(error) => Err(task_fault(&error)),
            };
            (ended, runtime.trace().unwrap())
        };
        let mut all_ops = None;
        for workers in 1..=8 {
            let (one, other) = (run(&interpreted, workers), run(&compiled, workers));
            assert_eq!(one, other, "seed {seed}, {workers} workers");
            // Where a task fails, its siblings are stopped wherever they are. Programs of even seeds do not.
            if let Ok(ended) = one.0
                && seed % 2 == 0
            {
                let first = *all_ops.get_or_insert(ended.all_ops);
                assert_eq!(first, ended.all_ops, "seed {seed}, {workers} workers");
                with_tasks += usize::from(ended.all_ops > ended.ops);
            }
            steps += one.1.1;
        }
    }
    assert!(
        with_tasks > 20 && steps > 1000,
        "{with_tasks} runs had tasks, {steps} steps: the programs test too little"
    );
}

/// How a hostile program ends that has a budget of its own beside a neighbour, which must not notice.
fn attack(source: &str) -> Result<String, TaskError> {
    let neighbour = both(MIXED).1;
    let hostile =
        mainspring_native::compile(Program::compile(compile(source).unwrap()).unwrap(), Options::default());
    let hostile = hostile.unwrap();
    let pool =
        Pool { ops: 1 << 32, memory: 1 << 32, spawn_count: 1 << 16, channel_ops: 1 << 16, syscalls: 1 << 16 };
    let runtime = Config::new(Profile::Cluster).workers(1).root_pool(pool).build().unwrap();
    let alone = runtime.run(|cx| neighbour.run_in_task("work", &[60], cx, &Quiet)).unwrap().unwrap();
    let budget = Budget { ops: 200_000, memory: 1 << 20, spawn_count: 50, channel_ops: 50, syscalls: 50 };
    runtime
        .nursery(NurseryOptions::new().on_exhausted(Exhaustion::Cancel), |nursery| {
            let attacker = nursery.builder().budget(budget).spawn(|cx| {
                match hostile.run_in_task("main", &[], cx, &Quiet) {
                    Ok(ended) => format!("{ended:?}"),
                    Err(fault) => fault.to_string(),
                }
            });
            let attacker = attacker.unwrap();
            let beside = nursery.spawn(|cx| neighbour.run_in_task("work", &[60], cx, &Quiet)).unwrap();
            assert_eq!(beside.wait().unwrap().unwrap(), alone, "the neighbour noticed");
            attacker.wait()
        })
        .unwrap()
}

#[test]
fn a_hostile_loop_is_unwound_at_its_budget() {
    // In a call, so that the runtime's way of ending a task passes frames of generated code.
    let error =
        attack("fn spin(n: i64) -> i64 { while true { } }\nfn main() -> i64 { return spin(1) + spin(2) }")
            .unwrap_err();
    assert!(matches!(error, TaskError::BudgetCut(Component::Ops)), "{error}");
}

#[test]
fn hostile_recursion_and_allocation_trap() {
    let said = attack("fn main() -> i64 { return main() + 1 }").unwrap();
    assert!(said.contains("calls nest too deep"), "{said}");
    let said =
        attack("fn main() -> i64 { var n = 0\n while true { n = n + make([]i64, 1000).len } }").unwrap();
    assert!(said.contains("memory budget exhausted"), "{said}");
}

#[test]
fn a_cancelled_task_leaves_compiled_code() {
    let source = "error Stop
fn spin() -> i64 { while true { } }
fn fails() -> ! { fail Stop }
fn main() -> i64 { var seen = 0
    nursery { spawn spin()
        spawn fails() } catch |e| { if e == error.Stop { seen = 1 } }
    return seen }";
    let (_, compiled) = both(source);
    let runtime = Config::new(Profile::Service).workers(2).stack_size(2 << 20).build().unwrap();
    let ended = runtime.run(|cx| compiled.run_in_task("main", &[], cx, &Quiet)).unwrap().unwrap();
    assert_eq!(ended.value, Some(1));
}

#[test]
fn a_function_that_spawns_is_interpreted_and_the_rest_is_compiled() {
    let deep = "fn down(n: i64) -> i64 { if n == 0 { return 0 }\n return 1 + down(n - 1) }\nfn main(n: i64) -> i64 { return down(n) }";
    let module = compile(deep).unwrap();
    // With little stack, compiled code traps where the interpreter does not: so it was compiled.
    let little = Options { stack_bytes: 8 << 10, ..DEEP };
    let compiled = mainspring_native::compile(Program::compile(module.clone()).unwrap(), little).unwrap();
    let fault = alone(&compiled, 1000, Limits::MAX).0.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap(Trap::StackOverflow));
    assert_eq!(alone(&Program::compile(module).unwrap(), 1000, Limits::MAX).0.unwrap().value, Some(1000));
}
