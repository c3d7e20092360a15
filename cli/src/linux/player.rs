//! A task that plays one thread of a workload, step by step.

use super::calls::Serving;
use super::endpoint::Answer;
use super::rings::{Leave, Without};
use super::stage::{Life, Permit, Stage, duration};
use mainspring::{Component, Cx, WaitReason};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_random::Random;
use mainspring_record::jobs::Jobs;
use mainspring_ring::AccountingTarget;
use mainspring_workload::{Batch, ContextTarget, Phases, Step, ThreadTarget};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a player computes between two looks up: how late it may notice that others should run.
const CHUNK: Duration = Duration::from_micros(5);

/// One life of an instance.
pub struct Player<'s, 'w> {
    pub stage: &'s Stage<'w>,
    pub number: usize,
    /// The step that it is at.
    step: usize,
    /// Where it is in the phases of its program.
    phases: Phases,
    /// The calls that it has taken, the last one last.
    pub serving: Vec<Serving>,
    /// The context that it is bound to, if no call has lent it one.
    bound: Option<usize>,
    /// What its `alloc` steps have taken.
    hoard: Vec<Vec<u8>>,
    /// What it spawned last, of each table.
    spawned: Vec<Option<(usize, Life)>>,
}

/// The step was refused, and that has been counted.
pub struct Refused;

/// A life that is cut short from outside is over for the others too. One that the end of the run cuts short is not.
struct Mortal<'s, 'w> {
    stage: &'s Stage<'w>,
    number: usize,
}

impl Drop for Mortal<'_, '_> {
    fn drop(&mut self) {
        if self.stage.is_killed(self.number) {
            self.stage.end(self.number);
        }
    }
}

/// Whether the program goes on.
#[derive(PartialEq, Eq)]
enum Goes {
    On,
    /// With another step than the next.
    To(usize),
    Exit,
}

/// Plays instance `number` from its start to its end, on the context that it was started on. Unwinds when the run is over.
pub fn live(stage: &Stage<'_>, number: usize, on: Option<usize>, cx: &Cx) {
    stage.set_task(number, cx.id().0);
    let mortal = Mortal { stage, number };
    let spec = stage.spec(number);
    let mut player = Player {
        stage,
        number,
        step: 0,
        phases: Phases::new(),
        serving: Vec::new(),
        bound: on,
        hoard: Vec::new(),
        spawned: vec![None; stage.workload.threads.len()],
    };
    player.begin_job(cx, 0, |jobs, now| {
        jobs.begin_life(now);
        jobs.start(now);
    });
    let mut rounds = 0;
    'life: while spec.times.is_none_or(|times| rounds < times) {
        player.step = 0;
        while let Some(step) = spec.program.get(player.step) {
            cx.check();
            player.fetch_context(cx);
            if let Some(policy) = &stage.policy {
                policy.heard(player.number);
            }
            player.pay(cx, step);
            let amount = stage.draw_amount(player.number, step);
            match player.take(cx, step, amount) {
                Goes::On => player.step += 1,
                Goes::To(next) => player.step = next,
                Goes::Exit => break 'life,
            }
        }
        rounds += 1;
    }
    player.end_jobs(cx);
    // No other thread will answer these.
    player.serving.clear();
    std::mem::forget(mortal);
    stage.end(number);
}

