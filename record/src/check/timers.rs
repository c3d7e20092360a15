//! A timer is always armed for what is due next, nothing ends before its time, and on a machine whose interrupts are
//! punctual nothing ends after it. A busy CPU without a tick has one thread, the one that the window was proved for, and
//! a one-shot no later than its lease allows.

use super::contexts::Grants;
use super::machine_model::MachineModel;
use super::observation::{Observation, ObservedEvent, StopKind};
use super::{Setting, ensure};
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_sched::flight::{NohzEvent, NohzOutcome, Outcome};
use mainspring_sched::lease::Standing;
use mainspring_sched::{
    Cpu, Decision, IdleConditions, IdleTick, KeepTicking, NetworkNeed, NohzEntry, NohzRecheck, TickMode,
};

/// The longest that an idle CPU goes without a timer interrupt.
const FLOOR: Nanos = Nanos::from_millis(100);

/// What timers are for, per CPU.
#[derive(Debug)]
pub struct Timers {
    /// When the tickless state in progress must end.
    idle_until: Vec<Nanos>,
    /// When the running thread's slice ends, as the last decision said.
    slice_end: Vec<Nanos>,
    /// The tickless window in progress.
    windows: Vec<Option<Window>>,
}

/// A busy CPU without a tick.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// The thread that runs there alone.
    thread: Option<ThreadRef>,
    /// How long it may take until a revocation is felt.
    latency: Nanos,
    /// When it was last proved.
    proved_at: Nanos,
    /// By when its one-shot must come.
    until: Nanos,
    /// Since when no thread runs there.
    vacant_since: Option<Nanos>,
}

