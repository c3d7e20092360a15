//! What a checker must know of a machine beforehand: what the events themselves do not tell.

use super::Bound;
use crate::file::Header;
use mainspring_abi::{LatencyClass, Nanos, Policy};
use mainspring_workload::{Faults, Workload};

/// A machine to be watched.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How many CPUs.
    pub cpus: usize,
    /// Best-effort policy.
    pub policy: Policy,
    /// Best-effort quantum.
    pub quantum: Nanos,
    /// Tick period.
    pub tick: Nanos,
    /// What best effort keeps of each CPU, in parts per million.
    pub floor_ppm: u32,
    /// The request of each thread, by index; `None` leaves it to the class. Of a recorded machine only their number counts.
    pub requests: Vec<Option<Nanos>>,
    /// Whether interrupts come when they are due.
    pub punctual: bool,
    /// Whether the events of all CPUs are in one order, so that what one did can be judged by how the others stood.
    pub one_clock: bool,
    /// What to demand of lags.
    pub bound: Bound,
    /// Whether choices must follow the exact schedule to the last digit. Only for loads on which the core does not
    /// round.
    pub strict: bool,
}

impl Setting {
    /// The setting of a run of `workload`, with no bound on lag.
    #[must_use]
    pub fn of(workload: &Workload) -> Self {
        let machine = &workload.machine;
        let requests = workload
            .threads
            .iter()
            .flat_map(|spec| std::iter::repeat_n(spec.request, spec.instances()))
            .collect();
        let Faults { late_timer_ppm, stall_ppm, .. } = workload.faults;
        Self {
            cpus: machine.cpus,
            policy: machine.policy,
            quantum: machine.quantum,
            tick: machine.tick,
            floor_ppm: machine.floor_ppm,
            requests,
            punctual: late_timer_ppm == 0 && stall_ppm == 0,
            one_clock: true,
            bound: Bound::None,
            strict: false,
        }
    }

    /// The setting of a recorded machine. Only its record is known; `requests` has the request lengths of its threads. An interrupt
    /// came when it could, and no CPU knew the exact state of another one.
    #[must_use]
    pub fn recorded(header: &Header, requests: Vec<Option<Nanos>>) -> Self {
        Self {
            cpus: header.cpus,
            policy: header.policy,
            quantum: header.quantum,
            tick: header.tick,
            floor_ppm: header.floor_ppm,
            requests,
            punctual: false,
            one_clock: false,
            bound: Bound::None,
            strict: false,
        }
    }

    /// The same, with a bound on lag.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> Self {
        Self { bound, ..self }
    }

    /// How many threads there may be.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.requests.len()
    }

    /// What thread number `index` asks for at a time while it is of `class`. A recorded machine gives the number of a thread that has
    /// ended to another, so what each has `brought` along counts there.
    #[must_use]
    pub fn request(&self, index: u32, brought: Option<Nanos>, class: LatencyClass) -> u64 {
        let quantum = self.quantum.get();
        let known = self.requests.get(index as usize).copied().flatten();
        match (if self.one_clock { known } else { brought }, class) {
            (Some(request), _) => request.get(),
            (None, LatencyClass::Interactive) => (quantum / 4).max(1),
            (None, LatencyClass::Normal | LatencyClass::Batch) => quantum,
        }
    }
}
