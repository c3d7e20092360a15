//! The page stands alone, and nothing in a report can break out of its place.

mod common;

use common::{entry, granted, small};
use mainspring_report::{
    Config, EVENT_LIMIT, Event, PAGE_LIMIT, Report, ScheduleEntry, StateEntry, States, ThreadState, html,
    html_with_limit,
};
use serde_json::Value;

fn page(report: &Report) -> String {
    let mut out = Vec::new();
    html(report, &mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("text")
}

/// The text between a script element's tags.
fn script<'a>(page: &'a str, open: &str) -> &'a str {
    let (_, rest) = page.split_once(open).expect("the element is there");
    rest.split_once("</script>").expect("it ends").0
}

fn embedded(page: &str) -> Value {
    serde_json::from_str(script(page, "<script type=\"application/json\" id=\"report\">"))
        .expect("valid JSON")
}

#[test]
fn the_page_refers_to_nothing_outside_itself() {
    let page = page(&small());
    for reference in ["http://", "https://", "src=", "href=", "@import", "url(", "fetch(", "import("] {
        assert!(!page.contains(reference), "the page contains {reference}");
    }
    assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none';"));
}

#[test]
fn the_page_has_no_slot_left_open() {
    let page = page(&small());
    for slot in ["title", "style", "report", "cpu-rows", "thread-rows", "script"] {
        assert!(!page.contains(&format!("{{{{{slot}}}}}")), "{slot} was not filled in");
    }
}

#[test]
fn no_name_can_end_its_script_element() {
    let hostile = "</script><script>alert(1)</script><!-- & {{script}} \u{2028}";
    let report = Report {
        machine: hostile.to_owned(),
        config: Config { workload: hostile.to_owned(), ..Config::default() },
        digest: hostile.to_owned(),
        threads: vec![common::thread(hostile, 64, 1, 1)],
        schedule: Some(vec![entry(0, hostile, 0, 1, hostile)]),
        notices: vec![hostile.to_owned()],
        events: Some(vec![Event { reason: Some(hostile.to_owned()), ..Event::new(0, hostile) }]),
        ..small()
    };
    let (page, plain) = (page(&report), page(&small()));
    assert_eq!(page.matches("<script").count(), plain.matches("<script").count());
    assert_eq!(page.matches("</script").count(), plain.matches("</script").count());
    assert_eq!(page.matches("<!--").count(), 0);
    let embedded = embedded(&page);
    assert_eq!(embedded["names"][0], hostile);
    assert_eq!(embedded["reasons"][0], hostile);
    assert_eq!(embedded["config"]["workload"], hostile);
}

#[test]
fn the_page_holds_the_whole_report_but_the_schedule_and_the_jobs() {
    let report = granted();
    let embedded = embedded(&page(&report));
    let mut expected = serde_json::to_value(&report).expect("JSON");
    let expected = expected.as_object_mut().expect("an object");
    expected.remove("schedule");
    expected.remove("jobs");
    // Text in the page: a script reads numbers as doubles.
    expected.insert("seed".to_owned(), "42".into());
    for (name, value) in expected {
        assert_eq!(&embedded[name.as_str()], value, "{name}");
    }
    assert_eq!(embedded["names"], serde_json::json!(["hog", "editor", "batch", "hog", "editor", "batch"]));
    assert_eq!(embedded["first_group"], 3);
    assert_eq!(embedded["reasons"], serde_json::json!(["preempted", "blocked", "yielded", "end"]));
}

