//! Where this process may make groups that a controller governs.
//!
//! In v1 that is below its own group, if the directory can be written. In v2 a group with processes can have no
//! controlled children, the root excepted. So the place is the nearest group upwards, own group included, that can be
//! written, is offered the controller, and has it enabled for its children or can enable it.

use super::{Hierarchies, Hierarchy, Version};
use nix::unistd::{AccessFlags, eaccess};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// Where groups with a controller can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupParent {
    /// The interface there.
    pub version: Version,
    /// The directory to make groups in.
    pub parent: PathBuf,
    /// The controllers that must be enabled for the children first.
    pub enable: Vec<String>,
}

/// Why no group with a controller can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// No hierarchy has the controller.
    NoController {
        /// The controller.
        controller: &'static str,
    },
    /// The place for it cannot be written.
    NotWritable {
        /// The controller.
        controller: &'static str,
        /// The directory.
        directory: PathBuf,
    },
    /// In v2, no group from the own one upwards can have children with the controller.
    NotDelegated {
        /// The controller.
        controller: &'static str,
        /// The own group.
        own: PathBuf,
    },
}

impl NoPlace {
    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::NoController { .. } => {
                "mount it (cgroup v2: `mount -t cgroup2 none /sys/fs/cgroup`), or boot a kernel that has it; in a \
                 container, ask for a writable cgroup namespace"
            }
            Self::NotWritable { .. } => {
                "run as root, or let the administrator delegate the group: `chown` its directory and cgroup.procs to you"
            }
            Self::NotDelegated { .. } => {
                "run as root, or start in a delegated group: `systemd-run --user --scope -p Delegate=yes …`"
            }
        }
    }
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoController { controller } => {
                write!(f, "no mounted cgroup hierarchy has the {controller} controller")
            }
            Self::NotWritable { controller, directory } => {
                write!(f, "no groups of the {controller} controller can be made in {}", directory.display())
            }
            Self::NotDelegated { controller, own } => write!(
                f,
                "no group from {} upwards may give its children the {controller} controller",
                own.display()
            ),
        }
    }
}

