//! CPUs to oneself: what a lease gives, what it does not, whom it keeps away, when its CPU is without a tick, and how it ends.
//!
//! The last CPU is leased again and again. Its counters say what happened there.
#![no_std]
#![no_main]

extern crate alloc;

mod endings;
mod placement;
mod rollback;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use mainspring_user::caps::{self, Lease, LeaseGrant, LeaseInfo, Thread, ThreadOptions};
use mainspring_user::schema::{LeaseEnd, LeaseMode, NamedRing, Obligation};
use mainspring_user::{CapError, arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;

fn main() -> i64 {
    if let Some(code) = endings::as_child(caps::arguments()) {
        return code;
    }
    let cpus = caps::usage().expect("usage can be read").cpus;
    let cpu = cpus - 1;
    refusals(cpus);
    grant_and_info(cpu);
    without_a_tick(cpu);
    on_a_context(cpu);
    placement::others_stay_away(cpus, cpu);
    placement::sleepers_leave(cpu);
    placement::those_that_may_run_nowhere_else(cpu);
    rollback::each_cause(cpu);
    rollback::from_another_cpu(cpu);
    endings::storm(cpus);
    endings::each_reason(cpu);
    assert_eq!(caps::usage().expect("usage can be read").hard_path_allocations, 0);
    say!("cpu-isolation-lease: all=ok cpus={cpus}");
    0
}

/// The mask of one CPU.
fn mask(cpu: u32) -> [u8; 1] {
    [1 << cpu]
}

fn info(of: Lease) -> LeaseInfo {
    of.info().expect("a lease says what it is")
}

/// A thread that computes until it is told to stop; how often it has gone around.
struct Busy {
    thread: Thread,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU32>,
}

impl Busy {
    fn start(cpus: u64) -> Self {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (ends, counts) = (stop.clone(), rounds.clone());
        let options = ThreadOptions { cpus, ..ThreadOptions::default() };
        let thread = caps::spawn(options, move || {
            while !ends.load(Ordering::Relaxed) {
                arch::spin(1000);
                counts.fetch_add(1, Ordering::Relaxed);
            }
            0
        });
        Self { thread: thread.expect("within the quota"), stop, rounds }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        assert_eq!(self.thread.join(), Ok(0));
        self.thread.detach().expect("a handle can be dropped");
    }

    /// Whether it gets on.
    fn gets_on(&self) -> bool {
        let before = self.rounds.load(Ordering::Relaxed);
        caps::comes_true(MS, || self.rounds.load(Ordering::Relaxed) != before)
    }

    fn cpu(&self) -> u32 {
        caps::thread_info(self.thread.slot(), |info| info.get_cpu()).expect("it lives")
    }
}

/// Leases `cpu` for a thread that computes, and waits until it has no tick.
fn tickless(cpu: u32, lessee: &Busy, asked: LeaseGrant<'_>) -> Lease {
    let cpus = mask(cpu);
    let asked = LeaseGrant { cpus: &cpus, thread: lessee.thread.cap(), ..asked };
    let lease = caps::lease(&asked).expect("the CPU is free");
    assert!(caps::comes_true(MS, || info(lease).tickless_since_ns != 0), "{:?}", lease.preflight());
    lease
}

/// What cannot be granted is refused, and nothing has changed: the CPU is free afterwards.
//= ARCH:lease.overlap
//= ARCH:nohz.refuse
//= ARCH:ctx.cpumask
fn refusals(cpus: u32) {
    let last = mask(cpus - 1);
    let good = LeaseGrant { cpus: &last, ..LeaseGrant::default() };
    let refused = |asked: LeaseGrant<'_>| caps::lease(&asked).map(|_| ()).expect_err("it is refused");
    assert_eq!(refused(LeaseGrant { cpus: &[], ..good }), CapError::InvalidParameter, "no CPU");
    assert_eq!(refused(LeaseGrant { cpus: &[8, 0], ..good }), CapError::InvalidParameter, "not canonical");
    assert_eq!(refused(LeaseGrant { cpus: &[0xff; 65], ..good }), CapError::InvalidParameter, "too long");
    assert_eq!(refused(LeaseGrant { cpus: &[0, 0x80], ..good }), CapError::InvalidParameter, "offline");
    let all = [(1 << cpus) - 1];
    assert_eq!(
        refused(LeaseGrant { cpus: &all, ..good }),
        CapError::Denied,
        "nobody would do the housekeeping"
    );
    let others = [(1 << (cpus - 1)) - 1];
    let excluded = LeaseGrant { housekeeping_exclusions: &others, ..good };
    assert_eq!(refused(excluded), CapError::Denied, "nobody may do the housekeeping");
    for latency in [0, u64::MAX, 1_000_000_001] {
        let asked = LeaseGrant { max_revocation_latency_ns: latency, ..good };
        assert_eq!(refused(asked), CapError::InvalidParameter, "its end would not be felt in time");
    }
    for mode in [LeaseMode::UserspacePoller, LeaseMode::KernelWorker, LeaseMode::DeviceOwner] {
        assert_eq!(refused(LeaseGrant { mode, ..good }), CapError::Denied, "for a policy service to allow");
    }
    let ring = LeaseGrant { ring: NamedRing::CallerThread, ..good };
    assert_eq!(refused(ring), CapError::Denied, "a ring that the kernel does not poll");
    for stranger in [caps::need("timer"), 77, u32::MAX] {
        let named = [
            LeaseGrant { thread: stranger, ..good },
            LeaseGrant { account: stranger, ..good },
            LeaseGrant { revoke_endpoint: stranger, ..good },
            LeaseGrant { replaces: stranger, ..good },
        ];
        for asked in named {
            let why = refused(asked);
            assert!(matches!(why, CapError::InvalidParameter | CapError::InvalidCapability), "{why:?}");
        }
    }
    let client = LeaseGrant { revoke_endpoint: caps::need("call:e"), ..good };
    assert_eq!(refused(client), CapError::InvalidParameter, "a client posts nothing past its share");
    let nowhere = caps::lease_with_answer_at(&good, 0xffff_8000_0000_0000);
    assert_eq!(nowhere, Err(CapError::BadAddress), "who cannot be told is granted nothing");
    let own = Busy::start(1);
    let elsewhere = LeaseGrant { thread: own.thread.cap(), ..good };
    assert_eq!(refused(elsewhere), CapError::Denied, "a thread that may not run there");
    own.end();
    let lease = caps::lease(&good).expect("nothing of what was refused is left");
    assert_eq!(refused(good), CapError::Busy, "it is leased already");
    lease.release().expect("it is this process's");
    say!("cpu-isolation-lease: refusals=ok");
}

/// A lease is granted, says what it is, is taken back, and its name is worth nothing then.
//= ARCH:proof.lease
//= EVO:S5.lease-record
//= ARCH:lease.preflight
//= TICK:L3.eligibility
fn grant_and_info(cpu: u32) {
    let cpus = mask(cpu);
    let asked = LeaseGrant { cpus: &cpus, tickless: false, ..LeaseGrant::default() };
    let lease = caps::lease(&asked).expect("the CPU is free");
    let known = info(lease);
    assert_eq!((known.id, known.generation, known.end), (lease.id, lease.generation, LeaseEnd::Live));
    assert_eq!((known.cpus, known.mode, known.context), (1 << cpu, LeaseMode::Compute, 0));
    assert_eq!((known.max_revocation_latency_ns, known.expires_at_ns), (100 * MS, 0));
    let here = caps::thread_info(known.lessee, |info| info.get_cpu()).expect("it lives");
    assert_eq!(here, cpu, "the lessee is where its lease is");
    let found = lease.preflight().expect("it is live");
    assert_eq!((found.id, found.cpus, found.cpu), (lease.id, 1 << cpu, cpu));
    assert_eq!(found.housekeepers, (1 << cpu) - 1, "all others do the housekeeping");
    assert_eq!(found.runnable, 1, "the lessee asks");
    assert_eq!(found.blocked, 0, "{found:?}");
    for (obligation, label) in [
        (Obligation::LeaseLive, "live"),
        (Obligation::LeaseLifetime, "unbounded"),
        (Obligation::SoleRunnable, "exactly-one-runnable-caller"),
        (Obligation::RemoteShape, "local"),
        (Obligation::Housekeeping, "ready"),
        (Obligation::DeferredCleanup, "none"),
        (Obligation::Timers, "none-due"),
        (Obligation::NetworkPolling, "elsewhere"),
        (Obligation::IrqAffinity, "elsewhere"),
        (Obligation::AccountingTarget, "chargeable"),
        (Obligation::Clock, "boundary-driven"),
        (Obligation::SqConsumer, "no-ring"),
        (Obligation::RevocationLatency, "bounded"),
        (Obligation::Rollback, "interruptible"),
        (Obligation::PeriodicFallback, "ready"),
    ] {
        assert_eq!(found.label(obligation), label);
    }
    assert_eq!(info(lease).tickless_since_ns, 0, "nobody has asked for a CPU without a tick");
    lease.revoke().expect("it is live");
    assert_eq!(info(lease).end, LeaseEnd::Revoked);
    assert_eq!(lease.preflight().map(|_| ()), Err(CapError::InvalidCapability));
    assert_eq!(lease.revoke(), Err(CapError::InvalidCapability));
    assert_eq!(lease.activate(), Err(CapError::InvalidCapability));
    lease.release().expect("what has ended can be forgotten");
    assert_eq!(lease.info().map(|_| ()), Err(CapError::InvalidCapability), "the number means nothing");
    say!("cpu-isolation-lease: grant=ok info=ok preflight=ok revoke=ok");
}

/// For a second a thread that computes has no tick at all, and is charged for all of it.
//= ARCH:nohz.activate
//= ARCH:nohz.accounting
//= ARCH:nohz.admit-compute
//= TICK:tax.lease
//= TICK:nongoal.generic-nohz
//= TICK:tax.nohz
fn without_a_tick(cpu: u32) {
    // Without a lease a thread alone on its CPU ticks.
    let free = Busy::start(1 << cpu);
    assert!(free.gets_on());
    let before = caps::cpu_counters(cpu).expect("the CPU exists");
    let ticks = || caps::cpu_counters(cpu).expect("the CPU exists").ticks - before.ticks;
    assert!(caps::comes_true(10 * MS, || ticks() >= 10), "there is no lease, and no tick");
    free.end();

    let lessee = Busy::start(0);
    let lease =
        tickless(cpu, &lessee, LeaseGrant { max_revocation_latency_ns: 1000 * MS, ..LeaseGrant::default() });
    let mut measured = None;
    // A look at the lease in the moment in which its CPU proves its window again makes that tick for a moment.
    assert!(caps::comes_true(MS, || {
        let (first, began) = (info(lease), caps::now());
        caps::sleep_until(began + 1000 * MS).expect("within the quota");
        let (last, took) = (info(lease), caps::now() - began);
        let interrupts = last.timer_interrupts - first.timer_interrupts;
        let same = last.tickless_since_ns == first.tickless_since_ns && first.tickless_since_ns != 0;
        let holds = same && last.ticks == first.ticks && interrupts <= took.div_ceil(1000 * MS);
        measured = holds.then_some((first, took, interrupts));
        holds
    }));
    let (first, took, interrupts) = measured.expect("it came true");
    assert!(lessee.gets_on());
    lessee.end();
    // Both were charged when the thread stopped. Nobody else has run there meanwhile.
    let spared = info_ended(lease, cpu, first.ticks_suppressed);
    assert!(spared >= took / (10 * MS) - 1, "{spared} ticks spared in {took} ns");
    lease.release().expect("it is this process's");
    exact_accounts(cpu);
    say!("cpu-isolation-lease: tickless=ok ticks=0 timer_interrupts={interrupts} spared={spared}");
}

/// The lessee has ended, and its lease with it; how many ticks its CPU was spared.
fn info_ended(lease: Lease, cpu: u32, before: u64) -> u64 {
    assert!(caps::comes_true(MS, || info(lease).end == LeaseEnd::Revoked), "its thread has ended");
    let cpus = mask(cpu);
    let again = caps::lease(&LeaseGrant { cpus: &cpus, tickless: false, ..LeaseGrant::default() });
    let again = again.expect("the CPU is free");
    let spared = info(again).ticks_suppressed - before;
    again.release().expect("it is this process's");
    spared
}

/// What the CPU has charged while it had no tick is what the lessee has run, to the nanosecond, and no less than has passed.
fn exact_accounts(cpu: u32) {
    let measured = caps::spawn(ThreadOptions::default(), move || {
        let cpus = mask(cpu);
        let lease =
            caps::lease(&LeaseGrant { cpus: &cpus, ..LeaseGrant::default() }).expect("the CPU is free");
        // It is charged when it stops: before each look it does so for a moment.
        let look = || {
            caps::sleep(MS).expect("within the quota");
            let own = caps::account().expect("one's own account can be read").runtime_ns;
            (own, caps::cpu_counters(cpu).expect("the CPU exists").busy_ns)
        };
        let ((own_before, cpu_before), began) = (look(), caps::now());
        while caps::now() < began + 300 * MS {
            arch::spin(100_000);
        }
        let took = caps::now() - began;
        let (own, all) = look();
        assert_eq!(own - own_before, all - cpu_before, "somebody has run there and was not charged");
        assert!(own - own_before >= took, "{} of {took} ns were charged", own - own_before);
        lease.release().expect("it is this process's");
        0
    });
    let measured = measured.expect("within the quota");
    assert_eq!(measured.join(), Ok(0));
    measured.detach().expect("a handle can be dropped");
    say!("cpu-isolation-lease: accounts=exact");
}

/// A lease that names a context: the CPU ticks until its lessee runs on that context, and what it uses is the context's.
//= TICK:tax.context
//= EVO:S4.bind-scope
fn on_a_context(cpu: u32) {
    let context = caps::Context(caps::need("context:a"));
    let home = context.info().expect("the context is there").cpu;
    let options = ThreadOptions { cpus: 1 << home, ..ThreadOptions::default() };
    let lessee = caps::spawn(options, move || {
        let cpus = mask(home);
        let asked = LeaseGrant { cpus: &cpus, account: context.0, ..LeaseGrant::default() };
        let lease = caps::lease(&asked).expect("the CPU is free");
        assert_eq!(info(lease).context, context.info().expect("it is there").id);
        let found = lease.preflight().expect("it is live");
        assert!(!found.is_met(Obligation::AccountingTarget), "{found:?}");
        assert_eq!(found.label(Obligation::AccountingTarget), "accounting-target-mismatch");
        let used = || context.info().expect("it is there").used_ns;
        context.bind().expect("it is free");
        assert!(lease.preflight().expect("it is live").is_met(Obligation::AccountingTarget));
        let (before, began) = (used(), caps::now());
        // Longer than its budget: a lease is no time.
        while caps::now() < began + 50 * MS {
            arch::spin(10_000);
        }
        caps::sleep(MS).expect("within the quota");
        let (after, info) = (used(), context.info().expect("it is there"));
        assert!(after > before && info.depletions > 0, "a lease is no CPU time: {info:?}");
        context.unbind().expect("it is bound");
        lease.release().expect("it is this process's");
        0
    });
    let lessee = lessee.expect("within the quota");
    assert_eq!(lessee.join(), Ok(0));
    lessee.detach().expect("a handle can be dropped");
    say!("cpu-isolation-lease: context=ok cpu={home} other={cpu}");
}
