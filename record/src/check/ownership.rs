//! A live thread has exactly one owner, and so has a context; a seat that is not its thread's any more has no effect.

use super::book::Book;
use super::contexts::Grants;
use super::ensure;
use super::fact::{Fact, Seen};
use mainspring_sched::flight::Outcome;
use mainspring_sched::{Cpu, Seat, State, WaitKind};

/// Compares CPU and book after `fact`; all of their threads if `all`.
pub fn check(book: &Book, grants: &Grants, cpu: &Cpu, fact: &Fact, all: bool) -> Result<(), String> {
    let page = book.page(fact.cpu);
    let running = cpu.current().map(Seat::thread);
    ensure(running == page.running, || format!("{running:?} runs, by the book {:?}", page.running))?;
    ensure(cpu.runs_on_context() == page.on_context, || {
        format!("on a context is {}, by the book {}", cpu.runs_on_context(), page.on_context)
    })?;
    let waiting = page.queued + usize::from(page.direct.is_some());
    ensure(cpu.queued() == waiting, || format!("{} queued, by the book {waiting}", cpu.queued()))?;
    ensure(cpu.occupied() == page.seated, || {
        format!("{} seats taken, by the book {}", cpu.occupied(), page.seated)
    })?;
    if let Some(seat) = fact.seen.seat() {
        named(book, grants, cpu, fact, seat)?;
    }
    if let Some(seat) = cpu.current() {
        grants.compare(cpu, seat)?;
    }
    if all { everybody(book, grants, cpu) } else { Ok(()) }
}

/// The seat that an event named is what the book says it is.
fn named(book: &Book, grants: &Grants, cpu: &Cpu, fact: &Fact, seat: Seat) -> Result<(), String> {
    let state = book.seated(fact.cpu, seat);
    ensure(cpu.state(seat).ok() == state, || {
        format!("{seat:?} is {:?}, by the book {state:?}", cpu.state(seat))
    })?;
    // Refused, it is where it was: the refusal is right if that state does not allow the event.
    let refused = fact.outcome == Outcome::BadSeat;
    let thread = seat.thread();
    let allowed = match &fact.seen {
        Seen::Wake(_) | Seen::HandOff(_) => {
            matches!(state, Some(State::Asleep(_))) && !grants.is_lent(thread)
        }
        Seen::Bind(_, given) => state.is_some() && grants.may_bind(cpu, thread, given),
        Seen::Unbind(_) => state.is_some() && grants.holds(thread),
        Seen::Lend(_, to) => state == Some(State::Asleep(WaitKind::Call)) && grants.may_lend(thread, *to),
        Seen::WriteOff(_) => state.is_some() && grants.is_lent(thread),
        Seen::Hold(_) => state == Some(State::Queued),
        Seen::Release(_) => state == Some(State::Held),
        Seen::Remove(_) => state.is_some_and(|state| state != State::Running),
        _ => state.is_some(),
    };
    ensure(!(refused && allowed), || format!("{seat:?} was refused without a reason"))?;
    if state.is_some() { grants.compare(cpu, seat) } else { Ok(()) }
}

/// The CPU seats exactly those whom the book puts there, in the same states.
pub fn everybody(book: &Book, grants: &Grants, cpu: &Cpu) -> Result<(), String> {
    let mut seen: Vec<_> =
        cpu.threads().iter().map(|view| (view.thread, view.seat.slot(), view.state)).collect();
    let mut known: Vec<_> = book.on(cpu.id().index()).collect();
    seen.sort_by_key(|(thread, ..)| *thread);
    known.sort_by_key(|(thread, ..)| *thread);
    ensure(seen == known, || format!("seated are {seen:?}, by the book {known:?}"))?;
    known.iter().try_for_each(|(thread, slot, _)| grants.compare(cpu, Seat::from_parts(*slot, *thread)))
}
