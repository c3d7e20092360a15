//! Where threads run: start, wake, expire, hand over, steal, migrate, exit. One rule each, the same on every machine;
//! `docs/placement-and-stealing.md` gives the reasons.
//!
//! Conserved: a thread that is ready is queued on exactly one CPU, or in the hands of the operation that moves it. When an
//! operation has made a thread ready, its CPU looks at its queue before it runs a thread again, or has been told to look, or runs
//! a thread that goes first; and if another CPU idles that may run the thread, one such CPU has been told, unless none can be.

use crate::machine::{CpuAccess, Home, Left, Machine, Notified};
use mainspring_abi::{CpuId, ThreadRef, Weight};
use mainspring_sched::hint::unlikely;
use mainspring_sched::{
    Affinity, Authority, Entity, Expired, Handoff, Offer, Refused, Removed, State, Via, Woken,
};

/// What a wake did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The thread was asleep and is ready.
    Woken,
    /// The thread was not asleep, or had ended. Nothing has changed.
    NotAsleep,
}

/// The CPU on which a new thread of this weight starts: its creator's, if the thread may run there and no lease keeps it away.
/// Otherwise, and without a creator, the one on which the least weight has been placed so far; ties go to the lower CPU. A leased
/// CPU is chosen only for a thread that may run on no other. `None` if the machine has none of the CPUs that it may use.
pub fn place<M: Machine>(
    machine: &mut M,
    thread: ThreadRef,
    affinity: &Affinity,
    weight: u64,
    creator: Option<CpuId>,
) -> Option<CpuId> {
    if let Some(cpu) = creator.filter(|cpu| affinity.allows(*cpu) && machine.may_enter(thread, *cpu)) {
        return Some(cpu);
    }
    let cpu = least_placed(machine, thread, affinity)?;
    machine.add_placed_weight(cpu, weight);
    Some(cpu)
}

fn least_placed<M: Machine>(machine: &M, thread: ThreadRef, affinity: &Affinity) -> Option<CpuId> {
    let open = |cpu: &CpuId| affinity.allows(*cpu) && machine.may_enter(thread, *cpu);
    if let Some(cpu) = machine.least_placed_cpu().filter(open) {
        return Some(cpu);
    }
    let allowed = || {
        let cpus = (0..machine.cpus()).map_while(|index| CpuId::new(index).ok());
        cpus.filter(|cpu| affinity.allows(*cpu))
    };
    let weight = |cpu: &CpuId| machine.placed_weight(*cpu);
    allowed().filter(open).min_by_key(weight).or_else(|| allowed().min_by_key(weight))
}

/// A new thread is ready on `cpu`, which [`place`] or its context has named.
#[expect(clippy::result_large_err, reason = "a refusal gives the thread back, by value")]
pub fn start<M: Machine>(machine: &mut M, cpu: CpuId, entity: Entity) -> Result<Home, Refused> {
    // Without room the CPU refuses it.
    let _room = machine.make_room(cpu);
    let (home, woken) = machine.with_cpu(cpu, |cpu| cpu.accept(entity, Via::Admit, None))?;
    kick(machine, home, woken.reschedule);
    Ok(home)
}

/// What `thread` waited for has come. It is ready on its home, and one CPU is told if need be.
#[inline(always)]
pub fn wake<M: Machine>(machine: &mut M, thread: ThreadRef) -> Wake {
    if machine.wakes_elsewhere(thread) {
        return Wake::Woken;
    }
    wake_at_home(machine, thread)
}

/// What came of a look at the seat where a thread was thought to sleep.
enum Look {
    Woken(Woken),
    NotAsleep,
    Left,
}

