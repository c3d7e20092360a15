use super::*;
use crate::admission::{Banded, Denial, Task};
use alloc::string::ToString;
use alloc::vec::Vec;
use mainspring_abi::ring::CapError;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_sched::Floor;
use proptest::prelude::*;

const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn cpu(index: usize) -> CpuId {
    CpuId::new(index).expect("test CPUs exist")
}

fn node(name: &str, budget_ms: u64) -> NodeBudget {
    NodeBudget {
        name: name.to_string(),
        budget: MS(budget_ms),
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

/// Capture, mix and play, every 10 ms.
fn audio() -> RealtimeIslandSpec {
    RealtimeIslandSpec {
        name: "audio".to_string(),
        period: MS(10),
        deadline: MS(8),
        criticality: 1,
        cpu_set: CpuSet::first(2),
        isolated: CpuSet::EMPTY,
        shape: Shape::Independent,
        nodes: [node("capture", 1), node("mix", 3), node("play", 1)].into(),
        rings: [RingSpec { name: "pcm".to_string(), entries: 64 }].into(),
        memory: [PreallocSpec {
            name: "frames".to_string(),
            bytes: 1 << 20,
            residency: Residency::Pinned,
            committed: true,
        }]
        .into(),
        devices: [DeviceReservation { name: "codec".to_string() }].into(),
        irqs: [IrqSpec {
            line: 5,
            work: IrqWork::Bounded { cpu: cpu(0), cost: Nanos::from_micros(50), interval: MS(5) },
        }]
        .into(),
        endpoints: ["mixer".to_string()].into(),
        overrun: OverrunPolicy::Shutdown,
        shutdown: ShutdownPolicy::FinishActivation,
    }
}

fn capacity() -> Capacity {
    Capacity {
        memory_bytes: 4 << 20,
        ring_entries: 256,
        devices: ["codec".to_string(), "arm".to_string(), "camera".to_string()].into(),
        irqs: [5, 6, 7].into(),
    }
}

fn machine() -> Machine {
    Machine::new(CpuSet::first(2), Floor::DEFAULT, Nanos::ZERO, &capacity())
}

//= TICK:L7.spec
//= EVO:S6.record
#[test]
fn an_admitted_island_holds_all_that_it_asked_for_and_records_why() {
    let mut machine = machine();
    let island = machine.admit(audio()).expect("it fits");
    let record = machine.get(island).expect("it is there");
    assert_eq!(record.spec, audio());
    assert_eq!(record.homes.len(), 3);
    assert!(!record.evidence.is_empty());
    assert!(record.evidence.iter().all(|cpu| cpu.verdict.is_admitted() && cpu.verdict.utilization_ppm > 0));
    assert_eq!(machine.reservations().memory_free, 3 << 20);
    assert_eq!(machine.reservations().ring_entries_free, 192);
    assert_eq!(machine.reservations().devices["codec"], Some(island));
    assert_eq!(machine.reservations().irqs[&5], Some(island));
}

//= EVO:S6.fail-closed
//= TICK:L7.memory
//= TICK:L7.no-block
#[test]
fn each_thing_that_is_wrong_alone_refuses_the_whole_and_reserves_nothing() {
    type Break = fn(&mut RealtimeIslandSpec);
    let codec = || "codec".to_string();
    let frames = || "frames".to_string();
    let mix = || "mix".to_string();
    let cases: [(Break, IslandDenial); 25] = [
        (|s| s.nodes.clear(), IslandDenial::NoNodes),
        (|s| s.deadline = MS(11), IslandDenial::Timing),
        (|s| s.nodes[1].budget = Nanos::ZERO, IslandDenial::NodeBudget { node: mix() }),
        (|s| s.nodes[1].budget = MS(9), IslandDenial::NodeBudget { node: mix() }),
        (|s| s.nodes[1].deadline = Some(Nanos::new(1)), IslandDenial::NodeBudget { node: mix() }),
        (|s| s.nodes[1].deadline = Some(MS(9)), IslandDenial::NodeTiming { node: mix() }),
        (|s| s.nodes[1].period = Some(MS(11)), IslandDenial::NodeTiming { node: mix() }),
        (|s| s.nodes[1].period = Some(Nanos::ZERO), IslandDenial::NodeTiming { node: mix() }),
        (|s| s.nodes[1].locks = Locks::Unbounded, IslandDenial::UnboundedLock { node: mix() }),
        (|s| s.nodes[1].calls = Calls::Blocking, IslandDenial::BlockingCall { node: mix() }),
        (|s| s.nodes[1].hot_path.allocates = true, IslandDenial::HotPath { node: mix() }),
        (|s| s.nodes[1].hot_path.logs = true, IslandDenial::HotPath { node: mix() }),
        (|s| s.nodes[1].hot_path.discovers = true, IslandDenial::HotPath { node: mix() }),
        (|s| s.nodes[1].hot_path.credentials = true, IslandDenial::HotPath { node: mix() }),
        (|s| s.memory[0].residency = Residency::Normal, IslandDenial::NotResident { memory: frames() }),
        (|s| s.memory[0].committed = false, IslandDenial::NotCommitted { memory: frames() }),
        (|s| s.memory[0].bytes = u64::MAX, IslandDenial::Memory { asked: u64::MAX, free: 4 << 20 }),
        (|s| s.rings[0].entries = 257, IslandDenial::Rings { asked: 257, free: 256 }),
        (|s| s.rings[0].entries = 0, IslandDenial::EmptyRing { ring: "pcm".to_string() }),
        (|s| s.devices[0].name = "fax".to_string(), IslandDenial::NoDevice { device: "fax".to_string() }),
        (|s| s.devices.push(s.devices[0].clone()), IslandDenial::DeviceTaken { device: codec() }),
        (|s| s.irqs[0].line = 99, IslandDenial::NoIrq { line: 99 }),
        (|s| s.irqs[0].work = IrqWork::Unbounded, IslandDenial::UnboundedIrq { line: 5 }),
        (|s| s.cpu_set = CpuSet::EMPTY, IslandDenial::NoCpu),
        (|s| s.isolated = CpuSet::first(2), IslandDenial::Isolation { cpu: cpu(1) }),
    ];
    for (wrong, denial) in cases {
        let mut machine = machine();
        let before = machine.reservations().clone();
        let mut spec = audio();
        wrong(&mut spec);
        let found = machine.admit(spec).expect_err("something is wrong");
        assert_eq!(found, denial);
        assert_eq!(found.code(), CapError::RealtimeAdmissionDenied);
        assert!(!found.to_string().is_empty());
        assert_eq!(*machine.reservations(), before);
        assert_eq!(machine.islands().count(), 0);
    }
}

//= EVO:S6.fail-closed
#[test]
fn budgets_that_do_not_fit_the_cpus_refuse_the_whole() {
    let mut machine = machine();
    let mut spec = audio();
    spec.nodes = [node("a", 6), node("b", 6), node("c", 6)].into();
    let denial = machine.admit(spec.clone()).expect_err("two CPUs hold two of them");
    let IslandDenial::Cpu { node: Some(node), denial, .. } = denial else { panic!("{denial:?}") };
    assert_eq!(node, "c");
    assert!(matches!(denial.denial, Denial::Demand { .. } | Denial::Overload));
    spec.nodes.pop();
    let island = machine.admit(spec).expect("two fit");
    let homes: Vec<_> = machine.get(island).expect("it is there").homes.iter().map(|home| home.cpu).collect();
    assert_eq!(homes, [cpu(0), cpu(1)]);
}

#[test]
fn a_chain_shares_a_cpu_and_counts_as_one() {
    let mut machine = machine();
    let mut spec = audio();
    spec.shape = Shape::Chain;
    let island = machine.admit(spec.clone()).expect("5 ms within 8 ms");
    let homes = &machine.get(island).expect("it is there").homes;
    assert!(homes.iter().all(|home| home.cpu == homes[0].cpu && home.banded.task.cost == MS(5)));
    let mut long = spec;
    (long.devices, long.irqs) = (Vec::new(), Vec::new());
    long.nodes = [node("a", 5), node("b", 4)].into();
    let denial = machine.admit(long.clone()).expect_err("9 ms within 8 ms");
    assert_eq!(denial, IslandDenial::ChainBudget { total: MS(9), deadline: MS(8) });
    long.shape = Shape::Independent;
    long.nodes[0].budget = MS(4);
    long.nodes[1].budget = MS(3);
    assert!(machine.admit(long).is_ok(), "the chain is counted once, not once for each node");
}

#[test]
fn an_island_must_fit_beside_plain_tasks_and_they_beside_it() {
    let mut machine = machine();
    let task = |ms| Task { cost: MS(ms), deadline: MS(10), period: MS(10) };
    let plain = |at, ms| PlainTask { cpu: cpu(at), banded: Banded { task: task(ms), criticality: 1 } };
    machine.set_plain([plain(0, 9), plain(1, 9)].into()).expect("they fit by themselves");
    assert!(matches!(machine.admit(audio()), Err(IslandDenial::Cpu { .. })));
    machine.set_plain([plain(0, 9), plain(0, 9), plain(1, 9)].into()).expect("no island is there to suffer");
    assert!(matches!(machine.admit(audio()), Err(IslandDenial::Cpu { .. })));
    machine.set_plain(Vec::new()).expect("nothing always fits");
    let _ = machine.admit(audio()).expect("now it fits");
    assert!(matches!(machine.set_plain([plain(0, 9)].into()), Err(IslandDenial::Cpu { .. })));
    assert_eq!(machine.set_plain([plain(7, 1)].into()), Err(IslandDenial::NoCpu));
}

#[test]
fn an_isolated_cpu_has_one_island_and_the_last_cpu_is_nobodys() {
    let mut machine = machine();
    let alone = |index| {
        let mut spec = audio();
        spec.isolated = [cpu(index)].into_iter().collect();
        (spec.memory, spec.devices, spec.irqs) = (Vec::new(), Vec::new(), Vec::new());
        spec.nodes.truncate(1);
        spec
    };
    let mut second = alone(1);
    second.cpu_set = [cpu(1)].into_iter().collect();
    let island = machine.admit(second.clone()).expect("CPU 1 is free");
    assert_eq!(machine.admit(second.clone()), Err(IslandDenial::Isolation { cpu: cpu(1) }));
    assert_eq!(machine.admit(alone(0)), Err(IslandDenial::Isolation { cpu: cpu(0) }), "the last one");
    let mut guest = second;
    guest.isolated = CpuSet::EMPTY;
    assert_eq!(machine.admit(guest.clone()), Err(IslandDenial::NoCpu));
    let _ = machine.leave(island).expect("it is there");
    assert!(machine.admit(guest).is_ok());
}

#[test]
fn a_refused_adjustment_leaves_all_as_it_was_and_an_accepted_one_makes_the_old_name_stale() {
    let mut machine = machine();
    let island = machine.admit(audio()).expect("it fits");
    let (reservations, record) = (machine.reservations().clone(), machine.get(island).cloned());
    let mut greedy = audio();
    greedy.memory[0].bytes = 5 << 20;
    let denial = IslandDenial::Memory { asked: 5 << 20, free: 4 << 20 };
    assert_eq!(machine.adjust(island, greedy), Err(IslandError::Denied(denial)), "its own is free to it");
    assert_eq!((machine.reservations(), machine.get(island).cloned()), (&reservations, record));
    let mut larger = audio();
    larger.memory[0].bytes = 4 << 20;
    let adjusted = machine.adjust(island, larger.clone()).expect("what it held counts as free");
    assert_eq!(machine.reservations().memory_free, 0);
    assert_eq!(machine.adjust(island, larger), Err(IslandError::Stale));
    assert_eq!(machine.leave(island).expect_err("stale"), IslandError::Stale);
    assert!(machine.leave(adjusted).is_ok());
    assert_eq!(machine.reservations().memory_free, 4 << 20);
}

//= EVO:S6.record
#[test]
fn an_overrun_shuts_the_island_down_and_it_holds_everything_until_it_has_left() {
    let mut machine = machine();
    let island = machine.admit(audio()).expect("it fits");
    let reservations = machine.reservations().clone();
    let action = machine.overrun(island, 0).expect("it is there");
    assert_eq!(action, OverrunAction::Shutdown(ShutdownPolicy::FinishActivation));
    assert_eq!(*machine.reservations(), reservations, "its threads may still use it");
    assert_eq!(machine.overrun(island, 0), Ok(OverrunAction::AlreadyStopping));
    assert_eq!(machine.adjust(island, audio()), Err(IslandError::Stopping));
    let denial = IslandDenial::DeviceTaken { device: "codec".to_string() };
    let mut rival = audio();
    rival.irqs.clear();
    assert_eq!(machine.admit(rival.clone()), Err(denial));
    let _ = machine.leave(island).expect("it is there");
    assert!(machine.admit(rival).is_ok());

    for (overrun, action) in [
        (OverrunPolicy::Throttle, OverrunAction::Throttle),
        (OverrunPolicy::Fault, OverrunAction::Fault),
        (OverrunPolicy::Notify, OverrunAction::Notify),
    ] {
        let mut machine = self::machine();
        let island = machine.admit(RealtimeIslandSpec { overrun, ..audio() }).expect("it fits");
        assert_eq!(machine.overrun(island, 0), Ok(action));
        assert!(matches!(machine.shut_down(island), Ok(OverrunAction::Shutdown(_))));
        assert_eq!(machine.get(island).map(|found| found.phase), Some(Phase::Stopping));
    }
}

fn a_spec() -> impl Strategy<Value = RealtimeIslandSpec> {
    let nodes = prop::collection::vec(1u64..5, 0..4);
    let things = (0u64..3, 0u32..120, 0usize..4, 0u32..4, 0u8..4, any::<bool>());
    (nodes, things, 0u8..3, 5u64..20).prop_map(|(nodes, things, criticality, period)| {
        let (megabytes, entries, device, line, isolate, chain) = things;
        let mut spec = audio();
        spec.period = MS(period);
        spec.deadline = MS(period);
        spec.criticality = criticality;
        spec.nodes = nodes.iter().map(|budget| node("n", *budget)).collect();
        spec.rings[0].entries = entries;
        spec.memory[0].bytes = megabytes << 20;
        spec.devices = ["codec", "arm", "camera"]
            .iter()
            .take(device)
            .map(|name| DeviceReservation { name: name.to_string() })
            .collect();
        spec.irqs[0].line = 4 + line;
        spec.isolated = if isolate == 0 { [cpu(1)].into_iter().collect() } else { CpuSet::EMPTY };
        spec.shape = if chain { Shape::Chain } else { Shape::Independent };
        spec
    })
}

/// Adds up what the islands hold, and holds it against what the machine has.
fn audit(machine: &Machine) {
    let all: Vec<_> = machine.islands().collect();
    let memory: u64 = all.iter().flat_map(|(_, island)| &island.spec.memory).map(|buffer| buffer.bytes).sum();
    let rings: u64 =
        all.iter().flat_map(|(_, island)| &island.spec.rings).map(|r| u64::from(r.entries)).sum();
    assert_eq!(machine.reservations().memory_free + memory, capacity().memory_bytes);
    assert_eq!(machine.reservations().ring_entries_free + rings, capacity().ring_entries);
    for (device, holder) in &machine.reservations().devices {
        let claims = all.iter().filter(|(_, island)| island.spec.devices.iter().any(|d| d.name == *device));
        assert_eq!(
            claims.map(|(name, _)| *name).collect::<Vec<_>>(),
            holder.iter().copied().collect::<Vec<_>>()
        );
    }
    for (line, holder) in &machine.reservations().irqs {
        let claims = all.iter().filter(|(_, island)| island.spec.irqs.iter().any(|irq| irq.line == *line));
        assert_eq!(
            claims.map(|(name, _)| *name).collect::<Vec<_>>(),
            holder.iter().copied().collect::<Vec<_>>()
        );
    }
    for (name, island) in &all {
        for isolated in island.spec.isolated.iter() {
            let others = all.iter().filter(|(other, _)| other != name);
            let homes = others.flat_map(|(_, other)| other.homes.iter().map(|home| home.cpu));
            assert!(homes.into_iter().all(|home| home != isolated));
        }
        assert!(island.evidence.iter().all(|cpu| cpu.verdict.is_admitted()));
        assert_eq!(island.homes.len(), island.spec.nodes.len());
    }
}

proptest! {
    //= EVO:S6.fail-closed
    #[test]
    fn whatever_happens_the_book_is_balanced(
        steps in prop::collection::vec((0u8..6, any::<prop::sample::Index>(), a_spec()), 1..60)
    ) {
        let mut machine = self::machine();
        let mut names: Vec<IslandRef> = Vec::new();
        for (what, which, spec) in steps {
            let before = machine.reservations().clone();
            let some = (!names.is_empty()).then(|| names[which.index(names.len().max(1))]);
            let unchanged = match (what, some) {
                (0..=2, _) | (_, None) => match machine.admit(spec) {
                    Ok(island) => { names.push(island); false }
                    Err(_) => true,
                },
                (3, Some(island)) => match machine.adjust(island, spec) {
                    Ok(adjusted) => { names.push(adjusted); false }
                    Err(_) => true,
                },
                (4, Some(island)) => machine.leave(island).is_err(),
                (_, Some(island)) => { let _ = machine.overrun(island, 0); true }
            };
            if unchanged {
                prop_assert_eq!(&before, machine.reservations());
            }
            audit(&machine);
        }
        let all: Vec<IslandRef> = machine.islands().map(|(name, _)| name).collect();
        for island in all {
            prop_assert!(machine.leave(island).is_ok());
        }
        let fresh = self::machine();
        prop_assert_eq!(machine.reservations(), fresh.reservations());
    }
}
