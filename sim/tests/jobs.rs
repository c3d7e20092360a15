//! Periods, misses, calls and the costs of a CPU, against a model that knows the programs and the schedule and nothing of
//! how the machine keeps account.

mod common;

use common::seeds::Sweep;
use mainspring_random::{Random, Stream};
use mainspring_report::{MissKind, Report};
use mainspring_sim::{Options, run};
use mainspring_workload::parse;
use std::collections::BTreeMap;
use std::fmt::Write;

fn report_of(text: &str, seed: u64) -> Report {
    let workload = parse("test.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let options = Options { seed, schedule: true, ..Options::default() };
    run("test.toml", &workload, options).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"))
}

/// A thread that computes for `work` in each `period`, from `start` on.
#[derive(Clone, Debug)]
struct Periodic {
    name: String,
    start: u64,
    work: u64,
    period: u64,
}

/// What became of one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    release: u64,
    start: Option<u64>,
    finish: Option<u64>,
}

/// Jobs as one sees them who watches the thread run and knows its program.
fn watch(thread: &Periodic, ran: &[(u64, u64)]) -> Vec<Seen> {
    let mut jobs = Vec::new();
    let mut job = Seen { release: thread.start, start: None, finish: None };
    let mut done = 0;
    for &(mut at, end) in ran {
        while at < end {
            job.start.get_or_insert(at);
            let step = (end - at).min(thread.work - done);
            at += step;
            done += step;
            if done == thread.work {
                jobs.push(Seen { finish: Some(at), ..job });
                // The next multiple that is not over, and not this job's own.
                let mut release = job.release + thread.period;
                while release < at {
                    release += thread.period;
                }
                // With no time to wait it has the CPU at that instant, whichever thread gets it next.
                let start = (release == at).then_some(at);
                (job, done) = (Seen { release, start, finish: None }, 0);
            }
        }
    }
    jobs.push(job);
    jobs
}

/// Every multiple of the period before `end` at which a job was under way, when that job or the skipped one was released,
/// and how it was missed.
fn missed(thread: &Periodic, jobs: &[Seen], end: u64) -> Vec<(u64, u64, MissKind)> {
    let mut missed = Vec::new();
    let mut due = thread.start + thread.period;
    while due < end {
        let under_way =
            jobs.iter().find(|job| job.release < due && job.finish.is_none_or(|finish| finish > due));
        if let Some(job) = under_way {
            let kind = match job.finish {
                _ if job.release + thread.period != due => MissKind::Skipped,
                Some(_) => MissKind::Late,
                None => MissKind::Unfinished,
            };
            missed.push((due, due - thread.period, kind));
        }
        due += thread.period;
    }
    missed
}

/// A machine with too much or too little to do, and what of it is periodic.
fn machine(seed: u64) -> (String, Vec<Periodic>, u64) {
    let mut random = Random::new(seed, Stream::Machine);
    let mut pick = |from: u64, to: u64| from + random.below(to - from + 1);
    let cpus = pick(1, 3);
    let duration = pick(40, 120) * 1_000_000;
    let mut text = format!("[machine]\ncpus = {cpus}\nduration = \"{duration}ns\"\n");
    for hog in 0..pick(0, 3) {
        let weight = pick(1, 200);
        writeln!(text, "[[thread]]\nname = \"hog{hog}\"\nweight = {weight}\nprogram = [\"run forever\"]")
            .expect("a string takes everything");
    }
    let mut threads = Vec::new();
    for number in 0..pick(1, 6) {
        // Crooked figures: a thread that is preempted at the very instant at which its work is done cannot say so then, and
        // who only sees it run cannot tell.
        let thread = Periodic {
            name: format!("t{number}"),
            start: pick(0, 4_000_000),
            work: pick(100_000, 5_000_000),
            period: pick(1_000_000, 12_000_000),
        };
        let (weight, context) = (pick(1, 200), pick(0, 2) == 0);
        if context {
            let budget = pick(1, 8) * 500_000;
            let (criticality, cpu) = (pick(0, 2), pick(0, cpus - 1));
            writeln!(
                text,
                "[[context]]\nname = \"c{number}\"\nbudget = \"{budget}ns\"\nperiod = \"{}ns\"\n\
                 criticality = {criticality}\ncpus = [{cpu}]",
                budget * pick(1, 4)
            )
            .expect("a string takes everything");
        }
        writeln!(
            text,
            "[[thread]]\nname = \"{}\"\nweight = {weight}\nstart = \"{}ns\"\n{}program = [\"run {}ns\", \"every {}ns\"]",
            thread.name,
            thread.start,
            if context { format!("context = \"c{number}\"\n") } else { String::new() },
            thread.work,
            thread.period
        )
        .expect("a string takes everything");
        threads.push(thread);
    }
    (text, threads, duration)
}

