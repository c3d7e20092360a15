//! The gates that every change passes, whichever part it is of: what `make` runs, as `make -n` tells it.

use mainspring_conformance::{make_runs, make_variable, project};

//= TICK:verify.gates
#[test]
fn format_library_interfaces_and_smokes_are_one_command_each_and_one_together() {
    for (target, command) in [
        ("fmt-check", "fmt --all --check"),
        ("unit", "test --locked --workspace"),
        ("run-smoke", " smoke"),
        ("run-spawn", " spawn"),
    ] {
        assert!(make_runs(target).contains(command), "make {target} does not run `{command}`");
    }
    let phases = [make_variable("LINT_PHASES"), make_variable("TEST_PHASES")].concat();
    for phase in ["fmt-check", "unit", "kernel-proofs"] {
        assert!(phases.iter().any(|one| one == phase), "make test leaves out {phase}: {phases:?}");
    }
    let proofs = make_runs("kernel-proofs");
    for name in ["smoke", "spawn"] {
        assert!(proofs.contains(&format!(" {name} ")), "make kernel-proofs leaves out {name}");
    }
    // The tests of the interfaces, of workload files and of the command are the workspace's.
    let workspace = std::fs::read_to_string(project().join("Cargo.toml")).expect("the workspace");
    let unit = make_runs("unit");
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
    let proofs = make_runs("kernel-proofs");
    for list in ["KERNEL_PROOFS", "CHECKED_PROOFS", "MEASURED_PROOFS"] {
        for name in make_variable(list) {
            assert!(proofs.contains(&format!(" {name}")), "make kernel-proofs leaves out {name} of {list}");
        }
    }
    assert!(proofs.contains("--checked "), "nothing runs on the kernel that checks itself");
    assert!(proofs.contains("--measured "), "nothing runs on the kernel that measures");
    for name in ["smoke", "spawn", "thread-scale", "measure", "smp"] {
        assert!(proofs.contains(&format!(" {name} ")), "make kernel-proofs leaves out {name}");
    }
    assert!(proofs.contains("--logs "), "raw output is not kept");
    let scale = make_runs("bench-scale");
    assert!(scale.contains("--logs ") && scale.contains("--times 5"), "one run is no evidence: {scale}");
}
