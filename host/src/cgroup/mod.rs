//! Control groups of both versions: which hierarchies there are, where this process stands in them, and groups of our
//! own below that place.
//!
//! A host has one v2 hierarchy, v1 hierarchies with one or more controllers each, or both. Each controller is in one
//! hierarchy at a time. A [`GroupSet`] hides the difference: one group in each hierarchy that a grant needs, all with
//! the same name and the same processes.

mod group;
mod parent;
mod usage;

pub use group::{GroupDir, GroupError, GroupSet, Limits};
pub use parent::NoPlace;
pub use usage::Usage;

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Which cgroup interface a hierarchy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// A hierarchy for some controllers only.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A mounted hierarchy, and where this process stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its interface.
    pub version: Version,
    /// Its controllers. For a v2 hierarchy, these are the controllers that its root offers.
    pub controllers: Vec<String>,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The directory of this process's group.
    pub own: PathBuf,
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// All hierarchies of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies(Vec<Hierarchy>);

impl Hierarchies {
    /// The hierarchies that this process can see.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn discover() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        Ok(Self::parse(&mounts, &groups, |mount| {
            fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default()
        }))
    }

    /// As `/proc/self/mountinfo` and `/proc/self/cgroup` say. `offered` reads a v2 root's `cgroup.controllers`.
    fn parse(mounts: &str, groups: &str, offered: impl Fn(&Path) -> String) -> Self {
        let mut found: Vec<Hierarchy> = Vec::new();
        for mount in mounts.lines().filter_map(Mount::parse) {
            let controllers = match mount.version {
                Version::V2 => offered(&mount.point).split_whitespace().map(str::to_owned).collect(),
                Version::V1 => mount.v1_controllers(),
            };
            let Some(path) = own_path(groups, mount.version, &controllers) else { continue };
            let hierarchy = Hierarchy {
                version: mount.version,
                own: mount.directory_of(path),
                mount: mount.point,
                controllers,
            };
            // A hierarchy that is mounted twice counts once.
            let known = |other: &Hierarchy| {
                other.version == hierarchy.version && other.controllers == hierarchy.controllers
            };
            if !found.iter().any(known) {
                found.push(hierarchy);
            }
        }
        Self(found)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Hierarchy> {
        self.0.iter()
    }

    /// The hierarchy that has a controller.
    #[must_use]
    pub fn with(&self, controller: &str) -> Option<&Hierarchy> {
        self.0.iter().find(|hierarchy| hierarchy.has(controller))
    }

    /// The v2 hierarchy.
    #[must_use]
    pub fn unified(&self) -> Option<&Hierarchy> {
        self.0.iter().find(|hierarchy| hierarchy.version == Version::V2)
    }
}

/// One line of `/proc/self/mountinfo` about a hierarchy.
struct Mount {
    version: Version,
    root: PathBuf,
    point: PathBuf,
    options: String,
}

impl Mount {
    /// `36 25 0:31 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct`
    fn parse(line: &str) -> Option<Self> {
        let (place, filesystem) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut filesystem = filesystem.split(' ');
        let version = match filesystem.next()? {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        let options = filesystem.nth(1).unwrap_or_default().to_owned();
        Some(Self { version, root: unescaped(root).into(), point: unescaped(point).into(), options })
    }

    /// The options of the file system are its controllers, beside a few that are none.
    fn v1_controllers(&self) -> Vec<String> {
        const OTHERS: [&str; 6] = ["rw", "ro", "noprefix", "xattr", "clone_children", "cpuset_v2_mode"];
        let controller = |option: &&str| !OTHERS.contains(option) && !option.contains('=');
        self.options.split(',').filter(controller).map(str::to_owned).collect()
    }

    /// The directory of the group `path`. A group outside of what is mounted here has none; then the mount itself
    /// stands for it.
    fn directory_of(&self, path: &str) -> PathBuf {
        let path = Path::new(path);
        let below = path.strip_prefix(&self.root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
        let outside = below.components().any(|part| part.as_os_str() == "..");
        if outside { self.point.clone() } else { self.point.join(below) }
    }
}

/// This process's group in a hierarchy, from `/proc/self/cgroup`: `4:cpu,cpuacct:/path`, or `0::/path` for v2.
fn own_path<'a>(groups: &'a str, version: Version, controllers: &[String]) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let same = match version {
            Version::V2 => number == "0" && names.is_empty(),
            Version::V1 => names.split(',').any(|name| controllers.iter().any(|known| known == name)),
        };
        same.then_some(path)
    })
}

/// Text of mountinfo without its octal escapes.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
24 1 0:22 / /proc rw,relatime - proc proc rw
30 24 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn a_hybrid_host_has_its_controllers_in_v1_and_a_v2_hierarchy_beside_them() {
        let groups = "3:cpu,cpuacct:/\n2:memory:/jobs/7\n1:name=systemd:/\n0::/user\n";
        let found = Hierarchies::parse(HYBRID, groups, |_| "hugetlb\n".into());
        let cpu = found.with("cpu").expect("a cpu controller");
        assert_eq!((cpu.version, cpu.own.as_path()), (Version::V1, Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(found.with("cpuacct"), found.with("cpu"));
        assert_eq!(
            found.with("memory").expect("memory").own,
            Path::new("/sys/fs/cgroup/memory/jobs/7"),
            "the group of this process"
        );
        assert_eq!(found.with("cpuset"), None);
        let unified = found.unified().expect("v2");
        assert_eq!(unified.own, Path::new("/sys/fs/cgroup/unified/user"));
        assert_eq!(unified.controllers, ["hugetlb"]);
    }

    #[test]
    fn a_unified_host_has_everything_in_one() {
        let mounts = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = Hierarchies::parse(mounts, "0::/user.slice/a.scope\n", |_| "cpuset cpu memory".into());
        for controller in ["cpu", "cpuset", "memory"] {
            let hierarchy = found.with(controller).expect("a controller");
            assert_eq!(hierarchy.own, Path::new("/sys/fs/cgroup/user.slice/a.scope"));
        }
    }

    #[test]
    fn a_container_sees_its_part_of_a_hierarchy_only() {
        let mounts = "9 1 0:27 /docker/77 /sys/fs/cgroup/my\\040cpu rw - cgroup cgroup rw,cpu\n";
        let own = |groups: &str| {
            let found = Hierarchies::parse(mounts, groups, |_| String::new());
            found.with("cpu").expect("cpu").own.clone()
        };
        assert_eq!(own("4:cpu:/docker/77/job\n"), Path::new("/sys/fs/cgroup/my cpu/job"));
        assert_eq!(own("4:cpu:/docker/77\n"), Path::new("/sys/fs/cgroup/my cpu"));
        assert_eq!(own("4:cpu:/../other\n"), Path::new("/sys/fs/cgroup/my cpu"), "outside of the namespace");
    }
}
