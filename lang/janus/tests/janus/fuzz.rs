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

/// As many of something as a file has room for.
fn full(begin: &str, end: &str, part: impl Fn(usize) -> String) -> String {
    let mut source = begin.to_owned();
    let most = mainspring_janus::MAX_SOURCE_BYTES - end.len();
    for number in 0.. {
        let part = part(number);
        if source.len() + part.len() > most {
            break;
        }
        source.push_str(&part);
    }
    source + end
}

/// The largest files of one thing: each would take minutes, or more memory than a host has, if what is looked at for one of them grew with their
/// number.
#[test]
fn the_largest_files_are_compiled_or_refused_with_few_words() {
    let deep =
        |part: &str| format!("fn f(c: bool, a: i64) {{ {}", format!("if c {{ {part} }} ").repeat(5000));
    let args = vec!["a"; 60].join(",");
    let long = "x".repeat(300_000);
    let files = [
        ("loops", full("fn f(c: bool) { ", "}", |_| "while c { } ".to_owned())),
        ("mistakes", full("", "", |number| format!("fn a{number}() {{ b{number}() }} "))),
        ("mistakes of one name", full("fn f() { ", "}", |number| format!("spawn {{ b{number}() }} "))),
        ("errors", full("error z", "", |number| format!(",e{number}"))),
        ("structs", full("", "", |number| format!("struct s{number} {{ }} "))),
        ("fields", full("struct s { ", "}", |number| format!("f{number}: i64,"))),
        ("parameters", full("fn f(z: i64", ") { }", |number| format!(",p{number}: i64"))),
        ("functions", full("", "", |number| format!("fn f{number}() {{ }} "))),
        ("tasks", full("fn f(q: i64) { nursery { ", "} }", |_| "spawn { } ".to_owned())),
        (
            "tasks of a long name",
            full(&format!("fn {long}() {{ nursery {{ "), "} }", |_| "spawn { } ".to_owned()),
        ),
        ("uses far below", full(&deep(""), "}", |_| format!("g({args})\n"))),
        ("variables", full("fn f(c: bool) { ", "}", |number| format!("let v{number}=1;if c {{ }} "))),
        ("text", full("fn f() { print(\"", "\") }", |_| "é".to_owned())),
    ];
    let g =
        format!("\nfn g({}) {{ }}", (0..60).map(|at| format!("a{at}: i64")).collect::<Vec<_>>().join(","));
    for (what, source) in files {
        let source = match what {
            "uses far below" => source[..source.len() / 2].rsplit_once("\n").unwrap().0.to_owned() + "}" + &g,
            _ => source,
        };
        match compile(&source) {
            Ok(module) => drop(Program::compile(module).expect("what compiles verifies")),
            Err(mistakes) => {
                assert!(mistakes.0.len() <= 32, "{what}: {} mistakes", mistakes.0.len());
                let shown = mistakes.render("f", &source);
                assert!(shown.len() < 32 * 1000, "{what}: {} bytes are shown", shown.len());
            }
        }
    }
    let few = compile(&full("error z", "", |number| format!(",e{number}"))).unwrap_err();
    assert!(few.to_string().contains("too many errors"), "{few}");
    let few = compile(&format!("fn {long}() {{ }}")).unwrap_err();
    assert!(few.to_string().contains("a name of more than 255 letters"), "{few}");
}
