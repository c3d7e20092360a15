//! Without rights: what is missing is said, and `--best-effort` goes on.

use super::{eventually, is_alive};
use crate::support::Ran;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

/// A place that a user without rights can reach, with a copy of the program. For root it belongs to another user.
struct Unprivileged {
    directory: PathBuf,
    root: bool,
}

impl Unprivileged {
    /// `None` where root cannot become another user.
    fn new(name: &str) -> Option<Self> {
        let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if root && Command::new("setpriv").arg("--version").output().is_err() {
            return None;
        }
        let directory = env::temp_dir().join(format!("mainspring-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).expect("a folder");
        fs::copy(env!("CARGO_BIN_EXE_mainspring"), directory.join("mainspring")).expect("a copy");
        // A test beside this one that forks meanwhile may have the copy open for a moment.
        let busy = || {
            let tried = Command::new(directory.join("mainspring")).arg("--version").output();
            tried.is_err_and(|error| error.kind() == std::io::ErrorKind::ExecutableFileBusy)
        };
        while busy() {
            std::thread::yield_now();
        }
        if root {
            std::os::unix::fs::chown(&directory, Some(65534), Some(65534)).expect("somebody else's");
        }
        Some(Self { directory, root })
    }

    fn command(&self, args: &[&str]) -> Command {
        let program = self.directory.join("mainspring");
        let mut command = if self.root {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"])
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(args).current_dir(&self.directory).env("MAINSPRING_RUN_DIR", self.directory.join("run"));
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&mut self.command(args))
    }

    /// Whether the host gave even this user the rights, by a delegated group.
    fn may(&self, topic: &str) -> bool {
        let findings = self.run(&["doctor", "--json"]).ok().json();
        let found = findings.as_array().expect("a list").iter().find(|finding| finding["topic"] == topic);
        found.expect("a finding")["status"] != "missing"
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn missing_rights_are_named_with_how_to_get_them_and_the_program_is_not_run() {
    let Some(user) = Unprivileged::new("named") else { return };
    let args =
        ["exec", "--budget", "20ms/100ms", "--deadline", "50ms", "--memory", "64M", "--", "touch", "ran"];
    let ran = user.run(&args);
    let enforced = user.may("quota") && user.may("memory") && user.may("deadline");
    assert_eq!(enforced, user.directory.join("ran").exists(), "{ran:?}");
    if !enforced {
        let mut words = vec!["touch: rights are missing", "help: get the rights", "--best-effort"];
        for (topic, what) in [
            ("quota", "the budget of the tree: "),
            ("memory", "the memory of the tree: "),
            ("deadline", "the deadline of the first thread: "),
        ] {
            words.extend((!user.may(topic)).then_some(what));
        }
        ran.refused(&words);
    }
}

#[test]
fn best_effort_goes_on_and_says_what_is_not_enforced() {
    let Some(user) = Unprivileged::new("best-effort") else { return };
    let ran =
        user.run(&["exec", "--budget", "20ms/100ms", "--best-effort", "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(7), "out\n"), "{ran:?}");
    if !user.may("quota") {
        assert!(ran.stderr.contains("! the budget of the tree is not enforced: "), "{}", ran.stderr);
        assert!(ran.stderr.contains("held by nothing"), "{}", ran.stderr);
        assert!(ran.stderr.contains("used "), "use is known without groups: {}", ran.stderr);
    }
}

#[test]
fn killing_the_supervisor_ends_the_tree_even_where_no_group_follows_it() {
    let Some(user) = Unprivileged::new("crash") else { return };
    let script = "(setsid sleep 100 & wait) & sleep 100 & wait";
    let mut command =
        user.command(&["exec", "--budget", "20ms/100ms", "--best-effort", "--", "sh", "-c", script]);
    let mut child = command.stderr(Stdio::null()).spawn().expect("the program starts");
    let listed = || user.run(&["ps", "--json"]).ok().json();
    let processes = |listed: &serde_json::Value| -> Vec<i32> {
        let all = listed[0]["processes"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(serde_json::Value::as_i64).map(|pid| pid as i32).collect()
    };
    let mut tree = Vec::new();
    eventually("four processes run", || {
        tree = processes(&listed());
        tree.len() >= 4
    });
    // `setpriv` becomes the supervisor, so that it is our child.
    child.kill().expect("killed");
    child.wait().expect("reaped");
    eventually("the tree has ended", || tree.iter().all(|pid| !is_alive(*pid)));
    eventually("nothing is granted", || listed() == serde_json::json!([]));
}
