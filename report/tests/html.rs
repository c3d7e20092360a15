//! The page stands alone, and nothing in a report can break out of its place.

mod common;

use common::{entry, granted, small};
use mainspring_report::{Config, EVENT_LIMIT, Event, Report, html, html_with_limit};
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
    for slot in ["title", "style", "report", "intervals", "script"] {
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
    assert_eq!(embedded["names"], serde_json::json!(["hog", "editor", "batch"]));
    assert_eq!(embedded["reasons"], serde_json::json!(["preempted", "blocked", "yielded", "end"]));
}

#[test]
fn a_schedule_beyond_the_limit_is_cut_and_the_page_knows() {
    let mut out = Vec::new();
    html_with_limit(&small(), 3, &mut out).expect("a vector takes everything");
    let embedded = embedded(&String::from_utf8(out).expect("text"));
    assert_eq!((&embedded["intervals"], &embedded["intervals_total"]), (&3.into(), &4.into()));
}

#[test]
fn events_beyond_the_limit_are_cut_and_the_page_knows() {
    let events = (0..EVENT_LIMIT as u64 + 2).map(|time| Event::new(time, "refill")).collect();
    let embedded = embedded(&page(&Report { events: Some(events), ..small() }));
    assert_eq!(embedded["events"].as_array().map(Vec::len), Some(EVENT_LIMIT));
    assert_eq!(embedded["events_total"], EVENT_LIMIT + 2);
}

#[test]
fn no_schedule_and_an_empty_one_are_told_apart() {
    let none = embedded(&page(&Report { schedule: None, ..small() }));
    assert_eq!(none["intervals_total"], Value::Null);
    let empty = page(&Report { schedule: Some(Vec::new()), ..Report::default() });
    assert_eq!(embedded(&empty)["intervals_total"], 0);
    assert_eq!(script(&empty, "id=\"intervals\">"), "");
}
