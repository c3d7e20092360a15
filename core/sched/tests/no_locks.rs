//! What the scheduler decides, it decides without locks: a machine gives it exclusive access to a CPU, and nothing else is shared.

use std::path::{Path, PathBuf};

/// The sources below `folder`.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a folder can be read to its end").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

//= TICK:L6.locks
#[test]
fn no_path_of_the_core_can_wait_for_a_lock() {
    let core: PathBuf = [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect();
    for package in ["abi", "authority", "driver", "sched"] {
        let root = std::fs::read_to_string(core.join(package).join("src/lib.rs")).expect("a library");
        assert!(root.contains("#![no_std]"), "{package} can use the locks of the standard library");
        let manifest = std::fs::read_to_string(core.join(package).join("Cargo.toml")).expect("a manifest");
        let own =
            manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap_or("");
        let foreign = |line: &&str| line.contains('=') && !line.starts_with("mainspring-");
        assert_eq!(own.lines().find(foreign), None, "{package} can use the locks of others");
        let mut found = Vec::new();
        sources(&core.join(package).join("src"), &mut found);
        assert!(!found.is_empty());
        for path in found {
            let text = std::fs::read_to_string(&path).expect("it can be read");
            let code = text.split("#[cfg(test)]").next().unwrap_or("");
            for sign in ["Mutex", "RwLock", "Atomic", "OnceCell", "spin::", "extern crate std"] {
                let used =
                    code.lines().find(|line| line.contains(sign) && !line.trim_start().starts_with("//"));
                assert_eq!(used, None, "{} shares something", path.display());
            }
        }
    }
}