#[inline(always)]
fn wake_at_home<M: Machine>(machine: &mut M, thread: ThreadRef) -> Wake {
    let mut left = None;
    loop {
        let Some(home) = machine.home(thread).filter(|home| left != Some(*home)) else {
            // It has ended. Or it had left that seat when it was looked at, and has arrived nowhere since, or here again: it
            // was ready in between, and looks for what it waited for once it runs.
            return Wake::NotAsleep;
        };
        let look = machine.with_cpu(home.cpu, |cpu| match cpu.cpu().state(home.seat) {
            Ok(State::Asleep(_)) => cpu.event().wake(home.seat).map_or(Look::NotAsleep, Look::Woken),
            Ok(_) => Look::NotAsleep,
            Err(_) => Look::Left,
        });
        match look {
            Look::Woken(Woken { reschedule, permit }) => {
                machine.wait_ended(thread, permit);
                kick(machine, home, reschedule);
                return Wake::Woken;
            }
            Look::NotAsleep => return Wake::NotAsleep,
            // It may have arrived elsewhere and sleep there.
            Look::Left => left = Some(home),
        }
    }
}

/// Ends timed waits of `cpu`, this CPU, that are due: at most `at_most`. If more are due, the core still wants its timer for the
/// first of the rest, and a machine that sets its timer by the core has it come at once.
#[inline(always)]
pub fn expire<M: Machine>(machine: &mut M, cpu: CpuId, at_most: u32) {
    for _ in 0..at_most {
        let expired = machine.with_cpu(cpu, |cpu| cpu.event().expire());
        let Some(Expired { thread, seat, kind, woken, away, .. }) = expired else { return };
        machine.timed_out(thread, kind);
        // Before the thread can run: it may want to wait again.
        machine.wait_ended(thread, woken.permit);
        if unlikely(away.is_some()) {
            machine.call_timed_out(thread);
        } else if !machine.moves_on(thread) {
            kick(machine, Home { cpu, seat }, woken.reschedule);
        }
    }
}

/// As [`wake`], by the running thread of this CPU, which is about to wait itself: `thread` comes here, if it may, and goes first
/// when the running thread stops. Neither the queue nor another CPU is in between.
pub fn hand_over<M: Machine>(machine: &mut M, thread: ThreadRef) -> Wake {
    let Some(here) = machine.this_cpu() else { return wake(machine, thread) };
    if machine.wakes_elsewhere(thread) {
        return Wake::Woken;
    }
    let Some(home) = machine.home(thread) else { return Wake::NotAsleep };
    if !machine.may_enter(thread, here) {
        return wake_at_home(machine, thread);
    }
    if home.cpu == here {
        return hand_over_at_home(machine, thread, home);
    }
    if !(machine.make_room(home.cpu) && machine.make_room(here)) {
        return wake_at_home(machine, thread);
    }
    let taken = machine.with_cpu(home.cpu, |cpu| {
        let comes = cpu.is_asleep(home.seat) && cpu.is_movable(home.seat, here);
        if comes { cpu.remove(home.seat) } else { None }
    });
    let Some((Removed { entity, permit }, left)) = taken else { return wake_at_home(machine, thread) };
    machine.wait_ended(thread, permit);
    let _home = arrive(machine, here, entity, Via::HandOff, left);
    Wake::Woken
}

fn hand_over_at_home<M: Machine>(machine: &mut M, thread: ThreadRef, home: Home) -> Wake {
    let handed = machine.with_cpu(home.cpu, |cpu| {
        if cpu.is_asleep(home.seat) { cpu.event().hand_off(home.seat).ok() } else { None }
    });
    match handed {
        Some(Handoff::Direct(permit)) => machine.wait_ended(thread, permit),
        Some(Handoff::Queued(woken)) => {
            machine.wait_ended(thread, woken.permit);
            kick(machine, home, woken.reschedule);
        }
        None => return wake_at_home(machine, thread),
    }
    Wake::Woken
}

