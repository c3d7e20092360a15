//! Time is conserved: what was charged, plus idle time, plus the interval in progress, is the time that passed. Each
//! thread's account holds its own intervals and nothing else.

use super::contexts::{Grants, QueueKind};
use super::ensure;
use super::machine_model::MachineModel;
use super::observation::{Arrival, Observation, ObservedEvent, StopKind};
use mainspring_abi::{Nanos, ThreadRef, Weight};
use mainspring_sched::flight::Outcome;
use mainspring_sched::{Account, Cpu, Decision, Seat, Via};

/// The weight at which virtual time passes as fast as real time.
const REFERENCE: u128 = 64;

/// Binary cpus of the virtual runtime kept here.
const VIRTUAL_BITS: u32 = 40;

/// A thread's intervals, as seen.
#[derive(Clone, Debug)]
struct Ledger {
    thread: ThreadRef,
    runtime: u64,
    virtual_runtime: u128,
    intervals: u64,
    last_started: u64,
    ready_since: Option<u64>,
    ready: u64,
    switches: u64,
    preemptions: u64,
    blocks: u64,
    migrations: u64,
    last_cpu: Option<usize>,
    /// As last set, and as it counts since the last enqueue.
    weight: Weight,
    competing: Weight,
}

/// A CPU's time, as seen.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    last: u64,
    since: u64,
    charged: u64,
    idle: u64,
}

/// All accounts.
#[derive(Debug)]
pub struct Accounts {
    ledgers: Vec<Option<Ledger>>,
    spent: Vec<Spent>,
}

