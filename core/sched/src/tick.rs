//! The scheduler tick of one CPU: periodic, suppressed in idle or under a lease, or forced.
//!
//! Conserved: a CPU always has a next timer interrupt. `Periodic` and `ForcedPeriodic` have the next tick;
//! `TicklessIdle` has a one-shot no further away than [`HOUSEKEEPING_FLOOR`], and `TicklessLease` one no further away
//! than its lease's revocation latency. Nothing but idle runs in `TicklessIdle`, and only the one thread that was
//! running in `TicklessLease`: the tick is restored before a thread is dispatched.

use crate::hint::unlikely;
use crate::telemetry::{NohzExit, Telemetry};
use core::fmt;
use mainspring_abi::Nanos;

/// The longest that an idle CPU goes without a timer interrupt.
pub const HOUSEKEEPING_FLOOR: Nanos = Nanos::from_millis(100);

/// A hardware timer, as every machine offers it to the scheduler.
pub trait ClockEvent {
    /// Interrupt every `period` from now on.
    fn program_periodic(&mut self, period: Nanos);
    /// Interrupt once, `delta` from now; callers clamp with [`clamp_oneshot`].
    fn program_oneshot(&mut self, delta: Nanos);
    /// No more interrupts.
    fn stop(&mut self);
    /// The shortest one-shot.
    fn min_delta(&self) -> Nanos;
    /// The longest one-shot.
    fn max_delta(&self) -> Nanos;
}

/// Programs a one-shot for the absolute time `at`, within what the timer can do.
pub fn arm_oneshot(timer: &mut impl ClockEvent, now: Nanos, at: Nanos) {
    let delta = clamp_oneshot(at - now, timer.min_delta(), timer.max_delta());
    timer.program_oneshot(delta);
}

/// `delta` moved into the range that a timer can do. A one-shot that comes early is re-armed by its handler.
#[must_use]
pub fn clamp_oneshot(delta: Nanos, min: Nanos, max: Nanos) -> Nanos {
    delta.min(max).max(min)
}

/// A network stack that tells when it next needs the CPU, instead of being polled at every tick.
pub trait NetworkPollClock {
    /// When there will be something to do, if ever.
    fn next_poll_deadline(&self, now: Nanos) -> Option<Nanos>;
    /// Does what is due, for at most `budget`.
    fn poll_until_budget(&mut self, now: Nanos, budget: Nanos) -> PollResult;
}

/// What a network poll did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct PollResult {
    /// CPU time it took, at most the budget.
    pub spent: Nanos,
    /// Whether it stopped at its budget with work left.
    pub more: bool,
}

/// A CPU's tick state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TickMode {
    /// Ticks come at every multiple of the period.
    Periodic,
    /// Idle, with one timer interrupt armed.
    TicklessIdle {
        /// When it comes.
        wake_at: Nanos,
    },
    /// Idle, but something needs regular polling.
    ForcedPeriodic(KeepTicking),
    /// One thread runs, alone, on a leased CPU, with one timer interrupt armed.
    TicklessLease {
        /// When it comes.
        wake_at: Nanos,
    },
}

/// Why an idle CPU keeps its tick. Each alone is enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeepTicking {
    /// A thread is queued here.
    RunnableWork,
    /// A direct handoff has its target here.
    DirectTarget,
    /// Completions wait to be delivered.
    DeferredCompletions,
    /// A ring is served from the timer.
    RingService,
    /// The timer has no one-shot mode.
    NoOneShot,
    /// There is no kernel idle context to halt in.
    NoIdleContext,
    /// The network is polled and does not tell its next deadline.
    NetworkPolling,
    /// A nohz lease has this CPU, and its own rules apply.
    NohzLease,
    /// Time itself is counted in ticks.
    TickClocksource,
    /// A blocked ring wait still needs polling.
    PolledWaiter,
    /// A thread waits here for its next chance to be eligible.
    RetryWindow,
}

