//! Realtime islands: a graph is admitted with all of its time and memory, or not at all. Each thing that may be wrong with one is
//! refused alone and leaves nothing behind; then one lives: it is bound, overruns, is adjusted, shut down, and ends with its process.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::kernel::{ISLAND_NODES, RELEASE_NS};
use mainspring_user::caps::{
    self, Island, IslandInfo, IslandNode, IslandSpec, IslandTold, Thread, ThreadOptions,
};
use mainspring_user::schema::{IslandNotice, OverrunPolicy};
use mainspring_user::{CapError, arch, client, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
/// The authority: nine tenths of a CPU.
const AUTHORITY: &str = "islands:90";
const DENIED: CapError = CapError::RealtimeAdmissionDenied;
/// Pages of a process's quota of 64 MiB, and so many of them that three times as many are more.
const MANY_PAGES: u32 = 6000;

/// Two nodes that fit anywhere.
const NODES: [IslandNode; 2] = [node(2 * MS), node(3 * MS)];

const fn node(budget_ns: u64) -> IslandNode {
    IslandNode { budget_ns, period_ns: 0, deadline_ns: 0, cpus: 0 }
}

/// Two nodes on the first CPU that are due at once, soon. There a context of 1.5 ms is due as soon.
const fn at_once(budget_ns: u64) -> [IslandNode; 2] {
    [IslandNode { budget_ns, period_ns: 0, deadline_ns: 9 * MS, cpus: 1 }; 2]
}

fn small() -> IslandSpec<'static> {
    IslandSpec {
        period_ns: 20 * MS,
        nodes: &NODES,
        notify: caps::need("serve:told"),
        ..IslandSpec::default()
    }
}

fn admit(spec: &IslandSpec<'_>) -> Result<Island, CapError> {
    caps::admit_island(AUTHORITY, spec)
}

fn info(of: Island) -> IslandInfo {
    of.info().expect("a name can be asked about")
}

fn main() -> i64 {
    if caps::arguments() == "leave" {
        // With its island admitted.
        return i64::from(admit(&large()).is_err());
    }
    if caps::arguments() == "serve" {
        return serve_one();
    }
    if caps::arguments() == "second" {
        return match admit(&sixty_percent(1)) {
            Err(CapError::Denied) => 0,
            _ => 1,
        };
    }
    refusals();
    together();
    memory();
    admitted_again();
    let island = admitted();
    bound(island);
    served(island);
    adjusted(island);
    ends(island);
    shut_down();
    process_exit();
    say!("realtime-island: all=ok");
    0
}

