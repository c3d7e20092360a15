//! Endpoints: where calls meet servers.
//!
//! Conserved:
//!
//! - Not both callers and servers wait at once.
//! - A client, which is a process, has at most [`SHARE`] calls at an endpoint: waiting, being served, or withdrawn and not
//!   yet answered. There is room for the share of every process there can be, so no client uses another's share. A client's
//!   ledger is charged for its share from its first call until it ends.
//! - Callers are taken in turns: one of each client that waits, and each client's own in their order. Where the endpoint orders
//!   by deadline, as many clients as its window has come together: one caller of each, the one that is due first first. So none
//!   is passed by more than its neighbours in the window.
//! - A server that waits has the number under which it receives its call. So a call to a server that waits is received, and
//!   a server that receives more than it answers is the one that is refused.
//! - A received call is answered once: the number that the server returns names a slot and its generation, and only the
//!   process that received it can use it. A received call that its caller withdraws keeps its slot until the server answers,
//!   so that the server is told and the number means nothing else meanwhile.
//! - A notice of the kernel is received before any call, under the number 0, which no call has, and is not answered. As many wait
//!   as there is room for; then the oldest is lost. Who is told also finds out by asking. It waits for who comes next where many
//!   servers that wait are at fault.
//! - Where the endpoint has a context of its own, whoever serves a call without a context has that one, from the moment that it has
//!   the call until it answers. Such a call and its answer take the long way.
//! - An endpoint that is closed takes no call: each client's count is out of its share. Calls that are there are ended, or go on.
//! - A process that has ended is in no endpoint: see [`Endpoint::forget`]. So here a process is its slot's number alone.

use super::inbox::Waiter;
use super::process::{self, MAX_PROCESSES};
use super::thread;
use crate::sched::visible::Digest;
use heapless::Deque;
use mainspring_abi::kernel::DIRECT_WORDS;
use mainspring_abi::request::urgency;
use mainspring_abi::ring::{CapError, QosFlags};
use mainspring_abi::{ContextRef, ThreadRef};
use mainspring_kernel_core::ledger::{Kind, Ledger};
use spin::Mutex;

/// How many endpoints there can be.
pub const ENDPOINTS: usize = 32;
/// How many calls one client may have at an endpoint.
pub const SHARE: usize = 16;
/// How many calls the servers of an endpoint together can wait for or have received and not answered.
const RECEIVED: usize = 64;
/// How many notices can wait at an endpoint.
const NOTICES: usize = 8;
/// A call's number: its slot in the low bits, then which call of that slot. It comes again after 67 million calls.
const SLOT_BITS: u32 = RECEIVED.trailing_zeros();
/// In place of a client's calls: it has made none here, and has not been charged for its share.
const CLOSED: u8 = u8::MAX;
/// Added to the calls of each client while the endpoint is closed: more than its share.
const SHUT: u8 = 0x40;
/// In place of a client that has ended.
const NOBODY: u8 = MAX_PROCESSES as u8;

const _: () = assert!(RECEIVED.is_power_of_two() && RECEIVED <= 128 && MAX_PROCESSES <= u64::BITS as usize);
const _: () = assert!(SHARE < SHUT as usize && SHARE as u8 + SHUT < CLOSED);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// A server waits for it.
    Awaited,
    /// It has been received, and its caller waits for the answer.
    Served,
    /// It has been received, and no thread waits for the answer any more.
    Withdrawn,
}

/// A call that a process has received, or will.
#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u32,
    state: State,
    /// Whose call it is, once it has been received.
    client: u8,
    /// The process that serves it, or waits for it.
    by: u8,
    /// The thread that waits: the server for the call, or the caller for the answer.
    waiter: Waiter,
    /// The thread that received it, once it has been received.
    server: ThreadRef,
}

impl Slot {
    const FREE: Self = Self {
        generation: 1,
        state: State::Free,
        client: NOBODY,
        by: 0,
        waiter: Waiter::NOBODY,
        server: Waiter::NOBODY.thread,
    };

