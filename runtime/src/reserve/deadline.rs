//! `SCHED_DEADLINE` for the threads of the workers.

use super::NotReserved;
use crate::os_threads::OsThreads;
use std::io;
use std::time::Duration;

/// As the kernel has it, from `linux/sched/types.h`: the first version of the structure.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const DEADLINE: u32 = 6;
/// A thread that a worker starts is an ordinary one; without this it could start none.
const RESET_ON_FORK: u64 = 1;
/// What others have not used may be used, so that the host's own lateness costs no period.
const RECLAIM: u64 = 2;

/// Puts all of them under it, or none.
pub(super) fn reserve(threads: &OsThreads, budget: Duration, period: Duration) -> Result<(), NotReserved> {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let wish = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: DEADLINE,
        flags: RESET_ON_FORK | RECLAIM,
        runtime: nanos(budget),
        deadline: nanos(period),
        period: nanos(period),
        ..Attributes::default()
    };
    let mut done = Vec::new();
    for (_, tid) in threads.tids() {
        if let Err(error) = set(tid, &wish) {
            for tid in done {
                // A thread may always have less.
                let _ordinary = set(tid, &Attributes { size: wish.size, ..Attributes::default() });
            }
            return Err(match error.raw_os_error() {
                Some(libc::EPERM) => NotReserved::DeadlineNotPermitted,
                Some(libc::EBUSY) => NotReserved::NoBandwidth,
                _ => NotReserved::Kernel(error.to_string()),
            });
        }
        done.push(tid);
    }
    Ok(())
}

#[allow(unsafe_code)]
fn set(tid: libc::pid_t, attributes: &Attributes) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the structure says that it has.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, std::ptr::from_ref(attributes), 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
