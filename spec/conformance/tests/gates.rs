//! The base gate, as `make -n` has it: formats, tests and boots by one command each, and all of them by one.

use std::path::PathBuf;
use std::process::Command;

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect()
}

/// What `make TARGET` would run.
fn commands(target: &str) -> String {
    let mut make = Command::new("make");
    // What an outer make says is not for this one.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    let output = make.args(["-n", target]).current_dir(root()).output().expect("make can be run");
    assert!(output.status.success(), "make -n {target}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The words of a variable of the Makefile.
fn words(variable: &str) -> Vec<String> {
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("the Makefile is there");
    let begin = format!("{variable} := ");
    let value = makefile.lines().find_map(|line| line.strip_prefix(&begin)).expect("the variable is set");
    value.split_whitespace().map(str::to_owned).collect()
}

//= TICK:verify.gates
#[test]
fn each_part_of_the_base_gate_is_one_command_and_make_test_runs_them_all() {
    let alone = [
        ("fmt-check", "fmt --all --check"),
        ("unit", "test --locked --workspace"),
        ("run-smoke", " smoke"),
        ("run-spawn", " spawn"),
    ];
    for (target, command) in alone {
        assert!(commands(target).contains(command), "make {target} does not run `{command}`");
    }
    let phases = [words("LINT_PHASES"), words("TEST_PHASES")].concat();
    for phase in ["fmt-check", "unit", "kernel-proofs"] {
        assert!(phases.iter().any(|one| one == phase), "make test leaves out {phase}");
    }
    let proofs = commands("kernel-proofs");
    assert!(proofs.contains(" smoke ") && proofs.contains(" spawn "), "make test boots neither");
    // The tests of libraries, interfaces and workload files are the workspace's.
    let left_out = words("NOT_TESTED");
    assert!(left_out.iter().all(|package| package.starts_with("mainspring-bench-")), "{left_out:?}");
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace is there");
    for member in ["core/abi", "core/sched", "core/driver", "core/ring", "schema", "cli", "workload"] {
        assert!(workspace.contains(&format!("\"{member}\"")), "{member} is not tested");
    }
}
