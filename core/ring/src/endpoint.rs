//! One ring as a kernel keeps it: the consumer's halves of both queues, the mode, and what `cap_enter` does.

use crate::complete::Completer;
use crate::consume::{Next, Service, SubmissionQueue};
use crate::fault::RingFault;
use crate::geometry::{Geometry, GeometryError};
use crate::mode::{PollerState, RingMode, RingScope, Sqpoll};
use crate::owner::{Finished, Revoked, SqLease, SqOwner, SqRefusal};
use crate::pass::{SQES_PER_PASS, ServicePass};
use crate::region::Region;
use crate::{CqPlace, Wakeup};
use mainspring_abi::ring::{CapError, CapSqeV2};

/// What carries requests out. It completes each at once, or keeps the place and completes later.
pub trait Dispatch<R: Region> {
    /// Handles one accepted request.
    fn dispatch(&mut self, request: CapSqeV2, place: CqPlace, cq: &mut Completer<R>);
}

impl<R: Region, F: FnMut(CapSqeV2, CqPlace, &mut Completer<R>)> Dispatch<R> for F {
    fn dispatch(&mut self, request: CapSqeV2, place: CqPlace, cq: &mut Completer<R>) {
        self(request, place, cq);
    }
}

/// What `cap_enter` found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the caller may have to block or to try again"]
pub enum CapEnter {
    /// Enough completions can be read.
    Available {
        /// How many.
        completions: u32,
    },
    /// Too few, and everything that could be done now was done: block until one comes or the timeout ends.
    Block {
        /// How many there are.
        completions: u32,
    },
    /// Refused; see the code. Busy is worth another try, the rest is not.
    Refused(CapError),
}

/// What a pass did for one poller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the poller idles, sleeps or stops on it"]
pub enum Polled {
    /// It handled requests.
    Served {
        /// How many.
        requests: u32,
    },
    /// There was nothing to do.
    Idle,
    /// There is a request, but no room for its completion.
    HeldBack,
    /// It has had its turn in this pass, or does not poll.
    NotSelected,
    /// The lease has ended; nothing was consumed.
    Refused(SqRefusal),
    /// A shared index makes no sense; nothing was consumed.
    Fault(RingFault),
    /// The lease ended with this service, past what it had accepted.
    Stopped {
        /// How many it handled before.
        requests: u32,
    },
}

/// The parts of a ring that a machine keeps apart, brought together for one operation.
pub struct RingParts<'a, R: Region> {
    /// The submission queue.
    pub sq: &'a SubmissionQueue<R>,
    /// The completion queue.
    pub cq: &'a mut Completer<R>,
    /// The mode.
    pub sqpoll: &'a mut Sqpoll,
}

/// A ring that a poller can drive.
pub trait Pollable<R: Region> {
    /// Its parts.
    fn ring(&mut self) -> RingParts<'_, R>;
}

impl<R: Region> Pollable<R> for Endpoint<R> {
    fn ring(&mut self) -> RingParts<'_, R> {
        RingParts { sq: &self.sq, cq: &mut self.cq, sqpoll: &mut self.sqpoll }
    }
}

impl<R: Region> Pollable<R> for RingParts<'_, R> {
    fn ring(&mut self) -> RingParts<'_, R> {
        RingParts { sq: self.sq, cq: self.cq, sqpoll: self.sqpoll }
    }
}

impl<R: Region> RingParts<'_, R> {
    /// One poller's turn in `pass`, at most `limit` requests ([`SQES_PER_PASS`] by default).
    pub fn poll(
        &mut self,
        pass: ServicePass,
        lease: &SqLease,
        limit: u32,
        dispatch: &mut impl Dispatch<R>,
    ) -> Polled {
        if !self.sqpoll.select(pass) || self.sqpoll.poller() == PollerState::Sleeping {
            return Polled::NotSelected;
        }
        let service = match self.sq.begin(lease, limit) {
            Ok(service) => service,
            Err(refusal) => return Polled::Refused(refusal),
        };
        let Served { requests, end, finished } = serve(service, self.cq, dispatch);
        if requests > 0 {
            self.sqpoll.found_work();
        }
        match (finished, end) {
            (Finished::LeaseEnded, _) => Polled::Stopped { requests },
            (_, Next::Fault(fault)) => Polled::Fault(fault),
            _ if requests > 0 => Polled::Served { requests },
            (_, Next::HeldBack) => Polled::HeldBack,
            _ => Polled::Idle,
        }
    }
}

/// One ring.
pub struct Endpoint<R: Region> {
    sq: SubmissionQueue<R>,
    cq: Completer<R>,
    sqpoll: Sqpoll,
}

impl<R: Region + Clone> Endpoint<R> {
    /// The kernel's side of a thread's ring in `region`, if it is one that this kernel speaks.
    pub fn attach(region: R) -> Result<Self, GeometryError> {
        Self::attach_as(region, RingScope::Thread)
    }

    /// The same of a ring of this scope.
    pub fn attach_as(region: R, scope: RingScope) -> Result<Self, GeometryError> {
        let geometry = Geometry::attach(&region)?;
        Ok(Self {
            sq: SubmissionQueue::new(region.clone(), geometry),
            cq: Completer::new(region, geometry),
            sqpoll: Sqpoll::new(scope),
        })
    }
}

