//! A thread's side of its own ring: requests in, completions out, each completion to its caller.

use crate::arch;
use heapless::Vec;
use mainspring_abi::kernel::{
    CQ_ENTRIES, DIRECT_WORDS, DirectRequest, FOREVER, REFUSED, ReceivedCall, SQ_ENTRIES,
};
use mainspring_abi::ring::{CapCqe, CapError, CapSqe, CapSqeV2, RingAbi, op};
use mainspring_ring::{Geometry, Push, Reap, Reaper, SharedMemory, Submitter, Wakeup};

/// Completions that came before the thread asked for them.
const STASH: usize = 32;

/// A request that was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "its completion waits to be taken"]
pub struct Ticket(u64);

/// What a request came to: its result, or why it failed.
pub type Outcome = Result<u32, CapError>;

/// The ring client of one thread. It owns nothing that would have to be given back: a thread can end at any moment, and its
/// block goes with its stack.
pub struct Client {
    submitter: Submitter<&'static SharedMemory>,
    reaper: Reaper<&'static SharedMemory>,
    next: u64,
    stash: Vec<CapCqe, STASH>,
    busy: bool,
}

impl Client {
    pub(crate) fn new(memory: &'static SharedMemory) -> Self {
        let geometry =
            Geometry::new(RingAbi::V2, SQ_ENTRIES, CQ_ENTRIES).expect("the ABI's sizes are a ring's");
        Self {
            submitter: Submitter::new(memory, geometry),
            reaper: Reaper::new(memory, geometry),
            next: 1,
            stash: Vec::new(),
            busy: false,
        }
    }

    pub(crate) fn enter(&mut self) -> bool {
        !core::mem::replace(&mut self.busy, true)
    }

    pub(crate) fn leave(&mut self) {
        self.busy = false;
    }

    /// Puts a request into the ring. The kernel sees it at the next entry.
    #[inline(always)]
    pub fn submit(&mut self, mut request: CapSqeV2) -> Result<Ticket, CapError> {
        let ticket = self.next;
        self.next += 1;
        request.v1.user_data = ticket;
        match self.submitter.push(&request) {
            Push::Queued => {
                self.submitter.publish_for_caller();
                Ok(Ticket(ticket))
            }
            Push::Full => Err(CapError::Overloaded),
            Push::Fault(fault) => Err(fault.code()),
        }
    }

    /// Puts a request into a ring that the kernel polls: its ticket, and whether the poller sleeps and has to be woken by an
    /// entry.
    #[inline(always)]
    pub fn submit_to_poller(&mut self, mut request: CapSqeV2) -> Result<(Ticket, bool), CapError> {
        let ticket = self.next;
        self.next += 1;
        request.v1.user_data = ticket;
        match self.submitter.push(&request) {
            Push::Queued => Ok((Ticket(ticket), self.submitter.publish() == Wakeup::Needed)),
            Push::Full => Err(CapError::Overloaded),
            Push::Fault(fault) => Err(fault.code()),
        }
    }

    /// The completion of `ticket`, if it has come.
    #[inline(always)]
    pub fn take(&mut self, ticket: Ticket) -> Result<Option<CapCqe>, CapError> {
        if let Some(at) = self.stash.iter().position(|cqe| cqe.user_data == ticket.0) {
            return Ok(Some(self.stash.swap_remove(at)));
        }
        let found = self.search(ticket);
        self.reaper.publish_for_caller();
        found
    }

    #[inline(always)]
    fn search(&mut self, ticket: Ticket) -> Result<Option<CapCqe>, CapError> {
        loop {
            match self.reaper.reap() {
                Reap::Completion(cqe) if cqe.user_data == ticket.0 => return Ok(Some(cqe)),
                Reap::Completion(cqe) => self.stash.push(cqe).map_err(|_| CapError::Overloaded)?,
                Reap::Empty => return Ok(None),
                Reap::Fault(fault) => return Err(fault.code()),
            }
        }
    }
}

impl Client {
    /// Submits a request and waits for its completion. An error comes with the ticket if the request is still the kernel's.
    #[inline(always)]
    fn carry_out(&mut self, request: CapSqeV2) -> Result<u32, (CapError, Option<Ticket>)> {
        let ticket = self.submit(request).map_err(|code| (code, None))?;
        loop {
            enter_in_time(1, FOREVER).map_err(|code| (code, Some(ticket)))?;
            if let Some(cqe) = self.take(ticket).map_err(|code| (code, None))? {
                return outcome(&cqe).map_err(|code| (code, None));
            }
        }
    }
}

/// Enters the kernel: what was submitted is handed over. How many completions can be read.
#[inline]
pub fn enter(min_complete: u32, timeout_ns: u64) -> Result<u32, CapError> {
    let answer = arch::cap_enter(u64::from(min_complete), timeout_ns);
    if answer & REFUSED == 0 { Ok(answer as u32) } else { Err(refusal(answer)) }
}

/// As [`enter`]. A ring that is about to be polled, or to be polled no longer, cannot be entered for a moment: this tries again.
#[inline]
pub fn enter_in_time(min_complete: u32, timeout_ns: u64) -> Result<u32, CapError> {
    loop {
        match enter(min_complete, timeout_ns) {
            Err(CapError::Busy) => core::hint::spin_loop(),
            answer => return answer,
        }
    }
}

#[cold]
fn refusal(answer: u64) -> CapError {
    CapError::try_from(answer as u16).unwrap_or(CapError::InvalidRequest)
}