/// Each condition is broken alone, and the whole is refused. Nothing is left of it: what was asked for can be had afterwards.
//= TICK:L7.no-block
//= TICK:L6.locks
fn refusals() {
    let refused = |spec: IslandSpec<'_>| admit(&spec).map(|_| ()).expect_err("it is refused");
    let before = caps::usage().expect("usage can be read");
    assert_eq!(refused(IslandSpec { nodes: &[], ..small() }), DENIED, "no nodes");
    assert_eq!(refused(IslandSpec { deadline_ns: 21 * MS, ..small() }), DENIED, "due after its period");
    assert_eq!(refused(IslandSpec { period_ns: MS / 2, ..small() }), CapError::InvalidParameter, "too often");
    let unfit = [node(0), node(MS)];
    assert_eq!(refused(IslandSpec { nodes: &unfit, ..small() }), DENIED, "a node without time");
    let rare = [IslandNode { period_ns: 40 * MS, ..node(MS) }];
    assert_eq!(refused(IslandSpec { nodes: &rare, ..small() }), DENIED, "a node that comes too seldom");
    // One node alone fits its CPU, and two do not, whichever way they are asked for.
    let together = [IslandNode { cpus: 1, ..node(16 * MS) }; 2];
    assert_eq!(
        refused(IslandSpec { nodes: &together[..1], cpus: 2, ..small() }),
        DENIED,
        "no CPU of both sets"
    );
    assert_eq!(
        refused(IslandSpec { nodes: &together, ..small() }),
        CapError::Denied,
        "more than it may have"
    );
    assert_eq!(refused(IslandSpec { nodes: &at_once(8 * MS), ..small() }), CapError::Denied, "too urgent");
    assert_eq!(
        refused(IslandSpec { criticality: 1, ..small() }),
        CapError::Denied,
        "a band above the others"
    );
    assert_eq!(
        refused(IslandSpec { nodes: &at_once(4 * MS), ..small() }),
        DENIED,
        "due at once with a context that was granted before"
    );
    let blocking = [caps::need("call:slow")];
    assert_eq!(refused(IslandSpec { endpoints: &blocking, ..small() }), DENIED, "a server on its own time");
    assert_eq!(
        refused(IslandSpec { blocking_calls: true, ..small() }),
        DENIED,
        "calls that it does not name"
    );
    assert_eq!(
        refused(IslandSpec { unbounded_locks: true, ..small() }),
        DENIED,
        "a lock that is held for any time"
    );
    let wrong = [caps::need("timer")];
    assert_eq!(
        refused(IslandSpec { memory: &wrong, ..small() }),
        CapError::InvalidParameter,
        "a clock is no memory"
    );
    assert_eq!(
        refused(IslandSpec { memory: &[1 << 30], ..small() }),
        CapError::InvalidCapability,
        "nothing at all"
    );
    assert_eq!(refused(IslandSpec { notify: wrong[0], ..small() }), CapError::InvalidParameter, "told where");
    let client = caps::need("call:lent");
    assert_eq!(
        refused(IslandSpec { notify: client, ..small() }),
        CapError::InvalidParameter,
        "a client's endpoint is told nothing"
    );
    let island = admit(&large()).expect("nothing was left of those that were refused");
    island.leave().expect("it is there");
    let after = caps::usage().expect("usage can be read");
    assert_eq!((after.threads, after.free_frames), (before.threads, before.free_frames), "something is left");
    say!("realtime-island: refusals=ok");
}

/// What the manifest grants is for a program and all that it makes, together: copies of the authority are no more of it, and neither
/// are more islands.
fn together() {
    let island = admit(&sixty_percent(0)).expect("less than it may have");
    let child = caps::start("realtime-island", "second", &["console", "timer", AUTHORITY]);
    let child = child.expect("within the quota");
    assert_eq!(child.wait(), Ok(0), "a copy of the authority is as much again");
    child.detach().expect("a handle can be dropped");
    island.leave().expect("it is there");
    let rare = [node(MS / 100); ISLAND_NODES];
    let all =
        admit(&IslandSpec { nodes: &rare, notify: 0, ..small() }).expect("as many nodes as it may have");
    let more = admit(&IslandSpec { nodes: &rare[..1], notify: 0, ..small() }).map(|_| ());
    assert_eq!(more, Err(CapError::QuotaExceeded), "one node more");
    all.leave().expect("it is there");
    say!("realtime-island: together=ok");
}

/// Two thirds of what its process may have, on this CPU.
fn sixty_percent(cpu: usize) -> IslandSpec<'static> {
    const NODES: [[IslandNode; 1]; 2] =
        [[IslandNode { cpus: 1, ..node(12 * MS) }], [IslandNode { cpus: 2, ..node(12 * MS) }]];
    IslandSpec { period_ns: 20 * MS, nodes: &NODES[cpu], ..IslandSpec::default() }
}

