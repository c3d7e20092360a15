//! A task that plays one thread of a workload, step by step.

use super::endpoint::Answer;
use super::stage::{Life, Permit, Stage, duration};
use mainspring::endpoint::Reply;
use mainspring::{CallError, CallRefusal, Component, Cx, Parker, Refusal, WaitReason};
use mainspring_abi::Nanos;
use mainspring_random::{Random, Stream};
use mainspring_record::jobs::Jobs;
use mainspring_workload::{Span, Step, ThreadTarget};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a player computes between two looks up: how late it may notice that others should run.
const CHUNK: Duration = Duration::from_micros(5);

/// One life of an instance.
struct Player<'s, 'w> {
    stage: &'s Stage<'w>,
    number: usize,
    random: Random,
    /// The step that it is at.
    step: usize,
    /// The calls that it has taken, the last one last.
    serving: Vec<Reply<(), Answer>>,
    /// What its `alloc` steps have taken.
    hoard: Vec<Vec<u8>>,
    /// What it spawned last, of each table.
    spawned: Vec<Option<(usize, Life)>>,
}

/// The step was refused, and that has been counted.
struct Refused;

/// Whether the program goes on.
#[derive(PartialEq, Eq)]
enum Goes {
    On,
    Exit,
}

/// Plays instance `number` from its start to its end. Unwinds when the run is over.
pub fn live(stage: &Stage<'_>, number: usize, cx: &Cx) {
    stage.set_task(number, cx.id().0);
    let spec = stage.spec(number);
    let mut player = Player {
        stage,
        number,
        random: stage.instances[number]
            .random
            .lock()
            .expect("no panic while it is held")
            .take()
            .unwrap_or_else(
                // A life that was cut short kept its generator.
                || Random::new(stage.seed, Stream::Thread(number)),
            ),
        step: 0,
        serving: Vec::new(),
        hoard: Vec::new(),
        spawned: vec![None; stage.workload.threads.len()],
    };
    player.begin_job(cx, |jobs, now| {
        jobs.begin_life(now);
        jobs.start(now);
    });
    let mut rounds = 0;
    'life: while spec.times.is_none_or(|times| rounds < times) {
        for (number, step) in spec.program.iter().enumerate() {
            player.step = number;
            cx.check();
            player.pay(cx, step);
            if player.take(cx, step) == Goes::Exit {
                break 'life;
            }
        }
        rounds += 1;
    }
    player.end_jobs(cx);
    // Nobody else will answer these.
    player.serving.clear();
    *player.me().random.lock().expect("no panic while it is held") = Some(player.random.clone());
    stage.end(number);
}

