//! Programs of the Janus subset.

use crate::support::Folder;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The blocks of a page that show a command: the command, and what it prints.
fn shown(page: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let mut blocks = Vec::new();
    for block in text.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let (command, output) = block.split_once('\n').unwrap();
        blocks.push((command.strip_prefix("$ mainspring ").unwrap().to_owned(), output.to_owned()));
    }
    blocks
}

/// For those who write programs, and for those who compile a language.
const PAGES: [&str; 2] = ["docs/janus.md", "docs/lang.md"];

#[test]
fn the_pages_show_what_the_commands_print() {
    let (folder, blocks) = (Folder::new("jan-docs"), PAGES.map(shown).concat());
    assert!(blocks.len() >= 5, "{} commands", blocks.len());
    for (command, output) in blocks {
        let ran = folder.command(&command).current_dir(root()).output().unwrap();
        let printed = String::from_utf8(ran.stdout).unwrap() + &String::from_utf8(ran.stderr).unwrap();
        assert_eq!(printed, output, "mainspring {command}");
    }
}

#[test]
fn the_programs_of_the_pages_compile() {
    let pages = PAGES.map(|page| std::fs::read_to_string(root().join(page)).unwrap()).concat();
    for block in pages.split("```janus\n").skip(1) {
        let block = block.split("```").next().unwrap();
        mainspring_janus::compile(block)
            .unwrap_or_else(|mistakes| panic!("{}", mistakes.render("a page", block)));
    }
}

#[test]
fn a_program_runs_with_arguments() {
    let folder = Folder::new("jan-run");
    folder.write(
        "a.jan",
        "fn main(n: i64, x: f64, b: bool) -> f64 { if b { print(n) }\n return x * float(n) }",
    );
    let ran = folder.run("jan run a.jan -- -3 1.5 true").ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("-3\n", "a.jan: returned -4.5, 1 ops\n"));
    folder.run("jan run a.jan 1").refused(&["a.jan: `main` takes i64, f64, bool"]);
    folder.run("jan run a.jan x 1 true").refused(&["`main` takes i64, f64, bool"]);
}

#[test]
fn machine_code_gives_the_same_and_charges_the_same() {
    let folder = Folder::new("jan-native");
    folder.write(
        "sum.jan",
        "fn sum(n: i64) -> i64 { var s = 0\n for i in 0..n { s = s + i * i }\n return s }\nfn main() -> i64 { var got = 0\n \
         nursery { let task = spawn sum(1000)\n got = sum(500) + await task }\n return got }",
    );
    let interpreted = folder.run("jan run --interpret sum.jan").ok();
    assert_eq!(folder.run("jan run sum.jan").ok().stderr, interpreted.stderr);
    if cfg!(feature = "native") {
        assert_eq!(folder.run("jan run --native sum.jan").ok().stderr, interpreted.stderr);
        assert!(folder.run("jan run --meter time sum.jan").ok().stderr.contains("returned"));
        folder.run("jan build --object sum.jan -o sum.o").ok();
        assert!(std::fs::read(folder.path("sum.o")).unwrap().starts_with(b"\x7fELF"));
        folder
            .run("jan build --library no.a sum.jan -o sum")
            .refused(&["no.a: there is no such library", "--library"]);
    } else {
        for command in
            ["jan run --native sum.jan", "jan run --meter time sum.jan", "jan build sum.jan -o sum"]
        {
            folder.run(command).refused(&["without a code generator", "--features native"]);
        }
    }
}

#[test]
fn what_a_program_may_use_is_bounded() {
    let folder = Folder::new("jan-bounds");
    folder.write("spin.jan", "fn main() { while true { } }");
    folder.run("jan run --ops 100000 spin.jan").refused(&["spin.jan: ran out of ops"]);
    folder.write("core.jan", "{.profile: core.}\nfn main() { while true { } }");
    folder.run("jan run --ops 100000 core.jan").refused(&["core.jan:2:13: ran out of ops"]);
    folder.write("bomb.jan", "fn main() { nursery { spawn main()\n spawn main() } }");
    folder.run("jan run --spawns 100 bomb.jan").refused(&["bomb.jan:", "spawn"]);
    folder.write("hoard.jan", "fn main() { while true { let s = make([]i64, 1000) } }");
    folder.run("jan run --memory 1000000 hoard.jan").refused(&["hoard.jan:1:34: memory budget exhausted"]);
    folder.run("jan run --seed 1 --time 100 spin.jan").refused(&["a seeded run has no time", "help"]);
    let mut ways = vec![""];
    if cfg!(feature = "native") {
        ways.extend(["--native", "--meter time"]);
        folder.run("jan run --meter time core.jan").refused(&["nothing would stop it", "--time"]);
        folder.run("jan run --meter time --seed 1 spin.jan").refused(&["a seeded run counts ops"]);
        folder.run("jan run --meter time --spawns 100 bomb.jan").refused(&["bomb.jan:", "spawn"]);
        folder.run("jan run --meter time --memory 1000000 hoard.jan").refused(&["hoard.jan:", "memory"]);
    }
    for way in ways {
        for file in ["spin.jan", "core.jan"] {
            let command = format!("jan run {way} --ops 1000000000000 --time 100 {file}");
            folder.run(&command).refused(&[file, "ran out of time"]);
        }
    }
}

#[test]
fn a_sovereign_program_needs_its_grants() {
    let folder = Folder::new("jan-sovereign");
    folder.write("s.jan", "{.profile: sovereign.}\nfn f() -> i64 { return 4 }\nfn main(cap: CapSpawn) -> i64 { var x = 0\n nursery { x = await spawn f() }\n return x }");
    assert!(folder.run("jan run --grant spawn s.jan").ok().stderr.contains("returned 4"));
    folder.run("jan run s.jan").refused(&["s.jan:4:22:", "CapSpawn"]);
}

