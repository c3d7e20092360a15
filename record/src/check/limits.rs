//! How far a lag may go, and how far the core may be from the exact schedule.

use super::fairness::{BLUR, Bound, Fairness, REFERENCE, UNITS};
use super::machine_model::MachineModel;
use super::{Number, ensure};
use mainspring_abi::ThreadRef;
use mainspring_sched::Lag;

impl<N: Number> Fairness<N> {
    pub(super) fn agrees(&self, thread: ThreadRef, exact: &N, told: Lag) -> Result<(), String> {
        let weight = i128::from(self.competitor(thread.index()).greatest_weight);
        // One nanosecond is lost when the core tells its lag in whole ones.
        let slack =
            UNITS + UNITS * weight / i128::from(REFERENCE) / i128::from(BLUR) + UNITS / i128::from(BLUR);
        let exact = exact.units();
        ensure((i128::from(told.as_nanos()) * UNITS - exact).abs() <= slack, || {
            format!(
                "{thread:?} has a lag of {}ns, exactly {:.3}ns",
                told.as_nanos(),
                exact as f64 / UNITS as f64
            )
        })
    }

    /// Every thread on CPU `at` is within bounds at `now`, which the fluid schedule has reached.
    pub(super) fn within_bounds(&mut self, model: &MachineModel, at: usize, now: u64) -> Result<(), String> {
        let place = &self.cpus[at];
        let running = model.cpu_model(at).running.map(ThreadRef::index);
        let (mut most, mut least) = self.extremes;
        let quantum = N::whole(i128::from(self.setting.quantum.get()));
        for (index, standing) in place.fluid.members().filter(|(_, one)| one.competes) {
            let ran = if running == Some(index) && standing.awake { now - place.since } else { 0 };
            let mut lag = place.fluid.lag(index, ran);
            if !standing.awake {
                // A debtor that the clock has overtaken owes nothing and is owed nothing.
                lag = lag.min(N::whole(0));
            }
            let units = lag.units();
            (most, least) = (most.max(units), least.min(units));
            let limits = match self.setting.bound {
                Bound::None => continue,
                Bound::Quantum => (quantum.clone(), quantum.clone()),
                Bound::Handoffs => (quantum.scaled(2, 1), quantum.scaled(2, 1)),
                Bound::Wfq => {
                    let greatest = self.competitor(index).greatest_weight;
                    (quantum.clone(), self.longest.scaled(greatest, REFERENCE))
                }
            };
            let loose = self.setting.bound == Bound::Wfq;
            let ahead = N::whole(0).minus(&lag);
            let within =
                if loose { lag <= limits.0 && ahead <= limits.1 } else { lag < limits.0 && ahead < limits.1 };
            ensure(within, || {
                let limits = (limits.0.shown(), limits.1.shown());
                format!("t{index} has a lag of {}, beyond {limits:?}; running: {running:?}", lag.shown())
            })?;
        }
        self.extremes = (most, least);
        Ok(())
    }

    /// Notes whether a thread on CPU `at` is just about even.
    pub(super) fn doubt(&mut self, at: usize) {
        let fluid = &self.cpus[at].fluid;
        let even = |ahead: N| ahead <= self.blur && N::whole(0).minus(&ahead) <= self.blur;
        let doubtful = fluid.absent().any(|position| even(position.minus(&fluid.clock)));
        self.cpus[at].doubtful |= doubtful;
    }

    /// The core's load is the fluid schedule's, unless a thread is just about even.
    pub(super) fn same_load(&mut self, at: usize, told: u64) -> Result<(), String> {
        self.doubt(at);
        let place = &self.cpus[at];
        let exact = place.fluid.load();
        ensure(place.doubtful || told == exact, || format!("load {told}, exactly {exact}"))
    }
}
