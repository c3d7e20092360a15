//! The layers, as the packages' dependencies have them: mechanism and policy primitives below, application runtimes and user
//! programs above, and nothing of the kernel's within their reach.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// The packages of ours that the package in `folder` is built from, by their short names.
fn below(folder: &str) -> BTreeSet<String> {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect();
    let manifest = root.join(folder).join("Cargo.toml");
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
    // The kernel is the one machine with protected dispatch, and has no runtime, simulator or command in it.
    assert_eq!(below("kernel"), set(["abi", "sched", "ring", "schema"]));
    // User programs, the policy service among them, have the kernel's interfaces and not its scheduler.
    assert_eq!(below("user"), set(["abi", "ring", "schema"]));
    // An application runtime has a scheduler of its own, and nothing of the kernel's.
    assert_eq!(below("runtime"), set(["abi", "sched", "runtime-macros"]));
    assert!(!below("sim").contains("runtime"), "the simulator stands for the kernel, not for a runtime");
}
