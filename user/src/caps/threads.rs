//! ThreadSpawner, ThreadControl, ThreadHandle, ParkSpace and SchedulingPolicy.

use super::{call_for, call_with, find, need, with_params};
use crate::{arch, client};
use alloc::boxed::Box;
use mainspring_abi::kernel::MOST_WOKEN;
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;

/// Lets others go first, once.
pub fn yield_now() {
    let _ = client::call(need("control"), schema::ThreadControlMethod::Yield as u16, &[], &mut []);
}

/// Sets the FS base of the calling thread.
pub fn set_fs_base(base: u64) -> Result<u32, CapError> {
    let method = schema::ThreadControlMethod::SetFsBase as u16;
    call_with::<schema::set_fs_base::Owned>(need("control"), method, |mut params| params.set_base(base))
}

/// What a new thread is to be. More weight than its maker's, or service sooner, is refused unless the process has the
/// capability `policy`, which is shown then.
#[derive(Clone, Copy, Debug)]
pub struct ThreadOptions {
    /// Its share.
    pub weight: u32,
    /// How soon it wants service.
    pub class: schema::LatencyClass,
    /// Service asked for at a time; 0 leaves that to the class.
    pub request_ns: u64,
    /// Bit n for CPU n; 0 for all.
    pub cpus: u64,
}

impl Default for ThreadOptions {
    fn default() -> Self {
        Self { weight: 64, class: schema::LatencyClass::Normal, request_ns: 0, cpus: 0 }
    }
}

/// A thread that was made.
#[derive(Debug)]
pub struct Thread {
    cap: u32,
    slot: u32,
}

/// Makes a thread of this process.
pub fn spawn(options: ThreadOptions, job: impl FnOnce() -> i64 + Send + 'static) -> Result<Thread, CapError> {
    let (entry, argument) = arch::job_to_argument(Box::new(job));
    let made = spawn_raw(options, entry, argument);
    if made.is_err() {
        arch::drop_job(argument);
    }
    made
}

/// Makes a thread that begins at any address at all.
pub fn spawn_raw(options: ThreadOptions, entry: u64, argument: u64) -> Result<Thread, CapError> {
    let method = schema::ThreadSpawnerMethod::Create as u16;
    create_with(options, entry, argument, |bytes| {
        call_for::<schema::handle::Owned, _>(need("threads"), method, bytes, |made| Thread {
            cap: made.get_cap(),
            slot: made.get_slot(),
        })
    })?
}

/// Asks for a thread whose handle is to be written to `address`, which need not be the caller's: for programs that try what
/// they may not.
pub fn spawn_with_answer_at(options: ThreadOptions, address: u64) -> Result<u32, CapError> {
    let method = schema::ThreadSpawnerMethod::Create as u16;
    create_with(options, 0x5000_0000, 0, |bytes| {
        client::call_with_answer_at(need("threads"), method, bytes, address)
    })?
}

fn create_with<T>(
    options: ThreadOptions,
    entry: u64,
    argument: u64,
    work: impl FnOnce(&[u8]) -> T,
) -> Result<T, CapError> {
    with_params::<schema::thread_create::Owned, _>(
        |mut params| {
            params.set_entry(entry);
            params.set_argument(argument);
            params.set_weight(options.weight);
            params.set_latency_class(options.class);
            params.set_request_ns(options.request_ns);
            params.set_cpus(options.cpus);
            params.set_policy(find("policy").unwrap_or(0));
        },
        work,
    )
}

impl Thread {
    /// A thread of which a capability is known, and not its slot.
    #[must_use]
    pub fn from_cap(cap: u32) -> Self {
        Self { cap, slot: u32::MAX }
    }

    /// Waits for its end; its exit code.
    pub fn join(&self) -> Result<i32, CapError> {
        client::call(self.cap, schema::ThreadHandleMethod::Join as u16, &[], &mut []).map(|code| code as i32)
    }

    /// Waits for its end until `deadline_ns`.
    pub fn join_until(&self, deadline_ns: u64) -> Result<i32, CapError> {
        let method = schema::ThreadHandleMethod::Join as u16;
        call_with::<schema::deadline::Owned>(self.cap, method, |mut params| {
            params.set_deadline_ns(deadline_ns);
        })
        .map(|code| code as i32)
    }

    /// Forgets it; it goes on.
    pub fn detach(self) -> Result<(), CapError> {
        client::call(self.cap, schema::ThreadHandleMethod::Detach as u16, &[], &mut []).map(|_| ())
    }

    /// Ends it, the next time that it would go on in user mode.
    pub fn kill(&self) -> Result<(), CapError> {
        client::call(self.cap, schema::ThreadHandleMethod::Kill as u16, &[], &mut []).map(|_| ())
    }

    /// Its place in the kernel's table, which is what the flight record calls it.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Its number, which after `detach` is stale.
    #[must_use]
    pub fn cap(&self) -> u32 {
        self.cap
    }
}

