//! The leases of a process, by their places in the plan: who asks for them when, and what became of each.
//!
//! Conserved: what is told of a lease is what the kernel says of the last grant, or why there was none.

use crate::contexts::context;
use crate::plan::plan;
use crate::{QUIET, begin_poller};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use mainspring_abi::kernel::FOREVER;
use mainspring_abi::plan::{LEASE_WORDS, NONE, Note, lease_state, mode};
use mainspring_user::CapError;
use mainspring_user::caps::{self, LeaseGrant};
use mainspring_user::schema::{LeaseEnd, LeaseMode, NamedRing};
use spin::Mutex;

/// A lease of the plan.
pub struct Lease {
    pub process: u64,
    /// The instance that is isolated, as a table and an instance.
    pub thread: (u64, u64),
    pub cpus: u64,
    mode: u64,
    pub ring: Option<usize>,
    account: Option<(u64, u64)>,
    latency: u64,
    lifetime: u64,
    endpoint: u64,
    tickless: bool,
    /// When it is asked for without a step.
    pub start: Option<u64>,
    /// The last grant.
    held: Mutex<Option<caps::Lease>>,
    /// Why there was none.
    refused: AtomicU32,
    /// Its thread has given it back: the kernel knows nothing of it any more.
    released: AtomicBool,
}

impl Lease {
    pub fn new(words: [u64; LEASE_WORDS]) -> Self {
        let [
            process,
            table,
            instance,
            cpus,
            mode,
            ring,
            context,
            of_context,
            latency,
            lifetime,
            endpoint,
            tickless,
            start,
        ] = words;
        Self {
            process,
            thread: (table, instance),
            cpus,
            mode,
            ring: (ring != NONE).then_some(ring as usize),
            account: (context != NONE).then_some((context, of_context)),
            latency,
            lifetime,
            endpoint,
            tickless: tickless == 1,
            start: (start != NONE).then_some(start),
            held: Mutex::new(None),
            refused: AtomicU32::new(0),
            released: AtomicBool::new(false),
        }
    }

    /// Whether the kernel polls under it: the owner of its ring asks for it then.
    pub fn is_of_kernel_poller(&self) -> bool {
        self.mode == mode::KERNEL_SQPOLL
    }

    /// Asks for it: the thread that owns its ring, or any other thread of the process if it has none. One that is live is replaced,
    /// but for the lease of a poller.
    pub fn ask(&self) -> Result<(), CapError> {
        let asked = self.grant();
        if let Err(code) = asked {
            self.refused.store(u32::from(code as u16), Ordering::Relaxed);
        }
        asked
    }

    fn grant(&self) -> Result<(), CapError> {
        let bytes = self.cpus.to_le_bytes();
        let length = bytes.len() - self.cpus.leading_zeros() as usize / 8;
        let polls = self.is_of_kernel_poller();
        let before = *self.held.lock();
        let thread = plan().instance(self.thread.0, self.thread.1);
        let handle = plan().instances[thread].handle.load(Ordering::Acquire);
        if !polls && handle == 0 {
            return Err(CapError::PeerGone);
        }
        let spin = self.ring.map_or(0, |ring| plan().rings[ring].spin);
        let account = match self.account {
            Some((table, instance)) => {
                context(table, if instance == NONE { 0 } else { instance }).ok_or(CapError::NotFound)?.0
            }
            None => 0,
        };
        let endpoint = match self.endpoint {
            NONE => 0,
            number => crate::endpoint_cap("serve", number as usize),
        };
        let asked = LeaseGrant {
            cpus: &bytes[..length],
            mode: match self.mode {
                mode::KERNEL_SQPOLL => LeaseMode::KernelSqpoll,
                mode::POLLER => LeaseMode::UserspacePoller,
                mode::KERNEL_WORKER => LeaseMode::KernelWorker,
                _ => LeaseMode::Compute,
            },
            ring: if polls { NamedRing::CallerThread } else { NamedRing::None },
            max_revocation_latency_ns: self.latency,
            lifetime_ns: self.lifetime,
            thread: if polls { 0 } else { handle },
            account,
            revoke_endpoint: endpoint,
            replaces: before.filter(|_| !polls && self.is_live()).map_or(0, |lease| lease.cap),
            tickless: self.tickless,
            allow_busy_spin: polls && spin > 0,
            idle_spin_ns: spin,
            ..LeaseGrant::default()
        };
        let granted = caps::lease(&asked)?;
        *self.held.lock() = Some(granted);
        if let Some(before) = before {
            // It has ended, or was replaced just now.
            let _given_up = persist(|| before.release());
        }
        self.released.store(false, Ordering::Relaxed);
        if let Some(ring) = self.ring {
            let end = if self.lifetime == 0 { FOREVER } else { caps::now() + self.lifetime };
            plan().rings[ring].polled_until(end);
        }
        // The kernel's poller is the instance that the workload calls so.
        if polls && let Ok(info) = persist(|| granted.info()) {
            begin_poller(thread, info.lessee);
        }
        Ok(())
    }

