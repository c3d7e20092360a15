//! Processes by more than their number, which the kernel gives again.

use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};
use std::{fs, io};

/// The environment variable that every process of a grant inherits: the grant's id.
pub const GRANT_VARIABLE: &str = "MAINSPRING_GRANT";

/// A process that no later one with the same number can be taken for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: i32,
    /// When it was started, in the kernel's ticks since boot.
    pub started_ticks: u64,
    /// The boot that the ticks count from.
    pub boot: String,
}

impl Identity {
    /// The process with this number now.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(pid: i32) -> io::Result<Self> {
        let stat = Stat::of(pid)?;
        Ok(Self { pid, started_ticks: stat.started_ticks, boot: boot_id() })
    }

    /// This process.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn current() -> io::Result<Self> {
        Self::of(nix::unistd::getpid().as_raw())
    }

    /// Whether it still runs. A zombie does not: it has ended, and only its parent has not asked yet.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let same = |stat: Stat| stat.started_ticks == self.started_ticks && !matches!(stat.state, 'Z' | 'X');
        self.boot == boot_id() && Stat::of(self.pid).is_ok_and(same)
    }
}

/// The CPU time that a process and its reaped children have used, in nanoseconds, as finely as the kernel tells it: in
/// hundredths of a second on most hosts.
#[must_use]
pub fn used_ns(pid: i32) -> Option<u64> {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    let ticks = Stat::of(pid).ok()?.used_ticks;
    Some(ticks.saturating_mul(1_000_000_000 / u64::try_from(per_second).ok().filter(|n| *n > 0)?))
}

/// The part of `/proc/PID/stat` that is used here.
struct Stat {
    state: char,
    /// In user and kernel mode, by itself and by its reaped children.
    used_ticks: u64,
    started_ticks: u64,
}

impl Stat {
    fn of(pid: i32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no process status"))
    }

    /// `7 (name) S …`: a name may hold blanks and parentheses, so the fields are counted from its end.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let state = fields.first()?.chars().next()?;
        let used_ticks = fields.get(11..15)?.iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        let started_ticks = fields.get(19)?.parse().ok()?;
        Some(Self { state, used_ticks, started_ticks })
    }
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The processes that inherited a grant's id in their environment: the tree where no group tracks it. A program that
/// clears its environment leaves it.
#[must_use]
pub fn with_grant(id: &str) -> Vec<i32> {
    let wanted = format!("{GRANT_VARIABLE}={id}");
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let inherited = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let own = nix::unistd::getpid().as_raw();
    pids.filter(|pid| *pid != own).filter(inherited).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_with_another_start_is_not_it() {
        let this = Identity::current().expect("this process");
        assert!(this.is_alive());
        assert!(!Identity { started_ticks: this.started_ticks + 1, ..this.clone() }.is_alive());
        assert!(!Identity { boot: "another".into(), ..this }.is_alive());
    }

    #[test]
    fn a_process_that_ended_is_not_alive_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let Ok(identity) = Identity::of(child.id() as i32) else { panic!("a child that nobody reaped") };
        while identity.is_alive() {
            std::thread::yield_now();
        }
        child.wait().expect("reaped");
        assert!(!identity.is_alive());
    }

    #[test]
    fn a_name_cannot_pretend_to_be_other_fields() {
        let text = "7 (a) Z 1 (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        let stat = Stat::parse(text).expect("a status");
        assert_eq!((stat.state, stat.used_ticks, stat.started_ticks), ('S', 5 + 6 + 7 + 8, 98765));
    }
}
