//! Distributions and devices that interrupt, against what their tables say.

mod common;

use common::{checked, thread, workload};
use mainspring_record::check::Bound;
use mainspring_report::Report;

fn run_of(text: &str, seed: u64) -> Report {
    checked(&workload(text), seed, Bound::None).report
}

#[test]
fn steps_draw_from_their_distribution() {
    let report = run_of(
        "[machine]\ncpus = 4\nduration = \"10s\"\n\
         [[distribution]]\nname = \"short\"\nkind = \"exponential\"\nmean = \"1ms\"\n\
         [[distribution]]\nname = \"fixed\"\nkind = \"values\"\nvalues = [\"1ms\", \"3ms\"]\n\
         [[distribution]]\nname = \"bell\"\nkind = \"normal\"\nmean = \"2ms\"\ndeviation = \"100us\"\n\
         [[distribution]]\nname = \"long\"\nkind = \"pareto\"\nleast = \"500us\"\nshape = \"2.5\"\n\
         [[thread]]\nname = \"e\"\nprogram = [\"run short\", \"sleep 1ms\"]\n\
         [[thread]]\nname = \"v\"\nprogram = [\"run fixed\", \"sleep 2ms\"]\n\
         [[thread]]\nname = \"n\"\nprogram = [\"run bell\", \"sleep 2ms\"]\n\
         [[thread]]\nname = \"p\"\nprogram = [\"run 1ms\", \"sleep long\"]\n",
        5,
    );
    let mean_run =
        |name: &str| thread(&report, name).runtime_ns as f64 / thread(&report, name).wakeups as f64;
    assert!((mean_run("e") / 1e6 - 1.0).abs() < 0.05, "{}", mean_run("e"));
    assert!((mean_run("v") / 2e6 - 1.0).abs() < 0.05, "{}", mean_run("v"));
    assert!((mean_run("n") / 2e6 - 1.0).abs() < 0.01, "{}", mean_run("n"));
    let p = thread(&report, "p");
    let mean_sleep = p.blocked_ns as f64 / p.wakeups as f64;
    assert!((mean_sleep / 833_333.0 - 1.0).abs() < 0.1, "500us times 2.5 over 1.5: {mean_sleep}");
}

#[test]
fn a_device_takes_the_time_of_its_cpu_and_wakes_its_thread() {
    let report = run_of(
        "[machine]\ncpus = 2\nduration = \"1s\"\n\
         [[interrupt]]\nname = \"nic\"\ncpu = 1\nevery = \"10ms\"\nburst = 4\nwork = \"50us\"\nwakes = \"driver\"\n\
         [[thread]]\nname = \"driver\"\ncpus = [0]\nprogram = [\"park\", \"run 100us\"]\n\
         [[thread]]\nname = \"hog\"\ncpus = [1]\nprogram = [\"run forever\"]\n",
        1,
    );
    assert_eq!(report.cpus[1].overhead_ns["device"], 99 * 4 * 50_000, "at 10ms, 20ms, and so on to 990ms");
    assert!(!report.cpus[0].overhead_ns.contains_key("device"));
    assert_eq!(thread(&report, "driver").wakeups, 99);
    assert_eq!(thread(&report, "driver").runtime_ns, 9_900_000);
    for seed in 0..30 {
        let report = run_of(
            "[machine]\ncpus = 2\nduration = \"300ms\"\n[faults]\nstall = { chance = \"5%\", for = \"1ms\" }\nexit_every = \"20ms\"\n\
             [[distribution]]\nname = \"arrivals\"\nkind = \"exponential\"\nmean = \"700us\"\n\
             [[interrupt]]\nname = \"disk\"\nevery = \"arrivals\"\nwork = \"0..300us\"\nwakes = \"in\"\n\
             [[interrupt]]\nname = \"nic\"\ncpu = 1\nevery = \"100us..3ms\"\nwork = \"20us\"\n\
             [[thread]]\nname = \"main\"\nprogram = [\"spawn in\", \"run 100us\", \"sleep 1ms\"]\n\
             [[thread]]\nname = \"in\"\ncount = 3\nstart = \"spawn\"\nprogram = [\"park\", \"run 200us\"]\n\
             [[thread]]\nname = \"hog\"\ncount = 2\nprogram = [\"run 1ms..5ms\", \"yield\"]\n",
            seed,
        );
        assert!(report.cpus[1].overhead_ns["device"] > 0, "seed {seed}");
    }
}
