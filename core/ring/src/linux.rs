//! Rings between Linux processes: a sealed `memfd` mapped by both, and futexes to sleep on.
//!
//! [`Client::create`] makes the ring and a file, to be passed to the process that shall serve it: by inheritance to a child
//! or through a Unix socket. The [`Server`] opens it, and distrusts everything in it. The client does the same in return:
//! each side keeps its own indices and checks the other's.
//!
//! Sleeping always has a timeout. A peer that dies or lies can delay the other side by that, and no more.

use crate::complete::Completer;
use crate::consume::{Next, SubmissionQueue};
use crate::fault::RingFault;
use crate::geometry::{Geometry, GeometryError};
use crate::mode::{AccountingTarget, Idle, Sqpoll, SqpollGrant, StartFinish, StartRequest, TrySleep};
use crate::owner::{Finished, SqLease, SqOwner};
use crate::reap::{Reap, Reaper};
use crate::region::Region;
use crate::shared::Mapping;
use crate::submit::{Push, Submitter};
use crate::sync::{AtomicU32, AtomicU64};
use crate::wake::{Sleep, Ticket, Wakeup};
use crate::{CqPlace, Dispatch};
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;
use mainspring_abi::Nanos;
use mainspring_abi::ring::{CapCqe, CapSqeV2, word};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::thread::futex;
use std::time::Instant;

/// The most bytes that a ring can take; a larger file is not one.
const FILE_MAX: u64 = 1 << 24;

/// How often an idle server looks before it asks for the time.
const LOOKS_PER_CLOCK: u32 = 32;

/// A ring in memory that processes share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedRing(Arc<Mapping>);

impl Region for SharedRing {
    #[inline]
    fn word(&self, index: usize) -> &AtomicU32 {
        self.0.word(index)
    }

    #[inline]
    fn slots(&self) -> &[AtomicU64] {
        self.0.slots()
    }
}

