//! The text report: what it says, and that it fits.

mod common;

use common::{cpus, granted, small, thread};
use mainspring_report::{Report, TextStyle, ThreadReport, WakeLatency, text};

fn plain(report: &Report, columns: usize) -> String {
    text(report, TextStyle { columns, ..TextStyle::default() })
}

fn row<'a>(shown: &'a str, name: &str) -> &'a str {
    shown.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no row {name} in\n{shown}"))
}

/// Compares with a file of `tests/golden`; with `UPDATE_GOLDEN` set, writes it instead, for a person to review.
fn assert_golden(name: &str, shown: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, shown).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file is there");
    assert_eq!(shown, golden, "set UPDATE_GOLDEN=1 if the new text is better");
}

#[test]
fn a_small_report_reads_like_this() {
    assert_golden("small.txt", &plain(&small(), 120));
}

#[test]
fn a_small_report_reads_like_this_in_ascii_on_a_narrow_terminal() {
    let style = TextStyle { columns: 72, unicode: false, ..TextStyle::default() };
    let shown = text(&small(), style);
    assert!(shown.is_ascii());
    assert_golden("narrow.txt", &shown);
}

#[test]
fn granted_time_reads_like_this() {
    assert_golden("granted.txt", &plain(&granted(), 120));
}

#[test]
fn a_run_without_granted_time_has_none_of_its_tables() {
    let shown = plain(&small(), 120);
    for title in ["context", "lease", "island", "ring"] {
        assert!(!shown.lines().any(|line| line.starts_with(title)), "{shown}");
    }
}

#[test]
fn many_contexts_are_counted_unless_all_are_asked_for() {
    let mut report = granted();
    report.contexts = vec![report.contexts[0].clone(); 45];
    let rows = |shown: &str| shown.lines().filter(|line| line.starts_with("audio")).count();
    let (folded, expanded) =
        (plain(&report, 120), text(&report, TextStyle { expand: true, ..TextStyle::default() }));
    assert_eq!((rows(&folded), rows(&expanded)), (40, 45));
    assert!(folded.contains("and 5 more rows"), "{folded}");
}

#[test]
fn no_line_is_longer_than_the_terminal() {
    let mut report = granted();
    report.notices.push("a long notice ".repeat(100));
    report.islands[1].reason = "a long reason ".repeat(100);
    report.leases[0].state = "refused: ".repeat(100);
    report.threads.extend((0..40).map(|i| thread(&format!("a-rather-long-name-of-a-worker.{i}"), 8, 5, 6)));
    report.config.workload = "a/very/long/path/".repeat(20);
    report.cpus = cpus(64);
    for columns in [40, 60, 80, 100, 120, 200] {
        for expand in [false, true] {
            let shown = text(&report, TextStyle { columns, expand, ..TextStyle::default() });
            let longest = shown.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(columns), "{longest:?} of {columns} in\n{shown}");
        }
    }
}

#[test]
fn no_line_ends_in_blanks() {
    for columns in [50, 80, 120] {
        assert!(plain(&granted(), columns).lines().all(|line| line == line.trim_end()));
    }
}

#[test]
fn many_instances_are_folded_into_means_sums_and_worst() {
    let instance = |i: u64| ThreadReport {
        ready_ns: 10_000_000,
        wakeups: 1,
        wake_latency_ns: WakeLatency { p50: 1_000, p99: 2_000 + i, max: i * 1_000_000 },
        lag_max_ns: 100_000 * i,
        preemptions: 3,
        ..thread(&format!("batch.{i}"), 32, 50_000_000, 50_000_000)
    };
    let report = Report { threads: (0..13).map(instance).collect(), ..small() };
    let shown = plain(&report, 140);
    let cells: Vec<&str> = row(&shown, "batch.* (x13)").split_whitespace().collect();
    assert_eq!(cells[2..5], ["32", "5.0", "5.0"], "the weight that all have, and means");
    assert_eq!(cells[6], "10.0ms", "ready is a mean");
    assert_eq!(cells[8..12], ["1.00us", "2.01us", "12.0ms", "1.20ms"], "the worst of any");
    assert_eq!(cells[12], "39", "preemptions are a sum");
    assert!(!shown.contains("batch.0"));
}