/// What was used on an island that has left is not there again sooner on another one, wherever that is.
//= TICK:L5.no-mint
fn admitted_again() {
    const LONG: u64 = 500 * MS;
    let on = |cpus, budget_ns| [IslandNode { cpus, ..node(budget_ns) }];
    let spec = IslandSpec { period_ns: LONG, ..IslandSpec::default() };
    for cpus in [1, 2] {
        // Its thread goes on when it is used up.
        let first = IslandSpec { nodes: &on(1, LONG / 2), overrun: OverrunPolicy::Notify, ..spec };
        let first = admit(&first).expect("less than it may have");
        let back = caps::now() + LONG;
        ended(on_node(first, 0, move || {
            first.bind(0).expect("the node is free");
            while info(first).used_ns[0] < LONG * 9 / 20 {
                arch::spin(1000);
            }
            0
        }));
        first.leave().expect("it is there");
        let second = admit(&IslandSpec { nodes: &on(cpus, LONG / 2), ..spec }).expect("the first has left");
        ended(on_node(second, 0, move || {
            second.bind(0).expect("the node is free");
            assert!(caps::now() >= back, "used time is there again on an island in the place of another");
            0
        }));
        second.leave().expect("it is there");
        caps::sleep(LONG).expect("within the quota");
    }
    say!("realtime-island: admitted_again=ok");
}

/// All that its process may have, but for what a release costs, on one CPU.
fn large() -> IslandSpec<'static> {
    const LARGE: [IslandNode; 1] =
        [IslandNode { budget_ns: 18 * MS - RELEASE_NS, period_ns: 0, deadline_ns: 0, cpus: 2 }];
    IslandSpec { period_ns: 20 * MS, nodes: &LARGE, ..IslandSpec::default() }
}

/// The memory of an island is there: each page was paid for when the island was admitted, and is until it has left.
//= TICK:L7.memory
fn memory() {
    let object = caps::create_object(MANY_PAGES).expect("within the quota");
    let memory = [object];
    let keeps = IslandSpec { memory: &memory, nodes: &NODES[..1], ..small() };
    let island = admit(&keeps).expect("there is room for it");
    assert_eq!(info(island).pages, u64::from(MANY_PAGES), "it keeps all of it");
    let refused = admit(&keeps).map(|_| ());
    assert_eq!(refused, Err(CapError::QuotaExceeded), "memory that nobody has paid for");
    assert_eq!(
        caps::create_object(MANY_PAGES),
        Err(CapError::QuotaExceeded),
        "an island keeps memory for nothing"
    );
    island.leave().expect("it is there");
    told(island, IslandNotice::Left);
    let normal = admit(&IslandSpec { normal_memory: true, ..keeps }).map(|_| ());
    assert_eq!(normal, Err(DENIED), "memory that does not stay");
    let again = admit(&keeps).expect("what has left has given back what it was charged");
    again.leave().expect("it is there");
    told(again, IslandNotice::Left);
    say!("realtime-island: memory=ok pages={MANY_PAGES}");
}

/// One that fits is there as a whole: its contexts, what it keeps and its rings are on record.
//= EVO:S6.record
fn admitted() -> Island {
    let lends = [caps::need("call:lent")];
    let island = admit(&IslandSpec { endpoints: &lends, overrun: OverrunPolicy::Notify, ..small() });
    let island = island.expect("it fits");
    let known = info(island);
    assert!(known.live && !known.stopping && known.nodes == 2, "{known:?}");
    assert_ne!(known.contexts[0], known.contexts[1], "two nodes with one context");
    assert_eq!(known.ring_entries, 64, "each node's thread has a ring");
    say!("realtime-island: admitted=ok");
    island
}

/// Runs `job` on the CPU of a node.
fn on_node(of: Island, node: usize, job: impl FnOnce() -> i64 + Send + 'static) -> Thread {
    let options = ThreadOptions { cpus: 1 << info(of).cpus[node], ..ThreadOptions::default() };
    caps::spawn(options, job).expect("within the quota")
}

fn ended(thread: Thread) {
    assert_eq!(thread.join(), Ok(0));
    thread.detach().expect("a handle can be dropped");
}

