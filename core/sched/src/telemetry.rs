//! The permanent counters of one CPU. Plain words: counting allocates nothing, logs nothing and reads no clock.

use crate::hint::unlikely;
use crate::nohz::Kind;

/// Why a CPU left a tickless state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NohzExit {
    /// A thread is about to run.
    Dispatch,
    /// Another CPU asked for a reschedule.
    Reschedule,
    /// A condition for it no longer held.
    Rollback,
    /// The lease ended.
    StaleLease,
    /// The lease's lifetime was over.
    LeaseExpired,
    /// The lease is for another CPU.
    TargetMismatch,
    /// Another thread wants the CPU, too.
    SecondRunnable,
    /// A direct handoff has its target there.
    DirectTarget,
    /// There is work to steal.
    SiblingWork,
    /// What ran has stopped by itself.
    WentIdle,
    /// Something must be cleaned up there.
    DeferredCleanup,
    /// A timed wait is over.
    TimerDue,
    /// The ring is polled no longer, or its state could not be read.
    RingChanged,
    /// The timer cannot do one-shots any more.
    NoOneShot,
    /// Another CPU cleared the record of it.
    RecordCleared,
    /// Its one-shot came and the window was not proved again.
    NotReproved,
}

impl NohzExit {
    /// Every reason, in the order of [`Telemetry::nohz_exits`].
    pub const ALL: [Self; 16] = [
        Self::Dispatch,
        Self::Reschedule,
        Self::Rollback,
        Self::StaleLease,
        Self::LeaseExpired,
        Self::TargetMismatch,
        Self::SecondRunnable,
        Self::DirectTarget,
        Self::SiblingWork,
        Self::WentIdle,
        Self::DeferredCleanup,
        Self::TimerDue,
        Self::RingChanged,
        Self::NoOneShot,
        Self::RecordCleared,
        Self::NotReproved,
    ];

    /// Whether an idle CPU can leave its tickless state for this, too.
    #[must_use]
    pub const fn applies_to_idle(self) -> bool {
        matches!(self, Self::Dispatch | Self::Reschedule | Self::Rollback)
    }

    /// As it stands in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Reschedule => "reschedule",
            Self::Rollback => "rollback",
            Self::StaleLease => "stale-lease-generation",
            Self::LeaseExpired => "lease-lifetime-expired",
            Self::TargetMismatch => "target-cpu-mismatch",
            Self::SecondRunnable => "second-runnable",
            Self::DirectTarget => "direct-target-runnable",
            Self::SiblingWork => "stealable-sibling-work",
            Self::WentIdle => "went-idle",
            Self::DeferredCleanup => "deferred-cleanup",
            Self::TimerDue => "timer-due",
            Self::RingChanged => "sqpoll-ring-mode-changed-or-owner-staled",
            Self::NoOneShot => "no-oneshot",
            Self::RecordCleared => "record-cleared",
            Self::NotReproved => "not-reproved",
        }
    }
}

/// One CPU's counters.
// In this order, what nearly every event counts comes first, in one cache line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Telemetry {
    /// Timer interrupts of every kind.
    pub timer_interrupts: u64,
    /// Greatest number of threads queued at once.
    pub queue_depth_max: u64,
    /// Timed waits that ended by their deadline.
    pub timeouts: u64,
    /// `scheduler_tick_count`.
    pub ticks: u64,
    /// `ticks_suppressed{mode=idle}`.
    pub ticks_suppressed_idle: u64,
    /// `ticks_suppressed{mode=lease}`.
    pub ticks_suppressed_lease: u64,
    /// `nohz_enter_count{kind=idle}`.
    pub nohz_enter_idle: u64,
    /// `nohz_enter_count` under a lease, by the order of [`Kind::ALL`].
    pub nohz_enter_lease: [u64; Kind::ALL.len()],
    /// `nohz_exit_count`, by reason.
    pub nohz_exits: [u64; NohzExit::ALL.len()],
    /// `oneshot_deadline_miss_count`: timer interrupts that came after the time they were armed for.
    pub oneshot_deadline_misses: u64,
    /// `budget_exhausted_count`.
    pub budgets_exhausted: u64,
    /// `realtime_overrun_count`.
    pub realtime_overruns: u64,
    /// `donation_depth_max`.
    pub donation_depth_max: u64,
    /// Reschedules received from other CPUs.
    pub reschedules: u64,
    /// Threads stolen from other CPUs.
    pub steals: u64,
    /// Direct handoffs that were taken.
    pub handoffs: u64,
    /// Direct handoffs that had to queue.
    pub handoffs_queued: u64,
}

impl Telemetry {
    #[inline]
    pub(crate) fn note_queue_depth(&mut self, queued: u32) {
        if unlikely(u64::from(queued) > self.queue_depth_max) {
            self.queue_depth_max = u64::from(queued);
        }
    }
}