    /// Whether it is granted and has not ended.
    pub fn is_live(&self) -> bool {
        self.held.lock().is_some_and(|held| held.info().is_ok_and(|info| info.end == LeaseEnd::Live))
    }

    /// It is taken back.
    pub fn revoke(&self) -> Result<(), CapError> {
        let held = *self.held.lock();
        persist(|| held.ok_or(CapError::NotFound)?.revoke())?;
        if let Some(ring) = self.ring {
            plan().rings[ring].polled_until(0);
        }
        Ok(())
    }

    /// Its thread gives it back.
    pub fn release(&self) -> Result<(), CapError> {
        let held = *self.held.lock();
        persist(|| held.ok_or(CapError::NotFound)?.release())?;
        *self.held.lock() = None;
        self.released.store(true, Ordering::Relaxed);
        if let Some(ring) = self.ring {
            plan().rings[ring].polled_until(0);
        }
        Ok(())
    }

    /// Its ring is polled no longer if it has ended by itself.
    pub fn look(&self) {
        if let Some(ring) = self.ring
            && self.held.lock().is_some()
            && !self.is_live()
        {
            plan().rings[ring].polled_until(0);
        }
    }

    /// Tells what became of it. It is of no use afterwards.
    pub fn tell(&self, number: usize) {
        let cpu = self.cpus.trailing_zeros();
        let held = *self.held.lock();
        let info = held.and_then(|held| held.info().ok());
        let state = match (&info, self.refused.load(Ordering::Relaxed)) {
            (Some(info), _) => lease_state::GRANTED + info.end as u32,
            (None, _) if self.released.load(Ordering::Relaxed) => {
                lease_state::GRANTED + LeaseEnd::Released as u32
            }
            (None, 0) => lease_state::NOT_ASKED,
            (None, code) => lease_state::REFUSED + code,
        };
        let counters = caps::telemetry(cpu).unwrap_or_default();
        crate::tell(Note::Lease {
            lease: number as u32,
            state,
            activations: counters.nohz_enter_lease.iter().sum(),
            suppressed: counters.ticks_suppressed_lease,
            polled_ns: counters.sqpoll_busy_ns,
            sleeps: counters.sqpoll_sleep_count,
        });
    }
}

/// What needs the thread's own CPU is refused when the poller of its ring takes it: it is tried again until the thread's own entry
/// does.
pub fn persist<T>(mut attempt: impl FnMut() -> Result<T, CapError>) -> Result<T, CapError> {
    loop {
        match attempt() {
            Err(CapError::NotPolled) => core::hint::spin_loop(),
            outcome => return outcome,
        }
    }
}

/// Asks for the leases of the rings that instance `number` owns and that are due.
pub fn ask_for_own(number: usize, now: u64) {
    for (place, lease) in plan().leases.iter().enumerate() {
        let owns = lease.is_of_kernel_poller()
            && lease.ring.is_some_and(|ring| plan().rings[ring].owner() == number);
        if owns && lease.start.is_some_and(|start| plan().began + start <= now) && mark_asked(place) {
            // Why it was refused is told at the end.
            let _granted = lease.ask();
        }
    }
}

/// Whether any lease of a ring that instance `number` owns has not been asked for yet.
pub fn is_due_to_ask(number: usize) -> bool {
    let of_rings =
        plan().leases.iter().enumerate().filter(|(place, _)| ASKED.load(Ordering::Relaxed) >> place & 1 == 0);
    of_rings.into_iter().any(|(_, lease)| {
        lease.is_of_kernel_poller()
            && lease.start.is_some()
            && lease.ring.is_some_and(|ring| plan().rings[ring].owner() == number)
    })
}

/// Leases of rings that have been asked for, bit by bit.
static ASKED: AtomicU32 = AtomicU32::new(0);

fn mark_asked(place: usize) -> bool {
    let _quiet = QUIET.lock();
    let asked = ASKED.load(Ordering::Relaxed);
    ASKED.store(asked | 1 << place, Ordering::Relaxed);
    asked >> place & 1 == 0
}
