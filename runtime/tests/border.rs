//! Grants that cross the border of the runtime.

use mainspring::actor::border::Abroad;
use mainspring::{AskError, Component, Config, Pool, Profile, Runtime};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, mpsc};

fn runtime() -> Runtime {
    Config::new(Profile::Cluster).workers(2).build().expect("a runtime")
}

fn pool(ops: u64) -> Pool {
    Pool { ops, spawn_count: 1, ..Pool::ZERO }
}

#[test]
fn what_is_abroad_is_neither_the_tasks_nor_the_roots_until_it_comes_back() {
    let runtime = runtime();
    let before = runtime.root_pool();
    let kept: Abroad = runtime
        .run(|cx| {
            cx.nursery(|n| {
                let had = n.pool();
                let abroad = cx
                    .send_abroad(pool(1_000), |abroad| {
                        let mut left = had;
                        left.take(&pool(1_000)).expect("it has that");
                        assert_eq!(n.pool(), left);
                        abroad.bring_back(&pool(400)).expect("a part of it");
                        assert_eq!(n.pool(), left, "it comes when the wait is over");
                        abroad.clone()
                    })
                    .expect("it has the grant");
                let mut now = had;
                now.take(&pool(1_000)).expect("it had that");
                now.put(&pool(400));
                assert_eq!(n.pool(), now);
                abroad
            })
        })
        .expect("it runs")
        .expect("the nursery ends");
    assert_eq!(kept.out().ops, 600);
    let after = runtime.root_pool();
    assert!(kept.bring_back(&pool(601)).is_err(), "more than is out");
    assert_eq!(runtime.root_pool(), after);
    let rest = Pool { ops: 600, ..Pool::ZERO };
    kept.bring_back(&rest).expect("the rest");
    assert_eq!(runtime.root_pool().ops, after.ops + 600, "nobody waits: the root has it");
    assert!(kept.bring_back(&rest).is_err(), "twice");
    assert!(runtime.root_pool().ops <= before.ops);
}

#[test]
fn a_message_from_outside_is_handled_on_its_own_grant_and_the_rest_leaves_again() {
    let runtime = runtime();
    let (tx, rx) = mpsc::channel();
    let rx = Mutex::new(rx);
    let done = runtime.run(|cx| {
        let (address, mailbox) = cx.mailbox::<u32, u32>(4, Pool::ZERO).expect("a mailbox");
        let before = runtime.root_pool();
        cx.nursery(|n| {
            n.start(move |cx| {
                mailbox
                    .serve(cx, &mut (), |(), cx, ops| {
                        cx.check_iterations(ops);
                        ops + 1
                    })
                    .expect("it serves");
            })
            .expect("it starts");
            let never = Arc::new(AtomicBool::new(false));
            let send = |ops: u32, grant: Pool, cancelled: &Arc<AtomicBool>| {
                let tx = tx.clone();
                runtime.send_from_outside(&address, ops, grant, Arc::clone(cancelled), move |reply, left| {
                    tx.send((reply, left)).expect("the test listens");
                })
            };
            let got = || {
                let got = cx.blocking(|| rx.lock().expect("no panic").recv().expect("a reply"));
                got.expect("it may block")
            };
            send(100, pool(1_000), &never).expect("there is room");
            let (reply, left) = got();
            assert_eq!(reply, Ok(101));
            assert!(left.ops <= 900 && left.ops > 700, "{left:?}");
            assert_eq!(left.spawn_count, 0, "its task");
            send(100_000, pool(50_000), &never).expect("there is room");
            let (reply, left) = got();
            assert_eq!((reply, left.ops), (Err(AskError::Exhausted(Component::Ops)), 0));
            let cancelled = Arc::new(AtomicBool::new(true));
            send(1, pool(70), &cancelled).expect("there is room");
            assert_eq!(got(), (Err(AskError::Failed), pool(70)), "it is not handled, and all of it is left");
            let refused = send(1, Pool::ZERO, &never).expect_err("a task needs something");
            assert!(matches!(refused.why, AskError::TooLittle(_)));
            address.close();
            let closed = send(1, pool(70), &never).expect_err("it is closed");
            assert!(matches!(closed.why, AskError::Refused(_)));
        })
        .expect("the nursery ends");
        assert_eq!(runtime.root_pool(), before, "the root neither paid nor gained");
    });
    done.expect("it runs");
    assert!(rx.into_inner().expect("no panic").try_recv().is_err(), "what was refused is not told of");
}

#[test]
fn the_host_moves_amounts_over_the_border_and_never_more_than_there_are() {
    let runtime = runtime();
    let before = runtime.root_pool();
    runtime.withdraw(&pool(10)).expect("it has that");
    assert_eq!(runtime.root_pool().ops, before.ops - 10);
    runtime.deposit(&pool(10));
    assert_eq!(runtime.root_pool(), before);
    let more = Pool { ops: before.ops + 1, ..Pool::ZERO };
    assert!(runtime.withdraw(&more).is_err());
    assert_eq!(runtime.root_pool(), before);
}
