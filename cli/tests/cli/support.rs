//! Running the program, and a folder for each test.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// A little of everything, seeded durations included.
pub const WORKLOAD: &str = r#"
[machine]
cpus = 2
duration = "100ms"

[costs]
switch = "1us"

[[thread]]
name = "hog"
weight = 128
program = ["run forever"]

[[thread]]
name = "editor"
latency = "interactive"
program = ["run 200us..900us", "every 16ms"]

[[thread]]
name = "batch"
count = 2
cpus = [1]
program = ["run 1ms..4ms", "sleep 1ms..3ms"]
"#;

/// A folder that a test has for itself and that goes away with it.
pub struct Folder(PathBuf);

impl Folder {
    /// `name` is the test's.
    pub fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    /// A folder with [`WORKLOAD`] in `w.toml`.
    pub fn with_workload(name: &str) -> Self {
        let folder = Self::new(name);
        folder.write("w.toml", WORKLOAD);
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("a file for the test");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file that the program wrote")
    }

    /// The names of the files, sorted.
    pub fn list(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the test's folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }

    /// The program, to be run in this folder with arguments split at blanks.
    pub fn command(&self, args: &str) -> Command {
        self.command_with(args.split_whitespace())
    }

    pub fn command_with(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainspring"));
        command.args(args).current_dir(&self.0).stdin(Stdio::null());
        for variable in ["NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"] {
            command.env_remove(variable);
        }
        command
    }

    pub fn run(&self, args: &str) -> Ran {
        Ran::of(&mut self.command(args))
    }

    /// Runs with `input` on standard input.
    pub fn run_with_input(&self, args: &str, input: &[u8]) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        thread::scope(|scope| {
            // A program that refuses its input early closes the pipe, which is its right.
            scope.spawn(move || stdin.write_all(input).is_ok());
            Ran::from(child.wait_with_output().expect("the program ends"))
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the program did.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(command: &mut Command) -> Self {
        command.output().expect("the program starts").into()
    }

    /// It went well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// It was refused, with nothing on standard output and every one of `words` on standard error.
    #[track_caller]
    pub fn refused(self, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.stdout, "");
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in:\n{}", self.stderr);
        }
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).expect("JSON on standard output")
    }
}

impl From<std::process::Output> for Ran {
    fn from(output: std::process::Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program speaks UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}
