//! Sockets and files, on the loopback only.
#![allow(unsafe_code)]

use mainspring::io::{IoDriver, OtherRuntime, TcpListener, TcpStream, UdpSocket, read_file, write_file};
use mainspring::{
    Budget, Capacity, Config, ConfigError, Cx, Exhaustion, Handle, NurseryOptions, Profile, Runtime,
    TaskError, TaskState,
};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A runtime with each driver that this kernel allows: epoll is everywhere.
fn runtimes(workers: usize) -> Vec<Runtime> {
    let config = || Config::new(Profile::Cluster).workers(workers);
    let mut runtimes = vec![config().io(IoDriver::Epoll).build().unwrap()];
    match config().io(IoDriver::Uring).build() {
        Ok(runtime) => runtimes.push(runtime),
        Err(ConfigError::IoUring(error)) => println!("not tested with io_uring: {error}"),
        Err(other) => panic!("{other}"),
    }
    runtimes
}

/// Runs a test with each driver.
fn with_each(workers: usize, test: impl Fn(&Cx) + Sync) {
    for runtime in runtimes(workers) {
        println!("{:?} with {workers} workers", runtime.io_driver());
        runtime.run(|cx| test(cx)).unwrap();
    }
}

#[test]
fn many_connections_are_echoed() {
    for workers in [1, 2] {
        with_each(workers, |cx| {
            let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            cx.nursery(|n| {
                for i in 0..20u8 {
                    n.spawn(move |cx| {
                        let stream = TcpStream::connect(cx, address).unwrap();
                        let mut answer = [0; 5];
                        for round in 0..5 {
                            stream.write_all(cx, &[i, round, 3, 4, 5]).unwrap();
                            stream.read_exact(cx, &mut answer).unwrap();
                            assert_eq!(answer, [i, round, 3, 4, 5]);
                        }
                    })
                    .unwrap();
                }
                for _ in 0..20 {
                    let (stream, _) = listener.accept(cx).unwrap();
                    n.spawn(move |cx| {
                        let mut buffer = [0; 64];
                        loop {
                            match stream.read(cx, &mut buffer).unwrap() {
                                0 => return,
                                n => stream.write_all(cx, &buffer[..n]).unwrap(),
                            }
                        }
                    })
                    .unwrap();
                }
            })
            .unwrap();
        });
    }
}

#[test]
fn datagrams_go_both_ways() {
    with_each(2, |cx| {
        let (a, b) =
            (UdpSocket::bind(cx, "127.0.0.1:0").unwrap(), UdpSocket::bind(cx, "127.0.0.1:0").unwrap());
        let to_b = b.local_addr().unwrap();
        cx.nursery(|n| {
            let echo = n.spawn(|cx| {
                let mut buffer = [0; 16];
                let (len, from) = b.recv_from(cx, &mut buffer).unwrap();
                b.send_to(cx, &buffer[..len], from).unwrap()
            });
            a.send_to(cx, b"hello", to_b).unwrap();
            let mut buffer = [0; 16];
            let (len, from) = a.recv_from(cx, &mut buffer).unwrap();
            assert_eq!((&buffer[..len], from), (&b"hello"[..], to_b));
            echo.unwrap().join(cx).unwrap();
        })
        .unwrap();
    });
}

//= SCHED:3.3.1 SCHED:15.1.1
#[test]
fn a_syscall_storm_stops_at_its_budget_and_a_waiting_socket_is_cancelled() {
    with_each(1, |cx| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        let (to, sink) = (socket.local_addr().unwrap(), UdpSocket::bind(cx, "127.0.0.1:0").unwrap());
        let options = NurseryOptions::new().on_exhausted(Exhaustion::Park);
        let ended = cx.nursery_with(options, |n| {
            let budget = Budget { ops: 10_000, syscalls: 100, ..Budget::ZERO };
            let storm = n.builder().budget(budget).spawn(|cx| {
                loop {
                    sink.send_to(cx, b"x", to).unwrap();
                }
            });
            let storm = storm.unwrap();
            let victim = n.spawn(|cx| (0..50).for_each(|_| cx.yield_now())).unwrap();
            victim.join(cx).unwrap();
            while storm.state() != TaskState::BudgetExhausted {
                cx.yield_now();
            }
            assert_eq!((storm.budget().syscalls, storm.ops_used()), (0, 100));
            let quiet = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
            n.spawn(move |cx| quiet.recv_from(cx, &mut [0; 4]).map(|_| ())).unwrap();
            (0..10).for_each(|_| cx.yield_now());
            n.cancel();
        });
        assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
    });
}

