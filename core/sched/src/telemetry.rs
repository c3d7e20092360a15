//! The permanent counters of one CPU. Plain words: counting allocates nothing, logs nothing and reads no clock.

/// Why a CPU left a tickless state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NohzExit {
    /// A thread is about to run.
    Dispatch,
    /// Another CPU asked for a reschedule.
    Reschedule,
    /// A condition for it no longer held.
    Rollback,
}

impl NohzExit {
    /// Every reason, in the order of [`Telemetry::nohz_exits`].
    pub const ALL: [Self; 3] = [Self::Dispatch, Self::Reschedule, Self::Rollback];

    /// As it stands in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Reschedule => "reschedule",
            Self::Rollback => "rollback",
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
    /// `nohz_enter_count{kind=idle}`.
    pub nohz_enter_idle: u64,
    /// `nohz_exit_count`, by reason.
    pub nohz_exits: [u64; NohzExit::ALL.len()],
    /// `oneshot_deadline_miss_count`: timer interrupts that came after the time they were armed for.
    pub oneshot_deadline_misses: u64,
    /// `sqpoll_busy_ns`.
    pub sqpoll_busy_ns: u64,
    /// `sqpoll_sleep_count`.
    pub sqpoll_sleeps: u64,
    /// `deadline_expired_count`.
    pub deadlines_expired: u64,
    /// `budget_exhausted_count`.
    pub budgets_exhausted: u64,
    /// `realtime_overrun_count`.
    pub realtime_overruns: u64,
    /// `donation_depth_max`.
    pub donation_depth_max: u64,
    /// `housekeeping_offload_count`.
    pub housekeeping_offloads: u64,
    /// Reschedules received from other CPUs.
    pub reschedules: u64,
    /// Threads stolen from other CPUs.
    pub steals: u64,
    /// Direct handoffs that were taken.
    pub handoffs: u64,
    /// Direct handoffs that had to queue.
    pub handoffs_queued: u64,
}
