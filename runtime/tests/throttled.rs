//! A task that has used its context up and waits for the refill ends when it is told to, not at the refill.
//!
//! Refills are an hour away, so a task that waits for one does not end while the test runs.

use mainspring::context::ContextState;
use mainspring::io::IoDriver;
use mainspring::{
    Budget, CallRefusal, Caps, Config, CpuId, Cx, FairTaskSettings, Handle, Nursery, NurseryOptions, Parker,
    Profile, Reservation, Schedule, SchedulingContext, TaskError,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const LITTLE: Duration = Duration::from_micros(500);

/// On runtimes with each driver and with one worker or two.
fn everywhere(test: impl Fn(&Cx) + Sync) {
    for io in [IoDriver::Auto, IoDriver::Epoll] {
        for workers in [1, 2] {
            let settings = FairTaskSettings { threads: 64, contexts: 16, ..FairTaskSettings::default() };
            let caps = Caps::root(1000, Budget::MAX, Budget::ZERO, 100, 100).with_contexts(16, 4_000_000);
            let config = Config::new(Profile::Cluster).workers(workers).root_caps(caps).io(io);
            let runtime = config.fair_by_task(settings).build().unwrap();
            let began = runtime.run(|cx| {
                let began = cx.now();
                test(cx);
                (began, cx.now())
            });
            let (began, ended) = began.unwrap();
            assert!(ended - began < HOUR, "no refill was waited for");
        }
    }
}

fn used_up_in_an_hour(cx: &Cx) -> SchedulingContext {
    cx.create_context(Reservation::new(LITTLE, HOUR)).unwrap()
}

/// Uses the context up, and goes on.
fn burn(cx: &Cx) -> ! {
    loop {
        cx.check();
        cx.look_up();
    }
}

/// Waits until the context is used up and its task has stopped: the number of depletions says that, and then the CPU time used.
fn wait_until_throttled(cx: &Cx, context: &SchedulingContext) {
    loop {
        let info = context.info().unwrap();
        if info.depletions > 0 && info.remaining.is_zero() {
            // From its next look up on the task waits: the others have had turns by then.
            for _ in 0..100 {
                cx.yield_now();
            }
            return;
        }
        cx.sleep(Duration::from_micros(100));
    }
}

/// A child that is throttled is stopped by `stop`, and the context is at rest afterwards.
fn stopped_by(
    cx: &Cx,
    options: NurseryOptions,
    stop: impl for<'s> FnOnce(&Cx, &Nursery<'s, '_>, &Handle<'s, ()>) + Send,
) {
    let context = used_up_in_an_hour(cx);
    let dropped = AtomicBool::new(false);
    let _result = cx.nursery_with(options, |n| {
        let child = n.builder().context(&context).spawn(|cx| {
            let _drops = OnDrop(&dropped);
            burn(cx)
        });
        let child = child.unwrap();
        wait_until_throttled(cx, &context);
        stop(cx, n, &child);
        let _ended = child.join(cx);
    });
    assert!(dropped.into_inner(), "its destructors ran");
    assert_eq!(context.info().unwrap().state, ContextState::AtRest);
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_cancelled_task_does_not_wait_for_its_refill() {
    everywhere(|cx| {
        stopped_by(cx, NurseryOptions::new(), |_, _, child| assert!(child.cancel()));
        stopped_by(cx, NurseryOptions::new(), |_, n, _| assert!(n.cancel()));
        stopped_by(cx, NurseryOptions::new(), |cx, n, _| {
            let failed = n.spawn_try(|_| Err::<(), _>("on purpose")).unwrap();
            let _failed = failed.join(cx);
        });
        stopped_by(cx, NurseryOptions::new().deadline(Duration::from_millis(50)), |_, _, _| ());
    });
}

#[test]
fn a_task_that_is_cancelled_before_it_starts_on_a_used_up_context_never_starts() {
    everywhere(|cx| {
        let context = used_up_in_an_hour(cx);
        stopped(cx, &context, |cx| burn(cx));
        assert_eq!(context.info().unwrap().remaining, Duration::ZERO);
        let started = AtomicBool::new(false);
        stopped(cx, &context, |_| started.store(true, Ordering::SeqCst));
        assert!(!started.into_inner());
    });
}

/// Spawns a task on the context, and cancels it when the context is used up.
fn stopped(cx: &Cx, context: &SchedulingContext, body: impl FnOnce(&Cx) + Send) {
    let ended = cx.nursery(|n| {
        let child = n.builder().context(context).spawn(body).unwrap();
        wait_until_throttled(cx, context);
        child.cancel();
        child.join(cx)
    });
    assert!(matches!(ended.unwrap(), Err(TaskError::Cancelled)));
}

#[test]
fn cleanup_of_a_cancelled_task_does_not_wait_for_a_refill() {
    everywhere(|cx| {
        let context = used_up_in_an_hour(cx);
        let cleaned = AtomicU64::new(0);
        stopped(cx, &context, |cx| {
            cx.with_cleanup(
                |cx| burn(cx),
                |cx| {
                    for _ in 0..1000 {
                        cx.check();
                        cx.look_up();
                        cleaned.fetch_add(1, Ordering::Relaxed);
                    }
                },
            );
        });
        assert_eq!(cleaned.into_inner(), 1000);
    });
}

fn here(cx: &Cx) -> Schedule {
    let workers = Some([CpuId::new(cx.worker()).unwrap()].into_iter().collect());
    Schedule { workers, ..Schedule::default() }
}

#[test]
fn a_server_that_is_cancelled_with_a_used_up_loan_ends_and_the_loan_is_back() {
    everywhere(|cx| {
        let context = used_up_in_an_hour(cx);
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        let on_loan = AtomicBool::new(false);
        cx.nursery(|n| {
            let served = endpoint.clone();
            let on_loan = &on_loan;
            let server = n.builder().schedule(here(cx)).spawn(move |cx| {
                let ((), reply) = served.receive(cx).unwrap();
                on_loan.store(reply.is_on_loan(), Ordering::SeqCst);
                burn(cx)
            });
            let server: Handle<'_, ()> = server.unwrap();
            let caller =
                n.builder().context(&context).spawn(|cx| endpoint.call(cx, ()).unwrap_err().why).unwrap();
            wait_until_throttled(cx, &context);
            assert!(server.cancel());
            assert!(matches!(server.join(cx), Err(TaskError::Cancelled)));
            // The caller has its context back, which is used up: it is stopped like any other.
            assert_eq!(context.info().unwrap().state, ContextState::Bound);
            assert!(caller.cancel());
            assert!(matches!(caller.join(cx), Err(TaskError::Cancelled) | Ok(CallRefusal::ServerGone)));
        })
        .unwrap();
        assert!(on_loan.into_inner());
        assert_eq!(context.info().unwrap().state, ContextState::AtRest);
    });
}

#[test]
fn a_caller_that_is_cancelled_while_its_context_is_lent_and_used_up_ends() {
    everywhere(|cx| {
        let context = used_up_in_an_hour(cx);
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        let (done, served) = (AtomicBool::new(false), endpoint.clone());
        cx.nursery(|n| {
            let done = &done;
            n.builder()
                .schedule(here(cx))
                .start(move |cx| {
                    let ((), reply) = served.receive(cx).unwrap();
                    while !done.load(Ordering::SeqCst) {
                        cx.check();
                        cx.look_up();
                    }
                    assert!(!reply.send(cx, ()), "its caller waits no longer");
                })
                .unwrap();
            let caller = n.builder().context(&context).spawn(|cx| endpoint.call(cx, ())).unwrap();
            wait_until_throttled(cx, &context);
            assert!(caller.cancel());
            assert!(matches!(caller.join(cx), Err(TaskError::Cancelled)));
            done.store(true, Ordering::SeqCst);
        })
        .unwrap();
        assert_eq!(context.info().unwrap().state, ContextState::AtRest);
    });
}

#[test]
fn a_task_that_waits_with_a_used_up_context_ends_when_it_is_cancelled_or_woken_and_cancelled() {
    everywhere(|cx| {
        for wakes_first in [false, true] {
            let context = used_up_in_an_hour(cx);
            let (parker, waits) = (Parker::default(), AtomicBool::new(false));
            let ended = cx.nursery(|n| {
                let (parker, waits, context) = (&parker, &waits, &context);
                let child = n.builder().context(context).spawn(move |cx| {
                    while context.info().unwrap().depletions == 0
                        && !context.info().unwrap().remaining.is_zero()
                    {
                        cx.check();
                    }
                    waits.store(true, Ordering::SeqCst);
                    parker.park(cx, None);
                    burn(cx)
                });
                let child: Handle<'_, ()> = child.unwrap();
                while !waits.load(Ordering::SeqCst) {
                    cx.sleep(Duration::from_micros(100));
                    if context.info().unwrap().remaining.is_zero() {
                        break;
                    }
                }
                if wakes_first {
                    parker.unpark();
                }
                child.cancel();
                child.join(cx)
            });
            assert!(matches!(ended.unwrap(), Err(TaskError::Cancelled)));
        }
    });
}

#[test]
fn a_task_whose_scope_fails_keeps_its_context_and_one_that_is_not_cancelled_waits() {
    everywhere(|cx| {
        let context = used_up_in_an_hour(cx);
        cx.nursery(|n| {
            let child = n.builder().context(&context).spawn(|cx| burn(cx)).unwrap();
            wait_until_throttled(cx, &context);
            // Another is cancelled, and this one is not.
            let other = n.spawn(|cx| Parker::default().park(cx, None)).unwrap();
            other.cancel();
            let _cancelled = other.join(cx);
            for _ in 0..100 {
                cx.yield_now();
            }
            assert_eq!(context.info().unwrap().state, ContextState::Bound);
            let used = context.info().unwrap().used;
            cx.sleep(Duration::from_millis(1));
            assert_eq!(context.info().unwrap().used, used, "it waits");
            child.cancel();
            let _cancelled: Result<(), _> = child.join(cx);
        })
        .unwrap();
    });
}
