//! Sockets, files and children.

use crate::spin::{Table, ZERO};
use mainspring::Cx;
use mainspring::io::{
    Async, File, Ready, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, read_file,
    wait_child, write_file,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Those that need what the deterministic mode does not have.
pub(crate) const IO: Table = &[
    ("TcpListener::bind", |cx, spin| spin.run(|| drop(TcpListener::bind(cx, "127.0.0.1:0").unwrap()))),
    ("TcpListener::accept", |cx, spin| {
        let (listener, ..) = connected(cx);
        spin.run(|| {
            let stream = TcpStream::connect(cx, listener.local_addr().unwrap()).unwrap();
            drop((listener.accept(cx).unwrap(), stream));
        });
    }),
    ("TcpListener::accept_timeout", |cx, spin| {
        let (listener, ..) = connected(cx);
        spin.run(|| drop(listener.accept_timeout(cx, ZERO).unwrap_err()));
    }),
    ("TcpListener::bind_with_backlog", |cx, spin| {
        spin.run(|| drop(TcpListener::bind_with_backlog(cx, "127.0.0.1:0", 1).unwrap()));
    }),
    ("TcpListener::from_std", |cx, spin| {
        let (listener, ..) = connected(cx);
        let listener = listener.into_std().unwrap();
        spin.run(|| drop(TcpListener::from_std(cx, listener.try_clone().unwrap()).unwrap()));
    }),
    ("TcpListener::local_addr", |cx, spin| {
        let (listener, ..) = connected(cx);
        spin.run(|| _ = listener.local_addr().unwrap());
    }),
    ("TcpStream::connect", |cx, spin| {
        spin.run(|| drop(TcpStream::connect(cx, "127.0.0.1:1").unwrap_err()));
    }),
    ("TcpStream::connect_timeout", |cx, spin| {
        spin.run(|| drop(TcpStream::connect_timeout(cx, "127.0.0.1:1", ZERO).unwrap_err()));
    }),
    ("Stream::from_std", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        let stream = stream.into_std().unwrap();
        spin.run(|| drop(TcpStream::from_std(cx, stream.try_clone().unwrap()).unwrap()));
    }),
    ("Stream::read_timeout", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| drop(stream.read_timeout(cx, &mut [0; 4], ZERO).unwrap_err()));
    }),
    ("Stream::write_timeout", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| drop(stream.write_timeout(cx, b"x", ZERO)));
    }),
    ("Stream::read", |cx, spin| {
        let (_listener, stream, peer) = connected(cx);
        drop(peer);
        spin.run(|| assert_eq!(stream.read(cx, &mut [0; 4]).unwrap(), 0));
    }),
    ("Stream::read_exact", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| stream.read_exact(cx, &mut []).unwrap());
    }),
    ("Stream::write", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| assert_eq!(stream.write(cx, &[]).unwrap(), 0));
    }),
    ("Stream::write_all", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| stream.write_all(cx, &[]).unwrap());
    }),
    ("Stream::shutdown", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| drop(stream.shutdown(cx, std::net::Shutdown::Write)));
    }),
    ("UdpSocket::bind", |cx, spin| spin.run(|| drop(UdpSocket::bind(cx, "127.0.0.1:0").unwrap()))),
    ("UdpSocket::send_to", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        spin.run(|| _ = socket.send_to(cx, b"x", to).unwrap());
    }),
    ("UdpSocket::recv_from", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        spin.run(|| {
            socket.send_to(cx, b"x", to).unwrap();
            socket.recv_from(cx, &mut [0; 4]).unwrap();
        });
    }),
    ("UdpSocket::send_to_timeout", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        spin.run(|| drop(socket.send_to_timeout(cx, b"x", to, ZERO)));
    }),
    ("UdpSocket::recv_from_timeout", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        spin.run(|| drop(socket.recv_from_timeout(cx, &mut [0; 4], ZERO).unwrap_err()));
    }),
    ("UdpSocket::from_std", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap().into_std().unwrap();
        spin.run(|| drop(UdpSocket::from_std(cx, socket.try_clone().unwrap()).unwrap()));
    }),
    ("UdpSocket::local_addr", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        spin.run(|| _ = socket.local_addr().unwrap());
    }),
    ("Async::new", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        let stream = stream.into_std().unwrap();
        spin.run(|| drop(Async::new(cx, stream.try_clone().unwrap()).unwrap()));
    }),
    ("Async::read", |cx, spin| {
        let (stream, peer) = for_futures(cx);
        drop(peer);
        spin.run(|| assert_eq!(cx.await_future(stream.read(&mut [0; 4])).unwrap().unwrap(), 0));
    }),
    ("Async::write", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        spin.run(|| assert_eq!(cx.await_future(stream.write(&[])).unwrap().unwrap(), 0));
    }),
    ("Async::write_all", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        spin.run(|| cx.await_future(stream.write_all(&[])).unwrap().unwrap());
    }),
    ("Async::poll_read", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        spin.run(|| assert!(stream.poll_read(&mut context, &mut [0; 4]).is_pending()));
    }),
    ("Async::poll_write", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        spin.run(|| assert!(stream.poll_write(&mut context, &[]).is_ready()));
    }),
    ("Async::shutdown", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        spin.run(|| drop(stream.shutdown(std::net::Shutdown::Write)));
    }),
    ("Async::accept", |cx, spin| {
        let (listener, ..) = connected(cx);
        let address = listener.local_addr().unwrap();
        let listener = Async::new(cx, listener.into_std().unwrap()).unwrap();
        spin.run(|| {
            let stream = TcpStream::connect(cx, address).unwrap();
            drop((cx.await_future(listener.accept()).unwrap().unwrap(), stream));
        });
    }),
    ("Stream::write_vectored", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| assert_eq!(stream.write_vectored(cx, &[]).unwrap(), 0));
    }),
    ("UnixStream::connect", |cx, spin| spin.run(|| drop(UnixStream::connect(cx, "/nowhere/x").unwrap_err()))),
    ("UnixStream::pair", |cx, spin| spin.run(|| drop(UnixStream::pair(cx).unwrap()))),
    ("UnixListener::bind", |cx, spin| spin.run(|| drop(UnixListener::bind(cx, "/nowhere/x").unwrap_err()))),
    ("UnixListener::from_std", |cx, spin| {
        let (_path, listener) = unix_listener();
        spin.run(|| drop(UnixListener::from_std(cx, listener.try_clone().unwrap()).unwrap()));
    }),
    ("UnixListener::accept", |cx, spin| {
        let (path, listener) = unix_listener();
        let listener = UnixListener::from_std(cx, listener).unwrap();
        spin.run(|| {
            let client = UnixStream::connect(cx, path.join("socket")).unwrap();
            drop((listener.accept(cx).unwrap(), client));
        });
    }),
    ("UnixListener::accept_timeout", |cx, spin| {
        let (_path, listener) = unix_listener();
        let listener = UnixListener::from_std(cx, listener).unwrap();
        spin.run(|| drop(listener.accept_timeout(cx, ZERO).unwrap_err()));
    }),
    ("UnixDatagram::bind", |cx, spin| spin.run(|| drop(UnixDatagram::bind(cx, "/nowhere/x").unwrap_err()))),
    ("UnixDatagram::pair", |cx, spin| spin.run(|| drop(UnixDatagram::pair(cx).unwrap()))),
    ("UnixDatagram::from_std", |cx, spin| {
        let (one, _two) = std::os::unix::net::UnixDatagram::pair().unwrap();
        spin.run(|| drop(UnixDatagram::from_std(cx, one.try_clone().unwrap()).unwrap()));
    }),
    ("UnixDatagram::send_to", |cx, spin| {
        let (one, _two) = UnixDatagram::pair(cx).unwrap();
        spin.run(|| drop(one.send_to(cx, b"x", "/nowhere/x").unwrap_err()));
    }),
    ("UnixDatagram::send", |cx, spin| {
        let (one, two) = UnixDatagram::pair(cx).unwrap();
        drop(two);
        spin.run(|| drop(one.send(cx, b"x").unwrap_err()));
    }),
    ("UnixDatagram::recv_from", |cx, spin| {
        let (one, two) = UnixDatagram::pair(cx).unwrap();
        spin.run(|| {
            one.send(cx, b"x").unwrap();
            two.recv_from(cx, &mut [0; 4]).unwrap();
        });
    }),
    ("UnixDatagram::recv_from_timeout", |cx, spin| {
        let (one, _two) = UnixDatagram::pair(cx).unwrap();
        spin.run(|| drop(one.recv_from_timeout(cx, &mut [0; 4], ZERO).unwrap_err()));
    }),
    ("Ready::new", |cx, spin| {
        let (one, _two) = std::os::unix::net::UnixDatagram::pair().unwrap();
        spin.run(|| drop(Ready::new(cx, one.try_clone().unwrap()).unwrap()));
    }),
    ("Ready::read_with", |cx, spin| {
        with_ready(cx, |ready| spin.run(|| ready.read_with(cx, |_| Ok(())).unwrap()));
    }),
    ("Ready::write_with", |cx, spin| {
        with_ready(cx, |ready| spin.run(|| ready.write_with(cx, |_| Ok(())).unwrap()));
    }),
    ("Ready::read_with_timeout", |cx, spin| {
        with_ready(cx, |ready| {
            let never = || std::io::Error::from(std::io::ErrorKind::WouldBlock);
            spin.run(|| drop(ready.read_with_timeout(cx, ZERO, |_| Err::<(), _>(never())).unwrap_err()));
        });
    }),
    ("File::open", |cx, spin| spin.run(|| drop(File::open(cx, "/nowhere").unwrap_err()))),
    ("File::open_with", |cx, spin| {
        spin.run(|| drop(File::open_with(cx, &std::fs::OpenOptions::new(), "/nowhere").unwrap_err()));
    }),
    ("File::read_at", |cx, spin| {
        let file = File::open(cx, "/dev/null").unwrap();
        spin.run(|| assert_eq!(file.read_at(cx, &mut [0; 4], 0).unwrap(), 0));
    }),
    ("File::write_at", |cx, spin| {
        let file = File::open(cx, "/dev/null").unwrap();
        spin.run(|| drop(file.write_at(cx, b"x", 0).unwrap_err()));
    }),
    ("File::write_all_at", |cx, spin| {
        let file = File::open(cx, "/dev/null").unwrap();
        spin.run(|| file.write_all_at(cx, &[], 0).unwrap());
    }),
    ("File::sync_all", |cx, spin| {
        let file = File::open(cx, "/dev/null").unwrap();
        spin.run(|| drop(file.sync_all(cx)));
    }),
    ("wait_child", |cx, spin| {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        wait_child(cx, &mut child).unwrap();
        // It has been waited for: there is no such process any more.
        spin.run(|| drop(wait_child(cx, &mut child)));
    }),
    ("read_file", |cx, spin| spin.run(|| drop(read_file(cx, "/nowhere").unwrap_err()))),
    ("write_file", |cx, spin| spin.run(|| drop(write_file(cx, "/nowhere/x", b"").unwrap_err()))),
];

/// A connection of a task with itself.
fn connected(cx: &Cx) -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(cx, listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept(cx).unwrap();
    (listener, stream, peer)
}

/// The same, one side of it for futures.
fn for_futures(cx: &Cx) -> (Async<std::net::TcpStream>, TcpStream) {
    let (_listener, stream, peer) = connected(cx);
    (Async::new(cx, stream.into_std().unwrap()).unwrap(), peer)
}

/// A Unix socket that listens, in a folder of its own.
fn unix_listener() -> (std::path::PathBuf, std::os::unix::net::UnixListener) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("mainspring-free-calls-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
    (folder, listener)
}

/// With something that can be waited for.
fn with_ready(cx: &Cx, f: impl FnOnce(&Ready<std::os::unix::net::UnixDatagram>)) {
    let (one, _two) = std::os::unix::net::UnixDatagram::pair().unwrap();
    f(&Ready::new(cx, one).unwrap());
}
