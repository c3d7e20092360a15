//! Code that counts nothing is stopped by time: anywhere, without a trace in what it computes.

use mainspring::{
    Budget, Caps, Config, Exhaustion, FairTaskSettings, NurseryOptions, Profile, Reservation, Runtime,
    TaskError,
};
use mainspring_janus::compile;
use mainspring_janus::testing::{random_loops, random_program};
use mainspring_native::{Metering, Options, stop_all, stops};
use mainspring_qtjir::{Ended, Fault, Limits, Program, Quiet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TIMED: Options = Options { stack_bytes: 512 << 10, metering: Metering::Time };
const LIMITS: Limits =
    Limits { ops: 300_000, memory: 1 << 24, spawn_count: 0, channel_ops: 0, syscalls: 100 };

fn timed(source: &str) -> Program {
    let module = compile(source).unwrap_or_else(|mistakes| panic!("{}", mistakes.render("test.jan", source)));
    mainspring_native::compile(Program::compile(module).unwrap(), TIMED).unwrap()
}

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Service).workers(workers).stack_size(2 << 20).build().unwrap()
}

fn run(runtime: &Runtime, program: &Program, arg: u64) -> Result<Ended, Fault> {
    runtime.run(|cx| program.run_in_task("main", &[arg], cx, &Quiet)).unwrap()
}

/// Stops all code as often as it can while `act` runs.
fn under_fire<R>(act: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                stop_all();
                std::thread::yield_now();
            }
        });
        let result = act();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Programs that never end, one way or the other. `n` is 1.
const ENDLESS: [(&str, &str); 9] = [
    ("a loop", "fn main(n: i64) -> i64 { while true { } }"),
    ("a loop that counts", "fn main(n: i64) -> i64 { for i in 0..9223372036854775807 { if i < 0 - n { return i } }\n return 0 }"),
    (
        "a loop of floats",
        "fn main(n: i64) -> i64 { var x = 1.5\n while x > 0.0 { x = x * 1.0000001\n if x > 9.0 { x = 1.5 } }\n return int(x) }",
    ),
    (
        "a loop that stores nothing, in a loop that looks before it",
        "fn main(n: i64) -> i64 { var s = 0\n for i in 0..1000 { var j = n\n while j != 0 { j = j *% 3 }\n s = s +% j }\n return s }",
    ),
    (
        "a loop that does nothing but call",
        "fn three(n: i64) -> i64 { return n *% 3 }\nfn main(n: i64) -> i64 { var j = n\n while j != 0 { j = three(j) }\n return j }",
    ),
    (
        "a loop deep below",
        "fn down(n: i64) -> i64 { if n > 200 { while true { } }\n return 1 + down(n + 1) }\nfn main(n: i64) -> i64 { return down(n) }",
    ),
    (
        "recursion without a loop",
        "fn grow(n: i64) -> i64 { if n == 0 { return 1 }\n return grow(n - 1) +% grow(n - 1) }\nfn main(n: i64) -> i64 { return grow(n + 80) }",
    ),
    (
        "functions that each call the next twice",
        "fn f0(n: i64) -> i64 { return n +% 1 }
fn f1(n: i64) -> i64 { return f0(n) +% f0(n) }\nfn f2(n: i64) -> i64 { return f1(n) +% f1(n) }
fn f3(n: i64) -> i64 { return f2(n) +% f2(n) }\nfn f4(n: i64) -> i64 { return f3(n) +% f3(n) }
fn f5(n: i64) -> i64 { return f4(n) +% f4(n) }\nfn f6(n: i64) -> i64 { return f5(n) +% f5(n) }
fn f7(n: i64) -> i64 { return f6(n) +% f6(n) }\nfn f8(n: i64) -> i64 { return f7(n) +% f7(n) }
fn main(n: i64) -> i64 { while true { n_spin(f8(n)) } }\nfn n_spin(n: i64) { }",
    ),
    (
        "slices that are sorted for ever",
        "fn main(n: i64) -> i64 { let s = make([]i64, 500)\n while true { for i in 0..s.len { s[i] = (i * 7919 + n) % 500 }
        for i in 0..s.len { for j in 0..s.len - 1 { if s[j] > s[j + 1] { let t = s[j]\n s[j] = s[j + 1]\n s[j + 1] = t } } } } }",
    ),
];

#[test]
fn whatever_never_ends_is_cancelled_where_it_is() {
    for (what, source) in ENDLESS {
        let program = timed(source);
        for workers in [1, 2] {
            let error = runtime(workers)
                .run(|cx| {
                    cx.nursery(|nursery| {
                        nursery.start(|cx| drop(program.run_in_task("main", &[1], cx, &Quiet))).unwrap();
                        // It runs when this task sleeps, and its only worker comes back to this one.
                        cx.sleep(Duration::from_millis(5));
                        nursery.cancel();
                    })
                })
                .unwrap()
                .unwrap_err();
            assert!(error.error.is_cancelled(), "{what} on {workers} workers: {error}");
        }
    }
}

#[test]
fn a_neighbour_on_the_same_worker_goes_on_beside_code_that_never_ends() {
    let (endless, neighbour) = (
        timed(ENDLESS[2].1),
        timed("fn main(n: i64) -> i64 { var s = 0\n for i in 0..n { s = s + i }\n return s }"),
    );
    let sum = runtime(1)
        .run(|cx| {
            cx.nursery(|nursery| {
                nursery.start(|cx| drop(endless.run_in_task("main", &[1], cx, &Quiet))).unwrap();
                let beside =
                    nursery.spawn(|cx| neighbour.run_in_task("main", &[3_000_000], cx, &Quiet)).unwrap();
                let sum = beside.join(cx).unwrap().unwrap().value;
                nursery.cancel();
                assert_eq!(sum, Some(4_499_998_500_000));
            })
        })
        .unwrap();
    assert!(sum.unwrap_err().error.is_cancelled());
}

