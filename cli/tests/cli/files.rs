//! `mainspring run`: the files that it writes, and those that it must not.

use crate::support::{Folder, Ran, WORKLOAD};
use std::fs::{self, File};

#[test]
fn files_are_written_and_named() {
    let folder = Folder::with_workload("files");
    let ran = folder.run("run w.toml --trace w.json --html ./w.html --record w.msr").ok();
    assert_eq!(ran.stderr, "wrote w.msr\nwrote w.json\nwrote ./w.html\n");
    assert_eq!(folder.list(), ["w.html", "w.json", "w.msr", "w.toml"]);
    let page = String::from_utf8(folder.read("w.html")).expect("text");
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"), "{}", &page[..80]);
    assert!(page.contains("editor"));
    let trace: serde_json::Value = serde_json::from_slice(&folder.read("w.json")).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| !events.is_empty()));
    folder.run("run w.toml --trace w.perfetto-trace --quiet").ok();
    // A packet of the trace: field 1, with a length.
    assert_eq!(folder.read("w.perfetto-trace").first(), Some(&0x0a));
    assert_eq!(folder.run("run w.toml --html w.html --quiet").ok().stderr, "");
}

#[test]
fn the_workload_is_never_overwritten() {
    let folder = Folder::with_workload("overwrite");
    fs::create_dir(folder.path("dir")).expect("a directory");
    for option in ["--html", "--trace", "--record"] {
        folder.run(&format!("run w.toml {option} w.toml")).refused(&["w.toml: is the workload", option]);
        folder.run(&format!("run w.toml {option} dir/../w.toml")).refused(&["is the workload"]);
    }
    let stdin = File::open(folder.path("w.toml")).expect("the workload");
    Ran::of(folder.command("run - --html w.toml").stdin(stdin)).refused(&["is the workload"]);
    assert_eq!(folder.read("w.toml"), WORKLOAD.as_bytes());
    assert_eq!(folder.list(), ["dir", "w.toml"]);
}

#[cfg(unix)]
#[test]
fn the_workload_is_not_overwritten_through_a_link() {
    let folder = Folder::with_workload("overwrite-link");
    std::os::unix::fs::symlink("w.toml", folder.path("link")).expect("a link");
    folder.run("run w.toml --html link").refused(&["link: is the workload"]);
    folder.run("run link --html w.toml").refused(&["w.toml: is the workload"]);
    assert_eq!(folder.read("w.toml"), WORKLOAD.as_bytes());
}

#[test]
fn one_file_cannot_be_two() {
    let folder = Folder::with_workload("two-in-one");
    folder
        .run("run w.toml --html out --trace ./out")
        .refused(&["out: is already the file of another option"]);
    let stdout = File::create(folder.path("report")).expect("a file");
    let ran = Ran::of(folder.command("run w.toml --html report").stdout(stdout));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("report: is where the report goes"), "{ran:?}");
}

#[test]
fn what_cannot_be_written_is_told_before_the_run() {
    let folder = Folder::with_workload("unwritable");
    fs::create_dir(folder.path("dir")).expect("a directory");
    for option in ["--html", "--trace", "--record"] {
        let refused =
            |out: &str, words: &[&str]| folder.run(&format!("run w.toml {option} {out}")).refused(words);
        refused("gone/out", &["gone/out: cannot write: No such file", "help: make its directory first"]);
        refused("dir", &["dir: cannot write", "directory", "help: give the path of a file in it"]);
        refused("w.toml/out", &["w.toml/out: cannot write"]);
    }
    folder.run("run w.toml --record w.msr --html dir").refused(&["dir: "]);
    assert_eq!(folder.list(), ["dir", "w.toml"], "nothing is left of a run that was refused");
}

#[test]
fn a_file_that_was_there_is_replaced_whole() {
    let folder = Folder::with_workload("replace");
    folder.write("w.html", vec![b'x'; 4 << 20]);
    folder.run("run w.toml --html w.html").ok();
    let page = folder.read("w.html");
    assert!(page.len() < 4 << 20 && !page.ends_with(b"xx"));
    assert_eq!(folder.list(), ["w.html", "w.toml"]);
}

#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_permissions_and_its_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::with_workload("permissions");
    folder.write("real.html", "");
    fs::set_permissions(folder.path("real.html"), fs::Permissions::from_mode(0o640)).expect("permissions");
    symlink("real.html", folder.path("w.html")).expect("a link");
    folder.run("run w.toml --html w.html").ok();
    assert!(fs::symlink_metadata(folder.path("w.html")).expect("the link").is_symlink());
    let real = fs::metadata(folder.path("real.html")).expect("the file");
    assert_eq!(real.permissions().mode() & 0o777, 0o640);
    assert!(real.len() > 0);
}

#[cfg(target_os = "linux")]
#[test]
fn devices_are_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let folder = Folder::with_workload("devices");
    folder.run("run w.toml --html /dev/null --trace /dev/null --record /dev/null").ok();
    assert!(fs::metadata("/dev/null").expect("the device").file_type().is_char_device());
    for option in ["--html", "--trace", "--record"] {
        folder
            .run(&format!("run w.toml {option} /dev/full"))
            .refused(&["/dev/full: cannot write: No space left"]);
    }
}

#[test]
fn a_reader_who_goes_away_costs_no_file() {
    let folder = Folder::with_workload("pipe-and-file");
    let mut child = folder
        .command("run w.toml --html w.html --report json --schedule")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("the program ends").success());
    assert_eq!(folder.list(), ["w.html", "w.toml"]);
}
