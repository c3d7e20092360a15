//! Futures at home: sockets, time, and children with budgets, names and authority.

use mainspring::io::{Async, IoDriver, StreamSocket, TcpListener, TcpStream};
use mainspring::{
    Budget, Component, Config, Cx, NurseryOptions, Profile, Refusal, Runtime, SpawnError, TaskError,
};
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn runtimes() -> impl Iterator<Item = Runtime> {
    [IoDriver::Epoll, IoDriver::Uring]
        .into_iter()
        .filter_map(|driver| Config::new(Profile::Service).workers(2).io(driver).build().ok())
}

/// The sum of all bytes that come.
async fn total(stream: &Async<impl StreamSocket>) -> usize {
    let (mut buffer, mut sum) = (vec![0; 4096], 0);
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return sum,
            n => sum += buffer[..n].iter().map(|byte| usize::from(*byte)).sum::<usize>(),
        }
    }
}

#[test]
fn sockets_of_both_kinds_pass_bytes_under_both_drivers() {
    const BYTES: usize = 1 << 20;
    for runtime in runtimes() {
        runtime
            .run(|cx| {
                let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let listener = Async::new(cx, listener.into_std().unwrap()).unwrap();
                let client = TcpStream::connect(cx, address).unwrap().into_std().unwrap();
                let client = Async::new(cx, client).unwrap();
                let (one, two) = UnixStream::pair().unwrap();
                let (one, two) = (Async::new(cx, one).unwrap(), Async::new(cx, two).unwrap());
                cx.nursery(|n| {
                    // More than a socket holds, so that both sides wait.
                    let sent = n.spawn_future(async {
                        let bytes = vec![7; BYTES];
                        client.write_all(&bytes).await.unwrap();
                        client.shutdown(std::net::Shutdown::Write).unwrap();
                        one.write_all(&bytes).await.unwrap();
                        one.shutdown(std::net::Shutdown::Write).unwrap();
                    });
                    let received = n.spawn_future(async {
                        let (stream, _) = listener.accept().await.unwrap();
                        [total(&stream).await, total(&two).await]
                    });
                    sent.unwrap().join(cx).unwrap();
                    assert_eq!(received.unwrap().join(cx).unwrap(), [7 * BYTES; 2]);
                })
                .unwrap();
            })
            .unwrap();
    }
}

#[test]
fn a_read_that_is_given_up_loses_no_byte_and_leaves_no_waker() {
    for runtime in runtimes() {
        runtime
            .run(|cx| {
                let (one, mut two) = UnixStream::pair().unwrap();
                let one = Async::new(cx, one).unwrap();
                let timer = cx.timer();
                cx.await_future(async {
                    let mut buffer = [0; 8];
                    for _ in 0..100 {
                        let mut read = pin!(one.read(&mut buffer));
                        let pending =
                            poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_pending()));
                        assert!(pending.await);
                    }
                    // Of several that wait for the same side, each is told.
                    let mut others = [[0; 1]; 3];
                    let [a, b, c] = &mut others;
                    let (mut a, mut b, mut c) = (pin!(one.read(a)), pin!(one.read(b)), pin!(one.read(c)));
                    let mut left = vec![0, 1, 2];
                    let mut written = false;
                    poll_fn(|context| {
                        left.retain(|which| {
                            let polled = match which {
                                0 => a.as_mut().poll(context),
                                1 => b.as_mut().poll(context),
                                _ => c.as_mut().poll(context),
                            };
                            polled.is_pending()
                        });
                        if !std::mem::replace(&mut written, true) {
                            two.write_all(b"abc").unwrap();
                        }
                        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                    timer.sleep(Duration::from_millis(1)).await;
                })
                .unwrap();
            })
            .unwrap();
    }
}

#[test]
fn code_that_polls_is_told_when_to_try_again() {
    for runtime in runtimes() {
        runtime
            .run(|cx| {
                let (one, two) = UnixStream::pair().unwrap();
                let (one, two) = (Async::new(cx, one).unwrap(), Async::new(cx, two).unwrap());
                cx.nursery(|n| {
                    let reads = n.spawn_future(async {
                        let mut buffer = [0; 8];
                        poll_fn(|context| one.poll_read(context, &mut buffer))
                            .await
                            .map(|n| buffer[..n].to_vec())
                    });
                    cx.sleep(Duration::from_millis(1));
                    let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
                    cx.await_future(poll_fn(|context| two.poll_write(context, &parts))).unwrap().unwrap();
                    assert_eq!(reads.unwrap().join(cx).unwrap().unwrap(), b"abcd");
                })
                .unwrap();
            })
            .unwrap();
    }
}