impl<R: Region> Endpoint<R> {
    /// The submission queue.
    pub fn sq(&self) -> &SubmissionQueue<R> {
        &self.sq
    }

    /// The completion queue.
    pub fn cq(&mut self) -> &mut Completer<R> {
        &mut self.cq
    }

    /// The mode.
    pub fn sqpoll(&self) -> &Sqpoll {
        &self.sqpoll
    }

    /// The three at once, for transitions that need all.
    pub fn parts(&mut self) -> (&SubmissionQueue<R>, &mut Completer<R>, &mut Sqpoll) {
        (&self.sq, &mut self.cq, &mut self.sqpoll)
    }

    /// The ring's thread enters: handles what is pending, then says whether `min_complete` completions can be read.
    ///
    /// In syscall mode it takes the queue and drains what was there. In SQPOLL mode it never takes the queue: it
    /// may handle one bounded batch on the poller's lease, and wakes the poller.
    pub fn cap_enter(&mut self, min_complete: u32, dispatch: &mut impl Dispatch<R>) -> CapEnter {
        let refusal = match self.sqpoll.mode() {
            RingMode::Syscall => self.drain(SqOwner::Syscall, dispatch).err(),
            RingMode::SqpollStarting | RingMode::SqpollStopping => Some(CapError::Busy),
            RingMode::Sqpoll => {
                let _ = self.sqpoll.wake(&self.sq);
                self.kick(dispatch).err()
            }
        };
        let completions = match self.cq.unread() {
            Ok(completions) => completions,
            Err(fault) => return CapEnter::Refused(fault.code()),
        };
        // More than the queue can hold never comes.
        let enough = min_complete.min(self.sq.geometry().cq_entries());
        match refusal {
            // Enough completions can be read, so a busy consumer does not matter; only a broken ring
            // is refused all the same.
            Some(CapError::Busy) | None if completions >= enough => CapEnter::Available { completions },
            Some(code) => CapEnter::Refused(code),
            None => CapEnter::Block { completions },
        }
    }

    /// The bounded service of the current thread's ring at a timer interrupt: at most `limit` requests. Refused
    /// while a poller has the ring, so that the head never has a second consumer.
    pub fn timer_service(&mut self, limit: u32, dispatch: &mut impl Dispatch<R>) -> Result<u32, CapError> {
        self.with_lease(SqOwner::Timer, limit, dispatch)
    }

    fn drain(&mut self, owner: SqOwner, dispatch: &mut impl Dispatch<R>) -> Result<u32, CapError> {
        // One queue's worth: a submitter that keeps adding cannot keep us here.
        self.with_lease(owner, self.sq.geometry().sq_entries(), dispatch)
    }

    fn with_lease(
        &mut self,
        owner: SqOwner,
        limit: u32,
        dispatch: &mut impl Dispatch<R>,
    ) -> Result<u32, CapError> {
        let lease = self.sq.acquire(owner).map_err(SqRefusal::code)?;
        let served = match self.sq.begin(&lease, limit) {
            Ok(service) => serve(service, &mut self.cq, dispatch),
            Err(refusal) => return Err(refusal.code()),
        };
        // A revocation meanwhile has released it for us.
        let _ = self.sq.release(lease);
        match served.end {
            Next::Fault(fault) => Err(fault.code()),
            _ => Ok(served.requests),
        }
    }

    fn kick(&mut self, dispatch: &mut impl Dispatch<R>) -> Result<u32, CapError> {
        let service = self.sq.begin_borrowed(SQES_PER_PASS).map_err(SqRefusal::code)?;
        let served = serve(service, &mut self.cq, dispatch);
        match served.end {
            Next::Fault(fault) => Err(fault.code()),
            _ => Ok(served.requests),
        }
    }

    /// One poller's turn in `pass`, at most `limit` requests ([`SQES_PER_PASS`] by default).
    pub fn poll(
        &mut self,
        pass: ServicePass,
        lease: &SqLease,
        limit: u32,
        dispatch: &mut impl Dispatch<R>,
    ) -> Polled {
        self.ring().poll(pass, lease, limit, dispatch)
    }

    /// Posts a completion that was kept back.
    pub fn complete(&mut self, place: CqPlace, cqe: &mainspring_abi::ring::CapCqe) -> Wakeup {
        self.cq.complete(place, cqe);
        self.cq.publish()
    }

    /// The thread or process ends: no consumer begins again, and completions stay readable. While
    /// [`Revoked::AfterService`] is the answer, another consumer still serves and the memory must
    /// stay.
    pub fn tear_down(&mut self) -> Revoked {
        let revoked = self.sq.close();
        self.cq.publish_for_caller();
        revoked
    }
}

struct Served {
    requests: u32,
    end: Next,
    finished: Finished,
}

fn serve<R: Region>(
    mut service: Service<'_, R>,
    cq: &mut Completer<R>,
    dispatch: &mut impl Dispatch<R>,
) -> Served {
    let end = loop {
        match service.next_here(cq) {
            Next::Accepted(request, place) => dispatch.dispatch(request, place, cq),
            end => break end,
        }
    };
    let requests = service.accepted();
    let finished = service.finish();
    cq.publish_for_caller();
    Served { requests, end, finished }
}
