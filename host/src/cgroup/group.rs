//! The groups of one grant: planned, made, limited, entered, emptied and removed.
//!
//! A plan names every directory before the first is made. It is written to the registry in between, so a crash at any
//! point leaves nothing that the registry does not know. Removing may be done twice.

use super::{Hierarchies, NoPlace, Version};
use mainspring_abi::{CpuSet, Nanos};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// What the name of each of our groups begins with.
const PREFIX: &str = "mainspring-";
/// How long a group that was emptied may take to go.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// A group in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDir {
    /// The interface.
    pub version: Version,
    /// The group's directory.
    pub directory: PathBuf,
    /// The controllers that govern it for us.
    pub controllers: Vec<String>,
    /// The controllers that were enabled above it for that, and are to be disabled with the last group there.
    pub enabled: Vec<String>,
}

impl GroupDir {
    fn governs(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    fn parent(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    fn write(&self, file: &str, text: impl AsRef<str>) -> io::Result<()> {
        write(&self.directory.join(file), text.as_ref())
    }
}

/// What groups are to enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CPU time in each period, over all CPUs.
    pub budget: Nanos,
    /// The period.
    pub period: Nanos,
    /// Whether the group is to win against others until its budget is used.
    pub claim: bool,
    /// The CPUs, if not all.
    pub cpus: Option<CpuSet>,
    /// Memory, if bounded.
    pub memory_bytes: Option<u64>,
}

/// One group in each hierarchy that a grant needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSet(Vec<GroupDir>);

impl GroupSet {
    /// Groups for the grant `id` with as many of `controllers` as this process may use, and those it may not use.
    /// Nothing is made yet.
    #[must_use]
    pub fn plan(
        hierarchies: &Hierarchies,
        controllers: &[&'static str],
        id: &str,
    ) -> (Self, Vec<(&'static str, NoPlace)>) {
        let mut groups = Self::default();
        let mut missing = Vec::new();
        let name = format!("{PREFIX}{id}");
        let mut accepted: Vec<&'static str> = Vec::new();
        for &controller in controllers {
            let home = hierarchies.with(controller);
            let mut wanted: Vec<&'static str> =
                accepted.iter().copied().filter(|other| hierarchies.with(other) == home).collect();
            wanted.push(controller);
            match hierarchies.place(&wanted) {
                Err(no_place) => missing.push((controller, no_place)),
                Ok(place) => {
                    accepted.push(controller);
                    groups.0.retain(|group| !wanted.iter().any(|name| group.governs(name)));
                    groups.0.push(GroupDir {
                        version: place.version,
                        directory: place.parent.join(&name),
                        controllers: wanted.iter().map(|name| (*name).to_owned()).collect(),
                        enabled: place.enable,
                    });
                }
            }
        }
        let unified = groups.0.iter().any(|group| group.version == Version::V2);
        if let Some(place) = hierarchies.follower().filter(|_| !unified) {
            groups.0.push(GroupDir {
                version: Version::V2,
                directory: place.parent.join(&name),
                controllers: Vec::new(),
                enabled: Vec::new(),
            });
        }
        (groups, missing)
    }

    /// Each group.
    pub fn iter(&self) -> impl Iterator<Item = &GroupDir> {
        self.0.iter()
    }

    /// Whether the groups know every process of the grant.
    #[must_use]
    pub fn tracks(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether a controller governs the processes.
    #[must_use]
    pub fn governs(&self, controller: &str) -> bool {
        self.0.iter().any(|group| group.governs(controller))
    }

    /// Makes the groups, empty and limited.
    ///
    /// # Errors
    /// What could not be done, with the file concerned. The caller removes what was made.
    pub fn create(&self, limits: &Limits) -> Result<(), GroupError> {
        for group in &self.0 {
            if !group.enabled.is_empty() {
                let names: Vec<String> = group.enabled.iter().map(|name| format!("+{name}")).collect();
                let file = group.parent().join("cgroup.subtree_control");
                write(&file, &names.join(" ")).map_err(|cause| GroupError { path: file, cause })?;
            }
            fs::create_dir(&group.directory)
                .map_err(|cause| GroupError { path: group.directory.clone(), cause })?;
            for (file, text) in settings(group, limits) {
                group
                    .write(file, text)
                    .map_err(|cause| GroupError { path: group.directory.join(file), cause })?;
            }
        }
        Ok(())
    }

    /// Keeps others off the CPUs of the group, as far as its version can: in v2 the CPUs leave the group above, in v1 no group
    /// beside it can have them.
    ///
    /// # Errors
    /// What could not be done, with the file concerned.
    pub fn keep_others_off(&self) -> Result<(), GroupError> {
        for group in self.0.iter().filter(|group| group.governs("cpuset")) {
            let (file, value) = match group.version {
                Version::V1 => ("cpuset.cpu_exclusive", "1"),
                Version::V2 => ("cpuset.cpus.partition", "root"),
            };
            let path = group.directory.join(file);
            let failed = |cause| GroupError { path: path.clone(), cause };
            group.write(file, value).map_err(failed)?;
            // In v2 a partition that cannot be is written, and says so when it is read.
            let told = fs::read_to_string(&path).map_err(failed)?;
            if told.trim() != value {
                return Err(failed(io::Error::other(told.trim().to_owned())));
            }
        }
        Ok(())
    }

    /// Moves a process in. Its later children are born here.
    ///
    /// # Errors
    /// What could not be done, with the file concerned.
    pub fn enter(&self, pid: i32) -> Result<(), GroupError> {
        self.0.iter().try_for_each(|group| {
            group
                .write("cgroup.procs", pid.to_string())
                .map_err(|cause| GroupError { path: group.directory.join("cgroup.procs"), cause })
        })
    }

    /// The processes, by number.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        let mut found = Vec::new();
        self.0.iter().for_each(|group| collect_processes(&group.directory, &mut found));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Ends v2 groups as a whole, forks that are under way included. Where that cannot be done, nothing happens.
    pub(crate) fn kill_at_once(&self) {
        for group in self.0.iter().filter(|group| group.version == Version::V2) {
            let _ = group.write("cgroup.kill", "1");
        }
    }

    /// Removes the groups, which must be empty. What is gone already is no error.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn remove(&self) -> Result<(), GroupError> {
        self.0.iter().try_for_each(|group| {
            remove_group(&group.directory)
                .map_err(|cause| GroupError { path: group.directory.clone(), cause })
        })
    }

    /// Whether every directory has the name of the grant `id`. A file of the registry that says otherwise is not ours,
    /// and nothing that it names may be emptied or removed.
    #[must_use]
    pub fn belongs_to(&self, id: &str) -> bool {
        let name = format!("{PREFIX}{id}");
        self.0.iter().all(|group| group.directory.file_name().is_some_and(|own| own == name.as_str()))
    }

    /// Disables what was enabled above the groups. `others` are the groups of all other grants; what was enabled
    /// above one of those stays, and is noted there.
    pub fn disable_above(&self, others: &mut [&mut Self]) {
        for group in self.0.iter().filter(|group| !group.enabled.is_empty()) {
            let neighbour = others
                .iter_mut()
                .flat_map(|other| other.0.iter_mut())
                .find(|other| other.version == group.version && other.parent() == group.parent());
            match neighbour {
                Some(heir) => {
                    for name in &group.enabled {
                        if !heir.enabled.contains(name) {
                            heir.enabled.push(name.clone());
                        }
                    }
                }
                None => {
                    let names: Vec<String> = group.enabled.iter().map(|name| format!("-{name}")).collect();
                    // Another process may have begun to use the controller there; then it stays.
                    let _ = write(&group.parent().join("cgroup.subtree_control"), &names.join(" "));
                }
            }
        }
    }
}

/// What went wrong with a file of a group.
#[derive(Debug)]
pub struct GroupError {
    /// The file or directory.
    pub path: PathBuf,
    /// What the system said.
    pub cause: io::Error,
}

/// The files to write in a new group, in this order.
fn settings(group: &GroupDir, limits: &Limits) -> Vec<(&'static str, String)> {
    let (quota_us, period_us) = (limits.budget.get() / 1_000, limits.period.get() / 1_000);
    let mut files = Vec::new();
    let v1 = group.version == Version::V1;
    if group.governs("cpu") {
        if v1 {
            files.push(("cpu.cfs_period_us", period_us.to_string()));
            files.push(("cpu.cfs_quota_us", quota_us.to_string()));
        } else {
            files.push(("cpu.max", format!("{quota_us} {period_us}")));
        }
        // A quota is only a limit. The greatest weight makes it a claim: others wait until it is used, and no longer.
        match (limits.claim, v1) {
            (true, true) => files.push(("cpu.shares", "262144".to_owned())),
            (true, false) => files.push(("cpu.weight", "10000".to_owned())),
            (false, _) => {}
        }
    }
    if group.governs("cpuset") {
        let cpus = limits.cpus.as_ref().map(crate::cpu_list::cpu_list).unwrap_or_default();
        if v1 {
            // A new v1 cpuset has no memory nodes, and no process can enter it.
            let nodes = fs::read_to_string(group.parent().join("cpuset.mems")).unwrap_or_default();
            files.push(("cpuset.mems", nodes.trim().to_owned()));
        }
        files.push(("cpuset.cpus", cpus));
    }
    if let Some(bytes) = limits.memory_bytes.filter(|_| group.governs("memory")) {
        files.push((if v1 { "memory.limit_in_bytes" } else { "memory.max" }, bytes.to_string()));
    }
    files
}

/// Writes a control file, which exists: a file that a group lacks must not be made on another file system.
fn write(path: &Path, text: &str) -> io::Result<()> {
    use io::Write;
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// The processes of a group and of the groups that a program made below it.
fn collect_processes(directory: &Path, found: &mut Vec<i32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()).filter(|pid| *pid > 1));
    subgroups(directory).iter().for_each(|below| collect_processes(below, found));
}

fn subgroups(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let directories =
        entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

fn remove_group(directory: &Path) -> io::Result<()> {
    for below in subgroups(directory) {
        remove_group(&below)?;
    }
    let begun = Instant::now();
    loop {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // The last process has ended, but the kernel has not finished with it.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && begun.elapsed() < PATIENCE => {
                thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_abi::CpuSet;

    fn group(version: Version, controllers: &[&str]) -> GroupDir {
        GroupDir {
            version,
            directory: "/nowhere/mainspring-1".into(),
            controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
            enabled: Vec::new(),
        }
    }

    const LIMITS: Limits = Limits {
        budget: Nanos::from_millis(20),
        period: Nanos::from_millis(100),
        claim: true,
        cpus: None,
        memory_bytes: Some(1 << 20),
    };

    #[test]
    fn the_same_limits_are_written_as_each_version_wants_them() {
        let v1 = settings(&group(Version::V1, &["cpu"]), &LIMITS);
        let quota = [("cpu.cfs_period_us", "100000".to_owned()), ("cpu.cfs_quota_us", "20000".to_owned())];
        assert_eq!(v1[..2], quota, "the period first, or the kernel compares the quota with the old one");
        let v2 = settings(&group(Version::V2, &["cpu", "memory"]), &LIMITS);
        assert_eq!(v2[0], ("cpu.max", "20000 100000".to_owned()));
        assert_eq!(v2[2], ("memory.max", "1048576".to_owned()));
        let cpus = Limits { cpus: Some(CpuSet::first(2)), ..LIMITS };
        let v2 = settings(&group(Version::V2, &["cpuset"]), &cpus);
        assert_eq!(v2, [("cpuset.cpus", "0-1".to_owned())]);
    }

    #[test]
    fn groups_are_removed_with_what_a_program_made_below_them() {
        let path = std::env::temp_dir().join(format!("mainspring-host-{}-remove", std::process::id()));
        let mut groups = GroupSet(vec![group(Version::V1, &["cpu"])]);
        groups.0[0].directory = path.join("mainspring-7");
        assert!(groups.belongs_to("7") && !groups.belongs_to("8"));
        fs::create_dir_all(path.join("mainspring-7/below")).expect("a folder");
        groups.remove().expect("removed");
        assert!(!path.join("mainspring-7").exists());
        groups.remove().expect("removing twice is no error");
        fs::remove_dir_all(&path).expect("cleaned");
    }

    #[test]
    fn what_was_enabled_for_one_grant_stays_while_another_uses_it() {
        let mut first = GroupSet(vec![group(Version::V2, &["cpu"])]);
        first.0[0].enabled = vec!["cpu".into()];
        let mut second = GroupSet(vec![group(Version::V2, &["cpu"])]);
        second.0[0].directory = "/nowhere/mainspring-2".into();
        first.disable_above(&mut [&mut second]);
        assert_eq!(second.0[0].enabled, ["cpu"]);
    }
}
