//! Mutexes, semaphores, barriers and conditions, seen from the schedule alone: who ran while others did.

mod common;

use common::{checked, thread, workload};
use mainspring_record::check::Bound;
use mainspring_report::{Report, ScheduleEntry};

/// How many threads whose names begin with `prefix` ran at once, at most.
fn most_at_once(report: &Report, prefix: &str) -> usize {
    let ran = report
        .schedule
        .as_deref()
        .unwrap_or_default()
        .iter()
        .filter(|entry| entry.thread.starts_with(prefix));
    let mut edges: Vec<(u64, i32)> =
        ran.flat_map(|ScheduleEntry { start_ns, end_ns, .. }| [(*start_ns, 1), (*end_ns, -1)]).collect();
    edges.sort_unstable();
    let mut now = 0;
    edges
        .iter()
        .map(|(_, change)| {
            now += change;
            now
        })
        .max()
        .unwrap_or(0) as usize
}

fn run_of(text: &str, seed: u64) -> Report {
    checked(&workload(text), seed, Bound::None).report
}

fn row<'a>(report: &'a Report, name: &str) -> &'a mainspring_report::SyncReport {
    report.sync.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn one_thread_at_a_time_holds_a_mutex() {
    for seed in 0..20 {
        let report = run_of(
            "[machine]\ncpus = 3\nduration = \"200ms\"\n[[mutex]]\nname = \"m\"\n\
             [[thread]]\nname = \"in\"\ncount = 4\nprogram = [\"lock m\", \"run 100us..2ms\", \"unlock m\", \"sleep 0..500us\"]\n\
             [[thread]]\nname = \"out\"\nprogram = [\"run 1ms\"]\n",
            seed,
        );
        assert_eq!(most_at_once(&report, "in"), 1, "seed {seed}");
        let m = row(&report, "m");
        assert!(m.taken > 50 && m.waits > 20 && m.wait_max_ns > 0, "{m:?}");
        let least =
            report.threads.iter().filter(|row| row.name.starts_with("in")).map(|row| row.runtime_ns).min();
        assert!(least > Some(20_000_000), "in turn: {least:?}");
    }
}

#[test]
fn a_semaphore_lets_as_many_pass_as_its_value() {
    for seed in 0..10 {
        let report = run_of(
            "[machine]\ncpus = 6\nduration = \"100ms\"\n[[semaphore]]\nname = \"s\"\nvalue = 2\n\
             [[thread]]\nname = \"in\"\ncount = 5\nprogram = [\"down s\", \"run 100us..2ms\", \"up s\"]\n",
            seed,
        );
        assert_eq!(most_at_once(&report, "in"), 2, "seed {seed}");
    }
    // An item is taken no sooner than it was made.
    let report = run_of(
        "[machine]\ncpus = 2\nduration = \"100ms\"\n[[semaphore]]\nname = \"items\"\nvalue = 0\n\
         [[thread]]\nname = \"maker\"\nprogram = [\"sleep 1ms\", \"run 100us\", \"up items\"]\n\
         [[thread]]\nname = \"taker\"\nprogram = [\"down items\", \"run 50us\"]\n",
        1,
    );
    let (made, taken) = (thread(&report, "maker").runtime_ns / 100_000, row(&report, "items").taken);
    assert!(taken <= made && made - taken <= 1, "{made} made, {taken} taken");
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    for seed in 0..10 {
        let report = run_of(
            "[machine]\ncpus = 2\nduration = \"200ms\"\n[[barrier]]\nname = \"b\"\nparties = 3\n\
             [[thread]]\nname = \"p\"\ncount = 3\nprogram = [\"run 1ms\", \"barrier b\"]\n\
             [[thread]]\nname = \"noise\"\nprogram = [\"run 100us..900us\", \"sleep 100us..900us\"]\n",
            seed,
        );
        let rounds: Vec<u64> = report
            .threads
            .iter()
            .filter(|row| row.name.starts_with('p'))
            .map(|row| row.runtime_ns / 1_000_000)
            .collect();
        let (least, most) = (rounds.iter().min(), rounds.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1 && *least > 20), "{rounds:?}");
    }
}

