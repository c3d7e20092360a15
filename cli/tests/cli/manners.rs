//! Signals, warnings, manual pages and small advice.

use crate::support::{Folder, Ran};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

#[test]
fn a_signal_leaves_no_temporary_file() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let folder = Folder::with_workload(&format!("signal-{signal}"));
        let mut command = folder.command("run w.toml --duration 30m --record r.msr --html p.html");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        // It has begun when its temporary files are there.
        while !folder.list().iter().any(|name| name.ends_with(".tmp")) {
            thread::sleep(Duration::from_millis(5));
        }
        let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()));
        assert_eq!(child.wait().expect("it ends").code(), Some(code));
        assert_eq!(folder.list(), ["w.toml"], "{signal}");
    }
}

#[test]
fn what_is_hardly_meant_is_told() {
    let folder = Folder::new("warnings");
    folder.write(
        "w.toml",
        "[machine]\nduration = \"10ms\"\n[[thread]]\nname = \"a\"\nstart = \"20ms\"\nprogram = [\"park\"]\n",
    );
    let ran = folder.run("check w.toml").ok();
    for word in [
        "line 6: nobody unparks a: its park never ends",
        "line 3: a starts at 20ms, and the run ends at 10ms",
    ] {
        assert!(ran.stderr.contains(&format!("w.toml: warning: {word}")), "{}", ran.stderr);
        let text = folder.run("run w.toml").ok().stdout;
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn there_are_manual_pages_and_help() {
    let folder = Folder::new("man");
    let page = folder.run("man run").ok().stdout;
    assert!(page.contains(".TH") && page.contains("\\-\\-record"), "{page}");
    let version = env!("CARGO_PKG_VERSION");
    let heading = format!(".TH MAINSPRING-RUN 1  \"mainspring {version}\" Mainspring\n");
    assert!(page.contains(&heading), "{}", &page[..page.len().min(200)]);
    folder.run("man walk").refused(&["there is no command \"walk\""]);
    folder.run("man --dir .").ok();
    let pages = folder.list();
    for name in ["mainspring.1", "mainspring-run.1", "mainspring-import.1"] {
        assert!(pages.iter().any(|page| page == name), "{pages:?}");
    }
    assert!(folder.run("help run").ok().stdout.starts_with("Run a workload file"));
}

#[test]
fn mistakes_are_met_with_advice() {
    let folder = Folder::with_workload("advice");
    folder.run("run w.toml --seed -1").refused(&["a seed is a whole number from 0 on, such as 7"]);
    for value in ["x", "-3", "1.5", ""] {
        let refused = ["write a whole number of CPUs, such as 4"];
        Ran::of(folder.command("run w.toml --cpus").arg(value)).refused(&refused);
        Ran::of(folder.command("boot --cpus").arg(value))
            .refused(&["write a whole number of CPUs from 1 to 16"]);
    }
    folder.run("boot --cpus 17").refused(&["write a whole number of CPUs from 1 to 16"]);
    folder.run("sweep w.toml --jobs 0").refused(&["write a whole number of runs at a time, from 1 to 1024"]);
    folder.run("explain w.msr --miss -1").refused(&["from 1 on: the first miss is 1"]);
    for line in ["explain w.msr --thread a --at -5ms", "run w.toml --duration -5ms"] {
        folder.run(line).refused(&["-5ms", "negative"]);
    }
    folder
        .write("quoted.toml", "[machine]\ncpus = \"1\"\n[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n");
    folder.run("run quoted.toml").refused(&["expected a whole number", "write 1 without quotes"]);
    folder.write("names.toml", "[[thread]]\nname = \"café\"\nprogram = [\"run 1ms\", \"sleep 1ms\"]\n");
    assert!(folder.run("run names.toml").ok().stdout.contains("café"));
    let mut boot = folder.command("boot");
    let ran = Ran::of(boot.env("MAINSPRING_KERNEL_DIR", "/nowhere/../there"));
    ran.refused(&["/there/", "MAINSPRING_KERNEL_DIR"]);
}

#[test]
fn no_column_vanishes_in_a_pipe() {
    let folder = Folder::with_workload("pipe");
    let text = folder.run("run w.toml").ok().stdout;
    assert!(!text.contains("hidden at this width"), "{text}");
    assert!(text.contains("preempt") && text.contains("migr"), "{text}");
}

#[test]
fn one_is_one_and_times_of_the_file_are_told_as_they_are() {
    let folder = Folder::new("plurals");
    folder.write(
        "w.toml",
        "[machine]\nduration = \"10ms\"\n[[context]]\nname = \"c\"\nbudget = \"2666667ns\"\nperiod = \"20ms\"\n\
         [[thread]]\nname = \"a\"\ncontext = \"c\"\ntimes = 1\nprogram = [\"run forever\"]\n",
    );
    folder.write(
        "one.toml",
        "[machine]\nduration = \"10ms\"\n[[thread]]\nname = \"a\"\nprogram = [\"run forever\"]\n",
    );
    let text = folder.run("run one.toml").ok().stdout;
    assert!(text.contains("on 1 CPU · 1 thread · 1 decision in "), "{text}");
    for command in ["run w.toml", "admit w.toml"] {
        let text = folder.run(command).ok().stdout;
        assert!(text.contains(" 2.666667ms "), "{command}: {text}");
        assert!(!text.contains("island"), "{command}, where there is none: {text}");
    }
}