impl Player<'_, '_> {
    /// Takes a step, for which it has drawn `amount`: how long it lasts, or waits at most.
    fn take(&mut self, cx: &Cx, step: &Step, amount: Option<Duration>) -> Goes {
        match step {
            Step::Run(_) | Step::RunDrawn(_) => compute(cx, amount.unwrap_or_default()),
            Step::RunForever => compute(cx, Duration::MAX),
            Step::Repeat { .. }
            | Step::For { .. }
            | Step::Either { .. }
            | Step::Or { .. }
            | Step::End { .. } => {
                let program = &self.stage.spec(self.number).program;
                let (phases, at) = (&mut self.phases, self.step);
                let next = |random: &mut Random| phases.next(program, at, now(cx), random);
                return Goes::To(self.stage.with_random(self.number, next));
            }
            Step::Lock { .. }
            | Step::Unlock(_)
            | Step::Down { .. }
            | Step::Up(_)
            | Step::Barrier { .. }
            | Step::Wait { .. }
            | Step::Signal(_)
            | Step::Broadcast(_) => self.sync_step(cx, step, amount),
            Step::Sleep(_) | Step::SleepDrawn(_) => self.sleep(cx, amount.unwrap_or_default()),
            Step::Every(period) => self.every(cx, *period),
            Step::Yield => cx.yield_now(),
            Step::Park { .. } => {
                if let Ok(_permit) = self.permit(amount) {
                    let unparked = self.me().park.park(cx, amount);
                    self.count_timeout(unparked);
                }
            }
            Step::Unpark(target) => {
                for instance in self.stage.targets(*target) {
                    self.stage.unpark(instance);
                }
            }
            Step::Call(call) => self.call(cx, call, amount),
            Step::Recv { endpoint, .. } => self.receive(cx, *endpoint, amount),
            Step::Reply => self.answer(cx, Answer::Reply),
            Step::Throw => self.answer(cx, Answer::Failure),
            Step::Spawn(table) => match self.stage.spawn(*table) {
                Some(child) => self.spawned[*table] = Some(child),
                None => self.stage.refuse(self.number),
            },
            Step::Join { target, .. } => self.join(cx, *target, amount),
            Step::Weight(weight) => {
                cx.set_weight(*weight);
                self.stage.note_weight(self.number, *weight);
            }
            Step::Alloc(bytes) => self.alloc(cx, *bytes),
            // A look at the file system, which the answer does not matter of.
            Step::Syscall => drop(std::fs::metadata("/")),
            Step::Exit => return Goes::Exit,
            Step::Bind(target) => self.bind(cx, *target),
            Step::Unbind => {
                let unbound = self.bound.is_some_and(|context| self.unbind(cx, context));
                self.refuse_unless(unbound);
            }
            Step::Revoke(target) => {
                for context in self.stage.contexts.named(*target) {
                    self.refuse_unless(self.stage.contexts.revoke(context, now(cx)));
                }
            }
            Step::Drain(target) => {
                let context = self.own_instance(*target);
                // One that was revoked has nothing to tell.
                let _drained = self.stage.contexts.get(context).map(|context| context.notices());
            }
            Step::Lease(lease) => self.refuse_unless(self.stage.ask_for_lease(*lease)),
            Step::Release(lease) => self.refuse_unless(self.stage.leases.release(*lease)),
            Step::Submit { ring, entries, deadline, late } => {
                let batch = Batch { entries: *entries, deadline: *deadline, late: *late };
                self.on_ring(*ring, |ring| ring.submit(cx, &batch));
            }
            Step::Complete { ring, entries, .. } => {
                if let Ok(_permit) = self.permit(amount) {
                    let until = amount.map(|amount| cx.now() + amount);
                    self.on_ring(*ring, |ring| ring.complete(cx, *entries, until));
                }
            }
            Step::Poll(ring) => self.poll(cx, *ring),
        }
        Goes::On
    }

    /// Pays for a step out of the component of the budget that it uses, if that is limited. With none left, the task stands
    /// still here.
    fn pay(&self, cx: &Cx, step: &Step) {
        let Some(budget) = self.stage.spec(self.number).budget else { return };
        let (component, limit) = match step {
            Step::Spawn(_) => (Component::SpawnCount, budget.spawns),
            Step::Call(_) | Step::Recv { .. } | Step::Reply | Step::Throw | Step::Unpark(_) => {
                (Component::ChannelOps, budget.channel_ops)
            }
            Step::Syscall => (Component::Syscalls, budget.syscalls),
            _ => return,
        };
        if limit.is_some() && cx.pay(component).is_err() {
            self.stage.refuse(self.number);
        }
    }

