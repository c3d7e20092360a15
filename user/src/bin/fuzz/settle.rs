//! What the kernel keeps of things that are over, brought to one state: before anything is counted, and before it is counted again.
//!
//! The kernel remembers contexts that are gone, islands that have left, and what policy services have asked for; so many of each,
//! in memory that comes with the first of them. What it remembers differs in size. So the boss makes it remember the boss's own.

use crate::child::ISLANDS;
use alloc::vec::Vec;
use mainspring_abi::kernel::ISLAND_NODES;
use mainspring_user::caps::{self, Context, Grant, IslandNode, IslandSpec, PolicyChange};
use mainspring_user::schema::{OverrunPolicy, PolicyState};

/// Contexts that the kernel remembers, those that are gone included.
const REMEMBERED: usize = 64;
/// Islands that there can be at a time, with a node each.
const AT_A_TIME: usize = ISLAND_NODES;
/// Profiles that a policy service may set, and changes of one update.
const PROFILES: u32 = 16;
/// Decisions about the policy service that are remembered.
const DECISIONS: usize = 16;
/// A five hundredth of a CPU.
const NODE: IslandNode = IslandNode { budget_ns: 40_000, period_ns: 0, deadline_ns: 0, cpus: 0 };

/// Brings all of it to one state. Nobody else does anything meanwhile.
pub fn settle() -> Result<(), &'static str> {
    islands()?;
    contexts()?;
    policy()
}

/// As many at a time as there can be: the tables of islands are as large as they get.
fn islands() -> Result<(), &'static str> {
    let spec = IslandSpec { period_ns: 20_000_000, nodes: &[NODE], ..IslandSpec::default() };
    let admit = |_| caps::admit_island(ISLANDS, &spec);
    let admitted: Result<Vec<_>, _> = (0..AT_A_TIME).map(admit).collect();
    let admitted = admitted.map_err(|_| "islands are missing")?;
    admitted.into_iter().try_for_each(|island| island.leave()).map_err(|_| "an island of the boss's is gone")
}

fn contexts() -> Result<(), &'static str> {
    let root = Context(caps::need("context:root"));
    let grant = Grant {
        budget_ns: 20_000,
        period_ns: 20_000_000,
        deadline_ns: 0,
        overrun: OverrunPolicy::Throttle,
        cpus: 0,
        depth: 1,
    };
    for _ in 0..REMEMBERED {
        let made = root.create(grant).map_err(|_| "places of contexts are missing")?;
        made.revoke().and_then(|()| made.release()).map_err(|_| "a context of the boss's is gone")?;
    }
    Ok(())
}

/// The boss is in charge: no CPU is leased by policy, no thread is treated by it, each profile is set, and the last decisions are
/// that the boss has started.
fn policy() -> Result<(), &'static str> {
    let status = caps::policy_start().map_err(|_| "nobody can be the policy service")?;
    if status.state != PolicyState::Alive || !status.in_charge {
        return Err("the boss is not in charge");
    }
    let mut epoch = status.epoch;
    for cpu in (0..u64::BITS).filter(|cpu| status.leased >> cpu & 1 == 1) {
        // It may have ended by itself meanwhile.
        epoch += u64::from(caps::policy_submit(epoch + 1, &[PolicyChange::end_lease(cpu)]).is_ok());
    }
    let profiles: Vec<_> = (0..PROFILES).map(|key| PolicyChange::profile(key, 64)).collect();
    let taken = caps::policy_submit(epoch + 1, &profiles).map_err(|_| "no update is taken any more")?;
    if taken.leased != 0 {
        return Err("a lease that policy has ended is there");
    }
    (0..DECISIONS).try_for_each(|_| caps::policy_start().map(|_| ())).map_err(|_| "the boss is not in charge")
}