impl Accounts {
    /// Nothing used yet.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self { ledgers: Vec::new(), spent: vec![Spent::default(); cpus] }
    }

    /// Writes `observed` down; `model` is as it was before.
    pub fn before(
        &mut self,
        model: &MachineModel,
        grants: &Grants,
        observed: &Observation,
    ) -> Result<(), String> {
        let (now, cpu) = (observed.now.get(), observed.cpu);
        let last = std::mem::replace(&mut self.spent[cpu].last, now);
        ensure(last <= now, || format!("time went back from {last} to {now}"))?;
        let running = model.cpu_model(cpu).running;
        let on_context = model.cpu_model(cpu).on_context;
        match (&observed.event, observed.outcome) {
            (ObservedEvent::Accept(arrival, via), Outcome::Seated(..)) => {
                self.arrive(now, cpu, arrival, *via)
            }
            (
                ObservedEvent::Wake(seat) | ObservedEvent::HandOff(seat) | ObservedEvent::Release(seat),
                Outcome::Ready(..) | Outcome::Direct(_),
            ) => self.ready(now, grants, seat.thread()),
            (ObservedEvent::Expire, Outcome::Expired(Some((seat, _)), _))
                if grants.is_lent(seat.thread()) =>
            {
                Ok(())
            }
            (ObservedEvent::Expire, Outcome::Expired(Some((seat, _)), _)) => {
                self.ready(now, grants, seat.thread())
            }
            (ObservedEvent::BlockCurrent(..), Outcome::Done) => {
                self.stop(now, cpu, running, on_context)?;
                self.ledger(running.ok_or("nobody ran who could block")?)?.blocks += 1;
                Ok(())
            }
            (ObservedEvent::Bind(seat, _), Outcome::Ready(..)) => {
                if running == Some(seat.thread()) {
                    self.stop(now, cpu, running, on_context)?;
                } else if grants.queue(seat.thread()) == QueueKind::Fair {
                    self.compete(seat.thread())?;
                }
                Ok(())
            }
            (ObservedEvent::Unbind(seat), Outcome::Took(_)) => {
                let fair = match running {
                    Some(thread) if thread == seat.thread() => {
                        self.stop(now, cpu, running, on_context)?;
                        !on_context
                    }
                    _ => model.queue(seat.thread()) == QueueKind::Fair,
                };
                if fair { Ok(()) } else { self.compete(seat.thread()) }
            }
            (ObservedEvent::SetWeight(seat, weight), Outcome::Done) => {
                self.ledger(seat.thread())?.weight = *weight;
                Ok(())
            }
            (ObservedEvent::ExitCurrent, Outcome::Left(Some(_))) => self.stop(now, cpu, running, on_context),
            (ObservedEvent::Resched(why), Outcome::Decided(decision)) => {
                self.stop(now, cpu, running, on_context)?;
                self.decided(now, cpu, grants, running, *why, decision)
            }
            _ => Ok(()),
        }
    }

    /// Compares with what `cpu` says after `observed`; all of its threads if `all`.
    pub fn after(
        &self,
        model: &MachineModel,
        cpu: &Cpu,
        observed: &Observation,
        all: bool,
    ) -> Result<(), String> {
        conserved(model, cpu, observed.now)?;
        let spent = self.spent[observed.cpu];
        ensure(cpu.charged_time().get() == spent.charged, || {
            format!("{} charged, {}ns seen", cpu.charged_time(), spent.charged)
        })?;
        if all {
            for (thread, slot, _) in model.on(observed.cpu) {
                self.compare(cpu, Seat::from_parts(slot, thread))?;
            }
        } else if let Some(seat) =
            cpu.current().or(observed.event.seat().filter(|seat| cpu.state(*seat).is_ok()))
        {
            self.compare(cpu, seat)?;
        }
        Ok(())
    }

    fn ledger(&mut self, thread: ThreadRef) -> Result<&mut Ledger, String> {
        let found = self.ledgers.get_mut(thread.index() as usize).and_then(Option::as_mut);
        found.filter(|ledger| ledger.thread == thread).ok_or_else(|| format!("{thread:?} has no account"))
    }

    fn arrive(&mut self, now: u64, cpu: usize, arrival: &Arrival, via: Via) -> Result<(), String> {
        let thread = arrival.thread;
        let index = thread.index() as usize;
        if self.ledgers.len() <= index {
            self.ledgers.resize(index + 1, None);
        }
        if self.ledgers[index].as_ref().is_none_or(|ledger| ledger.thread != thread) {
            let fresh = arrival.account == Account::default();
            ensure(fresh, || format!("{thread:?} is new and has used time"))?;
            self.ledgers[index] = Some(Ledger {
                thread,
                runtime: 0,
                virtual_runtime: 0,
                intervals: 0,
                last_started: 0,
                ready_since: None,
                ready: 0,
                switches: 0,
                preemptions: 0,
                blocks: 0,
                migrations: 0,
                last_cpu: None,
                weight: arrival.weight,
                competing: arrival.weight,
            });
        }
        let ledger = self.ledger(thread)?;
        ledger.agrees(&arrival.account)?;
        let moved = ledger.last_cpu.is_some_and(|last| last != cpu);
        ledger.migrations += u64::from(moved || via == Via::Steal);
        ledger.ready_since.get_or_insert(now);
        ledger.competing = ledger.weight;
        Ok(())
    }

    fn ready(&mut self, now: u64, grants: &Grants, thread: ThreadRef) -> Result<(), String> {
        self.ledger(thread)?.ready_since.get_or_insert(now);
        if grants.queue(thread) == QueueKind::Fair { self.compete(thread) } else { Ok(()) }
    }

    /// A weight counts from when its thread next competes with it.
    fn compete(&mut self, thread: ThreadRef) -> Result<(), String> {
        let ledger = self.ledger(thread)?;
        ledger.competing = ledger.weight;
        Ok(())
    }

    /// The interval in progress ends. What was used of a context is no part of a share.
    fn stop(
        &mut self,
        now: u64,
        cpu: usize,
        running: Option<ThreadRef>,
        on_context: bool,
    ) -> Result<(), String> {
        let spent = &mut self.spent[cpu];
        let ran = now - std::mem::replace(&mut spent.since, now);
        let Some(thread) = running else {
            spent.idle += ran;
            return Ok(());
        };
        spent.charged += ran;
        let ledger = self.ledger(thread)?;
        ledger.runtime += ran;
        if on_context {
            return Ok(());
        }
        ledger.intervals += 1;
        let weight = u128::from(ledger.competing.get());
        ledger.virtual_runtime += (u128::from(ran) << VIRTUAL_BITS) * REFERENCE / weight;
        Ok(())
    }

    fn decided(
        &mut self,
        now: u64,
        cpu: usize,
        grants: &Grants,
        before: Option<ThreadRef>,
        why: StopKind,
        decision: Decision,
    ) -> Result<(), String> {
        let next = match decision {
            Decision::Run(run) => Some(run.thread),
            Decision::Idle => None,
        };
        if let Some(thread) = before {
            let ledger = self.ledger(thread)?;
            match why {
                StopKind::Blocked(..) => ledger.blocks += 1,
                _ => {
                    ledger.ready_since = Some(now);
                    if grants.queue(thread) == QueueKind::Fair {
                        ledger.competing = ledger.weight;
                    }
                }
            }
            ledger.preemptions += u64::from(why == StopKind::Preempted && next != before);
        }
        let Some(thread) = next else { return Ok(()) };
        let ledger = self.ledger(thread)?;
        let since = ledger.ready_since.take().ok_or("a thread runs that was not ready")?;
        ledger.ready += now - since;
        ledger.last_started = now;
        ledger.switches += u64::from(next != before);
        ledger.last_cpu = Some(cpu);
        Ok(())
    }

    fn compare(&self, cpu: &Cpu, seat: Seat) -> Result<(), String> {
        let entity = cpu.entity(seat).map_err(|error| error.to_string())?;
        let thread = seat.thread();
        let ledger = self.ledgers.get(thread.index() as usize).and_then(Option::as_ref);
        let ledger = ledger.filter(|ledger| ledger.thread == thread).ok_or("a thread without an account")?;
        ensure(entity.ready_since().map(Nanos::get) == ledger.ready_since, || {
            format!("{thread:?} is ready since {:?}, seen {:?}", entity.ready_since(), ledger.ready_since)
        })?;
        ledger.agrees(entity.account())
    }
}