#[test]
fn files_are_read_and_written_on_other_threads() {
    let path = std::env::temp_dir().join(format!("mainspring-{}", std::process::id()));
    with_each(1, |cx| {
        write_file(cx, &path, b"kept").unwrap();
        assert_eq!(read_file(cx, &path).unwrap(), b"kept");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read_file(cx, &path).unwrap_err().kind(), ErrorKind::NotFound);
        let long: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        write_file(cx, &path, &long).unwrap();
        assert!(read_file(cx, &path).unwrap() == long);
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn the_deterministic_mode_has_no_network() {
    let runtime = Config::new(Profile::Service).deterministic_seed(1).build().unwrap();
    let refused = runtime.run(|cx| TcpListener::bind(cx, "127.0.0.1:0").map(drop)).unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn what_is_cancelled_gives_its_buffer_back_before_it_ends() {
    with_each(2, |cx| {
        let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(cx, address).unwrap();
        let (peer, _) = listener.accept(cx).unwrap();
        let mut kept = [7; 8];
        for _ in 0..50 {
            // The buffer is of this frame, and the reader borrows it: it must be the kernel's no more when the scope ends.
            let ended = cx.nursery(|n| {
                n.start(|cx| drop(stream.read(cx, &mut kept))).unwrap();
                cx.yield_now();
                n.cancel();
            });
            assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
            peer.write_all(cx, b"late").unwrap();
            assert_eq!(kept, [7; 8], "nobody reads into it any more");
            stream.read_exact(cx, &mut [0; 4]).unwrap();
        }
        let accepting = cx.nursery_with(NurseryOptions::new().deadline(Duration::from_millis(5)), |n| {
            n.start(|cx| drop(listener.accept(cx))).unwrap();
        });
        assert!(matches!(accepting.unwrap_err().error, TaskError::DeadlineExceeded));
        let after = TcpStream::connect(cx, address).unwrap();
        listener.accept(cx).expect("the one that was cancelled has taken no connection along");
        drop(after);
    });
}

#[test]
fn both_sides_of_a_socket_wait_at_once_and_a_closed_peer_is_seen() {
    with_each(2, |cx| {
        let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(cx, listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept(cx).unwrap();
        let all = vec![5; 4 << 20];
        cx.nursery(|n| {
            let reader = n.spawn(|cx| {
                let mut answer = [0; 2];
                stream.read_exact(cx, &mut answer).unwrap();
                answer
            });
            n.start(|cx| stream.write_all(cx, &all).unwrap()).unwrap();
            let mut got = vec![0; all.len()];
            peer.read_exact(cx, &mut got).unwrap();
            assert!(got == all);
            peer.write_all(cx, b"ok").unwrap();
            assert_eq!(reader.unwrap().join(cx).unwrap(), *b"ok");
        })
        .unwrap();
        drop(peer);
        assert_eq!(stream.read(cx, &mut [0; 4]).unwrap(), 0, "the end");
        let refused = TcpStream::connect(cx, "127.0.0.1:1").map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn an_operation_outlives_the_thread_that_submitted_it() {
    with_each(2, |cx| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let sender = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        cx.nursery(|n| {
            let waiting = n.spawn(|cx| socket.recv_from(cx, &mut [0; 4]).map(|(len, _)| len));
            (0..20).for_each(|_| cx.yield_now());
            for _ in 0..2 {
                // SAFETY: the task owns nothing.
                let killed = cx.nursery(|n| n.spawn(|cx| unsafe { cx.kill_worker() }).map(drop));
                assert!(matches!(killed.unwrap_err().error, TaskError::WorkerPanic));
            }
            sender.send_to(cx, b"abc", to).unwrap();
            assert_eq!(waiting.unwrap().join(cx).unwrap().unwrap(), 3);
        })
        .unwrap();
    });
}

#[test]
fn without_the_capability_or_the_budget_nothing_is_opened() {
    for runtime in runtimes(1) {
        let refused = runtime.run(|cx| {
            cx.nursery(|n| {
                let bare = n.builder().caps(mainspring::Caps::none());
                let no_cap = bare
                    .budget(Budget { ops: 100, syscalls: 5, ..Budget::ZERO })
                    .spawn(|cx| read_file(cx, "/etc/hostname").map(drop).unwrap_err().kind());
                let no_budget = n.builder().budget(Budget { ops: 100, ..Budget::ZERO });
                let no_budget =
                    no_budget.spawn(|cx| UdpSocket::bind(cx, "127.0.0.1:0").map(drop).unwrap_err().kind());
                (no_cap.unwrap().join(cx).unwrap(), no_budget.unwrap().join(cx).unwrap())
            })
            .unwrap()
        });
        assert_eq!(refused.unwrap(), (ErrorKind::PermissionDenied, ErrorKind::PermissionDenied));
    }
}

#[test]
fn more_operations_than_a_ring_has_room_for_are_in_flight_at_once() {
    const SOCKETS: usize = 400;
    with_each(2, |cx| {
        let sockets: Vec<_> = (0..SOCKETS).map(|_| UdpSocket::bind(cx, "127.0.0.1:0").unwrap()).collect();
        let sender = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        cx.nursery(|n| {
            let waiting: Vec<_> = sockets
                .iter()
                .map(|s| n.spawn(|cx| s.recv_from(cx, &mut [0; 4]).unwrap().0).unwrap())
                .collect();
            for socket in &sockets {
                sender.send_to(cx, b"go", socket.local_addr().unwrap()).unwrap();
            }
            assert_eq!(waiting.into_iter().map(|one| one.join(cx).unwrap()).sum::<usize>(), 2 * SOCKETS);
        })
        .unwrap();
        let ended = cx.nursery(|n| {
            sockets.iter().for_each(|s| n.start(|cx| drop(s.recv_from(cx, &mut [0; 4]))).unwrap());
            (0..5).for_each(|_| cx.yield_now());
            n.cancel();
        });
        assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
    });
}

/// Waits until a child waits.
fn until_blocked<T>(cx: &Cx, child: &Handle<'_, T>) {
    while child.state() != TaskState::Blocked {
        assert!(!child.is_finished(), "it ended without having to wait");
        cx.yield_now();
    }
}

/// A connection of a task with itself.
fn connected(cx: &Cx) -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(cx, listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept(cx).unwrap();
    (listener, stream, peer)
}

/// Writes until no more fits: how much did.
fn fill(cx: &Cx, stream: &TcpStream) -> usize {
    let (mut filled, chunk) = (0, [7; 4096]);
    loop {
        // What was written makes room once more when the other side has taken it over.
        match stream.write_timeout(cx, &chunk, Duration::from_millis(3)) {
            Ok(n) => filled += n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                return filled;
            }
        }
    }
}

#[test]
fn two_tasks_read_and_two_write_on_one_connection() {
    for workers in [1, 2] {
        with_each(workers, |cx| {
            let (_listener, stream, peer) = connected(cx);
            cx.nursery(|n| {
                let readers = [0, 1].map(|_| {
                    n.spawn(|cx| {
                        let mut byte = [0];
                        assert_eq!(stream.read(cx, &mut byte).unwrap(), 1);
                        byte[0]
                    })
                    .unwrap()
                });
                readers.iter().for_each(|reader| until_blocked(cx, reader));
                // Both in one go: the reader that is woken first leaves one byte for the other.
                peer.write_all(cx, b"ab").unwrap();
                let mut got = readers.map(|reader| reader.join(cx).unwrap());
                got.sort_unstable();
                assert_eq!(got, *b"ab");
                let filled = fill(cx, &stream);
                let writers =
                    [0, 1].map(|_| n.spawn(|cx| stream.write_all(cx, &[9; 100_000]).unwrap()).unwrap());
                writers.iter().for_each(|writer| until_blocked(cx, writer));
                // A reader beside them.
                let reader = n.spawn(|cx| stream.read(cx, &mut [0; 8]).unwrap()).unwrap();
                let mut all = vec![0; filled + 200_000];
                peer.read_exact(cx, &mut all).unwrap();
                assert_eq!(all.iter().filter(|&&byte| byte == 9).count(), 200_000);
                writers.into_iter().for_each(|writer| writer.join(cx).unwrap());
                peer.write_all(cx, b"end").unwrap();
                assert_eq!(reader.join(cx).unwrap(), 3);
            })
            .unwrap();
        });
    }
}

#[test]
fn several_acceptors_on_one_listener_share_its_clients() {
    const CLIENTS: usize = 40;
    for workers in [1, 2] {
        with_each(workers, |cx| {
            let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let accepted = AtomicUsize::new(0);
            let ended = cx.nursery(|n| {
                let acceptors = [0, 1, 2].map(|_| {
                    n.spawn(|cx| {
                        loop {
                            let (stream, _) = listener.accept(cx).unwrap();
                            accepted.fetch_add(1, Ordering::Relaxed);
                            stream.write_all(cx, b"hi").unwrap();
                        }
                    })
                    .unwrap()
                });
                acceptors.iter().for_each(|acceptor: &Handle<'_, ()>| until_blocked(cx, acceptor));
                for _ in 0..CLIENTS {
                    let client = TcpStream::connect(cx, address).unwrap();
                    client.read_exact(cx, &mut [0; 2]).unwrap();
                }
                // All at once, too.
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|_| {
                        n.spawn(move |cx| {
                            TcpStream::connect(cx, address).unwrap().read_exact(cx, &mut [0; 2]).unwrap();
                        })
                        .unwrap()
                    })
                    .collect();
                clients.into_iter().for_each(|client| client.join(cx).unwrap());
                n.cancel();
            });
            assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
            assert_eq!(accepted.into_inner(), 2 * CLIENTS);
        });
    }
}

#[test]
fn an_empty_buffer_is_read_and_written_at_once() {
    with_each(1, |cx| {
        let (_listener, stream, _peer) = connected(cx);
        let before = cx.budget().syscalls;
        assert_eq!(stream.read(cx, &mut []).unwrap(), 0);
        assert_eq!(stream.write(cx, &[]).unwrap(), 0);
        stream.read_exact(cx, &mut []).unwrap();
        stream.write_all(cx, &[]).unwrap();
        assert_eq!(before - cx.budget().syscalls, 2, "they are operations like others");
    });
}

/// A listener that takes no more connections, and what it has taken. Where the system takes ever more, it is not full.
fn full_listener(cx: &Cx) -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind_with_backlog(cx, "127.0.0.1:0", 0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut taken = Vec::new();
    for _ in 0..16 {
        match TcpStream::connect_timeout(cx, address, Duration::from_millis(20)) {
            Ok(stream) => taken.push(stream),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                return (listener, taken);
            }
        }
    }
    panic!("a backlog of 0 held 16 connections");
}

/// What may have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Read,
    Write,
    Accept,
    Connect,
    Receive,
}

const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Accept, Op::Connect, Op::Receive];

/// Sockets on which each operation has to wait.
struct Sockets {
    listener: TcpListener,
    full: TcpListener,
    _taken: Vec<TcpStream>,
    stream: TcpStream,
    peer: TcpStream,
    /// What has been written to the stream.
    written: AtomicUsize,
    udp: UdpSocket,
}

impl Sockets {
    fn new(cx: &Cx) -> Self {
        let (listener, stream, peer) = connected(cx);
        let (full, taken) = full_listener(cx);
        let written = fill(cx, &stream).into();
        let udp = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        Self { listener, full, _taken: taken, stream, peer, written, udp }
    }

    /// Does it, for at most this long.
    fn run(&self, cx: &Cx, op: Op, timeout: Option<Duration>) -> io::Result<usize> {
        let mut buffer = [0; 8];
        match (op, timeout) {
            (Op::Read, None) => self.stream.read(cx, &mut buffer),
            (Op::Read, Some(timeout)) => self.stream.read_timeout(cx, &mut buffer, timeout),
            (Op::Write, timeout) => {
                let result = match timeout {
                    None => self.stream.write(cx, b"late"),
                    Some(timeout) => self.stream.write_timeout(cx, b"late", timeout),
                };
                // If the task is cancelled, it is at its next yield point.
                result.inspect(|&n| _ = self.written.fetch_add(n, Ordering::Relaxed))
            }
            (Op::Accept, None) => self.listener.accept(cx).map(|_| 1),
            (Op::Accept, Some(timeout)) => self.listener.accept_timeout(cx, timeout).map(|_| 1),
            (Op::Connect, None) => TcpStream::connect(cx, self.full.local_addr()?).map(|_| 1),
            (Op::Connect, Some(timeout)) => {
                TcpStream::connect_timeout(cx, self.full.local_addr()?, timeout).map(|_| 1)
            }
            (Op::Receive, None) => self.udp.recv_from(cx, &mut buffer).map(|(n, _)| n),
            (Op::Receive, Some(timeout)) => {
                self.udp.recv_from_timeout(cx, &mut buffer, timeout).map(|(n, _)| n)
            }
        }
    }

    /// Nothing of an operation that came to nothing is left: what it waited for is there for the next one.
    fn check(&self, cx: &Cx, op: Op) {
        match op {
            Op::Read => {
                self.peer.write_all(cx, b"bytes").unwrap();
                assert_eq!(self.run(cx, op, None).unwrap(), 5, "no byte is lost");
            }
            Op::Write => {
                self.peer.read_exact(cx, &mut vec![0; self.written.load(Ordering::Relaxed)]).unwrap();
                let more = self.peer.read_timeout(cx, &mut [0; 4], Duration::ZERO);
                assert_eq!(
                    more.unwrap_err().kind(),
                    ErrorKind::TimedOut,
                    "no more than was said was written"
                );
                assert_eq!(self.run(cx, op, None).unwrap(), 4);
                self.peer.read_exact(cx, &mut [0; 4]).unwrap();
            }
            Op::Accept => {
                let client = TcpStream::connect(cx, self.listener.local_addr().unwrap()).unwrap();
                let (accepted, _) = self.listener.accept(cx).expect("no client is lost");
                client.write_all(cx, b"x").unwrap();
                accepted.read_exact(cx, &mut [0]).unwrap();
            }
            // The socket is gone; that the listener is full is not its fault.
            Op::Connect => {}
            Op::Receive => {
                let sender = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
                sender.send_to(cx, b"abc", self.udp.local_addr().unwrap()).unwrap();
                assert_eq!(self.run(cx, op, None).unwrap(), 3, "no datagram is lost");
            }
        }
    }
}

#[test]
fn a_wait_ends_when_its_task_is_cancelled_and_loses_nothing() {
    for workers in [1, 2] {
        with_each(workers, |cx| {
            for op in OPS {
                let sockets = Sockets::new(cx);
                let ended = cx.nursery(|n| {
                    let child = n.spawn(|cx| sockets.run(cx, op, None).map(drop)).unwrap();
                    until_blocked(cx, &child);
                    n.cancel();
                });
                assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled), "{op:?}");
                sockets.check(cx, op);
            }
        });
    }
}

