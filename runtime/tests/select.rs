//! Select: which arm is taken, and that no value is lost, whatever ends it.

use mainspring::io::{IoDriver, RuntimeEnded, TcpListener, TcpStream, UdpSocket, UnixDatagram};
use mainspring::testing::for_seeds;
use mainspring::{Capacity, Config, Cx, Profile, Receiver, Refusal, Runtime, Select, Sender, TaskError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn config(workers: usize) -> Config {
    Config::new(Profile::Cluster).workers(workers)
}

fn runtime(workers: usize) -> Runtime {
    config(workers).build().unwrap()
}

#[derive(Debug, PartialEq, Eq)]
enum Taken<T> {
    Sent(Result<(), Refusal>),
    Received(Result<T, Refusal>),
    Late,
}

const SOON: Duration = Duration::from_millis(1);

#[test]
fn a_send_that_nobody_takes_leaves_its_value_and_one_that_is_taken_moves_it() {
    runtime(1)
        .run(|cx| {
            let (tx, rx) = cx.channel::<String>(Capacity::Rendezvous).unwrap();
            let mut value = Some("kept".to_owned());
            let late = Select::new().send(&tx, &mut value, |_| "sent").run_timeout(cx, SOON, || "late");
            assert_eq!((late, value.as_deref()), (Ok("late"), Some("kept")));
            cx.nursery(|n| {
                let receiver = n.spawn(|cx| rx.recv(cx)).unwrap();
                // Waits as an arm, and is found by the receiver, or finds it.
                assert_eq!(Select::new().send(&tx, &mut value, |sent| sent).run(cx), Ok(Ok(())));
                assert_eq!(receiver.join(cx).unwrap().as_deref(), Ok("kept"));
            })
            .unwrap();
            assert_eq!(value, None, "it was moved");
            let nothing = Select::new().send(&tx, &mut value, |_| "sent").run_timeout(cx, SOON, || "late");
            assert_eq!(nothing, Ok("late"), "an arm without a value is never taken");
        })
        .unwrap();
}

#[test]
fn a_closed_channel_ends_an_arm_and_its_value_stays() {
    for closed_before in [true, false] {
        runtime(1)
            .run(|cx| {
                let (tx, rx) = cx.channel::<u32>(Capacity::Bounded(1)).unwrap();
                let (quiet, other) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
                tx.send(cx, 1).unwrap();
                let mut value = Some(2);
                cx.nursery(|n| {
                    if closed_before {
                        drop(rx);
                    } else {
                        n.spawn(move |_| drop(rx)).unwrap();
                    }
                    let taken = Select::new()
                        .recv(&other, Taken::Received)
                        .send(&tx, &mut value, Taken::Sent)
                        .run(cx);
                    assert_eq!(taken, Ok(Taken::Sent(Err(Refusal::Closed))));
                })
                .unwrap();
                assert_eq!(value, Some(2));
                quiet.close();
                let taken = Select::new().recv(&other, Taken::Received).run(cx);
                assert_eq!(taken, Ok(Taken::Received(Err(Refusal::Closed))));
            })
            .unwrap();
    }
}

/// A value to send, and what is left of it when its task ends.
struct Slot<'a>(Option<u32>, &'a Mutex<Option<u32>>);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.1.lock().unwrap() = self.0;
    }
}

#[test]
fn a_cancelled_select_puts_its_value_back_before_it_unwinds() {
    for workers in [1, 2] {
        let found = Mutex::new(None);
        let ended = runtime(workers).run(|cx| {
            let (tx, _rx) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
            let (tx, found) = (&tx, &found);
            cx.nursery(|n| {
                n.spawn(move |cx| {
                    let mut slot = Slot(Some(5), found);
                    Select::new().send(tx, &mut slot.0, |_| ()).run(cx).unwrap();
                })
                .unwrap();
                (0..20).for_each(|_| cx.yield_now());
                n.cancel();
            })
        });
        assert!(matches!(ended.unwrap().unwrap_err().error, TaskError::Cancelled));
        assert_eq!(found.into_inner().unwrap(), Some(5), "{workers} workers");
    }
}

