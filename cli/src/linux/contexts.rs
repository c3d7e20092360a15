//! The contexts of a run, and the islands that some of them are nodes of: made, bound as their tables say, adjusted, revoked.
//!
//! Which island fits is decided by [`Admission`], as in the simulator; the driver's table in the runtime carries it out, and
//! admits every context by itself once more.
//!
//! Conserved: instance `n` of a thread table is bound to instance `n` of its context table, from its start, if that is at rest.
//! The contexts of an island exist exactly from its admission on, all of them or none.

use super::LinuxError;
use super::stage::Order;
use mainspring::context::{ContextState, Depleted, Reservation};
use mainspring::{ContextError, Runtime, SchedulingContext};
use mainspring_abi::{CpuId, Nanos};
use mainspring_authority::admission::Task;
use mainspring_record::terms::Terms;
use mainspring_report::{ContextReport, IslandReport};
use mainspring_sim::admission::{Admission, Standing};
use mainspring_workload::{ContextSpec, ContextTarget, Numbering, Overrun, Workload};
use std::ops::Range;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// One context of the workload.
#[derive(Debug, Default)]
struct Granted {
    /// Index of its table.
    table: usize,
    context: OnceLock<SchedulingContext>,
    terms: Mutex<Terms>,
}

/// What became of islands, and what readers should know.
#[derive(Debug)]
struct Decided {
    admission: Admission,
    outcomes: Vec<String>,
    notices: Vec<String>,
}

/// A context whose holder has used the budget up, which counts as a fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub context: usize,
    pub thread: usize,
}

/// All contexts of a run.
pub struct Contexts<'w> {
    workload: &'w Workload,
    runtime: &'w Runtime,
    all: Vec<Granted>,
    numbers: Numbering,
    decided: Mutex<Decided>,
    /// Told of each fault, from any thread.
    orders: Sender<Order>,
}

impl<'w> Contexts<'w> {
    /// Makes those that are of no island, each on the first of its CPUs where every deadline holds, and those of the islands that
    /// ask at once and are admitted.
    pub fn new(
        workload: &'w Workload,
        runtime: &'w Runtime,
        orders: Sender<Order>,
    ) -> Result<Self, LinuxError> {
        let (mut all, numbers) = (Vec::new(), workload.context_numbers());
        for (table, spec) in workload.contexts.iter().enumerate() {
            all.extend((0..spec.instances()).map(|_| Granted { table, ..Granted::default() }));
        }
        let outcomes = workload.islands.iter().map(|_| "it did not ask within the run".to_owned()).collect();
        let decided = Decided { admission: Admission::new(workload), outcomes, notices: Vec::new() };
        let contexts = Self { workload, runtime, all, numbers, decided: Mutex::new(decided), orders };
        for island in 0..workload.islands.len() {
            if workload.islands[island].start == Nanos::ZERO {
                contexts.decide(island, Nanos::ZERO);
            }
        }
        for context in 0..contexts.all.len() {
            let (home, island) = {
                let decided = contexts.decided();
                (decided.admission.home(context), decided.admission.island_of(context))
            };
            if island.is_none() || home.is_some() {
                let made = contexts.make(context, island.and(home), Nanos::ZERO);
                made.map_err(|error| LinuxError::Context(contexts.name(context), error))?;
            }
        }
        Ok(contexts)
    }

