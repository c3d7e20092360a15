//! Every way in which code comes to run for a task, tried from tasks with each set of capabilities: none of them leads to a
//! capability that the task does not hold.

use mainspring::{Budget, Capacity, Caps, Config, Cx, Exhaustion, NurseryOptions, Pool, Profile, Runtime};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const PROFILES: [Profile; 3] = [Profile::Service, Profile::Cluster, Profile::Sovereign];

fn runtime(profile: Profile, workers: usize) -> Runtime {
    let child = Budget { ops: 1_000_000, memory: 1 << 20, spawn_count: 100, channel_ops: 100, syscalls: 100 };
    let limit = Budget { ops: 10_000, ..Budget::ZERO };
    Config::new(profile).workers(workers).root_caps(Caps::root(100, child, limit, 100, 100)).build().unwrap()
}

/// The first five need no `CapSpawn`.
const ROUTES: [&str; 9] = [
    "itself",
    "body with cleanup",
    "first half",
    "second half",
    "half of a half",
    "spawn",
    "start",
    "spawn_try",
    "start without options",
];

/// The capabilities of `all` whose bits are set in `bits`.
fn subset(all: Caps, bits: u8) -> Caps {
    let caps = if bits & 1 == 0 { all.without_spawn() } else { all };
    let caps = if bits & 2 == 0 { caps.without_budget() } else { caps };
    let caps = if bits & 4 == 0 { caps.without_channel() } else { caps };
    if bits & 8 == 0 { caps.without_executor() } else { caps }
}

/// What was tried by each route, and what could be done there.
#[derive(Default)]
struct Found(Mutex<Vec<(&'static str, Caps, [bool; 4])>>);

impl Found {
    /// Notes what the task that runs this may do, by asking and by trying.
    fn note(&self, route: &'static str, cx: &Cx) {
        let spawns = cx.nursery(|n| n.spawn(|_| ()).is_ok()).unwrap_or(false);
        let recharges = cx.recharge(Budget { ops: 1, ..Budget::ZERO }).is_ok();
        let channels = cx.channel::<u8>(Capacity::Rendezvous).is_ok();
        let blocks = cx.blocking(|| ()).is_ok();
        self.0.lock().unwrap().push((route, cx.caps(), [spawns, recharges, channels, blocks]));
    }
}

/// Both halves of a join. The first half waits until the second has begun on a stack of its own, if `stolen`.
fn join(cx: &Cx, found: &Found, stolen: bool) {
    let begun = AtomicBool::new(!stolen || cx.caps().spawn().is_none());
    cx.join(
        |cx| {
            found.note("first half", cx);
            while !begun.load(Ordering::Acquire) {
                cx.yield_now();
            }
        },
        |cx| {
            begun.store(true, Ordering::Release);
            found.note("second half", cx);
            // A half of a half.
            cx.join(|cx| cx.yield_now(), |cx| found.note("half of a half", cx));
            nested(cx, found, cx.caps());
        },
    );
}

fn nested(cx: &Cx, found: &Found, ask: Caps) {
    let pool = Pool { ops: 10_000, spawn_count: 6, memory: 0, channel_ops: 40, syscalls: 40 };
    let budget = Budget { ops: 500, channel_ops: 5, syscalls: 5, ..Budget::ZERO };
    let ask = ask.attenuate_spawn(100, budget);
    let options = NurseryOptions::new().caps(ask).pool(pool).on_exhausted(Exhaustion::Fail);
    let opened = cx.nursery_with(options, |n| {
        let builder = || n.builder().caps(ask);
        let _ = builder().spawn(|cx| found.note("spawn", cx));
        let _ = builder().start(|cx| found.note("start", cx));
        let _ = builder().spawn_try(|cx| {
            found.note("spawn_try", cx);
            Ok::<_, std::io::Error>(())
        });
        let _ = n.start(|cx| found.note("start without options", cx));
        if let Ok(future) = n.spawn_future(async { 1 }) {
            assert!(cx.caps().executor().is_some() && cx.caps().spawn().is_some(), "a future");
            let _ = future.join(cx);
        }
        if let Ok(child) = builder().spawn(|cx| cx.check()) {
            let supervised = n.supervise(cx, &child, Budget { ops: 1, ..Budget::ZERO });
            assert!(supervised.is_err() || cx.caps().budget().is_some(), "supervision");
        }
    });
    drop(opened);
}

//= OWN:caps.fork
#[test]
fn no_route_leads_to_a_capability_that_the_task_does_not_hold() {
    for profile in PROFILES {
        for workers in [1, 2] {
            let runtime = runtime(profile, workers);
            let forged = Caps::root(u32::MAX, Budget::MAX, Budget::MAX, u32::MAX, u32::MAX);
            for bits in 0..16 {
                let found = Found::default();
                let held = runtime.run(|cx| {
                    let held = subset(cx.caps(), bits);
                    let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail);
                    cx.nursery_with(options, |n| {
                        let budget =
                            Budget { ops: 50_000, memory: 0, spawn_count: 60, channel_ops: 90, syscalls: 90 };
                        let child = n.builder().budget(budget).caps(held).spawn(|cx| {
                            let mine = cx.caps();
                            for ask in [mine, forged] {
                                found.note("itself", cx);
                                nested(cx, &found, ask);
                                cx.with_cleanup(|cx| found.note("body with cleanup", cx), |_| ());
                                join(cx, &found, false);
                                join(cx, &found, true);
                            }
                        });
                        child.unwrap().join(cx).unwrap();
                    })
                    .unwrap();
                    held
                });
                let held = held.unwrap();
                let found = found.0.into_inner().unwrap();
                let routes = if bits & 1 == 0 { &ROUTES[..5] } else { &ROUTES[..] };
                for route in routes {
                    assert!(
                        found.iter().any(|(found, ..)| found == route),
                        "{bits:04b}: {route} was not tried"
                    );
                }
                for (route, caps, [spawns, recharges, channels, blocks]) in found {
                    let what = format!("{profile:?}, {workers} workers, {bits:04b}, {route}");
                    assert!(caps.is_within(&held), "{what}: {caps:?} is more than {held:?}");
                    assert!(!spawns || held.spawn().is_some(), "{what} spawns");
                    assert!(!recharges || held.budget().is_some(), "{what} recharges");
                    assert!(!channels || held.channel().is_some(), "{what} makes a channel");
                    assert!(!blocks || held.executor().is_some(), "{what} blocks");
                }
            }
        }
    }
}

//= OWN:caps.fork
#[test]
fn a_stolen_half_shares_the_limits_of_the_task_that_forks() {
    for workers in [1, 2] {
        let runtime = runtime(Profile::Service, workers);
        let made = runtime.run(|cx| {
            cx.nursery(|n| {
                let few = cx.caps().attenuate_channel(3, 1);
                let child = n.builder().caps(few).spawn(|cx| {
                    let begun = AtomicBool::new(false);
                    let make =
                        |cx: &Cx| (0..5).filter(|_| cx.channel::<u8>(Capacity::Rendezvous).is_ok()).count();
                    let (a, b) = cx.join(
                        |cx| {
                            while !begun.load(Ordering::Acquire) {
                                cx.yield_now();
                            }
                            make(cx)
                        },
                        |cx| {
                            begun.store(true, Ordering::Release);
                            make(cx)
                        },
                    );
                    a + b + make(cx)
                });
                child.unwrap().join(cx).unwrap()
            })
            .unwrap()
        });
        assert_eq!(made.unwrap(), 3, "{workers} workers: one limit for the tree");
    }
}
