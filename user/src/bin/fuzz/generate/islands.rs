//! Requests for realtime islands: graphs that are admitted as a whole or not at all.

use super::{Kind, Params, cap, edge, schema, small_or_edge};
use crate::random::Random;
use schema::{OverrunPolicy, RealtimeIslandMethod};

/// The parameters of a method of an island.
pub fn parameters(random: &mut Random, method: RealtimeIslandMethod) -> Params {
    match method {
        RealtimeIslandMethod::Info | RealtimeIslandMethod::Leave => Params::none(),
        RealtimeIslandMethod::BindCallerThread => {
            let node = small_or_edge(random, 3) as u32;
            Params::of::<schema::node_number::Owned>(|mut params| params.set_node(node))
        }
        RealtimeIslandMethod::Adjust => spec(random),
        RealtimeIslandMethod::Serve => {
            let node = small_or_edge(random, 3) as u32;
            let side = if random.once_in(8) { Kind::Call } else { Kind::Serve };
            let endpoint = cap(random, side);
            Params::of::<schema::node_endpoint::Owned>(|mut params| {
                params.set_node(node);
                params.set_endpoint(endpoint);
            })
        }
    }
}

/// Most often a few nodes that together have a little of a CPU; else one thing of it is too much, too often, or refuses it. The
/// kernel takes at most five nodes and four objects.
pub fn spec(random: &mut Random) -> Params {
    const MS: u64 = 1_000_000;
    let flaw = random.below(30);
    let period = match flaw {
        0 => edge(random),
        1 => MS - 1,
        _ => MS + random.below(40 * MS),
    };
    let count = match flaw {
        2 => random.one_of(&[0, 9, 12]),
        3 | 4 => 8,
        _ => 1 + random.below(2),
    };
    let overrun = random.one_of(&[
        OverrunPolicy::Throttle,
        OverrunPolicy::Notify,
        OverrunPolicy::Fault,
        OverrunPolicy::Shutdown,
    ]);
    Params::of::<schema::island_spec::Owned>(|mut params| {
        params.set_period_ns(period);
        params.set_deadline_ns(if flaw == 5 { edge(random) } else { 0 });
        params.set_criticality(if flaw == 6 { random.word() as u8 } else { random.once_in(8).into() });
        params.set_cpus(if flaw == 7 { edge(random) } else { one_or_all(random) });
        params.set_overrun(overrun);
        params.set_chain(random.once_in(3));
        params.set_unbounded_locks(flaw == 8);
        params.set_blocking_calls(flaw == 9);
        params.set_normal_memory(flaw == 10);
        if random.once_in(2) {
            params.set_notify(cap(random, if flaw == 11 { Kind::Call } else { Kind::Serve }));
        }
        let mut nodes = params.reborrow().init_nodes(count as u32);
        for place in 0..count as u32 {
            let mut node = nodes.reborrow().get(place);
            // A fiftieth of a CPU, for all nodes together.
            let fair = 1 + random.below(period / 50 / count.max(1));
            node.set_budget_ns(if flaw == 12 { edge(random) } else { fair });
            match flaw {
                13 => node.set_period_ns(edge(random)),
                14 => node.set_deadline_ns(edge(random)),
                15 => node.set_cpus(edge(random)),
                16 | 17 => node.set_period_ns(MS.max(period / 2)),
                18 | 19 => node.set_deadline_ns(fair + random.below(period / 2)),
                _ => {}
            }
        }
        let kept = if random.once_in(3) { random.below(if flaw == 20 { 7 } else { 3 }) } else { 0 };
        let mut memory = params.reborrow().init_memory(kept as u32);
        for place in 0..kept as u32 {
            memory.set(place, cap(random, Kind::Object));
        }
        let called = if random.once_in(3) { random.below(3) } else { 0 };
        let mut endpoints = params.init_endpoints(called as u32);
        for place in 0..called as u32 {
            endpoints.set(place, cap(random, Kind::Call));
        }
    })
}

/// All CPUs, or one of the first.
fn one_or_all(random: &mut Random) -> u64 {
    if random.once_in(3) { 1 << random.below(4) } else { 0 }
}