#[test]
fn a_wait_ends_at_the_deadline_of_its_nursery_and_loses_nothing() {
    with_each(2, |cx| {
        for op in OPS {
            let sockets = Sockets::new(cx);
            let options = NurseryOptions::new().deadline(Duration::from_millis(5));
            let ended = cx.nursery_with(options, |_| sockets.run(cx, op, None).map(drop));
            assert!(matches!(ended.unwrap_err().error, TaskError::DeadlineExceeded), "{op:?}");
            sockets.check(cx, op);
        }
    });
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_loses_nothing() {
    for workers in [1, 2] {
        with_each(workers, |cx| {
            for op in OPS {
                let sockets = Sockets::new(cx);
                for timeout in [Duration::ZERO, Duration::from_millis(3)] {
                    let late = sockets.run(cx, op, Some(timeout)).unwrap_err();
                    assert_eq!(late.kind(), ErrorKind::TimedOut, "{op:?}");
                }
                sockets.check(cx, op);
            }
        });
    }
}

#[test]
fn a_storm_of_cancellations_loses_nothing() {
    for workers in [1, 2] {
        with_each(workers, |cx| {
            let sockets = Sockets::new(cx);
            for round in 0..60 {
                let ended = cx.nursery(|n| {
                    for op in OPS.into_iter().filter(|&op| op != Op::Connect).cycle().take(16) {
                        n.start({
                            let sockets = &sockets;
                            move |cx| drop(sockets.run(cx, op, None))
                        })
                        .unwrap();
                    }
                    // Some have not begun, some wait, some are about to.
                    (0..round % 7).for_each(|_| cx.yield_now());
                    n.cancel();
                });
                assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
            }
            OPS.into_iter().for_each(|op| sockets.check(cx, op));
        });
    }
}

#[test]
fn what_comes_while_a_read_gives_up_is_read_by_the_next_one() {
    const BYTES: usize = 900;
    for workers in [1, 2] {
        with_each(workers, |cx| {
            let (_listener, stream, peer) = connected(cx);
            cx.nursery(|n| {
                n.start(move |cx| {
                    for i in 0..BYTES {
                        peer.write_all(cx, &[i as u8]).unwrap();
                        // Now before the reader gives up, now after.
                        (0..i % 5).for_each(|_| cx.yield_now());
                    }
                })
                .unwrap();
                let (mut got, mut late, mut buffer) = (0, 0, [0; 3]);
                while got < BYTES {
                    match stream.read_timeout(cx, &mut buffer, Duration::from_micros(late % 40)) {
                        Ok(n) => {
                            let expected: Vec<u8> = (got..got + n).map(|i| i as u8).collect();
                            assert_eq!(buffer[..n], expected, "in order, and none missing");
                            got += n;
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::TimedOut);
                            late += 1;
                        }
                    }
                }
                println!("{late} reads gave up");
            })
            .unwrap();
        });
    }
}

