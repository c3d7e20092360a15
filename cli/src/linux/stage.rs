//! What the players of a run share: who lives, who waits for whom, and the one thread that starts them.
//!
//! Conserved: an instance lives one life at a time. Its count of lives is odd from the decision to start it until it has
//! ended. The thread that raises the count to odd makes sure that the instance starts.

use super::LinuxError;
use super::contexts::{Contexts, Fault};
use super::endpoint::Endpoint;
use super::leases::Leases;
use super::policy::Policy;
use super::rings::Ring;
use super::sync::Objects;
use crate::machine_run::{Counts, instances};
use mainspring::{Parker, Runtime, Session, Snapshot, TaskState};
use mainspring_abi::{Nanos, ProcessId};
use mainspring_random::{Random, Stream};
use mainspring_record::jobs::Jobs;
use mainspring_report::{ContextReport, EndpointReport, IslandReport, LeaseReport, RingReport};
use mainspring_sched::{WaitPermit, WaitQuota};
use mainspring_workload::{Numbering, Start, Step, ThreadSpec, ThreadTarget, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What others see of an instance.
#[derive(Debug, Default)]
pub struct Instance {
    pub table: usize,
    /// Its `park` steps.
    pub park: Parker,
    /// Any other wait of its own: for an answer, a call, an end. What has come is looked up where it would be.
    pub bell: Parker,
    /// What it draws from, in all its lives.
    random: Mutex<Option<Random>>,
    /// Odd while it lives.
    lives: AtomicU32,
    joiners: Mutex<Vec<usize>>,
    /// The task of its present life.
    task: AtomicU64,
    /// What became of its periods.
    pub jobs: Mutex<Jobs>,
    /// The period of the `every` step that it comes to next.
    pub next_period: AtomicU64,
    pub timeouts: AtomicU64,
    pub refusals: AtomicU64,
    pub failures: AtomicU64,
    pub late: AtomicU64,
    pub dropped: AtomicU64,
    /// A context that it was given while it lives, and is to bind itself to, by number from 1 on; 0 for none.
    given: AtomicUsize,
    /// Its life is cut short from outside.
    pub killed: AtomicBool,
}

impl Instance {
    pub fn is_alive(&self) -> bool {
        !self.lives.load(Ordering::Acquire).is_multiple_of(2)
    }
}

/// Leave for a timed wait, until dropped.
#[derive(Debug)]
pub struct Permit<'s> {
    quota: &'s Mutex<WaitQuota>,
    permit: Option<WaitPermit>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.quota.lock().expect("no panic while it is held").give_back(permit);
        }
    }
}

/// The life of an instance, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(u32);

impl Life {
    pub fn number(self) -> u32 {
        self.0
    }
}

/// What the one who starts the others is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// To start an instance.
    Start(usize),
    /// To deal with a context that was used up.
    Fault(Fault),
}

/// What became of all that was granted.
#[derive(Debug)]
pub struct Accounts {
    pub contexts: Vec<ContextReport>,
    pub leases: Vec<LeaseReport>,
    pub islands: Vec<IslandReport>,
    pub rings: Vec<RingReport>,
    /// What the pollers of all rings used, how often they slept, and how many entries were dropped.
    pub polled: (u64, u64, u64),
}

/// A run.
pub struct Stage<'w> {
    pub workload: &'w Workload,
    pub seed: u64,
    pub instances: Vec<Instance>,
    pub endpoints: Arc<[Endpoint]>,
    pub contexts: Contexts<'w>,
    pub leases: Leases<'w>,
    pub rings: Vec<Arc<Ring>>,
    pub sync: Objects,
    pub policy: Option<Policy>,
    pub runtime: &'w Runtime,
    pub sessions: Vec<Session>,
    /// Loans that logouts left alone.
    pub loans_left: AtomicU64,
    /// What a reader of the report should know first.
    pub noticed: Mutex<Vec<String>>,
    numbers: Numbering,
    orders: Sender<Order>,
    pub taken: Mutex<Receiver<Order>>,
    quota: Mutex<WaitQuota>,
    exhausted: Mutex<Vec<String>>,
}

