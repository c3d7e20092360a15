//! What a running thread does next: its program, step by step, until it needs CPU time or stops.

use super::Machine;
use super::calls::Errand;
use super::script::Op;
use super::thread::{FOREVER, Request};
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_driver::contexts::{CallEnd, may_block};
use mainspring_driver::placement;
use mainspring_sched::hint::unlikely;
use mainspring_sched::{QuotaError, Stop, Timeout, WaitKind};
use mainspring_workload::{Batch, ContextTarget, Step, ThreadTarget};
use std::hint::cold_path;

/// How a thread goes on that cannot take its next step at once.
#[derive(Debug)]
pub(super) enum Progress {
    /// It stops.
    Stop(Stop),
    /// It ends.
    Exit,
    /// It waits for the answer of a server, which serves it on the caller's or the endpoint's context.
    Call { timeout: Option<Timeout>, server: usize, request: Request },
    /// It goes where a context is.
    Move(Errand),
    /// It asks for a lease, which may be for itself.
    Lease(usize),
}

/// How one step ended.
pub(super) enum Done {
    Next,
    Stay(Progress),
}

impl Machine<'_> {
    /// The thread at `index`, which has CPU `cpu` and has nothing to compute, takes its next step.
    #[inline(always)]
    pub(super) fn take_step(&mut self, cpu: usize, index: usize) {
        if unlikely(self.authority)
            && let Some(grant) = self.claimed(index)
        {
            return self.proceed(cpu, index, Progress::Move(Errand::Bind(grant)));
        }
        let thread = &mut self.threads[index];
        let op = self.script.at(thread.pc);
        thread.pc += 1;
        match op {
            Op::Run(range) => thread.remaining = thread.random.pick(range),
            Op::RunForever => thread.remaining = FOREVER,
            Op::Sleep(range) => {
                let deadline = self.now + thread.random.pick(range);
                self.sleep_until(cpu, index, deadline);
            }
            Op::Every(period) => self.every(cpu, index, period),
            Op::Yield => self.stop_and_decide(cpu, Stop::Yielded),
            Op::Again { first, times: None } => thread.pc = first,
            Op::Again { first, times: Some(times) } => {
                thread.pc = first;
                thread.rounds += 1;
                if thread.rounds >= times {
                    self.end_jobs(index, true);
                    self.exit(cpu);
                }
            }
            Op::Step(step) => {
                if let Done::Stay(progress) = self.step(cpu, index, step) {
                    self.proceed(cpu, index, progress);
                }
            }
        }
    }

    /// What a step of `thread`, which has `cpu`, came to.
    #[inline(never)]
    fn proceed(&mut self, cpu: usize, thread: usize, progress: Progress) {
        match progress {
            Progress::Stop(stop) => self.stop_and_decide(cpu, stop),
            Progress::Exit => {
                self.end_jobs(thread, true);
                self.exit(cpu);
            }
            Progress::Call { timeout, server, request } => {
                self.block_and_call(cpu, thread, timeout, server, request);
            }
            Progress::Move(errand) => self.run_errand(cpu, thread, errand),
            Progress::Lease(lease) => {
                self.grant_lease(lease, Some(thread));
            }
        }
    }

    /// One of the steps that are not frequent.
    #[inline(never)]
    fn step(&mut self, cpu: usize, thread: usize, step: &Step) -> Done {
        let begun = std::mem::take(&mut self.threads[thread].retakes);
        let random = &mut self.threads[thread].random;
        let amount = if begun { None } else { self.workload.draw_amount(step, random) };
        let wait_until = amount.map(|amount| self.now + amount);
        match *step {
            Step::Run(_) | Step::RunForever | Step::Sleep(_) | Step::Every(_) | Step::Yield => {
                unreachable!("{step:?} has an op of its own")
            }
            Step::RunDrawn(_) => {
                self.threads[thread].remaining = amount.unwrap_or_default();
                Done::Next
            }
            Step::SleepDrawn(_) => {
                if wait_until <= Some(self.now) {
                    return Done::Next;
                }
                self.begin_wait(thread);
                self.block(thread, WaitKind::Sleep, wait_until)
            }
            Step::Park { .. } => self.park(thread, wait_until),
            Step::Unpark(target) => {
                for index in self.targets(target) {
                    self.unpark(Some(cpu), index);
                }
                Done::Next
            }
            Step::Call(call) => self.call(cpu, thread, &call, wait_until),
            Step::Recv { endpoint, .. } => self.receive(cpu, thread, endpoint, wait_until),
            Step::Reply => {
                self.answer(cpu, thread, CallEnd::Reply);
                Done::Next
            }
            Step::Throw => {
                self.answer(cpu, thread, CallEnd::Exception);
                Done::Next
            }
            Step::Bind(target) => self.bind_step(thread, target),
            Step::Unbind => {
                if !self.release_context(thread) {
                    self.refuse_step(thread, "the thread has no context of its own");
                }
                Done::Next
            }
            Step::Revoke(target) => {
                for grant in self.grants.numbers.contexts(target) {
                    if !self.revoke_grant(grant, "step") {
                        self.refuse_step(thread, "the context is not there any more");
                    }
                }
                Done::Next
            }
            Step::Drain(target) => {
                let grant = self.own_instance(thread, target);
                self.drain_grant(grant);
                Done::Next
            }
            Step::Spawn(table) => {
                self.spawn(cpu, thread, table);
                Done::Next
            }
            Step::Join { target, .. } => self.join(thread, target, wait_until),
            Step::Weight(weight) => {
                if self.weight_for_later(thread, weight) {
                    return Done::Next;
                }
                if let Some(home) = self.threads[thread].home {
                    // The running thread sits where its home says; a refusal would be a stale home.
                    let set = self.core(home.cpu.index()).set_weight(home.seat, weight);
                    debug_assert!(set.is_ok(), "a running thread has a seat");
                    self.threads[thread].stats.weight = weight.get();
                }
                Done::Next
            }
            // Virtual threads have neither memory nor an operating system.
            Step::Alloc(_) | Step::Syscall => {
                self.refuse_step(thread, "a simulated thread has neither memory nor an operating system");
                Done::Next
            }
            Step::Exit => Done::Stay(Progress::Exit),
            Step::Lease(lease) => Done::Stay(Progress::Lease(lease)),
            Step::Release(lease) => {
                if !self.release_lease(lease) {
                    self.refuse_step(thread, "the lease is not granted");
                }
                Done::Next
            }
            Step::Submit { ring, entries, deadline, late } => {
                self.submit(cpu, thread, ring, &Batch { entries, deadline, late })
            }
            Step::Complete { ring, entries, .. } => self.complete(cpu, thread, ring, entries, wait_until),
            Step::Poll(ring) => self.poll_ring(thread, ring),
            Step::Lock { .. }
            | Step::Unlock(_)
            | Step::Down { .. }
            | Step::Up(_)
            | Step::Barrier { .. }
            | Step::Wait { .. }
            | Step::Signal(_)
            | Step::Broadcast(_) => self.sync_step(cpu, thread, step, wait_until),
            Step::Repeat { .. }
            | Step::For { .. }
            | Step::Either { .. }
            | Step::Or { .. }
            | Step::End { .. } => {
                self.follow_phase(thread);
                Done::Next
            }
        }
    }

    /// The step that `thread` has come to says which is the next.
    fn follow_phase(&mut self, thread: usize) {
        let now = self.now;
        let this = &mut self.threads[thread];
        let program = &self.workload.threads[this.spec as usize].program;
        let first = self.script.first(this.spec);
        // It has been counted already.
        let at = (this.pc - first) as usize - 1;
        this.pc = first + self.phases[thread].next(program, at, now, &mut this.random) as u32;
    }

    /// The instances that a step names.
    pub(super) fn targets(&self, target: ThreadTarget) -> std::ops::Range<usize> {
        self.numbers.threads(target)
    }

    /// Blocks `thread`, with a timeout if given; a wait that is refused is skipped and counted.
    pub(super) fn block(&mut self, thread: usize, kind: WaitKind, deadline: Option<Nanos>) -> Done {
        match self.enter_wait(thread, kind, deadline) {
            Some(timeout) => Done::Stay(Progress::Stop(Stop::Blocked(kind, timeout))),
            None => Done::Next,
        }
    }

    /// The timeout that `thread` waits with, if it may wait.
    #[inline(always)]
    fn enter_wait(
        &mut self,
        thread: usize,
        kind: WaitKind,
        deadline: Option<Nanos>,
    ) -> Option<Option<Timeout>> {
        if unlikely(self.authority)
            && let Some((cpu, seat)) = self.place_of(thread)
            && may_block(&self.cores[cpu], seat, kind).is_err()
        {
            self.refuse_step(thread, "on borrowed time a thread waits for calls alone");
            return None;
        }
        let timeout = match deadline {
            None => None,
            Some(deadline) => match self.quota.take(self.threads[thread].process) {
                Ok(permit) => Some(Timeout { deadline, user_data: 0, permit }),
                Err(
                    QuotaError::Process { .. }
                    | QuotaError::System { .. }
                    | QuotaError::UnknownProcess { .. },
                ) => {
                    cold_path();
                    self.refuse_step(thread, "no timed wait is left in the quota");
                    return None;
                }
            },
        };
        self.threads[thread].wait = Some(kind);
        Some(timeout)
    }

    /// A step of `thread` is refused, and its program goes on behind it.
    pub(super) fn refuse_step(&mut self, thread: usize, why: &'static str) {
        let stats = &mut self.threads[thread].stats;
        stats.refusals += 1;
        stats.first_refusal.get_or_insert((self.now, why));
    }

    /// `thread` comes to the same step again, which it has begun.
    pub(super) fn retake(&mut self, thread: usize) {
        self.threads[thread].pc -= 1;
        self.threads[thread].retakes = true;
    }

    /// `thread`, which was to take its step again, goes on with the next.
    pub(super) fn give_up_step(&mut self, thread: usize) {
        self.threads[thread].pc += 1;
        self.threads[thread].retakes = false;
    }

    /// Names the wait that is about to begin.
    pub(super) fn begin_wait(&mut self, thread: usize) {
        self.threads[thread].wait_number += 1;
    }

    #[inline(always)]
    pub(super) fn sleep_until(&mut self, cpu: usize, thread: usize, deadline: Nanos) {
        if unlikely(deadline <= self.now) {
            return;
        }
        self.begin_wait(thread);
        if let Some(timeout) = self.enter_wait(thread, WaitKind::Sleep, Some(deadline)) {
            self.stop_and_decide(cpu, Stop::Blocked(WaitKind::Sleep, timeout));
        }
    }

    fn park(&mut self, thread: usize, deadline: Option<Nanos>) -> Done {
        if std::mem::take(&mut self.threads[thread].unpark_pending) {
            return Done::Next;
        }
        self.begin_wait(thread);
        self.block(thread, WaitKind::Park, deadline)
    }

    /// Ends a park of `target`, or of the next that it takes; CPU `from`, if any, brought it.
    pub(super) fn unpark(&mut self, from: Option<usize>, target: usize) {
        if self.threads[target].home.is_none() {
            return;
        }
        if self.threads[target].wait == Some(WaitKind::Park) && !self.sync.is_waiting(target) {
            self.wake_thread(target, from);
        } else {
            self.threads[target].unpark_pending = true;
        }
    }

    /// The context that `target` names; without an instance, the one with the number of `thread`.
    fn own_instance(&self, thread: usize, target: ContextTarget) -> usize {
        let named = self.grants.numbers.contexts(target);
        let number = thread - self.numbers.first(self.table_of(thread));
        if named.len() > number { named.start + number } else { named.start }
    }

    /// Takes a context that no thread has, in place of its own.
    fn bind_step(&mut self, thread: usize, target: ContextTarget) -> Done {
        let grant = self.own_instance(thread, target);
        let owner = self.grants.list[grant].id().and_then(|id| self.contexts.owner(id));
        if owner == Some(self.threads[thread].identity) {
            return Done::Next;
        }
        self.release_context(thread);
        Done::Stay(Progress::Move(Errand::Bind(grant)))
    }

    fn spawn(&mut self, cpu: usize, thread: usize, table: usize) {
        let mut instances = self.targets(ThreadTarget { thread: table, instance: None });
        let Some(free) = instances.find(|index| self.threads[*index].home.is_none()) else {
            self.refuse_step(thread, "all threads of that name live");
            return;
        };
        let place = self.starting_place(free).unwrap_or_else(|| self.place_new(free, Some(cpu)));
        let child = self.threads[free].identity;
        self.admit(free, place, Some(cpu));
        let spawned = &mut self.threads[thread].spawned;
        spawned.retain(|(of, _)| *of != table);
        spawned.push((table, child));
    }

    /// Where instance `index` starts, which no context binds; its creator runs on `creator`.
    pub(super) fn place_new(&mut self, index: usize, creator: Option<usize>) -> usize {
        let weight = self.workload.threads[self.table_of(index)].weight.get();
        let thread = self.threads[index].identity;
        let affinity =
            if self.leases.any() { self.due_affinity(index) } else { self.threads[index].affinity.clone() };
        let creator = creator.map(|cpu| self.cpu_id(cpu));
        placement::place(self, thread, &affinity, weight.into(), creator).map_or(0, CpuId::index)
    }

    /// Waits for one of the instances that have not ended; the step is taken again until all have.
    fn join(&mut self, thread: usize, target: ThreadTarget, until: Option<Nanos>) -> Done {
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
            None => until,
        };
        self.begin_wait(thread);
        let blocked = self.block(thread, WaitKind::Join, deadline);
        if matches!(blocked, Done::Next) {
            self.threads[thread].join_deadline = None;
            return blocked;
        }
        self.threads[thread].join_deadline = deadline;
        self.retake(thread);
        let id = self.threads[thread].wait_id();
        self.threads[awaited].joiners.push(id);
        blocked
    }

    /// The `join` that `thread` is at has timed out: it goes on with the next step.
    pub(super) fn give_up_join(&mut self, thread: usize) {
        self.threads[thread].join_deadline = None;
        self.give_up_step(thread);
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
    #[expect(clippy::result_large_err, reason = "a refusal gives the thread back, by value")]
    pub(super) fn admit(&mut self, index: usize, cpu: usize, from: Option<usize>) {
        self.bind_to_lease(index);
        let entity = self.new_life(index);
        let cpu = self.cpu_id(cpu);
        match self.on_behalf_of(from, |machine| placement::start(machine, cpu, entity)) {
            Ok(_home) => {
                self.bind_at_start(index);
                self.policy_started(index);
            }
            Err(refused) => {
                debug_assert!(false, "{refused}");
                self.refuse_step(index, "no CPU has a seat for the thread");
            }
        }
    }
}
