//! Where threads run: published where they are made, spread by stealing, never in two places at once; and which CPUs hear of it.

mod common;

use common::checked;
use mainspring_abi::Nanos;
use mainspring_record::check::Bound;
use mainspring_record::watch::Watch;
use mainspring_report::ScheduleEntry;
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sched::{Cpu, Via};
use mainspring_sim::{Options, run};
use mainspring_workload::{Workload, parse};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Which thread arrived where, and how, and which CPUs were told to look at their queues, in order; and whether time ever went back.
#[derive(Default)]
struct Arrivals {
    seen: Rc<RefCell<Vec<(u32, usize, Via)>>>,
    told: Rc<RefCell<Vec<(u64, usize)>>>,
    now: Nanos,
}

impl Watch for Arrivals {
    fn before(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>) {
        assert!(now >= self.now, "time went back from {} to {now}", self.now);
        self.now = now;
        if let EventRef::Accept(entity, via) = event {
            self.seen.borrow_mut().push((entity.thread().index(), cpu.id().index(), via));
        } else if let EventRef::RescheduleReceived = event {
            self.told.borrow_mut().push((now.get(), cpu.id().index()));
        }
    }

    fn after(&mut self, _: Nanos, _: &Cpu, _: Outcome) -> Result<(), String> {
        Ok(())
    }
}

/// Which threads arrived where and how, and when which CPU was told.
type Seen = (Vec<(u32, usize, Via)>, Vec<(u64, usize)>);

fn watched(workload: &Workload) -> Seen {
    let watch = Arrivals::default();
    let (seen, told) = (Rc::clone(&watch.seen), Rc::clone(&watch.told));
    let options = Options { watch: Some(Box::new(watch)), ..Options::default() };
    run("placement", workload, options).expect("the workload runs");
    (seen.take(), told.take())
}

