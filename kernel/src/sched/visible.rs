//! What anybody can see or use of the kernel's objects, as one number.
//!
//! A request that is refused has changed nothing of it. Builds with debug assertions look before requests and after those
//! that are refused, and stop the machine at a difference. They do so on a machine with one CPU, where nobody else can have
//! changed anything meanwhile: the kernel is not interrupted. On others there is nothing to compare with. Work that is done in
//! pieces is compared if no interrupt and no other thread came between them.

use super::{leases, mine, per_cpus, wakeup};
use crate::arch;
use crate::object::endpoint;
use crate::object::process::{self, Process};
use crate::object::thread::{self, Thread};
use core::fmt::Debug;
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::ring::CapError;

const ON: bool = cfg!(debug_assertions);

static ASKED: AtomicU64 = AtomicU64::new(0);
/// Grows whenever others may have changed something.
static OTHERS: AtomicU64 = AtomicU64::new(0);
static COMPARED: AtomicU64 = AtomicU64::new(0);

/// What was seen before a request.
#[derive(Clone, Copy, Debug)]
#[must_use = "what was seen is to be compared with what is seen after a refusal"]
pub struct Seen(Option<Before>);

#[derive(Clone, Copy, Debug)]
struct Before {
    digest: u64,
    others: u64,
}

/// Others may change something from now on: an interrupt has come, or another thread runs.
#[inline(always)]
pub fn others_act() {
    if ON {
        OTHERS.fetch_add(1, Ordering::Relaxed);
    }
}

/// A digest of numbers, in their order.
#[derive(Debug)]
pub struct Digest(u64);

impl Digest {
    /// One more number.
    pub fn add(&mut self, number: u64) {
        // FNV-1a, by words.
        self.0 = (self.0 ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(5);
    }
}

/// Every request is looked at until there have been so many, then one of [`ONE_OF`]: a look takes longer than most requests.
const ALL_OF: u64 = 10_000;
const ONE_OF: u64 = 16;

/// Looks at everything, before a request of `thread`.
#[inline(always)]
pub fn look(thread: &Thread) -> Seen {
    let before = || Before { digest: digest(thread.process()), others: OTHERS.load(Ordering::Relaxed) };
    Seen((ON && is_due()).then(before))
}

fn is_due() -> bool {
    let asked = ASKED.fetch_add(1, Ordering::Relaxed);
    per_cpus().len() == 1 && (asked < ALL_OF || asked.is_multiple_of(ONE_OF))
}

impl Seen {
    /// The request was refused with `code`. A call that its caller had withdrawn is over once the server has heard of it:
    /// that is an outcome and no refusal.
    #[inline(always)]
    pub fn refused(self, thread: &Thread, code: CapError, request: impl Debug) {
        if let Some(before) = self.0
            && code != CapError::Cancelled
            && before.others == OTHERS.load(Ordering::Relaxed)
        {
            COMPARED.fetch_add(1, Ordering::Relaxed);
            assert_eq!(
                before.digest,
                digest(thread.process()),
                "a request was refused as {code:?} and has changed something: {request:?}"
            );
        }
    }
}

/// How many refusals were compared.
#[must_use]
pub fn compared() -> u64 {
    COMPARED.load(Ordering::Relaxed)
}

#[inline(never)]
fn digest(caller: &Process) -> u64 {
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    let heap = arch::allocations();
    for number in [
        arch::free_frames() + caller.tables(),
        heap.used,
        u64::from(thread::live()),
        u64::from(process::live()),
        u64::from(wakeup::pending_waits()),
        leases::live() as u64,
    ] {
        digest.add(number);
    }
    caller.digest(&mut digest);
    for process in process::all() {
        process.digest_outside(&mut digest);
    }
    for thread in (0..thread::MAX_THREADS as u32).map(thread::slot) {
        thread.digest(&mut digest);
    }
    for endpoint in endpoint::all() {
        endpoint.lock().digest(&mut digest);
    }
    let core = mine().lock();
    if let Some(entity) = core.cpu().running() {
        digest.add(u64::from(entity.weight().get()));
        digest.add(entity.class() as u64);
    }
    digest.add(core.cpu().queued() as u64);
    drop(core);
    digest.0
}