#[test]
fn arms_that_are_always_ready_take_turns_unless_in_order() {
    runtime(1)
        .run(|cx| {
            let (tx1, rx1) = cx.channel::<u32>(Capacity::Unbounded).unwrap();
            let (tx2, rx2) = cx.channel::<u32>(Capacity::Unbounded).unwrap();
            let count = |in_order: bool| {
                let mut counts = [0; 2];
                for _ in 0..400 {
                    tx1.send(cx, 0).unwrap();
                    tx2.send(cx, 1).unwrap();
                    let select =
                        Select::new().recv(&rx1, |value| value.unwrap()).recv(&rx2, |value| value.unwrap());
                    let select = if in_order { select.in_order() } else { select };
                    counts[select.run(cx).unwrap() as usize] += 1;
                }
                counts
            };
            let [first, second] = count(false);
            assert!(first > 100 && second > 100, "{first} and {second}");
            assert_eq!(count(true), [400, 0]);
        })
        .unwrap();
}

/// An arm waits in the same line as every other waiter.
#[test]
fn those_who_select_and_those_who_do_not_are_served_in_the_order_in_which_they_came() {
    for capacity in [Capacity::Rendezvous, Capacity::Bounded(1)] {
        runtime(1)
            .run(|cx| {
                let (tx, rx) = cx.channel::<u32>(capacity).unwrap();
                let (_quiet, other) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
                let (tx, other) = (&tx, &other);
                if capacity != Capacity::Rendezvous {
                    tx.send(cx, 99).unwrap();
                }
                cx.nursery(|n| {
                    for i in 0..6 {
                        n.spawn(move |cx| {
                            if i % 2 == 0 {
                                tx.send(cx, i).unwrap();
                            } else {
                                let mut value = Some(i);
                                let select = Select::new().recv(other, |_| ()).send(tx, &mut value, |sent| {
                                    sent.unwrap();
                                });
                                select.run(cx).unwrap();
                            }
                        })
                        .unwrap();
                        // Until it waits.
                        (0..3).for_each(|_| cx.yield_now());
                    }
                    let came: Vec<u32> = (0..6).map(|_| rx.recv(cx).unwrap()).collect();
                    let mut came_in_order: Vec<u32> = (0..6).collect();
                    if capacity != Capacity::Rendezvous {
                        came_in_order.insert(0, 99);
                        came_in_order.pop();
                        assert_eq!(rx.recv(cx), Ok(5));
                    }
                    assert_eq!(came, came_in_order);
                })
                .unwrap();
            })
            .unwrap();
    }
}

const PASSES: u32 = 200;

