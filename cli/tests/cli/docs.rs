//! The pages, as their reader would try them.

use crate::support::{Folder, Ran};
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command and what the page says that it prints.
pub struct Shown {
    pub command: String,
    pub printed: Vec<String>,
}

/// The commands of a page's console blocks.
pub fn shown(page: &str) -> Vec<Shown> {
    let blocks = page.split("```console\n").skip(1).filter_map(|rest| rest.split_once("\n```"));
    let mut found: Vec<Shown> = Vec::new();
    for line in blocks.flat_map(|(block, _)| block.lines()) {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push(Shown { command: command.to_owned(), printed: Vec::new() }),
            (None, Some(last)) => last.printed.push(line.to_owned()),
            (None, None) => panic!("{line:?} before the first command"),
        }
    }
    found
}

/// What prints the same on every machine: runs of the simulator, and what is made of them. Other machines, hosts and builds
/// print what they are, and have tests of their own.
fn is_fixed(command: &str) -> bool {
    let elsewhere = [
        "--on ",
        "mainspring exec",
        "mainspring ps",
        "mainspring doctor",
        "mainspring boot",
        "-linux.msr",
        "-qemu.msr",
        "--nats ",
    ];
    let starts = ["mainspring ", "sed ", "printf ", "for ", "head ", "wc "];
    starts.iter().any(|start| command.starts_with(start))
        && !elsewhere.iter().any(|part| command.contains(part))
}

/// How long a run took in real time is nobody's promise.
fn timeless(line: &str) -> String {
    let Some((before, rest)) = line.split_once(" in ") else { return line.to_owned() };
    match rest.split_once("/s · digest ") {
        Some((_, digest)) if before.ends_with("decisions") => format!("{before} · digest {digest}"),
        _ => line.to_owned(),
    }
}

/// The lines that say something, without what differs from one run to the next.
fn told<'l>(lines: impl Iterator<Item = &'l str>) -> Vec<String> {
    lines.filter(|line| !line.trim().is_empty()).map(timeless).collect()
}

/// Compares what was printed with what the page shows, in which `…` stands for any number of lines.
fn compare(page: &str, command: &str, shown: &[String], printed: &str) {
    let shown = told(shown.iter().map(String::as_str));
    let printed = told(printed.lines());
    let parts: Vec<&[String]> = shown.split(|line| line.trim() == "…").collect();
    let mut rest = printed.as_slice();
    for (number, part) in parts.iter().enumerate() {
        let (first, last) = (number == 0, number + 1 == parts.len());
        let at = (0..=rest.len().saturating_sub(part.len())).find(|&at| {
            rest[at..].starts_with(part)
                && (!first || at == 0)
                && (!last || part.is_empty() || at + part.len() == rest.len())
        });
        let Some(at) = at else {
            panic!(
                "{page}: {command}\nthe page shows\n{}\nand it prints\n{}",
                part.join("\n"),
                printed.join("\n")
            );
        };
        rest = &rest[at + part.len()..];
    }
    assert!(rest.is_empty() || parts.len() > 1, "{page}: {command}\nit prints more:\n{}", rest.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs the commands of one page, one after the other in one folder. How many there were.
fn try_page(page: &str) -> usize {
    let folder = Folder::new(&format!("docs-{}", page.replace(['/', '.'], "-")));
    let root = root();
    let text = fs::read_to_string(root.join(page)).expect("the page");
    for name in ["docs", "workloads"] {
        symlink(root.join(name).canonicalize().expect("the folder"), folder.path(name)).expect("a link");
    }
    // The README has its reader write this file first.
    if let Some((_, rest)) = text.split_once("```toml\n") {
        folder.write("first.toml", rest.split_once("```").expect("the block ends").0);
    }
    let program = Path::new(env!("CARGO_BIN_EXE_mainspring")).parent().expect("its folder");
    let path = env::var_os("PATH").unwrap_or_default();
    let path =
        env::join_paths([program.to_owned()].into_iter().chain(env::split_paths(&path))).expect("a path");
    let mut tried = 0;
    let mut missing = Vec::new();
    for Shown { command, printed } in shown(&text) {
        // What another machine has recorded is not here.
        let needs_other = missing.iter().any(|file: &String| command.contains(file.as_str()));
        if !is_fixed(&command) || needs_other {
            missing
                .extend(command.split_whitespace().filter(|word| word.ends_with(".msr")).map(str::to_owned));
            continue;
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{{ {command}\n}} 2>&1")]).current_dir(folder.path("."));
        for variable in ["NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"] {
            shell.env_remove(variable);
        }
        compare(page, &command, &printed, &Ran::of(shell.env("PATH", &path)).stdout);
        tried += 1;
    }
    tried
}

/// The lines that claim hard realtime. Pages and sources are looked at by `core/sched/tests/claims.rs`.
fn claims(text: &str) -> Vec<String> {
    let says = |line: &&str| {
        let line = line.to_lowercase().replace(['-', '_'], " ");
        let named = ["hard realtime", "hard real time", "hard rt"].iter().any(|words| line.contains(words));
        named && !["no ", "not ", "never", "neither", "nothing"].iter().any(|word| line.contains(word))
    };
    text.lines().filter(says).map(str::to_owned).collect()
}

//= TICK:nongoal.hard-rt
#[test]
fn the_command_claims_no_hard_realtime() {
    assert_eq!(claims("it is hard real-time\nit is not hard realtime").len(), 1, "the search finds a claim");
    let folder = Folder::new("docs-claims");
    let workload = |name: &str| root().join("workloads").join(name).display().to_string();
    let (robot, audio) = (workload("robot-control.toml"), workload("audio-graph.toml"));
    for args in [
        vec!["--help"],
        vec!["run", "--help"],
        vec!["admit", "--help"],
        vec!["man"],
        vec!["admit", &audio],
        vec!["admit", &robot],
        vec!["run", &robot],
        vec!["run", &audio, "--report", "json"],
    ] {
        let ran = Ran::of(&mut folder.command_with(&args)).ok();
        assert_eq!(claims(&(ran.stdout + &ran.stderr)), [""; 0], "{args:?}");
    }
}

//= OWN:docs.run
#[test]
fn every_page_shows_what_its_commands_print() {
    let mut pages = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).expect("the folder of pages") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            pages.push(format!("docs/{name}"));
        }
    }
    let tried: usize = pages.iter().map(|page| try_page(page)).sum();
    assert!(tried >= 40, "only {tried} commands");
}
