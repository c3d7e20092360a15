//! A program that was compiled to an object and linked does what it does when it is interpreted.

use mainspring_native::{Metering, Options};
use mainspring_qtjir::Program;
use mainspring_qtjir::launch::{Launch, summary};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

const OPTIONS: Options = Options { stack_bytes: 1 << 20, metering: Metering::Ops };

/// The library that these tests are of: cargo has put it beside them, with a hash in its name.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(test.parent().unwrap()).unwrap().map(|file| file.unwrap());
    let ours = files.filter(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libmainspring_jan") && name.ends_with(".a")
    });
    ours.max_by_key(|file| file.metadata().unwrap().modified().unwrap()).expect("cargo builds it").path()
}

/// Builds an executable of a program.
fn build(name: &str, source: &str) -> PathBuf {
    build_with(name, source, Metering::Ops)
}

fn build_with(name: &str, source: &str, metering: Metering) -> PathBuf {
    let program = Program::compile(mainspring_janus::compile(source).unwrap()).unwrap();
    let object =
        mainspring_native::object(&program, &format!("{name}.jan"), source, Options { metering, ..OPTIONS })
            .unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (object_file, out) = (folder.join(format!("{name}.o")), folder.join(name));
    std::fs::write(&object_file, object).unwrap();
    let library = library();
    let linked = Command::new("cc")
        .arg("-o")
        .args([&out, &object_file, &library])
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .expect("a C compiler, as the build needs anyway");
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    out
}

