//! Stacks that run out: a task that the runtime can see fails alone, by unwinding, with its destructors; one that it cannot see
//! ends the process, with its name and a trace. What tasks leave behind is dropped where there is room.
#![allow(unsafe_code, clippy::only_used_in_recursion)]

use mainspring::{
    Budget, Capacity, Config, Cx, NurseryOptions, Profile, Runtime, Sender, TaskError, budgeted, testing,
};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Cluster).workers(workers).build().unwrap()
}

/// Counts those that were made and those that were dropped, and does in its destructor what destructors do.
struct Counted<'a>(&'a [AtomicU64; 2]);

impl<'a> Counted<'a> {
    fn new(counts: &'a [AtomicU64; 2]) -> Self {
        counts[0].fetch_add(1, Ordering::Relaxed);
        Self(counts)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        black_box(format!("{:?} {:>20.3}", self.0, 1.5));
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
}

type Counts = [AtomicU64; 2];

#[allow(unconditional_recursion)]
fn by_checks(cx: &Cx, counts: &Counts, _: &Sender<u64>) {
    let _frame = Counted::new(counts);
    cx.check_iterations(0);
    by_checks(cx, counts, &cx.channel(Capacity::Unbounded).unwrap().0);
}

#[budgeted]
#[allow(unconditional_recursion)]
fn by_calls(cx: &Cx, counts: &Counts, tx: &Sender<u64>) {
    let _frame = Counted::new(counts);
    by_calls(cx, counts, tx);
    black_box(&_frame);
}

#[allow(unconditional_recursion)]
fn by_nurseries(cx: &Cx, counts: &Counts, tx: &Sender<u64>) {
    let _frame = Counted::new(counts);
    let result = cx.nursery(|_| by_nurseries(cx, counts, tx));
    black_box(&_frame);
    drop(result);
}

#[allow(unconditional_recursion)]
fn by_joins(cx: &Cx, counts: &Counts, tx: &Sender<u64>) {
    let _frame = Counted::new(counts);
    cx.join(|cx| by_joins(cx, counts, tx), |_| ());
    black_box(&_frame);
}

#[allow(unconditional_recursion)]
fn by_sends(cx: &Cx, counts: &Counts, tx: &Sender<u64>) {
    let _frame = Counted::new(counts);
    tx.send(cx, 1).unwrap();
    by_sends(cx, counts, tx);
    black_box(&_frame);
}

fn by_spawns(cx: &Cx, counts: &Counts, tx: &Sender<u64>) {
    #[allow(unconditional_recursion)]
    fn deeper(cx: &Cx, n: &mainspring::Nursery<'_, '_>, counts: &Counts) {
        let _frame = Counted::new(counts);
        let _ = n.spawn(|_| ());
        deeper(cx, n, counts);
        black_box(&_frame);
    }
    let _ = tx;
    let _ = cx.nursery(|n| deeper(cx, n, counts));
}

#[allow(unconditional_recursion)]
fn by_cleanups(cx: &Cx, counts: &Counts, tx: &Sender<u64>) {
    let _frame = Counted::new(counts);
    cx.with_cleanup(|cx| by_cleanups(cx, counts, tx), |_| ());
    black_box(&_frame);
}

mainspring::task_local! {
    static LEVEL: u64;
}

#[allow(unconditional_recursion)]
fn by_scopes(cx: &Cx, counts: &Counts, tx: &Sender<u64>) {
    let _frame = Counted::new(counts);
    LEVEL.scope(cx, 1, |cx| by_scopes(cx, counts, tx));
    black_box(&_frame);
}

#[test]
fn a_task_that_is_low_on_stack_fails_alone_and_drops_what_it_has() {
    type Way = fn(&Cx, &Counts, &Sender<u64>);
    let ways: [(&str, Way); 8] = [
        ("checks", by_checks),
        ("calls", by_calls),
        ("nurseries", by_nurseries),
        ("joins", by_joins),
        ("sends", by_sends),
        ("spawns", by_spawns),
        ("cleanups", by_cleanups),
        ("scopes", by_scopes),
    ];
    for (name, way) in ways {
        for workers in [1, 2] {
            let runtime = runtime(workers);
            let counts = Counts::default();
            for stack in [16 << 10, 40 << 10, 112 << 10, 1 << 20] {
                runtime
                    .run(|cx| {
                        let (tx, rx) = cx.channel::<u64>(Capacity::Unbounded).unwrap();
                        let counts = &counts;
                        let failed = cx.nursery(|n| {
                            let tx = &tx;
                            let deep = n
                                .builder()
                                .stack_size(stack)
                                .budget(Budget {
                                    ops: 100_000,
                                    spawn_count: 1000,
                                    channel_ops: 10_000,
                                    ..Budget::ZERO
                                })
                                .spawn(move |cx| way(cx, counts, tx))
                                .unwrap();
                            let error = deep.join(cx).unwrap_err();
                            assert!(matches!(error, TaskError::StackOverflow), "{name}: {error}");
                        });
                        let error = failed.unwrap_err().error;
                        assert!(matches!(error, TaskError::StackOverflow), "{name}: {error}");
                        // No lock is held: the channel works on.
                        tx.send(cx, 7).unwrap();
                        assert_eq!(rx.iter(cx).take(rx.len()).last(), Some(Ok(7)));
                    })
                    .unwrap();
            }
            let [made, dropped] = counts.map(AtomicU64::into_inner);
            assert_eq!(made, dropped, "{name}: a destructor did not run");
            assert!(made > 40, "{name}: {made} frames");
        }
    }
}

#[test]
fn a_panic_at_the_edge_of_the_stack_is_a_panic() {
    fn to_the_edge(cx: &Cx, depth: u64) -> u64 {
        // As deep as the runtime allows, then a panic there, with the hook.
        let deeper = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cx.check_iterations(0);
            black_box([depth; 8])[0] + to_the_edge(cx, depth + 1)
        }));
        match deeper {
            Ok(value) => value,
            Err(_) => panic!("at the edge, {depth} deep"),
        }
    }
    let error = runtime(1).run(|cx| to_the_edge(cx, 0)).unwrap_err();
    assert!(matches!(error, TaskError::Panicked(_) | TaskError::StackOverflow), "{error}");
}

