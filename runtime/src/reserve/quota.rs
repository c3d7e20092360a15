//! A cgroup with a quota for the threads of the workers: v1, or a threaded group of v2.
//!
//! Conserved: the group exists exactly as long as the value, and has threads of this process only. A group whose process is gone
//! is removed by the next that is made beside it.

use super::NotReserved;
use crate::os_threads::OsThreads;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, io};

const PREFIX: &str = "mainspring-workers-";

/// Runtimes of this process that have made one.
static MADE: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    parent: PathBuf,
    /// The file by which threads come to a group.
    threads: &'static str,
    tids: Vec<libc::pid_t>,
}

/// Where this process is in the hierarchy that has the cpu controller.
struct Own {
    directory: PathBuf,
    unified: bool,
}

impl Group {
    /// Puts all workers into a group of their own, or none.
    pub(super) fn make(threads: &OsThreads, budget: Duration, period: Duration) -> Result<Self, NotReserved> {
        let own = own().ok_or(NotReserved::NoController)?;
        remove_dead(&own.directory);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = own.directory.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let refused = |_: io::Error| NotReserved::GroupNotWritable(own.directory.clone());
        fs::create_dir(&path).map_err(refused)?;
        // From here on it is removed on every way out.
        let file = if own.unified { "cgroup.threads" } else { "tasks" };
        let mut group = Self { path, parent: own.directory.clone(), threads: file, tids: Vec::new() };
        group.limit(&own, budget, period).map_err(refused)?;
        for (_, tid) in threads.tids() {
            fs::write(group.path.join(file), tid.to_string()).map_err(refused)?;
            group.tids.push(tid);
        }
        Ok(group)
    }

    fn limit(&self, own: &Own, budget: Duration, period: Duration) -> io::Result<()> {
        let write = |file: &str, value: String| fs::write(self.path.join(file), value);
        let (budget, period) = (budget.as_micros(), period.as_micros());
        if own.unified {
            write("cgroup.type", "threaded".to_owned())?;
            // The controller counts threads, so a group that has processes may give it to a threaded one.
            fs::write(own.directory.join("cgroup.subtree_control"), "+cpu")?;
            write("cpu.max", format!("{budget} {period}"))?;
            return write("cpu.weight", "10000".to_owned());
        }
        write("cpu.cfs_period_us", period.to_string())?;
        write("cpu.cfs_quota_us", budget.to_string())?;
        write("cpu.shares", "262144".to_owned())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for tid in &self.tids {
            // One that has ended is in no group.
            let _left = fs::write(self.parent.join(self.threads), tid.to_string());
        }
        // A thread that has just ended leaves its group a little later.
        for _ in 0..1000 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return,
            }
        }
    }
}

/// Removes the groups of processes that are gone.
fn remove_dead(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // One that still has threads stays: its number is used by another process again.
            let _removed = fs::remove_dir(entry.path());
        }
    }
}

/// The own group in the hierarchy with the cpu controller: v1's, or v2's if the controller is there.
fn own() -> Option<Own> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let group = |is: &dyn Fn(&str, &str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            is(number, controllers).then(|| path.to_owned())
        })
    };
    // The root of the mount within the hierarchy, and where it is mounted.
    let mount = |is: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut kind = kind.split_whitespace();
            let (system, options) = (kind.next()?, kind.nth(1)?);
            let mut mount = mount.split_whitespace().skip(3);
            let (root, point) = (mount.next()?, mount.next()?);
            is(system, options).then(|| (root.to_owned(), point.to_owned()))
        })
    };
    let below = |path: &str, (root, point): (String, String)| {
        let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
        PathBuf::from(point).join(inside.trim_start_matches('/'))
    };
    let has = |list: &str| list.split(',').any(|name| name == "cpu");
    if let Some(path) = group(&|_, controllers| has(controllers)) {
        let mounted = mount(&|system, options| system == "cgroup" && has(options))?;
        return Some(Own { directory: below(&path, mounted), unified: false });
    }
    let path = group(&|number, _| number == "0")?;
    let directory = below(&path, mount(&|system, _| system == "cgroup2")?);
    let controllers = fs::read_to_string(directory.join("cgroup.controllers")).ok()?;
    controllers.split_whitespace().any(|name| name == "cpu").then_some(Own { directory, unified: true })
}
