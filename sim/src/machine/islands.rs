//! Islands and admission in a run: which thread asks when, and what a refusal means.
//!
//! Conserved: the contexts of an island can be bound exactly while the island is admitted. No thread of a refused island
//! has anything of it; its threads run as best effort. An adjustment that would take a promised deadline away from any
//! context changes nothing.

use super::Machine;
use super::calls::Errand;
use crate::admission::{Admission, Standing};
use mainspring_abi::{CpuId, Nanos};
use mainspring_authority::admission::{Denial, Refusal, Task};
use mainspring_driver::placement;
use mainspring_report::IslandReport;
use mainspring_sched::{State, Via};
use mainspring_workload::Workload;

/// When islands ask, and threads that are still to take what they were granted meanwhile.
#[derive(Debug)]
pub(super) struct Islands {
    pub admission: Admission,
    /// Islands that have not asked yet, the next one last.
    asks: Vec<(Nanos, usize)>,
    /// What became of each, in words.
    told: Vec<String>,
    /// Threads that wait for something on another CPU than the one where a context of theirs is.
    claims: Vec<(usize, usize)>,
}

impl Islands {
    pub(super) fn new(workload: &Workload) -> Self {
        let mut asks: Vec<_> =
            workload.islands.iter().enumerate().map(|(island, spec)| (spec.start, island)).collect();
        asks.sort_unstable_by(|a, b| b.cmp(a));
        let told = workload.islands.iter().map(|_| "it did not ask within the run".to_owned()).collect();
        Self { admission: Admission::new(workload), asks, told, claims: Vec::new() }
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

impl Machine<'_> {
    /// Says which plain contexts run though admission refuses them.
    pub(super) fn tell_of_refusals(&mut self) {
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

    /// By context, whether it can still be spent.
    fn live_contexts(&self) -> Vec<bool> {
        self.grants.list.iter().map(|grant| !grant.revoked).collect()
    }

    /// The next island asks to be admitted.
    pub(super) fn ask_for_island(&mut self) {
        let Some((_, island)) = self.islands.asks.pop() else { return };
        let live = self.live_contexts();
        match self.islands.admission.admit(self.workload, island, &live) {
            Err(denial) => {
                self.say_of_island(island, format!("refused: {denial}"));
                let name = &self.workload.islands[island].name;
                self.notices.push(format!("island {name} was refused and runs as best effort: {denial}"));
            }
            Ok(_) => {
                self.say_of_island(island, format!("admitted at {}", self.now));
                for grant in self.nodes_of(island) {
                    let Some(home) = self.islands.admission.home(grant) else { continue };
                    self.grants.list[grant].home = home.index();
                    let who = self.grants.list[grant].who;
                    // A context that was revoked before its island was admitted stays so.
                    let _known = self.contexts.withhold(who, false, Some(home));
                    self.begin_terms(grant);
                    self.give_to_its_thread(grant);
                }
            }
        }
    }

    fn nodes_of(&self, island: usize) -> Vec<usize> {
        let admission = &self.islands.admission;
        (0..self.grants.list.len()).filter(|grant| admission.island_of(*grant) == Some(island)).collect()
    }

    /// Takes note of what became of an island, and lists it.
    pub(super) fn say_of_island(&mut self, island: usize, what: String) {
        self.log("island", |machine, event| {
            event.island = Some(machine.workload.islands[island].name.clone());
            event.reason = Some(what.clone());
        });
        self.islands.told[island] = what;
    }

    /// Binds a context to the thread that is due it and lives already.
    fn give_to_its_thread(&mut self, grant: usize) {
        let due = (0..self.threads.len())
            .find(|index| self.threads[*index].home.is_some() && self.due_to(*index) == Some(grant));
        let Some(thread) = due else { return };
        let Some((home, seat)) = self.place_of(thread) else { return };
        let to = self.grants.list[grant].home;
        match self.cores[home].state(seat) {
            Ok(State::Running) => {
                self.run_errand(home, thread, Errand::Bind(grant));
                self.carry_on(home);
            }
            Ok(State::Queued | State::Direct) if home != to => {
                self.move_ready(thread, to);
                self.bind_grant(grant, thread);
            }
            // A thread that waits goes there when its wait is over.
            _ if home != to => self.islands.claims.push((thread, grant)),
            _ => {
                self.bind_grant(grant, thread);
            }
        }
    }

    /// `thread`, which is ready, goes to the queue of `cpu`.
    fn move_ready(&mut self, thread: usize, cpu: usize) {
        let (thread, cpu) = (self.threads[thread].identity, self.cpu_id(cpu));
        let _moved = placement::migrate(self, thread, cpu, None, Via::Steal);
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

    /// The contexts of an island are taken away, and what it held is free.
    pub(super) fn leave_island(&mut self, island: usize, why: &'static str) {
        let was_there = self.islands.admission.leave(island);
        for grant in self.nodes_of(island) {
            self.revoke_grant(grant, why);
        }
        if was_there {
            self.say_of_island(island, format!("{}; {why} at {}", self.islands.told[island], self.now));
        } else {
            // It asks no more.
            self.islands.asks.retain(|(_, asks)| *asks != island);
        }
    }

    /// Grants another budget and period, if every context that was promised a deadline still meets it.
    pub(super) fn adjust_if_it_holds(&mut self, grant: usize, budget: Nanos, period: Nanos) {
        let deadline = self.islands.admission.contexts()[grant].task.deadline.min(period).max(budget);
        let task = Task { cost: budget, deadline, period };
        let live = self.live_contexts();
        match self.islands.admission.adjust(self.workload, grant, task, &live) {
            Ok(()) => {
                self.adjust_grant(grant, budget, period);
                self.log_context("adjust", Some(grant), None, None, "");
            }
            Err(denial) => {
                let name = self.context_name(grant);
                self.log("adjust", |machine, event| {
                    event.cpu = Some(machine.grants.list[grant].home as u32);
                    event.context = Some(name.clone());
                    event.reason = Some(format!("refused: {denial}"));
                });
                let now = self.now;
                self.notices.push(format!("at {now} context {name} was not adjusted: {denial}"));
            }
        }
    }

    pub(super) fn island_reports(&self) -> Vec<IslandReport> {
        let islands = self.workload.islands.iter().zip(self.islands.admission.islands());
        let report = |((spec, standing), told): ((&mainspring_workload::IslandSpec, &Standing), &String)| {
            IslandReport {
                name: spec.name.clone(),
                admitted: matches!(standing, Standing::Admitted(_) | Standing::Left),
                reason: told.clone(),
            }
        };
        islands.zip(&self.islands.told).map(report).collect()
    }
}
