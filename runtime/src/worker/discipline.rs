//! In which order a worker runs its ready tasks.
//!
//! Conserved: a runtime has one discipline, and all of its workers have the same. The deterministic mode is no discipline: it
//! replaces the clock and the threads beneath work stealing or fair tenants.

use super::fair_tasks::TaskCores;
use super::tenants::TenantQueue;
use crate::runtime::Inner;

/// What a worker has of its runtime's discipline. Each variant has what no other needs.
pub(super) enum Discipline {
    /// The deque, the slot and the run queue of the worker; others steal from the deque.
    WorkStealing,
    /// The ready tasks by tenant. A tenant's share does not grow with the number of its tasks.
    FairTenants(Box<TenantQueue>),
    /// The cores of all workers. Each task is a thread of one of them.
    FairTasks(TaskCores),
}

impl Discipline {
    pub(super) fn of(rt: &Inner, worker: usize) -> Self {
        match (rt.tenant_queues.get(worker), &rt.fair_tasks) {
            (_, Some(cores)) => Self::FairTasks(TaskCores::new(cores)),
            (Some(queue), None) => Self::FairTenants(Box::new(TenantQueue::new(queue.clone()))),
            (None, None) => Self::WorkStealing,
        }
    }

    /// Whether `core/sched` chooses among the ready tasks.
    #[inline]
    pub(super) fn is_fair(&self) -> bool {
        !matches!(self, Self::WorkStealing)
    }

    #[inline]
    pub(super) fn tenants(&self) -> Option<&TenantQueue> {
        if let Self::FairTenants(tenants) = self { Some(tenants) } else { None }
    }

    #[inline]
    pub(super) fn tasks(&self) -> Option<&TaskCores> {
        if let Self::FairTasks(tasks) = self { Some(tasks) } else { None }
    }
}
