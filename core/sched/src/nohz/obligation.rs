//! The proof obligations: each has a name, a check, a label for when it is met and one for each way that it is not.

use super::eligibility::{Kind, Origin};
use super::facts::{Facts, RingFacts};
use crate::lease::{LeaseRef, Mode, NamedRing, Standing, TargetStanding, Terms};
use crate::telemetry::NohzExit;
use core::fmt;
use mainspring_abi::{CpuId, Nanos};

/// Something that must hold for a CPU to be without a tick.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the labels of `Obligation::label` say the same")]
pub enum Obligation {
    LeaseLive,
    LeaseLifetime,
    LeaseMode,
    SoleCpu,
    TargetCpu,
    RemoteShape,
    DirectTarget,
    SoleRunnable,
    SiblingWork,
    Housekeeping,
    DeferredCleanup,
    Timers,
    Workers,
    Watchdog,
    NetworkPolling,
    IrqAffinity,
    AccountingTarget,
    Clock,
    SqConsumer,
    BusySpin,
    RevocationLatency,
    Rollback,
    PeriodicFallback,
    OneShot,
}

/// Why a CPU may not be without a tick.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the labels of `Obstacle::label` say the same")]
pub enum Obstacle {
    StaleLease,
    LeaseUnreadable,
    LeaseExpired,
    KindNotCovered,
    RingWithoutSqpoll,
    DevicesNotRouted,
    SeveralCpus,
    TargetMismatch,
    RemoteNotCompute,
    NothingRuns,
    SecondRunnable,
    NotTheCaller,
    NotPinned,
    DirectTarget,
    SiblingWork,
    NoHousekeeping,
    DeferredCleanup,
    GlobalTimers,
    TimerDue,
    UnboundWorker,
    Watchdog,
    NetworkPolling,
    FixedIrq,
    WrongPayer,
    TargetNotChargeable,
    TickClocksource,
    TickAccounting,
    RingChanged,
    RingContended,
    SecondConsumer,
    BusySpin,
    RevocationLatency,
    NotInterruptible,
    NoPeriodic,
    NoOneShot,
    RecordCleared,
}

type Checked = Result<&'static str, Obstacle>;

const fn unless(obstacle: bool, what: Obstacle, met: &'static str) -> Checked {
    if obstacle { Err(what) } else { Ok(met) }
}

impl Obligation {
    /// How many there are.
    pub const COUNT: usize = 24;

    /// Every obligation, in the order in which they are checked: whether the lease stands comes first.
    pub const ALL: [Self; Self::COUNT] = [
        Self::LeaseLive,
        Self::LeaseLifetime,
        Self::LeaseMode,
        Self::SoleCpu,
        Self::TargetCpu,
        Self::RemoteShape,
        Self::DirectTarget,
        Self::SoleRunnable,
        Self::SiblingWork,
        Self::Housekeeping,
        Self::DeferredCleanup,
        Self::Timers,
        Self::Workers,
        Self::Watchdog,
        Self::NetworkPolling,
        Self::IrqAffinity,
        Self::AccountingTarget,
        Self::Clock,
        Self::SqConsumer,
        Self::BusySpin,
        Self::RevocationLatency,
        Self::Rollback,
        Self::PeriodicFallback,
        Self::OneShot,
    ];