    fn decided(&self) -> MutexGuard<'_, Decided> {
        self.decided.lock().expect("no panic while it is held")
    }

    fn terms(&self, context: usize) -> MutexGuard<'_, Terms> {
        self.all[context].terms.lock().expect("no panic while it is held")
    }

    fn spec(&self, context: usize) -> &'w ContextSpec {
        &self.workload.contexts[self.all[context].table]
    }

    fn name(&self, context: usize) -> String {
        let table = self.all[context].table;
        self.spec(context).instance_name(context - self.numbers.first(table))
    }

    /// Makes a context, on `home` if that is decided.
    fn make(&self, context: usize, home: Option<CpuId>, now: Nanos) -> Result<(), ContextError> {
        let (spec, island) = (self.spec(context), self.decided().admission.island_of(context));
        // A node that says nothing about overruns does what its island says.
        let overrun = match (spec.overrun, island) {
            (Overrun::Throttle, Some(island)) => self.workload.islands[island].overrun,
            (own, _) => own,
        };
        let task = self.decided().admission.contexts()[context].task;
        let made = create(spec, overrun, task.deadline.max(spec.budget), home, self.workload, self.runtime)?;
        if matches!(overrun, Overrun::Fault | Overrun::Shutdown) {
            let orders = self.orders.clone();
            // The receiver lives as long as the run.
            made.on_fault(move |thread| _ = orders.send(Order::Fault(Fault { context, thread })));
        }
        self.terms(context).begin(now, spec.budget, spec.period);
        if let Some(process) = spec.process {
            made.bind_to_tenant(self.runtime, process as u32)?;
        }
        let set = self.all[context].context.set(made);
        debug_assert!(set.is_ok(), "a context is made once");
        Ok(())
    }

    /// The context of instance `instance` of a thread whose table names the context table `table`.
    pub fn of(&self, table: usize, instance: usize) -> Option<usize> {
        let context = self.numbers.first(table) + instance;
        self.get(context).map(|_| context)
    }

    /// The default context of `process`, if its tables name one.
    pub fn has_default(&self, process: usize) -> bool {
        self.workload.contexts.iter().any(|spec| spec.process == Some(process))
    }

    /// The context with this number in the record.
    pub fn numbered(&self, number: u32) -> Option<usize> {
        (0..self.all.len()).find(|context| self.get(*context).is_some_and(|one| one.number() == number))
    }

    /// A context, if it was made.
    pub fn get(&self, context: usize) -> Option<&SchedulingContext> {
        self.all.get(context)?.context.get()
    }

    /// The endpoint that hears of a context's faults, in place of its holder's end.
    pub fn fault_endpoint(&self, context: usize) -> Option<usize> {
        self.spec(context).timeout_endpoint
    }

    /// Whether a fault of this context shuts its island down, and which that is.
    pub fn shuts_down(&self, context: usize) -> Option<Option<usize>> {
        let island = self.decided().admission.island_of(context);
        let by_island = island.map(|island| self.workload.islands[island].overrun);
        let shuts = match self.spec(context).overrun {
            Overrun::Shutdown => true,
            Overrun::Throttle => by_island == Some(Overrun::Shutdown),
            Overrun::Fault | Overrun::Notify => false,
        };
        shuts.then_some(island)
    }

    /// The contexts that an operation or step names.
    pub fn named(&self, target: ContextTarget) -> Range<usize> {
        self.numbers.contexts(target)
    }

    /// Takes a context away for good; whether there was one.
    pub fn revoke(&self, context: usize, now: Nanos) -> bool {
        let revoked = self.get(context).is_some_and(|one| one.revoke().is_ok());
        if revoked {
            self.terms(context).end(now);
        }
        revoked
    }

    /// Contexts may have been taken away: what they grant ends `now`.
    pub fn note_ends(&self, now: Nanos) {
        let ended = |context: &usize| self.get(*context).is_some_and(|one| one.info().is_err());
        (0..self.all.len()).filter(ended).for_each(|context| self.terms(context).end(now));
    }

    /// By context, whether it can still be spent.
    fn live(&self) -> Vec<bool> {
        self.all.iter().map(|one| one.context.get().is_none_or(|context| context.info().is_ok())).collect()
    }

    /// An island asks to be admitted: its contexts are made then.
    /// Returns them, for the threads that live already.
    pub fn ask_for(&self, island: usize, now: Nanos) -> Vec<usize> {
        if !self.decide(island, now) {
            return Vec::new();
        }
        let nodes = self.decided().admission.nodes(island);
        for node in &nodes {
            let home = self.decided().admission.home(*node);
            if let Err(error) = self.make(*node, home, now) {
                // All of it or nothing.
                for made in &nodes {
                    self.revoke(*made, now);
                }
                let mut decided = self.decided();
                decided.admission.leave(island);
                decided.outcomes[island] = format!("refused: {error}");
                return Vec::new();
            }
        }
        nodes
    }

    /// Whether an island is admitted. Nothing is made yet.
    fn decide(&self, island: usize, now: Nanos) -> bool {
        let live = self.live();
        let mut decided = self.decided();
        let (outcome, notice) = match decided.admission.admit(self.workload, island, &live) {
            Ok(_) => (format!("admitted at {now}"), None),
            Err(denial) => {
                let name = &self.workload.islands[island].name;
                let notice = format!("island {name} was refused and runs as best effort: {denial}");
                (format!("refused: {denial}"), Some(notice))
            }
        };
        decided.outcomes[island] = outcome;
        let admitted = notice.is_none();
        decided.notices.extend(notice);
        admitted
    }

    /// The contexts of an island are taken away, and what it held is free.
    pub fn leave(&self, island: usize, why: &str, now: Nanos) {
        let (was_there, nodes) = {
            let mut decided = self.decided();
            let nodes = decided.admission.nodes(island);
            let was_there = decided.admission.leave(island);
            if was_there {
                let outcome = format!("{}; {why} at {now}", decided.outcomes[island]);
                decided.outcomes[island] = outcome;
            }
            (was_there, nodes)
        };
        if was_there {
            nodes.into_iter().for_each(|node| _ = self.revoke(node, now));
        }
    }

    /// Grants another budget and period, if every context that was promised a deadline still meets it.
    pub fn adjust(&self, context: usize, budget: Nanos, period: Nanos, now: Nanos) {
        let live = self.live();
        let (task, before) = {
            let decided = self.decided();
            let before = decided.admission.contexts()[context].task;
            let deadline = before.deadline.min(period).max(budget);
            (Task { cost: budget, deadline, period }, before)
        };
        let admitted = self.decided().admission.adjust(self.workload, context, task, &live);
        let length = |time: Nanos| Duration::from_nanos(time.get());
        let refusal = match admitted {
            Err(denial) => Some(denial.to_string()),
            Ok(()) => {
                match self.get(context).map(|one| one.adjust(self.runtime, length(budget), length(period))) {
                    Some(Ok(())) => {
                        self.terms(context).begin(now, budget, period);
                        None
                    }
                    Some(Err(error)) => {
                        let _as_before =
                            self.decided().admission.adjust(self.workload, context, before, &live);
                        Some(error.to_string())
                    }
                    None => None,
                }
            }
        };
        if let Some(why) = refusal {
            let notice = format!("at {now} context {} was not adjusted: {why}", self.name(context));
            self.decided().notices.push(notice);
        }
    }

    /// What readers should know.
    pub fn notices(&self) -> Vec<String> {
        self.decided().notices.clone()
    }

    /// What became of each island.
    pub fn island_reports(&self) -> Vec<IslandReport> {
        let decided = self.decided();
        let rows = self.workload.islands.iter().zip(decided.admission.islands()).zip(&decided.outcomes);
        let row = |((spec, standing), outcome): ((&mainspring_workload::IslandSpec, &Standing), &String)| {
            IslandReport {
                name: spec.name.clone(),
                admitted: matches!(standing, Standing::Admitted(_) | Standing::Left),
                reason: outcome.clone(),
            }
        };
        rows.map(row).collect()
    }

    /// What was used of each, in the order of the numbers that the record has for them; those that were never made come last.
    pub fn reports(&self, now: Nanos) -> Vec<ContextReport> {
        let mut rows: Vec<(u32, ContextReport)> = (0..self.all.len())
            .map(|context| {
                (self.get(context).map_or(u32::MAX, SchedulingContext::number), self.report(context, now))
            })
            .collect();
        rows.sort_by_key(|(number, _)| *number);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn report(&self, context: usize, now: Nanos) -> ContextReport {
        let spec = self.spec(context);
        let terms = self.terms(context);
        let (budget, period) = terms.last().unwrap_or((spec.budget, spec.period));
        let blank = ContextReport {
            name: self.name(context),
            cpu: None,
            budget_ns: budget.get(),
            period_ns: period.get(),
            deadline_ns: spec.deadline.get(),
            criticality: spec.criticality,
            priority: spec.priority,
            state: "shelved".to_owned(),
            ..ContextReport::default()
        };
        let Some(one) = self.get(context) else { return blank };
        let Some(known) = one.last_known() else { return blank };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let revoked = one.info().err();
        ContextReport {
            cpu: Some(known.worker as u32),
            deadline_ns: nanos(known.deadline),
            granted_ns: terms.available(now).get(),
            used_ns: nanos(known.used),
            donated_ns: nanos(known.used_on_loan),
            depletions: known.depletions,
            misses: known.misses,
            overshoot_max_ns: nanos(known.overshoot),
            generation: u64::from(revoked.is_some()),
            state: match known.state {
                ContextState::Lent | ContextState::InFlight => "donated",
                ContextState::Bound => "bound",
                ContextState::AtRest if revoked.is_some() => "revoked",
                ContextState::AtRest => "shelved",
            }
            .to_owned(),
            ..blank
        }
    }
}