impl Player<'_, '_> {
    fn take(&mut self, cx: &Cx, step: &Step) -> Goes {
        match step {
            Step::Run(span) => compute(cx, duration(self.random.draw(*span))),
            Step::RunForever => compute(cx, Duration::MAX),
            Step::Sleep(span) => {
                let length = duration(self.random.draw(*span));
                self.sleep(cx, length);
            }
            Step::Every(period) => self.every(cx, *period),
            Step::Yield => cx.yield_now(),
            Step::Park { timeout } => {
                let timeout = self.timeout(*timeout);
                if let Ok(_permit) = self.permit(timeout) {
                    let unparked = self.me().park.park(cx, timeout);
                    self.count_timeout(unparked);
                }
            }
            Step::Unpark(target) => {
                for instance in self.stage.targets(*target) {
                    self.stage.unpark(instance);
                }
            }
            Step::Call(call) => self.call(cx, call.endpoint, call.timeout),
            Step::Recv { endpoint, timeout } => self.receive(cx, *endpoint, *timeout),
            Step::Reply => self.answer(cx, Answer::Reply),
            Step::Throw => self.answer(cx, Answer::Failure),
            Step::Spawn(table) => match self.stage.spawn(*table) {
                Some(child) => self.spawned[*table] = Some(child),
                None => self.stage.refuse(self.number),
            },
            Step::Join { target, timeout } => self.join(cx, *target, *timeout),
            Step::Weight(weight) => {
                cx.set_weight(*weight);
            }
            Step::Alloc(bytes) => self.alloc(cx, *bytes),
            // A look at the file system, which the answer does not matter of.
            Step::Syscall => drop(std::fs::metadata("/")),
            Step::Exit => return Goes::Exit,
            _ => unreachable!("refused before the run"),
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

    fn me(&self) -> &super::stage::Instance {
        &self.stage.instances[self.number]
    }

    fn timeout(&mut self, span: Option<Span>) -> Option<Duration> {
        span.map(|span| duration(self.random.draw(span)))
    }

    fn count_timeout(&self, in_time: bool) {
        if !in_time {
            count(&self.me().timeouts);
        }
    }

    fn jobs<R>(&self, act: impl FnOnce(&mut Jobs) -> R) -> R {
        act(&mut self.me().jobs.lock().expect("no panic while it is held"))
    }

    /// A job begins, as `act` says. Which period ends it is known from here on.
    fn begin_job(&self, cx: &Cx, act: impl FnOnce(&mut Jobs, Nanos)) {
        let next = self.stage.spec(self.number).next_period(self.step).unwrap_or_default();
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
        self.step += 1;
        self.sleep(cx, duration(release).saturating_sub(cx.now()));
        self.begin_job(cx, Jobs::start);
    }

    fn sleep(&self, cx: &Cx, length: Duration) {
        if !length.is_zero()
            && let Ok(_permit) = self.permit(Some(length))
        {
            cx.sleep(length);
        }
    }

    /// Leave to wait: a wait without a timeout needs none.
    fn permit(&self, timeout: Option<Duration>) -> Result<Option<Permit<'_>>, Refused> {
        match timeout {
            None => Ok(None),
            Some(_) => self.stage.permit(self.number).map(Some).ok_or(Refused),
        }
    }

    /// Waits until `arrived`, ringing counts as a hint. False if time is over first.
    fn wait(
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

    fn call(&mut self, cx: &Cx, endpoint: usize, timeout: Option<Span>) {
        let timeout = self.timeout(timeout);
        let Ok(_permit) = self.permit(timeout) else { return };
        let endpoint = &self.stage.endpoints[endpoint];
        let made = now(cx);
        endpoint.note_call();
        let answer = match timeout {
            Some(timeout) => endpoint.calls.call_timeout(cx, (), timeout),
            None => endpoint.calls.call(cx, ()),
        };
        let ended = now(cx);
        if answer.is_err() && ended >= self.stage.workload.machine.duration {
            // The end of the run took the server away: the call is unanswered, and did not fail.
            return;
        }
        endpoint.note_end(made, ended, matches!(answer, Ok(Answer::Reply)));
        match answer {
            Ok(Answer::Reply) => {}
            Err(CallError { why: CallRefusal::TimedOut, .. }) => count(&self.me().timeouts),
            Err(CallError { why: CallRefusal::Chain, .. }) => self.stage.refuse(self.number),
            Ok(Answer::Failure) | Err(_) => count(&self.me().failures),
        }
    }

    fn receive(&mut self, cx: &Cx, endpoint: usize, timeout: Option<Span>) {
        let timeout = self.timeout(timeout);
        // A server that goes on to the next request without an answer to the last has failed it, if it serves on a loan.
        self.serving.pop_if(|last| last.is_on_loan());
        let calls = &self.stage.endpoints[endpoint].calls;
        let received = {
            let Ok(_permit) = self.permit(timeout) else { return };
            match timeout {
                Some(timeout) => calls.receive_timeout(cx, timeout),
                None => calls.receive(cx),
            }
        };
        match received {
            Ok(((), reply)) => self.serving.push(reply),
            Err(Refusal::TimedOut) => self.count_timeout(false),
            // Nobody will call any more.
            Err(_) => _ = Parker::default().park(cx, None),
        }
    }

    fn answer(&mut self, cx: &Cx, how: Answer) {
        if let Some(reply) = self.serving.pop() {
            reply.send(cx, how);
        }
    }

    fn join(&mut self, cx: &Cx, target: ThreadTarget, timeout: Option<Span>) {
        let timeout = self.timeout(timeout);
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
fn now(cx: &Cx) -> Nanos {
    Nanos::new(u64::try_from(cx.now().as_nanos()).unwrap_or(u64::MAX))
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Computes until the task has been charged with so much more CPU time.
fn compute(cx: &Cx, time: Duration) {
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