    /// As it stands in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::LeaseLive => "lease-live",
            Self::LeaseLifetime => "lease-lifetime",
            Self::LeaseMode => "lease-mode",
            Self::SoleCpu => "sole-cpu",
            Self::TargetCpu => "target-cpu",
            Self::RemoteShape => "remote-shape",
            Self::SoleRunnable => "sole-runnable",
            Self::DirectTarget => "direct-target",
            Self::SiblingWork => "sibling-work",
            Self::Housekeeping => "housekeeping",
            Self::DeferredCleanup => "deferred-cleanup",
            Self::Timers => "timers",
            Self::Workers => "workers",
            Self::Watchdog => "watchdog",
            Self::NetworkPolling => "network-polling",
            Self::IrqAffinity => "irq-affinity",
            Self::AccountingTarget => "accounting-target",
            Self::Clock => "clock",
            Self::SqConsumer => "sq-consumer",
            Self::BusySpin => "busy-spin",
            Self::RevocationLatency => "revocation-latency",
            Self::Rollback => "rollback",
            Self::PeriodicFallback => "periodic-fallback",
            Self::OneShot => "oneshot",
        }
    }

    /// Whether it is met: the label of how, or what stands in the way.
    pub fn check(self, facts: &Facts<'_>) -> Checked {
        let conditions = facts.conditions;
        match self {
            Self::LeaseLive => lease_live(facts).map(|_| "live"),
            Self::LeaseLifetime => by_terms(facts, lease_lifetime),
            Self::LeaseMode => by_terms(facts, lease_mode),
            Self::SoleCpu => by_terms(facts, sole_cpu),
            Self::TargetCpu => by_terms(facts, target_cpu),
            Self::RemoteShape => by_terms(facts, remote_shape),
            Self::DirectTarget => unless(facts.queue.direct_target, Obstacle::DirectTarget, "none"),
            Self::SoleRunnable => sole_runnable(facts),
            Self::SiblingWork => unless(conditions.sibling_work, Obstacle::SiblingWork, "none"),
            Self::Housekeeping => unless(!conditions.housekeeping, Obstacle::NoHousekeeping, "ready"),
            Self::DeferredCleanup => unless(conditions.deferred_cleanup, Obstacle::DeferredCleanup, "none"),
            Self::Timers => timers(facts),
            Self::Workers => unless(conditions.unbound_worker, Obstacle::UnboundWorker, "none"),
            Self::Watchdog => unless(conditions.watchdog, Obstacle::Watchdog, "elsewhere"),
            Self::NetworkPolling => unless(conditions.network_polling, Obstacle::NetworkPolling, "elsewhere"),
            Self::IrqAffinity => by_terms(facts, irq_affinity),
            Self::AccountingTarget => by_terms(facts, accounting_target),
            Self::Clock => clock(facts),
            Self::SqConsumer => by_terms(facts, sq_consumer),
            Self::BusySpin => by_terms(facts, busy_spin),
            Self::RevocationLatency => by_terms(facts, revocation_latency),
            Self::Rollback => unless(!conditions.interruptible, Obstacle::NotInterruptible, "interruptible"),
            Self::PeriodicFallback => unless(!conditions.periodic, Obstacle::NoPeriodic, "ready"),
            Self::OneShot => unless(!conditions.oneshot, Obstacle::NoOneShot, "ready"),
        }
    }
}

/// A check of the lease's terms: not met without a live lease.
fn by_terms(facts: &Facts<'_>, check: fn(&Facts<'_>, &Terms) -> Checked) -> Checked {
    lease_live(facts).and_then(|terms| check(facts, &terms))
}

fn lease_live(facts: &Facts<'_>) -> Result<Terms, Obstacle> {
    match facts.conditions.lease {
        Standing::Live(terms) if terms.lease == facts.claim.lease => Ok(terms),
        Standing::Live(_) | Standing::Stale => Err(Obstacle::StaleLease),
        Standing::Expired => Err(Obstacle::LeaseExpired),
        Standing::Contended => Err(Obstacle::LeaseUnreadable),
    }
}

fn lease_lifetime(facts: &Facts<'_>, terms: &Terms) -> Checked {
    let how = if terms.expires_at == Nanos::MAX { "unbounded" } else { "running" };
    unless(terms.expires_at <= facts.now, Obstacle::LeaseExpired, how)
}

fn sole_cpu(_: &Facts<'_>, terms: &Terms) -> Checked {
    unless(terms.sole_cpu.is_none(), Obstacle::SeveralCpus, "one")
}

