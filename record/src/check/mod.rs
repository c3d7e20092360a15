//! Checkers: what must hold after every event, seen from outside.
//!
//! They share no code with the core. A [`MachineModel`] is kept from events and outcomes alone; the checkers
//! compare it, and their own arithmetic, with what the CPU says of itself:
//!
//! * [`ownership`]: a live thread has one owner, and a stale seat no effect.
//! * [`account`]: time is conserved to the nanosecond, and charged to the thread that used it.
//! * [`contexts`]: CPU time that was granted is had by one thread at a time, to the nanosecond and in the right order.
//! * [`order`]: the queue stands in the order of urgency, then of its tags.
//! * [`timers`]: a timer is always armed for what is due, and nothing due is missed.
//! * [`fairness`]: an exact fluid schedule ([`fluid`]) runs beside the core; lags agree with it, stay within their
//!   bounds, and every choice is one that the exact schedule allows (`reference`).
//!
//! All of it is [`Checks`], a [`Watch`]. The costly parts look at every thread of a CPU at each event on small
//! machines, and now and then on large ones.

pub mod account;
pub mod contexts;
pub mod fairness;
pub mod fluid;
mod limits;
pub mod machine_model;
pub mod number;
pub mod observation;
mod on_context;
pub mod order;
pub mod ownership;
mod queueing;
mod reference;
pub mod setting;
pub mod timers;

pub use fairness::Bound;
pub use number::{Number, Wide};
pub use setting::Setting;

use crate::watch::Watch;
use account::Accounts;
use contexts::Grants;
use fairness::Fairness;
use machine_model::MachineModel;
use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::Cpu;
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_workload::Workload;
use observation::{Observation, ObservedEvent};
use timers::Timers;

/// With at most this many threads everything is looked at after every event.
const SMALL: usize = 64;

/// With more threads than this no exact schedule is kept: it takes time in proportion to the threads of a CPU.
const FAIRNESS_LIMIT: usize = 512;

/// On machines that are not small, everything is looked at once in so many events.
const SELDOM: u64 = 4_096;

/// All checkers at once; `N` is the arithmetic of the exact schedule.
#[derive(Debug)]
pub struct Checks<N> {
    setting: Setting,
    pending: Option<ObservedEvent>,
    events: u64,
    /// Something was wrong: the books are not to be trusted any more, and the run is about to end.
    failed: bool,
    model: MachineModel,
    grants: Grants,
    accounts: Accounts,
    timers: Timers,
    fairness: Option<Fairness<N>>,
}

/// All checkers for a run of `workload`, with no bound on lag.
#[must_use]
pub fn all(workload: &Workload) -> Checks<Wide> {
    Checks::new(Setting::of(workload))
}

impl<N: Number> Checks<N> {
    /// All checkers for a machine.
    #[must_use]
    pub fn new(setting: Setting) -> Self {
        Self {
            pending: None,
            events: 0,
            failed: false,
            model: MachineModel::new(setting.cpus),
            grants: Grants::new(&setting),
            accounts: Accounts::new(setting.cpus),
            timers: Timers::new(setting.cpus),
            fairness: (setting.threads() <= FAIRNESS_LIMIT).then(|| Fairness::new(&setting)),
            setting,
        }
    }

    /// How many events were seen.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The exact schedule, unless the machine is too large for one.
    #[must_use]
    pub fn fairness(&self) -> Option<&Fairness<N>> {
        self.fairness.as_ref()
    }

    /// The model of contexts.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    fn thorough(&self) -> bool {
        self.setting.threads() <= SMALL || self.events.is_multiple_of(SELDOM)
    }

    /// Judges `observed`, after which `cpu` is as it is; `Err` says what must not be.
    pub fn judge(&mut self, cpu: &Cpu, observed: &Observation) -> Result<(), String> {
        let all = self.thorough();
        // Checkers that judge by the state before the event go first. Then the model is brought up to date.
        self.timers.before(&self.setting, &self.model, &self.grants, observed)?;
        self.grants.follow(&self.model, cpu, observed)?;
        self.accounts.before(&self.model, &self.grants, observed)?;
        if let Some(fairness) = &mut self.fairness {
            fairness.follow(&self.model, &self.grants, cpu, observed)?;
        }
        self.model.note(&self.grants, observed)?;
        ownership::check(&self.model, &self.grants, cpu, observed, all)?;
        self.accounts.after(&self.model, cpu, observed, all)?;
        self.timers.after(&self.setting, &self.model, &self.grants, cpu, observed)?;
        if all {
            cpu.verify()?;
            order::check(cpu)?;
            if let Some(fairness) = &self.fairness {
                fairness.compare(&self.model, cpu, observed)?;
            }
        }
        Ok(())
    }
}

impl<N: Number> Watch for Checks<N> {
    fn before(&mut self, _now: Nanos, _cpu: &Cpu, event: EventRef<'_>) {
        self.pending = Some(ObservedEvent::of(event));
    }

    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome) -> Result<(), String> {
        self.events += 1;
        let event = self.pending.take().ok_or("an outcome without an event")?;
        if self.failed {
            return Ok(());
        }
        let observed = Observation { now, cpu: cpu.id().index(), event, outcome };
        let checked = self.judge(cpu, &observed);
        self.failed = checked.is_err();
        checked.map_err(|what| format!("{what}\n  after {observed:?}"))
    }

    fn end(&mut self, now: Nanos, cpus: &[&Cpu]) -> Result<(), (CpuId, String)> {
        if self.failed {
            return Ok(());
        }
        self.model.end().map_err(|what| (CpuId::BOOT, what))?;
        for cpu in cpus {
            let whole = || {
                account::conserved(&self.model, cpu, now)?;
                order::check(cpu)?;
                ownership::everybody(&self.model, &self.grants, cpu)
            };
            whole().map_err(|what| (cpu.id(), what))?;
        }
        Ok(())
    }
}

/// `Err` with a message unless `holds`.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
