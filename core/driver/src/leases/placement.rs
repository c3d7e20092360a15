//! Where threads are because of a lease: the lessee comes and is bound, others leave and stay away.
//!
//! Conserved: a thread's affinity changes only while the thread is on its way from one seat to the next. So what its scheduler
//! has is what decided where it is.

use super::machine::{LeaseEvent, LeaseMachine};
use crate::machine::{Home, Notified};
use crate::placement::{Wake, migrate, wake};
use mainspring_abi::{CpuId, ThreadRef};
use mainspring_sched::{Affinity, Authority, Seat, State, Via};

/// Where `thread` may run by the leases of this moment.
pub fn affinity<M: LeaseMachine>(machine: &mut M, thread: ThreadRef) -> Affinity {
    if machine.stays(thread) {
        return machine.own_affinity(thread);
    }
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

/// Whether the thread of `home` sits there. If it does not, it is on its way, and is looked at where it arrives.
fn sits<M: LeaseMachine>(machine: &mut M, home: Home) -> bool {
    machine.with_cpu(home.cpu, |cpu| cpu.cpu().entity(home.seat).is_ok())
}

/// Where a thread is to be, and how its affinity changes by that.
type Goes = (CpuId, (Affinity, Affinity));

/// Where `thread`, which sits at `home`, is to be, if that is not where and as it is. A thread on a context stays: its context
/// is spent here.
fn misplaced<M: LeaseMachine>(machine: &mut M, thread: ThreadRef, home: Home) -> Option<Goes> {
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
    (!unchanged && due.allows(goes)).then_some((goes, (present, due)))
}

fn state<M: LeaseMachine>(machine: &mut M, home: Home) -> Option<State> {
    machine.with_cpu(home.cpu, |cpu| cpu.cpu().state(home.seat).ok())
}

/// Takes `thread`, which does not run, to where it belongs, and there it is ready; whether it went. It does not if its affinity has
/// changed since that was looked at.
fn relocate<M: LeaseMachine>(machine: &mut M, thread: ThreadRef, (goes, affinity): Goes) -> bool {
    let from = machine.home(thread).map(|home| home.cpu);
    let arrived = migrate(machine, thread, goes, Some(affinity), Via::Admit).is_some();
    if arrived {
        machine.with_isolation(|isolation| {
            isolation.has_arrived(thread);
            if let Some(from) = from.filter(|from| *from != goes && !isolation.admits(thread, *from)) {
                isolation.count_offload(from);
            }
        });
    }
    arrived
}

/// Moves each thread that is ready on `cpu`, which is leased, and may be elsewhere, and sleepers where they can be moved. If
/// such a thread runs there, the CPU is told to move it. Looks at as many threads as the machine allows, from seat `slot` on;
/// the seat to go on from, if there are more.
pub(super) fn clear<M: LeaseMachine>(machine: &mut M, cpu: CpuId, mut slot: u32) -> Option<u32> {
    let lessee = machine.with_isolation(|isolation| isolation.lessee(cpu))?;
    let mut looked_at = 0;
    while let Some((seat, state)) = machine.with_cpu(cpu, |cpu| cpu.cpu().resident_from(slot)) {
        if looked_at == M::LOOKED_AT_ONCE {
            return Some(slot);
        }
        looked_at += 1;
        slot = seat.slot() + 1;
        let (thread, home) = (seat.thread(), Home { cpu, seat });
        if thread == lessee.thread {
            continue;
        }
        match (misplaced(machine, thread, home), state) {
            (Some(goes), State::Queued) => {
                relocate(machine, thread, goes);
            }
            (Some(goes), State::Asleep(_)) if M::MOVES_SLEEPERS => {
                relocate(machine, thread, goes);
            }
            (Some(_), State::Running) => match machine.notify_cpu(cpu) {
                // A CPU that was not told moves it at its next tick.
                Notified::Sent | Notified::Pending | Notified::Failed => {}
            },
            _ => {}
        }
    }
    None
}

/// As [`clear`], from the first seat on: at once, or by the CPU itself, which is told, where it takes several looks.
pub(super) fn clear_queue<M: LeaseMachine>(machine: &mut M, cpu: CpuId) {
    if M::LOOKED_AT_ONCE == u32::MAX {
        let _none = clear(machine, cpu, 0);
        return;
    }
    match machine.notify_cpu(cpu) {
        // A CPU that was not told clears itself at its next tick.
        Notified::Sent | Notified::Pending | Notified::Failed => {}
    }
}

/// Says which threads stay on `cpu`, which was just leased, because they may run nowhere else.
pub(super) fn tell_who_stays<M: LeaseMachine>(machine: &mut M, cpu: CpuId) {
    if M::LOOKED_AT_ONCE != u32::MAX {
        return;
    }
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
        (None, _) if sits(machine, home) => machine.with_isolation(|isolation| isolation.has_arrived(thread)),
        (None, _) => {}
    }
}

/// Whether `thread` is where its lease is, and bound there.
pub(super) fn is_where_its_lease_is<M: LeaseMachine>(machine: &mut M, thread: ThreadRef) -> bool {
    machine.home(thread).is_some_and(|home| misplaced(machine, thread, home).is_none() && sits(machine, home))
}

/// An interrupt has come to `cpu`, which is this one: moves each thread that is there and belongs elsewhere. Returns whether
/// the running thread was among them.
pub(super) fn attend<M: LeaseMachine>(machine: &mut M, cpu: CpuId) -> bool {
    let mut taken = false;
    let uncleared = machine.with_isolation(|isolation| isolation.take_uncleared(cpu));
    if let Some(seat) = uncleared.or_else(|| has_strays(machine, cpu).then_some(0)) {
        if let Some(next) = clear(machine, cpu, seat) {
            machine.with_isolation(|isolation| isolation.cleared_up_to(cpu, next));
        }
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

/// Whether another thread than its lessee can run on `cpu`. On a machine whose CPUs act at the same time one may wake there that
/// was asleep when the lease was not known yet.
fn has_strays<M: LeaseMachine>(machine: &mut M, cpu: CpuId) -> bool {
    if M::LOOKED_AT_ONCE == u32::MAX {
        return false;
    }
    let Some(lessee) = machine.with_isolation(|isolation| isolation.lessee(cpu)) else { return false };
    machine.with_cpu(cpu, |cpu| {
        let other = |seat: Seat| seat.thread() != lessee.thread;
        cpu.cpu().queued() > 0 || cpu.cpu().current().is_some_and(other)
    })
}

/// The running thread of `cpu`, which is this one, goes where it belongs, if that is elsewhere. Returns whether it has stopped: then
/// the CPU chooses another thread.
fn move_current<M: LeaseMachine>(machine: &mut M, cpu: CpuId) -> bool {
    let Some(seat) = machine.with_cpu(cpu, |cpu| cpu.cpu().current()) else { return false };
    let thread = seat.thread();
    let Some(goes) = misplaced(machine, thread, Home { cpu, seat }) else { return false };
    if !machine.stop_current(cpu) {
        return false;
    }
    if !relocate(machine, thread, goes) {
        // Another CPU has changed where it belongs, or what it holds, since that was looked at. Nothing else wakes it.
        let (Wake::Woken | Wake::NotAsleep) = wake(machine, thread);
    }
    true
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