    fn alloc(&mut self, cx: &Cx, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        match cx.charge_alloc(bytes) {
            // Written to, so that it is more than an address.
            Ok(()) => self.hoard.push(vec![1; bytes]),
            Err(_) => self.stage.refuse(self.number),
        }
    }

    pub fn me(&self) -> &super::stage::Instance {
        &self.stage.instances[self.number]
    }

    pub fn count_timeout(&self, in_time: bool) {
        if !in_time {
            count(&self.me().timeouts);
        }
    }

    fn jobs<R>(&self, act: impl FnOnce(&mut Jobs) -> R) -> R {
        act(&mut self.me().jobs.lock().expect("no panic while it is held"))
    }

    /// A job begins before step `at`, as `act` says. Which period ends it is known from here on.
    fn begin_job(&self, cx: &Cx, at: usize, act: impl FnOnce(&mut Jobs, Nanos)) {
        let next = self.stage.spec(self.number).next_period(at, &self.phases, now(cx)).unwrap_or_default();
        self.me().next_period.store(next.get(), Ordering::Relaxed);
        self.jobs(|jobs| act(jobs, now(cx)));
    }

    fn end_jobs(&self, cx: &Cx) {
        let period = Nanos::new(self.me().next_period.load(Ordering::Relaxed));
        if !period.is_zero() {
            let now = now(cx);
            self.jobs(|jobs| jobs.end_life(now, period, Nanos::MAX, true));
        }
    }

    fn every(&mut self, cx: &Cx, period: Nanos) {
        let release = self.jobs(|jobs| jobs.finish(now(cx), period));
        self.sleep(cx, duration(release).saturating_sub(cx.now()));
        self.begin_job(cx, self.step + 1, Jobs::start);
    }

    fn sleep(&self, cx: &Cx, length: Duration) {
        if !length.is_zero()
            && let Ok(_permit) = self.permit(Some(length))
        {
            cx.sleep(length);
        }
    }