impl Timers {
    /// Nothing armed yet.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self {
            idle_until: vec![Nanos::MAX; cpus],
            slice_end: vec![Nanos::MAX; cpus],
            windows: vec![None; cpus],
        }
    }

    /// Checks what `observed` says of timed waits and of the tick; `model` is as it was before.
    pub fn before(
        &mut self,
        setting: &Setting,
        model: &MachineModel,
        grants: &Grants,
        observed: &Observation,
    ) -> Result<(), String> {
        let (now, cpu_model) = (observed.now, model.cpu_model(observed.cpu));
        match (&observed.event, observed.outcome) {
            (ObservedEvent::Expire, Outcome::Expired(Some((seat, deadline)), _)) => {
                let first = cpu_model.waits.first().copied();
                ensure(first == Some((deadline, seat.thread().index())), || {
                    format!("{seat:?} was woken, due at {deadline}; the first is {first:?}")
                })?;
                ensure(deadline <= now, || format!("a wait until {deadline} ended early"))?;
                ensure(!setting.punctual || deadline == now, || format!("a wait until {deadline} ended late"))
            }
            (ObservedEvent::Expire, Outcome::Expired(None, _)) => {
                let due = cpu_model.waits.first().filter(|(deadline, _)| *deadline <= now);
                ensure(due.is_none(), || format!("{due:?} is due and was not woken"))
            }
            (
                ObservedEvent::Resched(StopKind::Blocked(_, Some(deadline)))
                | ObservedEvent::BlockCurrent(_, Some(deadline)),
                _,
            ) => ensure(!setting.punctual || *deadline > now, || {
                format!("a wait until {deadline} began after it")
            }),
            (ObservedEvent::EnterIdle(conditions), Outcome::Idle(tick)) => {
                let right = idle_tick(model, grants, observed, conditions);
                ensure(tick == right, || format!("the idle tick became {tick:?} instead of {right:?}"))?;
                if let IdleTick::Suppressed { wake_at } = tick {
                    self.idle_until[observed.cpu] = wake_at;
                }
                Ok(())
            }
            (ObservedEvent::Nohz(event), Outcome::Nohz(outcome)) => {
                self.window(setting, model, grants, observed, event, outcome)
            }
            _ => Ok(()),
        }
    }

    /// Checks that the timer of `cpu` is armed for everything that is due.
    pub fn after(
        &mut self,
        setting: &Setting,
        model: &MachineModel,
        grants: &Grants,
        cpu: &Cpu,
        observed: &Observation,
    ) -> Result<(), String> {
        let (now, cpu_model) = (observed.now, model.cpu_model(observed.cpu));
        let armed = cpu.next_timer();
        let first = cpu_model.waits.first().map(|(deadline, _)| *deadline);
        ensure(cpu.next_deadline() == first, || {
            format!("the next wait ends at {:?}, by the model {first:?}", cpu.next_deadline())
        })?;
        ensure(first.is_none_or(|deadline| armed <= deadline), || {
            format!("armed for {armed}, after the wait that ends at {first:?}")
        })?;
        if let Outcome::Decided(Decision::Run(run)) = observed.outcome {
            self.slice_end[observed.cpu] = run.slice_end;
            ensure(run.slice_end > now, || format!("a slice that ended at {}", run.slice_end))?;
        }
        let claim = grants.floor_due(model, observed.cpu).filter(|_| model.contended(observed.cpu));
        for (what, at) in [
            ("the refill", grants.next_refill(observed.cpu)),
            ("the end of the budget", grants.budget_end(model, observed.cpu)),
            ("the claim of best effort", claim),
        ] {
            ensure(at.is_none_or(|at| armed <= at), || format!("armed for {armed}, after {what} at {at:?}"))?;
        }
        self.tick(model, setting, cpu, observed, armed)?;
        if cpu_model.running.is_none() || cpu_model.on_context {
            return Ok(());
        }
        let contended = cpu_model.queued > 0 || cpu_model.direct.is_some();
        // Slices that ended while no thread waited are behind the running thread; the one in progress is at most
        // one quantum.
        let limit = self.slice_end[observed.cpu].max(now + setting.quantum);
        ensure(!contended || armed <= limit, || {
            format!("somebody waits, the slice ends by {limit}, and the timer is armed for {armed}")
        })
    }

    /// A window that is opened or proved again has a live lease, a thread that is alone, and a one-shot that comes
    /// before anything is due, before the lease ends and before its revocation latency is over.
    fn window(
        &mut self,
        setting: &Setting,
        model: &MachineModel,
        grants: &Grants,
        observed: &Observation,
        event: &NohzEvent,
        outcome: NohzOutcome,
    ) -> Result<(), String> {
        let (now, cpu_model) = (observed.now, model.cpu_model(observed.cpu));
        let (conditions, latency, wake_at) = match (event, outcome) {
            (NohzEvent::Recheck(conditions), NohzOutcome::Recheck(NohzRecheck::Kept { wake_at }))
                if conditions.lease == Standing::Contended =>
            {
                return self.unproved(model, observed, conditions.min_delta, wake_at);
            }
            (NohzEvent::Enter(claim, conditions), NohzOutcome::Entry(NohzEntry::Tickless { wake_at })) => {
                ensure(self.windows[observed.cpu].is_none(), || "a window within a window".to_owned())?;
                (conditions, claim.max_revocation_latency, wake_at)
            }
            (NohzEvent::Recheck(conditions), NohzOutcome::Recheck(NohzRecheck::Kept { wake_at })) => {
                let window = self.windows[observed.cpu].ok_or("a window is kept that was never opened")?;
                (conditions, window.latency, wake_at)
            }
            _ => return Ok(()),
        };
        let Standing::Live(terms) = conditions.lease else {
            return Err("tickless without a live lease".to_owned());
        };
        ensure(
            cpu_model.running.is_some()
                && cpu_model.queued == 0
                && cpu_model.direct.is_none()
                && cpu_model.held == 0,
            || format!("tickless with {cpu_model:?}"),
        )?;
        ensure(conditions.housekeeping && !conditions.network_polling, || {
            format!("tickless although {conditions:?}")
        })?;
        ensure(terms.sole_cpu().map(CpuId::index) == Some(observed.cpu), || {
            format!("tickless for {terms:?}")
        })?;
        ensure(latency <= terms.max_revocation_latency(), || format!("{latency} is beyond {terms:?}"))?;
        let wait = cpu_model.waits.first().map_or(Nanos::MAX, |(deadline, _)| *deadline);
        let refill = grants.next_refill(observed.cpu).unwrap_or(Nanos::MAX);
        let until = (now + latency).min(terms.expires_at()).min(conditions.next_wakeup).min(wait).min(refill);
        ensure(wake_at == until && until > now, || {
            format!("tickless until {wake_at}, allowed until {until}")
        })?;
        let others =
            self.windows.iter().enumerate().filter(|(cpu, one)| *cpu != observed.cpu && one.is_some());
        ensure(others.count() + 1 < setting.cpus, || "no CPU is left for the housekeeping".to_owned())?;
        self.windows[observed.cpu] =
            Some(Window { thread: cpu_model.running, latency, proved_at: now, until, vacant_since: None });
        Ok(())
    }

    /// A window whose lease cannot be read, since another CPU has it, stays for the shortest one-shot, if its thread is alone and the
    /// last proof is not too old by then.
    fn unproved(
        &mut self,
        model: &MachineModel,
        observed: &Observation,
        min_delta: Nanos,
        wake_at: Nanos,
    ) -> Result<(), String> {
        let cpu_model = model.cpu_model(observed.cpu);
        let window = self.windows[observed.cpu].as_mut().ok_or("a window is kept that was never opened")?;
        let alone = cpu_model.running == window.thread
            && cpu_model.queued == 0
            && cpu_model.direct.is_none()
            && cpu_model.held == 0;
        ensure(alone, || format!("kept without a proof, with {cpu_model:?}"))?;
        let (again, limit) = (observed.now + min_delta.max(Nanos::new(1)), window.proved_at + window.latency);
        ensure(wake_at == again && again <= limit, || {
            format!("kept without a proof until {wake_at}, asked again at {again}, allowed until {limit}")
        })?;
        window.until = wake_at;
        Ok(())
    }

    fn tick(
        &mut self,
        model: &MachineModel,
        setting: &Setting,
        cpu: &Cpu,
        observed: &Observation,
        armed: Nanos,
    ) -> Result<(), String> {
        let now = observed.now;
        let next_tick = Nanos::new((now.get() / setting.tick.get() + 1) * setting.tick.get());
        if !matches!(cpu.tick_mode(), TickMode::TicklessLease { .. }) {
            self.windows[observed.cpu] = None;
        }
        match cpu.tick_mode() {
            TickMode::TicklessIdle { wake_at } => {
                ensure(cpu.current().is_none(), || "a thread runs without a tick".to_owned())?;
                let until = self.idle_until[observed.cpu];
                ensure(wake_at == until && armed <= until, || {
                    format!("tickless until {wake_at}, armed for {armed}, decided {until}")
                })?;
                ensure(!setting.punctual || armed <= now + FLOOR, || format!("armed for {armed} only"))
            }
            TickMode::TicklessLease { wake_at } => {
                let cpu_model = model.cpu_model(observed.cpu);
                let window = self.windows[observed.cpu].as_mut().ok_or("tickless without a window")?;
                if cpu_model.running.is_none() {
                    // What follows the decision to stop brings the tick back, within the same instant. In real time that is a
                    // while, in which others may come to the queue: the CPU goes idle, or its timer comes, at the latest.
                    let since = *window.vacant_since.get_or_insert(now);
                    let over = matches!(observed.event, ObservedEvent::EnterIdle(_) | ObservedEvent::Timer);
                    let soon = if setting.one_clock { since == now } else { !over };
                    return ensure(soon, || format!("nobody has run since {since}, without a tick"));
                }
                ensure(cpu_model.queued == 0 && cpu_model.direct.is_none(), || {
                    "several threads without a tick".to_owned()
                })?;
                ensure(cpu_model.running == window.thread, || {
                    format!("{:?} runs without a tick instead of {:?}", cpu_model.running, window.thread)
                })?;
                ensure(wake_at == window.until && armed <= wake_at, || {
                    format!("tickless until {wake_at}, armed for {armed}, proved until {}", window.until)
                })?;
                ensure(!setting.punctual || armed >= now, || format!("armed for {armed}, which is over"))
            }
            TickMode::Periodic | TickMode::ForcedPeriodic(_) => {
                ensure(armed <= next_tick, || format!("the tick at {next_tick} is not armed but {armed}"))?;
                let forced = matches!(cpu.tick_mode(), TickMode::ForcedPeriodic(_));
                ensure(!forced || cpu.current().is_none(), || "a thread runs on a forced tick".to_owned())
            }
        }
    }
}