impl Hierarchies {
    /// Where groups governed by `controllers`, all of one hierarchy, can be made. A process is in one group of a
    /// hierarchy, so one place must do for all of them.
    pub(super) fn place(&self, controllers: &[&'static str]) -> Result<GroupParent, NoPlace> {
        let Some(&controller) = controllers.last() else { unreachable!("a place is asked for by name") };
        let hierarchy = self.with(controller).ok_or(NoPlace::NoController { controller })?;
        match hierarchy.version {
            Version::V1 if may_make_groups_in(&hierarchy.own) => {
                Ok(GroupParent { version: Version::V1, parent: hierarchy.own.clone(), enable: Vec::new() })
            }
            Version::V1 => Err(NoPlace::NotWritable { controller, directory: hierarchy.own.clone() }),
            Version::V2 => place_in_unified(hierarchy, controllers, controller),
        }
    }

    /// Where v2 groups can be made that follow processes without governing them.
    pub(super) fn follower(&self) -> Option<GroupParent> {
        let hierarchy = self.unified()?;
        upwards(hierarchy)
            .find(|directory| may_make_groups_in(directory) && may_have_domains(directory))
            .map(|parent| GroupParent { version: Version::V2, parent: parent.to_owned(), enable: Vec::new() })
    }
}

fn place_in_unified(
    hierarchy: &Hierarchy,
    controllers: &[&'static str],
    controller: &'static str,
) -> Result<GroupParent, NoPlace> {
    let own = hierarchy.own.clone();
    let mut refusal = NoPlace::NotWritable { controller, directory: own.clone() };
    for directory in upwards(hierarchy).filter(|directory| may_make_groups_in(directory)) {
        refusal = NoPlace::NotDelegated { controller, own: own.clone() };
        if !controllers.iter().all(|name| lists(directory, "cgroup.controllers", name)) {
            continue;
        }
        let enabled = |name: &&str| lists(directory, "cgroup.subtree_control", name);
        let enable: Vec<String> =
            controllers.iter().filter(|name| !enabled(name)).map(|name| (*name).to_owned()).collect();
        if enable.is_empty() || may_enable(directory) {
            return Ok(GroupParent { version: Version::V2, parent: directory.to_owned(), enable });
        }
    }
    Err(refusal)
}

/// Whether a group may govern its children: it has no process of its own, or is the root.
fn may_enable(directory: &Path) -> bool {
    let root = !directory.join("cgroup.type").exists();
    may_write(&directory.join("cgroup.subtree_control")) && (root || is_empty(directory))
}

/// The own group and those above it.
fn upwards(hierarchy: &Hierarchy) -> impl Iterator<Item = &Path> {
    hierarchy.own.ancestors().take_while(|directory| directory.starts_with(&hierarchy.mount))
}

fn may_make_groups_in(directory: &Path) -> bool {
    // A process is moved only with the right to write both this file, above the groups, and the new group's file.
    may_write(directory) && may_write(&directory.join("cgroup.procs"))
}

fn may_write(path: &Path) -> bool {
    eaccess(path, AccessFlags::W_OK).is_ok()
}

/// Whether a list of controllers in a group's file has `controller`.
fn lists(directory: &Path, file: &str, controller: &str) -> bool {
    let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
    text.split_whitespace().any(|name| name == controller)
}

/// Whether a group has no process of its own.
fn is_empty(directory: &Path) -> bool {
    fs::read_to_string(directory.join("cgroup.procs")).is_ok_and(|processes| processes.trim().is_empty())
}

/// Whether a group's children are ordinary groups: it is one itself, or the root.
fn may_have_domains(directory: &Path) -> bool {
    fs::read_to_string(directory.join("cgroup.type")).map_or(true, |kind| kind.trim() == "domain")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    /// A tree of plain files that looks like a v2 hierarchy.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("mainspring-host-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder for the test");
            Self(path)
        }

        fn group(&self, path: &str, files: &[(&str, &str)]) {
            let directory = self.0.join(path);
            fs::create_dir_all(&directory).expect("a group");
            for (name, text) in [("cgroup.procs", ""), ("cgroup.subtree_control", "")].iter().chain(files) {
                fs::write(directory.join(name), text).expect("a file");
            }
        }

        fn place(&self, own: &str) -> Result<GroupParent, NoPlace> {
            let hierarchy = Hierarchy {
                version: Version::V2,
                controllers: vec!["cpu".into()],
                mount: self.0.clone(),
                own: self.0.join(own),
            };
            Hierarchies(vec![hierarchy]).place(&["cpu"])
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const OFFERED: (&str, &str) = ("cgroup.controllers", "cpu memory\n");
    const DOMAIN: (&str, &str) = ("cgroup.type", "domain\n");

    #[test]
    fn a_v2_group_with_processes_leaves_the_place_to_the_group_above() {
        let tree = Tree::new("above");
        tree.group("", &[OFFERED, ("cgroup.subtree_control", "cpu\n")]);
        tree.group("slice", &[OFFERED, DOMAIN, ("cgroup.subtree_control", "cpu\n")]);
        tree.group("slice/a.scope", &[OFFERED, DOMAIN, ("cgroup.procs", "7\n")]);
        let place = tree.place("slice/a.scope").expect("a place");
        assert_eq!((place.parent, place.enable), (tree.0.join("slice"), vec![]));
    }

    #[test]
    fn a_v2_root_may_enable_a_controller_though_it_has_processes() {
        let tree = Tree::new("root");
        tree.group("", &[OFFERED, ("cgroup.procs", "1\n2\n")]);
        let place = tree.place("").expect("a place");
        assert_eq!((place.parent, place.enable), (tree.0.clone(), vec!["cpu".to_owned()]));
    }

    #[test]
    fn a_v2_tree_whose_groups_all_have_processes_gives_no_place() {
        let tree = Tree::new("none");
        tree.group("", &[OFFERED, DOMAIN, ("cgroup.procs", "1\n")]);
        tree.group("a", &[OFFERED, DOMAIN, ("cgroup.procs", "2\n")]);
        let own = tree.0.join("a");
        assert_eq!(tree.place("a"), Err(NoPlace::NotDelegated { controller: "cpu", own }));
    }

    #[test]
    fn a_controller_that_no_hierarchy_has_is_named() {
        let none = Hierarchies::default().place(&["cpuset"]).expect_err("no hierarchy");
        assert!(none.to_string().contains("cpuset controller"), "{none}");
    }
}
