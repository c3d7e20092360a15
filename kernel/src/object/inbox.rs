//! What a thread waits for, and how it is told.
//!
//! Conserved: each operation in flight holds the place of its completion, so completing cannot fail; it is completed
//! once, because the completer takes it out first. A thread that blocks does so with the inbox locked, and the
//! completer looks at the wait with the inbox locked: no wake is lost between the two.
//!
//! A request in registers is no operation of the ring: it is the wait itself, and so there is at most one.

use crate::arch::{self, Ring};
use crate::object::ProcessRef;
use crate::object::device::LineId;
use heapless::Vec;
use mainspring_abi::kernel::{DIRECT_WORDS, ReceivedCall};
use mainspring_abi::ring::{CapCqe, CapError, CapSqeV2};
use mainspring_abi::{ContextRef, Nanos, ThreadRef, kernel};
use mainspring_ring::{Completer, CqPlace, RingFault, deadline};
use mainspring_sched::WaitKind;

/// Operations that a thread can have in flight.
pub const OPS: usize = 16;

/// What an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaits {
    /// Its deadline.
    Time,
    /// A wake at this address of its process.
    Park(u64),
    /// The end of a thread.
    Thread(ThreadRef),
    /// The end of a process.
    Process(ProcessRef),
    /// The answer to a call at this endpoint.
    Answer(u32),
    /// A call at this endpoint.
    Call(u32),
    /// Something to drain of this context, or its end.
    Notice(ContextRef),
    /// A message of a device on this line.
    Interrupt(LineId),
}

impl Awaits {
    /// What the scheduler calls it.
    #[must_use]
    pub fn kind(self) -> WaitKind {
        match self {
            Self::Time => WaitKind::Sleep,
            Self::Park(_) => WaitKind::Park,
            Self::Thread(_) | Self::Process(_) => WaitKind::Join,
            Self::Answer(_) => WaitKind::Call,
            Self::Call(_) => WaitKind::Receive,
            Self::Notice(_) | Self::Interrupt(_) => WaitKind::Park,
        }
    }
}

/// An operation of a thread, from anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Whose.
    pub thread: ThreadRef,
    slot: u8,
    serial: u32,
}

/// Instead of a slot: the wait of a request in registers.
const IN_REGISTERS: u8 = u8::MAX;

impl Waiter {
    /// In place of a waiter, where there is none.
    pub const NOBODY: Self =
        Self { thread: ThreadRef::new(u32::MAX, u32::MAX), slot: IN_REGISTERS - 1, serial: 0 };

    /// Whether it waits for a message in registers.
    #[must_use]
    pub fn is_in_registers(self) -> bool {
        self.slot == IN_REGISTERS
    }
}

/// A message in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Short {
    /// Its length, and for a call its number and deadline.
    pub head: ReceivedCall,
    /// The message itself.
    pub words: [u64; DIRECT_WORDS],
}

/// An operation in flight.
#[derive(Debug)]
pub struct Op {
    serial: u32,
    /// What it waits for.
    pub awaits: Awaits,
    /// The request.
    pub request: CapSqeV2,
    /// When it gives up, or for [`Awaits::Time`], is done.
    pub deadline: Nanos,
    place: CqPlace,
}

/// For what a `cap_enter` waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// For that many completions.
    pub min: u32,
    /// Until then.
    pub deadline: Nanos,
}

/// How far a thread is that has more to do before it goes on, see [`crate::method::Work`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Serving {
    /// For what its `cap_enter` waits then; nothing if it did not enter by itself.
    pub wait: Option<Wait>,
    /// How many requests of its ring may still be accepted.
    pub left: u32,
    /// It lets others go first when it is done.
    pub yields: bool,
}

/// Whether a thread is in a `cap_enter` that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Waiting {
    /// It is not.
    #[default]
    Not,
    /// It is.
    For(Wait),
    /// It is, for the answer to a request in registers, and for nothing else.
    InRegisters {
        /// Which of the thread's operations that is.
        serial: u32,
        /// What it waits for.
        awaits: Awaits,
    },
    /// It is in the middle of what it has to do before it waits or goes on.
    Serving(Serving),
    /// It is none that ever goes on in user mode: it polls another's ring, see [`crate::sched::sqpoll`].
    Polling,
    /// It was, and goes on with this answer when it has the CPU.
    Over(u64),
    /// It was, and goes on with this message in its registers.
    Has(Short),
}

