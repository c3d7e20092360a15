//! What the workload program says of itself, and the kernel's record cannot know.

use super::manifest;
use crate::machine_run::{Counts, instances};
use mainspring_abi::Nanos;
use mainspring_abi::kernel::MAX_THREADS;
use mainspring_abi::plan::{Note, lease_state, loss, place, ring_mode};
use mainspring_abi::ring::CapError;
use mainspring_program::SyncStats;
use mainspring_record::jobs::{Jobs, Responses};
use mainspring_record::terms::Terms;
use mainspring_report::{ContextReport, EndpointReport, IslandReport, LeaseReport, RingReport, SyncReport};
use mainspring_sim::policy::{Epoch, Lost, Story};
use mainspring_workload::{ContextTarget, Step, SyncSpec, ThreadTarget, Workload};

/// Everything that the programs of a run have said.
pub struct Notes<'w> {
    workload: &'w Workload,
    /// Names of the kernel's threads, by slot.
    pub threads: Vec<String>,
    /// What each instance counted.
    pub counts: Vec<Counts>,
    /// What became of the periods of each instance.
    pub jobs: Vec<Jobs>,
    /// What became of the calls to each endpoint, and how long their replies took.
    calls: Vec<(EndpointReport, Responses)>,
    /// How each context fared, in the order of their numbers.
    pub contexts: Vec<ContextReport>,
    /// How each lease fared.
    pub leases: Vec<LeaseReport>,
    /// How each island fared.
    pub islands: Vec<IslandReport>,
    /// How each ring fared.
    pub rings: Vec<RingReport>,
    /// What happened at each mutex, semaphore, barrier and condition.
    pub sync: Vec<SyncReport>,
    /// What became of the policy service, but for its name: updates taken, the last epoch, how often and when it was slow, why and
    /// when it was lost.
    policy: Option<(Story, u64)>,
    /// Updates that were refused: when, and why.
    refused: Vec<(Nanos, Vec<u8>)>,
    /// How long pollers ran, how often they slept, and how many entries were dropped.
    pub polled: (u64, u64, u64),
    /// The context that each row is of, by its number on the kernel, which is 0 until it is known.
    known: Vec<(u32, (usize, usize))>,
    /// From when to when each row's context granted what.
    grants: Vec<Grant>,
    /// The period of the job that each instance was in last.
    periods: Vec<Nanos>,
    /// Whether each instance has lived at all.
    lived: Vec<bool>,
}

/// When a context granted CPU time, and how much.
struct Grant {
    /// Budget and period, from when on, in the order of time.
    terms: Vec<(Nanos, Nanos, Nanos)>,
    /// From when on it is there. None: its island was not admitted.
    from: Option<Nanos>,
    /// When its island left.
    until: Option<Nanos>,
}

impl Grant {
    /// What could have been used of it until `end`.
    fn available(&self, end: Nanos) -> Nanos {
        let Some(from) = self.from else { return Nanos::ZERO };
        let mut terms = Terms::default();
        // Terms that it was given before it was there begin with it, and only the last of them count.
        let begun = self.terms.iter().filter(|(since, ..)| *since <= from).count().saturating_sub(1);
        for (since, budget, period) in &self.terms[begun..] {
            terms.begin((*since).max(from), *budget, *period);
        }
        terms.end(self.until.unwrap_or(end));
        terms.available(end)
    }
}