#[test]
fn clients_that_come_while_an_accept_gives_up_are_accepted_by_the_next_one() {
    const CLIENTS: u64 = 150;
    for workers in [1, 2] {
        with_each(workers, |cx| {
            let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            cx.nursery(|n| {
                let clients = n
                    .spawn(move |cx| {
                        for _ in 0..CLIENTS {
                            // Served, each of them: one that was accepted and forgotten would read the end.
                            TcpStream::connect(cx, address).unwrap().read_exact(cx, &mut [0]).unwrap();
                        }
                    })
                    .unwrap();
                let (mut served, mut late) = (0, 0);
                while served < CLIENTS {
                    match listener.accept_timeout(cx, Duration::from_micros(late % 60)) {
                        Ok((stream, _)) => {
                            stream.write_all(cx, b"x").unwrap();
                            served += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::TimedOut);
                            late += 1;
                        }
                    }
                }
                clients.join(cx).unwrap();
                println!("{late} accepts gave up");
            })
            .unwrap();
        });
    }
}

#[test]
fn a_shutdown_or_a_reset_ends_the_waits_of_other_tasks() {
    for workers in [1, 2] {
        with_each(workers, |cx| {
            for op in [Op::Read, Op::Write] {
                let sockets = Sockets::new(cx);
                cx.nursery(|n| {
                    let waiting = [0, 1].map(|_| n.spawn(|cx| sockets.run(cx, op, None)).unwrap());
                    waiting.iter().for_each(|child| until_blocked(cx, child));
                    sockets.stream.shutdown(cx, Shutdown::Both).unwrap();
                    for child in waiting {
                        match (op, child.join(cx).unwrap()) {
                            (Op::Read, result) => assert_eq!(result.unwrap(), 0, "the end"),
                            (_, result) => assert_eq!(result.unwrap_err().kind(), ErrorKind::BrokenPipe),
                        }
                    }
                })
                .unwrap();
                let Sockets { stream, peer, .. } = Sockets::new(cx);
                cx.nursery(|n| {
                    let stream = &stream;
                    let waiting = n
                        .spawn(move |cx| match op {
                            Op::Read => stream.read(cx, &mut [0; 8]),
                            _ => stream.write(cx, b"late"),
                        })
                        .unwrap();
                    until_blocked(cx, &waiting);
                    // It has not read what it got, so it resets the connection.
                    drop(peer);
                    let error = waiting.join(cx).unwrap().unwrap_err();
                    let is_end = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
                    assert!(is_end, "{op:?}: {error}");
                })
                .unwrap();
            }
        });
    }
}