fn target_cpu(facts: &Facts<'_>, terms: &Terms) -> Checked {
    unless(terms.sole_cpu != Some(facts.queue.cpu), Obstacle::TargetMismatch, "this")
}

fn lease_mode(facts: &Facts<'_>, terms: &Terms) -> Checked {
    if !facts.claim.kind.is_covered_by(terms.mode) {
        return Err(Obstacle::KindNotCovered);
    }
    let routed = facts.conditions.devices_on_housekeeping;
    if terms.mode == Mode::DeviceOwner && !routed {
        return Err(Obstacle::DevicesNotRouted);
    }
    let polled = terms.mode == Mode::KernelSqpoll;
    unless(
        terms.ring == NamedRing::CallerThread && !polled && !routed,
        Obstacle::RingWithoutSqpoll,
        terms.mode.label(),
    )
}

fn remote_shape(facts: &Facts<'_>, terms: &Terms) -> Checked {
    match facts.claim.origin {
        Origin::Local { .. } => Ok("local"),
        Origin::Remote { .. } => {
            let compute = terms.mode == Mode::Compute && terms.ring == NamedRing::None;
            unless(!compute, Obstacle::RemoteNotCompute, "remote")
        }
    }
}

fn sole_runnable(facts: &Facts<'_>) -> Checked {
    let Some(runner) = facts.queue.running else { return Err(Obstacle::NothingRuns) };
    if facts.queue.runnable != 1 {
        return Err(Obstacle::SecondRunnable);
    }
    match facts.claim.origin {
        Origin::Local { caller, .. } if runner.thread == caller => Ok("exactly-one-runnable-caller"),
        Origin::Local { poller, .. } if poller == Some(runner.thread) => Ok("exactly-one-runnable-poller"),
        Origin::Local { .. } => Err(Obstacle::NotTheCaller),
        // The thread that asks runs elsewhere; a thread that runs here under its name is not its
        // target.
        Origin::Remote { caller } if runner.thread == caller => Err(Obstacle::NotTheCaller),
        Origin::Remote { .. } => {
            unless(!runner.pinned, Obstacle::NotPinned, "exactly-one-runnable-remote-target")
        }
    }
}

fn timers(facts: &Facts<'_>) -> Checked {
    if facts.conditions.global_timers {
        return Err(Obstacle::GlobalTimers);
    }
    let nearest = facts.queue.next_wakeup.min(facts.conditions.next_wakeup);
    unless(nearest <= facts.now, Obstacle::TimerDue, "none-due")
}

fn irq_affinity(facts: &Facts<'_>, terms: &Terms) -> Checked {
    let how = if facts.conditions.fixed_irq { "allowed" } else { "elsewhere" };
    unless(facts.conditions.fixed_irq && !terms.allow_irqs, Obstacle::FixedIrq, how)
}

/// What runs under the lease is charged to the target that the lease names, and to no other.
fn accounting_target(facts: &Facts<'_>, terms: &Terms) -> Checked {
    if terms.target != facts.claim.accounting_target || terms.target != facts.conditions.payer {
        return Err(Obstacle::WrongPayer);
    }
    let chargeable = facts.conditions.target == TargetStanding::Chargeable;
    unless(!chargeable, Obstacle::TargetNotChargeable, "chargeable")
}

fn clock(facts: &Facts<'_>) -> Checked {
    if !facts.conditions.stable_clock {
        return Err(Obstacle::TickClocksource);
    }
    unless(!facts.conditions.boundary_accounting, Obstacle::TickAccounting, "boundary-driven")
}

fn sq_consumer(facts: &Facts<'_>, terms: &Terms) -> Checked {
    if terms.ring == NamedRing::None {
        return Ok("no-ring");
    }
    match facts.conditions.ring {
        RingFacts::Contended => Err(Obstacle::RingContended),
        RingFacts::Sqpoll { other_consumer: true, .. } => Err(Obstacle::SecondConsumer),
        RingFacts::Sqpoll { owner_live: true, .. } => Ok("blocked-sqpoll-owner"),
        // A ring that the kernel does not poll is its owner's alone.
        RingFacts::NotSqpoll if terms.mode != Mode::KernelSqpoll => Ok("caller-owned"),
        RingFacts::NoRing | RingFacts::NotSqpoll | RingFacts::Sqpoll { .. } => Err(Obstacle::RingChanged),
    }
}