impl<'w> Notes<'w> {
    /// Nothing was said yet. With `list`, each job is kept.
    pub fn new(workload: &'w Workload, list: bool) -> Self {
        let count = instances(workload).count();
        let first = |spec: &mainspring_workload::ThreadSpec| {
            let every = spec.program.iter().find_map(|step| match step {
                Step::Every(period) => Some(*period),
                _ => None,
            });
            std::iter::repeat_n(every.unwrap_or_default(), spec.instances())
        };
        let row = |(table, instance): (usize, usize)| {
            let spec = &workload.contexts[table];
            ContextReport {
                name: spec.instance_name(instance),
                budget_ns: spec.budget.get(),
                period_ns: spec.period.get(),
                deadline_ns: spec.deadline.get(),
                criticality: spec.criticality,
                priority: spec.priority,
                ..ContextReport::default()
            }
        };
        let grant = |named: (usize, usize)| {
            let spec = &workload.contexts[named.0];
            let is_node = nodes(workload).any(|(_, node)| node == named);
            Grant {
                terms: vec![(Nanos::ZERO, spec.budget, spec.period)],
                from: (!is_node).then_some(Nanos::ZERO),
                until: None,
            }
        };
        let lease = |spec: &mainspring_workload::LeaseSpec| LeaseReport {
            name: spec.name.clone(),
            cpus: spec.cpus.iter().map(|cpu| cpu.index() as u32).collect(),
            thread: {
                let thread = &workload.threads[spec.thread.thread];
                thread.instance_name(spec.thread.instance.unwrap_or(0) as usize)
            },
            state: "not asked for".to_owned(),
            ..LeaseReport::default()
        };
        let ring = |spec: &mainspring_workload::RingSpec| RingReport {
            name: spec.name.clone(),
            mode: "syscall".to_owned(),
            ..RingReport::default()
        };
        let island = |spec: &mainspring_workload::IslandSpec| IslandReport {
            name: spec.name.clone(),
            admitted: false,
            reason: "it did not ask within the run".to_owned(),
        };
        let unused = |spec: &SyncSpec| SyncReport::new(&spec.name, spec.kind, SyncStats::default());
        let endpoint = |(number, spec): (usize, &mainspring_workload::EndpointSpec)| {
            let (callers, servers) = workload.users_of(number);
            let row =
                EndpointReport { name: spec.name.clone(), callers, servers, ..EndpointReport::default() };
            (row, Responses::default())
        };
        Self {
            workload,
            calls: workload.endpoints.iter().enumerate().map(endpoint).collect(),
            leases: workload.leases.iter().map(lease).collect(),
            islands: workload.islands.iter().map(island).collect(),
            rings: workload.rings.iter().map(ring).collect(),
            sync: workload.sync.iter().map(unused).collect(),
            polled: (0, 0, 0),
            policy: None,
            refused: Vec::new(),
            threads: Vec::new(),
            counts: vec![Counts::default(); count],
            jobs: (0..count).map(|_| Jobs::new(list)).collect(),
            contexts: manifest::contexts(workload).into_iter().map(row).collect(),
            grants: manifest::contexts(workload).into_iter().map(grant).collect(),
            known: manifest::contexts(workload).into_iter().map(|named| (0, named)).collect(),
            periods: workload.threads.iter().flat_map(first).collect(),
            lived: vec![false; count],
        }
    }

