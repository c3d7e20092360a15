//! The operations of sockets and files as entries of io_uring. Each returns when the kernel is through with its buffers.
//!
//! What moves bytes through a socket is tried once before it is handed to the ring: what can be done at once needs neither the ring's
//! lock, which all workers share, nor its thread, which each completion wakes.
#![allow(unsafe_code)]

use super::address::{RawAddress, stream_socket};
use super::uring::Uring;
use crate::cx::Cx;
use crate::time::Alarm;
use io_uring::{opcode, squeue, types};
use std::ffi::CString;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most that one operation reads or writes.
const MOST: usize = 1 << 30;

fn fd(source: &impl AsFd) -> types::Fd {
    types::Fd(source.as_fd().as_raw_fd())
}

fn length(bytes: usize) -> u32 {
    bytes.min(MOST) as u32
}

/// Runs an operation that leaves a number behind.
///
/// # Safety
///
/// As for [`Uring::run`].
unsafe fn count(ring: &Uring, cx: &Cx, alarm: &Alarm<'_>, entry: &squeue::Entry) -> io::Result<usize> {
    // SAFETY: as the caller promises.
    unsafe { ring.run(cx, alarm, entry) }.map(|number| number as usize)
}

/// Runs an operation that leaves a descriptor behind.
///
/// # Safety
///
/// As for [`Uring::run`].
unsafe fn descriptor(ring: &Uring, cx: &Cx, alarm: &Alarm<'_>, entry: &squeue::Entry) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises.
    let made = unsafe { ring.run(cx, alarm, entry) }?;
    // SAFETY: the operation has made this descriptor, and no other owner has it.
    Ok(unsafe { OwnedFd::from_raw_fd(made as i32) })
}