#[test]
fn an_operation_of_a_future_costs_what_one_of_a_task_does() {
    for runtime in runtimes() {
        runtime
            .run(|cx| {
                let (one, two) = UnixStream::pair().unwrap();
                let (one, _two) = (Async::new(cx, one).unwrap(), two);
                cx.nursery(|n| {
                    let budget = Budget { ops: 1000, syscalls: 10, ..Budget::ZERO };
                    let counted = n.builder().budget(budget).name("writer").spawn(|cx| {
                        cx.await_future(async { one.write_all(b"x").await.unwrap() }).unwrap();
                        cx.budget().syscalls
                    });
                    assert_eq!(counted.unwrap().join(cx).unwrap(), 9);
                })
                .unwrap();
                cx.nursery(|n| {
                    let broke = Budget { ops: 1000, ..Budget::ZERO };
                    let refused = n
                        .builder()
                        .budget(broke)
                        .spawn_future(async { one.write(b"x").await.map_err(|e| e.kind()) });
                    assert_eq!(refused.unwrap().join(cx).unwrap(), Err(ErrorKind::PermissionDenied));
                })
                .unwrap();
            })
            .unwrap();
    }
}

#[test]
fn a_future_has_the_budget_and_the_name_that_its_spawner_gives_it() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    runtime
        .run(|cx| {
            let timer = cx.timer();
            cx.nursery_with(mainspring::NurseryOptions::new().isolate(), |n| {
                let endless = async move {
                    loop {
                        timer.sleep(Duration::ZERO).await;
                        let mut polled = false;
                        poll_fn(|context| {
                            context.waker().wake_by_ref();
                            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
                        })
                        .await;
                    }
                };
                let budget = Budget { ops: 50, ..Budget::ZERO };
                let child = n.builder().budget(budget).name("endless").spawn_future(endless).unwrap();
                let snapshot = runtime.snapshot();
                assert!(snapshot.tasks.iter().any(|task| task.name == Some("endless")));
                let child: Result<(), _> = child.join(cx);
                assert!(
                    matches!(child, Err(TaskError::BudgetExhausted(Component::Ops))),
                    "a poll costs an op"
                );
            })
            .unwrap();
            let less = mainspring::NurseryOptions::new().caps(cx.caps().without_executor());
            cx.nursery_with(less, |n| {
                assert_eq!(n.builder().spawn_future(async {}).map(|_| ()), Err(SpawnError::NotPermitted));
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_sleep_ends_when_its_time_has_come_also_in_virtual_time() {
    let runtime = Config::new(Profile::Service).workers(2).deterministic_seed(3).build().unwrap();
    runtime
        .run(|cx| {
            let timer = cx.timer();
            let took = cx.await_future(async {
                let before = timer.now();
                let long = timer.sleep(Duration::from_secs(3600));
                drop(timer.sleep(Duration::from_secs(1)));
                long.await;
                timer.now() - before
            });
            assert!(took.unwrap() >= Duration::from_secs(3600));
        })
        .unwrap();
}

/// A connection: the end of the runtime's futures, and a plain one.
fn connected(cx: &Cx) -> (Async<std::net::TcpStream>, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    theirs.set_nodelay(true).unwrap();
    (Async::new(cx, listener.accept().unwrap().0).unwrap(), theirs)
}

/// The kernel tells of the bytes and of the end at once, and a read that does not fill its buffer is followed by no other event.
#[test]
fn the_end_of_a_connection_is_found_behind_bytes_that_do_not_fill_the_buffer() {
    for runtime in runtimes() {
        runtime
            .run(|cx| {
                let (ours, mut theirs) = connected(cx);
                theirs.write_all(b"last words").unwrap();
                theirs.shutdown(std::net::Shutdown::Write).unwrap();
                let mut buffer = [0; 64];
                let read = cx.await_future(async {
                    [ours.read(&mut buffer).await.unwrap(), ours.read(&mut buffer).await.unwrap()]
                });
                assert_eq!(read.unwrap(), [10, 0]);
            })
            .unwrap();
    }
}

/// A read ends at urgent bytes, whatever there is behind them.
#[test]
fn bytes_behind_urgent_ones_are_read() {
    for runtime in runtimes() {
        runtime
            .run(|cx| {
                let (ours, mut theirs) = connected(cx);
                theirs.write_all(b"ab").unwrap();
                send_urgent(&theirs, b"!");
                theirs.write_all(b"cd").unwrap();
                // All of it is there before the first read.
                let mut seen = [0; 64];
                while ours.get_ref().peek(&mut seen).is_ok_and(|n| n < 2) {}
                cx.sleep(Duration::from_millis(5));
                let mut text = Vec::new();
                cx.await_future(async {
                    while !text.ends_with(b"cd") {
                        let n = ours.read(&mut seen).await.unwrap();
                        text.extend_from_slice(&seen[..n]);
                    }
                })
                .unwrap();
                assert!(text.starts_with(b"ab"), "{text:?}");
            })
            .unwrap();
    }
}

#[allow(unsafe_code)]
fn send_urgent(socket: &std::net::TcpStream, bytes: &[u8]) {
    // SAFETY: the bytes and the descriptor are borrowed.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_OOB) };
    assert_eq!(sent, bytes.len() as isize);
}

/// A waker of the program's own that panics when it is used, or dropped.
struct Bomb {
    on_wake: bool,
}

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        assert!(!self.on_wake, "a waker panics");
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(self.on_wake || std::thread::panicking(), "a waker panics when it is dropped");
    }
}

/// It is used by whichever thread finds that the time has come: a worker, in the middle of another task, or the monitor.
#[test]
fn a_waker_that_panics_harms_no_other_task_and_no_worker() {
    let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
    for round in 0..40 {
        let ended = AtomicBool::new(false);
        let done = runtime.run(|cx| {
            let ended = &ended;
            cx.nursery_with(NurseryOptions::new().isolate(), |n| {
                let others: Vec<_> = (0..2)
                    .map(|_| {
                        n.spawn(move |cx| {
                            while !ended.load(Ordering::Relaxed) {
                                cx.check_iterations(1);
                                cx.look_up();
                            }
                        })
                    })
                    .collect();
                let bombs = n.spawn(move |cx| {
                    let waker = Waker::from(Arc::new(Bomb { on_wake: round % 2 == 0 }));
                    let mut context = Context::from_waker(&waker);
                    let mut due = Box::pin(cx.timer().sleep(Duration::from_micros(500)));
                    assert!(due.as_mut().poll(&mut context).is_pending());
                    let (ours, theirs) = UnixStream::pair().unwrap();
                    let ours = Async::new(cx, ours).unwrap();
                    assert!(ours.poll_read(&mut context, &mut [0; 4]).is_pending());
                    // It is not the last of its kind: the registrations have theirs.
                    drop(waker);
                    (&theirs).write_all(b"x").unwrap();
                    cx.sleep(Duration::from_millis(2));
                });
                // It may have dropped the last one itself.
                let _ = bombs.unwrap().join(cx);
                ended.store(true, Ordering::Relaxed);
                for other in others {
                    other.unwrap().join(cx).unwrap();
                }
            })
        });
        done.unwrap().unwrap();
    }
    let deaths: u64 = runtime.worker_stats().iter().map(|worker| worker.deaths).sum();
    assert_eq!(deaths, 0, "a worker died");
}

/// As a compiler lowers a call of an async function: a spawn, and a channel for the one value of its result.
//= NURS:lowering.async
#[test]
fn a_call_that_is_a_spawn_and_a_channel_for_one_value_has_its_result_once() {
    let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery_with(NurseryOptions::new().isolate(), |n| {
                let call = |argument: u32| {
                    let (result, awaited) = cx.oneshot().unwrap();
                    n.start(move |cx| {
                        cx.yield_now();
                        assert_ne!(argument, 0, "the callee fails");
                        result.send(cx, argument * 2).unwrap();
                    })
                    .unwrap();
                    awaited
                };
                let calls = [1, 2, 3].map(call);
                let mut failed = call(0);
                assert_eq!(calls.map(|awaited| awaited.recv(cx)), [Ok(2), Ok(4), Ok(6)], "each its own");
                assert_eq!(failed.recv_timeout(cx, Duration::from_secs(60)), Err(Refusal::Closed));
                let mut last = call(21);
                assert_eq!(last.recv_timeout(cx, Duration::from_secs(60)), Ok(42));
                assert_eq!(last.try_recv(cx), Err(Refusal::Closed), "once");
            })
            .unwrap();
        })
        .unwrap();
}
