//! One life of an instance: its steps, until its rounds are over.

use crate::leases::{ask_for_own, is_due_to_ask, persist};
use crate::plan::{Instance, Table, plan};
use crate::rings::Outstanding;
use crate::{QUIET, begin, endpoint_cap, session, stream};
use crate::{calls, contexts, islands, policy, rings, sync};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use mainspring_abi::Nanos;
use mainspring_abi::kernel::{FOREVER, ReceivedCall};
use mainspring_abi::plan::Note;
use mainspring_abi::ring::{CapSqeV2, QosFlags};
use mainspring_program::{
    Batch, Call, ContextTarget, Lateness, Phases, Release, Step, ThreadTarget, next_release,
};
use mainspring_random::Random;
use mainspring_user::caps::{self, Context};
use mainspring_user::{CapError, arch, client};

/// Notes of jobs that an instance keeps until the end. Those beyond are not told: misses are counted all the same.
const NOTES: usize = 4000;

/// A thread's own state.
pub struct Player {
    pub number: usize,
    random: Random,
    phases: Phases,
    started: u64,
    /// When the job under way was released.
    release: u64,
    /// When the job under way had a CPU first, and the period of the step that ended the last one.
    job: u64,
    period: u64,
    serving: Option<Serving>,
    /// The step after the one that it takes, and whether that one has been taken with it.
    next: Option<&'static Step>,
    received: bool,
    /// The instance of each table that it spawned last.
    spawned: Vec<Option<(usize, u32)>>,
    /// Whether a ring of the workload is its.
    owns_ring: bool,
    /// Where answers and calls go: kept for ever, since one may come late.
    buffer: &'static mut [u8],
    /// Entries of its ring.
    pub outstanding: Outstanding,
    /// The context that it was bound to last, as a table and an instance.
    bound: Option<(u64, u64)>,
    /// How often a default context had been given up when it last looked for one.
    given_up: u32,
    /// Its context is a node of an island that was not there when its life began.
    awaits_island: bool,
}

/// A call that it has received and not answered.
#[derive(Clone, Copy)]
struct Serving {
    endpoint: usize,
    call_id: u32,
    /// When the answer is due; 0 for never.
    deadline_ns: u64,
}

impl Serving {
    /// What has no number is a notice, which nobody waits for an answer to.
    fn of(endpoint: usize, ReceivedCall { call_id, deadline_ns, .. }: ReceivedCall) -> Option<Self> {
        (call_id != 0).then_some(Self { endpoint, call_id, deadline_ns })
    }
}