fn busy_spin(facts: &Facts<'_>, terms: &Terms) -> Checked {
    let ring_spins = matches!(facts.conditions.ring, RingFacts::Sqpoll { spinning: true, .. });
    let spins = (terms.ring == NamedRing::CallerThread && ring_spins)
        || facts.claim.kind == Kind::AutoUserspacePoller;
    let how = if spins { "allowed" } else { "none" };
    unless(spins && !facts.claim.allow_busy_spin, Obstacle::BusySpin, how)
}

fn revocation_latency(facts: &Facts<'_>, terms: &Terms) -> Checked {
    let latency = facts.claim.max_revocation_latency;
    let possible = facts.conditions.min_delta <= latency && !latency.is_zero();
    unless(!possible || latency > terms.max_revocation_latency, Obstacle::RevocationLatency, "bounded")
}

impl Obstacle {
    /// Every obstacle.
    pub const ALL: [Self; 36] = [
        Self::StaleLease,
        Self::LeaseUnreadable,
        Self::LeaseExpired,
        Self::KindNotCovered,
        Self::RingWithoutSqpoll,
        Self::DevicesNotRouted,
        Self::SeveralCpus,
        Self::TargetMismatch,
        Self::RemoteNotCompute,
        Self::NothingRuns,
        Self::SecondRunnable,
        Self::NotTheCaller,
        Self::NotPinned,
        Self::DirectTarget,
        Self::SiblingWork,
        Self::NoHousekeeping,
        Self::DeferredCleanup,
        Self::GlobalTimers,
        Self::TimerDue,
        Self::UnboundWorker,
        Self::Watchdog,
        Self::NetworkPolling,
        Self::FixedIrq,
        Self::WrongPayer,
        Self::TargetNotChargeable,
        Self::TickClocksource,
        Self::TickAccounting,
        Self::RingChanged,
        Self::RingContended,
        Self::SecondConsumer,
        Self::BusySpin,
        Self::RevocationLatency,
        Self::NotInterruptible,
        Self::NoPeriodic,
        Self::NoOneShot,
        Self::RecordCleared,
    ];

