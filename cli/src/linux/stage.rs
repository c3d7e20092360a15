//! What the players of a run share: who lives, who waits for whom, and the one thread that starts them.
//!
//! Conserved: an instance lives one life at a time. Its count of lives is odd from the moment when somebody decides to
//! start it until it has ended, and whoever raises it to odd sees to it that it starts.

use super::LinuxError;
use super::contexts::Contexts;
use super::endpoint::Endpoint;
use super::player;
use crate::machine_run::{Counts, instances};
use mainspring::{Budget, Cx, Nursery, Parker, Runtime, Schedule, Snapshot, SpawnError, TaskState};
use mainspring_abi::{Nanos, ProcessId};
use mainspring_random::{Random, Stream};
use mainspring_record::jobs::Jobs;
use mainspring_report::EndpointReport;
use mainspring_sched::{WaitPermit, WaitQuota};
use mainspring_workload::{Operation, Start, ThreadSpec, ThreadTarget, TimedOperation, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How often the one who starts the others looks at the time at least: for the progress bar.
const LOOK: Duration = Duration::from_millis(50);

/// What others see of an instance.
#[derive(Debug, Default)]
pub struct Instance {
    pub table: usize,
    /// Its `park` steps.
    pub park: Parker,
    /// Any other wait of its own: for an answer, a call, an end. What has come is looked up where it would be.
    pub bell: Parker,
    /// What it draws from, in all its lives; taken by the life under way.
    pub random: Mutex<Option<Random>>,
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
}

impl Instance {
    fn is_alive(&self) -> bool {
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

/// A run.
pub struct Stage<'w> {
    pub workload: &'w Workload,
    pub seed: u64,
    pub instances: Vec<Instance>,
    pub endpoints: Vec<Endpoint>,
    contexts: Contexts,
    bases: Vec<usize>,
    orders: Sender<usize>,
    taken: Mutex<Receiver<usize>>,
    quota: Mutex<WaitQuota>,
    exhausted: Mutex<Vec<String>>,
}

impl<'w> Stage<'w> {
    /// A run of `workload`, before it begins.
    /// With `list`, each of its jobs is listed.
    pub fn new(workload: &'w Workload, runtime: &Runtime, seed: u64, list: bool) -> Result<Self, LinuxError> {
        let mut bases = Vec::new();
        let mut instances = Vec::new();
        for (table, spec) in workload.threads.iter().enumerate() {
            bases.push(instances.len());
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
            contexts: Contexts::new(workload, runtime)?,
            bases,
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
        let base = self.bases[target.thread];
        match target.instance {
            Some(instance) => base + instance as usize..base + instance as usize + 1,
            None => base..base + self.workload.threads[target.thread].instances(),
        }
    }

    /// Starts instances when their time comes or others ask for it, until the run is over.
    pub fn direct<'scope>(
        &'scope self,
        nursery: &Nursery<'scope, '_>,
        duration: Duration,
        mut progress: impl FnMut(Duration),
    ) {
        let began = Instant::now();
        let orders = self.taken.lock().expect("no panic while it is held");
        let mut starts = self.starts();
        let mut operations: Vec<_> = self.workload.operations.iter().collect();
        operations.sort_by_key(|operation| Reverse(operation.time));
        loop {
            let now = began.elapsed();
            while operations.last().is_some_and(|next| duration_of(next) <= now) {
                self.operate(operations.pop());
            }
            while let Some(&Reverse((at, instance))) = starts.peek()
                && at <= now
            {
                starts.pop();
                if self.begin(instance).is_some() {
                    self.start(nursery, instance);
                }
            }
            if now >= duration {
                return;
            }
            progress(now);
            let next = starts.peek().map_or(duration, |Reverse((at, _))| *at);
            let next = operations.last().map_or(next, |operation| next.min(duration_of(operation)));
            let wait = next.min(duration).saturating_sub(now).min(LOOK);
            if let Ok(instance) = orders.recv_timeout(wait) {
                self.start(nursery, instance);
            }
        }
    }

    /// Does what an `[[at]]` table says.
    fn operate(&self, operation: Option<&TimedOperation>) {
        match operation.map(|operation| operation.operation) {
            Some(Operation::Revoke(target)) => self.contexts.revoke(self.workload, target),
            Some(Operation::CloseEndpoint(endpoint)) => self.endpoints[endpoint].calls.close(),
            Some(_) => unreachable!("refused before the run"),
            None => {}
        }
    }

    /// When each instance that starts by itself does.
    fn starts(&self) -> BinaryHeap<Reverse<(Duration, usize)>> {
        let mut starts = BinaryHeap::new();
        for (number, instance) in self.instances.iter().enumerate() {
            let mut random = Random::new(self.seed, Stream::Thread(number));
            if let Start::At(span) = self.workload.threads[instance.table].start {
                starts.push(Reverse((duration(random.draw(span)), number)));
            }
            *instance.random.lock().expect("no panic while it is held") = Some(random);
        }
        starts
    }

    fn start<'scope>(&'scope self, nursery: &Nursery<'scope, '_>, instance: usize) {
        let spec = self.spec(instance);
        let schedule = Schedule {
            thread: Some(instance),
            process: spec.process as u32,
            weight: spec.weight,
            class: spec.latency,
            request: spec.request,
            workers: spec.cpus,
        };
        let limit = spec.budget.unwrap_or_default();
        let budget = Budget {
            ops: limit.ops.unwrap_or(u32::MAX),
            memory: limit.memory.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            spawn_count: limit.spawns.unwrap_or(0),
            channel_ops: limit.channel_ops.unwrap_or(0),
            syscalls: limit.syscalls.unwrap_or(0),
        };
        let builder = || nursery.builder().budget(budget).schedule(schedule.clone());
        let live = move |cx: &Cx| player::live(self, instance, cx);
        let number = instance - self.bases[self.instances[instance].table];
        let context = spec.context.and_then(|table| self.contexts.of(table, number));
        let mut started = match context {
            Some(context) => builder().context(context).start(live),
            None => builder().start(live),
        };
        // One that was revoked, or whose CPU the thread may not use, leaves the thread without.
        if let Err(SpawnError::Context(_)) = started {
            started = builder().start(live);
        }
        if started.is_err() {
            self.refuse(instance);
            self.end(instance);
        }
    }

    /// Begins a life of an instance that has none. Whoever gets it sees to its start.
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
        let _ = self.orders.send(instance);
        Some((instance, life))
    }

    /// An instance has ended: those who wait for that go on.
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
        exhausted.iter().map(|name| format!("{name} has run out of its budget and stands still")).collect()
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
        let specs = self.workload.endpoints.iter().zip(&self.endpoints).enumerate();
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
        };
        self.instances.iter().map(counts).collect()
    }
}

/// When an operation is due.
fn duration_of(operation: &TimedOperation) -> Duration {
    duration(operation.time)
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
