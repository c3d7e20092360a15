//! Sockets over loopback, and files.

use super::scope::{Brood, with_brood};
use crate::ledger::{Kind, Tracked};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::Me;
use mainspring::io::{TcpListener, TcpStream, UdpSocket, read_file};
use mainspring::{Budget, Component, Cost, Cx};
use std::io::ErrorKind;
use std::sync::Arc;

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
    with_brood(cx, me, rng, |cx, brood: &Brood<'_, '_, '_>, rng| {
        let stays = rng.one_in(4);
        let serves = brood.spawn(cx, SHARE, move |cx, me| {
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
        let connects = brood.spawn(cx, SHARE, move |cx, me| {
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
            // Nobody else would end the accept.
            brood.cancel();
        }
    });
}

/// As many operations as a transfer may take: bytes come in pieces.
fn pieces(me: &Me<'_>) {
    for _ in 0..50 {
        me.may_cost(Cost::SYSCALL);
    }
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