impl<'w> Stage<'w> {
    /// A run of `workload`, before it begins.
    /// With `list`, each of its jobs is listed.
    pub fn new(
        workload: &'w Workload,
        runtime: &'w Runtime,
        seed: u64,
        list: bool,
    ) -> Result<Self, LinuxError> {
        let numbers = workload.thread_numbers();
        let mut instances = Vec::new();
        for (table, spec) in workload.threads.iter().enumerate() {
            instances.extend((0..spec.instances()).map(|_| Instance {
                table,
                jobs: Mutex::new(Jobs::new(list)),
                ..Instance::default()
            }));
        }
        let (orders, taken) = channel();
        let machine = &workload.machine;
        let limit = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let quota = WaitQuota::new(
            limit(machine.waiters),
            limit(machine.waiters_per_process),
            workload.processes.len(),
        );
        Ok(Self {
            workload,
            seed,
            instances,
            endpoints: workload.endpoints.iter().map(|spec| Endpoint::new(runtime, spec)).collect(),
            contexts: Contexts::new(workload, runtime, orders.clone())?,
            leases: Leases::new(workload, runtime, &numbers),
            rings: workload
                .rings
                .iter()
                .map(|spec| Arc::new(Ring::new(spec, numbers.threads(spec.owner).start)))
                .collect(),
            sync: Objects::new(workload),
            policy: Policy::new(workload, runtime, &numbers)?,
            runtime,
            sessions: workload.sessions.iter().map_while(|_| runtime.open_session().ok()).collect(),
            loans_left: AtomicU64::new(0),
            noticed: Mutex::default(),
            numbers,
            orders,
            taken: Mutex::new(taken),
            quota: Mutex::new(quota),
            exhausted: Mutex::default(),
        })
    }

