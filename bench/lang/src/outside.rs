//! What other programs say: the same loops in Go and in WebAssembly, and the instructions that valgrind counts.

use std::path::PathBuf;
use std::process::Command;

/// A loop as another program ran it.
pub struct Outside {
    /// What ran it.
    pub name: String,
    /// The least seconds of a round.
    pub seconds: f64,
}

/// What the program that `variable` names says of a loop: a line for each variant, with its name, its result and its seconds. Nothing if there
/// is no such program.
pub fn peers(variable: &str, name: &str, times: i64, rounds: usize, wanted: i64) -> Vec<Outside> {
    let Some(program) = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from) else {
        return Vec::new();
    };
    let output = Command::new(&program).args([name, &times.to_string(), &rounds.to_string()]).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let value: i64 = words.next()?.parse().ok()?;
        assert_eq!(value, wanted, "{name}: another result than Rust's");
        Some(Outside { name, seconds: words.next()?.parse().ok()? })
    };
    text.lines().filter_map(line).collect()
}

/// The instructions that one more turn of a variant of a loop takes, by valgrind. `None` if there is no valgrind.
pub fn instructions(name: &str, variant: &str) -> Option<u64> {
    let count = |times: &str| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            // Code that polls goes on after a fault, and needs all of its registers as they were.
            .arg("--vex-iropt-register-updates=allregs-at-mem-access")
            .arg(std::env::current_exe().ok()?)
            .args(["only", name, variant, times])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name} {variant} under valgrind: {text}");
        let line = text.lines().find(|line| line.contains("Collected"))?;
        line.split(':').nth(1)?.trim().parse::<u64>().ok()
    };
    Some(count("9")?.checked_sub(count("1")?)? / 8)
}