/// Four tasks that talk while they count: what is printed first depends on who runs first.
const TALKERS: &str = "{.profile: service.}
fn talk(n: i64) -> i64 {
    var s = 0
    for i in 0..4 {
        print(n * 10 + i)
        for k in 0..5000 { s = s + k }
    }
    return s
}
fn main() -> i64 {
    var s = 0
    nursery {
        let a = spawn talk(1)
        let b = spawn talk(2)
        let c = spawn talk(3)
        let d = spawn talk(4)
        s = await a + await b + await c + await d
    }
    return s
}
";

//= SCHED:9.1.1 SCHED:9.3.1 SCHED:6.2.2
#[test]
fn a_seed_and_a_number_of_workers_are_one_order_of_tasks() {
    let folder = Folder::new("jan-seed");
    folder.write("t.jan", TALKERS);
    let mut orders = std::collections::HashSet::new();
    for workers in [1, 2, 4] {
        for seed in 0..6 {
            let run = || {
                let ran = folder.run(&format!("jan run --seed {seed} --workers {workers} t.jan")).ok();
                (ran.stdout, ran.stderr)
            };
            let (order, result) = run();
            assert_eq!(order.lines().count(), 16);
            assert_eq!(run(), (order.clone(), result), "seed {seed}, {workers} workers");
            orders.insert(order);
        }
    }
    assert!(orders.len() > 1, "neither seeds nor workers change the order, so that the test shows nothing");
}

#[test]
fn what_is_no_program_is_refused() {
    let folder = Folder::new("jan-refused");
    folder.run("jan run nothing.jan").refused(&["nothing.jan:", "help: give the path"]);
    folder.write("bad.jan", [0xff, 0xfe]);
    folder.run("jan run bad.jan").refused(&["not UTF-8"]);
    folder.write("none.jan", "fn f() { }");
    folder.run("jan run none.jan").refused(&["there is no `main`"]);
    folder.write("wrong.jan", "fn main() { x = 1 }\nfn f() { y = 1 }");
    folder.run("jan check wrong.jan").refused(&["wrong.jan:1:13: error:", "wrong.jan:2:10: error:"]);
    folder.run("jan check wrong.jan gone.jan").refused(&["wrong.jan:1:13: error:", "gone.jan: "]);
}

/// A task of 50,500 ops that never ends is stopped where it first looks up after them, which the sum of ops shows.
//= SCHED:4.3.1
#[test]
fn the_profile_of_a_file_decides_how_often_its_tasks_look_up() {
    let folder = Folder::new("jan-interval");
    let stopped_at = |header: &str, cap: &str| {
        folder.write(
            "spin.jan",
            format!(
                "{{.profile: {header}.}}\nfn spin() -> i64 {{ while true {{ }} }}\n\
                 fn main({cap}) {{ nursery {{ spawn spin() with {{ ops: 50_500 }} }} catch |e| {{ }} }}"
            ),
        );
        let ran = folder.run("jan run --interpret --grant spawn,budget spin.jan").ok();
        let ops = ran.stderr.trim_end().trim_start_matches("spin.jan: ").trim_end_matches(" ops").to_owned();
        ops.parse::<u64>().unwrap_or_else(|_| panic!("{}", ran.stderr))
    };
    let caps = "cap: CapSpawn, budget: CapBudget";
    for (header, cap, interval) in [
        ("service", "", 1_024),
        ("cluster", caps, 512),
        ("sovereign, interval: 4096", caps, 4_096),
        ("sovereign, interval: 256", caps, 256),
    ] {
        let ops = stopped_at(header, cap);
        let paid = 50_500_u64.next_multiple_of(interval);
        // What `main` itself did are a few ops.
        assert!((paid..paid + 10).contains(&ops), "{header}: {ops} ops, not {paid}");
    }
}

/// How many threads a process has whose name begins with `mainspring-` and a number: those are workers.
fn workers_of(process: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let is_worker = |name: &String| {
        let number = name.trim_end().strip_prefix("mainspring-");
        number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    names.filter(is_worker).count()
}

//= SCHED:6.2.1 SCHED:6.2.2
#[test]
fn there_is_a_worker_for_each_cpu_unless_their_number_is_given() {
    let folder = Folder::new("jan-workers");
    folder.write("spin.jan", "fn main() { while true { } }");
    let cpus = std::thread::available_parallelism().unwrap().get();
    for (option, wanted) in [("", cpus), ("--workers 1", 1), ("--workers 5", 5)] {
        let command = format!("jan run --interpret --ops 1000000000000 {option} spin.jan");
        let mut child = folder.command(&command).spawn().unwrap();
        // Workers start one after the other, and none is left over.
        let mut seen = 0;
        for _ in 0..3_000 {
            seen = workers_of(child.id());
            if seen >= wanted {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, wanted, "{command}");
    }
}

/// As many tasks at once as a service may have in one nursery, on more workers than there are CPUs.
#[test]
fn a_run_with_256_workers_ends() {
    let folder = Folder::new("jan-256");
    folder.write(
        "wide.jan",
        "fn turns(n: i64) { for i in 0..n { yield } }\n\
         fn main() -> i64 { nursery { for i in 0..100 { spawn turns(i) } }\n return 512 }",
    );
    let ran = folder.run("jan run --interpret --workers 256 wide.jan").ok();
    assert!(ran.stderr.starts_with("wide.jan: returned 512, "), "{}", ran.stderr);
}
