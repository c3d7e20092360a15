//! Sockets and files, on the loopback only.

use mainspring::io::{TcpListener, TcpStream, UdpSocket, read_file, write_file};
use mainspring::{Budget, Config, Profile, Runtime, TaskError, TaskState};
use std::io::ErrorKind;

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Cluster).workers(workers).build().unwrap()
}

#[test]
fn many_connections_are_echoed() {
    for workers in [1, 2] {
        runtime(workers)
            .run(|cx| {
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
            })
            .unwrap();
    }
}

#[test]
fn datagrams_go_both_ways() {
    runtime(2)
        .run(|cx| {
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
        })
        .unwrap();
}

//= SCHED:3.3.1 SCHED:15.1.1
#[test]
fn a_syscall_storm_stops_at_its_budget_and_a_waiting_socket_is_cancelled() {
    runtime(1)
        .run(|cx| {
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
        })
        .unwrap();
}

#[test]
fn files_are_read_and_written_on_other_threads() {
    let path = std::env::temp_dir().join(format!("mainspring-{}", std::process::id()));
    runtime(1)
        .run(|cx| {
            write_file(cx, &path, b"kept").unwrap();
            assert_eq!(read_file(cx, &path).unwrap(), b"kept");
            std::fs::remove_file(&path).unwrap();
            assert_eq!(read_file(cx, &path).unwrap_err().kind(), ErrorKind::NotFound);
        })
        .unwrap();
}

#[test]
fn the_deterministic_mode_has_no_network() {
    let runtime = Config::new(Profile::Service).deterministic_seed(1).build().unwrap();
    let refused = runtime.run(|cx| TcpListener::bind(cx, "127.0.0.1:0").map(drop)).unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
}