    /// Takes one in. `None` if it names an instance or a context that the workload does not have, or a slot that the kernel does
    /// not have.
    pub fn take(&mut self, note: Note) -> Option<()> {
        match note {
            Note::Started { instance, slot } => {
                let drivers = self.workload.interrupts.iter().map(|device| format!("({})", device.name));
                let network = self.workload.network.iter().map(|_| "(network)".to_owned());
                let named = instances(self.workload).map(|(name, _)| name).chain(drivers).chain(network);
                let name = { named }.nth(instance as usize)?;
                let slot = Some(slot as usize).filter(|slot| *slot < MAX_THREADS)?;
                if self.threads.len() <= slot {
                    self.threads.resize(slot + 1, String::from("(unknown)"));
                }
                self.threads[slot] = name;
            }
            Note::Counted { instance, misses, timeouts, refusals, failures } => {
                *self.counts.get_mut(instance as usize)? =
                    Counts { misses, timeouts, refusals, failures, ..Counts::default() };
            }
            Note::Lives { instance, at } => {
                let jobs = self.jobs.get_mut(instance as usize)?;
                self.lived[instance as usize] = true;
                jobs.begin_life(Nanos::new(at));
                jobs.start(Nanos::new(at));
            }
            Note::Job { instance, started, finished, period } => {
                let period = Some(Nanos::new(period)).filter(|period| !period.is_zero())?;
                let jobs = self.jobs.get_mut(instance as usize)?;
                jobs.start(Nanos::new(started));
                let _next = jobs.finish(Nanos::new(finished), period);
                self.periods[instance as usize] = period;
            }
            Note::Ended { instance, at, period } => {
                let jobs = self.jobs.get_mut(instance as usize)?;
                if period != 0 {
                    jobs.end_life(Nanos::new(at), Nanos::new(period), Nanos::MAX, true);
                }
            }
            Note::Context { context, id, cpu, place, used, donated, depletions, misses, overshoot } => {
                let (named, row) = self.row_of(context)?;
                if id == 0 || self.known.iter().any(|(other, known)| *other == id && *known != named) {
                    return None;
                }
                self.known[row].0 = id;
                let row = &mut self.contexts[row];
                row.cpu = Some(cpu);
                (row.used_ns, row.donated_ns, row.overshoot_max_ns) = (used, donated, overshoot);
                (row.depletions, row.misses) = (depletions.into(), misses.into());
                row.generation = u64::from(place == place::GONE);
                row.state = match place {
                    place::REST => "shelved",
                    place::BOUND => "bound",
                    place::LENT => "donated",
                    _ => "revoked",
                }
                .to_owned();
            }
            Note::Lease { lease, state, activations, suppressed, polled_ns, sleeps } => {
                let tick = self.workload.machine.tick.get();
                let row = self.leases.get_mut(lease as usize)?;
                row.state = lease_end(state)?;
                (row.activations, row.ticks_suppressed) = (activations, suppressed);
                // The kernel counts whole ticks.
                row.tickless_ns = suppressed.saturating_mul(tick);
                self.polled.0 += polled_ns;
                self.polled.1 += sleeps;
                if let Some(ring) = self.workload.leases[lease as usize].ring {
                    (self.rings[ring].sleeps, self.rings[ring].busy_ns) = (sleeps, polled_ns);
                }
            }
            Note::Adjusted { context, at, budget, period, deadline } => {
                let (_, row) = self.row_of(context)?;
                let period = Some(Nanos::new(period)).filter(|period| !period.is_zero())?;
                let at = Nanos::new(at);
                self.grants[row].terms.last().filter(|(since, ..)| *since <= at)?;
                self.grants[row].terms.push((at, Nanos::new(budget), period));
                let row = &mut self.contexts[row];
                (row.budget_ns, row.period_ns, row.deadline_ns) = (budget, period.get(), deadline);
            }
            Note::Island { island, refused, admitted, left, shut_down } => {
                let nodes = nodes(self.workload).filter(|(of, _)| *of == island as usize);
                for (_, node) in nodes.filter(|_| admitted != 0) {
                    let row = self.known.iter().position(|(_, known)| *known == node)?;
                    let until = Some(left).filter(|left| *left != 0);
                    self.grants[row].from = Some(Nanos::new(admitted));
                    self.grants[row].until = until.map(Nanos::new);
                }
                let row = self.islands.get_mut(island as usize)?;
                row.admitted = admitted != 0;
                row.reason = match (refused, left) {
                    (0, 0) if admitted == 0 => return Some(()),
                    (0, 0) => format!("admitted at {}", Nanos::new(admitted)),
                    (0, left) => {
                        let why = if shut_down { "shutdown" } else { "left" };
                        format!("admitted at {}; {why} at {}", Nanos::new(admitted), Nanos::new(left))
                    }
                    (code, _) => {
                        format!("refused: {}", CapError::try_from(u16::try_from(code).ok()?).ok()?)
                    }
                };
            }
            Note::Sync { object, taken, waits, timeouts, waited, wait_max } => {
                let spec = self.workload.sync.get(object as usize)?;
                let stats = SyncStats { taken, waits, timeouts, waited_ns: waited, wait_max_ns: wait_max };
                *self.sync.get_mut(object as usize)? = SyncReport::new(&spec.name, spec.kind, stats);
            }
            Note::PolicyRefused { at, part, text } => {
                self.workload.policy.as_ref()?;
                if part == 0 {
                    self.refused.push((Nanos::new(at), Vec::new()));
                }
                let (_, words) = self.refused.last_mut().filter(|(of, _)| of.get() == at)?;
                words.extend(text.iter().copied().take_while(|byte| *byte != 0));
            }
            Note::Policy { taken, slow_times, slow_at, epoch, lost_at, lost } => {
                self.workload.policy.as_ref()?;
                let lost = match lost {
                    loss::NEVER => None,
                    loss::SILENT => Some(Lost::Silent),
                    loss::EXITED => Some(Lost::Exited),
                    loss::CUT_OFF => Some(Lost::CutOff),
                    _ => return None,
                };
                let refused = std::mem::take(&mut self.refused).into_iter();
                let refused = refused.map(|(at, why)| (at, String::from_utf8_lossy(&why).into_owned()));
                let slow = (slow_times as usize, Nanos::new(slow_at));
                let lost = lost.map(|why| (Nanos::new(lost_at), why));
                self.policy = Some((Story::counted(taken.into(), refused.collect(), slow, lost), epoch));
            }
            Note::Calls { endpoint, accepted, replied, failed } => {
                let (row, _) = self.calls.get_mut(endpoint as usize)?;
                row.calls += accepted;
                row.replies += replied;
                row.failures += failed;
            }
            Note::Replies { endpoint, count, times } => {
                let (_, replies) = self.calls.get_mut(endpoint as usize)?;
                for (made, took) in times.get(..count as usize)? {
                    replies.record(Nanos::new(*made), Nanos::new(made.checked_add(*took)?));
                }
            }
            Note::Polled { ring, mode, sleeps, overflow, busy_ns, spins_ns, charged_ns } => {
                let row = self.rings.get_mut(ring as usize)?;
                (row.sleeps, row.overflow) = (sleeps, overflow);
                (row.busy_ns, row.spins_ns) = (busy_ns, spins_ns);
                row.mode = match mode {
                    ring_mode::SYSCALL => "syscall",
                    ring_mode::RUNNING => "sqpoll-running",
                    ring_mode::SLEEPING => "sqpoll-sleeping",
                    _ => return None,
                }
                .to_owned();
                self.polled.0 += charged_ns;
                self.polled.1 += sleeps;
            }
            Note::Ring { ring, polled, submitted, completed, dropped, late, wakeups } => {
                let row = self.rings.get_mut(ring as usize)?;
                (row.submitted, row.completed, row.dropped) = (submitted, completed, dropped);
                (row.late, row.wakeups) = (late, wakeups);
                row.mode = if polled { "sqpoll-running" } else { "syscall" }.to_owned();
                self.polled.2 += dropped;
            }
        }
        Some(())
    }

