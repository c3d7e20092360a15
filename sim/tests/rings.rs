//! Rings on the simulated machine: which thread serves entries and on which thread's time, sleep and wake of the poller,
//! deadlines, and that no entry is lost or served twice whatever happens to its threads.

mod common;

use common::{checked, checked_in, thread, workload};
use mainspring_record::check::{Bound, Setting, Wide};
use mainspring_report::{Event, Report, RingReport};

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

fn run(text: &str) -> Report {
    checked(&workload(text), 1, Bound::None).report
}

fn ring(report: &Report) -> &RingReport {
    &report.rings[0]
}

fn events<'a>(report: &'a Report, kind: &'a str) -> impl Iterator<Item = &'a Event> {
    report.events.as_deref().unwrap_or_default().iter().filter(move |event| event.kind == kind)
}

fn times(report: &Report, kind: &str) -> Vec<u64> {
    events(report, kind).map(|event| event.time_ns).collect()
}

/// An owner on CPU 0 and, if the ring is polled, a poller on CPU 1.
fn pair(ring: &str, owner: &str) -> String {
    format!(
        r#"
        [machine]
        cpus = 2
        duration = "20ms"
        [[ring]]
        name = "disk"
        owner = "app"
        entries = 8
        cost = "10us"
        {ring}
        [[thread]]
        name = "app"
        cpus = [0]
        times = 1
        program = [{owner}]
        "#
    )
}

const POLLER: &str = r#"
        [[thread]]
        name = "poller"
        cpus = [1]
        program = ["poll disk"]
"#;

