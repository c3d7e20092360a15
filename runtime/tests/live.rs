//! A runtime that others may look at.

use mainspring::live::OWNER_ONLY;
use mainspring::{Config, NurseryOptions, Profile, Runtime};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

fn runtime() -> Runtime {
    Config::new(Profile::Service).workers(2).build().expect("a runtime")
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mainspring-live-{}-{name}", std::process::id()))
}

#[test]
fn an_observer_is_told_what_tasks_do_and_the_socket_goes_with_its_value() {
    let (runtime, path) = (runtime(), path("told"));
    let shown = runtime.serve_live(&path, OWNER_ONLY).expect("a socket");
    assert_eq!(shown.path(), path);
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut told = String::new();
    let _cancelled = runtime.nursery(NurseryOptions::new(), |nursery| {
        nursery.spawn(|cx| cx.sleep(Duration::from_secs(60))).expect("a task");
        let mut lines = BufReader::new(UnixStream::connect(&path).expect("it listens"));
        // The task may not have gone to sleep when the first line is written.
        while !told.contains("\"threads_total\":1") {
            told.clear();
            assert!(lines.read_line(&mut told).expect("a line") > 0);
        }
        nursery.cancel();
    });
    assert!(told.starts_with("{\"machine\":\"runtime\",") && told.ends_with("}\n"), "{told}");
    assert!(told.contains("\"cpus\":[{\"id\":0,") && told.contains("\"name\":\"task "), "{told}");
    drop(shown);
    assert!(!path.exists());
}

#[test]
fn what_is_at_the_path_is_left_alone() {
    let (runtime, path) = (runtime(), path("taken"));
    std::fs::write(&path, "mine").expect("a file");
    let refused = runtime.serve_live(&path, OWNER_ONLY).expect_err("it is taken");
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).expect("it is there"), b"mine");
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn observers_beyond_the_limit_and_those_who_go_harm_nobody() {
    let (runtime, path) = (runtime(), path("many"));
    let shown = runtime.serve_live(&path, OWNER_ONLY).expect("a socket");
    let observers: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(&path).expect("it listens")).collect();
    let told = |mut stream: &UnixStream| stream.read(&mut [0; 1]).expect("an answer or an end");
    let served = observers.iter().filter(|stream| told(stream) == 1).count();
    assert_eq!(served, 8);
    drop(observers);
    // The places of those who have gone are free again, once that was noticed.
    let again = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        told(&UnixStream::connect(&path).expect("it listens")) == 1
    });
    assert!(again);
    drop(shown);
    assert_eq!(runtime.run(|_| 42).expect("it still runs"), 42);
}

#[test]
fn sockets_are_made_by_many_threads_at_once_and_one_gets_each_name() {
    let runtime = runtime();
    for round in 0..5 {
        let shared = path(&format!("race-{round}"));
        let all_ready = std::sync::Barrier::new(8);
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|thread| {
                    let (runtime, shared, all_ready) = (&runtime, &shared, &all_ready);
                    scope.spawn(move || {
                        all_ready.wait();
                        let own = runtime.serve_live(path(&format!("own-{round}-{thread}")), OWNER_ONLY);
                        (runtime.serve_live(shared, OWNER_ONLY), own)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(made.iter().all(|(_, own)| own.is_ok()), "{made:?}");
        assert_eq!(made.iter().filter(|(shared, _)| shared.is_ok()).count(), 1, "{made:?}");
    }
}