    /// As it stands in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::StaleLease => "stale-lease-generation",
            Self::LeaseUnreadable => "lease-unreadable",
            Self::LeaseExpired => "lease-lifetime-expired",
            Self::KindNotCovered => "kind-not-covered",
            Self::RingWithoutSqpoll => "ring-without-kernel-sqpoll",
            Self::DevicesNotRouted => "devices-not-routed",
            Self::SeveralCpus => "several-cpus",
            Self::TargetMismatch => "target-cpu-mismatch",
            Self::RemoteNotCompute => "remote-not-compute",
            Self::NothingRuns => "nothing-runs",
            Self::SecondRunnable => "second-runnable",
            Self::NotTheCaller => "not-the-caller",
            Self::NotPinned => "not-pinned",
            Self::DirectTarget => "direct-target-runnable",
            Self::SiblingWork => "stealable-sibling-work",
            Self::NoHousekeeping => "no-housekeeping-cpu",
            Self::DeferredCleanup => "deferred-cleanup",
            Self::GlobalTimers => "global-timers",
            Self::TimerDue => "timer-due",
            Self::UnboundWorker => "unbound-worker",
            Self::Watchdog => "watchdog",
            Self::NetworkPolling => "network-polling",
            Self::FixedIrq => "unmigratable-irq",
            Self::WrongPayer => "accounting-target-mismatch",
            Self::TargetNotChargeable => "accounting-target-not-chargeable",
            Self::TickClocksource => "tick-clocksource",
            Self::TickAccounting => "tick-accounting",
            Self::RingChanged => "sqpoll-ring-mode-changed-or-owner-staled",
            Self::RingContended => "ring-contended",
            Self::SecondConsumer => "second-sq-consumer",
            Self::BusySpin => "busy-spin-not-allowed",
            Self::RevocationLatency => "revocation-latency-out-of-policy",
            Self::NotInterruptible => "not-interruptible",
            Self::NoPeriodic => "no-periodic-fallback",
            Self::NoOneShot => "no-oneshot",
            Self::RecordCleared => "record-cleared",
        }
    }

    /// How a window that ends for this is counted.
    #[must_use]
    pub const fn exit(self) -> NohzExit {
        match self {
            Self::StaleLease => NohzExit::StaleLease,
            Self::LeaseExpired => NohzExit::LeaseExpired,
            Self::LeaseUnreadable => NohzExit::NotReproved,
            Self::TargetMismatch => NohzExit::TargetMismatch,
            Self::SecondRunnable => NohzExit::SecondRunnable,
            Self::DirectTarget => NohzExit::DirectTarget,
            Self::SiblingWork => NohzExit::SiblingWork,
            Self::NothingRuns => NohzExit::WentIdle,
            Self::DeferredCleanup => NohzExit::DeferredCleanup,
            Self::TimerDue => NohzExit::TimerDue,
            Self::RingChanged | Self::RingContended | Self::SecondConsumer => NohzExit::RingChanged,
            Self::NoOneShot => NohzExit::NoOneShot,
            Self::RecordCleared => NohzExit::RecordCleared,
            Self::KindNotCovered
            | Self::RingWithoutSqpoll
            | Self::DevicesNotRouted
            | Self::SeveralCpus
            | Self::RemoteNotCompute
            | Self::NotTheCaller
            | Self::NotPinned
            | Self::NoHousekeeping
            | Self::GlobalTimers
            | Self::UnboundWorker
            | Self::Watchdog
            | Self::NetworkPolling
            | Self::FixedIrq
            | Self::WrongPayer
            | Self::TargetNotChargeable
            | Self::TickClocksource
            | Self::TickAccounting
            | Self::BusySpin
            | Self::RevocationLatency
            | Self::NotInterruptible
            | Self::NoPeriodic => NohzExit::Rollback,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The state of every obligation, for a caller that wants to know why a CPU is not tickless. It decides
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preflight {
    /// The lease that was asked about.
    pub lease: LeaseRef,
    /// The CPU on which was looked.
    pub cpu: CpuId,
    /// The only CPU of the lease.
    pub target: Option<CpuId>,
    /// How many threads could run there.
    pub runnable: usize,
    results: [Checked; Obligation::COUNT],
}

impl Preflight {
    pub(super) fn look(facts: &Facts<'_>) -> Self {
        let target = match facts.conditions.lease {
            Standing::Live(terms) => terms.sole_cpu,
            Standing::Stale | Standing::Expired | Standing::Contended => None,
        };
        Self {
            lease: facts.claim.lease,
            cpu: facts.queue.cpu,
            target,
            runnable: facts.queue.runnable,
            results: Obligation::ALL.map(|obligation| obligation.check(facts)),
        }
    }

    /// Each obligation, and whether it is met: the label of how, or what stands in the way.
    pub fn lines(&self) -> impl Iterator<Item = (Obligation, Result<&'static str, Obstacle>)> + '_ {
        Obligation::ALL.into_iter().zip(self.results)
    }

    /// The first thing that stands in the way.
    #[must_use]
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.results.iter().find_map(|result| result.err())
    }
}

impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease={} cpu={} runnable={}", self.lease, self.cpu, self.runnable)?;
        for (obligation, result) in self.lines() {
            match result {
                Ok(how) => write!(f, " {}={how}", obligation.label())?,
                Err(obstacle) => write!(f, " {}=BLOCKED:{obstacle}", obligation.label())?,
            }
        }
        Ok(())
    }
}