    /// The context that a note names, and its row; `None` if there is none.
    fn row_of(&self, (table, instance): (u32, u32)) -> Option<((usize, usize), usize)> {
        let named = (table as usize, instance as usize);
        let row = self.known.iter().position(|(_, known)| *known == named)?;
        Some((named, row))
    }

    /// What a reader of the report should know of the policy service.
    pub fn policy_notices(&self) -> Vec<String> {
        let name = |target: ThreadTarget| {
            let thread = &self.workload.threads[target.thread];
            thread.instance_name(target.instance.unwrap_or(0) as usize)
        };
        match (&self.policy, &self.workload.policy) {
            (Some((story, epoch)), Some(spec)) => {
                story.notices(&name(spec.service), spec.recovery.map(name).as_deref(), Epoch(*epoch))
            }
            _ => Vec::new(),
        }
    }

    /// What became of the calls to the endpoints that were called.
    pub fn endpoint_reports(&mut self) -> Vec<EndpointReport> {
        let called = self.calls.iter_mut().filter(|(row, _)| row.calls > 0);
        let row = |(row, replies): &mut (EndpointReport, Responses)| EndpointReport {
            pending: row.calls.saturating_sub(row.replies + row.failures),
            latency_ns: replies.summary(),
            ..row.clone()
        };
        called.map(row).collect()
    }

    /// The run has ended at `end`: jobs that were due before and not done are missed.
    pub fn close(&mut self, end: Nanos) {
        for (row, grant) in self.contexts.iter_mut().zip(&self.grants) {
            row.granted_ns = grant.available(end).get();
        }
        // Rows are in the order of the kernel's numbers; those that it never had come last.
        let mut order: Vec<usize> = (0..self.known.len()).collect();
        order.sort_by_key(|place| self.known[*place].0.wrapping_sub(1));
        self.contexts = order.iter().map(|place| self.contexts[*place].clone()).collect();
        self.known = order.into_iter().map(|place| self.known[place]).collect();
        for ((jobs, period), lived) in self.jobs.iter_mut().zip(&self.periods).zip(&self.lived) {
            if *lived && !period.is_zero() {
                jobs.end_life(end, *period, end, false);
            }
        }
        for (jobs, counts) in self.jobs.iter().zip(&mut self.counts) {
            counts.misses = counts.misses.max(jobs.misses());
        }
    }
}

