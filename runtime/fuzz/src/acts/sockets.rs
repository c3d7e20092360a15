//! Sockets over loopback, and files.

use super::scope::{OpenNursery, with_open_nursery};
use crate::ledger::{Kind, Tracked};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::Me;
use mainspring::io::{TcpListener, TcpStream, UdpSocket, UnixStream, read_file};
use mainspring::{Budget, Component, Cost, Cx};
use std::io::ErrorKind;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

const SHARE: Budget = Budget { ops: 200, memory: 0, spawn_count: 0, channel_ops: 4, syscalls: 60 };

fn may(cx: &Cx, me: &Me<'_>) -> bool {
    !me.world.setting.is_deterministic()
        && me.authority.executor
        && me.was_granted(Component::Syscalls)
        && me.affords(cx, SHARE)
        && me.scope.is_ample
        && me.world.take_connection()
}

/// An operation of one system call: how often it has to be tried does not cost more. It fails only where the other side may
/// have been cancelled.
fn io<R>(cx: &Cx, me: &Me<'_>, name: &str, act: impl FnOnce() -> std::io::Result<R>) -> Option<R> {
    match me.paid(cx, Cost::SYSCALL, act, |_| false) {
        Ok(value) => {
            me.did_cost(Cost::SYSCALL);
            Some(value)
        }
        Err(_) if me.scope.cancels() => None,
        Err(error) => violation(format_args!("{name} fails: {error}")),
    }
}

/// A client sends, a server sends back, and what comes is what went.
pub fn echo(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !may(cx, me) {
        return;
    }
    let Some(listener) = io(cx, me, "bind", || TcpListener::bind(cx, "127.0.0.1:0")) else { return };
    let Ok(address) = listener.local_addr() else { violation("a listener without an address") };
    let (size, seed) = (1 + rng.below(3000) as usize, rng.draw());
    // What both owe is counted here, generously: writes may be taken in pieces.
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let stays = rng.one_in(4);
        let serves = open.spawn(cx, SHARE, move |cx, me| {
            let Some((stream, _)) = io(cx, me, "accept", || listener.accept(cx)) else { return };
            let mut buffer = vec![0; size];
            pieces(me);
            if stream.read_exact(cx, &mut buffer).is_ok() {
                pieces(me);
                let _ = stream.write_all(cx, &buffer);
            }
            me.look(cx);
        });
        if !serves {
            return;
        }
        let connects = open.spawn(cx, SHARE, move |cx, me| {
            // The lookup is a blocking call of its own with one driver.
            me.may_cost(Cost::SYSCALL);
            let Some(stream) = io(cx, me, "connect", || TcpStream::connect(cx, address)) else { return };
            let sent: Vec<u8> = (0..size).map(|i| (seed.rotate_left(i as u32 % 64) & 255) as u8).collect();
            pieces(me);
            let wrote = stream.write_all(cx, &sent);
            let mut buffer = vec![0; size];
            pieces(me);
            if wrote.is_ok() && !stays && stream.read_exact(cx, &mut buffer).is_ok() && buffer != sent {
                violation("other bytes come back than were sent");
            }
            me.look(cx);
        });
        if !connects {
            // Nothing else would end the accept.
            open.cancel();
        }
    });
}

/// As many operations as a transfer may take: bytes come in pieces.
fn pieces(me: &Me<'_>) {
    for _ in 0..50 {
        me.may_cost(Cost::SYSCALL);
    }
}

/// As [`echo`], over a pair of Unix sockets.
pub fn unix(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !may(cx, me) {
        return;
    }
    let Some((here, there)) = io(cx, me, "pair", || UnixStream::pair(cx)) else { return };
    let (size, seed) = (1 + rng.below(3000) as usize, rng.draw());
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, _| {
        // If it is not spawned, its end goes, and the read below ends.
        open.spawn(cx, SHARE, move |cx, me| {
            let mut buffer = vec![0; size];
            pieces(me);
            if there.read_exact(cx, &mut buffer).is_ok() {
                pieces(me);
                let _ = there.write_all(cx, &buffer);
            }
            me.look(cx);
        });
        open.spawn(cx, SHARE, move |cx, me| {
            let sent: Vec<u8> = (0..size).map(|i| (seed.rotate_left(i as u32 % 64) & 255) as u8).collect();
            let mut buffer = vec![0; size];
            pieces(me);
            let wrote = here.write_all(cx, &sent);
            pieces(me);
            if wrote.is_ok() && here.read_exact(cx, &mut buffer).is_ok() && buffer != sent {
                violation("other bytes come back than were sent");
            }
            me.look(cx);
        });
    });
}

pub fn datagram(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !may(cx, me) {
        return;
    }
    let bind = |cx: &Cx| UdpSocket::bind(cx, "127.0.0.1:0");
    let (Some(one), Some(two)) = (io(cx, me, "bind", || bind(cx)), io(cx, me, "bind", || bind(cx))) else {
        return;
    };
    let (Ok(here), Ok(there)) = (one.local_addr(), two.local_addr()) else {
        violation("a socket without an address")
    };
    let (bytes, value) = (rng.draw().to_le_bytes(), Arc::new(Tracked::new(Kind::Local)));
    let Some(sent) = io(cx, me, "send_to", || one.send_to(cx, &bytes, there)) else { return };
    let mut buffer = [0; 32];
    let Some((got, from)) = io(cx, me, "recv_from", || two.recv_from(cx, &mut buffer)) else { return };
    value.check();
    if (sent, got, from) != (8, 8, here) || buffer[..8] != bytes {
        violation("another datagram comes than was sent");
    }
}

