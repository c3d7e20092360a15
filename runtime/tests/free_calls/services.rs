//! Quotas, spawners, signals, timers, endpoints, parkers, and what a runtime tells.

use crate::spin::{Table, ZERO};
use crate::tasks::without_authority;
use mainspring::endpoint::EndpointOptions;
use mainspring::signal::Signal;
use mainspring::{Budget, Component, CpuSet, Cx, Endpoint, LeaseRequest, NurseryOptions, Parker, Pool, Rate};
use std::time::Duration;

/// What a task asks of the runtime.
pub(crate) const SERVICES: Table = &[
    ("Runtime::take_overstays", |_, spin| spin.run(|| _ = spin.runtime.take_overstays())),
    ("Runtime::quota", |_, spin| spin.run(|| drop(spin.runtime.quota(a_rate()).unwrap()))),
    ("Quota::share", |_, spin| {
        let quota = spin.runtime.quota(a_rate()).unwrap();
        spin.run(|| drop(quota.share(a_rate()).unwrap()));
    }),
    ("Quota::left", |_, spin| {
        let quota = spin.runtime.quota(a_rate()).unwrap();
        spin.run(|| _ = quota.left());
    }),
    ("Quota::throttled", |_, spin| {
        let quota = spin.runtime.quota(a_rate()).unwrap();
        spin.run(|| _ = quota.throttled());
    }),
    ("Cx::quota", |cx, spin| spin.run(|| _ = cx.quota())),
    ("Nursery::bind_quota", |cx, spin| {
        let quota = spin.runtime.quota(a_rate()).unwrap();
        cx.nursery(|n| spin.run(|| n.bind_quota(&quota).unwrap())).unwrap();
    }),
    ("Spawner::start", |cx, spin| {
        cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |n| {
            let spawner = n.spawner();
            spin.run(|| assert!(spawner.start(cx, |_| ()).is_err()));
        })
        .unwrap();
    }),
    ("Spawner::start", |cx, spin| {
        cx.nursery(|n| {
            let spawner = n.spawner();
            spin.run(|| {
                spawner.start(cx, |_| ()).unwrap();
                n.await_all(cx);
            });
        })
        .unwrap();
    }),
    ("Spawner::start", |cx, spin| {
        without_authority(cx, |cx| {
            cx.nursery(|n| {
                let spawner = n.spawner();
                spin.run(|| assert!(spawner.start(cx, |_| ()).is_err()));
            })
            .unwrap();
        });
    }),
    ("Spawner::start_with", |cx, spin| {
        cx.nursery(|n| {
            let spawner = n.spawner();
            spin.run(|| assert!(spawner.start_with(cx, |builder| builder.stack_size(1), |_| ()).is_err()));
        })
        .unwrap();
    }),
    ("ThreadSpawner::start", |cx, spin| {
        cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |n| {
            let spawner = n.thread_spawner();
            spin.run(|| assert!(spawner.start(|_| ()).is_err()));
        })
        .unwrap();
    }),
    ("ThreadSpawner::start", |cx, spin| {
        cx.nursery(|n| {
            let spawner = n.thread_spawner();
            spin.run(|| {
                spawner.start(|_| ()).unwrap();
                n.await_all(cx);
            });
        })
        .unwrap();
    }),
    ("Runtime::signals", |_, spin| {
        spin.run(|| drop(spin.runtime.signals(&[Signal::WINDOW]).unwrap()));
    }),
    ("Runtime::stop_on", |_, spin| {
        spin.run(|| drop(spin.runtime.stop_on(&[Signal::WINDOW]).unwrap()));
    }),
    ("Runtime::serve_live", |_, spin| {
        // There is no such folder.
        spin.run(|| assert!(spin.runtime.serve_live("/nowhere/live", 0o600).is_err()));
    }),
    ("Runtime::metrics", |_, spin| spin.run(|| drop(spin.runtime.metrics()))),
    ("Signals::recv", |cx, spin| {
        // Nothing comes: cut short each time.
        let signals = spin.runtime.signals(&[Signal::WINDOW]).unwrap();
        spin.run(|| assert!(cx.timeout(ZERO, |cx| signals.recv(cx).is_ok()).is_err()));
    }),
    ("Signals::recv_timeout", |cx, spin| {
        let signals = spin.runtime.signals(&[Signal::WINDOW]).unwrap();
        spin.run(|| assert!(signals.recv_timeout(cx, ZERO).is_err()));
    }),
    ("Cx::timer", |cx, spin| spin.run(|| drop(cx.timer()))),
    ("Timer::sleep", |cx, spin| {
        let timer = cx.timer();
        spin.run(|| drop(timer.sleep(ZERO)));
    }),
    ("Timer::now", |cx, spin| {
        let timer = cx.timer();
        spin.run(|| _ = timer.now());
    }),
    ("SpawnBuilder::spawn_future", |cx, spin| {
        cx.nursery(|n| spin.run(|| assert!(n.builder().stack_size(1).spawn_future(async {}).is_err())))
            .unwrap();
    }),
    ("Cx::endpoint", |cx, spin| spin.run(|| drop(cx.endpoint::<(), ()>().unwrap()))),
    ("Cx::endpoint_without_donation", |cx, spin| {
        spin.run(|| drop(cx.endpoint_without_donation::<(), ()>().unwrap()));
    }),
    ("Runtime::host_standing", |_, spin| spin.run(|| _ = spin.runtime.host_standing())),
    ("Runtime::endpoint_with", |_, spin| {
        spin.run(|| drop(spin.runtime.endpoint_with::<(), ()>(EndpointOptions::default())));
    }),
    ("Runtime::open_session", |_, spin| spin.run(|| assert!(spin.runtime.open_session().is_err()))),
    ("Runtime::end_process", |_, spin| spin.run(|| spin.runtime.end_process(0))),
    ("Runtime::lease", |_, spin| {
        spin.run(|| assert!(spin.runtime.lease(LeaseRequest::new(0, CpuSet::EMPTY)).is_err()));
    }),
    ("Cx::thread_number", |cx, spin| spin.run(|| _ = cx.thread_number())),
    ("Runtime::endpoint", |_, spin| spin.run(|| drop(spin.runtime.endpoint::<(), ()>(true)))),
    ("Endpoint::call", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        endpoint.close();
        spin.run(|| assert!(endpoint.call(cx, ()).is_err()));
    }),
    ("Endpoint::call_timeout", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        spin.run(|| assert!(endpoint.call_timeout(cx, (), ZERO).is_err()));
    }),
    ("Endpoint::receive", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        endpoint.close();
        spin.run(|| assert!(endpoint.receive(cx).is_err()));
    }),
    ("Endpoint::receive_timeout", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        spin.run(|| assert!(endpoint.receive_timeout(cx, ZERO).is_err()));
    }),
    ("Endpoint::interrupt", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        spin.run(|| assert!(!endpoint.interrupt()));
    }),
    ("Endpoint::close", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        spin.run(|| endpoint.close());
    }),
    ("Reply::send", |cx, spin| with_server(cx, |cx, endpoint| spin.run(|| endpoint.call(cx, ()).unwrap()))),
    ("Parker::park", |cx, spin| {
        let parker = Parker::default();
        spin.run(|| assert!(!parker.park(cx, Some(ZERO))));
    }),
    ("Parker::wait", |cx, spin| {
        let parker = Parker::default();
        spin.run(|| {
            parker.unpark();
            assert!(parker.wait(cx, mainspring::WaitReason::Park, None));
        });
    }),
    ("Parker::hand_over", |cx, spin| {
        let parker = Parker::default();
        spin.run(|| parker.hand_over(cx));
    }),
    ("Parker::unpark", |_, spin| {
        let parker = Parker::default();
        spin.run(|| parker.unpark());
    }),
    ("Runtime::workers", |_, spin| spin.run(|| _ = spin.runtime.workers())),
    ("Runtime::worker_stats", |_, spin| spin.run(|| drop(spin.runtime.worker_stats()))),
    ("Runtime::set_steal_enabled", |_, spin| spin.run(|| _ = spin.runtime.set_steal_enabled(0, true))),
    ("Runtime::close_record", |_, spin| spin.run(|| drop(spin.runtime.close_record()))),
    ("Runtime::record_part", |_, spin| spin.run(|| drop(spin.runtime.record_part(0, 0)))),
    ("Runtime::record_time", |_, spin| spin.run(|| _ = spin.runtime.record_time())),
    ("Runtime::io_driver", |_, spin| spin.run(|| _ = spin.runtime.io_driver())),
    ("Runtime::event_loop", |_, spin| spin.run(|| _ = spin.runtime.event_loop())),
    ("Runtime::guards", |_, spin| spin.run(|| _ = spin.runtime.guards())),
    ("Runtime::root_pool", |_, spin| spin.run(|| _ = spin.runtime.root_pool())),
    ("Runtime::trace", |_, spin| spin.run(|| _ = spin.runtime.trace())),
    ("Runtime::snapshot", |_, spin| spin.run(|| drop(spin.runtime.snapshot()))),
];

fn a_rate() -> Rate {
    Rate::per(Duration::from_secs(1)).limit(Component::Ops, 1000)
}

/// An endpoint with a task that serves it.
fn with_server(cx: &Cx, f: impl FnOnce(&Cx, &Endpoint<(), ()>)) {
    let endpoint = cx.endpoint().unwrap();
    cx.nursery(|n| {
        let served = endpoint.clone();
        let budget = Budget { ops: u32::MAX / 2, channel_ops: u16::MAX, ..Budget::ZERO };
        let serve = move |cx: &Cx| {
            while let Ok(((), reply)) = served.receive(cx) {
                assert!(!reply.is_on_loan() && !reply.is_over());
                reply.send(cx, ());
            }
        };
        n.builder().budget(budget).start(serve).unwrap();
        f(cx, &endpoint);
        endpoint.close();
    })
    .unwrap();
}