/// Why a file is not a ring that this process can use.
#[derive(Debug)]
pub enum OpenError {
    /// A system call failed.
    System(Errno),
    /// The file can be shrunk while we use it; make it with [`Client::create`], or add F_SEAL_SHRINK.
    NotSealed,
    /// The file is too small or too large to be a ring.
    Size(u64),
    /// What is in it is no ring that we speak.
    Geometry(GeometryError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(errno) => errno.fmt(f),
            Self::NotSealed => f.write_str("the file may shrink under us; seal it with F_SEAL_SHRINK"),
            Self::Size(bytes) => write!(f, "a file of {bytes} bytes is no ring"),
            Self::Geometry(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<GeometryError> for OpenError {
    fn from(error: GeometryError) -> Self {
        Self::Geometry(error)
    }
}

/// Makes a ring of this shape in a new file that can neither shrink nor grow.
pub fn create(geometry: &Geometry) -> Result<(SharedRing, OwnedFd), OpenError> {
    let file = memfd_create(c"mainspring-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, geometry.bytes() as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let ring = SharedRing(Arc::new(Mapping::new(&file, geometry.bytes())?));
    geometry.format(&ring)?;
    Ok((ring, file))
}

/// Maps a ring that another process made.
pub fn open(file: impl AsFd) -> Result<(SharedRing, Geometry), OpenError> {
    if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
        return Err(OpenError::NotSealed);
    }
    let bytes = fstat(&file)?.st_size as u64;
    if bytes > FILE_MAX || bytes < mainspring_abi::ring::SLOTS_OFFSET as u64 {
        return Err(OpenError::Size(bytes));
    }
    let ring = SharedRing(Arc::new(Mapping::new(&file, bytes as usize)?));
    let geometry = Geometry::attach(&ring)?;
    Ok((ring, geometry))
}

/// Sleeps until the doorbell moves on from `ticket`, a wake comes, or the time is over. Whichever: look again.
fn sleep(region: &impl Region, doorbell: usize, ticket: Ticket, at_most: Duration) {
    let timeout = futex::Timespec {
        tv_sec: at_most.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // Not private: the other side is another process. Every error means only that there was no sleep.
    let _ = futex::wait(region.word(doorbell), futex::Flags::empty(), ticket.count(), Some(&timeout));
}

fn wake(region: &impl Region, doorbell: usize) {
    let _ = futex::wake(region.word(doorbell), futex::Flags::empty(), 1);
}

/// The side that asks.
pub struct Client<R: Region> {
    submitter: Submitter<R>,
    reaper: Reaper<R>,
    wakes: u64,
}

impl Client<SharedRing> {
    /// A new ring, and the file to pass on to its server.
    pub fn create(geometry: Geometry) -> Result<(Self, OwnedFd), OpenError> {
        let (ring, file) = create(&geometry)?;
        Ok((Self::new(ring, geometry), file))
    }
}

impl<R: Region + Clone> Client<R> {
    /// The asking side of a fresh ring.
    pub fn new(region: R, geometry: Geometry) -> Self {
        let submitter = Submitter::new(region.clone(), geometry);
        Self { submitter, reaper: Reaper::new(region, geometry), wakes: 0 }
    }

    /// Writes one request; the server sees it after [`Client::publish`].
    #[inline]
    pub fn push(&mut self, request: &CapSqeV2) -> Push {
        self.submitter.push(request)
    }

    /// Shows all written requests to the server, and wakes it if it sleeps.
    #[inline]
    pub fn publish(&mut self) {
        if self.submitter.publish() == Wakeup::Needed {
            self.wake_server();
        }
    }

    /// The next completion, if there is one. Call [`Client::give_back`] after a batch of them.
    #[inline]
    pub fn reap(&mut self) -> Reap {
        self.reaper.reap()
    }

    /// Gives the slots of all completions read back to the server.
    #[inline]
    pub fn give_back(&mut self) {
        if self.reaper.publish() == Wakeup::Needed {
            self.wake_server();
        }
    }

    /// The next completion, asleep until there is one, for at most `at_most`; `None` when none came.
    pub fn wait(&mut self, at_most: Duration) -> Result<Option<CapCqe>, RingFault> {
        let until = Instant::now() + at_most;
        loop {
            match self.reaper.reap() {
                Reap::Completion(cqe) => return Ok(Some(cqe)),
                Reap::Fault(fault) => return Err(fault),
                Reap::Empty => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if let Sleep::Park(ticket) = self.reaper.prepare_wait() {
                sleep(self.reaper.region(), word::CQ_WAKES, ticket, left);
                self.reaper.awake();
            }
        }
    }

    /// How often the server had to be woken.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    #[cold]
    fn wake_server(&mut self) {
        self.wakes += 1;
        self.submitter.ring_doorbell();
        wake(self.submitter.region(), word::SQ_WAKES);
    }
}

/// What one look at the ring found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the server idles, sleeps or stops on it"]
pub enum Served {
    /// It handled requests.
    Requests(u32),
    /// There was nothing to do.
    Nothing,
    /// There is a request, but no room for its completion.
    HeldBack,
    /// A shared index makes no sense; nothing was consumed.
    Fault(RingFault),
}

/// How the server's wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "after a timeout the client may be gone"]
pub enum Waited {
    /// Look again: something came, or the spin goes on.
    LookAgain,
    /// It slept for the whole time.
    TimedOut,
}

/// The side that answers: a poller with the ring to itself.
pub struct Server<R: Region> {
    sq: SubmissionQueue<R>,
    cq: Completer<R>,
    sqpoll: Sqpoll,
    lease: SqLease,
    epoch: Instant,
}

impl Server<SharedRing> {
    /// The answering side of a ring that another process made.
    pub fn open(file: BorrowedFd<'_>, spin: Duration) -> Result<Self, OpenError> {
        let (ring, geometry) = open(file)?;
        Ok(Self::new(ring, geometry, spin))
    }
}

impl<R: Region + Clone> Server<R> {
    /// The answering side of a fresh ring. It looks for `spin` before it sleeps.
    pub fn new(region: R, geometry: Geometry, spin: Duration) -> Self {
        let sq = SubmissionQueue::new(region.clone(), geometry);
        let cq = Completer::new(region, geometry);
        let mut sqpoll = Sqpoll::default();
        let spin = Nanos::new(u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX));
        let grant = SqpollGrant { accounting: AccountingTarget::SchedulerLedger, spin };
        let lease = start(&sq, &mut sqpoll, grant).expect("a fresh ring has no other consumer");
        Self { sq, cq, sqpoll, lease, epoch: Instant::now() }
    }

    /// Handles at most `limit` requests, shows their completions, and wakes the client if it sleeps.
    #[inline]
    pub fn serve(&mut self, limit: u32, dispatch: &mut impl Dispatch<R>) -> Served {
        if self.sq.shows_nothing() {
            return Served::Nothing;
        }
        let Ok(mut service) = self.sq.begin(&self.lease, limit) else {
            unreachable!("nobody else knows the ownership record");
        };
        let end = loop {
            match service.next(&mut self.cq) {
                Next::Accepted(request, place) => dispatch.dispatch(request, place, &mut self.cq),
                end => break end,
            }
        };
        let requests = service.accepted();
        let finished = service.finish();
        debug_assert_eq!(finished, Finished::LeaseKept);
        self.publish();
        if requests > 0 {
            self.sqpoll.found_work();
            return Served::Requests(requests);
        }
        match end {
            Next::HeldBack => Served::HeldBack,
            Next::Fault(fault) => Served::Fault(fault),
            _ => Served::Nothing,
        }
    }

    /// Posts a completion that was kept back.
    pub fn complete(&mut self, place: CqPlace, cqe: &CapCqe) {
        self.cq.complete(place, cqe);
        self.publish();
    }

    /// After [`Served::Nothing`] and its like: spins, or sleeps for at most `at_most`.
    pub fn idle(&mut self, at_most: Duration) -> Waited {
        // Reading the clock takes longer than looking: look a few times first.
        for _ in 0..LOOKS_PER_CLOCK {
            if !self.sq.shows_nothing() {
                break;
            }
            core::hint::spin_loop();
        }
        let now = Nanos::new(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if let Idle::Spin { .. } = self.sqpoll.found_nothing(now) {
            return Waited::LookAgain;
        }
        let TrySleep::Asleep(ticket) = self.sqpoll.try_sleep(&self.sq, &self.lease, &mut self.cq) else {
            return Waited::LookAgain;
        };
        let began = Instant::now();
        sleep(self.sq.region(), word::SQ_WAKES, ticket, at_most);
        let _ = self.sqpoll.wake(&self.sq);
        if began.elapsed() >= at_most { Waited::TimedOut } else { Waited::LookAgain }
    }

    /// How often it slept.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        self.sqpoll.counters().sleeps
    }

    #[inline]
    fn publish(&mut self) {
        if self.cq.publish() == Wakeup::Needed {
            self.cq.ring_doorbell();
            wake(self.sq.region(), word::CQ_WAKES);
        }
    }
}

/// The way into SQPOLL that a kernel takes, too: own, offer, release, take over.
fn start<R: Region>(sq: &SubmissionQueue<R>, sqpoll: &mut Sqpoll, grant: SqpollGrant) -> Option<SqLease> {
    let caller = sq.acquire(SqOwner::Syscall).ok()?;
    let StartRequest::Requested = sqpoll.request_start(sq, &caller, grant) else { return None };
    sq.release(caller).ok()?;
    match sqpoll.finish_start(sq) {
        StartFinish::Running(lease) => Some(lease),
        _ => None,
    }
}