/// Takes `thread`, which does not run, to `to`, where it is ready. `affinity`, if it is given, is where the thread may run, and where
/// from now on. `None` if it runs, has ended, has lent its context, or may not run on `to`, or if it may run elsewhere than was
/// said: then nothing has changed.
pub fn migrate<M: Machine>(
    machine: &mut M,
    thread: ThreadRef,
    to: CpuId,
    affinity: Option<(Affinity, Affinity)>,
    via: Via,
) -> Option<Home> {
    let home = machine.home(thread)?;
    if !(machine.make_room(home.cpu) && machine.make_room(to)) {
        return None;
    }
    let (asleep, Removed { mut entity, permit }, left) = machine.with_cpu(home.cpu, |cpu| {
        let entity = cpu.cpu().entity(home.seat).ok()?;
        let allowed = match &affinity {
            Some((present, due)) => entity.affinity() == present && due.allows(to),
            None => entity.affinity().allows(to),
        };
        if !allowed || !may_hold_authority_on(entity, to) {
            return None;
        }
        let asleep = cpu.is_asleep(home.seat);
        let (removed, left) = cpu.remove(home.seat)?;
        Some((asleep, removed, left))
    })?;
    if let Some((_, due)) = affinity {
        entity.set_affinity(due);
    }
    if asleep {
        machine.wait_ended(thread, permit);
    }
    Some(arrive(machine, to, entity, via, left))
}

/// Whether the authority of a thread goes with it to `cpu`.
fn may_hold_authority_on(entity: &Entity, cpu: CpuId) -> bool {
    match entity.authority() {
        Authority::BestEffort => true,
        Authority::Context(context) => context.spec().cpus.allows(cpu),
        Authority::Lent(_) => false,
    }
}

/// A thread that left another CPU at `left` arrives on `cpu`, ready.
fn arrive<M: Machine>(machine: &mut M, cpu: CpuId, entity: Entity, via: Via, left: Left) -> Home {
    let thread = entity.thread();
    let (home, woken) = machine.with_cpu(cpu, |cpu| seat_moved(cpu, entity, via, left));
    if left.cpu != Some(cpu) {
        machine.thread_moved(thread);
    }
    kick(machine, home, woken.reschedule);
    home
}

/// Before a thread was removed it was made sure that it may enter the CPU where it is to go, and that there is a seat.
fn seat_moved<M: Machine>(cpu: &mut CpuAccess<'_, M>, entity: Entity, via: Via, left: Left) -> (Home, Woken) {
    match cpu.accept(entity, via, Some(left)) {
        Ok(seated) => seated,
        Err(refused) => unreachable!("a thread that was moved has nowhere to go: {refused}"),
    }
}

/// A thread that was taken from another CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stolen {
    /// Which thread.
    pub thread: ThreadRef,
    /// Which CPU had it.
    pub from: CpuId,
}

