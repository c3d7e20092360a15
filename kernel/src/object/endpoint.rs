//! Endpoints: where calls meet servers.
//!
//! Conserved: not both callers and servers wait at once. A received call is answered once: the number that the server
//! returns names a slot and its generation, and only the process that received it can use it. A received call that its
//! caller withdraws keeps its slot until the server answers, so that the server is told and the number means nothing else
//! meanwhile.

use super::ProcessRef;
use super::inbox::Waiter;
use heapless::Deque;
use mainspring_abi::ring::CapError;
use spin::Mutex;

/// How many endpoints there can be.
pub const ENDPOINTS: usize = 32;
const QUEUE: usize = 64;
const RECEIVED: usize = 64;

/// A call that a process has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Received {
    None,
    /// Its caller waits for the answer.
    Served {
        caller: Waiter,
        by: ProcessRef,
    },
    /// Nobody waits for the answer any more.
    Withdrawn {
        by: ProcessRef,
    },
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u16,
    call: Received,
}

impl Slot {
    /// Its number never means this call again.
    fn clear(&mut self) {
        self.call = Received::None;
        self.generation = self.generation.wrapping_add(1).max(1);
    }
}

/// Who waits at an endpoint, and which calls are being served.
#[derive(Debug)]
pub struct Endpoint {
    callers: Deque<Waiter, QUEUE>,
    servers: Deque<Waiter, QUEUE>,
    received: [Slot; RECEIVED],
}

static ENDPOINTS_TABLE: [Mutex<Endpoint>; ENDPOINTS] = [const { Mutex::new(Endpoint::new()) }; ENDPOINTS];

/// The endpoint with this number.
#[must_use]
pub fn endpoint(index: u32) -> &'static Mutex<Endpoint> {
    &ENDPOINTS_TABLE[index as usize]
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Mutex<Endpoint>> {
    ENDPOINTS_TABLE.iter()
}

impl Endpoint {
    /// One at which nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            callers: Deque::new(),
            servers: Deque::new(),
            received: [Slot { generation: 1, call: Received::None }; RECEIVED],
        }
    }

    /// The server that waits longest, and goes on waiting.
    #[must_use]
    pub fn first_server(&self) -> Option<Waiter> {
        self.servers.front().copied()
    }

    /// Whether a caller waits.
    #[must_use]
    pub fn has_caller(&self) -> bool {
        !self.callers.is_empty()
    }

    /// A server that waits.
    pub fn take_server(&mut self) -> Option<Waiter> {
        self.servers.pop_front()
    }

    /// A caller that waits.
    pub fn take_caller(&mut self) -> Option<Waiter> {
        self.callers.pop_front()
    }

    /// Whether one more caller can wait.
    #[must_use]
    pub fn has_room_for_caller(&self) -> bool {
        !self.callers.is_full()
    }

    /// Whether one more server can wait.
    #[must_use]
    pub fn has_room_for_server(&self) -> bool {
        !self.servers.is_full()
    }

    /// A caller waits.
    pub fn add_caller(&mut self, caller: Waiter) -> Result<(), CapError> {
        self.callers.push_back(caller).map_err(|_| CapError::Overloaded)
    }

    /// A server waits.
    pub fn add_server(&mut self, server: Waiter) -> Result<(), CapError> {
        self.servers.push_back(server).map_err(|_| CapError::Overloaded)
    }

    /// The number of a call that could be received next, if there is room for one.
    #[must_use]
    #[inline(always)]
    pub fn next_call(&self) -> Option<u32> {
        let mut slots = self.received.iter().zip(0_u32..);
        let (slot, index) = slots.find(|(slot, _)| matches!(slot.call, Received::None))?;
        Some(u32::from(slot.generation) << 16 | index)
    }

    /// `server` receives `caller`'s call under the number that [`Endpoint::next_call`] gave.
    #[inline(always)]
    pub fn receive_as(&mut self, call_id: u32, caller: Waiter, server: ProcessRef) {
        self.received[(call_id & 0xffff) as usize % RECEIVED].call = Received::Served { caller, by: server };
    }

    /// `server` receives `caller`'s call: the number to answer it by.
    pub fn receive(&mut self, caller: Waiter, server: ProcessRef) -> Result<u32, CapError> {
        let call_id = self.next_call().ok_or(CapError::Overloaded)?;
        self.receive_as(call_id, caller, server);
        Ok(call_id)
    }

    /// Who waits for the answer to the call `call_id`, which `server` received and goes on serving.
    #[must_use]
    pub fn caller_of(&self, call_id: u32, server: ProcessRef) -> Option<Waiter> {
        let slot = self.received.get((call_id & 0xffff) as usize)?;
        match slot.call {
            Received::Served { caller, by }
                if u32::from(slot.generation) == call_id >> 16 && by == server =>
            {
                Some(caller)
            }
            _ => None,
        }
    }

    /// The call `call_id`, which [`Endpoint::caller_of`] has found, is over.
    #[inline(always)]
    pub fn end_call(&mut self, call_id: u32) {
        if let Some(slot) = self.received.get_mut((call_id & 0xffff) as usize) {
            slot.clear();
        }
    }

    /// Takes the call back that `server` answers. A call that was withdrawn is over for the server too.
    pub fn answer(&mut self, call_id: u32, server: ProcessRef) -> Result<Waiter, CapError> {
        let slot = self.received.get_mut((call_id & 0xffff) as usize).ok_or(CapError::InvalidParameter)?;
        if u32::from(slot.generation) != call_id >> 16 {
            return Err(CapError::InvalidParameter);
        }
        match slot.call {
            Received::Served { caller, by } if by == server => {
                slot.clear();
                Ok(caller)
            }
            Received::Withdrawn { by } if by == server => {
                slot.clear();
                Err(CapError::Cancelled)
            }
            _ => Err(CapError::InvalidParameter),
        }
    }

    /// One caller whose call `server` received and will not answer any more.
    pub fn take_orphan(&mut self, server: ProcessRef) -> Option<Waiter> {
        for slot in &mut self.received {
            match slot.call {
                Received::Served { caller, by } if by == server => {
                    slot.clear();
                    return Some(caller);
                }
                Received::Withdrawn { by } if by == server => slot.clear(),
                _ => {}
            }
        }
        None
    }

    /// `waiter` waits no longer: it is in no queue, and who received its call is told when it answers.
    pub fn withdraw(&mut self, waiter: Waiter) {
        for queue in [&mut self.callers, &mut self.servers] {
            for _ in 0..queue.len() {
                if let Some(one) = queue.pop_front()
                    && one != waiter
                {
                    // It was in the queue just now, so there is room.
                    let _ = queue.push_back(one);
                }
            }
        }
        for slot in &mut self.received {
            match slot.call {
                Received::Served { caller, by } if caller == waiter => {
                    slot.call = Received::Withdrawn { by };
                }
                _ => {}
            }
        }
    }
}
