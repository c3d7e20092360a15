//! Sockets, the clients that have them, and the calls that wait for them.
//!
//! Conserved:
//! * A socket is free, or belongs to one client: listening for one of its listeners, or as a connection. A number that was given
//!   up means nothing.
//! * A call that was begun is answered once. At most [`CALLS`] of a client wait at a time; one more, and the oldest is refused.
//! * A client has at most [`PER_CLIENT`] sockets and [`LISTENERS`] listeners.

use super::CLIENTS;
use alloc::vec::Vec;
use heapless::Vec as Few;
use mainspring_user::CapError;
use mainspring_user::arch::virtio::pages_for_ever;
use mainspring_user::net::{Event, HEAD, NetUsage, Operation, Ready, Status};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};

/// Sockets of one client, those that listen included.
const PER_CLIENT: usize = 70;
/// Sockets of the machine: no client is in the way of another.
pub const SOCKETS: usize = CLIENTS * PER_CLIENT;
/// Listeners of one client.
const LISTENERS: usize = 4;
/// Sockets that listen for one listener, at the most: as many can connect at the same moment.
const BACKLOG: u32 = 64;
/// Calls of one client that wait. The kernel keeps fewer of them alive: what is beyond has been given up by its caller.
const CALLS: usize = 32;
/// Pages of each buffer of a socket.
const BUFFER_PAGES: usize = 1;
const PAGE: usize = 4096;
/// The longest answer: a status, and data.
pub type Answer = Few<u8, { mainspring_abi::kernel::MAX_MESSAGE }>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Free,
    /// Waits for a connection, or has one that was not accepted.
    Listens {
        client: usize,
        listener: u32,
    },
    Connection {
        client: usize,
    },
    /// Was given up, and is sending what is left.
    Closing,
}

struct Slot {
    handle: SocketHandle,
    generation: u16,
    used: Use,
}