/// Waits until `island` is told to be `what`, and passes over what else is told of it.
fn told(island: Island, what: IslandNotice) -> IslandTold {
    loop {
        let mut buffer = [0; 64];
        let call = caps::receive(caps::need("serve:told"), &mut buffer).expect("a notice comes");
        assert_eq!(call.call_id, 0, "nobody calls here");
        let notice = IslandTold::from_message(&buffer[16..]).expect("a notice of an island");
        if notice.id == u64::from(island.id) && notice.what == what {
            return notice;
        }
    }
}

/// A node runs on its own budget, on its own CPU, one thread at a time; what it uses up is told, with the node.
fn bound(island: Island) {
    let stop = Arc::new(AtomicU32::new(0));
    let theirs = stop.clone();
    let first = on_node(island, 1, move || {
        assert_eq!(island.bind(2), Err(CapError::InvalidCapability), "there is no such node");
        island.bind(1).expect("the node is free");
        assert_eq!(island.bind(0), Err(CapError::Busy), "two nodes with one thread");
        while theirs.load(Ordering::Relaxed) == 0 {
            arch::spin(1000);
        }
        0
    });
    let notice = told(island, IslandNotice::Overran);
    assert_eq!(notice.node, 1, "the node that overran");
    let known = info(island);
    assert!(
        known.depletions[1] > 0 && known.used_ns[1] >= 3 * MS,
        "what it has used is not on record: {known:?}"
    );
    assert_eq!((known.depletions[0], known.used_ns[0]), (0, 0), "another node pays");
    ended(on_node(island, 1, move || i64::from(island.bind(1) != Err(CapError::Busy))));
    let other = (info(island).cpus[0] + 1) % caps::usage().expect("usage can be read").cpus;
    let elsewhere = ThreadOptions { cpus: 1 << other, ..ThreadOptions::default() };
    let stray = caps::spawn(elsewhere, move || i64::from(island.bind(0) != Err(CapError::Denied)));
    ended(stray.expect("within the quota"));
    stop.store(1, Ordering::Relaxed);
    ended(first);
    say!("realtime-island: bound=ok overrun=ok");
}

/// Serves one call, for some time.
fn serve_one() -> i64 {
    let serve = caps::need("serve:lent");
    let call = caps::receive(serve, &mut [0; 64]).expect("a call comes");
    arch::spin(100_000);
    i64::from(client::carry_out(caps::return_request(serve, call.call_id, &[])).is_err())
}

/// A server without a context serves calls on the budget of a node, if the island says so, and is best effort between them.
fn served(island: Island) {
    let lent = caps::need("serve:lent");
    assert_eq!(island.serve(2, lent), Err(CapError::InvalidCapability), "there is no such node");
    assert_eq!(
        island.serve(0, caps::need("call:lent")),
        Err(CapError::InvalidParameter),
        "a client says what calls are served on"
    );
    assert_eq!(
        island.serve(0, caps::need("timer")),
        Err(CapError::InvalidParameter),
        "a clock serves nobody"
    );
    island.serve(0, lent).expect("both are there");
    island.serve(0, lent).expect("it is so already");
    assert_eq!(
        island.serve(1, lent),
        Err(CapError::Busy),
        "a server has the other one until it has answered"
    );
    let before = info(island);
    let stranger = caps::start("realtime-island", "serve", &["console", "timer", "serve:lent"]);
    let stranger = stranger.expect("within the quota");
    caps::call_endpoint(caps::need("call:lent"), &[], &mut []).expect("it is answered");
    assert_eq!(stranger.wait(), Ok(0), "it has answered");
    stranger.detach().expect("a handle can be dropped");
    assert_eq!(info(island).used_ns, before.used_ns, "a server of another process is put on a node");
    let server = on_node(island, 0, serve_one);
    caps::call_endpoint(caps::need("call:lent"), &[], &mut []).expect("it is answered");
    ended(server);
    let after = info(island);
    assert!(after.used_ns[0] > before.used_ns[0], "the node did not pay: {before:?} {after:?}");
    assert_eq!(after.used_ns[1], before.used_ns[1], "another node pays");
    ended(on_node(island, 0, move || i64::from(island.bind(0).is_err())));
    say!("realtime-island: served=ok");
}