/// Waits while the word at `address` is `expected`, until `deadline_ns` (0 for no end). Whether it was woken, rather
/// than the word being another already.
pub fn park(address: u64, expected: u32, deadline_ns: u64) -> Result<bool, CapError> {
    let method = schema::ParkSpaceMethod::Wait as u16;
    call_with::<schema::park_wait::Owned>(need("park"), method, |mut params| {
        params.set_address(address);
        params.set_expected(expected);
        params.set_deadline_ns(deadline_ns);
    })
    .map(|changed| changed == 0)
}

/// Wakes at most `count` that wait at `address`; how many.
pub fn unpark(address: u64, count: u32) -> Result<u32, CapError> {
    let method = schema::ParkSpaceMethod::Wake as u16;
    let mut woken = 0;
    loop {
        let some = call_with::<schema::park_wake::Owned>(need("park"), method, |mut params| {
            params.set_address(address);
            params.set_count(count - woken);
        })?;
        woken += some;
        if some < MOST_WOKEN || woken >= count {
            return Ok(woken);
        }
    }
}

/// Sets the calling thread's weight.
pub fn set_weight(weight: u64) -> Result<u32, CapError> {
    let method = schema::SchedulingPolicyMethod::SetWeight as u16;
    call_with::<schema::set_weight::Owned>(need("policy"), method, |mut params| params.set_weight(weight))
}

/// Gives `thread`, of which this is a handle, another weight.
pub fn set_weight_of(thread: &Thread, weight: u64) -> Result<u32, CapError> {
    let method = schema::SchedulingPolicyMethod::SetWeightOf as u16;
    call_with::<schema::set_weight_of::Owned>(need("policy"), method, |mut params| {
        params.set_thread(thread.cap());
        params.set_weight(weight);
    })
}

/// CPU time that the calling thread has had, the interval in progress included.
fn cpu_time() -> Result<u64, CapError> {
    let account = account()?;
    Ok(account.runtime_ns + super::now().saturating_sub(account.last_started_ns))
}

/// CPU time that the thread in this slot, which is the calling one, has had, the interval in progress included. A ring that the
/// kernel polls can ask this, too.
pub fn cpu_time_of(slot: u32) -> Result<u64, CapError> {
    let (runtime, started) =
        super::thread_info(slot, |info| (info.get_runtime_ns(), info.get_last_started_ns()))?;
    Ok(runtime + super::now().saturating_sub(started))
}

/// Computes until the calling thread has had `ns` more of the CPU.
pub fn compute(ns: u64) -> Result<(), CapError> {
    compute_by(cpu_time, ns)
}

/// The same for the thread in this slot, which is the calling one and may have a ring that the kernel polls.
pub fn compute_in(slot: u32, ns: u64) -> Result<(), CapError> {
    compute_by(|| cpu_time_of(slot), ns)
}

fn compute_by(cpu_time: impl Fn() -> Result<u64, CapError>, ns: u64) -> Result<(), CapError> {
    let end = cpu_time()? + ns;
    loop {
        let left = end.saturating_sub(cpu_time()?);
        if left == 0 {
            return Ok(());
        }
        // Somewhat less than what is left, and then a look at the clock.
        arch::spin((left / 4).clamp(200, 100_000));
    }
}

/// Sets the calling thread's latency class.
pub fn set_latency_class(class: schema::LatencyClass) -> Result<u32, CapError> {
    let method = schema::SchedulingPolicyMethod::SetLatencyClass as u16;
    let set = |mut params: schema::set_latency_class::Builder<'_>| params.set_latency_class(class);
    call_with::<schema::set_latency_class::Owned>(need("policy"), method, set)
}

/// The calling thread's latency class.
pub fn latency_class() -> Result<schema::LatencyClass, CapError> {
    let method = schema::SchedulingPolicyMethod::Snapshot as u16;
    call_for::<schema::snapshot::Owned, _>(need("policy"), method, &[], |account| {
        account.get_latency_class().map_err(|_| CapError::InvalidParameter)
    })?
}

/// The calling thread's account.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct Account {
    pub weight: u16,
    pub runtime_ns: u64,
    pub virtual_runtime_ns: u64,
    pub voluntary_blocks: u64,
    pub preemptions: u64,
    pub runnable_ns: u64,
    pub last_started_ns: u64,
}

/// Reads the calling thread's account.
pub fn account() -> Result<Account, CapError> {
    let method = schema::SchedulingPolicyMethod::Snapshot as u16;
    call_for::<schema::snapshot::Owned, _>(need("policy"), method, &[], |account| Account {
        weight: account.get_weight(),
        runtime_ns: account.get_runtime_ns(),
        virtual_runtime_ns: account.get_virtual_runtime_ns(),
        voluntary_blocks: account.get_voluntary_blocks(),
        preemptions: account.get_preemptions(),
        runnable_ns: account.get_runnable_accumulated_ns(),
        last_started_ns: account.get_last_started_ns(),
    })
}
