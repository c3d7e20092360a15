//! Leases on the simulated machine: which threads keep away, when the tick stops, and everything that brings it
//! back.

mod common;

use common::{checked, checked_in, thread, watched, workload};
use mainspring_abi::Nanos;
use mainspring_record::check::{Bound, Checks, Setting, Wide, all};
use mainspring_record::watch::Watch;
use mainspring_report::{Event, LeaseReport, Report};
use mainspring_sched::flight::{EventRef, NohzEvent, NohzOutcome, Outcome};
use mainspring_sched::lease::Standing;
use mainspring_sched::nohz::{Conditions, Obstacle};
use mainspring_sched::{Cpu, NohzEntry, NohzRecheck};

fn run(text: &str) -> Report {
    checked(&workload(text), 1, Bound::None).report
}

fn lease<'a>(report: &'a Report, name: &str) -> &'a LeaseReport {
    report.leases.iter().find(|lease| lease.name == name).unwrap_or_else(|| panic!("no lease {name}"))
}

fn events<'a>(report: &'a Report, kind: &'a str) -> impl Iterator<Item = &'a Event> {
    report.events.as_deref().unwrap_or_default().iter().filter(move |event| event.kind == kind)
}

fn reasons(report: &Report, kind: &str) -> Vec<(u64, String)> {
    events(report, kind).map(|event| (event.time_ns, event.reason.clone().unwrap_or_default())).collect()
}

