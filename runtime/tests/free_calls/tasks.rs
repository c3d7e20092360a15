//! A task and its children: contexts, nurseries, spawns, handles.
#![expect(unsafe_code, reason = "an open nursery ends by its owner's promise")]

use crate::spin::{SMALL, Table, ZERO};
use mainspring::{Budget, Capacity, Caps, Component, Cx, NurseryOptions, Parker, Pool, Priority, Weight};

/// What a task does with its context and its nurseries.
pub(crate) const TASKS: Table = &[
    ("Cx::check", |cx, spin| spin.run(|| cx.check())),
    ("Cx::check_iterations", |cx, spin| spin.run(|| cx.check_iterations(1))),
    ("Cx::pay", |cx, spin| spin.run(|| _ = cx.pay(Component::Ops))),
    ("Cx::charge_alloc", |cx, spin| spin.run(|| _ = cx.charge_alloc(0))),
    ("Cx::charge_alloc", |cx, spin| {
        // Refused each time, and free.
        spin.run(|| assert!(cx.charge_alloc(usize::MAX).is_err()));
    }),
    ("Cx::try_box", |cx, spin| spin.run(|| drop(cx.try_box(()).unwrap()))),
    ("Cx::try_vec", |cx, spin| spin.run(|| drop(cx.try_vec::<u8>(0).unwrap()))),
    ("Cx::open_nursery", |cx, spin| {
        spin.run(|| {
            // SAFETY: it ends at once.
            let open = unsafe { cx.open_nursery(NurseryOptions::new()) }.unwrap();
            open.end(Some(cx), None).unwrap().unwrap();
        });
    }),
    ("Cx::look_up", |cx, spin| spin.run(|| cx.look_up())),
    ("Cx::yield_now", |cx, spin| spin.run(|| cx.yield_now())),
    ("Cx::budget", |cx, spin| spin.run(|| _ = cx.budget())),
    ("Cx::ops_used", |cx, spin| spin.run(|| _ = cx.ops_used())),
    ("Cx::is_cancelled", |cx, spin| spin.run(|| _ = cx.is_cancelled())),
    ("Cx::now", |cx, spin| spin.run(|| _ = cx.now())),
    ("Cx::recharge", |cx, spin| spin.run(|| _ = cx.recharge(Budget::MAX))),
    ("Cx::recharge", |cx, spin| spin.run(|| _ = cx.recharge(Budget::ZERO))),
    ("Cx::cpu_time", |cx, spin| spin.run(|| _ = cx.cpu_time())),
    ("Cx::set_weight", |cx, spin| spin.run(|| _ = cx.set_weight(Weight::new(64).unwrap()))),
    ("Cx::sleep", |cx, spin| spin.run(|| cx.sleep(ZERO))),
    ("Cx::interval", |cx, spin| spin.run(|| _ = cx.interval(ZERO))),
    ("Interval::tick", |cx, spin| spin.run(|| _ = cx.interval(ZERO).tick(cx))),
    ("Cx::nursery", |cx, spin| spin.run(|| cx.nursery(|_| ()).unwrap())),
    ("Cx::nursery_with", |cx, spin| {
        spin.run(|| cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |_| ()).unwrap());
    }),
    ("Cx::with_cleanup", |cx, spin| spin.run(|| cx.with_cleanup(|_| (), |_| ()))),
    ("Cx::join", |cx, spin| spin.run(|| _ = cx.join(|_| (), |_| ()))),
    ("Cx::blocking", |cx, spin| spin.run(|| cx.blocking(|| ()).unwrap())),
    ("Cx::blocking", |cx, spin| {
        without_authority(cx, |cx| spin.run(|| assert!(cx.blocking(|| ()).is_err())));
    }),
    ("Cx::await_future", |cx, spin| spin.run(|| cx.await_future(async {}).unwrap())),
    ("Cx::await_future", |cx, spin| {
        without_authority(cx, |cx| spin.run(|| assert!(cx.await_future(async {}).is_err())));
    }),
    ("Cx::channel", |cx, spin| spin.run(|| drop(cx.channel::<()>(Capacity::Rendezvous).unwrap()))),
    ("Cx::channel", |cx, spin| {
        without_authority(cx, |cx| spin.run(|| assert!(cx.channel::<()>(Capacity::Rendezvous).is_err())));
    }),
    ("Nursery::spawn", |cx, spin| {
        cx.nursery(|n| spin.run(|| drop(n.spawn(|_| ()).map(|child| child.join(cx))))).unwrap();
    }),
    ("Nursery::spawn", |cx, spin| {
        // Refused each time.
        let poor = NurseryOptions::new().pool(Pool::ZERO);
        cx.nursery_with(poor, |n| spin.run(|| assert!(n.spawn(|_| ()).is_err()))).unwrap();
    }),
    ("Nursery::start", |cx, spin| {
        cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |n| {
            spin.run(|| assert!(n.start(|_| ()).is_err()));
        })
        .unwrap();
    }),
    ("Nursery::spawn_try", |cx, spin| {
        cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |n| {
            spin.run(|| assert!(n.spawn_try(|_| Ok::<_, String>(())).is_err()));
        })
        .unwrap();
    }),
    ("Nursery::spawn_future", |cx, spin| {
        cx.nursery(|n| spin.run(|| drop(n.spawn_future(async {}).map(|child| child.join(cx))))).unwrap();
    }),
    ("Nursery::spawn_future", |cx, spin| {
        let caps = NurseryOptions::new().caps(cx.caps().without_executor());
        cx.nursery_with(caps, |n| spin.run(|| assert!(n.spawn_future(async {}).is_err()))).unwrap();
    }),
    ("SpawnBuilder::spawn", |cx, spin| {
        cx.nursery(|n| spin.run(|| assert!(n.builder().stack_size(1).spawn(|_| ()).is_err()))).unwrap();
    }),
    ("SpawnBuilder::start", |cx, spin| {
        cx.nursery(|n| spin.run(|| assert!(n.builder().tenant(999).start(|_| ()).is_err()))).unwrap();
    }),
    ("SpawnBuilder::spawn_try", |cx, spin| {
        cx.nursery(|n| {
            spin.run(|| assert!(n.builder().stack_size(1).spawn_try(|_| Ok::<_, String>(())).is_err()));
        })
        .unwrap();
    }),
    ("SpawnBuilder::spawn", |cx, spin| {
        // With all that a builder can note for a child.
        cx.nursery(|n| {
            spin.run(|| {
                let child = n.builder().name("named").budget(SMALL).pool(Pool::ZERO).caps(Caps::none());
                let child = child.priority(Priority::High).stack_size(1 << 16);
                child.spawn(|_| ()).unwrap().join(cx).unwrap();
            });
        })
        .unwrap();
    }),
    ("Nursery::cancel", |cx, spin| drop(cx.nursery(|n| spin.run(|| _ = n.cancel())))),
    ("Nursery::state", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.state())).unwrap()),
    ("Nursery::live", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.live())).unwrap()),
    ("Nursery::pool", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.pool())).unwrap()),
    ("Nursery::recharge", |cx, spin| with_child(cx, |_, n, child| spin.run(|| _ = n.recharge(child, SMALL)))),
    ("Nursery::supervise", |cx, spin| {
        with_child(cx, |cx, n, child| spin.run(|| _ = n.supervise(cx, child, SMALL)));
    }),
    ("Nursery::top_up", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.top_up(SMALL.into()))).unwrap()),
    ("Nursery::await_all", |cx, spin| cx.nursery(|n| spin.run(|| n.await_all(cx))).unwrap()),
    ("Handle::state", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.state()))),
    ("Handle::ops_used", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.ops_used()))),
    ("Handle::budget", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.budget()))),
    ("Handle::is_finished", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.is_finished()))),
    ("Handle::cancel", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.cancel()))),
    ("Handle::join", |cx, spin| {
        cx.nursery(|n| spin.run(|| drop(n.spawn(|_| ()).map(|child| child.join(cx))))).unwrap();
    }),
];

pub(crate) fn without_authority(cx: &Cx, f: impl FnOnce(&Cx) + Send) {
    cx.nursery(|n| {
        let budget = Budget { ops: 1 << 30, ..Budget::ZERO };
        n.builder().budget(budget).caps(Caps::none()).spawn(f).unwrap().join(cx).unwrap();
    })
    .unwrap();
}

/// With a child that waits until it is cancelled.
fn with_child(
    cx: &Cx,
    f: impl for<'s> FnOnce(&Cx, &mainspring::Nursery<'s, '_>, &mainspring::Handle<'s, ()>),
) {
    let _ = cx.nursery(|n| {
        let parker = Parker::default();
        let parker = &*Box::leak(Box::new(parker));
        let child = n.spawn(move |cx| _ = parker.park(cx, None)).unwrap();
        f(cx, n, &child);
        n.cancel();
    });
}