#[test]
fn a_socket_of_another_runtime_is_refused_and_can_be_handed_over() {
    for (first, second) in [0, 1].into_iter().zip([1, 0]).chain([(0, 0)]) {
        let mut kinds = runtimes(1);
        if kinds.len() < 2 {
            kinds.extend(runtimes(1));
        }
        let mut others = runtimes(1);
        others.extend(runtimes(1));
        let (a, b) = (kinds.swap_remove(first), others.swap_remove(second));
        let (listener, stream, peer) = a.run(connected).unwrap();
        let refused = |error: io::Error| {
            assert!(error.get_ref().is_some_and(|inner| inner.is::<OtherRuntime>()), "{error}");
        };
        b.run(|cx| {
            refused(stream.read(cx, &mut [0; 4]).unwrap_err());
            refused(stream.write(cx, b"x").unwrap_err());
            refused(stream.shutdown(cx, Shutdown::Both).unwrap_err());
            refused(listener.accept(cx).map(drop).unwrap_err());
        })
        .unwrap();
        // The runtime that made them goes first: what is left of it is of no use, and does no harm.
        drop(a);
        b.run(|cx| refused(stream.read(cx, &mut [0; 4]).unwrap_err())).unwrap();
        b.run(|cx| {
            let stream = TcpStream::from_std(cx, stream.into_std().unwrap()).unwrap();
            let peer = TcpStream::from_std(cx, peer.into_std().unwrap()).unwrap();
            let listener = TcpListener::from_std(cx, listener.into_std().unwrap()).unwrap();
            stream.write_all(cx, b"over").unwrap();
            peer.read_exact(cx, &mut [0; 4]).unwrap();
            let client = TcpStream::connect(cx, listener.local_addr().unwrap()).unwrap();
            drop((listener.accept(cx).unwrap(), client));
        })
        .unwrap();
    }
}

