//! The fuzzer notices what it is there to notice.

use std::process::{Command, Output};

fn fuzz(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainspring-fuzz-runtime"));
    command.args(args).output().expect("the fuzzer starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every discipline with one to eight workers and both drivers, several times. The seeds are fixed: what fails here fails for all.
#[test]
fn random_programs_do_what_the_model_allows() {
    let output = fuzz(&["--seed", "6000", "--seeds", "512", "--no-shrink"]);
    assert!(output.status.success(), "{}", said(&output));
}

/// Each mutant is a lie to the model, or a fault of the program: a run that passes in spite of it checks nothing.
#[test]
fn every_lie_to_the_model_is_noticed() {
    let mutants = [
        ("unpaid", "ops: the root lost"),
        ("authority", "it was given"),
        ("leak", "were never dropped"),
        ("twice", "was dropped twice"),
        ("cancel", "ends with"),
        ("panic", "ends with"),
        ("order", "comes after message"),
        ("stuck", "hang"),
        ("thread", "on another thread"),
        ("trace", "another trace"),
        ("time", "more than the root was given"),
        ("loan", "after a call its caller's context is"),
        ("crash", "crash"),
    ];
    for (mutant, words) in mutants {
        // Only what hangs uses its patience up, and only what is noticed late uses the seeds up: a busy host needs both.
        let patience = if mutant == "stuck" { "1" } else { "120" };
        let output = fuzz(&[
            "--mutant",
            mutant,
            "--seed",
            "0",
            "--seeds",
            "128",
            "--patience",
            patience,
            "--first",
            "--jobs",
            "1",
            "--no-shrink",
        ]);
        let said = said(&output);
        assert!(!output.status.success(), "{mutant} is not noticed:\n{said}");
        assert!(said.contains(words), "{mutant} is noticed as something else:\n{said}");
        assert!(
            said.contains("make fuzz-runtime SEED="),
            "{mutant}: a failure says how to replay it:\n{said}"
        );
    }
}