/// Tries what does not wait, `None` if it would have to.
fn at_once(attempt: impl Fn() -> isize) -> Option<io::Result<usize>> {
    loop {
        let moved = attempt();
        if moved >= 0 {
            return Some(Ok(moved as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            ErrorKind::WouldBlock => return None,
            ErrorKind::Interrupted => {}
            _ => return Some(Err(error)),
        }
    }
}

/// The flags of a send that does not wait.
const SEND_AT_ONCE: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

pub(super) fn accept(
    ring: &Uring,
    cx: &Cx,
    alarm: &Alarm<'_>,
    listener: &impl AsFd,
) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut peer = RawAddress::room();
    let len = &raw mut peer.len;
    let entry = opcode::Accept::new(fd(listener), peer.as_mut_ptr(), len).flags(libc::SOCK_CLOEXEC).build();
    // SAFETY: the address is in this frame.
    let socket = unsafe { descriptor(ring, cx, alarm, &entry) }?;
    Ok((socket, peer.address()?))
}

/// As [`accept`], without the peer's address.
pub(super) fn accept_any(
    ring: &Uring,
    cx: &Cx,
    alarm: &Alarm<'_>,
    listener: &impl AsFd,
) -> io::Result<OwnedFd> {
    let nowhere = std::ptr::null_mut();
    let entry = opcode::Accept::new(fd(listener), nowhere, nowhere.cast()).flags(libc::SOCK_CLOEXEC).build();
    // SAFETY: it points to nothing.
    unsafe { descriptor(ring, cx, alarm, &entry) }
}

pub(super) fn connect(ring: &Uring, cx: &Cx, alarm: &Alarm<'_>, to: SocketAddr) -> io::Result<OwnedFd> {
    let socket = stream_socket(to, 0)?;
    let to = RawAddress::from(to);
    let entry = opcode::Connect::new(fd(&socket), to.as_ptr(), to.len).build();
    // SAFETY: the address is in this frame.
    unsafe { count(ring, cx, alarm, &entry) }?;
    Ok(socket)
}

pub(super) fn receive(
    ring: &Uring,
    cx: &Cx,
    alarm: &Alarm<'_>,
    socket: &impl AsFd,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let (to, most) = (buffer.as_mut_ptr().cast(), buffer.len().min(MOST));
    // SAFETY: the buffer is borrowed, for writing.
    let read = at_once(|| unsafe { libc::recv(fd(socket).0, to, most, libc::MSG_DONTWAIT) });
    if let Some(read) = read {
        return read;
    }
    let entry = opcode::Recv::new(fd(socket), buffer.as_mut_ptr(), length(buffer.len())).build();
    // SAFETY: the buffer is borrowed, for writing, until this returns.
    unsafe { count(ring, cx, alarm, &entry) }
}

pub(super) fn send(
    ring: &Uring,
    cx: &Cx,
    alarm: &Alarm<'_>,
    socket: &impl AsFd,
    bytes: &[u8],
) -> io::Result<usize> {
    let (from, most) = (bytes.as_ptr().cast(), bytes.len().min(MOST));
    // SAFETY: the bytes are borrowed.
    let sent = at_once(|| unsafe { libc::send(fd(socket).0, from, most, SEND_AT_ONCE) });
    if let Some(sent) = sent {
        return sent;
    }
    let entry =
        opcode::Send::new(fd(socket), bytes.as_ptr(), length(bytes.len())).flags(libc::MSG_NOSIGNAL).build();
    // SAFETY: the bytes are borrowed until this returns.
    unsafe { count(ring, cx, alarm, &entry) }
}

pub(super) fn send_parts(
    ring: &Uring,
    cx: &Cx,
    alarm: &Alarm<'_>,
    socket: &impl AsFd,
    parts: &[IoSlice<'_>],
) -> io::Result<usize> {
    // SAFETY: plain numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    // A slice for I/O is laid out as the kernel's, as the standard library promises.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len().min(libc::UIO_MAXIOV as usize);
    // SAFETY: the message is in this frame, the parts are borrowed; the kernel only reads.
    let sent = at_once(|| unsafe { libc::sendmsg(fd(socket).0, &raw const message, SEND_AT_ONCE) });
    if let Some(sent) = sent {
        return sent;
    }
    let entry = opcode::SendMsg::new(fd(socket), &raw const message).flags(libc::MSG_NOSIGNAL as u32).build();
    // SAFETY: the message is in this frame, the parts are borrowed; the kernel only reads.
    unsafe { count(ring, cx, alarm, &entry) }
}

pub(super) fn read_at(
    ring: &Uring,
    cx: &Cx,
    file: &impl AsFd,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let entry = opcode::Read::new(fd(file), buffer.as_mut_ptr(), length(buffer.len())).offset(offset).build();
    // SAFETY: the buffer is borrowed, for writing, until this returns.
    unsafe { count(ring, cx, &Alarm::never(cx), &entry) }
}

pub(super) fn write_at(
    ring: &Uring,
    cx: &Cx,
    file: &impl AsFd,
    bytes: &[u8],
    offset: u64,
) -> io::Result<usize> {
    let entry = opcode::Write::new(fd(file), bytes.as_ptr(), length(bytes.len())).offset(offset).build();
    // SAFETY: the bytes are borrowed until this returns.
    unsafe { count(ring, cx, &Alarm::never(cx), &entry) }
}

pub(super) fn receive_from(
    ring: &Uring,
    cx: &Cx,
    alarm: &Alarm<'_>,
    socket: &impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, SocketAddr)> {
    let mut from = RawAddress::room();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: plain numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = from.as_mut_ptr().cast();
    message.msg_namelen = from.len;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    let place = &raw mut message;
    // SAFETY: the message, its parts and the address are in this frame, the buffer is borrowed for writing.
    let received = at_once(|| unsafe { libc::recvmsg(fd(socket).0, place, libc::MSG_DONTWAIT) });
    if let Some(received) = received {
        return Ok((received?, from.address()?));
    }
    let entry = opcode::RecvMsg::new(fd(socket), &raw mut message).build();
    // SAFETY: the message, its parts and the address are in this frame, the buffer is borrowed for writing.
    let len = unsafe { count(ring, cx, alarm, &entry) }?;
    Ok((len, from.address()?))
}

pub(super) fn send_to(
    ring: &Uring,
    cx: &Cx,
    alarm: &Alarm<'_>,
    socket: &impl AsFd,
    bytes: &[u8],
    to: SocketAddr,
) -> io::Result<usize> {
    let mut to = RawAddress::from(to);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: plain numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = to.as_mut_ptr().cast();
    message.msg_namelen = to.len;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    // SAFETY: the message, its parts and the address are in this frame, the bytes are borrowed; the kernel only reads.
    let sent = at_once(|| unsafe { libc::sendmsg(fd(socket).0, &raw const message, SEND_AT_ONCE) });
    if let Some(sent) = sent {
        return sent;
    }
    let entry = opcode::SendMsg::new(fd(socket), &raw const message).flags(libc::MSG_NOSIGNAL as u32).build();
    // SAFETY: the message, its parts and the address are in this frame, the bytes are borrowed; the kernel only reads.
    unsafe { count(ring, cx, alarm, &entry) }
}

fn open(ring: &Uring, cx: &Cx, path: &Path, flags: i32) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr())
        .flags(flags | libc::O_CLOEXEC)
        .mode(0o666)
        .build();
    // SAFETY: the path is in this frame.
    unsafe { descriptor(ring, cx, &Alarm::never(cx), &entry) }
}

pub(super) fn read_file(ring: &Uring, cx: &Cx, path: &Path) -> io::Result<Vec<u8>> {
    let file = open(ring, cx, path, libc::O_RDONLY)?;
    let mut bytes = vec![0; 16 << 10];
    let mut len = 0;
    loop {
        if len == bytes.len() {
            bytes.resize(2 * len, 0);
        }
        let room = &mut bytes[len..];
        let entry =
            opcode::Read::new(fd(&file), room.as_mut_ptr(), length(room.len())).offset(len as u64).build();
        // SAFETY: the vector is this frame's, and does not change until this returns.
        match unsafe { count(ring, cx, &Alarm::never(cx), &entry) }? {
            0 => {
                bytes.truncate(len);
                return Ok(bytes);
            }
            more => len += more,
        }
    }
}

pub(super) fn write_file(ring: &Uring, cx: &Cx, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = open(ring, cx, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)?;
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let entry =
            opcode::Write::new(fd(&file), rest.as_ptr(), length(rest.len())).offset(done as u64).build();
        // SAFETY: the bytes are borrowed until this returns.
        match unsafe { count(ring, cx, &Alarm::never(cx), &entry) }? {
            0 => return Err(ErrorKind::WriteZero.into()),
            more => done += more,
        }
    }
    Ok(())
}