fn run(program: &Path, args: &[&str], limits: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(program).args(args).envs(limits.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[derive(Default)]
struct Lines(Mutex<String>);

impl mainspring_qtjir::Output for Lines {
    fn line(&self, text: &str) {
        let mut lines = self.0.lock().unwrap();
        lines.push_str(text);
        lines.push('\n');
    }
}

/// What it prints and says when it is interpreted.
fn interpreted(name: &str, source: &str, args: &[&str]) -> (String, String) {
    let program = Program::compile(mainspring_janus::compile(source).unwrap()).unwrap();
    let lines = Lines::default();
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let said = match Launch::default().run(&program, &args, &lines) {
        Ok(ended) => format!("{name}.jan: {}\n", summary(&program, &ended)),
        Err(error) => format!("{name}.jan:{error}\n"),
    };
    (lines.0.into_inner().unwrap(), said)
}

const TREE: &str = "error Odd
struct Node { value: i64, weight: f64 }
fn work(n: i64) -> i64 { let s = make([]i64, n)\n for i in 0..n { s[i] = i * i % 7 }\n var sum = 0\n for x in s { sum = sum + x }\n return sum }
fn count(n: i64) -> i64 { var sum = 0\n for i in 0..n { sum = sum + i }\n return sum }
fn half(n: i64) -> !i64 { if n % 2 == 1 { fail Odd }\n return n / 2 }
fn tree(depth: i64) -> i64 { if depth == 0 { return count(100) }
    var sum = 0\n nursery { let a = spawn tree(depth - 1)\n let b = spawn tree(depth - 1)\n sum = await a + await b }\n return sum }
fn main(depth: i64, x: f64) -> f64 { let node = Node { value: tree(depth) + work(100), weight: x }
    print(\"a tree\")\n print(half(7) catch -1)\n print(node.value > 0)\n return float(node.value) * node.weight }";

#[test]
fn a_linked_program_prints_returns_and_charges_the_same() {
    let program = build("tree", TREE);
    let (printed, said) = interpreted("tree", TREE, &["3", "1.5"]);
    assert_eq!(run(&program, &["3", "1.5"], &[]), (Some(0), printed.clone(), said.clone()));
    for workers in ["1", "2", "4"] {
        assert_eq!(
            run(&program, &["3", "1.5"], &[("JAN_WORKERS", workers)]),
            (Some(0), printed.clone(), said.clone())
        );
    }
}

#[test]
fn a_linked_program_is_bounded_and_says_where_it_was_stopped() {
    let spin = build("spin", "fn spin() -> i64 { while true { } }\nfn main() -> i64 { return spin() }");
    let (code, _, said) = run(&spin, &[], &[("JAN_OPS", "100000")]);
    assert_eq!(code, Some(1));
    assert!(said.contains("ran out of ops"), "{said}");
    let index = build("index", "fn main(n: i64) -> i64 { return [1, 2][n] }");
    let (code, _, said) = run(&index, &["2"], &[]);
    assert_eq!((code, said.as_str()), (Some(1), "index.jan:1:39: index 2 of a slice of 2 (in main)\n"));
    assert_eq!(run(&index, &["1"], &[]).0, Some(0));
    let (code, _, said) = run(&index, &["one"], &[]);
    assert!(code == Some(1) && said.contains("`main` takes i64"), "{said}");
    let (code, _, said) = run(&index, &["1"], &[("JAN_OPS", "many")]);
    assert!(code == Some(1) && said.contains("JAN_OPS=many"), "{said}");
    let (code, _, said) = run(&index, &["1"], &[("JAN_GRANT", "spawn,chanel")]);
    assert!(code == Some(1) && said.contains("there is no `chanel`"), "{said}");
    // What is no text is no number either, and is not taken for the default.
    let bad: &OsStr = OsStrExt::from_bytes(b"\xff");
    for name in ["JAN_OPS", "JAN_GRANT"] {
        let ran = Command::new(&index).arg("1").env(name, bad).output().unwrap();
        assert!(
            ran.status.code() == Some(1) && String::from_utf8_lossy(&ran.stderr).contains(name),
            "{ran:?}"
        );
    }
}

#[test]
fn a_linked_program_recurses_as_deep_as_an_interpreted_one() {
    let source = "fn down(n: i64) -> i64 { if n == 0 { return 0 }\n return 1 + down(n - 1) }\nfn main(n: i64) -> i64 { return down(n) }";
    let program = build("down", source);
    for depth in ["10", "2000", "1000000"] {
        let (printed, said) = interpreted("down", source, &[depth]);
        let (_, out, err) = run(&program, &[depth], &[]);
        assert_eq!((out, err), (printed, said), "{depth}");
    }
}

/// Nurseries, channels and errors are machine code in it, and it says the same as the interpreter.
#[test]
fn a_linked_program_of_nurseries_says_what_the_interpreter_says() {
    for seed in [0, 2, 4] {
        let source = mainspring_janus::testing::random_tasks(seed);
        let program = build(&format!("tasks{seed}"), &source);
        let (printed, said) = interpreted(&format!("tasks{seed}"), &source, &["5"]);
        for workers in ["1", "3"] {
            let got = run(&program, &["5"], &[("JAN_WORKERS", workers)]);
            assert_eq!(got, (Some(0), printed.clone(), said.clone()), "seed {seed}");
        }
    }
}

/// Under either meter, and with a runtime or without, an executable ends at the time that it is given, wherever it is.
#[test]
fn a_linked_program_that_never_ends_is_stopped_at_its_time() {
    let hostile = [
        ("loop", "fn main() -> i64 { while true { } }"),
        ("core", "{.profile: core.}\nfn main() -> i64 { while true { } }"),
        (
            "below",
            "fn spin() -> i64 { while true { } }\nfn main() -> i64 { nursery { spawn spin()\n spawn spin() }\n return 1 }",
        ),
        (
            "deep",
            "fn grow(n: i64) -> i64 { if n == 0 { return 1 }\n return grow(n - 1) +% grow(n - 1) }\nfn main() -> i64 { return grow(90) }",
        ),
        ("waits", "fn main() -> i64 { let c = make(chan i64, 0)\n return c.recv() catch 1 }"),
    ];
    for (name, source) in hostile {
        for metering in [Metering::Ops, Metering::Time] {
            let program = build_with(&format!("{name}_{metering:?}"), source, metering);
            let limits = [("JAN_TIME_MS", "200"), ("JAN_OPS", "1000000000000")];
            let (code, _, said) = run(&program, &[], &limits);
            assert!(
                code == Some(1) && said.contains("ran out of time"),
                "{name}, {metering:?}: {code:?} {said}"
            );
        }
    }
    let alone = build_with("alone", "{.profile: core.}\nfn main() -> i64 { return 1 }", Metering::Time);
    let (code, _, said) = run(&alone, &[], &[]);
    assert!(code == Some(1) && said.contains("set JAN_TIME_MS"), "{said}");
    assert_eq!(run(&alone, &[], &[("JAN_TIME_MS", "10000")]).0, Some(0));
}

/// What a hostile executable may allocate and spawn is bounded under the meter of time too.
#[test]
fn a_linked_program_that_counts_nothing_is_bounded_in_memory_and_spawns() {
    let eats = "fn main() -> i64 { var n = 0\n while true { n = n + make([]i64, 1000).len } }";
    let (code, _, said) = run(&build_with("eats", eats, Metering::Time), &[], &[("JAN_MEMORY", "1000000")]);
    assert!(code == Some(1) && said.contains("memory"), "{said}");
    let bomb = "fn bomb() -> i64 { nursery { for i in 0..1000000000 { spawn bomb() } }\n return 1 }\nfn main() -> i64 { return bomb() }";
    let (code, _, said) = run(
        &build_with("bomb", bomb, Metering::Time),
        &[],
        &[("JAN_SPAWNS", "500"), ("JAN_TIME_MS", "20000")],
    );
    assert!(code == Some(1) && said.contains("spawn"), "{said}");
}
