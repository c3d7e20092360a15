//! What a running thread does next: its program, step by step, until it needs CPU time or stops.

use super::Machine;
use super::thread::{FOREVER, Home, Thread};
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_sched::{QuotaError, Stop, Timeout, Via, WaitKind};
use mainspring_workload::{Span, Step, ThreadTarget};

/// How a thread's zero-time steps ended.
#[derive(Debug)]
pub(super) enum Progress {
    /// It computes.
    Compute,
    /// It stops.
    Stop(Stop),
    /// It ends.
    Exit,
}

/// How one step ended.
enum Done {
    Next,
    Stay(Progress),
}

impl Machine<'_> {
    /// Runs the steps of `thread`, which has CPU `cpu`, up to the first that takes time.
    pub(super) fn execute(&mut self, cpu: usize, thread: usize) -> Progress {
        loop {
            if !self.threads[thread].remaining.is_zero() {
                return Progress::Compute;
            }
            let spec = &self.workload.threads[self.threads[thread].spec as usize];
            if self.threads[thread].pc as usize == spec.program.len() {
                self.threads[thread].pc = 0;
                self.threads[thread].rounds += 1;
                if spec.times.is_some_and(|times| self.threads[thread].rounds >= times) {
                    return Progress::Exit;
                }
            }
            let step = &spec.program[self.threads[thread].pc as usize];
            self.threads[thread].pc += 1;
            if let Done::Stay(progress) = self.step(cpu, thread, step) {
                return progress;
            }
        }
    }

    fn step(&mut self, cpu: usize, thread: usize, step: &Step) -> Done {
        match *step {
            Step::Run(span) => {
                self.threads[thread].remaining = self.threads[thread].random.draw(span);
                Done::Next
            }
            Step::RunForever => {
                self.threads[thread].remaining = FOREVER;
                Done::Next
            }
            Step::Sleep(span) => {
                let length = self.threads[thread].random.draw(span);
                self.sleep_until(thread, self.now + length)
            }
            Step::Every(period) => self.every(thread, period),
            Step::Yield => Done::Stay(Progress::Stop(Stop::Yielded)),
            Step::Park { timeout } => self.park(thread, timeout),
            Step::Unpark(target) => {
                for index in self.targets(target) {
                    self.unpark(cpu, index);
                }
                Done::Next
            }
            Step::Call { endpoint, timeout } => self.call(cpu, thread, endpoint, timeout),
            Step::Recv { endpoint, timeout } => self.receive(thread, endpoint, timeout),
            Step::Reply => {
                self.reply(cpu, thread);
                Done::Next
            }
            Step::Spawn(table) => {
                self.spawn(cpu, thread, table);
                Done::Next
            }
            Step::Join { target, timeout } => self.join(thread, target, timeout),
            Step::Weight(weight) => {
                if let Some(home) = self.threads[thread].home {
                    // The running thread sits where its home says; a refusal would be a stale home.
                    let set = self.core_set_weight(home.cpu(), home.seat, weight);
                    debug_assert!(set.is_ok(), "a running thread has a seat");
                    self.threads[thread].stats.weight = weight.get();
                }
                Done::Next
            }
            Step::Exit => Done::Stay(Progress::Exit),
        }
    }

    /// The instances that a step names.
    fn targets(&self, target: ThreadTarget) -> std::ops::Range<usize> {
        let base = self.bases[target.thread];
        match target.instance {
            Some(instance) => base + instance as usize..base + instance as usize + 1,
            None => base..base + self.workload.threads[target.thread].instances(),
        }
    }

    /// Blocks `thread`, with a timeout if given; a wait that the quota refuses is skipped and counted.
    fn block(&mut self, thread: usize, kind: WaitKind, deadline: Option<Nanos>) -> Done {
        let timeout = match deadline {
            None => None,
            Some(deadline) => match self.quota.take(self.threads[thread].process) {
                Ok(permit) => Some(Timeout { deadline, user_data: self.threads[thread].wait_number, permit }),
                Err(
                    QuotaError::Process { .. }
                    | QuotaError::System { .. }
                    | QuotaError::UnknownProcess { .. },
                ) => {
                    self.threads[thread].stats.refusals += 1;
                    return Done::Next;
                }
            },
        };
        self.threads[thread].wait = Some(kind);
        Done::Stay(Progress::Stop(Stop::Blocked(kind, timeout)))
    }

    fn deadline(&mut self, thread: usize, timeout: Option<Span>) -> Option<Nanos> {
        timeout.map(|span| self.now + self.threads[thread].random.draw(span))
    }

    /// Names the wait that is about to begin.
    fn begin_wait(&mut self, thread: usize) {
        self.threads[thread].wait_number += 1;
    }

    fn sleep_until(&mut self, thread: usize, deadline: Nanos) -> Done {
        if deadline <= self.now {
            return Done::Next;
        }
        self.begin_wait(thread);
        self.block(thread, WaitKind::Sleep, Some(deadline))
    }

    fn every(&mut self, thread: usize, period: Nanos) -> Done {
        let now = self.now;
        let Thread { start, periods, stats, .. } = &mut self.threads[thread];
        let passed = (now - *start).get() / period.get();
        let on_time = (now - *start).get().is_multiple_of(period.get());
        // The multiple that is just now is met, not missed.
        let behind = if on_time { passed.saturating_sub(1) } else { passed };
        if behind > *periods {
            stats.misses += behind - *periods;
            *periods = behind;
        }
        *periods += 1;
        let deadline = *start + Nanos::new(period.get().saturating_mul(*periods));
        self.sleep_until(thread, deadline)
    }

    fn park(&mut self, thread: usize, timeout: Option<Span>) -> Done {
        if std::mem::take(&mut self.threads[thread].unpark_pending) {
            return Done::Next;
        }
        let deadline = self.deadline(thread, timeout);
        self.begin_wait(thread);
        self.block(thread, WaitKind::Park, deadline)
    }

    fn unpark(&mut self, cpu: usize, target: usize) {
        if self.threads[target].home.is_none() {
            return;
        }
        if self.threads[target].wait == Some(WaitKind::Park) {
            self.wake_thread(target, Some(cpu));
        } else {
            self.threads[target].unpark_pending = true;
        }
    }

    fn call(&mut self, cpu: usize, thread: usize, endpoint: usize, timeout: Option<Span>) -> Done {
        let deadline = self.deadline(thread, timeout);
        self.begin_wait(thread);
        let blocked = self.block(thread, WaitKind::Call, deadline);
        if matches!(blocked, Done::Next) {
            return blocked;
        }
        let id = self.threads[thread].wait_id();
        while let Some(receiver) = self.endpoints[endpoint].receivers.pop_front() {
            let server = receiver.thread as usize;
            if self.threads[server].is_waiting(receiver, WaitKind::Receive) {
                self.threads[server].serving.push(id);
                self.hand_over(cpu, server);
                return blocked;
            }
        }
        self.endpoints[endpoint].calls.push_back(id);
        blocked
    }

    fn receive(&mut self, thread: usize, endpoint: usize, timeout: Option<Span>) -> Done {
        while let Some(call) = self.endpoints[endpoint].calls.pop_front() {
            if self.threads[call.thread as usize].is_waiting(call, WaitKind::Call) {
                self.threads[thread].serving.push(call);
                return Done::Next;
            }
        }
        let deadline = self.deadline(thread, timeout);
        self.begin_wait(thread);
        let blocked = self.block(thread, WaitKind::Receive, deadline);
        if matches!(blocked, Done::Stay(_)) {
            let id = self.threads[thread].wait_id();
            self.endpoints[endpoint].receivers.push_back(id);
        }
        blocked
    }

    fn reply(&mut self, cpu: usize, thread: usize) {
        let Some(call) = self.threads[thread].serving.pop() else { return };
        let caller = call.thread as usize;
        if self.threads[caller].is_waiting(call, WaitKind::Call) {
            self.hand_over(cpu, caller);
        }
    }

    fn spawn(&mut self, cpu: usize, thread: usize, table: usize) {
        let base = self.bases[table];
        let mut instances = base..base + self.workload.threads[table].instances();
        let Some(free) = instances.find(|index| self.threads[*index].home.is_none()) else {
            self.threads[thread].stats.refusals += 1;
            return;
        };
        let cpu_id = self.cpu_id(cpu);
        let place = self.place_near(free, cpu_id);
        let child = self.threads[free].identity;
        self.admit(free, place, Some(cpu));
        let spawned = &mut self.threads[thread].spawned;
        spawned.retain(|(of, _)| *of != table);
        spawned.push((table, child));
    }

    /// The creator's CPU if the child may run there, else the child's lowest.
    fn place_near(&self, child: usize, cpu: CpuId) -> usize {
        match &self.threads[child].affinity {
            affinity if affinity.allows(cpu) => cpu.index(),
            mainspring_sched::Affinity::Only(cpus) => cpus.iter().next().map_or(0, CpuId::index),
            mainspring_sched::Affinity::Any => cpu.index(),
        }
    }

    /// Waits for one of the instances that have not ended; the step is taken again until all have.
    fn join(&mut self, thread: usize, target: ThreadTarget, timeout: Option<Span>) -> Done {
        let spawned = self.threads[thread].spawned.iter().find(|(table, _)| *table == target.thread);
        let awaited = match spawned {
            Some((_, child)) => self.alive(*child).then_some(child.index() as usize),
            None => self.targets(target).find(|index| !self.has_ended(*index)),
        };
        let Some(awaited) = awaited else {
            self.threads[thread].join_deadline = None;
            return Done::Next;
        };
        let deadline = match self.threads[thread].join_deadline {
            // One instance ended at the last moment, and there is no time left for the next.
            Some(deadline) if deadline <= self.now => {
                self.threads[thread].join_deadline = None;
                self.threads[thread].stats.timeouts += 1;
                return Done::Next;
            }
            Some(deadline) => Some(deadline),
            None => self.deadline(thread, timeout),
        };
        self.begin_wait(thread);
        let blocked = self.block(thread, WaitKind::Join, deadline);
        if matches!(blocked, Done::Next) {
            self.threads[thread].join_deadline = None;
            return blocked;
        }
        self.threads[thread].join_deadline = deadline;
        self.threads[thread].pc -= 1;
        let id = self.threads[thread].wait_id();
        self.threads[awaited].joiners.push(id);
        blocked
    }

    /// The `join` that `thread` is at has timed out: it goes on with the next step.
    pub(super) fn give_up_join(&mut self, thread: usize) {
        self.threads[thread].join_deadline = None;
        self.threads[thread].pc += 1;
    }

    fn alive(&self, thread: ThreadRef) -> bool {
        let instance = &self.threads[thread.index() as usize];
        instance.identity == thread && instance.home.is_some()
    }

    /// Whether an instance has lived and ended. One that has not started yet is still to be waited for.
    fn has_ended(&self, index: usize) -> bool {
        self.threads[index].home.is_none() && self.threads[index].identity.generation() > 0
    }

    /// Admits instance `index` on CPU `cpu`; its creator runs on `from`.
    pub(super) fn admit(&mut self, index: usize, cpu: usize, from: Option<usize>) {
        let entity = self.new_life(index);
        match self.core_accept(cpu, entity, Via::Admit) {
            Ok((seat, woken)) => {
                self.threads[index].home = Some(Home::new(cpu, seat));
                self.kick(cpu, woken.reschedule, index, from);
            }
            Err(refused) => {
                debug_assert!(false, "{refused}");
                self.threads[index].stats.refusals += 1;
            }
        }
    }
}
