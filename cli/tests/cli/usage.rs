//! Help, version, wrong arguments, completions.

use crate::support::{Folder, Ran};

#[test]
fn help_shows_commands_examples_and_exit_codes() {
    let folder = Folder::new("help");
    let help = folder.run("--help").ok().stdout;
    for word in [
        "run ",
        "admit ",
        "check ",
        "replay ",
        "explain ",
        "doctor ",
        "jan ",
        "completions ",
        "Examples:",
        "Exit codes:",
    ] {
        assert!(help.contains(word), "no {word:?} in:\n{help}");
    }
    assert_eq!(folder.run("-h").ok().stdout, help);
}

#[test]
fn help_of_each_command_has_examples_and_fits_the_screen() {
    let folder = Folder::new("help-commands");
    for command in [
        "run",
        "sweep",
        "report",
        "diff",
        "admit",
        "check",
        "replay",
        "explain",
        "exec",
        "ps",
        "doctor",
        "jan",
        "completions",
    ] {
        let help = folder.run(&format!("{command} --help")).ok().stdout;
        assert!(help.contains("Examples:\n  mainspring"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    let help = folder.run("run --help").ok().stdout;
    for option in [
        "--on",
        "--seed",
        "--report",
        "--schedule",
        "--trace",
        "--html",
        "--record",
        "--expand",
        "--color",
        "--quiet",
    ] {
        assert!(help.contains(option), "no {option} in:\n{help}");
    }
}

#[test]
fn the_version_is_told() {
    let version = Folder::new("version").run("--version").ok().stdout;
    assert_eq!(version, format!("mainspring {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_is_refused_with_a_hint() {
    let folder = Folder::with_workload("wrong-usage");
    for (args, words) in [
        ("", &["Usage:", "Commands:"][..]),
        ("chek w.toml", &["unrecognized subcommand", "'check'"]),
        ("run", &["<FILE>"]),
        ("run w.toml --sed 1", &["--sed", "--seed"]),
        ("run w.toml --seed many", &["many", "--seed"]),
        ("run w.toml --seed -1", &["-1"]),
        ("run w.toml --on mars", &["mars", "[possible values: sim, linux, qemu]"]),
        ("run w.toml --report xml", &["xml", "text, json"]),
        ("run w.toml --color sometimes", &["sometimes", "auto, always, never"]),
        ("run w.toml --html -", &["--html", "standard output is for the report"]),
        ("run w.toml --html", &["--html", "a value is required"]),
        ("check", &["<FILE>"]),
        ("admit", &["<FILE>"]),
        ("admit w.toml --report xml", &["xml", "text, json"]),
        ("explain w.msr", &["--thread", "--miss"]),
        ("explain w.msr --thread hog", &["--at", "--between"]),
        ("explain w.msr --thread hog --at 12", &["no unit", "12ms"]),
        ("explain w.msr --thread hog --at 12parsecs", &["unknown unit", "ns, us, ms, s and m"]),
        ("explain w.msr --thread hog --at soon", &["soon", "--at"]),
        ("completions csh", &["csh", "bash"]),
    ] {
        folder.run(args).refused(words);
    }
    assert_eq!(folder.list(), ["w.toml"]);
}

#[test]
fn the_order_of_options_does_not_matter() {
    let folder = Folder::with_workload("option-order");
    let digest = |args: &str| folder.run(args).ok().json()["digest"].clone();
    let one = digest("run w.toml --seed 7 --report json --quiet");
    assert_eq!(one, digest("--quiet run --report=json --seed=7 w.toml"));
    assert_eq!(one, digest("run --report json -q w.toml --seed 7 --on sim"));
}

#[test]
fn completions_name_the_commands_and_options() {
    let folder = Folder::new("completions");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = folder.run(&format!("completions {shell}")).ok().stdout;
        for word in ["mainspring", "replay", "explain", "seed", "schedule"] {
            assert!(script.contains(word), "no {word:?} for {shell}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_path_need_not_be_text() {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::with_workload("path-not-text");
    let out = OsStr::from_bytes(b"out-\xff.html");
    let args = ["run", "w.toml", "--html"].map(OsString::from).into_iter().chain([out.to_owned()]);
    Ran::of(&mut folder.command_with(args)).ok();
    assert!(folder.path("").join(out).is_file());
}
