//! Where threads are because of a lease: the lessee comes and is bound, others leave and stay away.
//!
//! Conserved: a thread's affinity changes only while the thread is on its way from one seat to the next. So what its scheduler
//! has is what decided where it is.

use super::machine::{LeaseEvent, LeaseMachine};
use crate::machine::{Home, Notified};
use crate::placement::migrate;
use mainspring_abi::{CpuId, ThreadRef};
use mainspring_sched::{Affinity, Authority, Seat, State, Via};

/// Where `thread` may run by the leases of this moment.
pub fn affinity<M: LeaseMachine>(machine: &mut M, thread: ThreadRef) -> Affinity {
    let bound = machine.with_isolation(|isolation| isolation.binding(thread).cloned());
    bound.unwrap_or_else(|| machine.own_affinity(thread))
}

/// The best CPU for `thread`, which would rather be at `near`: one that it may use and no other lessee has to itself, with
/// the fewest threads that could run. If there is none, one that it may use.
pub fn destination<M: LeaseMachine>(machine: &mut M, thread: ThreadRef, near: CpuId) -> CpuId {
    let affinity = affinity(machine, thread);
    let open = |machine: &M, cpu: CpuId| affinity.allows(cpu) && machine.may_enter(thread, cpu);
    if open(machine, near) {
        return near;
    }
    let cpus = || (0..machine.cpus()).map_while(|index| CpuId::new(index).ok());
    let lowest = cpus().find(|cpu| affinity.allows(*cpu));
    let mut best: Option<(usize, CpuId)> = None;
    for cpu in (0..machine.cpus()).map_while(|index| CpuId::new(index).ok()) {
        if open(machine, cpu) {
            let load =
                machine.with_cpu(cpu, |cpu| cpu.cpu().queued() + usize::from(cpu.cpu().current().is_some()));
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, cpu));
            }
        }
    }
    let own = Some(near).filter(|cpu| affinity.allows(*cpu));
    best.map(|(_, cpu)| cpu).or(own).or(lowest).unwrap_or(near)
}

/// Where `thread`, which sits at `home`, is to be, if that is not where and as it is. A thread on a context stays: its context
/// is spent here.
fn misplaced<M: LeaseMachine>(machine: &mut M, thread: ThreadRef, home: Home) -> Option<(CpuId, Affinity)> {
    let (present, stays) = machine.with_cpu(home.cpu, |cpu| match cpu.cpu().entity(home.seat) {
        Ok(entity) => match entity.authority() {
            Authority::BestEffort => Some((entity.affinity().clone(), false)),
            Authority::Context(_) => Some((entity.affinity().clone(), true)),
            // It waits for its context, and is looked at again when it wakes.
            Authority::Lent(_) => None,
        },
        Err(_) => None,
    })?;
    let due = affinity(machine, thread);
    let goes = if stays { home.cpu } else { destination(machine, thread, home.cpu) };
    let unchanged = goes == home.cpu && due == present;
    (!unchanged && due.allows(goes)).then_some((goes, due))
}

fn state<M: LeaseMachine>(machine: &mut M, home: Home) -> Option<State> {
    machine.with_cpu(home.cpu, |cpu| cpu.cpu().state(home.seat).ok())
}

/// Takes `thread`, which does not run, to where it belongs, and there it is ready; whether it went.
fn relocate<M: LeaseMachine>(
    machine: &mut M,
    thread: ThreadRef,
    (goes, affinity): (CpuId, Affinity),
) -> bool {
    let arrived = migrate(machine, thread, goes, Some(affinity), Via::Admit).is_some();
    if arrived {
        machine.with_isolation(|isolation| isolation.settled(thread));
    }
    arrived
}

/// Moves each thread that is ready on `cpu`, which is leased, and may be elsewhere. If such a thread runs there, the CPU is
/// told to move it.
pub(super) fn clear_queue<M: LeaseMachine>(machine: &mut M, cpu: CpuId) {
    let Some(lessee) = machine.with_isolation(|isolation| isolation.lessee(cpu)) else { return };
    let mut slot = 0;
    while let Some((seat, state)) = machine.with_cpu(cpu, |cpu| cpu.cpu().resident_from(slot)) {
        slot = seat.slot() + 1;
        let (thread, home) = (seat.thread(), Home { cpu, seat });
        if thread == lessee.thread {
            continue;
        }
        match (misplaced(machine, thread, home), state) {
            (Some(goes), State::Queued) => {
                relocate(machine, thread, goes);
            }
            (Some(_), State::Running) => match machine.notify_cpu(cpu) {
                // A CPU that was not told moves it at its next tick.
                Notified::Sent | Notified::Pending | Notified::Failed => {}
            },
            _ => {}
        }
    }
}