/// Carries out a request in registers: what stands before the message that comes back, and the message.
#[inline(always)]
pub fn direct(
    request: DirectRequest,
    call_id: u32,
    words: [u64; DIRECT_WORDS],
) -> Result<(ReceivedCall, [u64; DIRECT_WORDS]), CapError> {
    let (answer, head, words) = arch::cap_enter_direct(request.to_word(), call_id, words);
    if answer & REFUSED == 0 { Ok((head, words)) } else { Err(refusal(answer)) }
}

/// Puts a request into the calling thread's ring.
#[inline]
pub fn submit(request: CapSqeV2) -> Result<Ticket, CapError> {
    arch::client().submit(request)
}

/// Puts a request into the calling thread's ring, which the kernel polls: its ticket, and whether the poller has to be woken by an
/// [`enter`].
#[inline]
pub fn submit_to_poller(request: CapSqeV2) -> Result<(Ticket, bool), CapError> {
    arch::client().submit_to_poller(request)
}

/// The completion of `ticket`, if it has come.
#[inline]
pub fn poll(ticket: Ticket) -> Result<Option<CapCqe>, CapError> {
    arch::client().take(ticket)
}

/// Whether the completion of some request can be taken.
#[must_use]
pub fn any_completed() -> bool {
    let mut client = arch::client();
    // A ring that makes no sense is found out when it is read.
    !client.stash.is_empty() || client.reaper.available() != Ok(0)
}

/// Waits until some request is completed, for `timeout_ns` at most. A completion that was met while another one was looked for
/// counts: its owner has not taken it.
pub fn wait_any(timeout_ns: u64) -> Result<(), CapError> {
    if arch::client().stash.is_empty() {
        enter(1, timeout_ns)?;
    }
    Ok(())
}

/// Waits for the completion of `ticket`.
pub fn wait(ticket: Ticket) -> Result<u32, CapError> {
    loop {
        if let Some(cqe) = poll(ticket)? {
            return outcome(&cqe);
        }
        enter_in_time(1, FOREVER)?;
    }
}

/// Waits for the completion of `ticket`, at most `timeout_ns` for each completion that comes meanwhile: the outcome of the request, or
/// `None` if it has not come in time. An error of the wait itself leaves the request with the kernel.
pub fn wait_for(ticket: Ticket, timeout_ns: u64) -> Result<Option<Outcome>, CapError> {
    loop {
        if let Some(cqe) = poll(ticket)? {
            return Ok(Some(outcome(&cqe)));
        }
        if enter_in_time(1, timeout_ns)? == 0 {
            return Ok(None);
        }
    }
}

/// Withdraws the request of `ticket`: [`CapError::Cancelled`], or its outcome if it was done before. Nothing of it is left
/// anywhere then, and its buffers are the caller's again.
pub fn cancel(ticket: Ticket) -> Result<u32, CapError> {
    let request = CapSqe { op: op::CANCEL, params_addr: ticket.0, ..CapSqe::default() };
    let cancelled = submit(CapSqeV2::from_v1(request))?;
    enter(0, 0)?;
    match wait(cancelled) {
        Ok(_) | Err(CapError::NotFound) => wait(ticket),
        Err(error) => Err(error),
    }
}

/// A completion as a result.
#[inline]
pub fn outcome(cqe: &CapCqe) -> Outcome {
    if cqe.error == 0 { Ok(cqe.result) } else { Err(failure(cqe)) }
}

#[cold]
fn failure(cqe: &CapCqe) -> CapError {
    match cqe.error() {
        Ok(Some(error)) => error,
        _ => CapError::InvalidRequest,
    }
}

/// The request for a method.
#[must_use]
#[inline]
pub fn request(cap: u32, method: u16, params: &[u8], result: &mut [u8]) -> CapSqeV2 {
    CapSqeV2::from_v1(CapSqe {
        cap_id: cap,
        op: op::CALL,
        method_id: method,
        params_addr: params.as_ptr() as u64,
        params_len: params.len() as u32,
        result_addr: result.as_mut_ptr() as u64,
        result_len: result.len() as u32,
        ..CapSqe::default()
    })
}

/// Calls a method and waits for it.
pub fn call(cap: u32, method: u16, params: &[u8], result: &mut [u8]) -> Result<u32, CapError> {
    carry_out(request(cap, method, params, result))
}

/// The same with room for the answer at any address at all.
pub fn call_with_answer_at(cap: u32, method: u16, params: &[u8], address: u64) -> Result<u32, CapError> {
    let mut request = request(cap, method, params, &mut []);
    (request.v1.result_addr, request.v1.result_len) = (address, 4096);
    carry_out(request)
}

/// Submits a request and waits for its completion. If the thread may not wait, the request is withdrawn: its buffers are the
/// caller's again when this returns.
#[inline(always)]
pub fn carry_out(request: CapSqeV2) -> Result<u32, CapError> {
    let carried_out = arch::client().carry_out(request);
    match carried_out {
        Err((code, Some(ticket))) => withdraw(ticket, code),
        outcome => outcome.map_err(|(code, _)| code),
    }
}

/// The thread may not wait for `ticket`, for the reason that `code` is: the request's outcome, if it has come meanwhile.
#[cold]
fn withdraw(ticket: Ticket, code: CapError) -> Result<u32, CapError> {
    cancel(ticket).map_err(|_| code)
}

/// Calls a method and waits for it, for `timeout_ns` at most: then the call is withdrawn.
pub fn call_for(request: CapSqeV2, timeout_ns: u64) -> Result<u32, CapError> {
    let ticket = submit(request)?;
    match wait_for(ticket, timeout_ns) {
        Ok(Some(outcome)) => outcome,
        Ok(None) => match cancel(ticket) {
            Err(CapError::Cancelled) => Err(CapError::TimedOut),
            outcome => outcome,
        },
        Err(code) => withdraw(ticket, code),
    }
}