    /// Leave to wait: a wait without a timeout needs none.
    pub fn permit(&self, timeout: Option<Duration>) -> Result<Option<Permit<'_>>, Refused> {
        match timeout {
            None => Ok(None),
            Some(_) => self.stage.permit(self.number).map(Some).ok_or(Refused),
        }
    }

    /// Waits until `arrived`, ringing counts as a hint. False if time is over first.
    pub fn wait(
        &self,
        cx: &Cx,
        reason: WaitReason,
        timeout: Option<Duration>,
        mut arrived: impl FnMut() -> bool,
    ) -> bool {
        let deadline = timeout.map(|timeout| cx.now() + timeout);
        loop {
            if arrived() {
                return true;
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(cx.now()));
            if !self.me().bell.wait(cx, reason, left) {
                return arrived();
            }
        }
    }

    /// A step of the owner of a ring.
    fn on_ring(&self, ring: usize, act: impl FnOnce(&super::rings::Ring) -> Result<(), Without>) {
        let ring = &self.stage.rings[ring];
        // Rings belong to one thread each.
        let done = if ring.owner == self.number { act(ring) } else { Err(Without::Refused) };
        match done {
            Ok(()) => {}
            Err(Without::Refused) => self.stage.refuse(self.number),
            Err(Without::TimedOut) => count(&self.me().timeouts),
        }
    }

    fn poll(&self, cx: &Cx, ring: usize) {
        let (stage, number) = (self.stage, self.number);
        let me = ThreadRef::new(number as u32, stage.life(number).map_or(0, Life::number));
        while !stage.rings[ring].may_poll(number, me, |other| stage.instances[other].is_alive()) {
            stage.refuse(number);
            stage.rings[ring].wait_to_poll(cx);
        }
        stage.rings[ring].poll(cx, || match stage.leases.account(ring, number, &stage.contexts) {
            None => Leave::Wait,
            Some(Some(account)) => Leave::Poll(account),
            Some(None) => {
                let own = self.bound.and_then(|context| stage.contexts.get(context));
                Leave::Poll(own.map_or(AccountingTarget::SchedulerLedger, |context| {
                    AccountingTarget::SchedulingContext(context.number())
                }))
            }
        });
    }

    fn refuse_unless(&self, done: bool) {
        if !done {
            self.stage.refuse(self.number);
        }
    }

    /// The context that a step of this instance names: its own, if the step does not say which.
    fn own_instance(&self, target: ContextTarget) -> usize {
        let all = self.stage.contexts.named(target);
        let own = if target.instance.is_some() { 0 } else { self.stage.number_in_table(self.number) };
        (all.start + own).min(all.end - 1)
    }

    /// Takes a context that no thread holds, in place of its own.
    fn bind(&mut self, cx: &Cx, target: ContextTarget) {
        let context = self.own_instance(target);
        if let Some(own) = self.bound {
            self.unbind(cx, own);
        }
        let bound = self.stage.contexts.get(context).is_some_and(|one| one.bind(cx).is_ok());
        self.bound = bound.then_some(context);
        self.refuse_unless(bound);
    }

    pub fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    fn unbind(&mut self, cx: &Cx, context: usize) -> bool {
        let unbound = self.stage.contexts.get(context).is_some_and(|one| one.unbind(cx).unwrap_or(false));
        if unbound {
            self.bound = None;
        }
        unbound
    }

    /// Takes the context that it was given while it lived, if any, or finds that its process's default has come to it.
    fn fetch_context(&mut self, cx: &Cx) {
        let (stage, spec) = (self.stage, self.stage.spec(self.number));
        if self.bound.is_none() && self.serving.is_empty() && stage.contexts.has_default(spec.process) {
            let held = cx.context().filter(|held| held.group.is_some());
            self.bound = held.and_then(|held| stage.contexts.numbered(held.number));
        }
        if let Some(context) = self.stage.take_given(self.number)
            && self.bound.is_none()
        {
            let bound = self.stage.contexts.get(context).is_some_and(|one| one.bind(cx).is_ok());
            self.bound = bound.then_some(context);
            self.refuse_unless(bound);
        }
    }

    fn join(&mut self, cx: &Cx, target: ThreadTarget, timeout: Option<Duration>) {
        let Ok(_permit) = self.permit(timeout) else { return };
        let deadline = timeout.map(|timeout| cx.now() + timeout);
        let awaited: Vec<_> = match self.spawned[target.thread] {
            Some(child) => vec![child],
            None => self.stage.targets(target).filter_map(|n| Some((n, self.stage.life(n)?))).collect(),
        };
        for (instance, life) in awaited {
            let left = deadline.map(|deadline| deadline.saturating_sub(cx.now()));
            let over = || self.stage.is_over_or_wait(instance, life, self.number);
            if !self.wait(cx, WaitReason::Join, left, over) {
                count(&self.me().timeouts);
                return;
            }
        }
    }
}

/// The time on the machine's clock, which its record is written by.
pub fn now(cx: &Cx) -> Nanos {
    nanos(cx.now())
}

/// A length of time as the machine has it.
pub fn nanos(length: Duration) -> Nanos {
    Nanos::new(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
}

pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Computes until the task has been charged with so much more CPU time.
pub fn compute(cx: &Cx, time: Duration) {
    let used = || cx.cpu_time().unwrap_or_default();
    let end = used().saturating_add(time);
    loop {
        let left = end.saturating_sub(used());
        if left.is_zero() {
            return;
        }
        let chunk = left.min(CHUNK);
        let began = Instant::now();
        while began.elapsed() < chunk {
            std::hint::spin_loop();
        }
        cx.check();
        cx.look_up();
    }
}
