//! The gates that every change passes, whichever part it is of: what `make` runs, as `make -n` tells it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What `make TARGET` would run.
fn commands(target: &str) -> String {
    let mut make = Command::new("make");
    // What an outer make says is not for this one.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    let output = make.args(["-n", target]).current_dir(project()).output().expect("make can be run");
    assert!(output.status.success(), "make -n {target}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The words of a variable of the Makefile.
fn words(variable: &str) -> Vec<String> {
    let makefile = std::fs::read_to_string(project().join("Makefile")).expect("the Makefile is there");
    let begin = format!("{variable} := ");
    let value = makefile.lines().find_map(|line| line.strip_prefix(&begin)).expect("the variable is set");
    value.split_whitespace().map(str::to_owned).collect()
}

//= TICK:verify.gates
#[test]
fn format_library_interfaces_and_smokes_are_one_command_each_and_one_together() {
    for (target, command) in [
        ("fmt-check", "fmt --all --check"),
        ("unit", "test --locked --workspace"),
        ("run-smoke", " smoke"),
        ("run-spawn", " spawn"),
    ] {
        assert!(commands(target).contains(command), "make {target} does not run `{command}`");
    }
    let phases = [words("LINT_PHASES"), words("TEST_PHASES")].concat();
    for phase in ["fmt-check", "unit", "kernel-proofs"] {
        assert!(phases.iter().any(|one| one == phase), "make test leaves out {phase}: {phases:?}");
    }
    let proofs = commands("kernel-proofs");
    for name in ["smoke", "spawn"] {
        assert!(proofs.contains(&format!(" {name} ")), "make kernel-proofs leaves out {name}");
    }
    // The tests of the interfaces, of workload files and of the command are the workspace's.
    let workspace = std::fs::read_to_string(project().join("Cargo.toml")).expect("the workspace");
    let unit = commands("unit");
    for member in ["core/abi", "core/sched", "core/ring", "schema", "sim", "cli", "workload"] {
        assert!(workspace.contains(&format!("\"{member}\"")), "{member} is no member of the workspace");
        let package = std::fs::read_to_string(project().join(member).join("Cargo.toml")).expect("a package");
        let package: toml::Table = package.parse().expect("TOML");
        let name = package["package"]["name"].as_str().expect("a name");
        assert!(!unit.contains(&format!("--exclude {name} ")), "make unit leaves out {name}");
    }
}

//= EVO:gate.percpu
#[test]
fn a_change_of_the_queues_passes_every_smoke_and_a_claim_of_scale_keeps_its_logs() {
    let proofs = commands("kernel-proofs");
    for name in ["smoke", "spawn", "thread-scale", "measure", "smp"] {
        assert!(proofs.contains(&format!(" {name} ")), "make kernel-proofs leaves out {name}");
    }
    assert!(proofs.contains("--logs "), "raw output is not kept");
    let scale = commands("bench-scale");
    assert!(scale.contains("--logs ") && scale.contains("--times 5"), "one run is no evidence: {scale}");
}