/// The sample of that rank, in percent.
fn rank(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

//= OWN:miss.truth
#[test]
fn jobs_and_misses_are_those_that_one_sees_in_the_schedule() {
    let (mut exact, mut late, mut skipped, mut unfinished) = (0, 0, 0, 0);
    let sweep = Sweep::of(0..4_000);
    for seed in sweep.seeds.clone() {
        let (text, threads, end) = machine(seed);
        let report = report_of(&text, seed);
        let mut ran: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        for entry in report.schedule.as_ref().expect("asked for") {
            ran.entry(&entry.thread).or_default().push((entry.start_ns, entry.end_ns));
        }
        let mut all = Vec::new();
        for thread in &threads {
            let jobs = watch(thread, ran.get(thread.name.as_str()).map_or(&[], Vec::as_slice));
            let listed = report.jobs.as_ref().expect("asked for").iter();
            let told: Vec<Seen> = listed
                .filter(|job| job.thread == thread.name && job.finish_ns.is_some())
                .map(|job| Seen { release: job.release_ns, start: job.start_ns, finish: job.finish_ns })
                .collect();
            let ended: Vec<Seen> = jobs.iter().filter(|job| job.finish.is_some()).copied().collect();
            assert_eq!(told.len(), ended.len(), "seed {seed}: {}\n{text}", thread.name);
            for (told, seen) in told.iter().zip(&ended) {
                // A thread that loses its CPU at the instant at which it got it has started, and no observer sees it run.
                assert!(
                    told.start >= Some(told.release) && told.start <= seen.start,
                    "seed {seed}: {told:?} {seen:?}"
                );
                assert_eq!(
                    Seen { start: seen.start, ..*told },
                    *seen,
                    "seed {seed}: {}\n{text}",
                    thread.name
                );
                exact += u32::from(told.start == seen.start);
            }
            let misses = missed(thread, &jobs, end);
            let row = report.threads.iter().find(|row| row.name == thread.name).expect("a row");
            assert_eq!(row.misses, misses.len() as u64, "seed {seed}: {}\n{text}", thread.name);
            let mut responses: Vec<(u64, u64)> =
                ended.iter().map(|job| (job.finish.expect("it ended") - job.release, job.release)).collect();
            let row = row.jobs.as_ref();
            assert_eq!(row.map_or(0, |row| row.finished), ended.len() as u64);
            assert_eq!(row.and_then(|row| row.first_miss_ns), misses.first().map(|miss| miss.0));
            if let Some(told) = row.and_then(|row| row.response_ns.as_ref()) {
                let first_worst =
                    *responses.iter().max_by_key(|(time, at)| (*time, u64::MAX - at)).expect("some");
                assert_eq!((told.max, told.max_at_ns), first_worst, "seed {seed}: {}", thread.name);
                responses.sort_unstable();
                let times: Vec<u64> = responses.iter().map(|(time, _)| *time).collect();
                assert_eq!((told.p50, told.p99), (rank(&times, 50), rank(&times, 99)), "seed {seed}");
            }
            all.extend(
                misses.into_iter().map(|(due, release, kind)| (due, thread.name.clone(), release, kind)),
            );
        }
        all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let of_threads = report.misses.iter().filter(|miss| miss.context.is_none());
        let told: Vec<_> = of_threads
            .map(|miss| (miss.time_ns, miss.thread.clone().expect("a thread's"), miss.release_ns, miss.kind))
            .collect();
        assert_eq!(told, all, "seed {seed}\n{text}");
        let events: Vec<u64> = report
            .events
            .as_ref()
            .expect("asked for")
            .iter()
            .filter(|event| event.kind == "miss" && event.context.is_none())
            .map(|event| event.time_ns)
            .collect();
        assert_eq!(events, all.iter().map(|miss| miss.0).collect::<Vec<_>>(), "seed {seed}");
        for (_, _, _, kind) in &all {
            match kind {
                MissKind::Late => late += 1,
                MissKind::Skipped => skipped += 1,
                MissKind::Unfinished => unfinished += 1,
                MissKind::Context => unreachable!("filtered out"),
            }
        }
    }
    assert!(sweep.alone || exact > 1_000, "{exact} starts are exact");
    assert!(
        sweep.alone || late > 100 && skipped > 100 && unfinished > 10,
        "{late} late, {skipped} skipped, {unfinished} unfinished"
    );
}

//= OWN:miss.truth
#[test]
fn a_context_that_never_runs_misses_its_deadline_at_its_deadline() {
    let greedy = |n: u32| {
        format!(
            "[[context]]\nname = \"greedy{n}\"\nbudget = \"9ms\"\nperiod = \"10ms\"\ncriticality = 2\ncpus = [0]\n\
             [[thread]]\nname = \"greedy{n}\"\ncontext = \"greedy{n}\"\nprogram = [\"run forever\"]\n"
        )
    };
    let text = format!(
        "[machine]\nduration = \"50ms\"\nfloor = \"0%\"\n{}{}\
         [[context]]\nname = \"meek\"\nbudget = \"1ms\"\nperiod = \"10ms\"\ndeadline = \"8ms\"\ncpus = [0]\n\
         [[thread]]\nname = \"meek\"\ncontext = \"meek\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n",
        greedy(0),
        greedy(1)
    );
    let report = report_of(&text, 0);
    let meek = report.contexts.iter().find(|context| context.name == "meek").expect("a row");
    assert_eq!((meek.used_ns, meek.misses), (0, 1));
    let first = &report.misses[0];
    assert_eq!(
        (first.time_ns, first.context.as_deref(), first.kind),
        (8_000_000, Some("meek"), MissKind::Context)
    );
    let of_thread: Vec<_> =
        report.misses.iter().filter(|miss| miss.context.is_none()).map(|miss| miss.time_ns).collect();
    assert_eq!(of_thread, [10_000_000, 20_000_000, 30_000_000, 40_000_000]);
    assert_eq!(report.misses_total, report.misses.len() as u64);
}

#[test]
fn the_miss_of_a_context_has_the_time_of_its_deadline_not_of_when_it_ran() {
    // The first takes 6 ms of the CPU before the second, whose 3 ms are due after 8 ms, can begin.
    let text = "[machine]\nduration = \"15ms\"\n\
        [[context]]\nname = \"first\"\nbudget = \"6ms\"\nperiod = \"20ms\"\ncriticality = 1\n\
        [[context]]\nname = \"second\"\nbudget = \"3ms\"\nperiod = \"20ms\"\ndeadline = \"8ms\"\n\
        [[thread]]\nname = \"first\"\ncontext = \"first\"\nprogram = [\"run 6ms\", \"every 20ms\"]\n\
        [[thread]]\nname = \"second\"\ncontext = \"second\"\nprogram = [\"run 3ms\", \"every 20ms\"]\n";
    let report = report_of(text, 0);
    let told: Vec<_> = report.misses.iter().map(|miss| (miss.time_ns, miss.context.as_deref())).collect();
    assert_eq!(told, [(8_000_000, Some("second"))]);
    let events = report.events.expect("asked for");
    let times: Vec<_> =
        events.iter().filter(|event| event.kind == "miss").map(|event| event.time_ns).collect();
    assert_eq!(times, [8_000_000]);
}

#[test]
fn what_was_granted_is_what_could_be_used_until_it_was_taken_away() {
    let text = "[machine]\nduration = \"100ms\"\n\
        [[context]]\nname = \"kept\"\nbudget = \"2ms\"\nperiod = \"10ms\"\n\
        [[context]]\nname = \"grown\"\nbudget = \"2ms\"\nperiod = \"10ms\"\n\
        [[context]]\nname = \"taken\"\nbudget = \"2ms\"\nperiod = \"10ms\"\n\
        [[thread]]\nname = \"a\"\ncontext = \"kept\"\nprogram = [\"run forever\"]\n\
        [[thread]]\nname = \"b\"\ncontext = \"grown\"\nprogram = [\"run forever\"]\n\
        [[thread]]\nname = \"c\"\ncontext = \"taken\"\nprogram = [\"run forever\"]\n\
        [[at]]\ntime = \"50ms\"\ndo = \"adjust grown budget 3ms period 10ms\"\n\
        [[at]]\ntime = \"31ms\"\ndo = \"revoke taken\"\n";
    let report = report_of(text, 0);
    let granted: Vec<_> =
        report.contexts.iter().map(|context| (context.name.as_str(), context.granted_ns)).collect();
    assert_eq!(granted, [("kept", 20_000_000), ("grown", 25_000_000), ("taken", 7_000_000)]);
    for context in &report.contexts {
        assert!(context.used_ns <= context.granted_ns + context.overshoot_max_ns, "{context:?}");
    }
}

#[test]
fn calls_are_told_by_endpoint_with_their_latency_and_when_the_longest_was() {
    let text = "[machine]\ncpus = 3\nduration = \"100ms\"\n\
        [[thread]]\nname = \"client\"\ncpus = [1]\nstart = \"1ms\"\nprogram = [\"call db\", \"sleep 8ms\"]\n\
        [[thread]]\nname = \"server\"\ncpus = [0]\nprogram = [\"recv db\", \"run 2ms\", \"reply\"]\n\
        [[context]]\nname = \"hog\"\nbudget = \"5ms\"\nperiod = \"100ms\"\ncpus = [0]\n\
        [[thread]]\nname = \"hog\"\nstart = \"51ms\"\ntimes = 1\ncontext = \"hog\"\nprogram = [\"run 5ms\"]\n\
        [[thread]]\nname = \"lost\"\ncpus = [2]\nprogram = [\"run 1us\", \"call slow 20ms\", \"call slow\"]\n\
        [[thread]]\nname = \"slow\"\ncpus = [2]\nprogram = [\"run 30ms\", \"recv slow\", \"run forever\"]\n";
    let report = report_of(text, 0);
    let [db, slow] = report.endpoints.as_slice() else { panic!("{:?}", report.endpoints) };
    assert_eq!((db.name.as_str(), db.calls, db.replies, db.failures, db.pending), ("db", 10, 10, 0, 0));
    let latency = db.latency_ns.as_ref().expect("replies");
    assert_eq!(
        (latency.p50, latency.max, latency.max_at_ns),
        (2_000_000, 7_000_000, 51_000_000),
        "{latency:?}"
    );
    assert_eq!((slow.calls, slow.replies, slow.failures, slow.pending), (2, 0, 1, 1));
    assert_eq!(slow.latency_ns, None);
}

/// Threads that end within the run, so that all of their work is done, on CPUs where everything costs something.
fn costly(seed: u64) -> (String, u64) {
    let mut random = Random::new(seed, Stream::Machine);
    let mut pick = |from: u64, to: u64| from + random.below(to - from + 1);
    let mut text = format!(
        "[machine]\ncpus = {}\nduration = \"3s\"\ntick = \"1ms\"\nquantum = \"1ms\"\n\
         [costs]\nswitch = \"{}ns\"\nmigration = \"{}ns\"\ninterrupt = \"{}ns\"\ntick = \"{}ns\"\nipi = \"{}ns\"\n",
        pick(1, 3),
        pick(0, 9_000),
        pick(0, 9_000),
        pick(0, 9_000),
        pick(0, 9_000),
        pick(0, 5_000)
    );
    if pick(0, 2) == 0 {
        let clock = if pick(0, 1) == 0 { "true" } else { "false" };
        writeln!(
            text,
            "[network]\nevery = \"1ms\"\nwork = \"{}us\"\nbudget = \"50us\"\nclock = {clock}",
            pick(1, 60)
        )
        .expect("a string takes everything");
    }
    if pick(0, 2) == 0 {
        writeln!(text, "[faults]\nstall = {{ chance = \"5%\", for = \"200us\" }}")
            .expect("a string takes everything");
    }
    let mut work = 0;
    for thread in 0..pick(1, 6) {
        let (times, length) = (pick(1, 30), pick(1, 3_000_000));
        work += times * length;
        let wait = match pick(0, 3) {
            0 => ", \"every 5ms\"".to_owned(),
            1 => format!(", \"sleep {}us\"", pick(1, 3_000)),
            2 => ", \"yield\"".to_owned(),
            _ => String::new(),
        };
        writeln!(
            text,
            "[[thread]]\nname = \"t{thread}\"\ntimes = {times}\nweight = {}\nprogram = [\"run {length}ns\"{wait}]",
            pick(1, 200)
        )
        .expect("a string takes everything");
    }
    (text, work)
}

#[test]
fn work_overhead_and_idleness_of_all_cpus_are_their_time() {
    let mut kinds = BTreeMap::new();
    let sweep = Sweep::of(0..2_000);
    for seed in sweep.seeds.clone() {
        let (text, work) = costly(seed);
        let report = report_of(&text, seed);
        let mut worked = 0;
        for cpu in &report.cpus {
            let overhead: u64 = cpu.overhead_ns.values().sum();
            assert_eq!(cpu.busy_ns + cpu.idle_ns, report.duration_ns);
            worked += cpu.busy_ns - overhead;
            for (kind, time) in &cpu.overhead_ns {
                *kinds.entry(kind.clone()).or_insert(0) += time;
            }
        }
        assert_eq!(worked, work, "seed {seed}\n{text}");
    }
    let all: Vec<&str> = kinds.keys().map(String::as_str).collect();
    assert!(
        sweep.alone || all == ["interrupt", "migration", "network", "stall", "switch", "tick"],
        "{all:?}"
    );
}
