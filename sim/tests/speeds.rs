//! CPUs of different speeds and siblings that share a core, against schedules that were worked out by hand; phases and choices.

mod common;

use common::authority::draw_authority;
use common::{checked, checked_in, thread, workload};
use mainspring_abi::Nanos;
use mainspring_record::check::{Bound, Setting, Wide};
use mainspring_report::Report;

fn run_of(text: &str, seed: u64) -> Report {
    checked(&workload(text), seed, Bound::None).report
}

const MS: u64 = 1_000_000;

#[test]
fn a_slow_cpu_takes_longer_for_the_same_work_and_is_charged_for_the_time() {
    let report = run_of(
        "[machine]\ncpus = 2\nduration = \"100ms\"\nspeeds = [\"100%\", \"40%\"]\n\
         [[thread]]\nname = \"fast\"\ncpus = [0]\ntimes = 1\nprogram = [\"run 10ms\"]\n\
         [[thread]]\nname = \"slow\"\ncpus = [1]\ntimes = 1\nprogram = [\"run 10ms\"]\n",
        1,
    );
    assert_eq!(thread(&report, "fast").runtime_ns, 10 * MS);
    assert_eq!(thread(&report, "slow").runtime_ns, 25 * MS, "10 ms at 40 %");
}

#[test]
fn the_scheduler_shares_time_and_not_work() {
    let report = run_of(
        "[machine]\ncpus = 1\nduration = \"300ms\"\nspeeds = [\"25%\"]\n\
         [[thread]]\nname = \"a\"\nweight = 128\nprogram = [\"run forever\"]\n\
         [[thread]]\nname = \"b\"\nprogram = [\"run 3ms\"]\n",
        1,
    );
    let (a, b) = (thread(&report, "a").runtime_ns, thread(&report, "b").runtime_ns);
    assert_eq!(a + b, 300 * MS);
    assert!(a.abs_diff(200 * MS) <= 3 * MS, "two thirds within a quantum: {a}");
}

/// `a` runs from 0. `b` joins its core at 10 ms, when `a` has 10 ms left: at 60 % that takes to 26.667 ms, and `b` has done 10 ms of
/// its 20 by then. The rest takes 10 ms alone.
#[test]
fn siblings_slow_each_other_down_while_both_run() {
    let report = run_of(
        "[machine]\ncpus = 2\nduration = \"100ms\"\nsmt = \"60%\"\n\
         [[thread]]\nname = \"a\"\ncpus = [0]\ntimes = 1\nprogram = [\"run 20ms\"]\n\
         [[thread]]\nname = \"b\"\ncpus = [1]\nstart = \"10ms\"\ntimes = 1\nprogram = [\"run 20ms\"]\n",
        1,
    );
    let (a, b) = (thread(&report, "a").runtime_ns, thread(&report, "b").runtime_ns);
    assert!(a.abs_diff(26_666_667) <= 2, "{a}");
    assert!(b.abs_diff(26_666_667) <= 4, "{b}");
}

#[test]
fn a_cpu_without_a_sibling_keeps_its_speed() {
    let report = run_of(
        "[machine]\ncpus = 3\nduration = \"100ms\"\nsmt = \"50%\"\n\
         [[thread]]\nname = \"a\"\ncpus = [0]\ntimes = 1\nprogram = [\"run 10ms\"]\n\
         [[thread]]\nname = \"b\"\ncpus = [2]\ntimes = 1\nprogram = [\"run 10ms\"]\n",
        1,
    );
    assert_eq!((thread(&report, "a").runtime_ns, thread(&report, "b").runtime_ns), (10 * MS, 10 * MS));
}

/// However the work is cut up, each piece of it is done once: the time that a thread took is its work at the pace that it had.
#[test]
fn work_is_done_once_at_any_pace() {
    for seed in 0..50 {
        let report = run_of(
            "[machine]\ncpus = 2\nduration = \"1s\"\nspeeds = [\"50%\", \"50%\"]\n[costs]\nswitch = \"0us\"\n\
             [[thread]]\nname = \"w\"\ncount = 4\ntimes = 20\nprogram = [\"run 1ms\", \"sleep 100us..900us\"]\n\
             [[thread]]\nname = \"hog\"\nprogram = [\"run forever\"]\n",
            seed,
        );
        for n in 0..4 {
            let worked = thread(&report, &format!("w.{n}")).runtime_ns;
            let preempted = thread(&report, &format!("w.{n}")).preemptions + 20;
            // Twice its work, and less than two nanoseconds for each time that it was interrupted or began.
            assert!((40 * MS..=40 * MS + 4 * preempted).contains(&worked), "seed {seed}: {worked}");
        }
    }
}

/// Ten rounds of 1 ms each 10 ms, then five of 4 ms each 20 ms, twice in 400 ms: 60 ms of work, and no deadline missed.
#[test]
fn phases_follow_each_other() {
    let report = run_of(
        "[machine]\ncpus = 1\nduration = \"400ms\"\n\
         [[thread]]\nname = \"t\"\nprogram = [\"repeat 10\", \"run 1ms\", \"every 10ms\", \"end\", \"repeat 5\", \"run 4ms\", \
         \"every 20ms\", \"end\"]\n",
        1,
    );
    let row = thread(&report, "t");
    assert_eq!(row.runtime_ns, 60 * MS);
    assert_eq!(row.misses, 0);
    assert_eq!(row.jobs.as_ref().map(|jobs| jobs.finished), Some(30));
}