/// What a thread has to do after something was posted to its inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a thread that is not woken waits for ever"]
pub enum Posted {
    /// It waits, and has enough now: wake it.
    Wake,
    /// Nothing.
    Nothing,
    /// There was no such operation any more.
    Stale,
}

/// The completion of a request that ended just now. The clock is read only for a request that has a deadline to miss.
#[inline]
#[must_use]
pub fn completion(request: &CapSqeV2, outcome: Result<u32, CapError>) -> CapCqe {
    let now = if request.deadline_ns == 0 { Nanos::ZERO } else { arch::now() };
    deadline::at_completion(request, now, outcome)
}

/// A thread's inbox.
#[derive(Default)]
pub struct Inbox {
    generation: u32,
    completer: Option<Completer<Ring>>,
    /// Whether the thread is in a `cap_enter` that waits.
    pub waiting: Waiting,
    ops: [Option<Op>; OPS],
    next_serial: u32,
    /// How many operations are in flight, and how many of them have a deadline.
    in_flight: u8,
    timed: u8,
    /// What the latest operation waits for.
    latest: Option<Awaits>,
}

impl Inbox {
    /// For a new occupant of the slot.
    pub fn open(&mut self, generation: u32, completer: Completer<Ring>) {
        *self =
            Self { generation, completer: Some(completer), next_serial: self.next_serial, ..Self::default() };
    }

    /// For a new occupant of the slot that polls another's ring.
    pub fn open_for_poller(&mut self, generation: u32) {
        *self =
            Self { generation, waiting: Waiting::Polling, next_serial: self.next_serial, ..Self::default() };
    }

    /// Another CPU has posted something: if the thread waits and has enough now, its wait is over.
    pub fn look(&mut self) -> Posted {
        self.after_posting()
    }

    /// The thread ends: what was in flight, for its objects to forget.
    pub fn close(&mut self, thread: ThreadRef) -> Vec<(Awaits, Waiter), { OPS + 1 }> {
        self.completer = None;
        (self.in_flight, self.timed) = (0, 0);
        let in_registers = self.give_up(thread);
        let ops = core::mem::take(&mut self.ops);
        let ended = ops.into_iter().zip(0..).filter_map(|(op, slot)| {
            let op = op?;
            Some((op.awaits, Waiter { thread, slot, serial: op.serial }))
        });
        ended.chain(in_registers).collect()
    }

    /// The thread waits for the answer to a request in registers from now on.
    #[inline(always)]
    pub fn begin_in_registers(&mut self, thread: ThreadRef, awaits: Awaits) -> Waiter {
        self.next_serial = self.next_serial.wrapping_add(1);
        let serial = self.next_serial;
        self.latest = Some(awaits);
        self.waiting = Waiting::InRegisters { serial, awaits };
        Waiter { thread, slot: IN_REGISTERS, serial }
    }

    /// What `waiter` waits for, if it waits for a message in registers and still does.
    #[must_use]
    #[inline(always)]
    pub fn awaited_in_registers(&self, waiter: Waiter) -> Option<Awaits> {
        match self.waiting {
            Waiting::InRegisters { serial, awaits }
                if serial == waiter.serial && self.generation == waiter.thread.generation() =>
            {
                Some(awaits)
            }
            _ => None,
        }
    }

    /// The thread does not wait any more, with no answer; what was in flight for that wait alone, for its object to forget.
    pub fn give_up(&mut self, thread: ThreadRef) -> Option<(Awaits, Waiter)> {
        match core::mem::take(&mut self.waiting) {
            Waiting::InRegisters { serial, awaits } => {
                Some((awaits, Waiter { thread, slot: IN_REGISTERS, serial }))
            }
            _ => None,
        }
    }

