//! The islands of a workload, by name: when each asks, and what became of it.
//!
//! What an island is and how it ends is [`mainspring_driver::islands`]; here is what only a simulated machine has: names, a
//! report, and threads that fetch their contexts when they next can.
//!
//! Conserved: a node of an island has a context exactly while the driver calls its island admitted. The threads of a refused
//! island run as best effort.

use super::Machine;
use super::calls::Errand;
use crate::admission::{Admission, island_machine};
use mainspring_abi::{CpuId, Nanos, ProcessId};
use mainspring_authority::admission::{Denial, Refusal, Task};
use mainspring_authority::island::{IslandError, IslandRef};
use mainspring_driver::islands::{self as driver, IslandMachine, IslandNotice};
use mainspring_report::IslandReport;
use mainspring_sched::State;
use mainspring_sched::lease::{Endpoint, Owner};
use mainspring_workload::Workload;

/// When islands ask, and threads that are still to take what they were granted meanwhile.
#[derive(Debug)]
pub(super) struct Islands {
    /// Where plain contexts have their homes, and what nodes ask for.
    pub admission: Admission,
    /// `None` while an operation of the driver has them.
    driver: Option<driver::Islands>,
    /// Islands that have not asked yet, the next one last.
    asks: Vec<(Nanos, usize)>,
    named: Vec<NamedIsland>,
    /// Threads that wait for something on another CPU than the one where a context of theirs is.
    claims: Vec<(usize, usize)>,
}

/// One island of the workload.
#[derive(Debug)]
struct NamedIsland {
    /// Its name for the driver, while it is admitted.
    live: Option<IslandRef>,
    was_admitted: bool,
    /// What became of it, in words.
    outcome: String,
}

impl Islands {
    pub(super) fn new(workload: &Workload) -> Self {
        let mut asks: Vec<_> =
            workload.islands.iter().enumerate().map(|(island, spec)| (spec.start, island)).collect();
        asks.sort_unstable_by(|a, b| b.cmp(a));
        let named = |_| NamedIsland {
            live: None,
            was_admitted: false,
            outcome: "it did not ask within the run".to_owned(),
        };
        Self {
            admission: Admission::new(workload),
            driver: Some(driver::Islands::new(island_machine(workload))),
            asks,
            named: workload.islands.iter().map(named).collect(),
            claims: Vec::new(),
        }
    }

    /// When the next island asks.
    pub(super) fn next(&self) -> Nanos {
        self.asks.last().map_or(Nanos::MAX, |(at, _)| *at)
    }
}

/// Why a CPU cannot keep what was granted there, and what that means.
fn notice(cpu: CpuId, denial: &Denial, exact: bool) -> String {
    let sure = if exact { "are missed when all are released together" } else { "may be missed" };
    format!("the contexts of CPU {} were not admitted: {denial}; deadlines {sure}", cpu.index())
}

impl IslandMachine for Machine<'_> {
    fn post_island_notice(&mut self, endpoint: Endpoint, _: IslandRef, notice: IslandNotice) {
        if notice == IslandNotice::Left {
            let island = endpoint.0 as usize;
            let (outcome, why) = (&self.islands.named[island].outcome, self.grants.why_revoked);
            self.note_island(island, format!("{outcome}; {why} at {}", self.now));
        }
    }
}