/// A phase for a time lasts that long, up to the end of its round.
#[test]
fn a_phase_lasts_as_long_as_it_says() {
    let report = run_of(
        "[machine]\ncpus = 1\nduration = \"100ms\"\n\
         [[thread]]\nname = \"t\"\ntimes = 1\nprogram = [\"for 25ms\", \"run 2ms\", \"sleep 2ms\", \"end\", \"run 1ms\"]\n",
        1,
    );
    // Rounds begin at 0, 4, ... and 24 ms: seven of them.
    assert_eq!(thread(&report, "t").runtime_ns, 15 * MS);
}

#[test]
fn choices_come_out_as_often_as_they_say_and_a_seed_makes_the_same_ones() {
    let text = "[machine]\ncpus = 1\nduration = \"10s\"\n\
                [[thread]]\nname = \"t\"\nprogram = [\"either 10%\", \"run 5ms\", \"or\", \"run 1ms\", \"end\", \"every 10ms\"]\n";
    let report = run_of(text, 3);
    let ran = thread(&report, "t").runtime_ns;
    // A thousand jobs: 1.4 ms in the mean, and five standard deviations are 190 ms in all.
    assert!(ran.abs_diff(1_400 * MS) < 190 * MS, "{ran}");
    assert_eq!(run_of(text, 3).digest, report.digest);
    assert_ne!(run_of(text, 4).digest, report.digest);
}

/// A life that ends inside a phase leaves nothing of it to the next life.
#[test]
fn a_new_life_begins_outside_of_all_phases() {
    let report = run_of(
        "[machine]\ncpus = 1\nduration = \"50ms\"\n\
         [[thread]]\nname = \"boss\"\ntimes = 3\nprogram = [\"spawn kid\", \"join kid\"]\n\
         [[thread]]\nname = \"kid\"\nstart = \"spawn\"\nprogram = [\"repeat 3\", \"run 1ms\", \"exit\", \"end\"]\n",
        1,
    );
    assert_eq!(thread(&report, "kid").runtime_ns, 3 * MS);
}

/// CPU 1 is free at 5 ms, and takes a thread over from CPU 0: 10 us for the move, and 40 us if CPU 1 is of another node.
#[test]
fn a_move_to_another_node_costs_more() {
    let moved = |nodes: usize| {
        let report = run_of(
            &format!(
                "[machine]\ncpus = 2\nduration = \"20ms\"\nnodes = {nodes}\n[costs]\nmigration = \"10us\"\nnode = \"40us\"\n\
                 [[thread]]\nname = \"first\"\ncpus = [1]\ntimes = 1\nprogram = [\"run 5ms\"]\n\
                 [[thread]]\nname = \"pinned\"\ncpus = [0]\nprogram = [\"run forever\"]\n\
                 [[thread]]\nname = \"free\"\nstart = \"1us\"\nprogram = [\"run forever\"]\n"
            ),
            1,
        );
        let migrations: u64 = report.threads.iter().map(|thread| thread.migrations).sum();
        let cost = |cpu: usize| report.cpus[cpu].overhead_ns.get("migration").copied().unwrap_or(0);
        (migrations, cost(0) + cost(1))
    };
    let (one, two) = (moved(1), moved(2));
    assert!(one.0 > 0, "{one:?}");
    assert_eq!(one, (one.0, one.0 * 10_000));
    assert_eq!(two, (two.0, two.0 * 50_000));
}

/// What the scheduler promises does not hang on how fast its CPUs are: random workloads with contexts, calls, leases and, half of them,
/// faults keep every rule on machines whose CPUs differ, share cores and have memory of their own. Each run is replayed and repeated.
#[test]
fn promises_hold_at_any_pace() {
    for seed in 0..120 {
        let mut workload = draw_authority(seed, seed % 2 == 1);
        let cpus = workload.machine.cpus;
        workload.machine.speeds_ppm =
            (0..cpus).map(|cpu| [1_000_000, 333_333, 70_000][(cpu + seed as usize) % 3]).collect();
        workload.machine.smt_ppm = (seed % 3 != 0).then_some(617_001);
        workload.machine.nodes = if cpus > 1 { 2 } else { 1 };
        workload.costs.node = Nanos::from_micros(7);
        let setting = Setting::of(&workload);
        if let Err(what) = checked_in::<Wide>(&workload, seed, setting) {
            panic!("seed {seed}: {what}");
        }
    }
}

/// Jobs are counted wherever the `every` step stands: half of the rounds wait for a multiple of 10 ms, the others for 1 ms.
#[test]
fn a_period_in_one_of_two_ways_is_waited_for() {
    let report = run_of(
        "[machine]\ncpus = 1\nduration = \"10s\"\n\
         [[thread]]\nname = \"t\"\nprogram = [\"run 1ms\", \"either 50%\", \"sleep 1ms\", \"or\", \"every 10ms\", \"end\"]\n",
        9,
    );
    let jobs = thread(&report, "t").jobs.as_ref().map_or(0, |jobs| jobs.finished);
    // A job is finished in about every second round, and waits for the next 10 ms then: between 500 and 1,000 in 10 s.
    assert!((500..=1_000).contains(&jobs), "{jobs}");
}
