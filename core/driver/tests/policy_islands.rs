//! Islands on a machine, as a policy admits them: whole or not at all, told of, and gone without a trace.

mod machines;

use machines::isolated::{Isolated, isolated};
use machines::{cpu, entity, thread};
use mainspring_abi::{ContextRef, CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_authority::island::{
    self, Calls, Capacity, DeviceReservation, HotPath, IslandDenial, IslandError, IslandRef, Locks,
    NodeBudget, NodeTerms, OverrunPolicy, Phase, PreallocSpec, RealtimeIslandSpec, Residency, RingSpec,
    Shape, ShutdownPolicy,
};
use mainspring_driver::contexts::{AdmissionRules, ContextMachine, Contexts, Grant, HomeCpu, RevokeReason};
use mainspring_driver::islands::{IslandMachine, IslandNotice, Islands, NotAdmitted, NotBound, UsedUp};
use mainspring_driver::leases::Leases;
use mainspring_driver::ledgers::Ledgers;
use mainspring_driver::placement::start;
use mainspring_driver::sessions::Sessions;
use mainspring_sched::context::{ContextSpec, Overrun};
use mainspring_sched::lease::{Endpoint, Owner};
use mainspring_sched::{Floor, Overran, Stop};
use std::cell::RefCell;

const OWNER: Owner = Owner { process: ProcessId::new(0), session: None, service: None };
const HEARS: Endpoint = Endpoint(4);

thread_local! {
    static NOTICES: RefCell<Vec<(Endpoint, IslandRef, IslandNotice)>> = const { RefCell::new(Vec::new()) };
}

impl ContextMachine for Isolated {
    fn overran(&mut self, _: Overran) {}

    fn wake_waiter(&mut self, _: ContextRef, _: ThreadRef) {}
}

impl IslandMachine for Isolated {
    fn post_island_notice(&mut self, endpoint: Endpoint, island: IslandRef, notice: IslandNotice) {
        NOTICES.with_borrow_mut(|notices| notices.push((endpoint, island, notice)));
    }
}

fn take_notices() -> Vec<IslandNotice> {
    NOTICES.with_borrow_mut(|notices| {
        assert!(notices.iter().all(|(endpoint, ..)| *endpoint == HEARS));
        notices.drain(..).map(|(_, _, notice)| notice).collect()
    })
}

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn node(name: &str, budget_ms: u64) -> NodeBudget {
    NodeBudget {
        name: name.to_owned(),
        budget: ms(budget_ms),
        period: None,
        deadline: None,
        criticality: None,
        cpus: None,
        locks: Locks::None,
        calls: Calls::Donating,
        hot_path: HotPath::default(),
        terms: NodeTerms::default(),
    }
}

/// Two nodes, every 10 ms, and CPU 1 for itself.
fn audio() -> RealtimeIslandSpec {
    RealtimeIslandSpec {
        name: "audio".to_owned(),
        period: ms(10),
        deadline: ms(8),
        criticality: 1,
        cpu_set: [cpu(1)].into_iter().collect(),
        isolated: [cpu(1)].into_iter().collect(),
        shape: Shape::Independent,
        nodes: vec![node("mix", 4)],
        rings: vec![RingSpec { name: "pcm".to_owned(), entries: 64 }],
        memory: vec![PreallocSpec {
            name: "frames".to_owned(),
            bytes: 1 << 20,
            residency: Residency::Pinned,
            committed: true,
        }],
        devices: vec![DeviceReservation { name: "codec".to_owned() }],
        irqs: Vec::new(),
        endpoints: vec!["mixer".to_owned()],
        overrun: OverrunPolicy::Shutdown,
        shutdown: ShutdownPolicy::FinishActivation,
    }
}

struct Rig {
    machine: Isolated,
    leases: Leases,
    contexts: Contexts,
    islands: Islands,
}

fn rig() -> Rig {
    let (mut machine, mut leases) = isolated(2, 4, 4);
    for index in 0..3 {
        start(&mut machine, cpu(index as usize % 2), entity(index, None)).expect("a seat");
    }
    machine.deliver(&mut leases);
    let rules = AdmissionRules { cpus: CpuSet::first(2), ..AdmissionRules::default() };
    let (sessions, ledgers) = (Sessions::new(2).expect("two"), Ledgers::new(2).expect("two"));
    let capacity = Capacity {
        memory_bytes: 4 << 20,
        ring_entries: 128,
        devices: ["codec".to_owned()].into(),
        irqs: [].into(),
    };
    let admission = island::Machine::new(CpuSet::first(2), Floor::NONE, Nanos::ZERO, &capacity);
    Rig {
        machine,
        leases,
        contexts: Contexts::new(8, rules, sessions, ledgers).expect("eight"),
        islands: Islands::new(admission),
    }
}

impl Rig {
    fn admit(&mut self, spec: RealtimeIslandSpec) -> Result<IslandRef, NotAdmitted> {
        let Self { machine, contexts, islands, .. } = self;
        islands.admit(machine, contexts, spec, OWNER, Some(HEARS))
    }

    fn bind(&mut self, node: (IslandRef, usize), index: u32) -> Result<(), NotBound> {
        let Self { machine, contexts, islands, leases } = self;
        islands.bind(machine, contexts, leases, node, thread(index))
    }

    fn live_contexts(&self) -> usize {
        self.contexts.names().filter(|who| !self.contexts.is_gone(who.id())).count()
    }
}

//= TICK:L7.spec EVO:S6.record
#[test]
fn an_admitted_island_has_its_contexts_its_leases_and_the_grounds_on_record() {
    let mut rig = rig();
    let island = rig.admit(audio()).expect("it fits");
    let contexts = rig.islands.contexts(island).expect("admitted").to_vec();
    let spec = rig.contexts.spec(contexts[0].id()).expect("live");
    assert_eq!((spec.budget, spec.period, spec.deadline, spec.criticality), (ms(4), ms(10), ms(8), 1));
    assert_eq!(rig.contexts.home(contexts[0].id()), Some(cpu(1)));
    let admitted = rig.islands.admission().get(island).expect("on record");
    assert_eq!((admitted.spec.clone(), admitted.phase), (audio(), Phase::Running));
    assert!(admitted.evidence.iter().all(|evidence| evidence.verdict.is_admitted()));
    // Its node's thread gets the context, and the CPU that the island wants alone.
    rig.bind((island, 0), 1).expect("it is free");
    rig.machine.deliver(&mut rig.leases);
    assert_eq!(rig.islands.leases(island).expect("admitted").len(), 1);
    assert_eq!(rig.machine.isolation.lessee(cpu(1)).map(|lessee| lessee.thread), Some(thread(1)));
    assert_eq!(rig.machine.running(1), Some(thread(1)));
    assert!(rig.machine.is_tickless(1), "charged to its own context, alone on its CPU");
}

//= EVO:S6.fail-closed TICK:L7.memory TICK:L7.no-block EVO:gate.island
#[test]
fn a_refused_island_leaves_nothing_reserved() {
    type Break = fn(&mut RealtimeIslandSpec);
    let broken: [(&str, Break); 6] = [
        ("time", |spec| spec.nodes[0].budget = ms(9)),
        ("normal memory", |spec| spec.memory[0].residency = Residency::Normal),
        ("memory that is not there", |spec| spec.memory[0].committed = false),
        ("an unbounded lock", |spec| spec.nodes[0].locks = Locks::Unbounded),
        ("a blocking call", |spec| spec.nodes[0].calls = Calls::Blocking),
        ("allocation on the hot path", |spec| spec.nodes[0].hot_path.allocates = true),
    ];
    let mut rig = rig();
    for (what, break_it) in broken {
        let mut spec = audio();
        break_it(&mut spec);
        assert!(matches!(rig.admit(spec), Err(NotAdmitted::Denied(_))), "{what}");
        assert_eq!((rig.live_contexts(), rig.islands.admission().islands().count()), (0, 0), "{what}");
    }
    // As many contexts live as there is room for: no node of the island gets one.
    for _ in 0..8 {
        let grant = Grant { session: None, process: None, ledger: None, home: HomeCpu::Decided(cpu(0)) };
        let spec = ContextSpec::new(Nanos::from_micros(1), ms(10));
        rig.contexts.grant(rig.machine.now, spec, grant).expect("there is room");
    }
    assert!(matches!(rig.admit(audio()), Err(NotAdmitted::Context { node: 0, .. })));
    assert_eq!(rig.islands.admission().islands().count(), 0);
    let plain: Vec<ContextRef> = rig.contexts.names().collect();
    let one = plain[0];
    rig.contexts.revoke(&mut rig.machine, one, RevokeReason::Explicit).expect("live");
    assert!(rig.admit(audio()).is_ok(), "what the refused ones asked for is free");
}

//= EVO:S6.fail-closed
#[test]
fn plain_contexts_count_beside_an_island() {
    let mut rig = rig();
    let spec = ContextSpec::new(ms(7), ms(10));
    let grant = Grant { session: None, process: None, ledger: None, home: HomeCpu::Decided(cpu(1)) };
    rig.contexts.grant(rig.machine.now, spec, grant).expect("there is room");
    let mut shares = audio();
    shares.isolated = CpuSet::EMPTY;
    assert!(matches!(rig.admit(shares), Err(NotAdmitted::Denied(IslandDenial::Cpu { .. }))));
    assert!(matches!(rig.admit(audio()), Err(NotAdmitted::Denied(_))), "nor is the CPU free for it alone");
    let plain = rig.contexts.names().next().expect("one");
    rig.contexts.revoke(&mut rig.machine, plain, RevokeReason::Explicit).expect("live");
    assert!(rig.admit(audio()).is_ok(), "one that is gone does not count");
}

//= EVO:gate.island
#[test]
fn an_overrun_shuts_the_island_down_and_its_owner_hears_each_step() {
    let mut rig = rig();
    let island = rig.admit(audio()).expect("it fits");
    rig.bind((island, 0), 1).expect("it is free");
    rig.machine.deliver(&mut rig.leases);
    let who = rig.islands.contexts(island).expect("admitted")[0];
    rig.machine.pass(&mut rig.leases, ms(4));
    assert_ne!(rig.machine.running(1), Some(thread(1)), "its 4 ms are used up, and it is throttled");
    assert_eq!(rig.islands.used_up(&mut rig.machine, who, Overrun::Shutdown), UsedUp::Leave(island));
    assert_eq!(take_notices(), [IslandNotice::Overran { node: 0 }, IslandNotice::ShuttingDown]);
    let again = rig.islands.used_up(&mut rig.machine, who, Overrun::Shutdown);
    assert_eq!(again, UsedUp::Nothing, "it is stopping already");
    let Rig { machine, leases, contexts, islands } = &mut rig;
    islands.leave(machine, contexts, leases, island).expect("it is there");
    machine.deliver(leases);
    assert_eq!(take_notices(), [IslandNotice::Left]);
    assert_eq!((rig.live_contexts(), rig.leases.live_count()), (0, 0));
    assert!(rig.machine.isolation.leased().is_empty() && !rig.machine.is_tickless(1));
    assert_eq!(rig.islands.contexts(island), None);
    let Rig { machine, leases, contexts, islands } = &mut rig;
    assert_eq!(islands.leave(machine, contexts, leases, island), Err(IslandError::Stale));
    assert!(rig.admit(audio()).is_ok(), "and all that it held is free");
}

//= EVO:S6.record
#[test]
fn an_adjustment_changes_the_contexts_or_nothing() {
    let mut rig = rig();
    let island = rig.admit(audio()).expect("it fits");
    let who = rig.islands.contexts(island).expect("admitted")[0];
    let mut more = audio();
    more.nodes[0].budget = ms(9);
    let Rig { machine, contexts, islands, .. } = &mut rig;
    assert!(matches!(islands.adjust(machine, contexts, island, more), Err(IslandError::Denied(_))));
    // A period that an island could have, and no context can.
    let rare = RealtimeIslandSpec { period: Nanos::MAX, deadline: Nanos::MAX, ..audio() };
    assert!(matches!(islands.adjust(machine, contexts, island, rare), Err(IslandError::Denied(_))));
    assert_eq!(contexts.spec(who.id()).map(|spec| spec.budget), Some(ms(4)));
    assert_eq!(take_notices(), []);
    let mut less = audio();
    less.nodes[0].budget = ms(2);
    let adjusted = islands.adjust(machine, contexts, island, less.clone()).expect("it fits");
    assert_eq!(contexts.spec(who.id()).map(|spec| spec.budget), Some(ms(2)));
    assert_eq!(take_notices(), [IslandNotice::Adjusted]);
    assert_eq!(islands.adjust(machine, contexts, island, less), Err(IslandError::Stale), "the old name");
    assert_eq!(islands.node_of(who).map(|(island, _)| island), Some(adjusted));
    rig.machine.stop(0, Stop::Preempted);
}

#[test]
fn an_adjustment_disturbs_no_node_whose_terms_stay_and_survives_one_that_was_revoked() {
    let mut rig = rig();
    let mut two = audio();
    two.isolated = CpuSet::EMPTY;
    two.nodes = vec![node("mix", 2), node("gate", 2)];
    let island = rig.admit(two.clone()).expect("it fits");
    let contexts_of = rig.islands.contexts(island).expect("admitted").to_vec();
    let Rig { machine, contexts, islands, .. } = &mut rig;
    two.nodes[0].budget = ms(3);
    let island = islands.adjust(machine, contexts, island, two.clone()).expect("it fits");
    let budget = |contexts: &Contexts, node: usize| {
        contexts.spec(contexts_of[node].id()).map(|spec| spec.budget).expect("known")
    };
    assert_eq!((budget(contexts, 0), budget(contexts, 1)), (ms(3), ms(2)));
    contexts.revoke(machine, contexts_of[0], RevokeReason::Explicit).expect("live");
    two.nodes[1].budget = ms(4);
    let mut three = two.clone();
    three.nodes[1].budget = ms(3);
    let island = islands.adjust(machine, contexts, island, two).expect("it fits");
    assert_eq!((budget(contexts, 0), budget(contexts, 1)), (ms(3), ms(4)), "what is gone stays as it was");
    // The table forgets what has ended when it needs the place.
    while contexts.spec(contexts_of[0].id()).is_some() {
        let grant = Grant { session: None, process: None, ledger: None, home: HomeCpu::Decided(cpu(0)) };
        let made =
            contexts.grant(machine.now, ContextSpec::new(ms(1), ms(100)), grant).expect("there is room");
        contexts.revoke(machine, made, RevokeReason::Explicit).expect("live");
    }
    islands.adjust(machine, contexts, island, three).expect("it fits");
    assert_eq!(budget(contexts, 1), ms(3));
}

#[test]
fn a_node_may_have_another_overrun_policy_than_its_island() {
    let mut rig = rig();
    let mut two = audio();
    two.isolated = CpuSet::EMPTY;
    two.nodes = vec![node("mix", 2), node("gate", 2)];
    two.nodes[1].terms.overrun = Some(OverrunPolicy::Notify);
    two.nodes[1].terms.priority = 7;
    let island = rig.admit(two).expect("it fits");
    let contexts = rig.islands.contexts(island).expect("admitted").to_vec();
    let spec = |node: usize| rig.contexts.spec(contexts[node].id()).expect("live");
    assert_eq!((spec(0).overrun, spec(0).priority), (Overrun::Shutdown, 0));
    assert_eq!((spec(1).overrun, spec(1).priority), (Overrun::Notify, 7));
    let gate = rig.islands.used_up(&mut rig.machine, contexts[1], Overrun::Notify);
    assert_eq!(gate, UsedUp::Nothing, "its owner hears of it");
    assert_eq!(take_notices(), [IslandNotice::Overran { node: 1 }]);
}

#[test]
fn a_context_of_no_island_is_dealt_with_as_its_own_policy_says() {
    let mut rig = rig();
    let plain = ContextRef::new(77, 0);
    let left_to_do = [
        (Overrun::Throttle, UsedUp::Nothing),
        (Overrun::Notify, UsedUp::Nothing),
        (Overrun::Fault, UsedUp::Fault),
        (Overrun::Shutdown, UsedUp::Revoke),
    ];
    for (policy, expected) in left_to_do {
        assert_eq!(rig.islands.used_up(&mut rig.machine, plain, policy), expected, "{policy:?}");
    }
    assert_eq!(take_notices(), []);
}
