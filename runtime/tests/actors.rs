//! Actors of the cluster profile: mailboxes with a bound, and budgets that travel with messages.

use mainspring::actor::{MailboxError, ServeError};
use mainspring::supervisor::{Child, Restart, Strategy, Supervisor};
use mainspring::{
    Address, AskError, Budget, Caps, Component, Config, Cx, Mailbox, NurseryOptions, Pool, Profile, Refusal,
    Runtime,
};
use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SETTLED: Duration = Duration::from_millis(1);

fn runtime(seed: u64) -> Runtime {
    Config::new(Profile::Cluster).workers(2).deterministic_seed(seed).build().unwrap()
}

fn grant(ops: u64) -> Pool {
    Pool { ops, spawn_count: 1, ..Pool::ZERO }
}

/// Runs `f` beside an actor that sums what it is sent, after so much work as each message says.
fn with_actor(room: u32, least: Pool, f: impl FnOnce(&Cx, &Address<u32, u64>) + Send) {
    runtime(1)
        .run(|cx| {
            let (address, mailbox) = cx.mailbox::<u32, u64>(room, least).unwrap();
            cx.nursery(|n| {
                let pool = Pool { ops: 1000, spawn_count: 10, ..Pool::ZERO };
                n.builder()
                    .budget(Budget { ops: 100_000, channel_ops: 1000, ..Budget::ZERO })
                    .pool(pool)
                    .start(move |cx| {
                        let mut sum = 0;
                        let served = mailbox.serve(cx, &mut sum, |sum, cx, work| {
                            cx.check_iterations(work);
                            *sum += u64::from(work);
                            *sum
                        });
                        served.unwrap();
                    })
                    .unwrap();
                f(cx, &address);
                address.close();
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_message_that_nobody_handles_goes_before_its_sender_goes_on() {
    let runtime = Config::new(Profile::Cluster).workers(1).build().unwrap();
    let ran = runtime.run(|cx| {
        let (address, mailbox) = cx.mailbox::<Arc<()>, ()>(1, Pool::ZERO).unwrap();
        cx.nursery(|n| {
            let message = Arc::new(());
            let (asked, other, refused) = (message.clone(), address.clone(), message.clone());
            let sender =
                n.builder().pool(grant(50)).spawn(move |cx| other.ask(cx, asked, grant(50))).unwrap();
            while mailbox.is_empty() {
                cx.yield_now();
            }
            drop(mailbox);
            assert_eq!(sender.join(cx).unwrap(), Err(AskError::Failed));
            assert_eq!(Arc::strong_count(&message), 2, "what was in the mailbox is gone");
            assert_eq!(address.ask(cx, refused, grant(50)), Err(AskError::Refused(Refusal::Closed)));
            assert_eq!(Arc::strong_count(&message), 1, "what was refused is gone");
        })
    });
    ran.unwrap().unwrap();
}

#[test]
fn a_handler_sends_a_part_of_its_grant_on_and_has_the_rest_back() {
    with_actor(4, Pool::ZERO, |cx, address| {
        let (relay, mailbox) = cx.mailbox::<u32, u64>(4, Pool::ZERO).unwrap();
        cx.nursery(|n| {
            n.start(move |cx| {
                let passed_on = |(): &mut (), cx: &Cx, work| {
                    let before = cx.budget();
                    let sum = address.ask(cx, work, grant(200)).unwrap();
                    assert_eq!(before.ops - cx.budget().ops, 1 + work, "the send, and the work");
                    assert!(matches!(address.ask(cx, work, grant(5_000)), Err(AskError::Unpayable(_))));
                    sum
                };
                mailbox.serve(cx, &mut (), passed_on).unwrap();
            })
            .unwrap();
            let before = n.pool();
            let grant = Pool { spawn_count: 2, channel_ops: 2, ..grant(500) };
            assert_eq!(relay.ask(cx, 70, grant), Ok(70));
            assert_eq!(before.ops - n.pool().ops, 1 + 70, "one pays for both");
            relay.close();
        })
        .unwrap();
    });
}

//= OWN:supervise SCHED:10.2.3
#[test]
fn a_message_is_paid_by_its_sender_and_what_is_left_comes_back() {
    with_actor(4, Pool::ZERO, |cx, address| {
        cx.nursery(|n| {
            let client =
                n.builder().budget(Budget { ops: 1000, spawn_count: 5, channel_ops: 5, ..Budget::ZERO });
            let client = client.spawn(|cx| {
                let before = cx.budget();
                assert_eq!(address.ask(cx, 70, Pool { spawn_count: 3, ..grant(500) }), Ok(70));
                let after = cx.budget();
                // The send, and the work.
                assert_eq!(before.ops - after.ops, 1 + 70);
                assert_eq!(before.spawn_count - after.spawn_count, 1, "the task that handled it");
                assert_eq!(before.channel_ops - after.channel_ops, 1, "a send is a channel operation");
                // It stays within its grant.
                assert_eq!(address.ask(cx, 701, grant(500)), Err(AskError::Exhausted(Component::Ops)));
                assert_eq!(after.ops - cx.budget().ops, 1 + 500);
                assert_eq!(address.ask(cx, 1, grant(10)), Ok(71), "and the actor goes on");
                // More than it has: nothing happens.
                let before = cx.budget();
                assert!(matches!(address.ask(cx, 1, grant(5000)), Err(AskError::Unpayable(_))));
                assert_eq!(cx.budget(), before);
            });
            client.unwrap().join(cx).unwrap();
        })
        .unwrap();
    });
}

#[test]
fn a_grant_that_is_less_than_the_mailbox_takes_is_refused() {
    with_actor(4, grant(100), |cx, address| {
        let before = cx.budget();
        for little in [Pool::ZERO, grant(99), Pool { ops: 1000, ..Pool::ZERO }] {
            assert!(matches!(address.ask(cx, 1, little), Err(AskError::TooLittle(_))), "{little:?}");
        }
        assert_eq!(cx.budget(), before);
        assert_eq!(address.ask(cx, 1, grant(100)), Ok(1));
    });
}

//= OWN:supervise
#[test]
fn a_full_mailbox_makes_its_senders_wait() {
    runtime(1)
        .run(|cx| {
            let (address, mailbox) = cx.mailbox::<u32, ()>(2, Pool::ZERO).unwrap();
            for _ in 0..2 {
                address.try_tell(cx, 1, grant(10)).unwrap();
            }
            let before = cx.budget();
            let full = address.try_tell(cx, 3, grant(10)).unwrap_err();
            assert_eq!((full.why, full.message), (AskError::Refused(Refusal::WouldBlock), 3));
            // One op for the attempt, and what was granted is back.
            assert_eq!((before.ops - cx.budget().ops, mailbox.len()), (1, 2));
            let late = address.ask_timeout(cx, 3, grant(10), SETTLED);
            assert_eq!(late, Err(AskError::Refused(Refusal::TimedOut)));
            cx.nursery(|n| {
                let sender = address.clone();
                let budget = Budget { ops: 100, spawn_count: 1, channel_ops: 1, ..Budget::ZERO };
                let waits = n.builder().budget(budget).spawn(move |cx| sender.tell(cx, 3, grant(10)).is_ok());
                let waits = waits.unwrap();
                cx.sleep(SETTLED);
                assert!(!waits.is_finished(), "there is no room");
                n.start(move |cx| {
                    mailbox.serve(cx, &mut (), |(), _, _| ()).unwrap();
                })
                .unwrap();
                assert!(waits.join(cx).unwrap());
                address.close();
            })
            .unwrap();
        })
        .unwrap();
}

//= SCHED:10.2.3 SCHED:10.1
#[test]
fn only_the_cluster_profile_has_actors() {
    for profile in [Profile::Service, Profile::Sovereign] {
        let runtime = Config::new(profile).workers(1).build().unwrap();
        let refused = runtime.run(|cx| cx.mailbox::<(), ()>(1, Pool::ZERO).map(|_| ()));
        assert_eq!(refused.unwrap(), Err(MailboxError::NotCluster));
    }
}

//= SCHED:10.2.3
#[test]
fn sends_and_receives_of_a_mailbox_are_charged_as_channel_operations() {
    runtime(1)
        .run(|cx| {
            let (address, mailbox) = cx.mailbox::<u32, ()>(4, Pool::ZERO).unwrap();
            cx.nursery(|n| {
                let poor = Budget { ops: 1000, ..Budget::ZERO };
                let refused = n.builder().budget(Budget { spawn_count: 3, ..poor }).spawn({
                    let address = address.clone();
                    move |cx| address.tell(cx, 1, grant(10)).map_err(|unsent| unsent.why)
                });
                assert!(matches!(
                    refused.unwrap().join(cx).unwrap(),
                    Err(AskError::Refused(Refusal::Budget(_)))
                ));
                let cannot = n.builder().budget(poor).spawn(|cx| mailbox.serve(cx, &mut (), |(), _, _| ()));
                assert!(matches!(cannot.unwrap().join(cx).unwrap(), Err(ServeError::Receive(_))));
                address.tell(cx, 1, grant(10)).unwrap();
                address.tell(cx, 2, grant(10)).unwrap();
                drop(address);
                let rich = Budget { ops: 1000, channel_ops: 9, ..Budget::ZERO };
                let pool = Pool { ops: 100, spawn_count: 1, ..Pool::ZERO };
                let serves = n.builder().budget(rich).pool(pool).spawn(|cx| {
                    mailbox.serve(cx, &mut (), |(), _, _| ()).unwrap();
                    cx.budget().channel_ops
                });
                assert_eq!(serves.unwrap().join(cx).unwrap(), 9 - 3, "two messages and the end");
            })
            .unwrap();
        })
        .unwrap();
}

//= OWN:caps.fork
#[test]
fn a_message_is_handled_with_no_more_authority_than_the_actor_has() {
    runtime(1)
        .run(|cx| {
            let (address, mailbox) = cx.mailbox::<(), Caps>(1, Pool::ZERO).unwrap();
            let mine = cx.caps();
            cx.nursery(|n| {
                let less = mine.without_executor();
                let pool = Pool { ops: 100, spawn_count: 1, ..Pool::ZERO };
                let actor = n.builder().caps(less).pool(pool);
                actor.start(move |cx| mailbox.serve(cx, &mut (), |(), cx, ()| cx.caps()).unwrap()).unwrap();
                let handlers = address.ask(cx, (), grant(10)).unwrap();
                assert!(mine.executor().is_some() && handlers.executor().is_none());
                address.close();
            })
            .unwrap();
        })
        .unwrap();
}

//= OWN:supervise
#[test]
fn a_handler_that_panics_ends_the_actor_and_the_next_life_has_the_same_address() {
    runtime(1)
        .run(|cx| {
            let (address, mailbox) = cx.mailbox::<u32, u32>(8, Pool::ZERO).unwrap();
            let lives = AtomicU64::new(0);
            let actor = Child::new("actor", |cx| {
                lives.fetch_add(1, Ordering::SeqCst);
                mailbox.serve(cx, &mut 0, |count, cx, message| {
                    cx.check_iterations(5);
                    assert!(message != 13, "a bad message");
                    *count += 1;
                    *count
                })
            });
            let supervisor = Supervisor::new(Strategy::OneForOne)
                .intensity(3, Duration::from_secs(1))
                .child(actor.restart(Restart::Transient));
            cx.nursery(|n| {
                let pool = Pool { ops: 100_000, spawn_count: 20, channel_ops: 1000, ..Pool::ZERO };
                let running = n.builder().pool(pool).spawn(|cx| supervisor.run(cx)).unwrap();
                assert_eq!(address.ask(cx, 1, grant(50)), Ok(1));
                assert_eq!(address.ask(cx, 1, grant(50)), Ok(2));
                let before = (cx.budget().ops, n.pool().ops);
                assert_eq!(address.ask(cx, 13, grant(50)), Err(AskError::Failed));
                // The grant is of the nursery's pool, and what was not used is back there.
                assert_eq!((before.0 - cx.budget().ops, before.1 - n.pool().ops), (1, 5));
                assert_eq!(address.ask(cx, 1, grant(50)), Ok(1), "a new state");
                address.close();
                assert_eq!(running.join(cx).unwrap().unwrap(), 1);
            })
            .unwrap();
            assert_eq!(lives.load(Ordering::SeqCst), 2);
        })
        .unwrap();
}

/// What a client does with a message.
#[derive(Clone, Copy, Debug)]
enum How {
    Ask,
    Tell,
    /// Does not wait for long.
    AskShortly,
    /// The handler panics after its work.
    Poison,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    how: How,
    grant: u64,
    work: u32,
}

fn messages() -> impl proptest::strategy::Strategy<Value = Vec<Message>> {
    let how = prop_oneof![4 => Just(How::Ask), 3 => Just(How::Tell), 2 => Just(How::AskShortly), 1 => Just(How::Poison)];
    let message = (how, 1..200u64, 0..250u32).prop_map(|(how, grant, work)| Message { how, grant, work });
    prop::collection::vec(message, 0..25)
}

/// What a client lost by a message is the send and the work, as far as its grant went: told by the messages alone.
fn client(cx: &Cx, address: &Address<(u32, bool), ()>, messages: &[Message], used: &AtomicU64) {
    for message in messages {
        let before = cx.budget();
        let letter = (message.work, matches!(message.how, How::Poison));
        let work = u64::from(message.work).min(message.grant);
        let cost = match message.how {
            How::Tell => match address.tell(cx, letter, grant(message.grant)) {
                Ok(()) => {
                    used.fetch_add(work, Ordering::SeqCst);
                    1 + message.grant
                }
                Err(_) => panic!("a mailbox that nobody closes"),
            },
            How::AskShortly => match address.ask_timeout(cx, letter, grant(message.grant), SETTLED) {
                // Nobody knows how far it gets, and the ledger at the end is about all.
                Err(AskError::TimedOut) => 1 + message.grant,
                Err(AskError::Refused(_)) => 1,
                Ok(()) | Err(AskError::Exhausted(_)) => 1 + work,
                Err(error) => panic!("{error}"),
            },
            How::Ask | How::Poison => {
                let reply = address.ask(cx, letter, grant(message.grant));
                let expected = match (u64::from(message.work) > message.grant, message.how) {
                    (true, _) => Err(AskError::Exhausted(Component::Ops)),
                    (false, How::Poison) => Err(AskError::Failed),
                    (false, _) => Ok(()),
                };
                assert_eq!(reply, expected, "{message:?}");
                1 + work
            }
        };
        assert_eq!(u64::from(before.ops - cx.budget().ops), cost, "{message:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    //= OWN:supervise OWN:budget.conserve
    #[test]
    fn whatever_messages_do_the_root_loses_what_was_used(
        clients in prop::collection::vec(messages(), 1..4),
        room in 1..4u32,
        seed: u64,
    ) {
        let runtime = runtime(seed);
        let before = runtime.root_pool();
        // By handlers, as they see it themselves; by all other tasks, as the runtime says.
        let (handled, others, told) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        struct Used<'a, 'b>(&'a Cx, &'b AtomicU64);
        impl Drop for Used<'_, '_> {
            fn drop(&mut self) {
                self.1.fetch_add(self.0.ops_used(), Ordering::SeqCst);
            }
        }
        let pool = Pool { ops: 10_000_000, spawn_count: 2000, channel_ops: 60_000, ..Pool::ZERO };
        runtime.nursery(NurseryOptions::new().pool(pool), |n| {
            let caps = Caps::root(100, Budget::MAX, Budget::ZERO, 10, 10);
            let root = n.builder().caps(caps).budget(Budget { ops: 100_000, ..Budget::ZERO }).pool(Pool {
                ops: 5_000_000, spawn_count: 1000, channel_ops: 50_000, ..Pool::ZERO
            });
            let root = root.spawn(|cx| {
                let _used = Used(cx, &others);
                let (address, mailbox) = cx.mailbox::<(u32, bool), ()>(room, Pool::ZERO).unwrap();
                let mailbox: &Mailbox<_, _> = &mailbox;
                let actor = Child::new("actor", |cx| {
                    let _used = Used(cx, &others);
                    mailbox.serve(cx, &mut (), |(), cx, (work, poison)| {
                        let _used = Used(cx, &handled);
                        cx.check_iterations(work);
                        cx.yield_now();
                        assert!(!poison, "a bad message");
                    })
                })
                .options(|spawn| {
                    let budget = Budget { ops: 10_000, channel_ops: 1000, ..Budget::ZERO };
                    spawn.budget(budget).pool(Pool { ops: 100, spawn_count: 1, ..Pool::ZERO })
                })
                .restart(Restart::Transient);
                let supervisor = Supervisor::new(Strategy::OneForOne).intensity(1000, SETTLED).child(actor);
                cx.nursery(|n| {
                    let pool = Pool { ops: 2_000_000, spawn_count: 200, channel_ops: 20_000, ..Pool::ZERO };
                    let all = n.builder().pool(pool).budget(Budget { ops: 10_000, ..Budget::ZERO });
                    all.start(|cx| {
                        let _used = Used(cx, &others);
                        supervisor.run(cx).unwrap();
                    })
                    .unwrap();
                    for messages in &clients {
                        let (address, others, told) = (address.clone(), &others, &told);
                        let budget = Budget { ops: 20_000, spawn_count: 50, channel_ops: 50, ..Budget::ZERO };
                        n.builder().budget(budget).start(move |cx| {
                            let _used = Used(cx, others);
                            client(cx, &address, messages, told);
                        })
                        .unwrap();
                    }
                    drop(address);
                })
                .unwrap();
            });
            root.unwrap().wait().unwrap();
        })
        .unwrap();
        let (handled, others) = (handled.into_inner(), others.into_inner());
        let all = before.ops - runtime.root_pool().ops;
        prop_assert_eq!(all, handled + others);
        prop_assert!(told.into_inner() <= handled, "told messages were handled");
    }
}

//= OWN:supervise
#[test]
fn each_message_has_its_own_grant_and_nothing_of_the_one_before() {
    runtime(1)
        .run(|cx| {
            let (address, mailbox) = cx.mailbox::<u32, (Budget, u64, Pool)>(8, Pool::ZERO).unwrap();
            let channels = cx.caps().channel().expect("the root has it").channels();
            cx.nursery(|n| {
                n.start(move |cx| {
                    let handler = |(): &mut (), cx: &Cx, work: u32| {
                        let had = cx.budget();
                        cx.check_iterations(work);
                        // As many channels as a task may make, by each message.
                        for _ in 0..channels {
                            cx.channel::<()>(mainspring::Capacity::Rendezvous).expect("it made none before");
                        }
                        let whole = Pool { spawn_count: 2, ..Pool::ZERO };
                        let pool = cx.nursery_with(NurseryOptions::new().pool(whole), |n| n.pool());
                        (had, cx.ops_used(), pool.unwrap_or(Pool::ZERO))
                    };
                    mailbox.serve(cx, &mut (), handler).unwrap();
                })
                .unwrap();
                let wide = Pool { spawn_count: 3, syscalls: 7, memory: 100, ..grant(5_000) };
                for round in 0..50_u32 {
                    let rich = address.ask(cx, 100 + round, wide).unwrap();
                    assert_eq!(
                        rich.0,
                        Budget { ops: 5_000, memory: 100, spawn_count: 2, channel_ops: 0, syscalls: 7 }
                    );
                    assert_eq!((rich.1, rich.2.spawn_count), (u64::from(100 + round), 2));
                    let poor = address.ask(cx, 7, grant(10)).unwrap();
                    assert_eq!(poor, (Budget { ops: 10, ..Budget::ZERO }, 7, Pool::ZERO), "after a rich one");
                    assert_eq!(address.ask(cx, 11, grant(10)), Err(AskError::Exhausted(Component::Ops)));
                }
                address.close();
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_message_that_is_cut_short_has_a_cleanup_of_its_own() {
    let runtime = Config::new(Profile::Cluster).workers(1).deterministic_seed(1).build().unwrap();
    let cleaned = AtomicU64::new(0);
    runtime
        .run(|cx| {
            let (address, mailbox) = cx.mailbox::<u32, ()>(8, Pool::ZERO).unwrap();
            cx.nursery(|n| {
                n.start(|cx| {
                    let handler = |(): &mut (), cx: &Cx, work| {
                        let clean = |_: &Cx| {
                            cleaned.fetch_add(1, Ordering::SeqCst);
                        };
                        cx.with_cleanup(|cx| cx.check_iterations(work), clean);
                    };
                    mailbox.serve(cx, &mut (), handler).unwrap();
                })
                .unwrap();
                for _ in 0..20 {
                    assert_eq!(address.ask(cx, 100, grant(10)), Err(AskError::Exhausted(Component::Ops)));
                }
                address.close();
            })
            .unwrap();
        })
        .unwrap();
    assert_eq!(cleaned.into_inner(), 20);
}

#[test]
fn an_actor_receives_on_its_own_budget_and_no_further() {
    runtime(1)
        .run(|cx| {
            let (address, mailbox) = cx.mailbox::<(), ()>(8, Pool::ZERO).unwrap();
            cx.nursery(|n| {
                let budget = Budget { ops: 100, channel_ops: 5, ..Budget::ZERO };
                let actor = n.builder().budget(budget).spawn(|cx| {
                    let served = mailbox.serve(cx, &mut (), |(), _, ()| ());
                    (served.is_err(), cx.ops_used())
                });
                for sent in 1..=5 {
                    assert_eq!(address.ask(cx, (), grant(10)), Ok(()), "message {sent}");
                }
                // It has nothing left to receive with: it ends, as a task does that runs out.
                drop(address);
                let ended = actor.unwrap().join(cx);
                assert!(!matches!(ended, Ok((false, _))), "{ended:?}");
            })
            .unwrap_or(());
        })
        .unwrap();
}

/// Eight tasks ask an actor at once, some of them for so short a time that it may not reply. How many ops all tasks here used.
fn ask_from(runtime: &Runtime, origin: usize, address: &Address<(usize, u32), u32>) -> u64 {
    let used = AtomicU64::new(0);
    let asked = runtime.run(|cx| {
        let ended = cx.nursery(|n| {
            for client in 0..8_u32 {
                let (address, used) = (address.clone(), &used);
                let budget =
                    Budget { ops: 1_000_000, spawn_count: 1_000, channel_ops: 1_000, ..Budget::ZERO };
                let asks = n.builder().budget(budget).start(move |cx| {
                    for turn in 1..300_u32 {
                        let reply = if (turn + client).is_multiple_of(5) {
                            let short = Duration::from_micros(u64::from(turn % 40));
                            address.ask_timeout(cx, (origin, turn), grant(1_000), short)
                        } else {
                            address.ask(cx, (origin, turn), grant(1_000))
                        };
                        assert!(reply.is_err() || reply == Ok(turn), "another's reply: {reply:?}");
                    }
                    used.fetch_add(cx.ops_used(), Ordering::SeqCst);
                });
                asks.unwrap();
            }
        });
        ended.unwrap();
        cx.ops_used()
    });
    asked.unwrap() + used.into_inner()
}

//= OWN:budget.conserve
#[test]
fn tasks_of_two_runtimes_ask_one_actor_at_once_and_each_has_its_own_rest_back() {
    let home = Config::new(Profile::Cluster).workers(2).build().unwrap();
    let abroad = Config::new(Profile::Cluster).workers(2).build().unwrap();
    let before = abroad.root_pool().ops;
    // By messages, as their handlers see it.
    let handled = [AtomicU64::new(0), AtomicU64::new(0)];
    let (tx, rx) = std::sync::mpsc::channel();
    let asked_abroad = std::thread::scope(|threads| {
        let serving = threads.spawn(|| {
            home.run(|cx| {
                let (address, mailbox) = cx.mailbox::<(usize, u32), u32>(4, Pool::ZERO).unwrap();
                tx.send(address).unwrap();
                mailbox.serve(cx, &mut (), |(), cx, (origin, work)| {
                    cx.check_iterations(work);
                    handled[origin].fetch_add(cx.ops_used(), Ordering::SeqCst);
                    work
                })
            })
        });
        let address = rx.recv().unwrap();
        let (there, from) = (address.clone(), &abroad);
        let there = threads.spawn(move || ask_from(from, 1, &there));
        assert!(ask_from(&home, 0, &address) > 0);
        let asked_abroad = there.join().unwrap();
        address.close();
        drop(address);
        serving.join().unwrap().unwrap().unwrap();
        asked_abroad
    });
    let [here, there] = handled.map(AtomicU64::into_inner);
    assert!(here > 0 && there > 0);
    // What a task that did not wait any more had left went to the root of its own runtime.
    assert_eq!(before - abroad.root_pool().ops, asked_abroad + there);
}

//= OWN:budget.conserve
#[test]
fn what_another_runtime_grants_stays_none_of_this_ones() {
    let home = runtime(1);
    let before = home.root_pool();
    home.run(|cx| {
        let (address, mailbox) = cx.mailbox::<(), ()>(16, Pool::ZERO).unwrap();
        cx.nursery(|n| {
            n.start(move |cx| mailbox.serve(cx, &mut (), |(), _, ()| ()).unwrap()).unwrap();
            let poor = n.builder().caps(Caps::none()).spawn(move |_| {
                // Anybody can make one, and says what it has.
                let own = Config::new(Profile::Cluster).workers(1).build().unwrap();
                let rich = Pool { ops: 1 << 50, spawn_count: 9, ..Pool::ZERO };
                own.run(|cx| {
                    cx.nursery_with(NurseryOptions::new().pool(rich), |_| {
                        (0..9).for_each(|_| address.tell(cx, (), grant(1 << 40)).unwrap());
                    })
                    .unwrap();
                })
                .unwrap();
            });
            poor.unwrap().join(cx).unwrap();
        })
        .unwrap();
    })
    .unwrap();
    assert!(home.root_pool().ops <= before.ops, "{:?}", home.root_pool());
}