struct List(#[allow(dead_code)] Option<Box<List>>);

fn long_list() -> List {
    (0..1_000_000).fold(List(None), |list, _| List(Some(Box::new(list))))
}

#[test]
fn captures_of_a_task_that_never_starts_are_dropped_where_there_is_room() {
    testing::for_seeds(0..2, Config::new(Profile::Service).workers(2), |cx| {
        let list = long_list();
        let ended = cx.nursery(|n| {
            n.start(move |_| drop(black_box(list))).unwrap();
            n.cancel();
        });
        assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
    });
    for _ in 0..3 {
        let list = long_list();
        let ended = runtime(1).run(|cx| {
            cx.nursery(|n| {
                n.start(move |_| std::mem::forget(list)).unwrap();
                n.cancel();
            })
        });
        assert!(matches!(ended.unwrap().unwrap_err().error, TaskError::Cancelled));
    }
}

#[test]
fn a_result_that_nobody_takes_is_dropped_where_there_is_room() {
    let runtime = runtime(2);
    for _ in 0..3 {
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    let list = long_list();
                    drop(n.spawn(move |_| list).unwrap());
                })
                .unwrap();
            })
            .unwrap();
    }
}

/// A destructor that panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("the bomb"));
    }
}

#[test]
fn a_destructor_that_panics_fails_the_task_that_left_the_value() {
    let runtime = runtime(1);
    let panicked = |error: &TaskError| matches!(error, TaskError::Panicked(text) if text == "the bomb");
    runtime
        .run(|cx| {
            // Of a capture of a task that never starts.
            let ended = cx.nursery(|n| {
                let bomb = Bomb;
                let handle = n.spawn(move |_| std::mem::forget(bomb)).unwrap();
                handle.cancel();
                let error = handle.join(cx).unwrap_err();
                assert!(panicked(&error), "{error}");
            });
            assert!(panicked(&ended.unwrap_err().error));
            // Of a result that no handle takes.
            let ended = cx.nursery(|n| drop(n.spawn(|_| Bomb).unwrap()));
            assert!(panicked(&ended.unwrap_err().error));
            // Of a capture of a future that is cancelled while it waits.
            let ended = cx.nursery(|n| {
                let bomb = Bomb;
                let handle = n
                    .spawn_future(async move {
                        std::future::pending::<()>().await;
                        std::mem::forget(bomb);
                    })
                    .unwrap();
                cx.yield_now();
                handle.cancel();
                drop(handle);
            });
            assert!(panicked(&ended.unwrap_err().error));
        })
        .unwrap();
}

#[inline(never)]
fn recurse_unseen(depth: u64) -> u64 {
    let page = black_box([depth; 128]);
    if depth == u64::MAX { page[0] } else { recurse_unseen(depth + 1) + page[127] }
}

const CHILD: &str = "MAINSPRING_OVERFLOW_CHILD";

/// Runs the test `name` again as a process of its own, in which [`CHILD`] is set.
fn as_child(name: &str) -> (std::process::ExitStatus, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

//= SCHED:5.3.3
#[test]
fn an_overflow_that_nobody_saw_coming_says_which_task_and_aborts() {
    if std::env::var_os(CHILD).is_some() {
        let _ = runtime(2).run(|cx| {
            cx.nursery_with(NurseryOptions::new(), |n| {
                drop(n.builder().name("the-deep-one").spawn(|_| recurse_unseen(0)).unwrap());
            })
        });
        return;
    }
    let (status, stderr) = as_child("an_overflow_that_nobody_saw_coming_says_which_task_and_aborts");
    assert_eq!(status.signal(), Some(6), "{status}\n{stderr}");
    assert!(stderr.contains("(the-deep-one)"), "{stderr}");
    assert!(stderr.contains("has overflowed its stack of"), "{stderr}");
    assert!(stderr.contains("SpawnBuilder::stack_size"), "{stderr}");
    assert!(stderr.contains("   0: +0x"), "no addresses:\n{stderr}");
    assert!(stderr.contains("recurse_unseen"), "no names:\n{stderr}");
}

#[test]
fn a_fault_that_is_no_overflow_is_left_to_whoever_had_it_before() {
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: none; this is the fault.
        let _ = runtime(1).run(|_| unsafe { black_box(8 as *const u8).read_volatile() });
        return;
    }
    let (status, stderr) = as_child("a_fault_that_is_no_overflow_is_left_to_whoever_had_it_before");
    assert_eq!(status.signal(), Some(11), "{status}\n{stderr}");
    assert!(!stderr.contains("has overflowed its stack"), "{stderr}");
}