#[test]
fn few_instances_are_shown_one_by_one_and_so_are_many_on_demand() {
    let named = |n: u64| (0..n).map(|i| thread(&format!("batch.{i}"), 32, 5, 5)).collect();
    let few = plain(&Report { threads: named(12), ..small() }, 120);
    assert!(few.contains("batch.11") && !few.contains("batch.*"));
    let many = Report { threads: named(30), ..small() };
    let expanded = text(&many, TextStyle { expand: true, ..TextStyle::default() });
    assert!(expanded.contains("batch.29") && !expanded.contains("batch.*"));
}

#[test]
fn folded_instances_of_different_weight_say_so() {
    let threads = (0..20).map(|i| thread(&format!("w.{i}"), 32 + i, 5, 5)).collect();
    assert!(row(&plain(&Report { threads, ..small() }, 120), "w.* (x20)").contains("mixed"));
}

#[test]
fn a_wide_name_keeps_both_ends() {
    let name = format!("worker-{}.17", "x".repeat(200));
    let shown = plain(&Report { threads: vec![thread(&name, 64, 1, 1)], ..small() }, 120);
    assert!(shown.contains("\nworker-xxxxxxxx…xxxxxxxxxxx.17  "), "{shown}");
}

#[test]
fn a_report_with_no_threads_says_so() {
    let shown = plain(&Report { threads: Vec::new(), ..small() }, 120);
    assert!(shown.contains("No threads."));
}

#[test]
fn an_empty_report_is_still_a_report() {
    let shown = plain(&Report::default(), 80);
    assert!(shown.contains("0 CPUs") && shown.contains("0 decisions"));
}

#[test]
fn many_cpus_are_summarised_unless_asked_for() {
    let report = Report { cpus: cpus(17), ..small() };
    let shown = plain(&report, 120);
    for (name, busy) in [("min", "84.0"), ("median", "92.0"), ("max", "100.0")] {
        assert!(row(&shown, name).contains(busy), "{shown}");
    }
    assert!(shown.contains("of 17 CPUs"));
    let expanded = text(&report, TextStyle { expand: true, ..TextStyle::default() });
    assert!(expanded.lines().any(|line| line.starts_with("16 ")) && !expanded.contains("median"));
}

#[test]
fn only_counters_that_counted_are_shown() {
    let shown = plain(&small(), 120);
    assert!(row(&shown, "ticks_suppressed").contains("idle 43"));
    assert!(!shown.contains("handoffs"));
}

#[test]
fn misses_and_great_lag_are_named_in_words_and_in_colour() {
    let shown = text(&small(), TextStyle { colour: true, ..TextStyle::default() });
    assert!(shown.contains("\x1b[1;31meditor\x1b[0m"));
    assert!(shown.contains("\x1b[33m4.50ms\x1b[0m"));
    let plain = plain(&small(), 120);
    assert!(plain.contains("! missed periods: editor 2"));
    assert!(plain.contains("! |lag| beyond one quantum (3ms): batch 4.50ms"));
}

#[test]
fn colour_changes_nothing_but_colour() {
    let coloured = text(&small(), TextStyle { colour: true, ..TextStyle::default() });
    let mut stripped = String::new();
    for (i, piece) in coloured.split("\x1b[").enumerate() {
        stripped.push_str(if i == 0 { piece } else { piece.split_once('m').expect("a colour").1 });
    }
    let trimmed = |text: &str| text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>();
    assert_eq!(trimmed(&stripped), plain(&small(), 120));
}

#[test]
fn hostile_names_cannot_steer_the_terminal() {
    let mut report = small();
    report.threads[0].name = "\x1b]0;owned\x07".to_owned();
    report.threads[0].misses = 1;
    report.config.workload = "a\nb\x1b[2J".to_owned();
    report.config.policy = "\r".to_owned();
    let shown = plain(&report, 120);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'));
}