/// Stops at any poll change nothing in registers, in memory or in the stack.
#[test]
fn stops_leave_no_trace_in_what_is_computed() {
    let runtime = runtime(2);
    let before = stops();
    let (mut same, mut trapped) = (0, 0);
    under_fire(|| {
        for seed in 0..60 {
            let source = if seed % 2 == 0 { random_program(seed, false) } else { random_loops(seed) };
            let source = source.replace("{.profile: core.}", "{.profile: service.}");
            let counted = Program::compile(compile(&source).unwrap()).unwrap();
            let alone = counted.run_alone("main", &[seed], LIMITS, &Quiet);
            let got = runtime.run(|cx| timed(&source).run_in_task("main", &[seed], cx, &Quiet)).unwrap();
            match (alone, got) {
                (Ok(one), Ok(other)) => {
                    assert_eq!(one.value, other.value, "seed {seed}\n{source}");
                    same += 1;
                }
                (Err(one), Err(other)) => {
                    assert_eq!((one.kind, one.pos), (other.kind, other.pos), "seed {seed}\n{source}");
                    trapped += 1;
                }
                // What ran out of ops goes on where they are not counted.
                (Err(one), Ok(_)) => assert!(one.to_string().contains("ran out"), "seed {seed}: {one}"),
                (Ok(_), Err(other)) => panic!("seed {seed}: {other}\n{source}"),
            }
        }
    });
    assert!(same > 20 && trapped > 3, "{same} the same, {trapped} trapped: the programs test too little");
    assert!(stops() > before, "nothing was stopped");
}

#[test]
fn long_sums_of_floats_come_out_the_same_under_fire() {
    let source =
        "fn main(n: i64) -> i64 { let s = make([]f64, 1000)\n for i in 0..1000 { s[i] = float(i) * 0.37 }
    var a = 0.0\n var b = 1.0\n var c = 0.5
    for t in 0..n { for x in s { a = a + x * b\n b = b * 0.9999 + 0.0001 * x\n c = c + a / (b + 1.0) } }
    return int((a + b + c) * 1000.0) % 1000000007 }";
    let program = Program::compile(compile(source).unwrap()).unwrap();
    let counted = mainspring_native::compile(program, Options { metering: Metering::Ops, ..TIMED }).unwrap();
    let wanted = counted.run_alone("main", &[5000], Limits::MAX, &Quiet).unwrap().value;
    let (program, runtime) = (timed(source), runtime(2));
    let before = stops();
    // A loaded host may give the other thread no turn for a while.
    under_fire(|| {
        while stops() < before + 100 {
            assert_eq!(run(&runtime, &program, 5000).unwrap().value, wanted);
        }
    });
}

/// A task whose scheduling context grants a fifth of a CPU is throttled in the middle of a loop that never ends.
#[test]
fn an_endless_loop_is_throttled_by_its_scheduling_context() {
    let program = timed(ENDLESS[0].1);
    let ms = Duration::from_millis;
    let settings = FairTaskSettings { contexts: 4, ..FairTaskSettings::default() };
    let caps = Caps::root(100, Budget::MAX, Budget::MAX, 10, 64).with_contexts(4, 500_000);
    let runtime = Config::new(Profile::Service)
        .workers(1)
        .stack_size(2 << 20)
        .root_caps(caps)
        .fair_by_task(settings)
        .build()
        .unwrap();
    runtime
        .run(|cx| {
            let tenant = cx.create_context(Reservation::new(ms(2), ms(10))).unwrap();
            let ended = cx.nursery(|nursery| {
                let spin = nursery.builder().context(&tenant);
                let _spin = spin.spawn(|cx| drop(program.run_in_task("main", &[1], cx, &Quiet))).unwrap();
                // Three refills of what it may use.
                while tenant.info().unwrap().depletions < 3 {
                    cx.sleep(ms(1));
                }
                nursery.cancel();
            });
            assert!(ended.unwrap_err().error.is_cancelled());
            assert!(tenant.info().unwrap().used >= ms(6), "{:?}", tenant.info());
        })
        .unwrap();
}

#[test]
fn what_the_runtime_ends_for_want_of_memory_is_ended_under_the_meter_of_time_too() {
    let program = timed(
        "fn main(n: i64) -> i64 { while true { n_make(make([]i64, 1000)) } }\nfn n_make(s: []i64) { s[0] = 1 }",
    );
    let budget = Budget { ops: 1000, memory: 1 << 20, spawn_count: 0, channel_ops: 0, syscalls: 0 };
    let ended = runtime(1)
        .nursery(NurseryOptions::new().on_exhausted(Exhaustion::Cancel), |nursery| {
            let spawned = nursery.builder().budget(budget);
            let task =
                spawned.spawn(|cx| program.run_in_task("main", &[1], cx, &Quiet).unwrap_err().to_string());
            task.unwrap().wait()
        })
        .unwrap();
    match ended {
        Ok(said) => assert!(said.contains("memory budget exhausted"), "{said}"),
        Err(error) => assert!(matches!(error, TaskError::BudgetCut(_)), "{error}"),
    }
}