impl KeepTicking {
    /// Every reason, in the order in which they are looked at.
    pub const ALL: [Self; 11] = [
        Self::RunnableWork,
        Self::DirectTarget,
        Self::DeferredCompletions,
        Self::RingService,
        Self::NoOneShot,
        Self::NoIdleContext,
        Self::NetworkPolling,
        Self::NohzLease,
        Self::TickClocksource,
        Self::PolledWaiter,
        Self::RetryWindow,
    ];
}

impl fmt::Display for KeepTicking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunnableWork => "runnable-work",
            Self::DirectTarget => "direct-target",
            Self::DeferredCompletions => "deferred-completions",
            Self::RingService => "ring-service",
            Self::NoOneShot => "no-oneshot",
            Self::NoIdleContext => "no-idle-context",
            Self::NetworkPolling => "network-polling",
            Self::NohzLease => "nohz-lease",
            Self::TickClocksource => "tick-clocksource",
            Self::PolledWaiter => "polled-waiter",
            Self::RetryWindow => "retry-window",
        })
    }
}

/// What networking needs of this CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NetworkNeed {
    /// Nothing.
    #[default]
    Inactive,
    /// A poll at this time, from its [`NetworkPollClock`].
    PollAt(Nanos),
    /// Polling at every tick: it has no clock.
    EveryTick,
}

/// What only the machine knows when a CPU goes idle. The default is a machine on which nothing stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleConditions {
    /// Completions wait to be delivered.
    pub deferred_completions: bool,
    /// A ring is served from the timer.
    pub ring_service: bool,
    /// The timer can be programmed for one interrupt.
    pub oneshot: bool,
    /// There is a kernel idle context to halt in.
    pub idle_context: bool,
    /// What networking needs.
    pub network: NetworkNeed,
    /// A nohz lease has this CPU.
    pub nohz_lease: bool,
    /// Time does not depend on the tick.
    pub stable_clock: bool,
    /// A blocked ring wait still needs polling.
    pub polled_waiter: bool,
}

impl Default for IdleConditions {
    fn default() -> Self {
        Self {
            deferred_completions: false,
            ring_service: false,
            oneshot: true,
            idle_context: true,
            network: NetworkNeed::Inactive,
            nohz_lease: false,
            stable_clock: true,
            polled_waiter: false,
        }
    }
}

impl IdleConditions {
    /// The first reason, if any, that the machine gives for keeping the tick.
    #[must_use]
    pub fn keep_ticking(&self) -> Option<KeepTicking> {
        let polled = self.network == NetworkNeed::EveryTick;
        let reasons = [
            (self.deferred_completions, KeepTicking::DeferredCompletions),
            (self.ring_service, KeepTicking::RingService),
            (!self.oneshot, KeepTicking::NoOneShot),
            (!self.idle_context, KeepTicking::NoIdleContext),
            (polled, KeepTicking::NetworkPolling),
            (self.nohz_lease, KeepTicking::NohzLease),
            (!self.stable_clock, KeepTicking::TickClocksource),
            (self.polled_waiter, KeepTicking::PolledWaiter),
        ];
        reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
    }
}

/// The tick of one CPU.
#[derive(Debug)]
pub(crate) struct Tick {
    /// The next tick, or the one-shot of a tickless mode.
    due: Nanos,
    mode: TickMode,
    period: Nanos,
    /// Ticks due before this have been taken or counted as suppressed.
    counted_to: Nanos,
}

impl Tick {
    pub(crate) fn new(period: Nanos) -> Self {
        Self { period, mode: TickMode::Periodic, due: period, counted_to: Nanos::ZERO }
    }

    pub(crate) fn mode(&self) -> TickMode {
        self.mode
    }

    /// When the next timer interrupt must come, as far as ticking is concerned.
    #[inline]
    pub(crate) fn due(&self) -> Nanos {
        self.due
    }

