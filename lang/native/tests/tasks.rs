//! Nurseries, tasks and channels in machine code do what they do in the interpreter: the same results, errors, charges and traces.

use mainspring::{Budget, Component, Config, Exhaustion, NurseryOptions, Pool, Profile, Runtime, TaskError};
use mainspring_janus::compile;
use mainspring_janus::testing::random_tasks;
use mainspring_native::{Metering, Options};
use mainspring_qtjir::{Ended, Fault, Module, Op, Output, Program, Quiet, task_fault, text};
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

const DEEP: Options = Options { stack_bytes: 1 << 20, metering: Metering::Ops };

fn module(source: &str) -> Module {
    compile(source).unwrap_or_else(|mistakes| panic!("{}", mistakes.render("test.jan", source)))
}

/// All of its functions are machine code.
fn native(module: Module, options: Options) -> Program {
    let program = mainspring_native::compile(Program::compile(module).unwrap(), options).unwrap();
    for (number, function) in program.module().functions.iter().enumerate() {
        assert!(program.is_native(number), "@{} is interpreted", function.name);
    }
    program
}

fn both(module: Module) -> (Program, Program) {
    (Program::compile(module.clone()).unwrap(), native(module, DEEP))
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Output for Lines {
    fn line(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

impl Lines {
    fn sorted(self) -> Vec<String> {
        let mut lines = self.0.into_inner().unwrap();
        lines.sort();
        lines
    }
}

fn run_on(runtime: &Runtime, program: &Program, args: &[u64], output: &dyn Output) -> Result<Ended, Fault> {
    match runtime.run(|cx| program.run_in_task("main", args, cx, output)) {
        Ok(ended) => ended,
        Err(error) => Err(task_fault(&error)),
    }
}

fn threads(workers: usize) -> Runtime {
    Config::new(Profile::Service).workers(workers).stack_size(2 << 20).build().unwrap()
}

/// What a run in a seeded order came to, and its trace.
fn seeded(program: &Program, workers: usize, seed: u64) -> (Result<Ended, Fault>, (u64, u64)) {
    let config = Config::new(Profile::Service).workers(workers).stack_size(2 << 20);
    let runtime = config.deterministic_seed(seed).fail_on_deadlock().build().unwrap();
    (run_on(&runtime, program, &[seed], &Quiet), runtime.trace().unwrap())
}

/// The same program, seed and budgets: the same result or error, with its place, the same ops and the same order of every dispatch and
/// steal. `MAINSPRING_PROGRAMS` says how many programs.
#[test]
fn interpreted_and_compiled_nurseries_have_one_trace() {
    let programs = std::env::var("MAINSPRING_PROGRAMS").ok().and_then(|count| count.parse().ok());
    let (mut with_tasks, mut failed, mut steps) = (0, 0, 0);
    for seed in 0..programs.unwrap_or(40u64) {
        let source = random_tasks(seed);
        let (interpreted, compiled) = both(module(&source));
        let mut all_ops = None;
        for workers in 1..=8 {
            let (one, other) = (seeded(&interpreted, workers, seed), seeded(&compiled, workers, seed));
            assert_eq!(one, other, "seed {seed}, {workers} workers\n{source}");
            match one.0 {
                // Where a task fails, its siblings are stopped wherever they are. In programs of even seeds none does.
                Ok(ended) if seed % 2 == 0 => {
                    let first = *all_ops.get_or_insert(ended.all_ops);
                    assert_eq!(first, ended.all_ops, "seed {seed}, {workers} workers");
                    with_tasks += usize::from(ended.all_ops > ended.ops);
                }
                Ok(_) => {}
                Err(_) => failed += 1,
            }
            steps += one.1.1;
        }
    }
    assert!(
        with_tasks > 20 && failed > 10 && steps > 1000,
        "{with_tasks} runs had tasks, {failed} failed, {steps} steps: the programs test too little"
    );
}

/// On threads too, and under the meter of time, where nothing is counted: what does not fail comes to the same value.
#[test]
fn nurseries_on_threads_come_to_what_the_interpreter_says() {
    for seed in (0..60).step_by(2) {
        let source = random_tasks(seed);
        let (interpreted, compiled) = both(module(&source));
        let timed = native(module(&source), Options { metering: Metering::Time, ..DEEP });
        let wanted = run_on(&threads(1), &interpreted, &[seed], &Quiet).unwrap();
        for workers in [1, 2, 4] {
            let runtime = threads(workers);
            assert_eq!(run_on(&runtime, &compiled, &[seed], &Quiet), Ok(wanted), "seed {seed}\n{source}");
            let got = run_on(&runtime, &timed, &[seed], &Quiet).map(|ended| ended.value);
            assert_eq!(got, Ok(wanted.value), "seed {seed}\n{source}");
        }
    }
}

/// What the examples of the CBC-MN documents use and do not define.
const AROUND: &str = "{.profile: service.}
fn compute(x: i64) -> i64 { print(x * x)\n return x * x }
fn work_a() { print(\"a\") }
fn work_b() { print(\"b\") }
";

#[test]
fn the_examples_of_the_documents_run_as_machine_code() {
    let examples = [
        ("nursery {\n spawn compute(x)\n spawn compute(y)\n }", ["16", "9"]),
        ("nursery {\n spawn {\n nursery {\n spawn work_a()\n spawn work_b()\n }\n }\n }", ["a", "b"]),
    ];
    for (example, prints) in examples {
        let source = format!("{AROUND}fn main() {{\n let x = 3\n let y = 4\n{example}\n}}\n");
        let lines = Lines::default();
        run_on(&threads(2), &native(module(&source), DEEP), &[], &lines).unwrap();
        assert_eq!(lines.sorted(), prints);
    }
}

/// The instructions that no source of the language leads to, as text; the others are in the random programs.
const BY_HAND: &str = "profile cluster
fn @child(%0: i64) -> i64 {
b0:
  %1: i64 = Int 2
  %2: i64 = Mul %0, %1
  Return %2
}
fn @main(%0: i64) -> i64 {
b0:
  %1: nursery = Nursery_Begin
  %2: i64 = Int 1000
  %3: i64 = Int 10
  %4: task<i64> = Task_Create [CPU_Parallel] @child(%0), budget(%2, %2, %3, %3, %3)
  %5: i64 = Task_Join %4
  %6: task<i64> = Spawn [CPU_Parallel] @child(%5)
  Yield
  %7: i64 = Await %6
  Budget_Decrement %3
  Budget_Check
  %8: i64 = Nursery_End %1
  %9: i64 = Add %7, %8
  Return %9
}
";

#[test]
fn every_instruction_runs_as_machine_code() {
    let by_hand = text::parse(BY_HAND).unwrap_or_else(|error| panic!("{error}"));
    let (interpreted, compiled) = both(by_hand.clone());
    assert_eq!(seeded(&interpreted, 2, 5), seeded(&compiled, 2, 5));
    assert_eq!(seeded(&compiled, 2, 5).0.unwrap().value, Some(20));
    let recharges = "{.profile: cluster.}
fn work(n: i64) -> i64 { var left = n\n while left > 0 { left = left - 1 }\n return n }
fn main(n: i64) -> i64 { var got = 0\n nursery { let t = spawn work(100)\n recharge(t, 10)\n got = await t } catch { got = -1 }\n return got }";
    let (interpreted, compiled) = both(module(recharges));
    assert_eq!(seeded(&interpreted, 1, 7), seeded(&compiled, 1, 7));
    let modules = (0..40).map(|seed| module(&random_tasks(seed))).chain([by_hand, module(recharges)]);
    let seen: HashSet<&str> = modules
        .flat_map(|module| module.functions)
        .flat_map(|function| function.blocks)
        .flat_map(|block| block.instrs)
        .map(|instr| instr.op.name())
        .collect();
    let scheduled = [
        Op::Yield.name(),
        "Nursery_Begin",
        "Nursery_End",
        "Nursery_Cancel",
        "Spawn",
        "Task_Create",
        "Task_Join",
        "Await",
        "Async_Call",
        "Recharge",
        "Channel_New",
        "Send",
        "Recv",
        "Close",
    ];
    for name in scheduled {
        assert!(seen.contains(name), "nothing runs {name}");
    }
}

/// What a nursery leaves behind when it fails is zero, whatever its inside had come to.
#[test]
fn what_a_failed_nursery_leaves_is_zero() {
    let source = "profile service
error Odd
fn @fails(%0: i64) -> i64 fails {
b0:
  Fail %0
}
fn @main(%0: i64) -> i64 {
b0:
  %1: nursery = Nursery_Begin
  %2: i64 = Int 41
  %3: slice<i64> = Slice_New i64, %2
  %4: i64 = Len %3
  %5: i64 = Int 7
  %6: task<i64> = Spawn [CPU_Parallel] @fails(%5)
  %7: i64 = Nursery_End %1
  %8: i64 = Len %3
  %9: i64 = Add %8, %4
  %10: i64 = Add %9, %7
  Return %10
}
";
    let module = text::parse(source).unwrap_or_else(|error| panic!("{error}"));
    let (interpreted, compiled) = both(module);
    for workers in [1, 3] {
        let one = seeded(&interpreted, workers, 1);
        assert_eq!(one, seeded(&compiled, workers, 1));
        assert_eq!(one.0.unwrap().value, Some(7), "the code alone");
    }
}

/// A failure that leaves nurseries inside of the one that handles it closes them all: a loop of them goes on for ever.
#[test]
fn nurseries_that_were_interrupted_are_not_open_any_more() {
    let source = "error Stop
fn fails() -> ! { fail Stop }
fn spin() -> i64 { while true { } }
fn main(n: i64) -> i64 { var seen = 0
    for i in 0..50 {
        nursery { spawn fails()
            nursery { spawn spin()\n nursery { spawn spin()\n for j in 0..1000000000 { seen = seen } } }
        } catch |e| { if e == error.Stop { seen = seen + 1 } }
    }
    return seen }";
    let (interpreted, compiled) = both(module(source));
    let one = seeded(&interpreted, 2, 3);
    assert_eq!(one, seeded(&compiled, 2, 3));
    assert_eq!(one.0.unwrap().value, Some(50));
    let timed = native(module(source), Options { metering: Metering::Time, ..DEEP });
    assert_eq!(run_on(&threads(2), &timed, &[0], &Quiet).unwrap().value, Some(50));
}

/// A function that is too large is interpreted. The machine code that it calls takes results out of its nursery, and a child's failure goes
/// through that code to the nursery.
#[test]
fn an_interpreted_function_lends_its_nursery_to_machine_code() {
    let many: String = (1..1100).map(|value| format!("  %{value}: i64 = Int {value}\n")).collect();
    let source = format!(
        "profile service
fn @work(%0: i64) -> i64 fails {{
b0:
  %1: i64 = Int 3
  %2: bool = Gt %0, %1
  Branch %2, b1, b2
b1:
  Fail %0
b2:
  Return %0
}}
fn @take(%0: task<i64>) -> i64 {{
b0:
  %1: i64 = Await %0
  Return %1
}}
fn @main(%0: i64) -> i64 {{
b0:
{many}  %1100: nursery = Nursery_Begin
  %1101: task<i64> = Spawn [CPU_Parallel] @work(%0)
  %1102: i64 = Call @take(%1101)
  %1103: i64 = Nursery_End %1100
  %1104: i64 = Add %1102, %1103
  Return %1104
}}
"
    );
    let module = text::parse(&source).unwrap_or_else(|error| panic!("{error}"));
    let interpreted = Program::compile(module.clone()).unwrap();
    let mixed = mainspring_native::compile(Program::compile(module).unwrap(), DEEP).unwrap();
    assert_eq!([0, 1, 2].map(|function| mixed.is_native(function)), [true, true, false]);
    for (seed, came_to) in [(2, 2), (9, 9)] {
        let one = seeded(&interpreted, 2, seed);
        assert_eq!(one, seeded(&mixed, 2, seed));
        assert_eq!(one.0.unwrap().value, Some(came_to));
    }
}

/// On the stack that tasks have unless they are told otherwise: as many nurseries as can be open, and then calls as deep as they go.
#[test]
fn machine_code_below_many_nurseries_ends_before_its_stack_does() {
    let values: String = (0..1100).map(|value| format!("let v{value} = 0\n")).collect();
    let down = "fn down(n: i64) -> i64 { if n == 0 { return 0 }\n return 1 + down(n - 1) }
fn open(n: i64) -> i64 { var got = 0\n nursery { if n > 0 { got = open(n - 1) } else { got = down(1000000) } }\n return got }";
    let interpreted = format!(
        "{down}\nfn main(n: i64) -> i64 {{ {values} var got = 0
        nursery {{ if n > 0 {{ got = main(n - 1) }} else {{ got = down(1000000) }} }}\n return got }}"
    );
    let compiled = format!("{down}\nfn main(n: i64) -> i64 {{ return open(n) }}");
    for (source, is_native) in [(interpreted, false), (compiled, true)] {
        for metering in [Metering::Ops, Metering::Time] {
            let options = Options { metering, ..Options::default() };
            let program = Program::compile(module(&source)).unwrap();
            let program = mainspring_native::compile(program, options).unwrap();
            assert_eq!(program.is_native(2), is_native);
            for open in [0, 7, 15, 16] {
                let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
                let fault = run_on(&runtime, &program, &[open], &Quiet).unwrap_err();
                assert!(fault.to_string().contains("calls nest too deep"), "{open} nurseries: {fault}");
            }
        }
    }
}

const NEIGHBOUR: &str = "fn part(n: i64) -> i64 { var sum = 0\n for i in 0..n { sum = sum + i }\n return sum }
fn main(n: i64) -> i64 { var sum = 0
    for i in 0..20 { nursery { let a = spawn part(n)\n let b = spawn part(n * 2)\n sum = sum + await a + await b } }
    return sum }";

/// Programs that take what they get. Each has a budget; the last argument says what ends it under the ops meter.
const HOSTILE: [(&str, &str); 6] = [
    (
        "an endless loop in a nursery",
        "fn main() -> i64 { var n = 0\n nursery { while n >= 0 { n = n + 1 & 1023 } }\n return n }",
    ),
    (
        "a child that never ends",
        "fn spin() -> i64 { while true { } }\nfn main() -> i64 { nursery { spawn spin()\n spawn spin() }\n return 1 }",
    ),
    (
        "recursion through nurseries",
        "fn down(n: i64) -> i64 { var got = 0\n nursery { got = down(n + 1) }\n return got }\nfn main() -> i64 { return down(0) }",
    ),
    (
        "allocation in children",
        "fn eat() -> i64 { var n = 0\n while true { n = n + make([]i64, 1000).len } }\nfn main() -> i64 { nursery { spawn eat()\n spawn eat() }\n return 1 }",
    ),
    (
        "a spawn bomb",
        "fn bomb() -> i64 { nursery { for i in 0..1000000000 { spawn bomb() } }\n return 1 }\nfn main() -> i64 { return bomb() }",
    ),
    (
        "messages to itself",
        "fn post(c: chan i64) -> !i64 { try c.send(1)\n return 1 }\nfn main() -> i64 { let c = make(chan i64, 1000)\n var n = 0\n nursery { while n >= 0 { n = (post(c) catch 0) + (c.recv() catch 0) & 1 } }\n return n }",
    ),
];

/// A hostile program beside a neighbour, on one worker. The neighbour has to get the same as alone. The attacker is ended by its budget, or,
/// where it counts nothing, by the time that it is given.
#[test]
fn hostile_nurseries_end_at_their_budget_and_their_neighbour_does_not_notice() {
    for metering in [Metering::Ops, Metering::Time] {
        let options = Options { metering, stack_bytes: 64 << 10 };
        let neighbour = native(module(NEIGHBOUR), options);
        let config = Config::new(Profile::Cluster).workers(1).stack_size(512 << 10);
        let pool = Pool {
            ops: 1 << 40,
            memory: 1 << 36,
            spawn_count: 1 << 20,
            channel_ops: 1 << 20,
            syscalls: 1 << 16,
        };
        let runtime = config.root_pool(pool).build().unwrap();
        let alone = run_on(&runtime, &neighbour, &[1000], &Quiet).unwrap();
        for (what, source) in HOSTILE {
            let hostile = native(module(source), options);
            let budget =
                Budget { ops: 200_000, memory: 1 << 20, spawn_count: 200, channel_ops: 2000, syscalls: 50 };
            let ended = runtime.nursery(NurseryOptions::new().on_exhausted(Exhaustion::Cancel), |nursery| {
                let attacker = nursery.builder().budget(budget).spawn(|cx| {
                    let came = cx.timeout(Duration::from_millis(300), |cx| {
                        hostile.run_in_task("main", &[], cx, &Quiet)
                    });
                    match came {
                        Ok(Ok(ended)) => format!("returned {ended:?}"),
                        Ok(Err(fault)) => fault.to_string(),
                        Err(stopped) => stopped.to_string(),
                    }
                });
                let beside = nursery
                    .builder()
                    .pool(pool.part(8))
                    .spawn(|cx| neighbour.run_in_task("main", &[1000], cx, &Quiet))
                    .unwrap();
                assert_eq!(
                    beside.wait().unwrap().unwrap(),
                    alone,
                    "{what}, {metering:?}: the neighbour noticed"
                );
                attacker.unwrap().wait()
            });
            match ended.unwrap() {
                Ok(said) => assert!(!said.starts_with("returned"), "{what}, {metering:?}: {said}"),
                Err(error) => assert!(
                    matches!(
                        error,
                        TaskError::BudgetCut(
                            Component::Ops
                                | Component::Memory
                                | Component::ChannelOps
                                | Component::SpawnCount
                        )
                    ),
                    "{what}, {metering:?}: {error}"
                ),
            }
        }
    }
}