impl Machine<'_> {
    /// Says which plain contexts run though admission refuses them.
    pub(super) fn note_refused_contexts(&mut self) {
        let admission = &self.islands.admission;
        let mut notices: Vec<String> = admission
            .homeless()
            .into_iter()
            .map(|context| {
                let name = &admission.contexts()[context].name;
                format!("context {name} has no home: its thread may use none of its CPUs")
            })
            .collect();
        notices.extend(admission.plain().refusals.iter().filter_map(|refusal| match refusal {
            Refusal::Cpu { cpu, denial, exact, .. } => Some(notice(*cpu, denial, *exact)),
            Refusal::Nowhere { .. } | Refusal::Malformed { .. } => None,
        }));
        self.notices.extend(notices);
    }

    /// Lets the driver act on the islands. What it calls back into the machine for needs none of them.
    pub(super) fn with_islands<R>(
        &mut self,
        act: impl FnOnce(&mut driver::Islands, &mut Self) -> R,
    ) -> Option<R> {
        let mut islands = self.islands.driver.take()?;
        let result = act(&mut islands, self);
        self.islands.driver = Some(islands);
        Some(result)
    }

    /// The next island asks to be admitted.
    pub(super) fn ask_for_island(&mut self) {
        let Some((_, island)) = self.islands.asks.pop() else { return };
        let spec = self.islands.admission.island_spec(self.workload, island);
        // The workload itself asks: what it asks for ends with no process.
        let owner = Owner { process: ProcessId::new(0), session: None, service: None };
        let notify = Some(Endpoint(island as u32));
        let admitted = self.with_contexts(|contexts, machine| {
            machine.with_islands(|islands, machine| {
                let live = islands.admit(machine, contexts, spec, owner, notify)?;
                Ok::<_, driver::NotAdmitted>((live, islands.contexts(live).unwrap_or_default().to_vec()))
            })
        });
        match admitted {
            None => {}
            Some(Err(denial)) => {
                self.note_island(island, format!("refused: {denial}"));
                let name = &self.workload.islands[island].name;
                self.notices.push(format!("island {name} was refused and runs as best effort: {denial}"));
            }
            Some(Ok((live, contexts))) => {
                let named = &mut self.islands.named[island];
                (named.live, named.was_admitted) = (Some(live), true);
                self.note_island(island, format!("admitted at {}", self.now));
                let nodes = self.islands.admission.nodes(island);
                for (grant, who) in nodes.iter().zip(contexts) {
                    let Some(home) = self.contexts.home(who.id()) else { continue };
                    let task = self.islands.admission.contexts()[*grant].task;
                    self.grants.granted(*grant, who, home, self.now, (task.cost, task.period));
                }
                nodes.into_iter().for_each(|grant| self.give_to_its_thread(grant));
            }
        }
    }

    /// Takes note of what became of an island, and lists it.
    pub(super) fn note_island(&mut self, island: usize, what: String) {
        self.log("island", |machine, event| {
            event.island = Some(machine.workload.islands[island].name.clone());
            event.reason = Some(what.clone());
        });
        self.islands.named[island].outcome = what;
    }

    /// Binds a context to the thread that is due it and lives already.
    fn give_to_its_thread(&mut self, grant: usize) {
        let due = (0..self.threads.len())
            .find(|index| self.threads[*index].home.is_some() && self.due_to(*index) == Some(grant));
        let Some(thread) = due else { return };
        let Some((home, seat)) = self.place_of(thread) else { return };
        match self.cores[home].state(seat) {
            Ok(State::Running) => {
                self.run_errand(home, thread, Errand::Bind(grant));
                self.carry_on(home);
            }
            // A thread that waits goes there when its wait is over.
            Ok(State::Asleep(_)) if self.grants.list[grant].home != Some(home) => {
                self.islands.claims.push((thread, grant));
            }
            _ => {
                self.bind_grant(grant, thread);
            }
        }
    }

    /// The context that `thread`, which has just stopped waiting, is still to fetch.
    pub(super) fn claimed(&mut self, thread: usize) -> Option<usize> {
        if self.islands.claims.is_empty() {
            return None;
        }
        let place = self.islands.claims.iter().position(|(of, _)| *of == thread)?;
        let (_, grant) = self.islands.claims.swap_remove(place);
        (self.due_to(thread) == Some(grant)).then_some(grant)
    }

    /// The contexts of an island are taken away, and what it held is free. One that has not asked yet asks no more.
    pub(super) fn leave_island(&mut self, island: usize, why: &'static str) {
        let Some(live) = self.islands.named[island].live.take() else {
            self.islands.asks.retain(|(_, asks)| *asks != island);
            return;
        };
        self.grants.why_revoked = why;
        let left = self.with_contexts(|contexts, machine| {
            machine.with_leases(|leases, machine| {
                machine.with_islands(|islands, machine| islands.leave(machine, contexts, leases, live))
            })
        });
        debug_assert!(matches!(left, Some(Some(Ok(())))), "it was admitted");
    }

    /// Grants another budget and period, if every context that was promised a deadline still meets it.
    pub(super) fn adjust_if_it_holds(&mut self, grant: usize, budget: Nanos, period: Nanos) {
        let before = self.islands.admission.contexts()[grant].task;
        let task = Task { cost: budget, deadline: before.deadline.min(period).max(budget), period };
        // A node whose island has not asked yet asks with this.
        self.islands.admission.set_task(grant, task);
        match self.adjust_grant(grant, task) {
            Ok(()) => {
                if self.grants.list[grant].who.is_some() {
                    self.grants.list[grant].terms.begin(self.now, budget, period);
                }
                self.log_context("adjust", Some(grant), None, None, "");
            }
            Err(denial) => {
                self.islands.admission.set_task(grant, before);
                let name = self.context_name(grant);
                self.log("adjust", |machine, event| {
                    event.cpu = machine.grants.list[grant].home.map(|home| home as u32);
                    event.context = Some(name.clone());
                    event.reason = Some(format!("refused: {denial}"));
                });
                let now = self.now;
                self.notices.push(format!("at {now} context {name} was not adjusted: {denial}"));
            }
        }
    }

    /// Tells the driver of other terms for a context, if it was granted.
    fn adjust_grant(&mut self, grant: usize, task: Task) -> Result<(), String> {
        let (Some(who), now) = (self.grants.list[grant].who, self.now) else { return Ok(()) };
        let Some(island) = self.islands.admission.island_of(grant) else {
            let terms = (task.cost, task.period, task.deadline);
            let adjusted =
                self.with_contexts(|contexts, machine| contexts.adjust_if_admitted(machine, now, who, terms));
            return adjusted.map_err(|refusal| refusal.to_string());
        };
        let live = self.islands.named[island].live.ok_or_else(|| IslandError::Stale.to_string())?;
        let spec = self.islands.admission.island_spec(self.workload, island);
        let adjusted = self.with_contexts(|contexts, machine| {
            machine.with_islands(|islands, machine| islands.adjust(machine, contexts, live, spec))
        });
        match adjusted {
            Some(Ok(live)) => {
                self.islands.named[island].live = Some(live);
                Ok(())
            }
            Some(Err(refusal)) => Err(refusal.to_string()),
            None => Ok(()),
        }
    }

    /// Island `live` of the driver, as the workload numbers it.
    pub(super) fn island_named(&self, live: IslandRef) -> Option<usize> {
        self.islands.named.iter().position(|island| island.live == Some(live))
    }

    pub(super) fn island_reports(&self) -> Vec<IslandReport> {
        let report = |(spec, island): (&mainspring_workload::IslandSpec, &NamedIsland)| IslandReport {
            name: spec.name.clone(),
            admitted: island.was_admitted,
            reason: island.outcome.clone(),
        };
        self.workload.islands.iter().zip(&self.islands.named).map(report).collect()
    }
}