/// Sends all it has and receives as much, whichever can be done.
fn exchange(tx: &Sender<u32>, rx: &Receiver<u32>, run: impl Fn(Select<'_, Taken<u32>>) -> Taken<u32>) {
    let (mut sent, mut received) = (0, 0);
    while sent < PASSES || received < PASSES {
        let mut value = (sent < PASSES).then_some(sent);
        let mut select = Select::new().send(tx, &mut value, Taken::Sent);
        if received < PASSES {
            select = select.recv(rx, Taken::Received);
        }
        match run(select) {
            Taken::Sent(done) => {
                done.unwrap();
                sent += 1;
            }
            Taken::Received(value) => {
                assert_eq!(value, Ok(received), "in order, each once");
                received += 1;
            }
            Taken::Late => unreachable!("it has no timeout"),
        }
    }
}

fn face_each_other(cx: &Cx, capacity: Capacity) {
    let (to, at) = cx.channel(capacity).unwrap();
    let (back, home) = cx.channel(capacity).unwrap();
    cx.nursery(|n| {
        n.spawn(move |cx| exchange(&to, &home, |select| select.run(cx).unwrap())).unwrap();
        n.spawn(move |cx| exchange(&back, &at, |select| select.run(cx).unwrap())).unwrap();
    })
    .unwrap();
}

#[test]
fn two_selects_that_face_each_other_meet() {
    for capacity in [Capacity::Rendezvous, Capacity::Bounded(1)] {
        for workers in [1, 2, 4] {
            runtime(workers).run(|cx| face_each_other(cx, capacity)).unwrap();
        }
        for_seeds(0..10, config(3), |cx| face_each_other(cx, capacity));
    }
}

/// Tasks that send, receive and select at random over a few channels, each for a short time only. What was sent has been
/// received or is in a buffer; what was refused has come back.
fn mixed(cx: &Cx, seed: u64, capacities: [Capacity; 3], tasks: u64) {
    let channels = capacities.map(|capacity| cx.channel::<u64>(capacity).unwrap());
    let (sent, received) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let came = Mutex::new(std::collections::HashSet::new());
    let took = |value: Result<u64, Refusal>| {
        if let Ok(value) = value {
            received.fetch_add(1, Ordering::Relaxed);
            assert!(came.lock().unwrap().insert(value), "{value} came twice");
        }
    };
    cx.nursery(|n| {
        for task in 0..tasks {
            let (channels, sent, took) = (&channels, &sent, &took);
            n.spawn(move |cx| {
                let mut state = seed ^ task << 32 | 1;
                for step in 0..60 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let draw = |shift: u32, n: u64| (state >> shift) % n;
                    let (one, two) = (&channels[draw(33, 3) as usize], &channels[draw(40, 3) as usize]);
                    let wait = Duration::from_micros(draw(45, 30));
                    let value = task << 32 | step << 2;
                    let count = |was_sent: bool| _ = sent.fetch_add(usize::from(was_sent), Ordering::Relaxed);
                    match draw(50, 4) {
                        0 => count(one.0.send_timeout(cx, value, wait).is_ok()),
                        1 => took(one.1.recv_timeout(cx, wait)),
                        _ => {
                            let (mut first, mut second) = (Some(value), Some(value | 1));
                            let taken = Select::new()
                                .send(&one.0, &mut first, Taken::Sent)
                                .recv(&two.1, Taken::Received)
                                .send(&two.0, &mut second, Taken::Sent)
                                .run_timeout(cx, wait, || Taken::Late)
                                .unwrap();
                            let gone = usize::from(first.is_none()) + usize::from(second.is_none());
                            assert_eq!(gone, usize::from(taken == Taken::Sent(Ok(()))), "{taken:?}");
                            count(gone == 1);
                            if let Taken::Received(value) = taken {
                                took(value);
                            }
                        }
                    }
                }
            })
            .unwrap();
        }
    })
    .unwrap();
    let left: usize = channels.iter().map(|(_, rx)| rx.len()).sum();
    let (sent, received) = (sent.into_inner(), received.into_inner());
    assert_eq!(sent, received + left);
    assert!(received > 0, "the test passes something");
}

const KINDS: [[Capacity; 3]; 3] = [
    [Capacity::Rendezvous; 3],
    [Capacity::Rendezvous, Capacity::Bounded(1), Capacity::Bounded(2)],
    [Capacity::Bounded(1), Capacity::Unbounded, Capacity::Rendezvous],
];

#[test]
fn no_value_is_lost_or_doubled_by_selects_that_are_late() {
    for (seed, kinds) in KINDS.into_iter().enumerate() {
        for_seeds(0..40, config(3), |cx| mixed(cx, seed as u64, kinds, 6));
        for workers in [1, 4] {
            let runtime = runtime(workers);
            for seed in 0..10 {
                runtime.run(|cx| mixed(cx, seed, kinds, 12)).unwrap();
            }
        }
    }
}