    #[inline(always)]
    fn number(&self, index: usize) -> u32 {
        self.generation << SLOT_BITS | index as u32
    }
}

/// Slots whose servers wait, in their order.
#[derive(Debug)]
struct Servers {
    slots: [u8; RECEIVED],
    first: u8,
    len: u8,
}

impl Servers {
    #[inline(always)]
    fn front(&self) -> Option<usize> {
        (self.len != 0).then(|| usize::from(self.slots[usize::from(self.first) % RECEIVED]))
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<usize> {
        let slot = self.front()?;
        self.first = self.first.wrapping_add(1);
        self.len -= 1;
        Some(slot)
    }

    /// No more wait than there are slots, so there is room.
    #[inline(always)]
    fn push(&mut self, slot: usize) {
        let at = self.first.wrapping_add(self.len);
        self.slots[usize::from(at) % RECEIVED] = slot as u8;
        self.len += 1;
    }

    fn remove(&mut self, slot: usize) {
        for _ in 0..self.len {
            if let Some(one) = self.pop()
                && one != slot
            {
                self.push(one);
            }
        }
    }
}

/// Which threads wait at an endpoint, and which calls are being served.
#[derive(Debug)]
pub struct Endpoint {
    servers: Servers,
    /// Clients that have callers waiting, bit by bit, and whose turn it was last.
    waiting: u64,
    last: u32,
    how: Conduct,
    /// What a server that has no context serves calls on.
    own: Option<ContextRef>,
    /// The process whose servers alone do so.
    own_of: Option<u32>,
    /// The clients whose turns come together, bit by bit, and which of them was chosen.
    batch: u64,
    chosen: Option<u8>,
    /// A thread has waited here.
    used: bool,
    /// It takes no calls.
    shut: bool,
    /// The calls of each client: waiting, being served, withdrawn; or [`CLOSED`]. The last one counts for clients
    /// that have ended.
    calls: [u8; MAX_PROCESSES + 1],
    received: [Slot; RECEIVED],
    callers: [Deque<Waiter, SHARE>; MAX_PROCESSES],
    notices: Deque<Notice, NOTICES>,
}

/// How an endpoint passes calls on, as the boot manifest says.
#[derive(Clone, Copy, Debug)]
pub struct Conduct {
    /// Whether a call lends its caller's context.
    pub lends: bool,
    /// Whether its path is made for deadlines: a call that needs that is refused elsewhere.
    pub realtime_safe: bool,
    /// Among how many clients the earliest deadline goes first; 1 for none.
    pub window: u8,
}

impl Conduct {
    /// Of an endpoint that the manifest says nothing of.
    pub const DEFAULT: Self = Self { lends: true, realtime_safe: false, window: 1 };
}

/// What the kernel tells whoever receives.
pub type Notice = [u64; DIRECT_WORDS];

static ENDPOINTS_TABLE: [Mutex<Endpoint>; ENDPOINTS] = [const { Mutex::new(Endpoint::new()) }; ENDPOINTS];

/// The endpoint with this number.
#[must_use]
pub fn endpoint(index: u32) -> &'static Mutex<Endpoint> {
    &ENDPOINTS_TABLE[index as usize]
}

/// When the call of `caller` is due, if it wants to be ordered by that.
fn due(caller: Waiter) -> Option<u64> {
    let wants = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE);
    let inbox = thread::slot(caller.thread.index()).inbox.lock();
    let request = inbox.request(caller).map(|op| op.request);
    let ordered = request.filter(|request| request.qos().is_ok_and(|qos| qos.has(wants)));
    ordered.map(|request| urgency(request.deadline_ns))
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Mutex<Endpoint>> {
    ENDPOINTS_TABLE.iter()
}

