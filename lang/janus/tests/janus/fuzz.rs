//! Damaged programs get a module or mistakes: never a panic, and never without end.
//!
//! `MAINSPRING_FUZZ_INPUTS` says how many; `make soak` asks for a million. A failure prints its seed.

use mainspring::Budget;
use mainspring_janus::compile;
use mainspring_janus::testing::{Dice, damage, random_program};
use mainspring_qtjir::text::{parse, print};
use mainspring_qtjir::{Program, Quiet};

fn inputs() -> u64 {
    std::env::var("MAINSPRING_FUZZ_INPUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1500)
}

fn first() -> u64 {
    std::env::var("MAINSPRING_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Programs to be damaged.
fn sources() -> Vec<String> {
    (0..97).map(|seed| random_program(seed, seed % 2 == 0)).collect()
}

/// Says which seed it was if a test panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay it with MAINSPRING_SEED={} MAINSPRING_FUZZ_INPUTS=1", self.0);
        }
    }
}

const LIMITS: Budget = Budget { ops: 2_000, memory: 1 << 18, spawn_count: 0, channel_ops: 0, syscalls: 10 };

/// Runs what compiles: it ends by itself or at its budget.
fn try_out(program: &Program) {
    let function = program.module().function("main");
    if function.is_some_and(|main| main.params() == [mainspring_qtjir::Type::I64]) {
        let _ = program.run_alone("main", &[3], LIMITS, &Quiet);
    }
}

#[test]
fn damaged_sources_get_a_module_or_mistakes() {
    let (sources, mut compiled, mut refused) = (sources(), 0, 0);
    for seed in first()..first() + inputs() {
        let _seed = Seed(seed);
        let source = damage(&mut Dice::new(seed), &sources[(seed % 97) as usize]);
        match compile(&source) {
            Ok(module) => {
                compiled += 1;
                try_out(&Program::compile(module).expect("what compiles verifies"));
            }
            Err(mistakes) => {
                refused += 1;
                assert!(!mistakes.0.is_empty() && !mistakes.render("f", &source).is_empty());
            }
        }
    }
    assert!(inputs() < 100 || compiled > 0 && refused > 0, "{compiled} compiled, {refused} refused");
}

#[test]
fn damaged_texts_of_modules_get_a_module_or_an_error() {
    let texts: Vec<String> =
        sources().iter().map(|source| print(&compile(source).expect("it compiles"))).collect();
    let (mut compiled, mut refused) = (0, 0);
    for seed in first()..first() + inputs() {
        let _seed = Seed(seed);
        let Ok(module) = parse(&damage(&mut Dice::new(seed), &texts[(seed % 97) as usize])) else {
            refused += 1;
            continue;
        };
        match Program::compile(module) {
            Ok(program) => {
                compiled += 1;
                try_out(&program);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(inputs() < 100 || compiled > 0 && refused > 0, "{compiled} compiled, {refused} refused");
}

#[test]
fn depth_and_length_are_bounded() {
    for part in [
        "(",
        "[",
        "{",
        "-",
        "if true { ",
        "nursery { spawn { ",
        "f(",
        "not ",
        "[]",
        "try ",
        "await ",
        "1 + ",
        "x.",
    ] {
        for count in [10, 100, 1000, 30_000] {
            let source = format!("fn f() -> i64 {{ return {} }}", part.repeat(count));
            let _ = compile(&source);
            let _ = compile(&format!("fn f() {{ {}", part.repeat(count)));
            let _ = compile(&format!("fn f(x: {}", part.repeat(count)));
            let _ = parse(&part.repeat(count));
        }
    }
    let long = format!("fn f() -> i64 {{ return 1{} }}", " + 1".repeat(100_000));
    assert!(compile(&long).unwrap_err().to_string().contains("more than 128 levels"));
    let huge = " ".repeat(mainspring_janus::MAX_SOURCE_BYTES + 1);
    assert!(compile(&huge).is_err());
    let many = format!("fn f() {{ {} }}", "print(1); ".repeat(60_000));
    let _ = compile(&many);
}
