//! Sockets and files, on the loopback only.
#![allow(unsafe_code)]

use mainspring::io::{IoDriver, TcpListener, TcpStream, UdpSocket, read_file, write_file};
use mainspring::{Budget, Config, ConfigError, Cx, NurseryOptions, Profile, Runtime, TaskError, TaskState};
use std::io::ErrorKind;
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
        let ended = cx.nursery(|n| {
            let budget = Budget { ops: 10_000, syscalls: 200, ..Budget::ZERO };
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
            assert_eq!((storm.budget().syscalls, storm.ops_used()), (0, 200));
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