    /// A timer interrupt came; whether it was a tick.
    #[inline]
    pub(crate) fn interrupt(&mut self, now: Nanos, telemetry: &mut Telemetry) -> bool {
        unlikely(now >= self.due) && self.interrupt_due(now, telemetry)
    }

    fn interrupt_due(&mut self, now: Nanos, telemetry: &mut Telemetry) -> bool {
        match self.mode {
            TickMode::TicklessIdle { .. } => false,
            TickMode::TicklessLease { .. } => {
                // A new proof of the window moves its one-shot on before this.
                self.restore(now, NohzExit::NotReproved, telemetry);
                false
            }
            TickMode::Periodic | TickMode::ForcedPeriodic(_) => {
                telemetry.ticks += 1;
                self.due = self.after(now);
                self.counted_to = now;
                true
            }
        }
    }

    /// The CPU is idle with nothing against stopping its tick: one interrupt at `wake_at`, no more.
    pub(crate) fn suppress(&mut self, now: Nanos, wake_at: Nanos, telemetry: &mut Telemetry) {
        self.leave_lease(now, NohzExit::WentIdle, telemetry);
        if !matches!(self.mode, TickMode::TicklessIdle { .. }) {
            telemetry.nohz_enter_idle += 1;
            self.counted_to = now;
        } else {
            self.count_suppressed(now, telemetry);
        }
        self.mode = TickMode::TicklessIdle { wake_at };
        self.due = wake_at;
    }

    /// The CPU is idle, but keeps its tick.
    pub(crate) fn force(&mut self, now: Nanos, reason: KeepTicking, telemetry: &mut Telemetry) {
        self.leave_lease(now, NohzExit::WentIdle, telemetry);
        self.restore(now, NohzExit::Rollback, telemetry);
        self.mode = TickMode::ForcedPeriodic(reason);
    }

    /// One thread runs under a lease, as was just proved: one interrupt at `wake_at`, no more.
    pub(crate) fn suppress_for_lease(&mut self, now: Nanos, wake_at: Nanos, telemetry: &mut Telemetry) {
        if matches!(self.mode, TickMode::TicklessLease { .. }) {
            self.count_suppressed(now, telemetry);
        } else {
            self.counted_to = now;
        }
        self.mode = TickMode::TicklessLease { wake_at };
        self.due = wake_at;
    }

    /// Back to the periodic tick, if the CPU is tickless under a lease.
    pub(crate) fn leave_lease(&mut self, now: Nanos, why: NohzExit, telemetry: &mut Telemetry) {
        if matches!(self.mode, TickMode::TicklessLease { .. }) {
            self.restore(now, why, telemetry);
        }
    }

    /// Back to the periodic tick.
    #[inline]
    pub(crate) fn restore(&mut self, now: Nanos, why: NohzExit, telemetry: &mut Telemetry) {
        if !matches!(self.mode, TickMode::Periodic) {
            self.leave(now, why, telemetry);
        }
    }

    #[cold]
    fn leave(&mut self, now: Nanos, why: NohzExit, telemetry: &mut Telemetry) {
        if let TickMode::TicklessIdle { .. } | TickMode::TicklessLease { .. } = self.mode {
            self.count_suppressed(now, telemetry);
            telemetry.nohz_exits[why as usize] += 1;
            self.due = self.after(now);
        }
        self.mode = TickMode::Periodic;
    }

    fn count_suppressed(&mut self, now: Nanos, telemetry: &mut Telemetry) {
        let passed =
            (now.get() / self.period.get()).saturating_sub(self.counted_to.get() / self.period.get());
        match self.mode {
            TickMode::TicklessLease { .. } => telemetry.ticks_suppressed_lease += passed,
            _ => telemetry.ticks_suppressed_idle += passed,
        }
        self.counted_to = now;
    }

    fn after(&self, now: Nanos) -> Nanos {
        Nanos::new((now.get() / self.period.get() + 1) * self.period.get())
    }
}