#[test]
fn a_select_costs_one_op_and_one_channel_operation_however_many_arms_it_has() {
    runtime(1)
        .run(|cx| {
            let (tx, rx) = cx.channel::<u32>(Capacity::Bounded(1)).unwrap();
            let (_quiet, other) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
            let before = cx.budget();
            let mut value = Some(1);
            Select::new().recv(&other, |_| ()).send(&tx, &mut value, |_| ()).run(cx).unwrap();
            Select::new().recv(&other, |_| ()).recv(&rx, |_| ()).run(cx).unwrap();
            let after = cx.budget();
            assert_eq!((before.ops - after.ops, before.channel_ops - after.channel_ops), (2, 2));
        })
        .unwrap();
}

#[test]
fn a_host_thread_selects_among_channels_of_tasks() {
    let runtime = runtime(2);
    let (to_host, from_task) = runtime.channel::<u32>(Capacity::Rendezvous);
    let (to_task, from_host) = runtime.channel::<u32>(Capacity::Rendezvous);
    std::thread::scope(|threads| {
        threads.spawn(|| exchange(&to_task, &from_task, |select| select.run_blocking()));
        runtime.run(|cx| exchange(&to_host, &from_host, |select| select.run(cx).unwrap())).unwrap();
    });
}

/// Runtimes with each driver that this host has.
fn with_drivers() -> Vec<Runtime> {
    let made = [IoDriver::Epoll, IoDriver::Uring].map(|driver| config(2).io(driver).build());
    made.into_iter().filter_map(Result::ok).collect()
}

#[test]
fn a_select_waits_for_sockets_beside_channels_and_passes_none_over() {
    for runtime in with_drivers() {
        runtime
            .run(|cx| {
                let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let (tx, rx) = cx.channel::<u32>(Capacity::Bounded(1)).unwrap();
                cx.nursery(|n| {
                    let client = n.spawn(move |cx| {
                        let stream = TcpStream::connect(cx, address).unwrap();
                        let mut back = [0; 4];
                        for _ in 0..20 {
                            stream.write_all(cx, b"ping").unwrap();
                            stream.read_exact(cx, &mut back).unwrap();
                        }
                        tx.send(cx, 7).unwrap();
                    });
                    let client = client.unwrap();
                    let next = |select: Select<'_, bool>| select.recv(&rx, |_| false).run(cx).unwrap();
                    assert!(next(Select::new().readable(&listener, |ready| ready.map(|()| true).unwrap())));
                    let (stream, _) = listener.accept(cx).unwrap();
                    let mut pings = 0;
                    while next(Select::new().readable(&stream, |ready| ready.map(|()| true).unwrap())) {
                        let mut read = [0; 4];
                        // The end of the stream is readable too.
                        if stream.read(cx, &mut read).unwrap() == 0 {
                            break;
                        }
                        pings += 1;
                        assert!(Select::new().writable(&stream, |ready| ready.is_ok()).run(cx).unwrap());
                        stream.write_all(cx, b"pong").unwrap();
                    }
                    assert_eq!(pings, 20, "{:?}", runtime.io_driver());
                    client.join(cx).unwrap();
                })
                .unwrap();
            })
            .unwrap();
    }
}

#[test]
fn a_select_that_waits_for_a_quiet_socket_ends_with_its_time_and_its_task() {
    for runtime in with_drivers() {
        runtime
            .run(|cx| {
                let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
                let quiet = || Select::new().readable(&socket, |_| "came");
                assert_eq!(quiet().run_timeout(cx, Duration::from_millis(1), || "late"), Ok("late"));
                let cancelled = cx.nursery(|n| {
                    n.start(|cx| _ = Select::new().readable(&socket, |_| ()).run(cx)).unwrap();
                    cx.sleep(Duration::from_millis(2));
                    n.cancel();
                });
                assert!(cancelled.is_err());
                // Nothing of these is left in the line of the one that waits now.
                let me = socket.local_addr().unwrap();
                socket.send_to(cx, b"x", me).unwrap();
                assert_eq!(quiet().run(cx), Ok("came"));
            })
            .unwrap();
    }
    let (here, there) = (runtime(1), runtime(1));
    let socket = here.run(|cx| UdpSocket::bind(cx, "127.0.0.1:0").unwrap()).unwrap();
    let refused = there.run(|cx| Select::new().readable(&socket, |ready| ready.is_err()).run(cx));
    assert_eq!(refused.unwrap(), Ok(true), "a socket of another runtime is waited for by none");
}