fn create(
    spec: &ContextSpec,
    overrun: Overrun,
    deadline: Nanos,
    home: Option<CpuId>,
    workload: &Workload,
    runtime: &Runtime,
) -> Result<SchedulingContext, ContextError> {
    let length = |nanos: Nanos| Duration::from_nanos(nanos.get());
    let depleted = match overrun {
        Overrun::Throttle => Depleted::Throttle,
        Overrun::Notify => Depleted::BestEffort,
        Overrun::Fault | Overrun::Shutdown => Depleted::Fault,
    };
    let wish = Reservation::new(length(spec.budget), length(spec.period))
        .deadline(length(deadline))
        .criticality(spec.criticality)
        .priority(spec.priority)
        .refills(spec.refills.max(2))
        .donation_depth(spec.depth)
        .when_depleted(depleted);
    let cpus = workload.machine.cpus;
    let allowed = |worker: &usize| {
        let cpu = CpuId::new(*worker).ok();
        let here = home.is_none_or(|home| cpu == Some(home));
        here && spec.cpus.is_none_or(|mask| cpu.is_some_and(|cpu| mask.contains(cpu)))
    };
    let mut refused = ContextError::NoWorker(cpus);
    for worker in (0..cpus).filter(allowed) {
        match runtime.create_context(wish.on_worker(worker)) {
            Err(error @ ContextError::NotAdmitted(_)) => refused = error,
            made => return made,
        }
    }
    Err(refused)
}