#[test]
fn sockets_outlive_their_runtime_and_a_runtime_ends_while_others_use_theirs() {
    let kept: Vec<_> = runtimes(2)
        .into_iter()
        .map(|runtime| {
            runtime.run(|cx| (connected(cx), UdpSocket::bind(cx, "127.0.0.1:0").unwrap())).unwrap()
        })
        .collect();
    let std_socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for runtime in runtimes(1) {
        let adopted = std_socket.try_clone().unwrap();
        let back = runtime.run(|cx| UdpSocket::from_std(cx, adopted).and_then(UdpSocket::into_std)).unwrap();
        drop(runtime);
        back.unwrap();
    }
    drop(kept);
}

/// Descriptors that are closed are used again at once, by other sockets, while operations on their neighbours wait.
#[test]
fn descriptors_that_are_used_again_do_not_mix_their_waiters() {
    for workers in [1, 2] {
        with_each(workers, |cx| {
            let (_listener, quiet, quiet_peer) = connected(cx);
            cx.nursery(|n| {
                let reader = n.spawn(|cx| quiet.read(cx, &mut [0; 8])).unwrap();
                until_blocked(cx, &reader);
                let busy: Vec<_> = (0..4)
                    .map(|_| {
                        let budget = Budget { ops: 100_000, spawn_count: 80, syscalls: 1000, ..Budget::ZERO };
                        n.builder()
                            .budget(budget)
                            .spawn(|cx| {
                                for i in 0..40u8 {
                                    let (_listener, stream, peer) = connected(cx);
                                    cx.nursery(|n| {
                                        n.start(|cx| stream.write_all(cx, &[i]).unwrap()).unwrap();
                                        let mut got = [0];
                                        peer.read_exact(cx, &mut got).unwrap();
                                        assert_eq!(got, [i]);
                                    })
                                    .unwrap();
                                }
                            })
                            .unwrap()
                    })
                    .collect();
                busy.into_iter().for_each(|task| task.join(cx).unwrap());
                assert_eq!(reader.state(), TaskState::Blocked, "nobody spoke to it");
                quiet_peer.write_all(cx, b"you").unwrap();
                assert_eq!(reader.join(cx).unwrap().unwrap(), 3);
            })
            .unwrap();
        });
    }
}

