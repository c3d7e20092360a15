//! Sets of tasks, supervisors, actors.

use crate::spin::{Table, ZERO};
use mainspring::supervisor::{Child, Restart, Strategy, Supervisor};
use mainspring::sync::CancelToken;
use mainspring::{Cx, JoinSet, NurseryOptions, Pool};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a task does with sets of tasks, supervisors and actors.
pub(crate) const GROUPS: Table = &[
    ("Nursery::failures", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.failures())).unwrap()),
    ("JoinSet::spawn", |cx, spin| {
        let poor = NurseryOptions::new().pool(Pool::ZERO);
        cx.nursery_with(poor, |n| {
            let mut set = JoinSet::new(n);
            spin.run(|| assert!(set.spawn(|_| ()).is_err()));
        })
        .unwrap();
    }),
    ("JoinSet::spawn_with", |cx, spin| {
        cx.nursery(|n| {
            let mut set = JoinSet::new(n);
            spin.run(|| assert!(set.spawn_with(n.builder().stack_size(1), |_| ()).is_err()));
        })
        .unwrap();
    }),
    ("JoinSet::join_next", |cx, spin| {
        cx.nursery(|n| {
            let mut set = JoinSet::<()>::new(n);
            spin.run(|| assert!(set.join_next(cx).is_none()));
        })
        .unwrap();
    }),
    ("JoinSet::join_next", |cx, spin| {
        cx.nursery(|n| {
            let mut set = JoinSet::new(n);
            spin.run(|| {
                set.spawn(|_| ()).unwrap();
                set.join_next(cx).unwrap().1.unwrap();
            });
        })
        .unwrap();
    }),
    ("JoinSet::join_next_timeout", |cx, spin| {
        cx.nursery(|n| {
            let mut set = JoinSet::<()>::new(n);
            spin.run(|| assert!(set.join_next_timeout(cx, ZERO).unwrap().is_none()));
        })
        .unwrap();
    }),
    ("JoinSet::cancel_all", |cx, spin| {
        cx.nursery(|n| {
            let set = JoinSet::<()>::new(n);
            spin.run(|| set.cancel_all());
        })
        .unwrap();
    }),
    ("JoinSet::len", |cx, spin| {
        cx.nursery(|n| {
            let set = JoinSet::<()>::new(n);
            spin.run(|| assert_eq!(set.len(), 0));
        })
        .unwrap();
    }),
    ("JoinSet::is_empty", |cx, spin| {
        cx.nursery(|n| {
            let set = JoinSet::<()>::new(n);
            spin.run(|| assert!(set.is_empty()));
        })
        .unwrap();
    }),
    ("Supervisor::run", |cx, spin| {
        let supervisor = Supervisor::new(Strategy::OneForOne);
        spin.run(|| _ = supervisor.run(cx).unwrap());
    }),
    ("Supervisor::run", |cx, spin| {
        let fails = AtomicBool::new(false);
        // Every other life fails.
        let body = |_: &Cx| if fails.fetch_xor(true, Ordering::Relaxed) { Ok(()) } else { Err("a failure") };
        let child = Child::new("fails", body).restart(Restart::Transient);
        let supervisor = Supervisor::new(Strategy::OneForAll).child(child);
        spin.run(|| assert_eq!(supervisor.run(cx).unwrap(), 1));
    }),
    ("Supervisor::run_until", |cx, spin| {
        let (supervisor, token) = (Supervisor::new(Strategy::OneForOne), CancelToken::new());
        spin.run(|| _ = supervisor.run_until(cx, &token).unwrap());
    }),
    ("Cx::mailbox", |cx, spin| spin.run(|| drop(cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap()))),
    ("Address::tell", |cx, spin| {
        let (address, _mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| assert!(address.tell(cx, (), Pool::ZERO).is_err()));
    }),
    ("Address::try_tell", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        drop(mailbox);
        let grant = Pool { ops: 1, spawn_count: 1, ..Pool::ZERO };
        spin.run(|| assert!(address.try_tell(cx, (), grant).is_err()));
    }),
    ("Address::ask", |cx, spin| {
        let (address, _mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| assert!(address.ask(cx, (), Pool::ZERO).is_err()));
    }),
    ("Address::ask", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        let grant = Pool { ops: 10, spawn_count: 1, ..Pool::ZERO };
        cx.nursery(|n| {
            n.start(move |cx| mailbox.serve(cx, &mut (), |(), _, ()| ()).unwrap()).unwrap();
            spin.run(|| address.ask(cx, (), grant).unwrap());
            drop(address);
        })
        .unwrap();
    }),
    ("Address::ask_timeout", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        drop(mailbox);
        let grant = Pool { ops: 1, spawn_count: 1, ..Pool::ZERO };
        spin.run(|| assert!(address.ask_timeout(cx, (), grant, ZERO).is_err()));
    }),
    ("Address::close", |cx, spin| {
        let (address, _mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| address.close());
    }),
    ("Address::clone", |cx, spin| {
        let (address, _mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| drop(address.clone()));
    }),
    ("Cx::send_abroad", |cx, spin| {
        spin.run(|| cx.send_abroad(Pool::ZERO, |_| ()).unwrap());
    }),
    ("Abroad::out", |cx, spin| {
        cx.send_abroad(Pool::ZERO, |abroad| spin.run(|| _ = abroad.out())).unwrap();
    }),
    ("Abroad::bring_back", |cx, spin| {
        cx.send_abroad(Pool::ZERO, |abroad| spin.run(|| abroad.bring_back(&Pool::ZERO).unwrap())).unwrap();
    }),
    ("Runtime::withdraw", |_, spin| spin.run(|| spin.runtime.withdraw(&Pool::ZERO).unwrap())),
    ("Runtime::deposit", |_, spin| spin.run(|| spin.runtime.deposit(&Pool::ZERO))),
    ("Runtime::send_from_outside", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        drop(mailbox);
        let grant = Pool { ops: 1, spawn_count: 1, ..Pool::ZERO };
        let send = || spin.runtime.send_from_outside(&address, (), grant, Arc::default(), |_, _| ());
        spin.run(|| assert!(send().is_err()));
    }),
    ("Mailbox::serve", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        drop(address);
        spin.run(|| mailbox.serve(cx, &mut (), |(), _, ()| ()).unwrap());
    }),
    ("Mailbox::len", |cx, spin| {
        let (_address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| assert_eq!(mailbox.len(), 0));
    }),
    ("Mailbox::is_empty", |cx, spin| {
        let (_address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| assert!(mailbox.is_empty()));
    }),
];