    /// The table of an instance.
    pub fn spec(&self, instance: usize) -> &'w ThreadSpec {
        &self.workload.threads[self.instances[instance].table]
    }

    /// The instances that a step names.
    pub fn targets(&self, target: ThreadTarget) -> Range<usize> {
        self.numbers.threads(target)
    }

    /// Whether the present life of an instance was cut short from outside.
    pub fn is_killed(&self, instance: usize) -> bool {
        self.instances[instance].killed.load(Ordering::Acquire)
    }

    /// Asks for a lease; whether it was granted.
    pub fn ask_for_lease(&self, lease: usize) -> bool {
        let spec = self.spec(self.leases.thread(lease));
        let session = spec.session.map(|session| self.sessions[session].name());
        let owner = (spec.process as u32, session);
        self.leases.ask(lease, owner, &self.contexts, &self.rings, &self.endpoints)
    }

    /// Which of its table's instances one is.
    pub fn number_in_table(&self, instance: usize) -> usize {
        instance - self.numbers.first(self.instances[instance].table)
    }

    /// The context of its table that an instance is bound to from its start, if there is one.
    pub fn due_to(&self, instance: usize) -> Option<usize> {
        self.contexts.of(self.spec(instance).context?, self.number_in_table(instance))
    }

    /// The context that an instance was given and has not taken yet.
    pub fn take_given(&self, instance: usize) -> Option<usize> {
        let given = &self.instances[instance].given;
        // Relaxed: a number, and nothing else hangs on it.
        let taken = if given.load(Ordering::Relaxed) == 0 { 0 } else { given.swap(0, Ordering::Relaxed) };
        taken.checked_sub(1)
    }

    pub fn give(&self, instance: usize, context: usize) {
        self.instances[instance].given.store(context + 1, Ordering::Relaxed);
    }

    /// When each instance that starts by itself does.
    pub fn starts(&self) -> BinaryHeap<Reverse<(Duration, usize)>> {
        let mut starts = BinaryHeap::new();
        for (number, instance) in self.instances.iter().enumerate() {
            if let Start::At(span) = self.workload.threads[instance.table].start {
                let at = self.with_random(number, |random| random.draw(span));
                starts.push(Reverse((duration(at), number)));
            }
        }
        starts
    }

    /// What an instance draws as it comes to `step`, in any of its lives.
    pub fn draw_amount(&self, number: usize, step: &Step) -> Option<Duration> {
        self.with_random(number, |random| self.workload.draw_amount(step, random)).map(duration)
    }

    /// Draws from the instance's own source of chance.
    pub fn with_random<R>(&self, number: usize, draw: impl FnOnce(&mut Random) -> R) -> R {
        let mut random = self.instances[number].random.lock().expect("no panic while it is held");
        draw(random.get_or_insert_with(|| Random::new(self.seed, Stream::Thread(number))))
    }

    /// Begins a life of an instance that has none. The caller has to start it.
    pub fn begin(&self, instance: usize) -> Option<Life> {
        let lives = &self.instances[instance].lives;
        let now = lives.load(Ordering::Acquire);
        let even = now.is_multiple_of(2);
        // AcqRel: the life before has ended, and what it left behind is seen.
        let begun = even && lives.compare_exchange(now, now + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        begun.then_some(Life(now + 1))
    }

    /// Begins a life of a free instance of `table`, by order of a player.
    pub fn spawn(&self, table: usize) -> Option<(usize, Life)> {
        let target = ThreadTarget { thread: table, instance: None };
        let (instance, life) = self.targets(target).find_map(|n| Some((n, self.begin(n)?)))?;
        // The receiver lives as long as the stage.
        let _ = self.orders.send(Order::Start(instance));
        Some((instance, life))
    }

    /// An instance has ended: the threads that wait for that go on.
    pub fn end(&self, instance: usize) {
        let this = &self.instances[instance];
        let joiners = {
            let mut joiners = this.joiners.lock().expect("no panic while it is held");
            this.lives.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut *joiners)
        };
        for joiner in joiners {
            self.instances[joiner].bell.unpark();
        }
        self.end_sync_of(instance);
        if let Some(policy) = &self.policy {
            policy.ended(instance);
        }
        self.rings.iter().for_each(|ring| ring.thread_ended(instance));
        let process = self.spec(instance).process;
        let lives = |other: &usize| self.spec(*other).process == process && self.instances[*other].is_alive();
        if !self.workload.leases.is_empty() && !(0..self.instances.len()).any(|other| lives(&other)) {
            self.runtime.end_process(process as u32);
        }
    }

    /// The present life of an instance, if it has one; the first, if it has not begun.
    pub fn life(&self, instance: usize) -> Option<Life> {
        match self.instances[instance].lives.load(Ordering::Acquire) {
            0 => Some(Life(1)),
            lives => (!lives.is_multiple_of(2)).then_some(Life(lives)),
        }
    }

    /// Whether that life is over; if not, `joiner`'s bell rings when it is.
    pub fn is_over_or_wait(&self, instance: usize, Life(life): Life, joiner: usize) -> bool {
        let this = &self.instances[instance];
        let mut joiners = this.joiners.lock().expect("no panic while it is held");
        let over = this.lives.load(Ordering::Acquire) > life;
        if !over && !joiners.contains(&joiner) {
            joiners.push(joiner);
        }
        over
    }

    /// An unpark is for the living.
    pub fn unpark(&self, instance: usize) {
        let this = &self.instances[instance];
        if this.is_alive() {
            this.park.unpark();
        }
    }

    /// Leave for one timed wait of an instance. A wait that the quota refuses is skipped and counted.
    pub fn permit(&self, instance: usize) -> Option<Permit<'_>> {
        let process = ProcessId::new(self.spec(instance).process as u32);
        let taken = self.quota.lock().expect("no panic while it is held").take(process);
        if taken.is_err() {
            self.refuse(instance);
        }
        Some(Permit { quota: &self.quota, permit: Some(taken.ok()?) })
    }

    /// A step was refused.
    pub fn refuse(&self, instance: usize) {
        self.instances[instance].refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Which task an instance is.
    pub fn set_task(&self, instance: usize, id: u64) {
        self.instances[instance].task.store(id, Ordering::Relaxed);
    }

    /// Notes who has run out of budget.
    pub fn look_at(&self, snapshot: &Snapshot) {
        let mut exhausted = self.exhausted.lock().expect("no panic while it is held");
        for (instance, (name, _)) in self.instances.iter().zip(instances(self.workload)) {
            let id = instance.task.load(Ordering::Relaxed);
            let task = snapshot.tasks.iter().find(|task| task.id.0 == id && id != 0);
            if task.is_some_and(|task| task.state == TaskState::BudgetExhausted) {
                exhausted.push(name);
            }
        }
    }

    /// What should be known before the numbers are read.
    pub fn notices(&self) -> Vec<String> {
        let exhausted = self.exhausted.lock().expect("no panic while it is held");
        let exhausted =
            exhausted.iter().map(|name| format!("{name} has run out of its budget and stands still"));
        let noticed = self.noticed.lock().expect("no panic while it is held").clone();
        let names: Vec<String> = instances(self.workload).map(|(name, _)| name).collect();
        let policy = self.policy.iter().flat_map(|policy| policy.notices(&names));
        let granted = self.contexts.notices().into_iter().chain(self.leases.notices());
        exhausted.chain(noticed).chain(granted).chain(policy).chain(self.deadlocks()).collect()
    }

    /// Loans that logouts found in flight.
    pub fn loans_left(&self) -> u64 {
        self.loans_left.load(Ordering::Relaxed)
    }

    /// The accounts of all that was granted, at the end of time and before any thread is stopped for it.
    pub fn close_accounts(&self, end: Nanos) -> Result<Accounts, LinuxError> {
        let names: Vec<String> = instances(self.workload).map(|(name, _)| name).collect();
        let rings = self.rings.iter().map(|ring| ring.report().map_err(LinuxError::Ring));
        let counted = self.rings.iter().map(|ring| ring.counted());
        Ok(Accounts {
            contexts: self.contexts.reports(end),
            leases: self.leases.reports(|instance| names[instance].clone()),
            islands: self.contexts.island_reports(),
            rings: rings.collect::<Result<_, _>>()?,
            polled: counted.fold((0, 0, 0), |(busy, sleeps, dropped), (charged, slept, late)| {
                (busy + charged.get(), sleeps + slept, dropped + late)
            }),
        })
    }

    /// The machine has stopped at `end`: closes the periods that are under way.
    pub fn close_jobs(&self, end: Nanos) {
        for instance in self.instances.iter().filter(|this| this.is_alive()) {
            let period = Nanos::new(instance.next_period.load(Ordering::Relaxed));
            if !period.is_zero() {
                instance.jobs.lock().expect("no panic while it is held").end_life(end, period, end, false);
            }
        }
    }

    /// What became of the periods of each instance.
    pub fn take_jobs(&self) -> Vec<Jobs> {
        let take =
            |this: &Instance| std::mem::take(&mut *this.jobs.lock().expect("no panic while it is held"));
        self.instances.iter().map(take).collect()
    }

    /// What became of the calls through each endpoint.
    pub fn endpoint_reports(&self) -> Vec<EndpointReport> {
        let specs = self.workload.endpoints.iter().zip(self.endpoints.iter()).enumerate();
        let rows = specs.map(|(n, (spec, endpoint))| endpoint.report(&spec.name, self.workload.users_of(n)));
        rows.filter(|row| row.calls > 0).collect()
    }

    /// What each instance counted.
    pub fn counts(&self) -> Vec<Counts> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = |this: &Instance| Counts {
            misses: this.jobs.lock().expect("no panic while it is held").misses(),
            timeouts: read(&this.timeouts),
            refusals: read(&this.refusals),
            failures: read(&this.failures),
            late: read(&this.late),
            dropped: read(&this.dropped),
        };
        self.instances.iter().map(counts).collect()
    }
}