impl Endpoint {
    /// One at which no thread waits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            servers: Servers { slots: [0; RECEIVED], first: 0, len: 0 },
            waiting: 0,
            last: MAX_PROCESSES as u32 - 1,
            how: Conduct::DEFAULT,
            own: None,
            own_of: None,
            batch: 0,
            chosen: None,
            used: false,
            shut: false,
            calls: [CLOSED; MAX_PROCESSES + 1],
            received: [Slot::FREE; RECEIVED],
            callers: [const { Deque::new() }; MAX_PROCESSES],
            notices: Deque::new(),
        }
    }

    /// Whether the process `client` can have one more call here.
    #[inline(always)]
    #[must_use]
    pub fn may_call(&self, client: u32) -> bool {
        self.calls[client as usize % MAX_PROCESSES] < SHARE as u8
    }

    /// Lets the process `client` have its share here, if it has not called here before. Whether it had not.
    pub fn open(&mut self, client: u32, ledger: &Ledger<'_>) -> Result<bool, CapError> {
        let index = client as usize % MAX_PROCESSES;
        if self.shut {
            return Err(CapError::PeerGone);
        }
        if self.calls[index] != CLOSED {
            return Ok(false);
        }
        ledger.add(Kind::EndpointPlaces, SHARE as u64).map_err(process::refusal)?;
        self.calls[index] = 0;
        self.used = true;
        Ok(true)
    }

    /// The process `client` has no calls here, and no share any more.
    pub fn close(&mut self, client: u32, ledger: &Ledger<'_>) {
        let calls = &mut self.calls[client as usize % MAX_PROCESSES];
        if *calls != CLOSED {
            *calls = CLOSED;
            ledger.refund(Kind::EndpointPlaces, SHARE as u64);
        }
    }

    /// One call less.
    #[inline(always)]
    fn uncount(&mut self, client: u8) {
        let calls = &mut self.calls[usize::from(client)];
        *calls = calls.wrapping_sub(1);
    }

    /// Whether a caller or a notice waits.
    #[inline(always)]
    #[must_use]
    pub fn has_caller(&self) -> bool {
        self.waiting != 0 || !self.notices.is_empty()
    }

    /// The notice that waits longest. It goes on waiting.
    #[must_use]
    pub fn first_notice(&self) -> Option<Notice> {
        self.notices.front().copied()
    }

    /// The notice that waits longest has been received.
    pub fn drop_notice(&mut self) {
        self.notices.pop_front();
    }

    /// A notice waits for whoever receives next.
    pub fn add_notice(&mut self, notice: Notice) {
        if self.notices.is_full() {
            self.drop_notice();
        }
        // There is room, as was just made.
        let _ = self.notices.push_back(notice);
        self.used = true;
    }

    /// What the boot manifest says of it.
    pub fn configure(&mut self, how: Conduct) {
        self.how = Conduct { window: how.window.clamp(1, MAX_PROCESSES as u8), ..how };
    }

    /// A thread that serves a call here without a context serves it on `own`: one of any process, or of this one. Servers of another
    /// process are at the mercy of a context's budget and overrun policy, so only the boot manifest says that for all.
    pub fn serve_on(&mut self, own: ContextRef, of: Option<u32>) {
        (self.own, self.own_of) = (Some(own), of);
    }

    /// What a server that has no context serves calls on.
    #[inline(always)]
    #[must_use]
    pub fn own_context(&self) -> Option<ContextRef> {
        self.own
    }

    /// What a server of `process` that has no context serves calls on.
    #[must_use]
    pub fn own_context_of(&self, process: u32) -> Option<ContextRef> {
        self.own.filter(|_| self.own_of.is_none_or(|of| of == process))
    }

    /// Whether its path is made for deadlines.
    #[must_use]
    pub fn is_realtime_safe(&self) -> bool {
        self.how.realtime_safe
    }

    /// Whether a call lends its caller's context.
    #[inline(always)]
    #[must_use]
    pub fn lends(&self) -> bool {
        self.how.lends
    }

    /// Of the clients in `among`, the first whose turn comes after that of `last`.
    fn turn_after(last: u32, among: u64) -> Option<u32> {
        let ahead = among.rotate_right(last + 1).trailing_zeros();
        (among != 0).then_some((last + 1 + ahead) % MAX_PROCESSES as u32)
    }

    /// Whose turn it is of the clients that have callers waiting. `urgency` says of a caller how soon it is due, if it may be moved.
    fn next_client(&mut self, urgency: impl Fn(Waiter) -> Option<u64>) -> Option<usize> {
        if self.how.window == 1 {
            return Self::turn_after(self.last, self.waiting).map(|client| client as usize);
        }
        self.batch &= self.waiting;
        if self.batch == 0 {
            for _ in 0..self.how.window {
                let next = Self::turn_after(self.last, self.waiting & !self.batch);
                let Some(client) = next else { break };
                self.batch |= 1 << client;
                self.last = client;
            }
        }
        let mut first: Option<(u64, u32)> = None;
        let (mut left, mut at) = (self.batch, self.last);
        while let Some(client) = Self::turn_after(at, left) {
            left &= !(1 << client);
            at = client;
            match (self.callers[client as usize].front().and_then(|caller| urgency(*caller)), first) {
                (Some(due), Some((earliest, _))) if due >= earliest => {}
                (Some(due), _) => first = Some((due, client)),
                // Nothing passes one that may not be moved.
                (None, None) => return Some(client as usize),
                (None, Some(_)) => break,
            }
        }
        first.map(|(_, client)| client as usize)
    }

    /// The caller whose turn it is. It goes on waiting.
    #[must_use]
    pub fn next_caller(&mut self) -> Option<Waiter> {
        let client = self.next_client(due)?;
        self.chosen = Some(client as u8);
        self.callers[client].front().copied()
    }

    /// Takes out the caller that [`Endpoint::next_caller`] found, and whose it is.
    fn take_caller(&mut self) -> Option<(Waiter, u8)> {
        let client = usize::from(self.chosen.take()?);
        let caller = self.callers[client].pop_front()?;
        self.batch &= !(1 << client);
        if self.callers[client].is_empty() {
            self.waiting &= !(1 << client);
        }
        if self.how.window == 1 {
            self.last = client as u32;
        }
        Some((caller, client as u8))
    }

    /// The caller whose turn it is has no request any more, or not one that can be received.
    pub fn drop_caller(&mut self) {
        if let Some((_, client)) = self.take_caller() {
            self.uncount(client);
        }
    }

    /// A caller of the process `client` waits, as [`Endpoint::may_call`] allowed.
    pub fn add_caller(&mut self, caller: Waiter, client: u32) {
        let index = client as usize % MAX_PROCESSES;
        let queued = self.callers[index].push_back(caller);
        debug_assert!(queued.is_ok(), "no more wait than are counted");
        self.calls[index] += 1;
        self.waiting |= 1 << index;
        self.used = true;
    }

    /// The server that waits longest, and the number of the call that it receives. It goes on waiting.
    #[inline(always)]
    #[must_use]
    pub fn first_server(&self) -> Option<(Waiter, u32)> {
        let index = self.servers.front()?;
        let slot = &self.received[index % RECEIVED];
        Some((slot.waiter, slot.number(index)))
    }

    /// The server that waits longest receives the call of `caller`, which [`Endpoint::may_call`] allowed `client`.
    #[inline(always)]
    pub fn serve_first(&mut self, caller: Waiter, client: u32) {
        let Some(index) = self.servers.pop() else { return };
        let slot = &mut self.received[index % RECEIVED];
        slot.server = slot.waiter.thread;
        (slot.state, slot.client, slot.waiter) = (State::Served, client as u8, caller);
        self.calls[client as usize % MAX_PROCESSES] += 1;
    }

    /// The server that waits longest has no request any more, or not one that can be given a call.
    pub fn drop_server(&mut self) {
        if let Some(index) = self.servers.pop() {
            self.clear(index);
        }
    }

    /// The number of a call that could be received next, if there is room for one.
    #[must_use]
    pub fn next_call(&self) -> Option<u32> {
        let index = self.received.iter().position(|slot| slot.state == State::Free)?;
        Some(self.received[index].number(index))
    }

    /// The number that the slot of `call_id` will have once that call is over.
    #[inline(always)]
    #[must_use]
    pub fn call_after(&self, call_id: u32) -> u32 {
        call_id.wrapping_add(1 << SLOT_BITS)
    }

    /// `server`, of the process `by`, waits for the call `call_id`, which is free.
    pub fn add_server(&mut self, server: Waiter, call_id: u32, by: u32) {
        let index = call_id as usize % RECEIVED;
        let slot = &mut self.received[index];
        (slot.state, slot.by, slot.waiter) = (State::Awaited, by as u8, server);
        self.servers.push(index);
        self.used = true;
    }

    /// The thread `server` of the process `by` receives the call of the caller whose turn it is, under the free number
    /// `call_id`; which thread called.
    pub fn receive_next(&mut self, call_id: u32, by: u32, server: ThreadRef) -> Option<ThreadRef> {
        let (caller, client) = self.take_caller()?;
        let slot = &mut self.received[call_id as usize % RECEIVED];
        (slot.state, slot.client, slot.by, slot.waiter) = (State::Served, client, by as u8, caller);
        slot.server = server;
        Some(caller.thread)
    }

    /// The thread that has received the call of `caller` and not answered it.
    #[must_use]
    pub fn server_of(&self, caller: Waiter) -> Option<ThreadRef> {
        let served = |slot: &&Slot| slot.state == State::Served && slot.waiter == caller;
        self.received.iter().find(served).map(|slot| slot.server)
    }

    /// What the process `by` finds under the number of a call that it has received: the thread that waits for the answer,
    /// or `None` if the call was withdrawn.
    pub fn find_call(&self, call_id: u32, by: u32) -> Result<Option<Waiter>, CapError> {
        let index = call_id as usize % RECEIVED;
        let slot = &self.received[index];
        match slot.state {
            _ if slot.number(index) != call_id || u32::from(slot.by) != by => Err(CapError::InvalidParameter),
            State::Served => Ok(Some(slot.waiter)),
            State::Withdrawn => Ok(None),
            State::Free | State::Awaited => Err(CapError::InvalidParameter),
        }
    }

    /// The thread that waits for the answer to the call `call_id`, which the process `by` received and goes on
    /// serving.
    #[inline(always)]
    #[must_use]
    pub fn caller_of(&self, call_id: u32, by: u32) -> Option<Waiter> {
        let index = call_id as usize % RECEIVED;
        let slot = &self.received[index];
        let found = slot.state == State::Served && u32::from(slot.by) == by && slot.number(index) == call_id;
        found.then_some(slot.waiter)
    }

    /// The call `call_id`, which [`Endpoint::find_call`] or [`Endpoint::caller_of`] has found, is over.
    pub fn end_call(&mut self, call_id: u32) {
        let client = self.clear(call_id as usize % RECEIVED);
        self.uncount(client);
    }

    /// The same, and `server` of the same process waits for the next one, under the number that
    /// [`Endpoint::call_after`] says.
    #[inline(always)]
    pub fn end_call_and_wait(&mut self, call_id: u32, server: Waiter) {
        let index = call_id as usize % RECEIVED;
        let slot = &mut self.received[index];
        let client = slot.client;
        slot.generation = slot.generation.wrapping_add(1);
        (slot.state, slot.client, slot.waiter) = (State::Awaited, NOBODY, server);
        self.servers.push(index);
        self.uncount(client);
    }

    /// The number of the call in this slot never means it again; whose it was.
    fn clear(&mut self, index: usize) -> u8 {
        let slot = &mut self.received[index];
        let client = slot.client;
        *slot = Slot { generation: slot.generation.wrapping_add(1), ..Slot::FREE };
        client
    }

    /// It takes calls from now on, or none.
    pub fn set_shut(&mut self, shut: bool) {
        if self.shut != shut {
            self.shut = shut;
            for calls in self.calls[..MAX_PROCESSES].iter_mut().filter(|calls| **calls != CLOSED) {
                *calls ^= SHUT;
            }
        }
    }

    /// One caller that waits here or is being served, and gets no answer. A server that has received its call is told when it answers.
    pub fn take_any_caller(&mut self) -> Option<Waiter> {
        for client in 0..MAX_PROCESSES {
            if let Some(caller) = self.callers[client].pop_front() {
                if self.callers[client].is_empty() {
                    self.waiting &= !(1 << client);
                }
                self.batch &= self.waiting;
                self.uncount(client as u8);
                return Some(caller);
            }
        }
        let served = self.received.iter_mut().find(|slot| slot.state == State::Served)?;
        served.state = State::Withdrawn;
        Some(core::mem::replace(&mut served.waiter, Waiter::NOBODY))
    }

    /// One caller whose call the process `server` received and will not answer any more, since it has ended.
    pub fn take_orphan(&mut self, server: u32) -> Option<Waiter> {
        for index in 0..RECEIVED {
            let slot = self.received[index];
            let received = matches!(slot.state, State::Served | State::Withdrawn);
            if received && u32::from(slot.by) == server {
                let client = self.clear(index);
                self.uncount(client);
                if slot.state == State::Served {
                    return Some(slot.waiter);
                }
            }
        }
        None
    }

    /// The process `client` has ended, and none of its threads waits here any more. A call that it has withdrawn and that is
    /// still being served has no client.
    pub fn forget(&mut self, client: u32, ledger: &Ledger<'_>) {
        for slot in &mut self.received {
            if u32::from(slot.client) == client {
                slot.client = NOBODY;
            }
        }
        debug_assert!(self.callers[client as usize].is_empty(), "a thread ended and still waits");
        // Its number is another process's next.
        if self.own_of == Some(client) {
            (self.own, self.own_of) = (None, None);
        }
        self.close(client, ledger);
    }

    /// `waiter`, of the process `of`, waits no longer: it is in no queue, and the server that received its call is told when
    /// it answers.
    pub fn withdraw(&mut self, waiter: Waiter, of: u32) {
        self.withdraw_caller(waiter, of as usize);
        for index in 0..RECEIVED {
            let slot = &mut self.received[index];
            if slot.waiter != waiter {
                continue;
            }
            match slot.state {
                State::Served => (slot.state, slot.waiter) = (State::Withdrawn, Waiter::NOBODY),
                State::Awaited => {
                    self.servers.remove(index);
                    self.clear(index);
                }
                State::Free | State::Withdrawn => {}
            }
        }
    }

    fn withdraw_caller(&mut self, waiter: Waiter, client: usize) {
        let callers = &mut self.callers[client];
        let before = callers.len();
        for _ in 0..before {
            if let Some(one) = callers.pop_front()
                && one != waiter
            {
                // It was in the queue just now, so there is room.
                let _ = callers.push_back(one);
            }
        }
        if callers.len() == before {
            return;
        }
        if callers.is_empty() {
            self.waiting &= !(1 << client);
        }
        self.uncount(client as u8);
    }

    /// Which threads wait here, and for what.
    pub fn digest(&self, digest: &mut Digest) {
        if !self.used {
            return;
        }
        digest.add(self.waiting);
        digest.add(u64::from(self.last));
        digest
            .add(u64::from(self.servers.len) | (self.notices.len() as u64) << 8 | u64::from(self.shut) << 16);
        for (calls, callers) in self.calls.iter().zip(&self.callers) {
            digest.add(u64::from(*calls) << 8 | callers.len() as u64);
        }
        for slot in &self.received {
            digest.add(u64::from(slot.generation) << 2 | slot.state as u64);
        }
    }
}