/// Which threads ran on `cpu` between two times.
fn on_cpu(report: &Report, cpu: u32, from: u64, to: u64) -> Vec<&str> {
    let schedule = report.schedule.as_deref().unwrap_or_default();
    let mut names: Vec<&str> = schedule
        .iter()
        .filter(|entry| entry.cpu == cpu && entry.start_ns < to && entry.end_ns > from)
        .map(|entry| entry.thread.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

const MS: u64 = 1_000_000;

/// A thread that computes alone on CPU 1, and others that would like to.
const ALONE: &str = r#"
    [machine]
    cpus = 2
    duration = "200ms"
    [[lease]]
    name = "quiet"
    cpus = [1]
    thread = "alone"
    max_revocation = "25ms"
    [[thread]]
    name = "alone"
    program = ["run forever"]
    [[thread]]
    name = "hog"
    count = 3
    program = ["run 1ms..3ms", "sleep 500us"]
"#;

//= ARCH:nohz.activate TICK:L2.proof ARCH:nohz.accounting ARCH:nohz.admit-compute TICK:L3.housekeeping
#[test]
fn a_leased_cpu_has_one_thread_and_no_tick() {
    let report = run(ALONE);
    let quiet = lease(&report, "quiet");
    assert_eq!((quiet.activations, quiet.state.as_str()), (1, "live, tickless"));
    assert_eq!(quiet.tickless_ns, 200 * MS);
    // One interrupt for each revocation latency instead of one for each tick.
    assert_eq!((report.cpus[1].ticks, report.cpus[1].timer_interrupts), (0, 7));
    assert_eq!(on_cpu(&report, 1, 0, 200 * MS), ["alone"]);
    assert_eq!(thread(&report, "alone").runtime_ns, 200 * MS, "charged to the nanosecond");
    assert_eq!(report.cpus[1].steals, 0, "it takes no work from others");
    let told = reasons(&report, "lease");
    assert_eq!(told, [(0, "granted".to_owned())]);
}

//= ARCH:lease.revoke ARCH:nohz.rollback TICK:L2.dynamic EVO:gate.lease
#[test]
fn a_revoked_lease_ends_its_window_and_shares_its_cpu_again() {
    let alone = ALONE.replace("run forever\"", "run 80ms\", \"sleep 2ms\"");
    let report = run(&format!("{alone}\n[[at]]\ntime = \"60ms\"\ndo = \"revoke-lease quiet\"\n"));
    let quiet = lease(&report, "quiet");
    assert_eq!((quiet.tickless_ns, quiet.state.as_str()), (60 * MS, "lease-revoked"));
    assert_eq!(quiet.exits.iter().collect::<Vec<_>>(), [(&"record-cleared".to_owned(), &1)]);
    assert!(report.cpus[1].ticks >= 13, "{:?}", report.cpus[1]);
    assert!(on_cpu(&report, 1, 70 * MS, 200 * MS).iter().any(|name| name.starts_with("hog")));
}

//= ARCH:lease.lifetime ARCH:nohz.armed-timer
#[test]
fn a_lifetime_ends_by_itself_within_the_revocation_latency() {
    let text =
        ALONE.replace("max_revocation = \"25ms\"", "max_revocation = \"25ms\"\n    lifetime = \"90ms\"");
    let report = run(&text);
    let quiet = lease(&report, "quiet");
    assert_eq!((quiet.state.as_str(), quiet.tickless_ns), ("lease-expired", 90 * MS));
    assert_eq!(reasons(&report, "nohz-exit"), [(90 * MS, "lease-lifetime-expired".to_owned())]);
}

//= ARCH:nohz.armed-timer ARCH:lease.lifetime
#[test]
fn a_lost_interrupt_delays_the_end_by_the_revocation_latency_at_most() {
    let text = format!(
        "{ALONE}\n[[at]]\ntime = \"160ms\"\ndo = \"revoke-lease quiet\"\n[faults]\nlost_reschedule = \"100%\"\n"
    );
    let report = run(&text);
    let (at, why) = reasons(&report, "nohz-exit").remove(0);
    assert_eq!((at, why.as_str()), (175 * MS, "record-cleared"), "at the one-shot that was armed at 150 ms");
}

//= ARCH:nohz.rollback ARCH:nohz.recheck TICK:L2.dynamic
#[test]
fn a_second_thread_that_can_be_nowhere_else_brings_the_tick_back_while_it_is_there() {
    let visitor = r#"
    [[thread]]
    name = "visitor"
    cpus = [1]
    start = "52ms"
    times = 1
    program = ["run 30ms"]
    "#;
    let report = run(&format!("{ALONE}{visitor}"));
    let exits = reasons(&report, "nohz-exit");
    assert_eq!(exits, [(52 * MS, "second-runnable".to_owned())]);
    let enters: Vec<u64> = events(&report, "nohz-enter").map(|event| event.time_ns).collect();
    assert_eq!(enters.len(), 2);
    let left = report.schedule.as_deref().unwrap_or_default();
    let left = left.iter().filter(|entry| entry.thread == "visitor").map(|entry| entry.end_ns).max();
    assert_eq!(Some(enters[1]), left, "as soon as it is alone again");
    assert_eq!(on_cpu(&report, 1, 0, 200 * MS), ["alone", "visitor"]);
}

//= TICK:L3.housekeeping ARCH:lease.overlap
#[test]
fn a_thread_that_slept_on_a_leased_cpu_wakes_elsewhere_and_one_that_ran_there_leaves() {
    let text = r#"
        [machine]
        cpus = 2
        duration = "100ms"
        [[lease]]
        name = "late"
        cpus = [0]
        thread = "alone"
        start = "20ms"
        [[thread]]
        name = "alone"
        program = ["run forever"]
        [[thread]]
        name = "sleeper"
        count = 4
        program = ["run 2ms", "sleep 3ms"]
        [[thread]]
        name = "hog"
        program = ["run forever"]
    "#;
    let report = run(text);
    assert_eq!(on_cpu(&report, 0, 20 * MS, 100 * MS), ["alone"]);
    assert!(on_cpu(&report, 0, 0, 20 * MS).len() > 1, "it was shared before");
    assert!(lease(&report, "late").tickless_ns > 70 * MS, "{:?}", lease(&report, "late"));
    let moved = report.telemetry.housekeeping_offload_count;
    assert!((1..=5).contains(&moved), "each of the others leaves once at most: {moved}");
}

//= ARCH:nohz.remote ARCH:nohz.remote-compute ARCH:nohz.remote-slot
#[test]
fn another_thread_asks_from_its_own_cpu_and_the_target_decides() {
    let text = r#"
        [machine]
        cpus = 3
        duration = "100ms"
        [[lease]]
        name = "far"
        cpus = [2]
        thread = "alone"
        start = "step"
        [[thread]]
        name = "alone"
        cpus = [2]
        program = ["run forever"]
        [[thread]]
        name = "manager"
        cpus = [0]
        times = 1
        program = ["run 10ms", "lease far", "run 40ms", "release far"]
    "#;
    let report = run(text);
    assert_eq!(reasons(&report, "nohz-enter"), [(10 * MS, "remote".to_owned())], "when the interrupt came");
    assert_eq!(reasons(&report, "lease").pop(), Some((50 * MS, "lease-released".to_owned())));
    assert_eq!(reasons(&report, "nohz-exit"), [(50 * MS, "record-cleared".to_owned())]);
}

/// A lease that is asked for from another CPU at 10 ms and given up `later` microseconds after that, while the message to its CPU
/// takes 100 us.
fn asked_and_given_up(later: u64, faults: &str) -> Report {
    run(&format!(
        r#"
        [machine]
        cpus = 3
        duration = "200ms"
        [costs]
        ipi = "100us"
        {faults}
        [[lease]]
        name = "far"
        cpus = [2]
        thread = "alone"
        start = "step"
        max_revocation = "5ms"
        [[thread]]
        name = "alone"
        cpus = [2]
        program = ["run forever"]
        [[thread]]
        name = "manager"
        cpus = [0]
        times = 1
        program = ["run 10ms", "lease far", "run {later}us", "release far"]
        "#
    ))
}

//= ARCH:nohz.remote-ordering
#[test]
fn a_request_that_is_overtaken_by_its_rollback_leaves_the_tick_on_in_every_order() {
    let mut entered = [0; 2];
    for later in (1..300).step_by(7) {
        for (lost, faults) in ["", "[faults]\nlost_reschedule = \"100%\""].iter().enumerate() {
            let report = asked_and_given_up(later, faults);
            let (enters, exits) =
                (events(&report, "nohz-enter").count(), events(&report, "nohz-exit").count());
            assert_eq!(enters, exits, "given up after {later} us: a window is open though there is no lease");
            assert_eq!(lease(&report, "far").state, "lease-released");
            if lost == 0 {
                assert_eq!(
                    enters,
                    usize::from(later > 100),
                    "{later} us: the target drains what is still asked for"
                );
            }
            entered[lost] += enters;
            // One every 10 ms while it is busy, but for what the window took.
            let cpu = &report.cpus[2];
            assert!(cpu.ticks + 2 >= cpu.busy_ns / (10 * MS), "given up after {later} us: {cpu:?}");
        }
    }
    assert!(entered[0] > 20, "{entered:?}");
}

//= ARCH:lease.overlap
#[test]
fn what_cannot_be_is_refused_by_name_and_changes_nothing() {
    let text = r#"
        [machine]
        cpus = 2
        duration = "50ms"
        [[context]]
        name = "rt"
        budget = "1ms"
        period = "10ms"
        cpus = [0]
        [[lease]]
        name = "first"
        cpus = [1]
        thread = "a"
        [[lease]]
        name = "again"
        cpus = [1]
        thread = "b"
        [[lease]]
        name = "all"
        cpus = [0]
        thread = "b"
        start = "1ms"
        [[lease]]
        name = "user"
        cpus = [1]
        mode = "poller"
        thread = "b"
        [[lease]]
        name = "nowhere"
        cpus = [1]
        thread = "c"
        [[thread]]
        name = "a"
        program = ["run forever"]
        [[thread]]
        name = "b"
        program = ["run 1ms", "sleep 1ms"]
        [[thread]]
        name = "c"
        cpus = [0]
        program = ["run 1ms", "sleep 1ms"]
    "#;
    let report = run(text);
    let state = |name| lease(&report, name).state.as_str();
    assert_eq!(state("first"), "live, tickless");
    assert_eq!(state("again"), "refused: overlap");
    assert_eq!(state("all"), "refused: no-housekeeping-cpu");
    assert_eq!(state("user"), "refused: mode-not-allowed");
    assert_eq!(state("nowhere"), "refused: affinity");
}

//= ARCH:lease.revoke EVO:gate.lease
#[test]
fn a_lease_ends_with_its_thread_its_session_and_its_replacement() {
    let text = r#"
        [machine]
        cpus = 4
        duration = "100ms"
        [[session]]
        name = "alice"
        [[lease]]
        name = "mortal"
        cpus = [1]
        thread = "mortal"
        [[lease]]
        name = "guest"
        cpus = [2]
        thread = "guest"
        [[lease]]
        name = "twice"
        cpus = [3]
        thread = "twice"
        start = "step"
        [[thread]]
        name = "mortal"
        process = "mortal"
        times = 1
        program = ["run 30ms"]
        [[thread]]
        name = "guest"
        session = "alice"
        program = ["run forever"]
        [[thread]]
        name = "twice"
        program = ["lease twice", "run 20ms", "lease twice", "run 200ms"]
        [[at]]
        time = "40ms"
        do = "logout alice"
    "#;
    let report = run(text);
    assert_eq!(lease(&report, "mortal").state, "process-exit");
    assert_eq!(lease(&report, "guest").state, "session-logout");
    assert_eq!(lease(&report, "guest").tickless_ns, 40 * MS);
    let twice = lease(&report, "twice");
    assert_eq!(
        (twice.state.as_str(), twice.activations),
        ("live, tickless", 2),
        "the new one needs its own proof"
    );
    assert!(twice.exits.contains_key("record-cleared"), "the old one is stale: {twice:?}");
}

//= ARCH:nohz.accounting ARCH:nohz.admit-compute
#[test]
fn a_thread_with_a_budget_is_tickless_on_its_own_context_and_nobody_elses() {
    let text = r#"
        [machine]
        cpus = 2
        duration = "100ms"
        [[context]]
        name = "rt"
        budget = "6ms"
        period = "20ms"
        [[lease]]
        name = "own"
        cpus = [1]
        thread = "control"
        ACCOUNT
        [[thread]]
        name = "control"
        context = "rt"
        program = ["run forever"]
    "#;
    let report = run(&text.replace("ACCOUNT", ""));
    let context = &report.contexts[0];
    assert_eq!((context.used_ns, context.overshoot_max_ns), (30 * MS, 0), "to the nanosecond without a tick");
    assert_eq!(lease(&report, "own").tickless_ns, 30 * MS, "while it has budget");
    let report = run(&text.replace("ACCOUNT", "account = \"ledger\""));
    assert_eq!(lease(&report, "own").activations, 0);
    assert!(lease(&report, "own").state.ends_with("accounting-target-mismatch"));
}

//= TICK:L2.proof TICK:nongoal.generic-nohz
#[test]
fn a_network_that_is_polled_at_each_tick_keeps_it() {
    let network = "[network]\ncpu = 1\nevery = \"5ms\"\nwork = \"10us\"\nclock = false\n";
    let report = run(&format!("{ALONE}\n{network}"));
    assert_eq!(lease(&report, "quiet").activations, 0);
    assert_eq!(lease(&report, "quiet").state, "live, ticking: network-polling");
    let without = run(&ALONE.replace("max_revocation", "nohz = false\n    max_revocation"));
    assert_eq!(
        (lease(&without, "quiet").activations, without.cpus[1].ticks),
        (0, 19),
        "only if it is asked for"
    );
    assert_eq!(on_cpu(&without, 1, 0, 200 * MS), ["alone"], "exclusive all the same");
}

//= ARCH:nohz.single-runnable
#[test]
fn a_lease_of_several_cpus_keeps_others_away_and_every_tick() {
    let report = run(&ALONE.replace("cpus = 2", "cpus = 3").replace("cpus = [1]", "cpus = [1, 2]"));
    assert_eq!(lease(&report, "quiet").state, "live, ticking: several-cpus");
    assert_eq!((lease(&report, "quiet").activations, report.cpus[1].ticks), (0, 19));
    assert_eq!(on_cpu(&report, 1, 0, 200 * MS), ["alone"]);
    assert_eq!(report.cpus[2].busy_ns, 0, "and nobody else uses the other");
}

/// Leases that come, go and are fought over, by seed.
fn turmoil(seed: u64) -> String {
    let cpus = 2 + seed % 3;
    let faults =
        ["", "late_timer = { chance = \"5%\", by = \"300us\" }\nstall = { chance = \"1%\", for = \"1ms\" }"];
    let exits = if seed.is_multiple_of(3) { "exit_every = \"9ms\"" } else { "" };
    let lost = if seed.is_multiple_of(2) {
        "lost_reschedule = \"20%\"\nlate_reschedule = { chance = \"20%\", by = \"200us\" }"
    } else {
        ""
    };
    let faults = format!("{}\n{exits}\n{lost}", faults[(seed % 2) as usize]);
    format!(
        r#"
        [machine]
        cpus = {cpus}
        duration = "60ms"
        tick = "1ms"
        [costs]
        switch = "1us"
        ipi = "1us"
        interrupt = "200ns"
        [faults]
        {faults}
        [[session]]
        name = "alice"
        [[context]]
        name = "rt"
        budget = "{budget}us"
        period = "5ms"
        [[lease]]
        name = "one"
        cpus = [{last}]
        thread = "solo"
        max_revocation = "{latency}us"
        start = "{start}us"
        lifetime = "{lifetime}ms"
        [[lease]]
        name = "two"
        cpus = [{last}]
        thread = "other"
        start = "step"
        [[lease]]
        name = "three"
        cpus = [0]
        thread = "rt"
        start = "7ms"
        [[thread]]
        name = "solo"
        session = "alice"
        program = ["run 1ms..8ms", "sleep 100us..1ms", "run 3ms", "yield"]
        [[thread]]
        name = "other"
        program = ["run 500us..4ms", "lease two", "run 1ms..6ms", "release two", "sleep 1ms"]
        [[thread]]
        name = "rt"
        context = "rt"
        program = ["run 100us..2ms", "sleep 300us..3ms"]
        [[thread]]
        name = "manager"
        program = ["sleep 2ms..9ms", "lease one", "run 10us", "call work 3ms", "lease two"]
        [[thread]]
        name = "server"
        program = ["recv work", "run 300us", "reply"]
        [[thread]]
        name = "hog"
        count = 3
        program = ["run 200us..3ms", "unpark visitor", "sleep 100us..2ms"]
        [[thread]]
        name = "visitor"
        cpus = [{last}]
        program = ["park", "run 50us"]
        [[thread]]
        name = "bound"
        cpus = [{last}]
        program = ["sleep 4ms..9ms", "run 100us..900us"]
        [[at]]
        time = "{revoke}ms"
        do = "revoke-lease one"
        [[at]]
        time = "45ms"
        do = "logout alice"
        "#,
        budget = 200 + seed * 37 % 2_000,
        last = cpus - 1,
        latency = 200 + seed * 131 % 5_000,
        start = seed * 91 % 3_000,
        lifetime = 5 + seed * 7 % 40,
        revoke = 10 + seed % 30,
    )
}

//= ARCH:nohz.armed-timer ARCH:nohz.rollback ARCH:lease.overlap TICK:L2.dynamic
#[test]
fn random_leases_keep_every_rule_under_faults() {
    let mut activations = 0;
    let mut exits = std::collections::BTreeSet::new();
    for seed in 0..2_000 {
        let workload = workload(&turmoil(seed));
        let setting = Setting::of(&workload).with_bound(Bound::None);
        let report = match checked_in::<Wide>(&workload, seed, setting) {
            Ok(checked) => checked.report,
            Err(what) => panic!("seed {seed}: {what}\nreplay: turmoil({seed}) with seed {seed}"),
        };
        for lease in &report.leases {
            activations += lease.activations;
            exits.extend(lease.exits.keys().cloned());
            let ended: u64 = lease.exits.values().sum();
            let open = u64::from(lease.state.ends_with("tickless"));
            assert_eq!(lease.activations, ended + open, "seed {seed}: {lease:?}");
        }
    }
    assert!(activations > 1_000, "{activations} windows");
    for reason in ["second-runnable", "went-idle", "record-cleared", "lease-lifetime-expired", "dispatch"] {
        assert!(exits.contains(reason), "no window ended by {reason}: {exits:?}");
    }
}

/// Passes on what it sees, but for what `lie` changes.
struct Liar<L> {
    checks: Checks<Wide>,
    lie: L,
}

impl<L: FnMut(&mut NohzOutcome)> Watch for Liar<L> {
    fn before(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>) {
        self.checks.before(now, cpu, event);
    }

    fn after(&mut self, now: Nanos, cpu: &Cpu, mut outcome: Outcome) -> Result<(), String> {
        if let Outcome::Nohz(outcome) = &mut outcome {
            (self.lie)(outcome);
        }
        self.checks.after(now, cpu, outcome)
    }
}

fn found_out(lie: impl FnMut(&mut NohzOutcome)) -> String {
    let workload = workload(ALONE);
    let mut liar = Liar { checks: all(&workload), lie };
    watched(&workload, 1, &mut liar).expect_err("the lie was not noticed")
}

//= ARCH:nohz.armed-timer
#[test]
fn a_cpu_that_lies_about_its_window_is_noticed() {
    let late = found_out(|outcome| {
        if let NohzOutcome::Entry(NohzEntry::Tickless { wake_at }) = outcome {
            *wake_at += Nanos::new(1);
        }
    });
    assert!(late.contains("allowed until"), "{late}");
    let later = found_out(|outcome| {
        if let NohzOutcome::Recheck(NohzRecheck::Kept { wake_at }) = outcome {
            *wake_at += Nanos::new(1);
        }
    });
    assert!(later.contains("allowed until"), "{later}");
    let hidden = found_out(|outcome| {
        if let NohzOutcome::Entry(entry @ NohzEntry::Tickless { .. }) = outcome {
            *entry = NohzEntry::Refused(Obstacle::StaleLease);
        }
    });
    assert!(hidden.contains("tickless without a window"), "{hidden}");
    let pretended = found_out(|outcome| {
        if let NohzOutcome::Recheck(recheck @ NohzRecheck::Kept { .. }) = outcome {
            *recheck = NohzRecheck::RolledBack(Obstacle::StaleLease);
        }
    });
    assert!(pretended.contains("proved until"), "{pretended}");
}

/// Passes on what it sees, but for leases: another CPU has them at each recheck.
struct Unreadable(Checks<Wide>);

impl Watch for Unreadable {
    fn before(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>) {
        match event {
            EventRef::Nohz(NohzEvent::Recheck(conditions)) => {
                let conditions = Conditions { lease: Standing::Contended, ..*conditions };
                self.0.before(now, cpu, EventRef::Nohz(&NohzEvent::Recheck(conditions)));
            }
            event => self.0.before(now, cpu, event),
        }
    }

    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome) -> Result<(), String> {
        self.0.after(now, cpu, outcome)
    }
}

//= ARCH:nohz.armed-timer
#[test]
fn a_window_that_is_kept_for_long_under_a_lease_that_could_not_be_read_is_noticed() {
    let workload = workload(ALONE);
    let what = watched(&workload, 1, &mut Unreadable(all(&workload))).expect_err("the lie was not noticed");
    assert!(what.contains("kept without a proof until"), "{what}");
}

//= EVO:S5.lease-record ARCH:lease.revoke
#[test]
fn a_thread_that_receives_from_the_revoke_endpoint_hears_of_the_end() {
    let watcher = r#"
    [[thread]]
    name = "watcher"
    cpus = [0]
    times = 1
    program = ["recv ends", "run 1ms"]
    [[at]]
    time = "60ms"
    do = "revoke-lease quiet"
    "#;
    let told = ALONE.replace("max_revocation =", "revoke_endpoint = \"ends\"\n    max_revocation =");
    let report = run(&format!("{told}{watcher}"));
    let notice = events(&report, "lease-notice").next().expect("it was told");
    assert_eq!((notice.time_ns, notice.to.as_deref()), (60 * MS, Some("ends")));
    assert_eq!(notice.reason.as_deref(), Some("lease-revoked"));
    assert_eq!(thread(&report, "watcher").runtime_ns, MS, "it woke and ran");
    let silent = run(&format!("{ALONE}{watcher}"));
    assert_eq!(thread(&silent, "watcher").runtime_ns, 0, "nobody told it");
}

//= ARCH:lease.revoke EVO:S5.lease-record
#[test]
fn the_leases_of_a_service_end_when_another_instance_takes_its_place() {
    let text = r#"
        [machine]
        cpus = 2
        duration = "100ms"
        [policy]
        service = "policyd"
        timeout = "50ms"
        [[lease]]
        name = "services"
        cpus = [1]
        thread = "worker"
        start = "10ms"
        [[thread]]
        name = "init"
        times = 1
        program = ["spawn policyd", "sleep 40ms", "spawn policyd"]
        [[thread]]
        name = "policyd"
        process = "policy"
        start = "spawn"
        times = 1
        program = ["run 30ms"]
        [[thread]]
        name = "worker"
        process = "policy"
        program = ["run forever"]
    "#;
    let report = run(text);
    assert_eq!(
        reasons(&report, "lease"),
        [(10 * MS, "granted".to_owned()), (40 * MS, "service-replaced".to_owned())]
    );
    assert_eq!(reasons(&report, "nohz-exit").len(), 1, "and its tick is back");
}