/// Lives a life of instance `number`, which begins at `at`.
pub fn live(number: usize, at: u64) -> i64 {
    if at > caps::now() {
        let _ = caps::sleep_until(at);
    }

    let instance = &plan().instances[number];
    let table = &plan().tables[instance.table];
    if let Some(session) = table.session.and_then(session) {
        // One that has ended has nobody in it.
        let _entered = persist(|| session.enter());
    }
    let given_up = contexts::times_given_up();
    let due = contexts::due_to(number);
    let bound = due.filter(|(context, instance)| contexts::bind(*context, *instance).is_ok());
    let awaits_island = bound.is_none() && due.is_some_and(islands::has_not_asked);
    if due.is_some() && bound.is_none() && !awaits_island {
        // It is with another, or gone: the thread goes on as best effort, as in the other machines.
        contexts::give_up(number);
        if table.context.is_some() {
            instance.refusals.fetch_add(1, Ordering::Relaxed);
        }
    }
    ask_for_own(number, caps::now());
    policy::begins(number);
    let started = caps::now();
    let quiet = QUIET.lock();
    let mut player = Player {
        number,
        random: instance.random.lock().take().unwrap_or_else(|| stream(number)),
        started,
        phases: Phases::new(),
        release: started,
        job: started,
        period: table.first_period(),
        serving: None,
        next: None,
        received: false,
        owns_ring: plan().rings.iter().any(|ring| ring.owner() == number),
        spawned: alloc::vec![None; plan().tables.len()],
        buffer: Box::leak(Box::new([0; 64])),
        outstanding: Outstanding::with_room(),
        bound,
        given_up,
        awaits_island,
    };
    drop(quiet);
    player.note(Note::Lives { instance: number as u32, at: started });
    let mut round = 0;
    'life: while round != table.times {
        let mut at = 0;
        while let Some(step) = table.steps.get(at) {
            if step.directs() {
                at = player.direct(&table.steps, at);
                continue;
            }
            let again = table.steps.first().filter(|_| round + 1 != table.times);
            player.next = table.steps.get(at + 1).or(again);
            if *step == Step::Exit {
                break 'life;
            }
            if is_due_to_ask(number) {
                ask_for_own(number, caps::now());
            }
            policy::heard(number);
            player.fetch_context();
            let amount = player.draw(step);
            if let Err(code) = persist(|| player.take(step, amount)) {
                let counter = match code {
                    CapError::TimedOut => &instance.timeouts,
                    CapError::Exception | CapError::PeerGone => &instance.failures,
                    _ => &instance.refusals,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            at += 1;
        }
        round += 1;
    }
    player.note(Note::Ended { instance: number as u32, at: caps::now(), period: player.period });
    let quiet = QUIET.lock();
    sync::end(number);
    policy::ended(number);
    rings::ended(number);
    contexts::give_up(number);
    *instance.random.lock() = Some(player.random);
    instance.lives.fetch_add(1, Ordering::AcqRel);
    drop(quiet);
    let _ = caps::unpark(instance.lives.as_ptr() as u64, u32::MAX);
    0
}

impl Player {
    pub fn me(&self) -> &'static Instance {
        &plan().instances[self.number]
    }

    /// Keeps a note of its jobs for the end.
    fn note(&self, note: Note) {
        let _quiet = QUIET.lock();
        let mut jobs = self.me().jobs.lock();
        if jobs.len() < NOTES {
            jobs.push(note);
        }
    }

    /// The step after one that only says which is the next.
    fn direct(&mut self, steps: &[Step], at: usize) -> usize {
        // A phase that begins is remembered on the heap.
        let _quiet = QUIET.lock();
        self.phases.next(steps, at, Nanos::new(caps::now()), &mut self.random)
    }

    /// What the step takes, or how long it waits at most: drawn as it is come to, once, as on every machine.
    fn draw(&mut self, step: &Step) -> Option<u64> {
        let drawn = step.amount()?;
        Some(drawn.draw(&mut self.random, |number| &plan().distributions[number]).get())
    }

    /// The context that a step names, where no instance means the one with the thread's own number.
    fn named(&self, ContextTarget { context: table, instance }: ContextTarget) -> (u64, u64) {
        let first = plan().tables[self.me().table].first;
        (table as u64, instance.map_or((self.number - first) as u64, u64::from))
    }

    /// The context that it runs on, or has lent, unless that is a node of an island.
    fn has(&self) -> Option<Context> {
        let (table, instance) = self.bound?;
        contexts::context(table, instance)
    }

    /// Takes the context that has come to it while it lived: a default of its process that another has given up, or the node of an
    /// island that was admitted after its life had begun.
    fn fetch_context(&mut self) {
        let given_up = contexts::times_given_up();
        if given_up != self.given_up && self.bound.is_none() {
            self.given_up = given_up;
            self.bound = contexts::take_default(self.number);
        }
        if self.awaits_island
            && let Some(due) = contexts::due_to(self.number)
            && !islands::has_not_asked(due)
        {
            // One that is not where the node's time is tries again at its next step.
            let bound = contexts::bind(due.0, due.1);
            self.awaits_island = matches!(bound, Err(CapError::Denied));
            self.bound = bound.is_ok().then_some(due);
        }
    }

    /// Gives up the context that it was bound to last.
    fn unbind(&mut self) -> Result<(), CapError> {
        let unbound = self.has().ok_or(CapError::NotFound)?.unbind();
        self.bound = None;
        contexts::give_up(self.number);
        unbound
    }

    /// Takes a step, which lasts or waits for at most `amount`.
    fn take(&mut self, step: &Step, amount: Option<u64>) -> Result<(), CapError> {
        // When it has waited long enough, if ever.
        let until = amount.map(|amount| caps::now().saturating_add(amount).min(FOREVER - 1));
        match *step {
            Step::Run(_) | Step::RunDrawn(_) => self.run(amount.unwrap_or(0)),
            Step::RunForever => loop {
                arch::spin(1 << 20);
                self.fetch_context();
            },
            Step::Sleep(_) | Step::SleepDrawn(_) => caps::sleep(amount.unwrap_or(0)),
            Step::Every(period) => self.every(period.get()),
            Step::Yield => {
                caps::yield_now();
                Ok(())
            }
            Step::Park { .. } => self.park(until.unwrap_or(0)),
            Step::Unpark(target) => plan().unpark(target),
            Step::Call(ref call) => self.call(call, until),
            Step::Recv { endpoint, .. } => self.receive(endpoint, until),
            Step::Reply => self.reply(),
            Step::Throw => self.answer(caps::throw_request),
            Step::Bind(target) => {
                // In place of its own, if it has one.
                let _unbound = self.unbind();
                let (table, instance) = self.named(target);
                contexts::bind(table, instance)?;
                self.bound = Some((table, instance));
                Ok(())
            }
            Step::Unbind => self.unbind(),
            Step::Revoke(target) => {
                contexts::contexts(target).for_each(|context| {
                    let _ = context.revoke();
                });
                Ok(())
            }
            Step::Drain(target) => {
                let (table, instance) = self.named(target);
                contexts::context(table, instance).ok_or(CapError::NotFound)?.drain().map(|_| ())
            }
            Step::Spawn(table) => self.spawn(table),
            Step::Join { target, .. } => self.join(target, until.unwrap_or(0)),
            Step::Lease(lease) => plan().leases[lease].ask(),
            Step::Release(lease) => plan().leases[lease].release(),
            Step::Submit { ring, entries, deadline, late } => {
                self.submit(ring, &Batch { entries, deadline, late })
            }
            Step::Complete { ring, entries, .. } => self.complete(ring, entries, until.unwrap_or(FOREVER)),
            Step::Poll(ring) => self.poll(ring),
            Step::Weight(weight) => sync::weigh(self.number, weight),
            Step::Lock { .. }
            | Step::Unlock(_)
            | Step::Down { .. }
            | Step::Up(_)
            | Step::Barrier { .. }
            | Step::Wait { .. }
            | Step::Signal(_)
            | Step::Broadcast(_) => sync::take(self.number, step, until),
            // The first are the workload's own, and refused before a run; the others are never taken.
            Step::Alloc(_)
            | Step::Syscall
            | Step::Exit
            | Step::Repeat { .. }
            | Step::For { .. }
            | Step::Either { .. }
            | Step::Or { .. }
            | Step::End { .. } => Err(CapError::InvalidRequest),
        }
    }

    pub fn run(&mut self, length: u64) -> Result<(), CapError> {
        if self.owns_ring {
            caps::compute_in(self.me().slot.load(Ordering::Relaxed), length)
        } else {
            caps::compute(length)
        }
    }

    fn every(&mut self, period: u64) -> Result<(), CapError> {
        let (instance, started, finished) = (self.number as u32, self.job, caps::now());
        let ns = Nanos::new;
        let Release { at, missed } =
            next_release(ns(self.started), ns(self.release), ns(finished), ns(period));
        self.me().misses.fetch_add(missed, Ordering::Relaxed);
        self.release = at.get();
        self.note(Note::Job { instance, started, finished, period });
        let slept = caps::sleep_until(self.release);
        (self.job, self.period) = (caps::now(), period);
        slept
    }

    fn park(&mut self, deadline: u64) -> Result<(), CapError> {
        let permit = &self.me().permit;
        while permit.swap(0, Ordering::Acquire) == 0 {
            caps::park(permit.as_ptr() as u64, 0, deadline)?;
        }
        Ok(())
    }

    /// Waits for a request, but not for ever if there is a timeout.
    fn wait(&mut self, ticket: client::Ticket, until: Option<u64>) -> Result<u32, CapError> {
        let Some(deadline) = until else { return client::wait(ticket) };
        loop {
            let left = deadline.saturating_sub(caps::now());
            if let Some(outcome) = client::wait_for(ticket, left.min(FOREVER - 1))? {
                return outcome;
            }
            if left == 0 {
                return match client::cancel(ticket) {
                    Err(CapError::Cancelled) => Err(CapError::TimedOut),
                    outcome => outcome,
                };
            }
        }
    }

    fn call(&mut self, call: &Call, until: Option<u64>) -> Result<(), CapError> {
        let cap = endpoint_cap("call", call.endpoint);
        if let Some(needs) = call.needs {
            // Who has no context has no budget that could be too small.
            let left = self.has().and_then(|context| context.info().ok()).map(|info| info.remaining_ns);
            if left.is_some_and(|left| left < needs.get()) {
                return Err(CapError::BudgetExhausted);
            }
        }
        let mut request = client::request(cap, 0, &[], self.buffer);
        // It is fresh until its own deadline, or until that of the call that the thread serves, if that comes first.
        let own = call.deadline.map(|fresh| caps::now() + fresh.get());
        let served = self.serving.map(|serving| serving.deadline_ns).filter(|deadline| *deadline != 0);
        if let Some(deadline) = own.into_iter().chain(served).min() {
            request.deadline_ns = deadline;
            let mut qos = QosFlags::DEADLINE_ORDERED
                .with(QosFlags::REORDERABLE)
                .with(QosFlags::PROPAGATE_DEADLINE)
                .with(QosFlags::NO_BLOCKING_PATH);
            if call.late == Lateness::Drop {
                qos = qos.with(QosFlags::DROP_IF_LATE);
            }
            request.qos_flags = qos.bits();
        }
        calls::timed(call.endpoint, || self.wait(client::submit(request)?, until).map(|_| ()))
    }

    fn receive(&mut self, endpoint: usize, until: Option<u64>) -> Result<(), CapError> {
        if core::mem::take(&mut self.received) {
            return Ok(());
        }
        let cap = endpoint_cap("serve", endpoint);
        let ticket = client::submit(caps::receive_request(cap, self.buffer))?;
        self.wait(ticket, until)?;
        let call = self.buffer.first_chunk().map(ReceivedCall::from_bytes);
        self.serving = call.and_then(|call| Serving::of(endpoint, call));
        Ok(())
    }

    /// Answers, and goes on to wait for the next call with the same request if that is the next step: between the two it would be on
    /// its own time, and others would go first.
    fn reply(&mut self) -> Result<(), CapError> {
        match self.serving {
            Some(Serving { endpoint, call_id, .. })
                if self.next == Some(&Step::Recv { endpoint, timeout: None }) =>
            {
                let cap = endpoint_cap("serve", endpoint);
                let call = caps::answer_and_receive(cap, call_id, &[], self.buffer)?;
                (self.serving, self.received) = (Serving::of(endpoint, call), true);
                Ok(())
            }
            _ => self.answer(|cap, call_id| caps::return_request(cap, call_id, &[])),
        }
    }

    fn answer(&mut self, request: fn(u32, u32) -> CapSqeV2) -> Result<(), CapError> {
        let Some(Serving { endpoint, call_id, .. }) = self.serving.take() else {
            return Err(CapError::InvalidRequest);
        };
        let cap = endpoint_cap("serve", endpoint);
        match client::wait(client::submit(request(cap, call_id))?) {
            // The caller has not waited so long.
            Ok(_) | Err(CapError::Cancelled) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn spawn(&mut self, table: usize) -> Result<(), CapError> {
        let Table { first, instances, .. } = plan().tables[table];
        for number in first..first + instances {
            let lives = &plan().instances[number].lives;
            if lives.load(Ordering::Acquire).is_multiple_of(2) {
                if !begin(number, 0) {
                    break;
                }
                self.spawned[table] = Some((number, lives.load(Ordering::Acquire)));
                return Ok(());
            }
        }
        Err(CapError::QuotaExceeded)
    }

    fn join(&mut self, target: ThreadTarget, deadline: u64) -> Result<(), CapError> {
        if plan().tables[target.thread].start.is_none() {
            let Some((number, life)) = self.spawned[target.thread] else { return Ok(()) };
            return ended(number, life, deadline);
        }
        for number in plan().targets(target) {
            let life = plan().instances[number].lives.load(Ordering::Acquire);
            if !life.is_multiple_of(2) {
                ended(number, life, deadline)?;
            }
        }
        Ok(())
    }
}

/// Waits until an instance is not in that life any more.
fn ended(number: usize, life: u32, deadline: u64) -> Result<(), CapError> {
    let lives = &plan().instances[number].lives;
    while lives.load(Ordering::Acquire) == life {
        caps::park(lives.as_ptr() as u64, life, deadline)?;
    }
    Ok(())
}