/// A run of many CPUs and threads, with so many intervals of each thread.
fn large(cpus: u32, threads: u32, each: u64) -> Report {
    let name = |n: u32| format!("crowd.{n}");
    let mut schedule: Vec<ScheduleEntry> = (0..each)
        .flat_map(|round| (0..threads).map(move |n| (round, n)))
        .map(|(round, n)| {
            let start = round * 1_000_000 + u64::from(n) * 7;
            entry(n % cpus, &name(n), start, start + 5 + u64::from(n % 3), "blocked")
        })
        .collect();
    schedule.sort_by_key(|entry| (entry.start_ns, entry.cpu));
    let entries = (0..threads).flat_map(|thread| {
        (0..each).map(move |round| {
            let start_ns = round * 1_000_000 + u64::from(thread) * 7 + 8;
            let state = ThreadState::ALL[(thread as usize + round as usize) % ThreadState::ALL.len()];
            StateEntry {
                thread,
                state,
                cpu: thread % cpus,
                start_ns,
                end_ns: start_ns + 900_000,
                by: Some(0),
            }
        })
    });
    Report {
        cpus: (0..cpus).map(|id| mainspring_report::CpuReport { id, ..small().cpus[0].clone() }).collect(),
        threads: (0..threads).map(|n| common::thread(&name(n), 64, 1, 1)).collect(),
        states: Some(States { names: (0..threads).map(name).collect(), entries: entries.collect() }),
        schedule: Some(schedule),
        events: Some((0..50_000).map(|time| Event::new(time, "refill")).collect()),
        duration_ns: each * 1_000_000,
        ..small()
    }
}

#[test]
fn a_page_is_never_larger_than_its_limit_and_says_what_is_coarser() {
    let report = large(4_096, 20_000, 40);
    let page = page(&report);
    assert!(page.len() <= PAGE_LIMIT, "{} bytes", page.len());
    assert!(page.len() > PAGE_LIMIT / 3, "{} bytes: the page has room for more", page.len());
    let embedded = embedded(&page);
    assert!(embedded["grain_ns"].as_u64() > Some(0));
    assert_eq!(embedded["totals"]["threads"], 20_000);
    assert!(embedded["thread_rows"].as_u64() < Some(20_000));
    assert_eq!(embedded["totals"]["intervals"], 800_000);
    assert_eq!(embedded["row_cpus"].as_array().map(Vec::len), Some(4_096));
}

#[test]
fn long_names_keep_their_end_and_the_limit_holds() {
    let long = |n: usize| format!("{}-{n}", "x".repeat(100_000));
    let report = Report {
        threads: (0..300).map(|n| common::thread(&long(n), 64, 1, 1)).collect(),
        schedule: Some((0..300_u64).map(|n| entry(0, &long(n as usize), n, n + 1, "end")).collect()),
        ..small()
    };
    let page = page(&report);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    let embedded = embedded(&page);
    let name = embedded["names"][17].as_str().expect("a name");
    assert!(name.starts_with('…') && name.ends_with("xx-17"), "{name}");
    assert_eq!(embedded["threads"][17]["name"], name);
}

#[test]
fn a_page_with_little_room_holds_less_and_knows() {
    let mut out = Vec::new();
    html_with_limit(&large(4, 50, 100), 30_000, &mut out).expect("a vector takes everything");
    let embedded = embedded(&String::from_utf8(out).expect("text"));
    assert_eq!(embedded["totals"]["intervals"], 5_000);
    assert!(embedded["intervals"].as_u64() < Some(5_000));
    assert!(embedded["events"].as_array().map(Vec::len) < Some(500));
    assert_eq!(embedded["totals"]["events"], 50_000);
}

#[test]
fn misses_are_kept_before_other_events() {
    let events = (0..EVENT_LIMIT as u64 + 2).map(|time| Event::new(time, "refill"));
    let events: Vec<Event> = events.chain([Event::new(u64::MAX, "miss")]).collect();
    let embedded = embedded(&page(&Report { events: Some(events), ..small() }));
    let shown = embedded["events"].as_array().expect("a list");
    assert_eq!(shown.len(), EVENT_LIMIT);
    assert_eq!(shown[EVENT_LIMIT - 1]["kind"], "miss");
    assert_eq!(embedded["totals"]["events"], EVENT_LIMIT + 3);
}

#[test]
fn no_schedule_and_an_empty_one_are_told_apart() {
    let none = embedded(&page(&Report { schedule: None, ..small() }));
    assert_eq!(none["totals"]["intervals"], Value::Null);
    let empty = page(&Report { schedule: Some(Vec::new()), ..Report::default() });
    assert_eq!(embedded(&empty)["totals"]["intervals"], 0);
    assert_eq!(script(&empty, "id=\"cpu-rows\">"), "");
}