impl Ledger {
    fn agrees(&self, account: &Account) -> Result<(), String> {
        let said = [
            account.runtime().get(),
            account.last_started().get(),
            account.runnable_accumulated().get(),
            account.switches(),
            account.preemptions(),
            account.voluntary_blocks(),
            account.migrations(),
        ];
        let seen = [
            self.runtime,
            self.last_started,
            self.ready,
            self.switches,
            self.preemptions,
            self.blocks,
            self.migrations,
        ];
        ensure(said == seen, || {
            format!(
                "{:?}: runtime, last start, ready time, switches, preemptions, blocks, migrations are {said:?}, \
                 seen {seen:?}",
                self.thread
            )
        })?;
        // Each interval is rounded down to the core's 20 binary cpus.
        let most = self.virtual_runtime >> VIRTUAL_BITS;
        let lost = u128::from(self.intervals) << (VIRTUAL_BITS - 20);
        let least = self.virtual_runtime.saturating_sub(lost) >> VIRTUAL_BITS;
        let told = u128::from(account.virtual_runtime().get());
        ensure((least..=most).contains(&told), || {
            format!("{:?}: virtual runtime {told}, seen {least} to {most}", self.thread)
        })
    }
}

/// Charged, idle and in progress make up all the time there was on `cpu`.
pub fn conserved(model: &MachineModel, cpu: &Cpu, now: Nanos) -> Result<(), String> {
    let running = model.cpu_model(cpu.id().index()).running.is_some();
    let in_progress = if running { now - cpu.since() } else { Nanos::ZERO };
    let total = cpu.charged_time() + cpu.idle_time(now) + in_progress;
    ensure(total == now, || {
        format!(
            "{} charged, {} idle, {in_progress} running: not {now}",
            cpu.charged_time(),
            cpu.idle_time(now)
        )
    })
}
