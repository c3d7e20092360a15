//! What a workload takes of the kernel's tables, which have so many places and no more.

use super::layout::{Layout, asker, is_polled_by_threads, island_of, nodes};
use super::manifest::{CPUS, grants};
use mainspring_abi::kernel::ISLAND_NODES;
use mainspring_workload::{Operation, ThreadTarget, TimedOperation, Workload};

/// Instances that one process of the kernel has room for, beside the thread that starts them.
const INSTANCES: usize = 100;
/// All of them together, and the processes: the kernel's tables, with room to spare.
const ALL_INSTANCES: usize = 400;
const PROCESSES: usize = 60;
const ENDPOINTS: usize = 32;
/// Contexts of one process of the kernel, and of all together.
const CONTEXTS_EACH: usize = 8;
const CONTEXTS: usize = 64;
/// Sessions that one process holds.
const SESSIONS_EACH: usize = 8;
/// Islands, nodes of all those of one process, and leases of one process.
const ISLANDS: usize = 8;
const NODES: usize = ISLAND_NODES;
const LEASES_EACH: usize = 8;
/// Entries of the rings that threads of one process poll: they are memory of the process.
const POLLED_ENTRIES: usize = 512;
/// Capabilities that a process begins with, beside those that every one has.
const GRANTS: usize = 17;
/// Changes that one update of the policy service may have.
const CHANGES: usize = 16;
/// Threads whose treatment the policy service may set.
const TREATED: usize = 64;

/// What the workload takes of the kernel's tables: how many of what, and how many there are.
pub fn needs(workload: &Workload) -> [(usize, &'static str, usize); 15] {
    let layout = Layout::of(workload);
    let mut instances = vec![0; layout.count()];
    for (spec, process) in workload.threads.iter().zip(&layout.threads) {
        instances[*process] += spec.instances();
    }
    for process in layout.devices.iter().chain(workload.network.as_ref().map(|_| &layout.network)) {
        instances[*process] += 1;
    }
    let treated = |at: &TimedOperation| match at.operation {
        Operation::PolicyWeight { thread, .. } | Operation::PolicyProfile { thread, .. } => Some(thread),
        _ => None,
    };
    let named = |target: ThreadTarget| match target.instance {
        Some(_) => 1,
        None => workload.threads[target.thread].instances(),
    };
    let mut treated: Vec<ThreadTarget> = workload.operations.iter().filter_map(treated).collect();
    let changes = treated.iter().copied().map(named).max();
    treated.sort_unstable_by_key(|target| (target.thread, target.instance));
    treated.dedup();
    let all_treated = treated.into_iter().map(named).sum();
    let mut contexts = vec![0; layout.count()];
    for (number, (spec, process)) in workload.contexts.iter().zip(&layout.contexts).enumerate() {
        let plain = |instance: &usize| island_of(workload, number, *instance).is_none();
        contexts[*process] += (0..spec.instances()).filter(plain).count();
    }
    let mut island_nodes = vec![0; layout.count()];
    for island in &workload.islands {
        island_nodes[layout.of_island(island)] += nodes(workload, island).count();
    }
    let mut leases = vec![0; layout.count()];
    for lease in &workload.leases {
        leases[layout.threads[asker(workload, lease)]] += 1;
    }
    let polled_entries = |process: usize| {
        let rings = workload.rings.iter().enumerate().filter(|(number, ring)| {
            layout.threads[ring.owner.thread] == process && is_polled_by_threads(workload, *number)
        });
        rings.map(|(_, ring)| ring.entries as usize).sum()
    };
    // Each node has a context too.
    let all_contexts = contexts.iter().chain(&island_nodes).sum();
    let most_of = |count: &dyn Fn(usize) -> usize| (0..layout.count()).map(count).max().unwrap_or(0);
    let most = instances.iter().max().copied().unwrap_or(0);
    [
        (workload.machine.cpus, "CPUs", CPUS),
        (workload.endpoints.len(), "endpoints", ENDPOINTS),
        (instances.len(), "processes", PROCESSES),
        (most, "threads in one process", INSTANCES),
        (instances.iter().sum(), "threads", ALL_INSTANCES),
        (contexts.into_iter().max().unwrap_or(0), "contexts in one process", CONTEXTS_EACH),
        (all_contexts, "contexts", CONTEXTS),
        (most_of(&|process| layout.held_sessions(process).count()), "sessions in one process", SESSIONS_EACH),
        (workload.islands.len(), "islands", ISLANDS),
        (island_nodes.into_iter().max().unwrap_or(0), "nodes of islands in one process", NODES),
        (leases.into_iter().max().unwrap_or(0), "leases in one process", LEASES_EACH),
        (most_of(&polled_entries), "entries of rings that threads of one process poll", POLLED_ENTRIES),
        (
            most_of(&|process| grants(workload, &layout, process).len()),
            "endpoints and contexts that one process uses",
            GRANTS,
        ),
        (changes.unwrap_or(0), "threads in one update of the policy service", CHANGES),
        (all_treated, "threads that the policy service treats", TREATED),
    ]
}
