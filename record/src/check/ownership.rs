//! A live thread has exactly one owner, and so has a context; a seat that is not its thread's any more has no effect.

use super::contexts::Grants;
use super::ensure;
use super::machine_model::MachineModel;
use super::observation::{Observation, ObservedEvent};
use mainspring_sched::flight::Outcome;
use mainspring_sched::{Cpu, Seat, State, WaitKind};

/// Compares CPU and model after `observed`; all of their threads if `all`.
pub fn check(
    model: &MachineModel,
    grants: &Grants,
    cpu: &Cpu,
    observed: &Observation,
    all: bool,
) -> Result<(), String> {
    let cpu_model = model.cpu_model(observed.cpu);
    let running = cpu.current().map(Seat::thread);
    ensure(running == cpu_model.running, || {
        format!("{running:?} runs, by the model {:?}", cpu_model.running)
    })?;
    ensure(cpu.runs_on_context() == cpu_model.on_context, || {
        format!("on a context is {}, by the model {}", cpu.runs_on_context(), cpu_model.on_context)
    })?;
    let waiting = cpu_model.queued + usize::from(cpu_model.direct.is_some());
    ensure(cpu.queued() == waiting, || format!("{} queued, by the model {waiting}", cpu.queued()))?;
    ensure(cpu.occupied() == cpu_model.seated, || {
        format!("{} seats taken, by the model {}", cpu.occupied(), cpu_model.seated)
    })?;
    if let Some(seat) = observed.event.seat() {
        named(model, grants, cpu, observed, seat)?;
    }
    if let Some(seat) = cpu.current() {
        grants.compare(cpu, seat)?;
    }
    if all { everybody(model, grants, cpu) } else { Ok(()) }
}

/// The seat that an event named is what the model says it is.
fn named(
    model: &MachineModel,
    grants: &Grants,
    cpu: &Cpu,
    observed: &Observation,
    seat: Seat,
) -> Result<(), String> {
    let state = model.seated(observed.cpu, seat);
    ensure(cpu.state(seat).ok() == state, || {
        format!("{seat:?} is {:?}, by the model {state:?}", cpu.state(seat))
    })?;
    // Refused, it is where it was: the refusal is right if that state does not allow the event.
    let refused = observed.outcome == Outcome::BadSeat;
    let thread = seat.thread();
    let allowed = match &observed.event {
        ObservedEvent::Wake(_) | ObservedEvent::HandOff(_) => {
            matches!(state, Some(State::Asleep(_))) && !grants.is_lent(thread)
        }
        ObservedEvent::Bind(_, given) => state.is_some() && grants.may_bind(cpu, thread, given),
        ObservedEvent::Unbind(_) => state.is_some() && grants.holds(thread),
        ObservedEvent::Lend(_, to) => {
            state == Some(State::Asleep(WaitKind::Call)) && grants.may_lend(thread, *to)
        }
        ObservedEvent::WriteOff(_) => state.is_some() && grants.is_lent(thread),
        ObservedEvent::Hold(_) => state == Some(State::Queued),
        ObservedEvent::Release(_) => state == Some(State::Held),
        ObservedEvent::Remove(_) => state.is_some_and(|state| state != State::Running),
        _ => state.is_some(),
    };
    ensure(!(refused && allowed), || format!("{seat:?} was refused without a reason"))?;
    if state.is_some() { grants.compare(cpu, seat) } else { Ok(()) }
}

/// The CPU seats exactly the threads that the model puts there, in the same states.
pub fn everybody(model: &MachineModel, grants: &Grants, cpu: &Cpu) -> Result<(), String> {
    let mut seen: Vec<_> =
        cpu.threads().iter().map(|view| (view.thread, view.seat.slot(), view.state)).collect();
    let mut known: Vec<_> = model.on(cpu.id().index()).collect();
    seen.sort_by_key(|(thread, ..)| *thread);
    known.sort_by_key(|(thread, ..)| *thread);
    ensure(seen == known, || format!("seated are {seen:?}, by the model {known:?}"))?;
    known.iter().try_for_each(|(thread, slot, _)| grants.compare(cpu, Seat::from_parts(*slot, *thread)))
}