/// Another spec takes the place of the old one if everything still holds; if not, the old one stands.
fn adjusted(island: Island) {
    let known = info(island);
    let fewer = [node(MS)];
    let refused = island.adjust(&IslandSpec { nodes: &fewer, ..small() });
    assert_eq!(refused, Err(CapError::InvalidParameter), "another number of nodes");
    let too_much = [node(19 * MS), node(19 * MS)];
    assert_eq!(island.adjust(&IslandSpec { nodes: &too_much, ..small() }), Err(CapError::Denied));
    if known.cpus[..2] == [0, 0] {
        assert_eq!(island.adjust(&IslandSpec { nodes: &at_once(4 * MS), ..small() }), Err(DENIED));
    }
    assert_eq!(info(island), known, "a refusal changed it");
    let more = [node(3 * MS), node(4 * MS)];
    island.adjust(&IslandSpec { nodes: &more, ..small() }).expect("it fits");
    told(island, IslandNotice::Adjusted);
    let after = info(island);
    assert!(after.live && after.generation == known.generation + 1, "{after:?}");
    assert_eq!((after.contexts, after.cpus), (known.contexts, known.cpus), "its nodes are where they were");
    say!("realtime-island: adjusted=ok");
}

/// It leaves: its threads go on as best effort, and its name is of nothing.
fn ends(island: Island) {
    let (here, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (theirs, until) = (here.clone(), stop.clone());
    let thread = on_node(island, 0, move || {
        island.bind(0).expect("the node is free");
        theirs.store(1, Ordering::Release);
        while until.load(Ordering::Relaxed) == 0 {
            arch::spin(1000);
        }
        0
    });
    assert!(caps::comes_true(MS, || here.load(Ordering::Acquire) == 1), "it was never bound");
    island.leave().expect("it is there");
    told(island, IslandNotice::Left);
    stop.store(1, Ordering::Relaxed);
    ended(thread);
    let after = info(island);
    assert!(!after.live && after.pages == 0 && after.ring_entries == 0, "{after:?}");
    assert!(
        after.used_ns[1] >= 3 * MS && after.depletions[1] > 0,
        "what it has used is forgotten: {after:?}"
    );
    assert_eq!(island.leave(), Err(CapError::InvalidCapability), "it left twice");
    assert_eq!(island.bind(0), Err(CapError::InvalidCapability));
    assert_eq!(island.adjust(&small()), Err(CapError::InvalidCapability));
    say!("realtime-island: left=ok");
}

/// One node that overruns ends the whole island, if its owner wants that; each step is told.
fn shut_down() {
    let island = admit(&IslandSpec { overrun: OverrunPolicy::Shutdown, ..small() }).expect("it fits");
    let thread = on_node(island, 0, move || {
        island.bind(0).expect("the node is free");
        while info(island).live {
            arch::spin(1000);
        }
        0
    });
    told(island, IslandNotice::Overran);
    told(island, IslandNotice::ShuttingDown);
    told(island, IslandNotice::Left);
    ended(thread);
    let whole = admit(&large()).expect("what it had is free");
    whole.leave().expect("it is there");
    say!("realtime-island: shutdown=ok");
}

/// A process takes its islands with it.
fn process_exit() {
    let granted = ["console", "timer", AUTHORITY, "call:told", "serve:told"];
    let child = caps::start("realtime-island", "leave", &granted).expect("within the quota");
    assert_eq!(child.wait(), Ok(0), "its island was not admitted");
    child.detach().expect("a handle can be dropped");
    let mut free = None;
    assert!(
        caps::comes_true(MS, || {
            free = admit(&large()).ok();
            free.is_some()
        }),
        "the island of a process that has ended is still there"
    );
    free.map(Island::leave).expect("it was admitted").expect("it is there");
    say!("realtime-island: process_exit=ok");
}