    /// The completion queue, while the thread lives.
    pub fn completer(&mut self) -> Option<&mut Completer<Ring>> {
        self.completer.as_mut()
    }

    /// Whether one more operation can be in flight. Only the thread itself puts any there.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight() < OPS
    }

    /// How many operations are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        debug_assert_eq!(
            usize::from(self.in_flight),
            self.ops.iter().flatten().count(),
            "one was miscounted"
        );
        usize::from(self.in_flight)
    }

    /// Puts an operation in flight; gives the place back when there are too many.
    #[inline(always)]
    pub fn begin(
        &mut self,
        thread: ThreadRef,
        request: &CapSqeV2,
        place: CqPlace,
        awaits: Awaits,
        deadline: Nanos,
    ) -> Result<Waiter, CqPlace> {
        let Some(slot) = self.ops.iter().position(Option::is_none) else { return Err(place) };
        self.next_serial = self.next_serial.wrapping_add(1);
        let serial = self.next_serial;
        self.in_flight += 1;
        self.timed += u8::from(deadline != Nanos::MAX);
        self.latest = Some(awaits);
        self.ops[slot] = Some(Op { serial, awaits, request: *request, deadline, place });
        Ok(Waiter { thread, slot: slot as u8, serial })
    }

    #[inline(always)]
    fn remove(&mut self, slot: usize) -> Option<Op> {
        let op = self.ops.get_mut(slot)?.take()?;
        self.in_flight -= 1;
        self.timed -= u8::from(op.deadline != Nanos::MAX);
        Some(op)
    }

    /// Takes an operation out of flight that no other thread has been told about; the place of its completion.
    pub fn retract(&mut self, waiter: Waiter) -> Option<CqPlace> {
        self.request(waiter)?;
        self.remove(waiter.slot as usize).map(|op| op.place)
    }

    /// The request of an operation in flight.
    #[must_use]
    #[inline(always)]
    pub fn request(&self, waiter: Waiter) -> Option<&Op> {
        let op = self.ops.get(waiter.slot as usize)?.as_ref()?;
        (self.generation == waiter.thread.generation() && op.serial == waiter.serial).then_some(op)
    }

    /// Ends an operation.
    #[inline(always)]
    pub fn finish(&mut self, waiter: Waiter, outcome: Result<u32, CapError>) -> Posted {
        if waiter.is_in_registers() && self.awaited_in_registers(waiter).is_some() {
            self.waiting = Waiting::Over(match outcome {
                Ok(result) => u64::from(result),
                Err(code) => kernel::REFUSED | u64::from(code.number()),
            });
            return Posted::Wake;
        }
        if self.request(waiter).is_none() {
            return Posted::Stale;
        }
        self.finish_found(waiter, outcome)
    }

    /// The call that `thread`, which is about to wait, waits for and for nothing else, and the endpoint that has it.
    #[must_use]
    pub fn only_call(&self, thread: ThreadRef) -> Option<(Waiter, u32)> {
        match self.waiting {
            Waiting::InRegisters { serial, awaits: Awaits::Answer(index) } => {
                Some((Waiter { thread, slot: IN_REGISTERS, serial }, index))
            }
            Waiting::For(_) if self.in_flight() == 1 => {
                let slot = self.ops.iter().position(Option::is_some)?;
                match self.ops[slot].as_ref()? {
                    Op { serial, awaits: Awaits::Answer(index), .. } => {
                        Some((Waiter { thread, slot: slot as u8, serial: *serial }, *index))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Whether the thread waits, and has not been given what it waits for.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.waiting, Waiting::For(_) | Waiting::InRegisters { .. })
    }

    /// Whether an operation waits for `awaits`.
    #[must_use]
    pub fn has_awaiting(&self, awaits: Awaits) -> bool {
        self.ops.iter().flatten().any(|op| op.awaits == awaits)
    }

    /// Ends the operation of `thread` that waits for `awaits`, if there is one; which it was.
    pub fn finish_awaiting(&mut self, thread: ThreadRef, awaits: Awaits) -> Option<(Waiter, Posted)> {
        if self.generation != thread.generation() {
            return None;
        }
        let waits = |op: &Op| op.awaits == awaits;
        let slot = self.ops.iter().position(|op| op.as_ref().is_some_and(waits))?;
        let serial = self.ops[slot].as_ref()?.serial;
        let waiter = Waiter { thread, slot: slot as u8, serial };
        Some((waiter, self.finish_found(waiter, Ok(0))))
    }

    /// Ends an operation that was just seen in flight.
    #[inline(always)]
    pub fn finish_found(&mut self, waiter: Waiter, outcome: Result<u32, CapError>) -> Posted {
        if let Some(op) = self.remove(waiter.slot as usize) {
            self.post(op.place, &completion(&op.request, outcome));
        }
        self.after_posting()
    }

    /// Takes the operation out that is in flight for the request with this `user_data`, and completes it as cancelled;
    /// what it was, for its object to forget.
    pub fn cancel(&mut self, thread: ThreadRef, user_data: u64) -> Option<(Awaits, Waiter)> {
        let named = |op: &Op| op.request.v1.user_data == user_data;
        let slot = self.ops.iter().position(|op| op.as_ref().is_some_and(named))?;
        let op = self.remove(slot)?;
        self.post(op.place, &completion(&op.request, Err(CapError::Cancelled)));
        Some((op.awaits, Waiter { thread, slot: slot as u8, serial: op.serial }))
    }

    /// Completes a request that was never in flight.
    #[inline(always)]
    pub fn post(&mut self, place: CqPlace, cqe: &CapCqe) {
        if let Some(completer) = &mut self.completer {
            completer.complete(place, cqe);
            completer.publish_for_caller();
        }
    }

    /// If the thread waits and has enough now, its wait is over, and it is to be woken: once.
    #[inline(always)]
    fn after_posting(&mut self) -> Posted {
        let Waiting::For(wait) = self.waiting else { return Posted::Nothing };
        match self.answer(wait.min) {
            Some(answer) => {
                self.waiting = Waiting::Over(answer);
                Posted::Wake
            }
            None => Posted::Nothing,
        }
    }

    /// What a `cap_enter` that wants `min` completions is answered, if there are so many, or if they cannot be counted.
    #[inline(always)]
    pub fn answer(&mut self, min: u32) -> Option<u64> {
        match self.unread() {
            Ok(unread) => (unread >= min).then_some(u64::from(unread)),
            Err(fault) => Some(kernel::REFUSED | u64::from(fault.code().number())),
        }
    }

    /// How many completions the thread has not read.
    #[inline(always)]
    pub fn unread(&mut self) -> Result<u32, RingFault> {
        self.completer.as_mut().map_or(Ok(0), Completer::unread)
    }

    /// Ends one operation whose time has come; what it was, for its object to forget.
    pub fn expire(&mut self, thread: ThreadRef, now: Nanos) -> Option<(Awaits, Waiter)> {
        if self.timed == 0 {
            return None;
        }
        let slot = self.ops.iter().position(|op| op.as_ref().is_some_and(|op| op.deadline <= now))?;
        let op = self.remove(slot)?;
        let outcome = if op.awaits == Awaits::Time { Ok(0) } else { Err(CapError::TimedOut) };
        self.post(op.place, &completion(&op.request, outcome));
        Some((op.awaits, Waiter { thread, slot: slot as u8, serial: op.serial }))
    }

    /// When the next operation's time comes.
    #[must_use]
    pub fn next_deadline(&self) -> Nanos {
        if self.timed == 0 {
            return Nanos::MAX;
        }
        self.ops.iter().flatten().map(|op| op.deadline).min().unwrap_or(Nanos::MAX)
    }

    /// What the scheduler calls the wait: by the latest operation.
    #[must_use]
    #[inline(always)]
    pub fn kind(&self) -> WaitKind {
        self.latest.map_or(WaitKind::Ring, Awaits::kind)
    }

    /// Whether an operation may have ended by itself: by its deadline.
    #[must_use]
    pub fn may_be_due(&self) -> bool {
        self.timed != 0
    }
}
