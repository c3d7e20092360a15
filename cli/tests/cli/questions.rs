//! What people ask a scheduler: each question is one command, and its answer is in what that prints.

use crate::support::{Folder, Ran};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A folder from which the examples and the documents can be named as in a checkout.
fn checkout(name: &str) -> Folder {
    let folder = Folder::new(name);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the checkout");
    for part in ["workloads", "docs"] {
        symlink(root.join(part), folder.path(part)).expect("a link");
    }
    folder
}

#[track_caller]
fn answers(ran: &Ran, parts: &[&str]) {
    for part in parts {
        assert!(ran.stdout.contains(part), "no {part:?} in:\n{}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn when_did_camera_first_miss_and_why() {
    let folder = checkout("ask-miss");
    folder.run("run workloads/robot-control.toml --record r.msr").ok();
    let ran = folder.run("explain r.msr --miss 1").ok();
    answers(
        &ran,
        &[
            "miss 1 of 5: camera, released at 99ms, due at 132ms",
            "was throttled for",
            "its context was used up",
        ],
    );
}

#[test]
fn who_blocks_a_thread_at_a_time() {
    let folder = checkout("ask-blocks");
    let high = fs::read_to_string(folder.path("workloads/inversion-off.toml")).expect("the example");
    folder.write("w.toml", high.replace("\"control\"", "\"high\""));
    folder.run("run w.toml --record w.msr").ok();
    let ran = folder.run("explain w.msr --thread high --at 25ms").ok();
    answers(
        &ran,
        &[
            "high at 25ms on CPU 0: blocked (call)",
            "it waited at endpoint store, whose server store was ready, while CPU 0 ran hog",
        ],
    );
}

#[test]
fn what_is_the_p99_of_calls_to_db() {
    let folder = Folder::new("ask-p99");
    folder.write(
        "w.toml",
        "[[thread]]\nname = \"web\"\ncount = 3\nprogram = [\"run 200us\", \"call db\", \"sleep 1ms..5ms\"]\n\
         [[thread]]\nname = \"db\"\nprogram = [\"recv db\", \"run 100us..900us\", \"reply\"]\n",
    );
    let ran = folder.run("run w.toml").ok();
    let table: Vec<&str> = ran.stdout.lines().skip_while(|line| !line.starts_with("calls to")).collect();
    let column = table[0].split_whitespace().position(|title| title == "p99").expect("a column");
    // The title of the first column has two words.
    let shown = table[1].split_whitespace().nth(column - 1).expect("a figure").to_owned();
    let p99 =
        folder.run("run w.toml --report json").ok().json()["endpoints"][0]["latency_ns"]["p99"].as_u64();
    let p99 = p99.expect("a figure");
    assert_eq!(shown, format!("{}us", (p99 + 500) / 1_000), "{}", table.join("\n"));
}

#[test]
fn what_changed_between_two_seeds() {
    let folder = checkout("ask-diff");
    for seed in [1, 2] {
        folder.run(&format!("run workloads/robot-control.toml --seed {seed} --record {seed}.msr")).ok();
    }
    let ran = folder.run("diff 1.msr 2.msr");
    assert_eq!(ran.code, Some(1));
    answers(
        &ran,
        &["seed: 1 in 1.msr, 2 in 2.msr", "decisions are the same; then", "camera", "response p99", "share"],
    );
}

#[test]
fn which_seed_of_a_thousand_is_the_worst() {
    let folder = checkout("ask-worst");
    let ran = folder.run("sweep workloads/robot-control.toml --seeds 0..999 --duration 100ms").ok();
    answers(
        &ran,
        &["1000 runs", "worst seed", "the worst: seed ", "mainspring run workloads/robot-control.toml"],
    );
    // The command that it names shows that run again.
    let command =
        ran.stdout.lines().find_map(|line| line.trim().strip_prefix("mainspring ")).expect("a command");
    folder.run(command).ok();
}

#[test]
fn does_it_hold_on_two_cpus() {
    let folder = Folder::new("ask-cpus");
    let context = |name: &str| {
        format!(
            "[[context]]\nname = \"{name}\"\nbudget = \"6ms\"\nperiod = \"10ms\"\n\
             [[thread]]\nname = \"{name}\"\ncontext = \"{name}\"\nprogram = [\"run 5ms\", \"every 10ms\"]\n"
        )
    };
    folder.write("w.toml", context("a") + &context("b"));
    assert_eq!(folder.run("admit w.toml").code, Some(3));
    let ran = folder.run("admit w.toml --cpus 2").ok();
    answers(&ran, &["admitted: every deadline holds as long as each context stays within its budget"]);
}

#[test]
fn what_does_linux_do_with_the_same() {
    let folder = checkout("ask-linux");
    let ran = folder.run("import docs/examples/recording.perf.data --compare").ok();
    answers(&ran, &["Linux", "ours", "wake latency p99", "faithful: "]);
}

#[test]
fn what_would_it_cost_to_lend() {
    let folder = checkout("ask-lend");
    let ran = folder
        .run("sweep workloads/inversion.toml --seeds 1..3 --set endpoint.store.donation=true,false")
        .ok();
    let row = |setting: &str| ran.stdout.lines().find(|line| line.starts_with(setting)).map(str::to_owned);
    let (lent, kept) = (row("endpoint.store.donation=true"), row("endpoint.store.donation=false"));
    let misses = |row: Option<String>| row.and_then(|row| row.split_whitespace().nth(4)?.parse::<u64>().ok());
    assert_eq!(
        (misses(lent), misses(kept).map(|misses| misses > 0)),
        (Some(0), Some(true)),
        "{}",
        ran.stdout
    );
}

#[test]
fn is_anything_deadlocked() {
    let folder = Folder::new("ask-deadlock");
    folder.write(
        "calls.toml",
        "[machine]\nduration = \"50ms\"\n\
         [[thread]]\nname = \"a\"\nprogram = [\"run 1ms\", \"call b\", \"recv a\", \"reply\"]\n\
         [[thread]]\nname = \"b\"\nprogram = [\"run 1ms\", \"call a\", \"recv b\", \"reply\"]\n",
    );
    let ran = folder.run("run calls.toml").ok();
    answers(&ran, &["! deadlock: a waits for b, which b serves; b waits for a, which a serves"]);
    folder.write(
        "locks.toml",
        "[machine]\ncpus = 2\nduration = \"50ms\"\n[[mutex]]\nname = \"m\"\n[[mutex]]\nname = \"n\"\n\
         [[thread]]\nname = \"a\"\nprogram = [\"lock m\", \"run 1ms\", \"lock n\", \"unlock n\", \"unlock m\"]\n\
         [[thread]]\nname = \"b\"\nprogram = [\"lock n\", \"run 1ms\", \"lock m\", \"unlock m\", \"unlock n\"]\n",
    );
    let ran = folder.run("run locks.toml").ok();
    answers(&ran, &["! deadlock: a waits for mutex n, which b holds; b waits for mutex m, which a holds"]);
    folder.write("fine.toml", "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\", \"call b\"]\n[[thread]]\nname = \"b\"\nprogram = [\"recv b\", \"run 1ms\", \"reply\"]\n");
    assert!(!folder.run("run fine.toml").ok().stdout.contains("deadlock"));
}

#[test]
fn does_ci_fail_on_a_miss() {
    let folder = checkout("ask-ci");
    let ran = folder.run("run workloads/robot-control.toml --fail-on misses --junit ci.xml");
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("expected no misses"), "{}", ran.stderr);
    assert!(String::from_utf8(folder.read("ci.xml")).is_ok_and(|xml| xml.contains("<failure")));
    folder.run("run workloads/inversion.toml --fail-on misses").ok();
}
