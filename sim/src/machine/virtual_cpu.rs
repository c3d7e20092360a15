//! One virtual CPU, apart from its scheduler: what it is in the middle of, and what will interrupt it.

use crate::random::Random;
use mainspring_abi::Nanos;

/// In this order: what every event needs comes first, in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct VirtualCpu {
    /// The thread that has the CPU.
    pub running: Option<u32>,
    /// From when on its time counts as its own work; before that it is overhead.
    pub work_from: Nanos,
    /// When it begins its work, if that matters.
    pub begin_at: Nanos,
    /// When its work is done.
    pub done_at: Nanos,
    /// Until then the running thread's lag is no greater than it has been before.
    pub lag_known_until: Nanos,
    /// When a reschedule arrives.
    pub ipi_at: Nanos,
    /// The instant of the last step, and how many steps it has had.
    pub standstill_at: Nanos,
    pub standstill: u32,
    /// Whether a reschedule has been sent and not been noticed.
    pub ipi_pending: bool,
    pub idle: bool,
    pub touched: bool,
    /// When the network wants to be polled here.
    pub net_at: Nanos,
    /// Nothing happens here before this, by fault.
    pub stalled_until: Nanos,
    /// The timer does not fire before this, by fault.
    pub timer_late: Nanos,
    /// When the thread got the CPU.
    pub segment_start: Nanos,
    pub random: Box<Random>,
}

const _: () = assert!(std::mem::offset_of!(VirtualCpu, net_at) == 64);
const _: () = assert!(size_of::<VirtualCpu>() == 128);

impl VirtualCpu {
    pub(super) fn new(random: Random) -> Self {
        Self {
            running: None,
            segment_start: Nanos::ZERO,
            work_from: Nanos::ZERO,
            begin_at: Nanos::MAX,
            done_at: Nanos::MAX,
            timer_late: Nanos::ZERO,
            ipi_at: Nanos::MAX,
            ipi_pending: false,
            net_at: Nanos::MAX,
            stalled_until: Nanos::ZERO,
            standstill: 0,
            standstill_at: Nanos::ZERO,
            idle: true,
            touched: false,
            lag_known_until: Nanos::MAX,
            random: Box::new(random),
        }
    }

    /// When something happens here next, where there are neither faults nor a network; the timer is due at `timer`.
    #[inline(always)]
    pub(super) fn next_event(&self, timer: Nanos) -> Nanos {
        timer.min(self.begin_at.min(self.done_at)).min(self.ipi_at)
    }

    /// The same where there may be.
    #[inline(never)]
    pub(super) fn next_of_all(&self, timer: Nanos) -> Nanos {
        self.next_event(timer.max(self.timer_late)).min(self.net_at).max(self.stalled_until)
    }
}