/// `thief`, which has nothing to run, takes the most overdue thread that it may run from another CPU; ties go to the lower
/// CPU. Calls `then` before another CPU can take the thread on. `None` if there is nothing to take.
pub fn steal<M: Machine, R>(
    machine: &mut M,
    thief: CpuId,
    then: impl FnOnce(&mut CpuAccess<'_, M>, Stolen) -> R,
) -> Option<R> {
    let victim = machine.choose_victim(thief)?;
    if !(machine.make_room(victim) && machine.make_room(thief)) {
        return None;
    }
    let (entity, left) = machine.with_cpu(victim, |cpu| cpu.give(thief))?;
    let thread = entity.thread();
    let result = machine.with_cpu(thief, |cpu| {
        // This CPU is about to choose it: no CPU has to be told of it.
        let (_home, _woken) = seat_moved(cpu, entity, Via::Steal, left);
        then(cpu, Stolen { thread, from: victim })
    });
    machine.thread_moved(thread);
    Some(result)
}

/// The running thread of `cpu` ends.
pub fn exit_current<M: Machine>(machine: &mut M, cpu: CpuId) -> Option<Entity> {
    let _room = machine.make_room(cpu);
    machine.with_cpu(cpu, |cpu| cpu.exit_current())
}

/// Ends `thread`, which does not run: takes it out of its CPU, and gives it and the permit of its wait to the caller. `None` if it
/// runs, moves or has ended.
pub fn remove<M: Machine>(machine: &mut M, thread: ThreadRef) -> Option<Removed> {
    let home = machine.home(thread)?;
    let _room = machine.make_room(home.cpu);
    machine.with_cpu(home.cpu, |cpu| cpu.end(home.seat))
}

/// How often a thread that is on its way from one CPU to another is looked for.
pub(crate) const LOOKS: u32 = 10_000;

/// Gives `thread` another weight, at once: one that is queued without a context is queued anew, with the credit that it has. Whether
/// the thread was found.
pub fn set_weight<M: Machine>(machine: &mut M, thread: ThreadRef, weight: Weight) -> bool {
    for _ in 0..LOOKS {
        let Some(home) = machine.home(thread) else { return false };
        let set = machine.with_cpu(home.cpu, |cpu| {
            let plain = cpu.cpu().entity(home.seat).ok()?.context().is_none();
            let queued = plain && cpu.cpu().state(home.seat) == Ok(State::Queued);
            let held = queued && cpu.event().hold(home.seat).is_ok();
            cpu.event().set_weight(home.seat, weight).ok()?;
            Some(if held { cpu.event().release(home.seat).ok() } else { None })
        });
        if let Some(requeued) = set {
            if let Some(woken) = requeued {
                kick(machine, home, woken.reschedule);
            }
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

/// The thread at `home` has become ready there, and `wants` says whether that CPU should look at its queue for it: because it
/// idles, or because the thread goes before the one that runs. Tells the first CPU that should know and can be told: that CPU, and
/// then the idle ones that may run the thread, upwards from it and around. This CPU looks at its own queue anyway.
#[inline(always)]
pub fn kick<M: Machine>(machine: &mut M, home: Home, wants: bool) {
    let here = machine.this_cpu() == Some(home.cpu);
    if wants && here {
        return;
    }
    machine.search_begins(home);
    if wants && machine.notify_cpu(home.cpu) == Notified::Sent {
        return;
    }
    if unlikely(machine.any_cpu_idles()) {
        kick_idle(machine, home);
    }
    if !here {
        machine.rearm_timer(home.cpu);
    }
}

/// The thread at `home` is ready on a CPU that does not take it at once.
#[inline(never)]
fn kick_idle<M: Machine>(machine: &mut M, home: Home) {
    if let Some(affinity) = machine.with_cpu(home.cpu, |cpu| cpu.reach(home.seat)) {
        tell_idle(machine, home.cpu, |cpu| affinity.allows(cpu));
    }
}

/// Tells the first idle CPU that `suits` and can be told, upwards from `home` and around. One that has been told already or cannot
/// be told is passed over.
fn tell_idle<M: Machine>(machine: &mut M, home: CpuId, suits: impl Fn(CpuId) -> bool) {
    let mut probe = Probe::new(home);
    while let Some(cpu) = probe.next(machine) {
        let looks =
            |machine: &mut M| machine.this_cpu() == Some(cpu) || machine.notify_cpu(cpu) == Notified::Sent;
        if suits(cpu) && looks(machine) {
            return;
        }
    }
}

/// The idle CPUs, upwards from one and around.
struct Probe {
    home: CpuId,
    next: Option<CpuId>,
    around: bool,
}

impl Probe {
    fn new(home: CpuId) -> Self {
        Self { home, next: above(home), around: false }
    }

    fn next<M: Machine>(&mut self, machine: &M) -> Option<CpuId> {
        let found = self.next.and_then(|from| machine.next_idle_cpu(from));
        let found = match found {
            Some(cpu) if !self.around || cpu < self.home => Some(cpu),
            None if !self.around => {
                self.around = true;
                machine.next_idle_cpu(CpuId::BOOT).filter(|cpu| *cpu < self.home)
            }
            _ => None,
        };
        self.next = found.and_then(above);
        found
    }
}

fn above(cpu: CpuId) -> Option<CpuId> {
    CpuId::new(cpu.index() + 1).ok()
}

/// `cpu` has chosen a thread. If others are still queued there and another CPU idles that may run one of them, tells it.
#[inline(always)]
pub fn share_leftovers<M: Machine>(machine: &mut M, cpu: CpuId) {
    if unlikely(machine.any_cpu_idles()) {
        offer_leftovers(machine, cpu);
    }
}

#[inline(never)]
fn offer_leftovers<M: Machine>(machine: &mut M, cpu: CpuId) {
    let offer = machine.offer(cpu);
    if offer != Offer::NONE {
        tell_idle(machine, cpu, |idle| offer.due_in != Offer::NOTHING || offer.may_reach(idle));
    }
}