#[test]
fn a_condition_is_waited_for_without_the_mutex_and_left_with_it() {
    for seed in 0..10 {
        let report = run_of(
            "[machine]\ncpus = 3\nduration = \"200ms\"\n[[mutex]]\nname = \"m\"\n[[condition]]\nname = \"full\"\n\
             [[thread]]\nname = \"in.taker\"\nprogram = [\"lock m\", \"wait full m\", \"run 300us\", \"unlock m\"]\n\
             [[thread]]\nname = \"in.maker\"\nprogram = [\"lock m\", \"run 200us..1ms\", \"signal full\", \"unlock m\", \"sleep 100us\"]\n",
            seed,
        );
        assert_eq!(most_at_once(&report, "in."), 1, "seed {seed}");
        let taken = thread(&report, "in.taker").runtime_ns / 300_000;
        assert!(taken > 50, "{taken}");
    }
    // No thread signals: the wait is given up, and the mutex taken again.
    let report = run_of(
        "[machine]\ncpus = 2\nduration = \"100ms\"\n[[mutex]]\nname = \"m\"\n[[condition]]\nname = \"never\"\n\
         [[thread]]\nname = \"in.a\"\nprogram = [\"lock m\", \"wait never m 1ms\", \"run 500us\", \"unlock m\"]\n\
         [[thread]]\nname = \"in.b\"\nprogram = [\"lock m\", \"run 700us\", \"unlock m\"]\n",
        3,
    );
    assert_eq!(most_at_once(&report, "in."), 1);
    let a = thread(&report, "in.a");
    assert!(a.timeouts > 20 && a.runtime_ns > 10_000_000 && a.refusals == 0, "{a:?}");
    // All wake, one after the other.
    let report = run_of(
        "[machine]\ncpus = 4\nduration = \"100ms\"\n[[mutex]]\nname = \"m\"\n[[condition]]\nname = \"go\"\n\
         [[thread]]\nname = \"in\"\ncount = 3\nprogram = [\"lock m\", \"wait go m\", \"run 200us\", \"unlock m\"]\n\
         [[thread]]\nname = \"starter\"\nprogram = [\"sleep 5ms\", \"lock m\", \"broadcast go\", \"unlock m\"]\n",
        3,
    );
    assert_eq!(most_at_once(&report, "in"), 1);
    assert!(
        report
            .threads
            .iter()
            .filter(|row| row.name.starts_with("in"))
            .all(|row| row.runtime_ns >= 18 * 200_000)
    );
}

#[test]
fn a_timeout_leaves_the_queue_and_what_is_not_held_is_not_given_back() {
    let report = run_of(
        "[machine]\ncpus = 2\nduration = \"100ms\"\n[[mutex]]\nname = \"m\"\n\
         [[thread]]\nname = \"holder\"\nprogram = [\"lock m\", \"run forever\"]\n\
         [[thread]]\nname = \"hasty\"\nprogram = [\"lock m 2ms\", \"run 100us\", \"unlock m\"]\n",
        1,
    );
    let hasty = thread(&report, "hasty");
    assert!(hasty.timeouts >= 40 && hasty.refusals >= 40, "{hasty:?}");
    assert_eq!(row(&report, "m").taken, 1);
    assert_eq!(report.notices, Vec::<String>::new());
}

#[test]
fn a_mutex_outlives_its_owner_and_wakeups_from_elsewhere_end_no_wait() {
    for seed in 0..40 {
        let report = run_of(
            "[machine]\ncpus = 3\nduration = \"200ms\"\n[faults]\nexit_every = \"9ms\"\nburst_every = \"700us\"\n\
             [[mutex]]\nname = \"m\"\ndonation = true\n[[condition]]\nname = \"c\"\n[[semaphore]]\nname = \"s\"\n[[barrier]]\nname = \"b\"\nparties = 2\n\
             [[thread]]\nname = \"main\"\nprogram = [\"spawn in\", \"spawn out\", \"unpark in\", \"unpark out\", \"sleep 1ms\"]\n\
             [[thread]]\nname = \"in\"\ncount = 5\nstart = \"spawn\"\nprogram = [\"lock m\", \"run 100us..2ms\", \"wait c m 3ms\", \"run 10us\", \"unlock m\"]\n\
             [[thread]]\nname = \"out\"\ncount = 4\nstart = \"spawn\"\nprogram = [\"signal c\", \"down s 2ms\", \"run 50us\", \"up s\", \"barrier b 1ms\"]\n",
            seed,
        );
        assert_eq!(most_at_once(&report, "in"), 1, "seed {seed}");
        assert!(row(&report, "m").taken > 30, "seed {seed}: {:?}", row(&report, "m"));
    }
}

#[test]
fn those_that_wait_lend_their_weight() {
    let text = |donation: bool| {
        format!(
            "[machine]\nduration = \"1s\"\n[[mutex]]\nname = \"m\"\ndonation = {donation}\n\
             [[thread]]\nname = \"low\"\nweight = 1\nprogram = [\"lock m\", \"run 4ms\", \"unlock m\", \"sleep 20ms\"]\n\
             [[thread]]\nname = \"high\"\nweight = 256\nstart = \"1ms\"\nprogram = [\"lock m\", \"run 1ms\", \"unlock m\", \"sleep 20ms\"]\n\
             [[thread]]\nname = \"hog\"\ncount = 3\nprogram = [\"run forever\"]\n"
        )
    };
    let (with, without) = (run_of(&text(true), 1), run_of(&text(false), 1));
    let longest = |report: &Report| row(report, "m").wait_max_ns;
    assert!(longest(&with) * 4 < longest(&without), "{} and {}", longest(&with), longest(&without));
    assert_eq!(thread(&with, "hog.0").weight, 64);
}

#[test]
fn threads_that_wait_in_a_circle_are_named() {
    let report = run_of(
        "[machine]\ncpus = 2\nduration = \"50ms\"\n[[mutex]]\nname = \"m\"\n[[mutex]]\nname = \"n\"\n\
         [[thread]]\nname = \"a\"\nprogram = [\"lock m\", \"run 1ms\", \"lock n\", \"run 1ms\", \"unlock n\", \"unlock m\"]\n\
         [[thread]]\nname = \"b\"\nprogram = [\"lock n\", \"run 1ms\", \"lock m\", \"run 1ms\", \"unlock m\", \"unlock n\"]\n",
        1,
    );
    assert_eq!(
        report.notices,
        ["deadlock: a waits for mutex n, which b holds; b waits for mutex m, which a holds"]
    );
}
