//! Socket addresses as the kernel has them.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind};
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Room for an address of any kind, and how much of it is used.
pub(super) struct RawAddress {
    pub(super) storage: libc::sockaddr_storage,
    pub(super) len: libc::socklen_t,
}

impl RawAddress {
    /// Room for the kernel to write one into.
    pub(super) fn room() -> Self {
        // SAFETY: plain numbers, for which zero is a value.
        let storage = unsafe { zeroed() };
        Self { storage, len: size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    /// The address that the kernel wrote.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that it is one; the storage is large and aligned enough for all.
                let v4 = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => Err(io::Error::new(ErrorKind::InvalidData, "an address of an unknown family")),
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        let mut raw = Self::room();
        match address {
            SocketAddr::V4(v4) => {
                let place = (&raw mut raw.storage).cast::<libc::sockaddr_in>();
                // SAFETY: the storage is large and aligned enough for an address of any kind, and ours alone.
                unsafe {
                    (*place).sin_family = libc::AF_INET as libc::sa_family_t;
                    (*place).sin_port = v4.port().to_be();
                    (*place).sin_addr.s_addr = u32::from(*v4.ip()).to_be();
                }
                raw.len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(v6) => {
                let place = (&raw mut raw.storage).cast::<libc::sockaddr_in6>();
                // SAFETY: as above.
                unsafe {
                    (*place).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                    (*place).sin6_port = v6.port().to_be();
                    (*place).sin6_addr.s6_addr = v6.ip().octets();
                    (*place).sin6_flowinfo = v6.flowinfo();
                    (*place).sin6_scope_id = v6.scope_id();
                }
                raw.len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        raw
    }
}

/// A TCP socket that is to connect to `to`, with these flags beside close-on-exec.
pub(super) fn stream_socket(to: SocketAddr, flags: i32) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: the call takes numbers only.
    let made = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and no other owner has it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Begins to connect a socket that does not block. Whether that was done at once.
pub(super) fn begin_connect(socket: &impl AsFd, to: SocketAddr) -> io::Result<bool> {
    let to = RawAddress::from(to);
    // SAFETY: the address is in this frame, and the descriptor is borrowed.
    if unsafe { libc::connect(socket.as_fd().as_raw_fd(), to.as_ptr(), to.len) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Interrupted, it goes on all the same.
        Some(libc::EINPROGRESS | libc::EINTR) => Ok(false),
        _ => Err(error),
    }
}

/// Makes operations fail with `WouldBlock` rather than wait.
pub(super) fn set_nonblocking(socket: &impl AsFd) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the calls take numbers only, and the descriptor is borrowed.
    let done = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) >= 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How many connections wait to be accepted, of a socket that listens already.
pub(super) fn set_backlog(listener: &impl AsFd, backlog: u32) -> io::Result<()> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    // SAFETY: the call takes numbers only, and the descriptor is borrowed.
    if unsafe { libc::listen(listener.as_fd().as_raw_fd(), backlog) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["127.0.0.1:80", "1.2.3.4:65535", "[::1]:443", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(RawAddress::from(address).address().expect("of a known family"), address);
        }
        assert!(RawAddress::room().address().is_err(), "nothing was written");
    }
}
