//! The layers, as the packages' dependencies have them: mechanism and policy primitives below, application runtimes and user
//! programs above, and nothing of the kernel's within their reach.

use mainspring_conformance::project;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The packages of ours that the package in `folder` is built from, by their short names.
fn below(folder: &str) -> BTreeSet<String> {
    let manifest = project().join(folder).join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let manifest: toml::Table = text.parse().unwrap_or_else(|error| panic!("{folder}: {error}"));
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    let names = dependencies.into_iter().flat_map(|table| table.keys());
    names.filter_map(|name| name.strip_prefix("mainspring-")).map(str::to_owned).collect()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

//= EVO:layers
#[test]
fn each_layer_is_built_from_those_below_it_and_none_above() {
    // Mechanism and policy primitives know nothing of any machine.
    assert_eq!(below("core/abi"), set([]));
    assert_eq!(below("core/sched"), set(["abi"]));
    assert_eq!(below("core/ring"), set(["abi"]));
    assert_eq!(below("core/program"), set(["abi", "random"]));
    assert_eq!(below("core/authority"), set(["abi", "sched"]));
    assert_eq!(below("core/driver"), set(["abi", "authority", "ring", "sched"]));
    // The kernel is the one machine with protected dispatch, and has no runtime, simulator or command in it.
    assert_eq!(
        below("kernel"),
        set(["abi", "authority", "driver", "kernel-core", "sched", "ring", "schema"])
    );
    // User programs, the policy service among them, have the kernel's interfaces and not its scheduler. The player of workloads has
    // threads that poll rings, by the rules of the driver's poller, which schedules nothing.
    assert_eq!(below("user"), set(["abi", "driver", "program", "random", "ring", "schema"]));
    let mut programs = Vec::new();
    files(&project().join("user/src"), &mut programs);
    for program in programs {
        let text = std::fs::read_to_string(&program).expect("sources are text");
        let named = text.matches("mainspring_driver").count();
        let of_poller = text.matches("mainspring_driver::sqpoll::").count();
        let may = if program.to_string_lossy().contains("/bin/workload/polled") { of_poller } else { 0 };
        assert_eq!(named, may, "{} uses the driver", program.display());
    }
    // An application runtime has a scheduler of its own, and nothing of the kernel's.
    assert_eq!(below("runtime"), set(["abi", "authority", "driver", "sched", "runtime-macros"]));
    assert!(!below("sim").contains("runtime"), "the simulator stands for the kernel, not for a runtime");
}

/// Every file below `folder` that is not built.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a folder can be read to its end").path();
        if !path.is_dir() {
            found.push(path);
        } else if !path.ends_with("target") {
            files(&path, found);
        }
    }
}

/// Code that comes from elsewhere comes with the names of those it belongs to, and most of what schedules elsewhere is in C.
//= EVO:nongoal.imported-code
#[test]
fn no_source_of_another_scheduler_is_in_core_or_kernel() {
    let root = project();
    let mut found = Vec::new();
    for folder in ["core", "kernel/src", "runtime", "sim"] {
        files(&root.join(folder), &mut found);
    }
    assert!(found.len() > 200, "only {} files have been looked at", found.len());
    for path in found {
        let name = path.display();
        let ours =
            ["rs", "toml", "md"].iter().any(|kind| path.extension().is_some_and(|found| found == *kind));
        let header = path.ends_with("core/ring/include/mainspring_ring.h");
        let suppressions = path.extension().is_some_and(|kind| kind == "supp");
        let in_regressions = path.parent().is_some_and(|folder| folder.ends_with("proptest-regressions"));
        let regressions =
            in_regressions || path.extension().is_some_and(|kind| kind == "proptest-regressions");
        assert!(ours || header || suppressions || regressions, "{name}: what is it?");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let text = text.to_lowercase();
        for sign in
            ["copyright", "spdx-", "gnu general public", "redistribution and use", "all rights reserved"]
        {
            assert!(!text.contains(sign), "{name} says {sign:?}: whose is it?");
        }
    }
}