/// The contexts that are nodes of islands, each with its island.
fn nodes(workload: &Workload) -> impl Iterator<Item = (usize, (usize, usize))> {
    workload.islands.iter().enumerate().flat_map(|(island, spec)| {
        let node = move |target: &ContextTarget| (target.context, target.instance.unwrap_or(0) as usize);
        spec.nodes.iter().map(move |target| (island, node(target)))
    })
}

/// What became of a lease, in words; `None` if the number means nothing.
fn lease_end(state: u32) -> Option<String> {
    // In the order of the kernel's `LeaseEnd`.
    const ENDS: [&str; 9] = [
        "live",
        "revoked",
        "released",
        "expired",
        "process-exit",
        "service-replaced",
        "logout",
        "superseded",
        "gone",
    ];
    if state == lease_state::NOT_ASKED {
        return Some("not asked for".to_owned());
    }
    if let Some(code) = state.checked_sub(lease_state::REFUSED) {
        let code = CapError::try_from(u16::try_from(code).ok()?).ok()?;
        return Some(format!("refused: {code}"));
    }
    let end = state.checked_sub(lease_state::GRANTED)?;
    ENDS.get(end as usize).map(|end| (*end).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        let text = "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
             [[thread]]\nname = \"a\"\ncount = 2\nprogram = [\"run 1ms\", \"every 10ms\"]\n";
        mainspring_workload::parse("test.toml", text).expect("the test's workload is one")
    }

    const COUNTED: Note = Note::Counted { instance: 0, misses: 1, timeouts: 2, refusals: 3, failures: 4 };
    const CONTEXT: Note = Note::Context {
        context: (0, 0),
        id: 1,
        cpu: 3,
        place: place::LENT,
        used: 7,
        donated: 5,
        depletions: 2,
        misses: 1,
        overshoot: 9,
    };

    #[test]
    fn notes_name_threads_and_carry_counts() {
        let workload = workload();
        let mut notes = Notes::new(&workload, false);
        assert_eq!(notes.take(Note::Started { instance: 1, slot: 2 }), Some(()));
        assert_eq!(notes.take(COUNTED), Some(()));
        assert_eq!(notes.take(CONTEXT), Some(()));
        assert_eq!(notes.threads, ["(unknown)", "(unknown)", "a.1"]);
        assert_eq!(
            notes.counts[0],
            Counts { misses: 1, timeouts: 2, refusals: 3, failures: 4, ..Counts::default() }
        );
        let row = &notes.contexts[0];
        assert_eq!((row.name.as_str(), row.cpu, row.used_ns, row.donated_ns), ("c", Some(3), 7, 5));
        assert_eq!(row.state, "donated");
    }

    #[test]
    fn jobs_come_back_with_their_times_and_those_that_were_not_done_are_missed_at_the_end() {
        let workload = workload();
        let mut notes = Notes::new(&workload, false);
        let ms = 1_000_000;
        assert_eq!(notes.take(Note::Lives { instance: 0, at: ms }), Some(()));
        let job = Note::Job { instance: 0, started: ms, finished: 13 * ms, period: 10 * ms };
        assert_eq!(notes.take(job), Some(()));
        notes.close(Nanos::new(40 * ms));
        assert_eq!(notes.counts[0].misses, 2, "one was late, and the next was never done");
        assert_eq!(notes.counts[1].misses, 0, "an instance that never lived has missed nothing");
        let (_, missed, _) = notes.jobs.remove(0).report("a.0");
        assert_eq!(missed.iter().map(|miss| miss.time_ns / ms).collect::<Vec<_>>(), [11, 31]);
    }

    #[test]
    fn contexts_are_in_the_order_of_their_numbers_on_the_kernel() {
        let text = "[[context]]\nname = \"late\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
             [[context]]\nname = \"early\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
             [[thread]]\nname = \"a\"\ncontext = \"late\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n\
             [[thread]]\nname = \"b\"\ncontext = \"early\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n";
        let workload = mainspring_workload::parse("test.toml", text).expect("the test's workload is one");
        let mut notes = Notes::new(&workload, false);
        let Note::Context { cpu, place, used, donated, depletions, misses, overshoot, .. } = CONTEXT else {
            return;
        };
        let told = |context, id| Note::Context {
            context,
            id,
            cpu,
            place,
            used,
            donated,
            depletions,
            misses,
            overshoot,
        };
        assert_eq!(notes.take(told((0, 0), 2)), Some(()));
        assert_eq!(notes.take(told((1, 0), 2)), None, "two with one number");
        assert_eq!(notes.take(told((1, 0), 1)), Some(()));
        notes.close(Nanos::new(1));
        let names: Vec<_> = notes.contexts.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["early", "late"]);
    }

    #[test]
    fn leases_rings_and_islands_are_told_in_words() {
        let text = "[[ring]]\nname = \"disk\"\nowner = \"a\"\nsqpoll = true\n\
             [[lease]]\nname = \"one\"\ncpus = [1]\nthread = \"p\"\nmode = \"kernel-sqpoll\"\nring = \"disk\"\n\
             [[thread]]\nname = \"p\"\ncpus = [1]\nprogram = [\"poll disk\"]\n\
             [[thread]]\nname = \"a\"\nprogram = [\"submit disk 1\", \"complete disk 1\", \"sleep 1ms\"]\n";
        let text = format!("[machine]\ncpus = 2\n{text}");
        let workload = mainspring_workload::parse("test.toml", &text).expect("the test's workload is one");
        let mut notes = Notes::new(&workload, false);
        let lease =
            |state| Note::Lease { lease: 0, state, activations: 2, suppressed: 3, polled_ns: 5, sleeps: 4 };
        assert_eq!(notes.take(lease(lease_state::GRANTED + 1)), Some(()));
        let ring = Note::Ring {
            ring: 0,
            polled: false,
            submitted: 9,
            completed: 8,
            dropped: 1,
            late: 0,
            wakeups: 2,
        };
        assert_eq!(notes.take(ring), Some(()));
        let row = &notes.leases[0];
        assert_eq!((row.state.as_str(), row.thread.as_str(), row.ticks_suppressed), ("revoked", "p", 3));
        assert_eq!((notes.rings[0].submitted, notes.rings[0].sleeps), (9, 4));
        assert_eq!(notes.polled, (5, 4, 1));
        assert_eq!(notes.take(lease(lease_state::GRANTED + 9)), None, "an end that there is not");
        assert_eq!(notes.take(lease(lease_state::REFUSED + 0xffff)), None, "an error that there is not");
        assert_eq!(notes.take(island(0, false)), None, "an island that there is not");
    }

    fn island(left: u64, shut_down: bool) -> Note {
        Note::Island { island: 0, refused: 0, admitted: 10 * MS, left, shut_down }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_context_is_granted_time_on_its_terms_while_its_island_is_there() {
        let text = "[[context]]\nname = \"node\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
             [[context]]\nname = \"plain\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
             [[island]]\nname = \"i\"\nperiod = \"10ms\"\nnodes = [\"node\"]\noverrun = \"shutdown\"\n\
             [[thread]]\nname = \"a\"\ncontext = \"node\"\nprogram = [\"run 2ms\", \"every 10ms\"]\n\
             [[thread]]\nname = \"b\"\ncontext = \"plain\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n";
        let workload = mainspring_workload::parse("test.toml", text).expect("the test's workload is one");
        let granted = |told: &[Note]| {
            let mut notes = Notes::new(&workload, false);
            assert_eq!(told.iter().filter_map(|note| notes.take(*note)).count(), told.len());
            notes.close(Nanos::new(100 * MS));
            let granted: Vec<u64> = notes.contexts.iter().map(|row| row.granted_ns / MS).collect();
            (granted, notes.islands.remove(0).reason)
        };
        assert_eq!(granted(&[]).0, [0, 10], "an island that did not ask has nothing");
        assert_eq!(granted(&[island(0, false)]), (vec![9, 10], "admitted at 10ms".to_owned()));
        assert_eq!(
            granted(&[island(40 * MS, true)]),
            (vec![3, 10], "admitted at 10ms; shutdown at 40ms".to_owned())
        );
        assert_eq!(granted(&[island(20 * MS, false)]).1, "admitted at 10ms; left at 20ms");
        let adjusted =
            |context, at| Note::Adjusted { context, at, budget: 2 * MS, period: 10 * MS, deadline: 10 * MS };
        let told = [adjusted((0, 0), 5 * MS), adjusted((1, 0), 50 * MS), island(0, false)];
        assert_eq!(granted(&told).0, [2 * 9, 5 + 2 * 5]);
        let mut notes = Notes::new(&workload, false);
        assert_eq!(notes.take(adjusted((2, 0), 0)), None, "a context that there is not");
    }

    #[test]
    fn rings_that_threads_poll_and_calls_are_told_in_numbers() {
        let text = "[[ring]]\nname = \"disk\"\nowner = \"a\"\nsqpoll = true\n\
             [[thread]]\nname = \"p\"\nprogram = [\"poll disk\"]\n\
             [[thread]]\nname = \"a\"\nprogram = [\"submit disk 1\", \"complete disk 1\", \"call x\", \"sleep 1ms\"]\n\
             [[thread]]\nname = \"b\"\nprogram = [\"recv x\", \"reply\"]\n";
        let workload = mainspring_workload::parse("test.toml", text).expect("the test's workload is one");
        let mut notes = Notes::new(&workload, false);
        let polled = |ring, mode| Note::Polled {
            ring,
            mode,
            sleeps: 4,
            overflow: 1,
            busy_ns: 7,
            spins_ns: 5,
            charged_ns: 12,
        };
        assert_eq!(notes.take(polled(0, ring_mode::SLEEPING)), Some(()));
        let row = &notes.rings[0];
        assert_eq!((row.mode.as_str(), row.sleeps, row.busy_ns), ("sqpoll-sleeping", 4, 7));
        assert_eq!(notes.polled, (12, 4, 0));
        assert_eq!(notes.take(polled(1, ring_mode::SLEEPING)), None, "a ring that there is not");
        assert_eq!(notes.take(polled(0, 9)), None, "a mode that there is not");
        let calls = |endpoint| Note::Calls { endpoint, accepted: 5, replied: 3, failed: 1 };
        let replies = |count| Note::Replies { endpoint: 0, count, times: [(10, 2), (20, 8), (0, 0)] };
        // Two processes tell of theirs.
        assert_eq!([calls(0), calls(0), replies(2)].map(|note| notes.take(note)), [Some(()); 3]);
        assert_eq!(notes.take(calls(1)), None, "an endpoint that there is not");
        assert_eq!(notes.take(replies(4)), None, "more times than there are");
        let row = notes.endpoint_reports().remove(0);
        assert_eq!((row.calls, row.replies, row.failures, row.pending), (10, 6, 2, 2));
        assert_eq!(row.latency_ns.map(|took| (took.max, took.max_at_ns)), Some((8, 20)));
    }

    #[test]
    fn a_note_of_what_is_not_there_is_refused() {
        let workload = workload();
        let mut notes = Notes::new(&workload, false);
        assert_eq!(notes.take(Note::Started { instance: 2, slot: 0 }), None);
        assert_eq!(notes.take(Note::Started { instance: 0, slot: u32::MAX }), None);
        assert_eq!(
            notes.take(Note::Counted { instance: 2, misses: 0, timeouts: 0, refusals: 0, failures: 0 }),
            None
        );
        assert_eq!(notes.take(Note::Lives { instance: 2, at: 0 }), None);
        assert_eq!(notes.take(Note::Job { instance: 0, started: 0, finished: 0, period: 0 }), None);
        let Note::Context { cpu, place, used, donated, depletions, misses, overshoot, .. } = CONTEXT else {
            return;
        };
        for (context, id) in [((0, 1), 1), ((1, 0), 1), ((0, 0), 0)] {
            let other =
                Note::Context { context, id, cpu, place, used, donated, depletions, misses, overshoot };
            assert_eq!(notes.take(other), None);
        }
    }
}