impl Slot {
    fn client(&self) -> Option<usize> {
        match self.used {
            Use::Listens { client, .. } | Use::Connection { client } => Some(client),
            Use::Free | Use::Closing => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Listener {
    client: usize,
    number: u32,
    port: u16,
    backlog: usize,
}

/// A call that waits.
struct Waiting {
    client: usize,
    call: u32,
    what: Wanted,
}

enum Wanted {
    Accept(u32),
    Read { number: u32, most: usize },
    Write { number: u32, bytes: Vec<u8> },
    Event { room_of: Vec<u32> },
}

/// All of them.
pub struct Sockets {
    slots: Vec<Slot>,
    listeners: Vec<Listener>,
    next_listener: u32,
    waiting: Vec<Waiting>,
    /// Calls that have waited for too long.
    refused: Vec<(usize, u32)>,
}

fn refusal(status: Status) -> Answer {
    let mut answer = Answer::new();
    let _one_fits = answer.push(status as u8);
    answer
}

/// Whether a socket that listened has a connection.
fn is_connected(socket: &Socket<'_>) -> bool {
    socket.may_send() || socket.can_recv()
}

fn done(bytes: &[u8]) -> Answer {
    let mut answer = refusal(Status::Done);
    // The callers keep to what a message carries.
    let _fits = answer.extend_from_slice(bytes);
    answer
}

impl Sockets {
    /// Makes all sockets, with their buffers.
    pub fn new(set: &mut SocketSet<'static>) -> Result<Self, CapError> {
        let pages = pages_for_ever((SOCKETS * 2 * BUFFER_PAGES) as u32)?;
        let mut slots = Vec::new();
        for buffers in pages.chunks_exact_mut(2 * BUFFER_PAGES * PAGE) {
            let (receive, send) = buffers.split_at_mut(BUFFER_PAGES * PAGE);
            let socket = Socket::new(SocketBuffer::new(receive), SocketBuffer::new(send));
            slots.push(Slot { handle: set.add(socket), generation: 1, used: Use::Free });
        }
        Ok(Self { slots, listeners: Vec::new(), next_listener: 1, waiting: Vec::new(), refused: Vec::new() })
    }

    fn count(&self, client: usize) -> usize {
        self.slots.iter().filter(|slot| slot.client() == Some(client)).count()
    }

    /// A socket that nobody uses, if `client` may have another one.
    fn free(&mut self, client: usize) -> Option<usize> {
        if self.count(client) >= PER_CLIENT {
            return None;
        }
        self.slots.iter().position(|slot| slot.used == Use::Free)
    }

    /// Lets as many sockets listen for a listener as can.
    fn listen(&mut self, listener: Listener, set: &mut SocketSet<'static>) {
        let used = Use::Listens { client: listener.client, listener: listener.number };
        let idle = |slot: &&Slot, set: &SocketSet<'static>| {
            slot.used == used && set.get::<Socket<'_>>(slot.handle).state() == State::Listen
        };
        let mut there = self.slots.iter().filter(|slot| idle(slot, set)).count();
        while there < listener.backlog {
            let Some(index) = self.free(listener.client) else { return };
            let socket = set.get_mut::<Socket<'_>>(self.slots[index].handle);
            if socket.listen(listener.port).is_err() {
                return;
            }
            self.slots[index].used = used;
            there += 1;
        }
    }

    fn connection(&self, client: usize, number: u32) -> Option<usize> {
        let index = (number & 0xffff) as usize;
        let slot = self.slots.get(index)?;
        let own = slot.used == Use::Connection { client } && u32::from(slot.generation) == number >> 16;
        own.then_some(index)
    }

    /// A call of `client` has come: its answer, if that does not have to wait.
    pub fn begin(
        &mut self,
        client: usize,
        call: u32,
        message: &[u8],
        set: &mut SocketSet<'static>,
        usage: impl Fn() -> NetUsage,
    ) -> Option<Answer> {
        let Some((head, data)) = message.split_first_chunk::<HEAD>() else {
            return Some(refusal(Status::Malformed));
        };
        let number = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        let what = match head[0] {
            op if op == Operation::Listen as u8 => {
                let backlog = data.first_chunk().map_or(1, |backlog| u32::from_le_bytes(*backlog));
                return Some(self.open(client, number, backlog, set));
            }
            op if op == Operation::Close as u8 => return Some(self.close(client, number, set)),
            op if op == Operation::Usage as u8 => return Some(done(&usage().to_bytes())),
            op if op == Operation::Accept as u8 && !data.is_empty() => {
                let none = || done(&0_u32.to_le_bytes());
                return Some(self.accept(client, number, set).unwrap_or_else(none));
            }
            op if op == Operation::Accept as u8 => Wanted::Accept(number),
            op if op == Operation::Read as u8 => {
                let most = data.first_chunk().map_or(0, |most| u32::from_le_bytes(*most)) as usize;
                Wanted::Read { number, most }
            }
            op if op == Operation::Wait as u8 => {
                let room_of = data.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect();
                Wanted::Event { room_of }
            }
            op if op == Operation::Write as u8 => Wanted::Write { number, bytes: data.to_vec() },
            _ => return Some(refusal(Status::Malformed)),
        };
        if let Some(answer) = self.try_answer(client, &what, set) {
            return Some(answer);
        }
        if self.waiting.iter().filter(|waiting| waiting.client == client).count() == CALLS
            && let Some(oldest) = self.waiting.iter().position(|waiting| waiting.client == client)
        {
            let oldest = self.waiting.remove(oldest);
            self.refused.push((client, oldest.call));
        }
        self.waiting.push(Waiting { client, call, what });
        None
    }

    fn open(&mut self, client: usize, port: u32, backlog: u32, set: &mut SocketSet<'static>) -> Answer {
        let port = match u16::try_from(port) {
            Ok(port) if port != 0 => port,
            _ => return refusal(Status::Malformed),
        };
        let own = self.listeners.iter().filter(|listener| listener.client == client).count();
        let taken = self.listeners.iter().any(|listener| listener.port == port);
        if own >= LISTENERS || taken {
            return refusal(Status::Full);
        }
        let number = self.next_listener;
        self.next_listener += 1;
        let backlog = backlog.clamp(1, BACKLOG) as usize;
        let listener = Listener { client, number, port, backlog };
        self.listeners.push(listener);
        self.listen(listener, set);
        done(&number.to_le_bytes())
    }

    fn close(&mut self, client: usize, number: u32, set: &mut SocketSet<'static>) -> Answer {
        let Some(index) = self.connection(client, number) else { return refusal(Status::NoSocket) };
        let slot = &mut self.slots[index];
        slot.used = Use::Closing;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        set.get_mut::<Socket<'_>>(slot.handle).close();
        done(&[])
    }

    fn try_answer(&mut self, client: usize, what: &Wanted, set: &mut SocketSet<'static>) -> Option<Answer> {
        match what {
            Wanted::Accept(number) => self.accept(client, *number, set),
            Wanted::Event { room_of } => self.events(client, room_of, set),
            Wanted::Read { number, most } => {
                let Some(index) = self.connection(client, *number) else {
                    return Some(refusal(Status::NoSocket));
                };
                let socket = set.get_mut::<Socket<'_>>(self.slots[index].handle);
                if socket.can_recv() {
                    let mut bytes = [0; mainspring_user::net::DATA];
                    let room = (*most).min(bytes.len());
                    let len = socket.recv_slice(&mut bytes[..room]).unwrap_or(0);
                    return Some(done(&bytes[..len]));
                }
                if socket.may_recv() {
                    return None;
                }
                // After the other side's end nothing comes; after a reset the socket is closed altogether.
                Some(if socket.is_open() { done(&[]) } else { refusal(Status::Reset) })
            }
            Wanted::Write { number, bytes } => {
                let Some(index) = self.connection(client, *number) else {
                    return Some(refusal(Status::NoSocket));
                };
                let socket = set.get_mut::<Socket<'_>>(self.slots[index].handle);
                if !socket.may_send() {
                    return Some(refusal(Status::Reset));
                }
                match socket.send_slice(bytes) {
                    Ok(0) if !bytes.is_empty() => None,
                    Ok(sent) => Some(done(&(sent as u32).to_le_bytes())),
                    Err(_) => Some(refusal(Status::Reset)),
                }
            }
        }
    }

    /// What the sockets of `client` have, if any has anything. Room is told of the connections in `room_of` alone.
    fn events(&self, client: usize, room_of: &[u32], set: &SocketSet<'static>) -> Option<Answer> {
        let mut answer = refusal(Status::Done);
        for (index, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.client() == Some(client)) {
            let socket = set.get::<Socket<'_>>(slot.handle);
            let number = u32::from(slot.generation) << 16 | index as u32;
            let mut tell = |number, ready| {
                // More than fit are told the next time.
                let _fits = answer.extend_from_slice(&Event { number, ready }.to_bytes());
            };
            match slot.used {
                Use::Listens { listener, .. } if is_connected(socket) => tell(listener, Ready::Connection),
                Use::Connection { .. } => {
                    if socket.can_recv() || !socket.may_recv() {
                        tell(number, Ready::Bytes);
                    }
                    if room_of.contains(&number) && (socket.can_send() || !socket.may_send()) {
                        tell(number, Ready::Room);
                    }
                }
                _ => {}
            }
        }
        (answer.len() > 1).then_some(answer)
    }

    fn accept(&mut self, client: usize, number: u32, set: &mut SocketSet<'static>) -> Option<Answer> {
        let own = |listener: &&Listener| listener.client == client && listener.number == number;
        let Some(listener) = self.listeners.iter().find(own).copied() else {
            return Some(refusal(Status::NoSocket));
        };
        let used = Use::Listens { client, listener: number };
        let connected = |slot: &Slot| {
            let socket = set.get::<Socket<'_>>(slot.handle);
            slot.used == used && is_connected(socket)
        };
        let index = self.slots.iter().position(connected)?;
        self.slots[index].used = Use::Connection { client };
        self.listen(listener, set);
        let number = u32::from(self.slots[index].generation) << 16 | index as u32;
        Some(done(&number.to_le_bytes()))
    }

    /// Answers the calls that can be; whether there were any.
    pub fn answer_all(
        &mut self,
        set: &mut SocketSet<'static>,
        mut answer: impl FnMut(usize, u32, &[u8]),
    ) -> bool {
        self.clear_up(set);
        for (client, call) in self.refused.drain(..) {
            answer(client, call, &refusal(Status::Full));
        }
        let mut answered = false;
        let mut at = 0;
        while at < self.waiting.len() {
            let waiting = self.waiting.remove(at);
            match self.try_answer(waiting.client, &waiting.what, set) {
                Some(bytes) => {
                    answer(waiting.client, waiting.call, &bytes);
                    answered = true;
                }
                None => {
                    self.waiting.insert(at, waiting);
                    at += 1;
                }
            }
        }
        answered
    }

    /// Sockets whose connection is over are free again, and those of a connection that came to nothing listen again.
    fn clear_up(&mut self, set: &mut SocketSet<'static>) {
        for slot in &mut self.slots {
            let socket = set.get_mut::<Socket<'_>>(slot.handle);
            let over = match slot.used {
                Use::Closing => matches!(socket.state(), State::Closed | State::TimeWait),
                Use::Listens { .. } => socket.state() == State::Closed,
                Use::Free | Use::Connection { .. } => false,
            };
            if over {
                socket.abort();
                slot.used = Use::Free;
            }
        }
        for index in 0..self.listeners.len() {
            let listener = self.listeners[index];
            self.listen(listener, set);
        }
    }
}
