//! The Janus subset: what compiles, what it does, and what is said about what does not.

mod diagnostics;
mod editors;
mod end_to_end;
mod examples;
mod fuzz;
mod language;
mod lowering;
mod profiles;
mod random;

use mainspring::{Config, Profile, Runtime};
use mainspring_janus::compile;
use mainspring_qtjir::{Ended, Fault, Limits, Output, Program, Quiet, task_fault};
use std::sync::Mutex;

/// Compiles, or fails with what is wrong.
fn program(source: &str) -> Program {
    let module = compile(source).unwrap_or_else(|mistakes| panic!("{}", mistakes.render("test.jan", source)));
    Program::compile(module).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Service).workers(workers).build().unwrap()
}

fn run_on(runtime: &Runtime, program: &Program, args: &[u64], output: &dyn Output) -> Result<Ended, Fault> {
    match runtime.run(|cx| program.run_in_task("main", args, cx, output)) {
        Ok(ended) => ended,
        Err(error) => Err(task_fault(&error)),
    }
}

/// What `main` of a source gives, in a task.
fn run(source: &str) -> Result<Ended, Fault> {
    run_on(&runtime(2), &program(source), &[], &Quiet)
}

/// What `main` gives that must end well.
fn result(source: &str) -> i64 {
    match run(source) {
        Ok(ended) => ended.value.unwrap_or(0) as i64,
        Err(fault) => panic!("{fault}\n{source}"),
    }
}

/// What `main` gives of a program of the core profile, without a runtime.
fn alone(body: &str) -> Result<i64, Fault> {
    let program = program(&format!("{{.profile: core.}}\n{body}"));
    program.run_alone("main", &[], Limits::MAX, &Quiet).map(|ended| ended.value.unwrap_or(0) as i64)
}

/// Keeps what was printed.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Output for Lines {
    fn line(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

impl Lines {
    fn sorted(self) -> Vec<String> {
        let mut lines = self.0.into_inner().unwrap();
        lines.sort();
        lines
    }
}

macro_rules! runtime_tests {
    ($($file:literal)*) => {
        [$(include_str!(concat!("../../../../runtime/", $file))),*].as_slice()
    };
}

/// The categories of the CBC-MN documents, how many tests they list in each, and where ours are.
const CATEGORIES: [(&str, usize, &[&str]); 6] = [
    (
        "context switch",
        27,
        runtime_tests!("src/stack/switch.rs" "tests/unwinding.rs" "tests/overflow.rs" "tests/threads.rs"),
    ),
    (
        "worker loop and scheduling",
        41,
        runtime_tests!("tests/workers.rs" "tests/basics.rs" "tests/determinism.rs" "tests/fair.rs" "tests/fork.rs" "tests/timers.rs"),
    ),
    ("nurseries and the scheduler", 8, runtime_tests!("tests/spawners.rs" "tests/open.rs")),
    ("states of nurseries, cancellation", 5, runtime_tests!("tests/loom/state.rs")),
    ("lowering", 4, &[include_str!("lowering.rs")]),
    ("from source to result", 10, &[include_str!("end_to_end.rs")]),
];

//= NURS:tests
#[test]
fn the_suite_has_as_many_tests_as_the_documents_list_in_each_category() {
    let is_test = |line: &&str| line.trim() == "#[test]";
    let mut listed = 0;
    for (category, wanted, files) in CATEGORIES {
        let ours: usize = files.iter().map(|file| file.lines().filter(is_test).count()).sum();
        assert!(ours >= wanted, "{ours} tests of {category}, and the documents list {wanted}");
        listed += wanted;
    }
    assert_eq!(listed, 95);
}