/// What the rules make of the tick of a CPU that goes idle.
fn idle_tick(
    model: &MachineModel,
    grants: &Grants,
    observed: &Observation,
    conditions: &IdleConditions,
) -> IdleTick {
    let cpu_model = model.cpu_model(observed.cpu);
    let reasons = [
        (cpu_model.running.is_some() || cpu_model.queued > 0, KeepTicking::RunnableWork),
        (cpu_model.direct.is_some(), KeepTicking::DirectTarget),
        (cpu_model.held > 0, KeepTicking::RetryWindow),
        (conditions.deferred_completions, KeepTicking::DeferredCompletions),
        (conditions.ring_service, KeepTicking::RingService),
        (!conditions.oneshot, KeepTicking::NoOneShot),
        (!conditions.idle_context, KeepTicking::NoIdleContext),
        (conditions.network == NetworkNeed::EveryTick, KeepTicking::NetworkPolling),
        (conditions.nohz_lease, KeepTicking::NohzLease),
        (!conditions.stable_clock, KeepTicking::TickClocksource),
        (conditions.polled_waiter, KeepTicking::PolledWaiter),
    ];
    if let Some((_, reason)) = reasons.into_iter().find(|(holds, _)| *holds) {
        return IdleTick::Kept(reason);
    }
    let wait = cpu_model.waits.first().map_or(Nanos::MAX, |(deadline, _)| *deadline);
    let poll = match conditions.network {
        NetworkNeed::PollAt(at) => at,
        NetworkNeed::Inactive | NetworkNeed::EveryTick => Nanos::MAX,
    };
    let refill = grants.next_refill(observed.cpu).unwrap_or(Nanos::MAX);
    IdleTick::Suppressed { wake_at: (observed.now + FLOOR).min(wait).min(poll).min(refill) }
}