/// An operation that has so much time and nothing to wait for: it costs what any other does, and is late.
fn is_late<R>(cx: &Cx, me: &Me<'_>, name: &str, act: impl FnOnce() -> std::io::Result<R>) {
    match me.paid(cx, Cost::SYSCALL, act, |_| true) {
        Err(error) if error.kind() == ErrorKind::TimedOut => {}
        Ok(_) => violation(format_args!("{name} finds something that nobody sent")),
        Err(error) => violation(format_args!("{name} with nothing to wait for: {error}")),
    }
}

/// A client and what a listener has accepted for it.
fn pair(cx: &Cx, me: &Me<'_>, listener: &TcpListener) -> Option<(TcpStream, TcpStream)> {
    let Ok(address) = listener.local_addr() else { violation("a listener without an address") };
    // The lookup is a blocking call of its own with one driver.
    me.may_cost(Cost::SYSCALL);
    let client = io(cx, me, "connect", || TcpStream::connect(cx, address))?;
    let (server, _) = io(cx, me, "accept", || listener.accept(cx))?;
    Some((client, server))
}

/// Times that are over lose nothing: neither clients, nor bytes, nor datagrams.
pub fn late(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !may(cx, me) {
        return;
    }
    let time = Duration::from_micros(rng.pick(&[0, 1, 40, 300]));
    let Some(listener) = io(cx, me, "bind", || TcpListener::bind(cx, "127.0.0.1:0")) else { return };
    is_late(cx, me, "accept_timeout", || listener.accept_timeout(cx, time));
    let Some((client, server)) = pair(cx, me, &listener) else { return };
    let (mut byte, sent) = ([0], rng.draw().to_le_bytes());
    is_late(cx, me, "read_timeout", || server.read_timeout(cx, &mut byte, time));
    pieces(me);
    if let Err(error) = client.write_all(cx, &sent) {
        violation(format_args!("a write of eight bytes: {error}"));
    }
    let mut got = [0; 8];
    pieces(me);
    match server.read_exact(cx, &mut got) {
        Ok(()) if got == sent => {}
        other => violation(format_args!("{other:?}: {got:?} comes, and {sent:?} was sent")),
    }
    is_late(cx, me, "read_timeout", || client.read_timeout(cx, &mut byte, time));
    let Some(socket) = io(cx, me, "bind", || UdpSocket::bind(cx, "127.0.0.1:0")) else { return };
    is_late(cx, me, "recv_from_timeout", || socket.recv_from_timeout(cx, &mut got, time));
    let Ok(here) = socket.local_addr() else { violation("a socket without an address") };
    io(cx, me, "send_to", || socket.send_to(cx, &sent[..3], here));
    let mut got = [0; 8];
    match io(cx, me, "recv_from", || socket.recv_from(cx, &mut got)) {
        Some((3, from)) if from == here && got[..3] == sent[..3] => {}
        None => {}
        other => violation(format_args!("another datagram comes than was sent: {other:?}, {got:?}")),
    }
}

/// A socket that is shut down, or whose other end goes, while tasks wait for it. No task waits for ever, and the next user
/// of the socket's number is not disturbed.
pub fn hangup(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !may(cx, me) {
        return;
    }
    let Some(listener) = io(cx, me, "bind", || TcpListener::bind(cx, "127.0.0.1:0")) else { return };
    let Some((client, server)) = pair(cx, me, &listener) else { return };
    let (ours, theirs) = (Arc::new(client), Arc::new(server));
    let readers = 1 + rng.below(2);
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        for _ in 0..readers {
            let (stream, patient) = (ours.clone(), rng.one_in(2));
            open.spawn(cx, SHARE, move |cx, me| {
                let mut buffer = [0; 16];
                me.may_cost(Cost::SYSCALL);
                let read = if patient {
                    stream.read(cx, &mut buffer)
                } else {
                    stream.read_timeout(cx, &mut buffer, Duration::from_micros(50))
                };
                me.look(cx);
                if matches!(read, Ok(n) if n > 0) {
                    violation("bytes come that nobody sent");
                }
            });
        }
        for _ in 0..rng.below(3) {
            cx.yield_now();
            open.me.look(cx);
        }
        let how = rng.pick(&[Shutdown::Both, Shutdown::Read]);
        match rng.below(3) {
            0 => drop(theirs),
            1 => _ = io(cx, open.me, "shutdown", || ours.shutdown(cx, how)),
            _ => _ = io(cx, open.me, "shutdown", || theirs.shutdown(cx, Shutdown::Both)),
        }
        drop(ours);
    });
    // The numbers of the two are free again.
    let Some((client, server)) = pair(cx, me, &listener) else { return };
    pieces(me);
    let (mut got, sent) = ([0; 8], rng.draw().to_le_bytes());
    if client.write_all(cx, &sent).is_ok() {
        pieces(me);
        match server.read_exact(cx, &mut got) {
            Ok(()) if got == sent => {}
            other => violation(format_args!("{other:?}: {got:?} comes, and {sent:?} was sent")),
        }
    } else {
        violation("a new connection does not take eight bytes");
    }
}

pub fn file(cx: &Cx, me: &Me<'_>, _: &mut Rng) {
    if !me.was_granted(Component::Syscalls) || !me.affords(cx, SHARE) || !me.scope.is_ample {
        return;
    }
    pieces(me);
    match read_file(cx, "/proc/self/comm") {
        Ok(bytes) if !bytes.is_empty() && me.authority.executor => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied && !me.authority.executor => {}
        other => violation(format_args!("a file with executor {}: {other:?}", me.authority.executor)),
    }
    me.look(cx);
}
