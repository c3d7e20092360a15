//! Endpoints: where calls meet servers.
//!
//! Conserved: not both callers and servers wait at once. A received call is answered once: the number that the server
//! returns names a slot and its generation, and only the process that received it can use it.

use super::ProcessRef;
use super::inbox::Waiter;
use heapless::Deque;
use mainspring_abi::ring::CapError;
use spin::Mutex;

/// How many endpoints there can be.
pub const ENDPOINTS: usize = 32;
const QUEUE: usize = 64;
const RECEIVED: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Received {
    generation: u16,
    call: Option<(Waiter, ProcessRef)>,
}

/// Who waits at an endpoint, and which calls are being served.
#[derive(Debug)]
pub struct Endpoint {
    callers: Deque<Waiter, QUEUE>,
    servers: Deque<Waiter, QUEUE>,
    received: [Received; RECEIVED],
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
    const fn new() -> Self {
        Self {
            callers: Deque::new(),
            servers: Deque::new(),
            received: [Received { generation: 1, call: None }; RECEIVED],
        }
    }

    /// A server that waits.
    pub fn take_server(&mut self) -> Option<Waiter> {
        self.servers.pop_front()
    }

    /// A caller that waits.
    pub fn take_caller(&mut self) -> Option<Waiter> {
        self.callers.pop_front()
    }

    /// A caller waits.
    pub fn add_caller(&mut self, caller: Waiter) -> Result<(), CapError> {
        self.callers.push_back(caller).map_err(|_| CapError::Overloaded)
    }

    /// A server waits.
    pub fn add_server(&mut self, server: Waiter) -> Result<(), CapError> {
        self.servers.push_back(server).map_err(|_| CapError::Overloaded)
    }

    /// `server` has received `caller`'s call: the number to answer it by.
    pub fn receive(&mut self, caller: Waiter, server: ProcessRef) -> Result<u32, CapError> {
        let index = self.received.iter().position(|slot| slot.call.is_none()).ok_or(CapError::Overloaded)?;
        let slot = &mut self.received[index];
        slot.call = Some((caller, server));
        Ok(u32::from(slot.generation) << 16 | index as u32)
    }

    /// Takes the call back that `server` answers.
    pub fn answer(&mut self, call_id: u32, server: ProcessRef) -> Result<Waiter, CapError> {
        let slot = self.received.get_mut((call_id & 0xffff) as usize).ok_or(CapError::InvalidParameter)?;
        match slot.call {
            Some((caller, by)) if u32::from(slot.generation) == call_id >> 16 && by == server => {
                slot.call = None;
                slot.generation = slot.generation.wrapping_add(1).max(1);
                Ok(caller)
            }
            _ => Err(CapError::InvalidParameter),
        }
    }

    /// One caller whose call `server` received and will not answer any more.
    pub fn take_orphan(&mut self, server: ProcessRef) -> Option<Waiter> {
        let slot = self.received.iter_mut().find(|slot| slot.call.is_some_and(|(_, by)| by == server))?;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.call.take().map(|(caller, _)| caller)
    }

    /// `waiter` waits no longer.
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
            if slot.call.is_some_and(|(caller, _)| caller == waiter) {
                slot.call = None;
                slot.generation = slot.generation.wrapping_add(1).max(1);
            }
        }
    }
}