/// Says which threads stay on `cpu`, which was just leased, because they may run nowhere else.
pub(super) fn tell_who_stays<M: LeaseMachine>(machine: &mut M, cpu: CpuId) {
    let Some(lessee) = machine.with_isolation(|isolation| isolation.lessee(cpu)) else { return };
    let mut slot = 0;
    while let Some((seat, _)) = machine.with_cpu(cpu, |cpu| cpu.cpu().resident_from(slot)) {
        slot = seat.slot() + 1;
        let (thread, home) = (seat.thread(), Home { cpu, seat });
        if thread != lessee.thread && misplaced(machine, thread, home).is_none() {
            machine.lease_event(LeaseEvent::BoundHere { lease: lessee.lease, thread });
        }
    }
}

/// Brings `thread` to where its lease is, or lets it go where it may when its lease is over: at once if it is ready. If it runs,
/// its CPU is told to move it. If it sleeps, it goes when it wakes.
pub(super) fn bring<M: LeaseMachine>(machine: &mut M, thread: ThreadRef) {
    let Some(home) = machine.home(thread) else { return };
    match (misplaced(machine, thread, home), state(machine, home)) {
        (Some(goes), Some(State::Queued)) => {
            relocate(machine, thread, goes);
        }
        (Some(_), Some(State::Running)) => match machine.notify_cpu(home.cpu) {
            // A CPU that was not told moves it at its next tick.
            Notified::Sent | Notified::Pending | Notified::Failed => {}
        },
        (Some(_), _) => {}
        (None, _) => machine.with_isolation(|isolation| isolation.settled(thread)),
    }
}

/// Whether `thread` is where its lease is, and bound there.
pub(super) fn is_settled<M: LeaseMachine>(machine: &mut M, thread: ThreadRef) -> bool {
    machine.home(thread).is_some_and(|home| misplaced(machine, thread, home).is_none())
}

/// An interrupt has come to `cpu`, which is this one: moves each thread that is there and belongs elsewhere. Returns whether
/// the running thread was among them.
pub(super) fn attend<M: LeaseMachine>(machine: &mut M, cpu: CpuId) -> bool {
    let mut taken = false;
    if machine.with_isolation(|isolation| isolation.take_uncleared(cpu)) {
        clear_queue(machine, cpu);
        let admitted = |machine: &mut M, seat: Seat| {
            machine.with_isolation(|isolation| isolation.admits(seat.thread(), cpu))
        };
        let current = machine.with_cpu(cpu, |cpu| cpu.cpu().current());
        taken = current.is_some_and(|seat| !admitted(machine, seat)) && move_current(machine, cpu);
    }
    let mut index = 0;
    while let Some(pending) = machine.with_isolation(|isolation| isolation.pending(index)) {
        if let Some(thread) = pending
            && let Some(home) = machine.home(thread).filter(|home| home.cpu == cpu)
        {
            if state(machine, home) == Some(State::Running) && misplaced(machine, thread, home).is_some() {
                taken |= move_current(machine, cpu);
            } else {
                bring(machine, thread);
            }
        }
        // A binding that is no longer needed has gone, and another stands in its place.
        if machine.with_isolation(|isolation| isolation.pending(index)) == Some(pending) {
            index += 1;
        }
    }
    taken
}

/// The running thread of `cpu`, which is this one, goes where it belongs, if that is elsewhere.
fn move_current<M: LeaseMachine>(machine: &mut M, cpu: CpuId) -> bool {
    let Some(seat) = machine.with_cpu(cpu, |cpu| cpu.cpu().current()) else { return false };
    let thread = seat.thread();
    let Some(goes) = misplaced(machine, thread, Home { cpu, seat }) else { return false };
    machine.stop_current(cpu) && relocate(machine, thread, goes)
}

/// The wait of `thread` is over, and a lease wants it to wake on another CPU than its home: it does; whether that is so. A
/// machine calls this from [`Machine::wakes_elsewhere`](crate::machine::Machine::wakes_elsewhere), if there are leases.
pub fn wakes_elsewhere<M: LeaseMachine>(machine: &mut M, thread: ThreadRef) -> bool {
    let Some(home) = machine.home(thread) else { return false };
    if !matches!(state(machine, home), Some(State::Asleep(_))) {
        return false;
    }
    match misplaced(machine, thread, home) {
        Some(goes) => relocate(machine, thread, goes),
        None => false,
    }
}

/// `thread` has woken on its home because its wait timed out, and a lease does not want it there: moves it on; whether that was
/// so. Only a sleeper of a CPU that has been leased since comes here.
pub fn moves_on<M: LeaseMachine>(machine: &mut M, thread: ThreadRef) -> bool {
    let Some(home) = machine.home(thread) else { return false };
    if state(machine, home) != Some(State::Queued) {
        return false;
    }
    match misplaced(machine, thread, home) {
        Some(goes) => relocate(machine, thread, goes),
        None => false,
    }
}