fn arrivals(workload: &Workload) -> Vec<(u32, usize, Via)> {
    watched(workload).0
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

/// Three threads wake at once on CPU 1, where a hog runs by now, as on CPU 2. CPUs 3, 4 and 5 idle.
const BURST: &str = r#"
    [machine]
    cpus = 6
    duration = "20ms"
    [costs]
    ipi = "50us"
    [[thread]]
    name = "waker"
    cpus = [0]
    times = 1
    program = ["run 3ms", "unpark first", "unpark second", "unpark third", "run 10ms"]
    [[thread]]
    name = "first"
    latency = "batch"
    program = ["park", "run 5ms"]
    [[thread]]
    name = "second"
    latency = "batch"
    program = ["park", "run 5ms"]
    [[thread]]
    name = "third"
    latency = "batch"
    program = ["park", "run 5ms"]
    [[thread]]
    name = "hog1"
    cpus = [1]
    start = "1ms"
    program = ["run forever"]
    [[thread]]
    name = "hog2"
    cpus = [2]
    start = "1ms"
    program = ["run forever"]
"#;

//= ARCH:wake.scan OWN:driver.one
#[test]
fn a_burst_of_wakeups_tells_each_home_first_and_each_idle_cpu_once() {
    let told = |latency: &str| {
        let workload = parse("burst", &BURST.replace("batch", latency)).expect("valid");
        checked(&workload, 1, Bound::None);
        let (arrivals, told) = watched(&workload);
        let told: Vec<_> = told.into_iter().filter(|(at, _)| *at > 2_000_000).take(3).collect();
        (arrivals[arrivals.len() - 3..].to_vec(), told)
    };
    // A thread of the batch class goes before no other thread, so their home is not told. From CPU 1 upwards CPU 3 is the first that
    // idles. It has been told when the second wakes, and CPUs 3 and 4 when the third does.
    let (arrivals, batch) = told("batch");
    assert_eq!(batch, [(3_100_000, 3), (3_100_000, 4), (3_100_000, 5)], "one message each");
    assert_eq!(arrivals, [(1, 3, Via::Steal), (2, 4, Via::Steal), (3, 5, Via::Steal)]);
    // A thread that goes first is for its home. When the second and the third wake, their home has been told.
    let (_, first) = told("interactive");
    assert_eq!(first, [(3_100_000, 1), (3_100_000, 3), (3_100_000, 4)], "one message each");
}

//= ARCH:steal.position
#[test]
fn a_thief_takes_what_it_may_run_from_behind_what_it_may_not() {
    let text = r#"
        [machine]
        cpus = 2
        duration = "40ms"
        [[thread]]
        name = "soon-over"
        cpus = [1]
        weight = 1024
        times = 1
        program = ["run 5ms"]
        [[thread]]
        name = "pinned"
        count = 3
        cpus = [0]
        program = ["run forever"]
        [[thread]]
        name = "free"
        program = ["run forever"]
    "#;
    let workload = parse("steal", text).expect("valid");
    // The checks see that its tag is derived anew and that both queues stay in order.
    let report = checked(&workload, 1, Bound::None).report;
    let (arrivals, _) = watched(&workload);
    let moved: Vec<_> = arrivals.iter().filter(|(_, _, via)| *via != Via::Admit).collect();
    assert_eq!(moved, [&(4, 1, Via::Steal)], "the one that may run there, once");
    let ran = |name: &str, cpu: u32| {
        let mine =
            report.schedule.iter().flatten().filter(move |entry| entry.thread == name && entry.cpu == cpu);
        mine.map(|entry| entry.end_ns - entry.start_ns).sum::<u64>()
    };
    assert_eq!(ran("free", 1), 35_000_000, "from when that CPU has nothing else");
    assert!((0..3).all(|number| ran(&format!("pinned.{number}"), 1) == 0));
    assert_eq!(report.cpus[0].idle_ns, 0);
}

//= ARCH:retry-later ARCH:queue.scan TICK:verify.realtime
#[test]
fn a_thread_that_may_not_run_yet_hides_nobody_and_one_that_is_gone_is_passed() {
    let text = r#"
        [machine]
        cpus = 2
        duration = "30ms"
        floor = "0%"
        [[context]]
        name = "grant"
        budget = "1ms"
        period = "10ms"
        cpus = [0]
        [[thread]]
        name = "throttled"
        context = "grant"
        program = ["run forever"]
        [[thread]]
        name = "behind"
        cpus = [0]
        count = 2
        program = ["run forever"]
        [[thread]]
        name = "gone"
        cpus = [0]
        program = ["run forever"]
        [[at]]
        time = "2ms"
        do = "exit gone"
    "#;
    let workload = parse("retry", text).expect("valid");
    let report = checked(&workload, 1, Bound::None).report;
    let schedule = report.schedule.as_deref().expect("asked for");
    let of = |name: &str| {
        let mine = schedule.iter().filter(move |entry| entry.thread.starts_with(name));
        mine.map(|entry| (entry.cpu, entry.start_ns / 1_000, entry.end_ns / 1_000)).collect::<Vec<_>>()
    };
    assert_eq!(
        of("throttled"),
        [(0, 0, 1_000), (0, 10_000, 11_000), (0, 20_000, 21_000)],
        "its budget, and no thief"
    );
    let others: u64 = of("behind").iter().map(|(_, start, end)| end - start).sum();
    let gone: u64 = of("gone").iter().map(|(_, start, end)| end - start).sum();
    assert_eq!(others + gone, 27_000, "all the rest");
    assert!(of("gone").iter().all(|(_, _, end)| *end <= 2_000), "{:?}", of("gone"));
    assert_eq!((report.cpus[0].idle_ns, report.cpus[1].busy_ns), (0, 0));
}

/// What the driver does to a CPU, and what a machine therefore does not do itself.
//= OWN:driver.one
#[test]
fn the_simulator_moves_threads_by_the_driver_and_not_itself() {
    fn sources(folder: &std::path::Path, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).expect("it can be read");
                found.push((path.display().to_string(), text));
            }
        }
    }
    let mut found = Vec::new();
    sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/machine")), &mut found);
    assert!(found.len() > 30, "only {} files have been looked at", found.len());
    let mut by_the_driver = 0;
    for (name, text) in &found {
        let code: String = text.split_whitespace().collect();
        by_the_driver += code.matches("placement::").count();
        for event in ["accept", "wake", "hand_off", "give", "remove", "exit_current"] {
            // A CPU is reached by `core(…)` or `event()`.
            let direct = format!(").{event}(");
            assert!(!code.contains(&direct), "{name} calls `{event}` itself: the driver has a rule for that");
        }
    }
    assert!(by_the_driver >= 8, "{by_the_driver} uses of the driver's rules");
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
