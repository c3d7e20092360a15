//! Leases of workers, by host threads: no worker is leased twice, and no task stands still for one.

use super::Act;
use crate::rng::Rng;
use crate::setting::Discipline;
use crate::verdict::violation;
use crate::world::World;
use mainspring::lease::EndReason;
use mainspring::{CpuId, CpuIsolationLease, CpuSet, LeaseError, LeaseRequest, Runtime};
use std::sync::Mutex;
use std::time::Duration;

/// The leases that host threads hold, with the number of their runtime.
pub type Leases = Mutex<Vec<(usize, CpuIsolationLease)>>;

/// Asks for a lease, or ends one.
pub fn lease(runtimes: &[&Runtime], number: usize, world: &World, rng: &mut Rng) {
    if !world.has(Act::Lease) {
        return;
    }
    let Ok(mut held) = world.leases.lock() else { violation("a host thread panicked") };
    if !held.is_empty() && rng.one_in(2) {
        let place = rng.below(held.len() as u64) as usize;
        match rng.below(3) {
            0 => match held[place].1.revoke() {
                Ok(()) | Err(LeaseError::Ended) => {}
                Err(error) => violation(format_args!("a lease is not taken back: {error}")),
            },
            1 => drop(held.swap_remove(place)),
            _ => runtimes[number].end_process(1),
        }
        return;
    }
    let workers: CpuSet = (0..world.setting.workers)
        .filter(|_| rng.one_in(3))
        .filter_map(|worker| CpuId::new(worker).ok())
        .collect();
    let lifetime = Duration::from_micros(rng.pick(&[50, 500, 2000]));
    let request =
        LeaseRequest::new(rng.below(64) as usize, workers).process(rng.below(2) as u32).lifetime(lifetime);
    match runtimes[number].lease(request) {
        Ok(lease) => {
            for (_, other) in held.iter().filter(|(of, other)| *of == number && shares(other, &lease)) {
                let ((_, others_end), (reason, end)) = (end_of(other), end_of(&lease));
                // By its end it was granted no later than this.
                if reason == EndReason::Expired && others_end > end.saturating_sub(lifetime) {
                    violation(format_args!("{other:?} and {lease:?} have one worker"));
                }
            }
            held.push((number, lease));
        }
        Err(LeaseError::NoLeases) if world.setting.leases == 0 || !is_by_task(world) => {}
        Err(LeaseError::Refused(_)) if is_by_task(world) => {}
        Err(error) => violation(format_args!("a lease: {error}")),
    }
}

fn shares(one: &CpuIsolationLease, other: &CpuIsolationLease) -> bool {
    one.workers().iter().any(|worker| other.workers().iter().any(|own| own == worker))
}

/// Why and when it ended. All leases here end by themselves.
fn end_of(lease: &CpuIsolationLease) -> (EndReason, Duration) {
    for _ in 0..200_000 {
        if let Some(end) = lease.ended() {
            return end;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    violation(format_args!("{lease:?} does not end"))
}

fn is_by_task(world: &World) -> bool {
    world.setting.discipline == Discipline::ByTask
}
