//! Which CPU to disturb when a thread becomes ready.
//!
//! The thread is queued on its home CPU first. Then CPUs are offered a reschedule in this order until one accepts:
//! home, and after it the idle CPUs that the thread may use, upwards from home and around. A CPU that already has a
//! reschedule pending does not accept another, so a burst of wakeups reaches as many CPUs as it can use, each once.

use crate::entity::Affinity;
use mainspring_abi::{CpuId, CpuSet};

/// The CPUs to offer a reschedule for a thread queued on `home`, in order; the caller stops at the first that
/// accepts. `home_wants` says whether home itself should reschedule (it is idle, or the thread preempts there).
pub fn probe_order<'a>(
    home: CpuId,
    home_wants: bool,
    idle: &'a CpuSet,
    affinity: &'a Affinity,
) -> impl Iterator<Item = CpuId> + 'a {
    let first = home_wants.then_some(home);
    let above = ascending(idle, CpuId::new(home.index() + 1).ok());
    let below = ascending(idle, Some(CpuId::BOOT)).take_while(move |cpu| *cpu < home);
    first.into_iter().chain(above.chain(below).filter(|cpu| affinity.allows(*cpu)))
}

fn ascending(cpus: &CpuSet, from: Option<CpuId>) -> impl Iterator<Item = CpuId> + '_ {
    let mut next = from.and_then(|from| cpus.next_from(from));
    core::iter::from_fn(move || {
        let cpu = next?;
        next = CpuId::new(cpu.index() + 1).ok().and_then(|from| cpus.next_from(from));
        Some(cpu)
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use alloc::sync::Arc;
    use std::vec::Vec;

    fn cpu(n: usize) -> CpuId {
        CpuId::new(n).expect("test CPUs exist")
    }

    fn order(home: usize, home_wants: bool, idle: &[usize], affinity: &Affinity) -> Vec<usize> {
        let idle: CpuSet = idle.iter().map(|n| cpu(*n)).collect();
        probe_order(cpu(home), home_wants, &idle, affinity).map(CpuId::index).collect()
    }

    //= ARCH:wake.scan ARCH:wake.policy
    #[test]
    fn home_is_asked_first_and_idle_cpus_after_it_in_order() {
        assert_eq!(order(2, true, &[0, 1, 5, 9], &Affinity::Any), [2, 5, 9, 0, 1]);
        assert_eq!(order(2, false, &[0, 5], &Affinity::Any), [5, 0]);
        assert_eq!(order(2, false, &[], &Affinity::Any), [0usize; 0]);
    }

    //= ARCH:wake.scan
    #[test]
    fn a_cpu_that_the_thread_may_not_use_is_not_disturbed() {
        let mask = Affinity::Only(Arc::new([cpu(2), cpu(9)].into_iter().collect()));
        assert_eq!(order(2, true, &[0, 5, 9], &mask), [2, 9]);
    }
}
