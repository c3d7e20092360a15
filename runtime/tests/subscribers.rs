//! A hostile subscriber of `tracing`: it panics, it calls the runtime again, and it tries to switch tasks from inside the scheduler.

use mainspring::{Capacity, Config, Cx, NurseryOptions, Parker, Profile, TaskError};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

scoped_tls::scoped_thread_local!(static LENT: Cx);

#[derive(Default)]
struct Hostile {
    calls: AtomicU64,
    refused: AtomicU64,
    panics: AtomicU64,
    parker: Parker,
}

static HOSTILE: LazyLock<Hostile> = LazyLock::new(Hostile::default);

impl Hostile {
    fn attack(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.parker.unpark();
        if LENT.is_set() {
            LENT.with(|cx| {
                if catch_unwind(AssertUnwindSafe(|| cx.yield_now())).is_err() {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        if call.is_multiple_of(7) && !std::thread::panicking() {
            self.panics.fetch_add(1, Ordering::Relaxed);
            resume_unwind(Box::new("the subscriber"));
        }
    }
}

/// Lends the context to whatever runs on this thread meanwhile. With one worker that is everything.
fn lend(cx: &Cx, workers: usize, f: impl FnOnce()) {
    if workers == 1 { LENT.set(cx, f) } else { f() }
}

struct Attacker;

impl Subscriber for Attacker {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("mainspring")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        HOSTILE.attack();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        HOSTILE.attack();
    }

    fn enter(&self, _: &Id) {
        HOSTILE.attack();
    }

    fn exit(&self, _: &Id) {
        HOSTILE.attack();
    }

    fn try_close(&self, _: Id) -> bool {
        HOSTILE.attack();
        true
    }
}

#[test]
fn a_subscriber_can_neither_unwind_through_the_runtime_nor_switch_tasks_inside_it() {
    // What is refused is refused by a panic.
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("while that task does not run") {
            eprintln!("{info}");
        }
    }));
    tracing::subscriber::set_global_default(Attacker).unwrap();
    for workers in [1, 2] {
        let runtime = Config::new(Profile::Cluster).workers(workers).build().unwrap();
        for _ in 0..20 {
            let sum = runtime.run(|cx| {
                let (tx, rx) = cx.channel::<u64>(Capacity::Bounded(2)).unwrap();
                let late = cx.nursery_with(NurseryOptions::new().deadline(Duration::from_millis(2)), |n| {
                    n.start(|cx| cx.sleep(Duration::MAX)).unwrap();
                });
                assert!(matches!(late.unwrap_err().error, TaskError::DeadlineExceeded));
                let sum = cx.nursery(|n| {
                    // One lender at a time on a thread: scoped thread-locals are put back in the order of a stack.
                    let lender = n
                        .spawn(|cx| {
                            lend(cx, workers, || {
                                while !cx.is_cancelled() {
                                    cx.sleep(Duration::from_micros(10));
                                }
                            });
                        })
                        .unwrap();
                    for i in 0..50 {
                        let tx = tx.clone();
                        n.start(move |cx| {
                            cx.yield_now();
                            HOSTILE.parker.park(cx, Some(Duration::from_micros(10)));
                            tx.send(cx, i).unwrap();
                        })
                        .unwrap();
                    }
                    let sum = (0..50).map(|_| rx.recv(cx).unwrap()).sum::<u64>();
                    lender.cancel();
                    let _ = lender.join(cx);
                    sum
                });
                let cancelled = cx.nursery(|n| {
                    n.start(|cx| lend(cx, workers, || cx.sleep(Duration::MAX))).unwrap();
                    cx.yield_now();
                    n.cancel();
                });
                assert!(matches!(cancelled.unwrap_err().error, TaskError::Cancelled));
                sum.unwrap()
            });
            assert_eq!(sum.unwrap(), 49 * 50 / 2);
        }
    }
    let counts = [&HOSTILE.panics, &HOSTILE.refused].map(|count| count.load(Ordering::Relaxed));
    assert!(counts.iter().all(|&count| count > 100), "it did not attack: {counts:?}");
}