#[test]
fn two_arms_may_wait_for_the_end_of_one_child() {
    for_seeds(0..20, config(2), |cx| {
        cx.nursery(|n| {
            let child = n.spawn(|cx| cx.sleep(SOON)).unwrap();
            let ended = Select::new().ended(&child, || 1).ended(&child, || 2).run(cx).unwrap();
            assert!(ended == 1 || ended == 2);
            child.join(cx).unwrap();
        })
        .unwrap();
    });
    // For an ordinary thread each arm has a word of its own.
    runtime(1)
        .nursery(mainspring::NurseryOptions::new(), |n| {
            let child = n.spawn(|cx| cx.sleep(SOON)).unwrap();
            Select::new().ended(&child, || 1).ended(&child, || 2).run_blocking();
            child.wait().unwrap();
        })
        .unwrap();
}

#[test]
fn what_another_task_takes_does_not_put_the_end_of_a_select_off() {
    for driver in [IoDriver::Epoll, IoDriver::Uring] {
        let Ok(runtime) = config(1).io(driver).build() else { continue };
        let sent = runtime.run(|cx| {
            let (to, from) = UnixDatagram::pair(cx).unwrap();
            let (over, sent) = (AtomicUsize::new(0), AtomicUsize::new(0));
            cx.nursery(|n| {
                let (to, from, over, sent) = (&to, &from, &over, &sent);
                // It is the first in line, and leaves nothing for the select.
                n.start(move |cx| {
                    while over.load(Ordering::Relaxed) == 0 {
                        from.recv_from(cx, &mut [0; 8]).unwrap();
                    }
                })
                .unwrap();
                n.start(move |cx| {
                    while over.load(Ordering::Relaxed) == 0 && sent.fetch_add(1, Ordering::Relaxed) < MOST {
                        to.send(cx, b"x").unwrap();
                        cx.sleep(SOON);
                    }
                    to.send(cx, b"the last").unwrap();
                })
                .unwrap();
                for _ in 0..5 {
                    cx.sleep(2 * SOON);
                    let select = Select::new().readable(from, |_| "readable");
                    // It may come at the moment between a datagram and its receiver.
                    select.run_timeout(cx, 20 * SOON, || "late").unwrap();
                }
                over.store(1, Ordering::Relaxed);
            })
            .unwrap();
            sent.into_inner()
        });
        assert!(sent.unwrap() < MOST);
    }
}

/// So many datagrams take longer than any timeout here, however slow the host.
const MOST: usize = 2000;

#[test]
fn a_socket_whose_runtime_has_ended_refuses_to_be_waited_for() {
    for driver in [IoDriver::Epoll, IoDriver::Uring] {
        for ends_meanwhile in [false, true] {
            let Ok(runtime) = config(1).io(driver).build() else { continue };
            let (known, unknown) = runtime
                .run(|cx| {
                    let known = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
                    let late = Select::new().readable(&known, |_| "ready").run_timeout(cx, SOON, || "late");
                    assert_eq!(late, Ok("late"));
                    (known, TcpListener::bind(cx, "127.0.0.1:0").unwrap())
                })
                .unwrap();
            let refused = |listener: &TcpListener| {
                let error = Select::new().readable(listener, Result::unwrap_err).run_blocking();
                assert!(error.get_ref().is_some_and(|inner| inner.is::<RuntimeEnded>()), "{error}");
            };
            std::thread::scope(|threads| {
                if ends_meanwhile {
                    threads.spawn(|| refused(&known));
                    std::thread::sleep(SOON);
                    drop(runtime);
                } else {
                    drop(runtime);
                    refused(&known);
                }
                refused(&unknown);
            });
        }
    }
}
