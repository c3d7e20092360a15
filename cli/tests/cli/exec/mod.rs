//! `mainspring exec` and `ps` with real programs.
//!
//! What can be enforced depends on the host. Each test asks `doctor`: where the host allows it, the grant must hold and
//! its traces must go; where it does not, the refusal must say what is missing. No test asserts how long anything takes.

mod admission;
mod attacks;
mod crash;
mod docs;
mod limits;
mod programs;
mod records;
mod rights;
mod signals;

use crate::support::{Folder, Ran};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// A folder with a registry of its own.
struct Host {
    folder: Folder,
}

impl Host {
    fn new(name: &str) -> Self {
        Self { folder: Folder::new(&format!("exec-{name}")) }
    }

    fn run_dir(&self) -> PathBuf {
        self.folder.path("run")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.folder.command_with(args.iter().map(OsStr::new));
        command.env("MAINSPRING_RUN_DIR", self.run_dir());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&mut self.command(args))
    }

    /// Runs a shell script under a budget that any host has, with more options before it.
    fn sh(&self, options: &[&str], script: &str) -> Ran {
        let args =
            [&["exec", "--budget", "20ms/100ms", "--best-effort"], options, &["--", "sh", "-c", script]];
        self.run(&args.concat())
    }

    /// As `sh`, with the report as JSON beside what it printed.
    fn sh_reported(&self, options: &[&str], script: &str) -> (Ran, Value) {
        let ran = self.sh(&[options, &["--report", "json", "--output", "report.json"]].concat(), script);
        let report = serde_json::from_slice(&self.folder.read("report.json")).expect("a JSON report");
        (ran, report)
    }

    /// Starts a shell script, and waits for its first line.
    fn start(&self, options: &[&str], script: &str) -> Running {
        let args =
            [&["exec", "--budget", "20ms/100ms", "--best-effort"], options, &["--", "sh", "-c", script]];
        let mut command = self.command(&args.concat());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut first = String::new();
        stdout.read_line(&mut first).expect("a line");
        Running { child, stdout, first: first.trim().to_owned() }
    }

    /// Whether the host lets this process enforce something: a topic of `doctor`.
    fn allows(&self, topic: &str) -> bool {
        let findings = self.run(&["doctor", "--json"]).ok().json();
        let found = findings.as_array().expect("a list").iter().find(|finding| finding["topic"] == topic);
        found.expect("a finding")["status"] != "missing"
    }

    fn entries(&self) -> Vec<String> {
        let files = fs::read_dir(self.run_dir()).into_iter().flatten().filter_map(Result::ok);
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        names.filter(|name| name != "lock").collect()
    }

    /// The one entry there is.
    fn entry(&self) -> Value {
        let entries = self.entries();
        assert_eq!(entries.len(), 1, "{entries:?}");
        serde_json::from_slice(&fs::read(self.run_dir().join(&entries[0])).expect("an entry")).expect("JSON")
    }

    /// Nothing is left of a grant: no entry, no group.
    #[track_caller]
    fn assert_nothing_left_of(&self, id: &str) {
        assert_eq!(self.entries(), Vec::<String>::new());
        let left = groups_named(Path::new("/sys/fs/cgroup"), &format!("mainspring-{id}"));
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

/// A program under way.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The first line that it printed.
    first: String,
}

impl Running {
    /// `SIGTERM`, `KILL` and so on, to the supervisor.
    fn signal(&self, name: &str) {
        signal(name, self.child.id() as i32);
    }

    /// Waits for the supervisor alone. Its tree may still hold the other end of the standard output.
    fn reap(mut self) {
        self.child.wait().expect("reaped");
    }

    fn wait(mut self) -> Ran {
        let mut stdout = String::new();
        std::io::Read::read_to_string(&mut self.stdout, &mut stdout).expect("text");
        let mut ran = Ran::from(self.child.wait_with_output().expect("the program ends"));
        ran.stdout = stdout;
        ran
    }
}

fn signal(name: &str, pid: i32) {
    // The shell's own `kill`: every shell has one.
    let kill = format!("kill -{name} {pid}");
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success(), "{kill}");
}

/// The directories of a given name below another.
fn groups_named(directory: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below
        .flat_map(|entry| {
            let found = if entry.file_name() == name { vec![entry.path()] } else { Vec::new() };
            [found, groups_named(&entry.path(), name)].concat()
        })
        .collect()
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with(['Z', 'X']))
}

/// Waits for something that must come. The limit only turns a hang into a failure.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "still not: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A command that prints the directory of its own group with a controller, by the kernel's files alone.
const OWN_CPU_GROUP: &str = r#"
group() {
    line=$(grep -E "^[0-9]+:([^:]*,)?$1(,[^:]*)?:" /proc/self/cgroup || grep '^0::' /proc/self/cgroup)
    path=${line##*:}
    for mount in $(awk -v c="$1" '$0 ~ / - cgroup / && $NF ~ ("(^|,)" c "(,|$)") {print $5} $0 ~ / - cgroup2 / {two=$5} END {print two}' /proc/self/mountinfo)
    do
        [ -d "$mount$path" ] && echo "$mount$path" && return
    done
}
"#;