/// A stream that two tasks share goes with the last of them, whichever that is.
#[test]
fn a_stream_goes_with_the_last_task_that_has_it() {
    with_each(2, |cx| {
        for first_ends_first in [true, false] {
            let (_listener, stream, peer) = connected(cx);
            let stream = std::sync::Arc::new(stream);
            let (go, wait) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
            cx.nursery(|n| {
                let theirs = stream.clone();
                let reader = n.spawn(move |cx| theirs.read(cx, &mut [0; 4]).unwrap()).unwrap();
                n.start(move |cx| {
                    let _ = wait.recv(cx);
                    drop(stream);
                })
                .unwrap();
                until_blocked(cx, &reader);
                if first_ends_first {
                    go.send(cx, ()).unwrap();
                }
                peer.write_all(cx, b"ok").unwrap();
                assert_eq!(reader.join(cx).unwrap(), 2);
                drop(go);
            })
            .unwrap();
            assert_eq!(peer.read(cx, &mut [0; 4]).unwrap(), 0, "it is closed");
        }
    });
}

#[test]
fn without_descriptors_an_accept_fails_and_the_client_waits_for_the_next() {
    const CHILD: &str = "MAINSPRING_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        // In a process of its own: descriptors are the whole process's.
        let test = "without_descriptors_an_accept_fails_and_the_client_waits_for_the_next";
        let me = std::env::current_exe().unwrap();
        let ended = std::process::Command::new("sh")
            .args(["-c", "ulimit -n 64 && exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(me)
            .arg(test)
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(ended.success());
        return;
    }
    with_each(1, |cx| {
        let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect(cx, listener.local_addr().unwrap()).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        assert!(all.len() < 64);
        let error = listener.accept(cx).map(drop).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(24), "EMFILE: {error}");
        assert!(
            UdpSocket::bind(cx, "127.0.0.1:0").is_err() && TcpStream::connect(cx, "127.0.0.1:1").is_err()
        );
        drop(all);
        let (stream, _) = listener.accept(cx).expect("the client waits");
        client.write_all(cx, b"x").unwrap();
        stream.read_exact(cx, &mut [0]).unwrap();
    });
}