//= TICK:L2.ownership ARCH:ring.per-thread
#[test]
fn without_a_poller_the_owner_serves_its_ring_on_its_own_time() {
    let report = run(&pair("", r#""submit disk 20", "complete disk 20", "run 1ms""#));
    let disk = ring(&report);
    assert_eq!((disk.submitted, disk.completed, disk.mode.as_str()), (20, 20, "syscall"));
    assert_eq!(disk.overflow, 1, "the 17th waited for a place: 16 completions had not been reaped");
    assert_eq!(disk.busy_ns, 200 * US);
    assert_eq!(thread(&report, "app").runtime_ns, 200 * US + MS);
    assert_eq!(report.telemetry.sqpoll_busy_ns, 0);
}

#[test]
fn an_owner_that_does_not_reap_is_refused_and_not_left_waiting_for_itself() {
    for text in [
        pair("", r#""submit disk 40", "sleep 100ms""#),
        pair("sqpoll = true", r#""submit disk 40", "sleep 100ms""#) + POLLER,
    ] {
        let report = run(&text);
        assert_eq!((ring(&report).submitted, ring(&report).completed), (16 + 8, 16), "both queues are full");
        assert_eq!(thread(&report, "app").refusals, 1);
        assert_eq!(ring(&report).overflow, 1);
    }
}

//= ARCH:sqpoll.cycle ARCH:sqpoll.batch TICK:L2.wake-producer TICK:L2.modes
#[test]
fn a_poller_spins_sleeps_and_is_woken_by_the_next_entry() {
    let owner = r#""sleep 100us", "submit disk 4", "complete disk 4", "run 20us", "submit disk 2", "complete disk 2",
        "sleep 1ms", "submit disk 2", "complete disk 2", "sleep 100ms""#;
    let text = pair("sqpoll = true\nidle_spin = \"50us\"", owner) + POLLER;
    let report = run(&text);
    let disk = ring(&report);
    assert_eq!((disk.submitted, disk.completed, disk.mode.as_str()), (8, 8, "sqpoll-sleeping"));
    assert_eq!((disk.sleeps, disk.wakeups, disk.busy_ns), (3, 2, 80 * US));
    // 20 us between the first two, 50 us each time before it sleeps.
    assert_eq!(disk.spins_ns, 170 * US);
    assert_eq!(thread(&report, "poller").runtime_ns, disk.busy_ns + disk.spins_ns);
    assert_eq!(report.telemetry.sqpoll_busy_ns, disk.busy_ns + disk.spins_ns, "all of it is charged");
    assert_eq!(report.telemetry.sqpoll_sleep_count, 3);
    assert_eq!(times(&report, "ring-sleep"), [50 * US, 230 * US, 1_250 * US]);
    assert_eq!(times(&report, "ring-wake"), [100 * US, 1_180 * US]);
    assert!(thread(&report, "app").runtime_ns < 30 * US, "it made no system call for its entries");
}

//= TICK:L2.ownership
#[test]
fn a_full_queue_keeps_its_submitter_waiting_until_the_poller_has_made_room() {
    let text = pair("sqpoll = true", r#""sleep 100us", "submit disk 14", "complete disk 14""#) + POLLER;
    let report = run(&text);
    assert_eq!((ring(&report).submitted, ring(&report).completed), (14, 14));
    assert!(times(&report, "ring-full").len() >= 3, "two entries a pass make room for two");
    assert_eq!(times(&report, "ring-complete").last(), Some(&(240 * US)));
}

//= TICK:L4.drop-if-late TICK:L4.allow-late
#[test]
fn late_entries_are_dropped_or_marked_as_they_asked() {
    let owner = r#""submit disk 8 deadline 35us drop", "complete disk 8", "submit disk 8 deadline 35us late",
        "complete disk 8""#;
    for text in [pair("", owner), pair("sqpoll = true", owner) + POLLER] {
        let report = run(&text);
        let disk = ring(&report);
        // The fourth of each eight begins at 30 us and ends late. The later ones begin late.
        assert_eq!((disk.submitted, disk.completed), (16, 16));
        assert_eq!((disk.dropped, disk.late), (4, 1 + 5));
        assert_eq!(disk.busy_ns, (4 + 8) * 10 * US, "what is dropped costs nothing");
        assert_eq!(report.telemetry.deadline_expired_count, 4);
    }
}

//= TICK:nongoal.second-consumer ARCH:ring.per-thread
#[test]
fn a_ring_has_one_owner_and_one_poller() {
    let second = r#"
        [[thread]]
        name = "second"
        cpus = [0]
        start = "1ms"
        program = ["poll disk"]
        [[thread]]
        name = "stranger"
        cpus = [0]
        times = 1
        program = ["submit disk 4", "complete disk 4 timeout 1ms"]
    "#;
    let owner = r#""sleep 2ms", "submit disk 4", "complete disk 4""#;
    let report = run(&(pair("sqpoll = true", owner) + POLLER + second));
    assert_eq!((ring(&report).submitted, ring(&report).completed), (4, 4));
    assert_eq!(thread(&report, "second").refusals, 1);
    let stranger = thread(&report, "stranger");
    assert_eq!(stranger.refusals, 2);
    let first = stranger.first_refusal.as_ref().expect("it is told");
    assert_eq!(first.reason, "the ring is another thread's");
    assert_eq!(thread(&report, "second").runtime_ns, 0);
}

/// A poller on a CPU of its own.
const LEASED: &str = r#"
    [machine]
    cpus = 2
    duration = "40ms"
    [[ring]]
    name = "disk"
    owner = "app"
    entries = 16
    sqpoll = true
    idle_spin = "3ms"
    cost = "5us"
    [[lease]]
    name = "poller-cpu"
    cpus = [1]
    thread = "poller"
    mode = "kernel-sqpoll"
    ring = "disk"
    max_revocation = "500us"
    [[thread]]
    name = "poller"
    process = "kernel"
    program = ["poll disk"]
    [[thread]]
    name = "app"
    program = ["submit disk 4", "complete disk 4 timeout 5ms", "run 100us", "sleep 1ms"]
"#;

//= ARCH:nohz.admit-sqpoll TICK:L2.cpu-conditions ARCH:sqpoll.start
#[test]
fn a_poller_on_a_leased_cpu_spins_and_serves_without_a_tick() {
    let report = run(LEASED);
    let lease = &report.leases[0];
    assert_eq!((lease.state.as_str(), lease.activations, lease.tickless_ns), ("live, tickless", 1, 40 * MS));
    assert_eq!(report.telemetry.nohz_enter_count["1,kernel-sqpoll"], 1);
    assert_eq!((report.cpus[1].ticks, report.cpus[1].idle_ns), (0, 0), "it never sleeps");
    assert_eq!(ring(&report).wakeups, 0, "so nobody wakes it");
    assert!(ring(&report).completed > 100);
}

//= ARCH:nohz.rollback-sqpoll ARCH:sqpoll.start ARCH:sqpoll.stop-accepted
#[test]
fn a_revoked_lease_returns_the_ring_to_its_owner_and_loses_nothing() {
    let report = run(&format!("{LEASED}\n[[at]]\ntime = \"20ms\"\ndo = \"revoke-lease poller-cpu\"\n"));
    assert_eq!(ring(&report).mode, "syscall");
    assert_eq!(times(&report, "ring-stop"), [20 * MS]);
    assert_eq!(times(&report, "nohz-exit"), [20 * MS]);
    assert!(ring(&report).submitted - ring(&report).completed <= 4);
    assert!(times(&report, "ring-complete").iter().any(|at| *at > 39 * MS), "it goes on by system calls");
}

//= ARCH:nohz.rollback-sqpoll
#[test]
fn a_ring_that_leaves_sqpoll_ends_the_window_of_a_poller_that_is_still_at_work() {
    let slow = LEASED
        .replace("cost = \"5us\"", "cost = \"2ms\"")
        .replace("\"submit disk 4\"", "\"sleep 100us\", \"submit disk 4\"");
    let report = run(&format!("{slow}\n[[at]]\ntime = \"1200us\"\ndo = \"exit app\"\n"));
    let stop = times(&report, "ring-stop");
    assert_eq!(stop, [1_200 * US], "with its owner");
    let exit = events(&report, "nohz-exit").next().expect("the window ended");
    assert_eq!(exit.reason.as_deref(), Some("sqpoll-ring-mode-changed-or-owner-staled"));
    assert!((1_200 * US..=1_700 * US).contains(&exit.time_ns), "within the revocation latency: {exit:?}");
    assert!(report.leases[0].state.starts_with("live"), "the CPU is still leased");
    assert_eq!(ring(&report).mode, "syscall");
}

/// Three entries behind one that takes the poller's time. The last of the three is due first.
fn queue_jumpers(ring: &str) -> Report {
    let owner = r#""submit disk 1", "run 5us", "submit disk 1 deadline 800us drop", "submit disk 1 deadline 900us drop",
        "submit disk 1 deadline 45us drop", "complete disk 4""#;
    let ring = format!("cost = \"40us\"\nsqpoll = true\n{ring}");
    run(&(pair(&ring, owner).replace("cost = \"10us\"\n", "") + POLLER))
}

//= TICK:L4.deadline-ordered
#[test]
fn entries_change_places_by_deadline_only_where_the_ring_allows_it_and_within_its_window() {
    let dropped = |keys: &str| ring(&queue_jumpers(keys)).dropped;
    assert_eq!(dropped(""), 1, "the last is late behind the others");
    assert_eq!(dropped("reorder = true\nwindow = 3"), 0, "it goes first");
    assert_eq!(dropped("window = 3"), 1, "a window alone allows nothing");
    assert_eq!(dropped("reorder = true\nwindow = 2"), 1, "it is not among the first two");
}

/// Rings under faults, by seed.
fn turmoil(seed: u64) -> String {
    let polled = !seed.is_multiple_of(5);
    let leased = polled && seed.is_multiple_of(2);
    let lease = if leased {
        "[[lease]]\nname = \"cpu\"\ncpus = [1]\nthread = \"poller\"\nmode = \"kernel-sqpoll\"\nring = \"a\"\n\
         [[at]]\ntime = \"9ms\"\ndo = \"revoke-lease cpu\""
    } else {
        ""
    };
    let exits = if seed.is_multiple_of(3) { "exit_every = \"6ms\"" } else { "" };
    let pollers = if polled { "\"poll a\"" } else { "\"run 100us\", \"sleep 1ms\"" };
    format!(
        r#"
        [machine]
        cpus = 3
        duration = "30ms"
        tick = "1ms"
        [costs]
        switch = "1us"
        ipi = "1us"
        interrupt = "200ns"
        [faults]
        lost_reschedule = "5%"
        late_reschedule = {{ chance = "10%", by = "200us" }}
        late_timer = {{ chance = "5%", by = "300us" }}
        stall = {{ chance = "2%", for = "700us" }}
        {exits}
        [[ring]]
        name = "a"
        owner = "app"
        entries = {entries}
        sqpoll = {polled}
        idle_spin = "{spin}us"
        cost = "{cost}us"
        reorder = {reorder}
        window = {window}
        [[ring]]
        name = "b"
        owner = "app"
        entries = 4
        cost = "3us"
        [[thread]]
        name = "parent"
        program = ["spawn app", "join app", "sleep 100us"]
        [[thread]]
        name = "app"
        start = "spawn"
        times = 60
        program = [
            "run 5us..60us", "submit a {first} deadline {deadline}us drop", "submit b 3",
            "complete a {first} timeout 2ms", "submit a {second} deadline {deadline}us late", "sleep 10us..400us",
            "complete b 2 timeout 1ms", "complete a {second} timeout 1ms", "yield",
        ]
        [[thread]]
        name = "poller"
        program = [{pollers}]
        [[thread]]
        name = "hog"
        count = 2
        program = ["run 100us..1ms", "sleep 50us..500us"]
        {lease}
        "#,
        entries = 2 << (seed % 4),
        reorder = seed % 4 == 1,
        window = 1 + seed % 16,
        spin = seed * 13 % 200,
        cost = 1 + seed * 7 % 40,
        first = 1 + seed % 13,
        second = 1 + seed * 3 % 17,
        deadline = 10 + seed * 29 % 400,
    )
}

//= ARCH:sqpoll.stop-accepted TICK:L2.ownership TICK:nongoal.second-consumer
#[test]
fn nothing_is_lost_or_served_twice_under_faults() {
    let mut totals = RingReport::default();
    for seed in 0..2_000 {
        let workload = workload(&turmoil(seed));
        let setting = Setting::of(&workload).with_bound(Bound::None);
        // The run itself checks that each entry is reaped once, and that the entries that are owed are somewhere.
        let report = match checked_in::<Wide>(&workload, seed, setting) {
            Ok(checked) => checked.report,
            Err(what) => panic!("seed {seed}: {what}\nreplay: turmoil({seed}) with seed {seed}"),
        };
        for ring in &report.rings {
            assert!(ring.completed <= ring.submitted, "seed {seed}: {ring:?}");
            assert!(ring.dropped + ring.late <= ring.completed, "seed {seed}: {ring:?}");
            let cost =
                workload.rings.iter().find(|spec| spec.name == ring.name).map_or(0, |spec| spec.cost.get());
            assert!(ring.busy_ns.is_multiple_of(cost), "seed {seed}: {ring:?}");
            let ran = ring.busy_ns / cost;
            // Entries that ran, entries that were dropped, and entries that their owner took along when it ended.
            assert!(ran + ring.dropped <= ring.completed, "seed {seed}: {ring:?}");
            let exits = seed.is_multiple_of(3);
            assert!(exits || ran + ring.dropped == ring.completed, "seed {seed}: {ring:?}");
            totals.submitted += ring.submitted;
            totals.dropped += ring.dropped;
            totals.late += ring.late;
            totals.overflow += ring.overflow;
            totals.wakeups += ring.wakeups;
            totals.sleeps += ring.sleeps;
        }
    }
    assert!(totals.submitted > 50_000, "{totals:?}");
    let RingReport { dropped, late, overflow, wakeups, sleeps, .. } = totals;
    assert!([dropped, late, overflow, wakeups, sleeps].iter().all(|count| *count > 100), "{totals:?}");
}
