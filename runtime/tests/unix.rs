//! Unix sockets, files, pipes and child processes, under both drivers.

use mainspring::io::{
    File, IoDriver, Ready, TcpListener, TcpStream, UnixDatagram, UnixListener, UnixStream, wait_child,
};
use mainspring::{Config, Cx, Profile, Runtime};
use std::io::{BufRead, BufReader, ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(1);

/// Runs `f` under each driver that there is, with a folder of its own.
fn everywhere(f: impl Fn(&Cx, &Runtime, PathBuf) + Sync) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    for driver in [IoDriver::Epoll, IoDriver::Uring] {
        let Ok(runtime) = Config::new(Profile::Service).workers(2).io(driver).build() else { continue };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("mainspring-unix-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        runtime.run(|cx| f(cx, &runtime, folder.clone())).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_connection_passes_bytes_in_order_and_says_when_it_is_over() {
    everywhere(|cx, _, folder| {
        let path = folder.join("socket");
        let listener = UnixListener::bind(cx, &path).unwrap();
        assert_eq!(listener.accept_timeout(cx, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(UnixListener::bind(cx, &path).unwrap_err().kind(), ErrorKind::AddrInUse);
        cx.nursery(|n| {
            let client = n.spawn(|cx| {
                let stream = UnixStream::connect(cx, &path).unwrap();
                let sent: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
                stream.write_all(cx, &sent).unwrap();
                stream.shutdown(cx, std::net::Shutdown::Write).unwrap();
                let mut answer = [0; 5];
                stream.read_exact(cx, &mut answer).unwrap();
                answer
            });
            let client = client.unwrap();
            let server = listener.accept(cx).unwrap();
            let (mut buffer, mut next) = (vec![0; 4096], 0u32);
            loop {
                let n = server.read(cx, &mut buffer).unwrap();
                assert!(buffer[..n].iter().all(|byte| (*byte == next as u8, next += 1).0));
                if n == 0 {
                    break;
                }
            }
            assert_eq!(next, 200_000);
            assert_eq!(server.read_timeout(cx, &mut [], SHORT).unwrap(), 0);
            let parts = [IoSlice::new(b"th"), IoSlice::new(b""), IoSlice::new(b"ank")];
            assert_eq!(server.write_vectored(cx, &parts).unwrap(), 5, "all parts in one operation");
            assert_eq!(&client.join(cx).unwrap(), b"thank");
        })
        .unwrap();
    });
}

#[test]
fn code_for_the_standard_librarys_traits_runs_on_sockets() {
    everywhere(|cx, _, _| {
        let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect(cx, listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept(cx).unwrap();
        // Options are the socket's own.
        client.get_ref().set_nodelay(true).unwrap();
        assert!(client.get_ref().nodelay().unwrap());
        assert_eq!(client.get_ref().local_addr().unwrap(), server.get_ref().peer_addr().unwrap());
        assert!(client.as_fd().try_clone_to_owned().is_ok());
        writeln!(client.with(cx), "one\ntwo").unwrap();
        client.shutdown(cx, std::net::Shutdown::Write).unwrap();
        let lines: Result<Vec<_>, _> = BufReader::new(server.with(cx)).lines().collect();
        assert_eq!(lines.unwrap(), ["one", "two"]);
    });
}

#[test]
fn datagrams_keep_their_bounds() {
    everywhere(|cx, _, folder| {
        let (one, two) = UnixDatagram::pair(cx).unwrap();
        one.send(cx, b"first").unwrap();
        one.send(cx, b"second").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(two.recv_from(cx, &mut buffer).unwrap().0, 5);
        assert_eq!(two.recv_from(cx, &mut buffer[..3]).unwrap().0, 3, "cut off");
        assert_eq!(two.recv_from_timeout(cx, &mut buffer, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        let bound = UnixDatagram::bind(cx, folder.join("bound")).unwrap();
        cx.nursery(|n| {
            let waits = n.spawn(|cx| bound.recv_from(cx, &mut [0; 16]).unwrap().0).unwrap();
            cx.sleep(SHORT);
            two.send_to(cx, b"seven b", folder.join("bound")).unwrap();
            assert_eq!(waits.join(cx).unwrap(), 7);
        })
        .unwrap();
    });
}

#[test]
fn a_task_that_waits_for_a_pipe_is_woken_or_cancelled() {
    everywhere(|cx, _, _| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = Ready::new(cx, reader).unwrap();
        cx.nursery(|n| {
            let waits = n.spawn(|cx| reader.read_with(cx, |mut pipe| pipe.read(&mut [0; 8]))).unwrap();
            cx.sleep(SHORT);
            writer.write_all(b"abc").unwrap();
            assert_eq!(waits.join(cx).unwrap().unwrap(), 3);
            let waits = n.spawn(|cx| reader.read_with(cx, |mut pipe| pipe.read(&mut [0; 8]))).unwrap();
            cx.sleep(SHORT);
            waits.cancel();
            assert!(waits.join(cx).unwrap_err().is_cancelled());
        })
        .unwrap();
        let late = reader.read_with_timeout(cx, SHORT, |mut pipe| pipe.read(&mut [0; 8]));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_child_process_is_waited_for_by_its_task_alone() {
    everywhere(|cx, _, _| {
        let mut slow = Command::new("sh")
            .args(["-c", "read line; exit 7"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = slow.stdin.take().unwrap();
        cx.nursery(|n| {
            let waits = n.spawn(|cx| wait_child(cx, &mut slow).unwrap().code()).unwrap();
            cx.sleep(SHORT);
            assert!(!waits.is_finished());
            input.write_all(b"go on\n").unwrap();
            assert_eq!(waits.join(cx).unwrap(), Some(7));
        })
        .unwrap();
        let mut ended = Command::new("true").spawn().unwrap();
        assert!(wait_child(cx, &mut ended).unwrap().success());
        // Cancelled, the child goes on, and may be waited for again.
        let mut endless = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(cx.timeout(SHORT, |cx| wait_child(cx, &mut endless)).is_err());
        endless.kill().unwrap();
        assert!(!wait_child(cx, &mut endless).unwrap().success());
    });
}

#[test]
fn a_file_is_read_and_written_at_places() {
    everywhere(|cx, _, folder| {
        let path = folder.join("file");
        let options = std::fs::OpenOptions::new().read(true).write(true).create_new(true).clone();
        let file = File::open_with(cx, &options, &path).unwrap();
        file.write_all_at(cx, b"hello world", 0).unwrap();
        file.write_all_at(cx, b"there", 6).unwrap();
        file.sync_all(cx).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(file.read_at(cx, &mut buffer, 6).unwrap(), 5);
        assert_eq!(&buffer[..5], b"there");
        assert_eq!(file.read_at(cx, &mut buffer, 100).unwrap(), 0);
        assert_eq!(file.get_ref().metadata().unwrap().len(), 11);
        assert_eq!(std::fs::read(&path).unwrap(), b"hello there");
        assert_eq!(File::open(cx, folder.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        // Without the capability nothing is opened.
        cx.nursery(|n| {
            let without = n.builder().caps(cx.caps().without_executor());
            let refused = without.spawn(|cx| {
                let opened = File::open(cx, &path).map_err(|error| error.kind()).map(|_| ());
                (opened, file.read_at(cx, &mut [0; 1], 0).map_err(|error| error.kind()))
            });
            let denied = ErrorKind::PermissionDenied;
            assert_eq!(refused.unwrap().join(cx).unwrap(), (Err(denied), Err(denied)));
        })
        .unwrap();
    });
}

/// What the program attempts may say that it would block although there is something: it wanted more of it.
#[test]
fn an_attempt_that_wants_more_than_it_finds_is_made_again() {
    everywhere(|cx, _, _| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"a line\n").unwrap();
        let reader = Ready::new(cx, reader).unwrap();
        let mut line = Vec::new();
        let read = reader.read_with(cx, |mut pipe| {
            let mut byte = [0];
            pipe.read_exact(&mut byte)?;
            line.push(byte[0]);
            if byte == *b"\n" { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) }
        });
        read.unwrap();
        assert_eq!(line, b"a line\n");
    });
}

#[test]
fn several_may_have_one_descriptor_and_one_of_them_may_go() {
    everywhere(|cx, _, _| {
        let (one, two) = std::os::unix::net::UnixStream::pair().unwrap();
        let one = Arc::new(one);
        let (first, second) = (Ready::new(cx, one.clone()).unwrap(), Ready::new(cx, one.clone()).unwrap());
        // It learns that there is nothing to read yet.
        let read = |socket: &Arc<std::os::unix::net::UnixStream>| (&**socket).read(&mut [0; 4]);
        assert_eq!(second.read_with_timeout(cx, SHORT, read).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(first);
        cx.nursery(|n| {
            let two = &two;
            n.start(move |cx| {
                cx.sleep(SHORT);
                (&*two).write_all(b"news").unwrap();
            })
            .unwrap();
            assert_eq!(second.read_with(cx, read).unwrap(), 4);
        })
        .unwrap();
        drop((second, one));
        // The next socket with that number is another one.
        let (near, far) = UnixStream::pair(cx).unwrap();
        cx.nursery(|n| {
            n.start(|cx| {
                cx.sleep(SHORT);
                far.write_all(cx, b"more").unwrap();
            })
            .unwrap();
            assert_eq!(near.read(cx, &mut [0; 4]).unwrap(), 4);
        })
        .unwrap();
    });
}

#[test]
fn an_attempt_that_is_always_interrupted_gives_way_and_ends() {
    everywhere(|cx, _, _| {
        let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
        let ready = Ready::new(cx, one).unwrap();
        let never = |_: &_| Err::<(), _>(ErrorKind::Interrupted.into());
        assert_eq!(ready.read_with_timeout(cx, SHORT, never).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(cx.timeout(SHORT, |cx| ready.read_with(cx, never)).is_err());
    });
}

#[test]
fn a_child_process_that_was_waited_for_can_be_asked_again() {
    everywhere(|cx, _, _| {
        let mut child = Command::new("false").spawn().unwrap();
        let status = wait_child(cx, &mut child).unwrap();
        assert_eq!(status.code(), Some(1));
        assert_eq!(wait_child(cx, &mut child).unwrap(), status);
    });
}
