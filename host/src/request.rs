//! What is asked for a program, checked before anything is made.

use crate::cpu_list;
use crate::deadline::{self, Reservation};
use crate::error::{HostError, RequestError};
use mainspring_abi::{CpuId, CpuSet, Nanos};
use nix::sched::sched_getaffinity;
use nix::unistd::Pid;

/// The shortest quota and the bounds of the period of the cgroup CPU controller.
const QUOTA_LEAST: Nanos = Nanos::from_millis(1);
const QUOTA_PERIODS: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_secs(1));
/// The shortest runtime of a deadline reservation.
const RUNTIME_LEAST: Nanos = Nanos::new(1_024);
/// A process with less cannot even start.
const MEMORY_LEAST: u64 = 1 << 20;

/// What is asked for a program and its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to call the grant.
    pub name: String,
    /// CPU time in each period, over all CPUs.
    pub budget: Nanos,
    /// The period.
    pub period: Nanos,
    /// When given, the program's first thread gets the budget from the kernel by this time after the start of each
    /// period, and its children and other threads share as much again without a promise.
    pub deadline: Option<Nanos>,
    /// The CPUs it may use, if not all.
    pub cpus: Option<CpuSet>,
    /// Whether others are to be kept off those CPUs.
    pub exclusive: bool,
    /// The most memory it may use, if bounded.
    pub memory_bytes: Option<u64>,
    /// Whether to go on without the rights to enforce it.
    pub best_effort: bool,
}

impl Request {
    /// Checks what can be known from the request alone.
    ///
    /// # Errors
    /// What makes no sense, and what would.
    pub fn check(&self, allowed: &CpuSet) -> Result<(), RequestError> {
        let (least, periods) = match self.deadline {
            Some(_) => (RUNTIME_LEAST, deadline::period_bounds()),
            None => (QUOTA_LEAST, QUOTA_PERIODS),
        };
        let &Self { budget, period, .. } = self;
        if period < periods.0 || period > periods.1 {
            return Err(RequestError::Period { period, least: periods.0, most: periods.1 });
        }
        if budget < least {
            return Err(RequestError::BudgetTooShort { budget, least });
        }
        if let Some(asked) = self.cpus
            && asked.and(allowed) != asked
        {
            return Err(RequestError::NoSuchCpus { asked: cpu_list(&asked), allowed: cpu_list(allowed) });
        }
        if self.exclusive && self.cpus.is_none_or(|asked| asked.and(allowed) == *allowed) {
            return Err(RequestError::NothingLeft { allowed: cpu_list(allowed) });
        }
        if let Some(deadline) = self.deadline {
            if deadline < budget || deadline > period {
                return Err(RequestError::Deadline { deadline, budget, period });
            }
            if self.cpus.is_some() {
                return Err(RequestError::DeadlineAndCpus);
            }
        }
        let cpus = self.cpus.as_ref().unwrap_or(allowed).len();
        if budget.get() > period.get().saturating_mul(cpus as u64) {
            return Err(RequestError::MoreThanCpus { budget, period, cpus });
        }
        match self.memory_bytes {
            Some(bytes) if bytes < MEMORY_LEAST => {
                Err(RequestError::MemoryTooSmall { bytes, least: MEMORY_LEAST })
            }
            _ => Ok(()),
        }
    }

    /// What the kernel is asked for the first thread.
    #[must_use]
    pub fn reservation(&self) -> Option<Reservation> {
        let reservation = |deadline| Reservation { runtime: self.budget, deadline, period: self.period };
        self.deadline.map(reservation)
    }

    /// The controllers that enforce it.
    #[must_use]
    pub fn controllers(&self) -> Vec<&'static str> {
        let mut controllers = vec!["cpu"];
        controllers.extend(self.cpus.is_some().then_some("cpuset"));
        controllers.extend(self.memory_bytes.is_some().then_some("memory"));
        controllers
    }
}

/// The CPUs that this process may use.
///
/// # Errors
/// If the system does not tell.
pub fn allowed_cpus() -> Result<CpuSet, HostError> {
    let told = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| HostError::Process {
        what: "asking for this process's CPUs",
        cause: errno.into(),
    })?;
    let usable = |cpu: &usize| told.is_set(*cpu).unwrap_or(false);
    Ok((0..nix::sched::CpuSet::count()).filter(usable).filter_map(|cpu| CpuId::new(cpu).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(budget_ms: u64, period_ms: u64) -> Request {
        Request {
            name: "test".into(),
            budget: Nanos::from_millis(budget_ms),
            period: Nanos::from_millis(period_ms),
            deadline: None,
            cpus: None,
            exclusive: false,
            memory_bytes: None,
            best_effort: false,
        }
    }

    fn two() -> CpuSet {
        CpuSet::first(2)
    }

    #[test]
    fn what_fits_the_kernel_and_the_cpus_is_accepted() {
        assert_eq!(request(20, 100).check(&two()), Ok(()));
        assert_eq!(request(200, 100).check(&two()), Ok(()), "all of both CPUs: admission decides that");
        let one = Request { cpus: Some(CpuSet::first(1)), ..request(100, 100) };
        assert_eq!(one.check(&two()), Ok(()));
        let due = Request { deadline: Some(Nanos::from_millis(5)), ..request(2, 10) };
        assert_eq!(due.check(&two()), Ok(()));
    }

    #[test]
    fn what_does_not_is_refused_with_what_would() {
        let refused = |request: Request| request.check(&two()).expect_err("refused");
        assert!(matches!(refused(request(0, 100)), RequestError::BudgetTooShort { .. }));
        assert!(matches!(refused(request(20, 2_000)), RequestError::Period { .. }));
        assert!(matches!(refused(request(201, 100)), RequestError::MoreThanCpus { cpus: 2, .. }));
        let one = Request { cpus: Some(CpuSet::first(1)), ..request(101, 100) };
        assert!(matches!(refused(one), RequestError::MoreThanCpus { cpus: 1, .. }));
        let absent = Request { cpus: Some(CpuSet::first(3)), ..request(20, 100) };
        assert!(matches!(refused(absent), RequestError::NoSuchCpus { .. }));
        for deadline in [Nanos::from_millis(1), Nanos::from_millis(11)] {
            let due = Request { deadline: Some(deadline), ..request(2, 10) };
            assert!(matches!(refused(due), RequestError::Deadline { .. }));
        }
        let both = Request { deadline: Some(Nanos::from_millis(5)), cpus: Some(two()), ..request(2, 10) };
        assert_eq!(refused(both), RequestError::DeadlineAndCpus);
        let little = Request { memory_bytes: Some(4096), ..request(20, 100) };
        assert!(matches!(refused(little), RequestError::MemoryTooSmall { .. }));
    }
}
