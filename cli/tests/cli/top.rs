//! `mainspring top` without a terminal: one frame, in three forms.

use crate::support::Folder;
use std::io::Write;
use std::os::unix::net::UnixListener;

const WORKLOAD: &str = r#"
[machine]
cpus = 1
duration = "100ms"

[[context]]
name = "camera"
budget = "4ms"
period = "20ms"

[[thread]]
name = "camera"
context = "camera"
program = ["run 9ms", "every 20ms"]

[[thread]]
name = "hog"
count = 2
program = ["run 1s"]
"#;

fn recorded(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("w.toml", WORKLOAD);
    folder.run("run w.toml --record w.msr --quiet").ok();
    folder
}

#[test]
fn a_moment_of_a_record_shows_cpus_contexts_and_threads() {
    let folder = recorded("top-moment");
    let text = folder.run("top w.msr --at 10ms").ok().stdout;
    assert_eq!(
        text,
        folder.run("top w.msr --at 10ms --form text").ok().stdout,
        "into a pipe it is one frame"
    );
    assert!(text.starts_with("w.toml on sim  10ms of 100ms  3 threads"), "{text}");
    assert!(text.contains("camera           [                    ]       0ns left of 4ms per 20ms  throttled  held by camera"), "{text}");
    assert!(
        text.lines()
            .any(|line| line.starts_with("CPU 0") && line.contains("100%") && line.contains("runs hog.")),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "no escape codes");
    let row = text.lines().find(|line| line.starts_with("camera") && line.contains("40.0")).expect("its row");
    assert!(row.contains("throttled") && row.contains("4.0ms"), "{row}");
}

#[test]
fn programs_read_a_frame_as_json_or_as_prometheus() {
    let folder = recorded("top-forms");
    let json: serde_json::Value =
        serde_json::from_str(&folder.run("top w.msr --form json").ok().stdout).expect("JSON");
    assert_eq!(json["time_ns"], 100_000_000);
    assert_eq!(json["cpus"][0]["busy_ns"], 100_000_000);
    assert_eq!(json["misses"], folder.run("run w.toml --report json").json()["misses_total"]);
    let text = folder.run("top w.msr --at 50ms --form prometheus").ok().stdout;
    assert!(text.contains("mainspring_context_budget_nanoseconds{context=\"camera\"} 4000000\n"), "{text}");
    assert!(text.contains("mainspring_time_nanoseconds 50000000\n"), "{text}");
    let ran: u64 = text
        .lines()
        .filter(|line| line.starts_with("mainspring_thread_runtime_nanoseconds_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(ran, 50_000_000, "all the time of the CPU");
}

#[test]
fn a_runtime_that_serves_its_socket_is_shown() {
    let folder = Folder::new("top-socket");
    let listener = UnixListener::bind(folder.path("app.sock")).expect("a socket");
    let line = r#"{"machine":"runtime","workload":"app","time_ns":5,"threads_total":1,"cpus":[{"id":0,"ready":3}],"threads":[{"name":"task 7","state":"timer","ops":12}]}"#;
    let served = std::thread::spawn(move || {
        for answer in [format!("{line}\n"), "no frame\n".to_owned()] {
            let (mut observer, _) = listener.accept().expect("an observer");
            observer.write_all(answer.as_bytes()).expect("it reads");
        }
    });
    let text = folder.run("top app.sock --form text").ok().stdout;
    assert!(text.starts_with("app on runtime  5ns  1 thread"), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("task 7") && line.trim_end().ends_with(" 12")),
        "{text}"
    );
    folder.run("top app.sock --form text").refused(&["app.sock", "not a runtime that serves frames"]);
    served.join().expect("both were served");
}

#[test]
fn what_is_no_record_is_refused() {
    let folder = recorded("top-refused");
    let whole = folder.read("w.msr");
    folder.write("cut.msr", &whole[..whole.len() / 2]);
    folder.run("top cut.msr --form text").refused(&["cut.msr"]);
    folder.run("top w.toml --form text").refused(&["w.toml"]);
    folder.run("top nothing.msr --form text").refused(&["nothing.msr"]);
    folder.run("top w.msr --speed 0").refused(&["0.000001"]);
}
