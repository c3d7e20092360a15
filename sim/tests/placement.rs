//! Where threads run: published where they are made, spread by stealing, never in two places at once.

use mainspring_abi::Nanos;
use mainspring_record::watch::Watch;
use mainspring_report::ScheduleEntry;
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sched::{Cpu, Via};
use mainspring_sim::{Options, run};
use mainspring_workload::{Workload, parse};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Which thread arrived where, and how, in order; and whether time ever went back.
#[derive(Default)]
struct Arrivals {
    seen: Rc<RefCell<Vec<(u32, usize, Via)>>>,
    now: Nanos,
}

impl Watch for Arrivals {
    fn before(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>) {
        assert!(now >= self.now, "time went back from {} to {now}", self.now);
        self.now = now;
        if let EventRef::Accept(entity, via) = event {
            self.seen.borrow_mut().push((entity.thread().index(), cpu.id().index(), via));
        }
    }

    fn after(&mut self, _: Nanos, _: &Cpu, _: Outcome) -> Result<(), String> {
        Ok(())
    }
}

fn arrivals(workload: &Workload) -> Vec<(u32, usize, Via)> {
    let watch = Arrivals::default();
    let seen = Rc::clone(&watch.seen);
    let options = Options { watch: Some(Box::new(watch)), ..Options::default() };
    run("placement", workload, options).expect("the workload runs");
    Rc::try_unwrap(seen).expect("the run is over").into_inner()
}

//= ARCH:place.local EVO:S1.steal-bounded
#[test]
fn a_child_is_published_on_its_makers_cpu_and_stolen_from_there() {
    let text = r#"
        [machine]
        cpus = 3
        duration = "20ms"
        [[thread]]
        name = "maker"
        cpus = [1]
        program = ["run 1ms", "spawn child", "spawn child", "run forever"]
        [[thread]]
        name = "child"
        start = "spawn"
        count = 2
        program = ["run forever"]
    "#;
    let workload = parse("placement", text).expect("valid");
    let seen = arrivals(&workload);
    let of = |thread: u32| seen.iter().filter(move |(index, ..)| *index == thread);
    for child in [1, 2] {
        let path: Vec<(usize, Via)> = of(child).map(|(_, cpu, via)| (*cpu, *via)).collect();
        assert_eq!(path[0], (1, Via::Admit), "made on its maker's CPU");
        assert_eq!(path[1].1, Via::Steal, "and stolen by an idle one");
    }
}

//= ARCH:inv.no-double-run EVO:S2.coverage TICK:L1.clocksource
#[test]
fn no_thread_is_in_two_places_and_no_cpu_does_two_things_at_once() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads");
    for file in std::fs::read_dir(folder).expect("the examples are there") {
        let path = file.expect("readable").path();
        let workload = mainspring_workload::load(&path).expect("examples are valid");
        // Budgets are of the Linux runtime, and what they bound may have no end without them.
        let budgeted = workload.threads.iter().any(|thread| thread.budget.is_some());
        let many =
            workload.threads.iter().map(mainspring_workload::ThreadSpec::instances).sum::<usize>() > 2_000;
        if budgeted || many {
            continue;
        }
        let options =
            Options { schedule: true, watch: Some(Box::new(Arrivals::default())), ..Options::default() };
        let report = run("example", &workload, options).expect("examples run");
        let schedule = report.schedule.expect("asked for");
        apart(&schedule, |entry| entry.thread.clone());
        apart(&schedule, |entry| entry.cpu.to_string());
        for cpu in &report.cpus {
            assert_eq!(cpu.busy_ns + cpu.idle_ns, report.duration_ns, "{}", path.display());
        }
        let charged: u64 = report.threads.iter().map(|thread| thread.runtime_ns).sum();
        let busy: u64 = report.cpus.iter().map(|cpu| cpu.busy_ns).sum();
        assert_eq!(charged, busy, "{}: every busy nanosecond is somebody's", path.display());
    }
}

/// The intervals of each group do not overlap.
fn apart(schedule: &[ScheduleEntry], group: impl Fn(&ScheduleEntry) -> String) {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for entry in schedule {
        let end = last.entry(group(entry)).or_default();
        assert!(entry.start_ns >= *end, "{entry:?} begins before {end}");
        *end = entry.end_ns;
    }
}
