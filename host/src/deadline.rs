//! `SCHED_DEADLINE`: the kernel's own reservation for one thread.
//!
//! Facts of the kernel that callers meet: a thread under it cannot fork unless `RESET_ON_FORK` is set, and its children
//! then run as ordinary processes; a thread that is pinned to fewer CPUs than its scheduling domain has is refused with
//! `EPERM`; and `EBUSY` is the kernel's own admission, which lets all deadline threads together have
//! `sched_rt_runtime_us` in each `sched_rt_period_us` on each CPU.

use mainspring_abi::Nanos;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};
use thread_priority::{
    DeadlineFlags, RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy,
};

/// What a thread asks of `SCHED_DEADLINE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// CPU time in each period.
    pub runtime: Nanos,
    /// From the start of a period to the time by which the runtime was given.
    pub deadline: Nanos,
    /// The period.
    pub period: Nanos,
}

/// The shortest and the longest period that the kernel takes, from its settings.
#[must_use]
pub fn period_bounds() -> (Nanos, Nanos) {
    let setting = |name: &str, default_us: u64| {
        let us = sysctl(name).and_then(|us| u64::try_from(us).ok()).unwrap_or(default_us);
        Nanos::from_micros(us)
    };
    (setting("sched_deadline_period_min_us", 100), setting("sched_deadline_period_max_us", 1 << 22))
}

/// The part of each CPU that deadline threads may have, in parts per million; `None` without a limit.
#[must_use]
pub fn bandwidth_ppm() -> Option<u64> {
    let runtime = sysctl("sched_rt_runtime_us")?;
    let period = sysctl("sched_rt_period_us").filter(|period| *period > 0)?;
    u64::try_from(runtime).ok().map(|runtime| runtime.saturating_mul(1_000_000) / period.unsigned_abs())
}

/// Puts a thread under a reservation. Its children run as ordinary processes.
///
/// # Errors
/// As the system says: `EPERM` without `CAP_SYS_NICE` or for a pinned thread, `EBUSY` if the kernel's admission
/// refuses, `EINVAL` for values that it does not take.
pub fn reserve(thread: i32, reservation: &Reservation) -> io::Result<()> {
    let time = |time: Nanos| Duration::from_nanos(time.get());
    let priority = ThreadPriority::Deadline {
        runtime: time(reservation.runtime),
        deadline: time(reservation.deadline),
        period: time(reservation.period),
        flags: DeadlineFlags::RESET_ON_FORK,
    };
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Deadline);
    // For this policy the crate takes the kernel's number of a thread, and answers -1 rather than the error's number.
    let answer = set_thread_priority_and_policy(thread as _, priority, policy);
    let cause = io::Error::last_os_error();
    match answer {
        Ok(()) => Ok(()),
        Err(thread_priority::Error::OS(_)) => Err(cause),
        Err(other) => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{other:?}"))),
    }
}

/// Whether a thread of this process may have a small reservation, found out by giving one to a thread that then ends.
///
/// # Errors
/// As [`reserve`].
pub fn probe() -> io::Result<()> {
    let small = Reservation {
        runtime: Nanos::from_micros(100),
        deadline: Nanos::from_millis(100),
        period: Nanos::from_millis(100),
    };
    // Zero is the calling thread.
    let answer = std::thread::spawn(move || reserve(0, &small)).join();
    answer.unwrap_or_else(|_| Err(io::Error::other("the probing thread ended early")))
}

fn sysctl(name: &str) -> Option<i64> {
    fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok()?.trim().parse().ok()
}