/// A duration as the standard library has it.
pub fn duration(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_sim::{Options, run};
    use mainspring_workload::parse;

    /// Starts are seen from outside on both machines; the lengths of steps come from the same streams.
    #[test]
    fn a_seed_starts_the_threads_at_the_same_times_as_in_the_simulator() {
        let text = "[machine]\ncpus = 4\nduration = \"100ms\"\n[[thread]]\nname = \"a\"\ncount = 4\n\
                    start = \"1ms..50ms\"\ntimes = 1\nprogram = [\"run 1us..9us\"]\n";
        let workload = parse("test.toml", text).expect("the test's workload is one");
        for seed in [1, 2, 77] {
            let options = Options { seed, schedule: true, ..Options::default() };
            let report = run("test.toml", &workload, options).expect("it runs");
            let schedule = report.schedule.expect("asked for");
            let mut simulated: Vec<u64> = schedule.iter().map(|entry| entry.start_ns).collect();
            simulated.sort_unstable();
            let runtime = crate::linux::start(&workload).expect("a small one starts");
            let stage = Stage::new(&workload, &runtime, seed, false).expect("it has no contexts");
            let mut starts = stage.starts();
            let mut drawn = Vec::new();
            while let Some(Reverse((at, _))) = starts.pop() {
                drawn.push(at.as_nanos() as u64);
            }
            assert_eq!(drawn, simulated, "seed {seed}");
        }
    }
}
