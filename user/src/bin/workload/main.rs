//! Plays one process of a workload: a thread per instance, each doing its steps until the time is over.
#![no_std]
#![no_main]

extern crate alloc;

mod calls;
mod contexts;
mod devices;
mod islands;
mod leases;
mod plan;
mod player;
mod policy;
mod polled;
mod rings;
mod sync;

use crate::plan::{Instance, Plan, Table, plan};
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::Nanos;
use mainspring_abi::plan::{NONE, Note, OPERATION_WORDS, operation};
use mainspring_program::ContextTarget;
use mainspring_random::{Random, Range, Stream};
use mainspring_user::caps::{self, Session};
use mainspring_user::{arch, say};
use spin::Mutex;

mainspring_user::program!(main);

/// Held by a player that has a lock which others need, the heap's included. Who ends a player holds it until that has ended.
pub static QUIET: Mutex<()> = Mutex::new(());

fn main() -> i64 {
    let Some(mut read) = plan::read(arch::data()) else {
        say!("workload: the plan makes no sense");
        return 1;
    };
    let Ok(mine) = caps::arguments().parse::<u64>() else {
        say!("workload: which process of the plan this is must be told");
        return 1;
    };
    read.began = caps::now();
    plan::set(read);
    let plan = plan();
    rings::begin(plan, mine);
    devices::begin(plan, mine);
    for (at, due) in agenda(plan, mine) {
        if at > 0 {
            let _ = caps::sleep_until(plan.began + at);
        }
        match due {
            Due::Island(island) => plan.islands[island].ask(),
            Due::Operation(place) => operate(plan.operations[place].what),
            Due::Start(instance, at) => {
                begin(instance, plan.began + at);
            }
            // Why it was refused is told at the end.
            Due::Lease(lease) => _ = plan.leases[lease].ask(),
        }
    }
    let _ = caps::sleep_until(plan.began + plan.duration);
    tell_of_all(plan, mine);
    say!("workload: done");
    0
}

/// What is due at a time, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// An island asks, by its place.
    Island(usize),
    /// An operation, by its place.
    Operation(usize),
    /// An instance is made, and lives from a time on.
    Start(usize, u64),
    /// A lease is asked for, by its place. One of a ring is asked for by the ring's owner.
    Lease(usize),
}

/// What this process has to do, and when.
fn agenda(plan: &Plan, mine: u64) -> Vec<(u64, Due)> {
    let mut agenda = Vec::new();
    let own = plan.tables.iter().enumerate().filter(|(_, table)| table.process == mine);
    for (_, table) in own.filter(|(number, _)| !plan.is_kernels(*number)) {
        let Some((least, most)) = table.start else { continue };
        for number in table.first..table.first + table.instances {
            // An instance's start is the first that it draws.
            let mut random = plan.instances[number].random.lock();
            let own = random.get_or_insert_with(|| stream(number));
            let at = own.draw(Range::new(Nanos::new(least), Nanos::new(most))).get();
            let made_at = if is_made_before_leases(plan, table) { 0 } else { at };
            agenda.push((made_at, Due::Start(number, at)));
        }
    }
    let operations = plan.operations.iter().enumerate().filter(|(_, operation)| operation.process == mine);
    agenda.extend(operations.map(|(place, operation)| (operation.at, Due::Operation(place))));
    let leases = plan.leases.iter().enumerate().filter(|(_, lease)| lease.process == mine);
    let leases = leases.filter(|(_, lease)| !lease.is_of_kernel_poller());
    agenda.extend(leases.filter_map(|(place, lease)| Some((lease.start?, Due::Lease(place)))));
    let islands = plan.islands.iter().enumerate().filter(|(_, island)| island.process == mine);
    agenda.extend(islands.map(|(place, island)| (island.start, Due::Island(place))));
    agenda.sort_unstable();
    agenda
}

/// Whether threads of the table may run on leased CPUs alone: the kernel makes none once the CPUs are leased.
fn is_made_before_leases(plan: &Plan, table: &Table) -> bool {
    let leased = plan.leases.iter().fold(0, |cpus, lease| cpus | lease.cpus);
    table.options.cpus != 0 && table.options.cpus & !leased == 0
}

/// Tells what became of everything that is this process's.
fn tell_of_all(plan: &Plan, mine: u64) {
    let places = contexts::places(mine);
    // What they use after it was told would be missing.
    let due = |(number, _): &(usize, &Instance)| contexts::due_to(*number).is_some();
    plan.instances.iter().enumerate().filter(due).for_each(|(_, instance)| stop(instance));
    contexts::tell_of(&places);
    for (number, lease) in plan.leases.iter().enumerate().filter(|(_, lease)| lease.process == mine) {
        lease.tell(number);
    }
    for (number, island) in plan.islands.iter().enumerate().filter(|(_, island)| island.process == mine) {
        island.tell(number);
    }
    for (number, ring) in plan.rings.iter().enumerate() {
        if plan.tables[plan.instances[ring.owner()].table].process == mine {
            ring.tell(number);
        }
    }
    sync::tell(plan, mine);
    calls::tell_of_all();
    if let Some(policy) = plan.policy.as_ref().filter(|policy| policy.process == mine) {
        policy::tell_of(policy);
    }
    for (number, instance) in plan.instances.iter().enumerate() {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (misses, timeouts) = (read(&instance.misses), read(&instance.timeouts));
        let (refusals, failures) = (read(&instance.refusals), read(&instance.failures));
        if misses + timeouts + refusals + failures > 0 {
            tell(Note::Counted { instance: number as u32, misses, timeouts, refusals, failures });
        }
        for note in &*instance.jobs.lock() {
            tell(*note);
        }
    }
}

/// Tells the host what the kernel's record cannot know.
fn tell(note: Note) {
    if let Err(code) = caps::note(&note.to_bytes()) {
        say!("workload: {note:?} was refused: {code:?}");
    }
}

/// A capability by a name with numbers in it. Nothing is allocated: the calling thread may be ended at any moment.
fn find(name: core::fmt::Arguments<'_>) -> Option<u32> {
    let mut text = heapless::String::<32>::new();
    text.write_fmt(name).ok()?;
    caps::find(&text)
}

/// A side of an endpoint, which this process was granted.
fn endpoint_cap(side: &str, endpoint: usize) -> u32 {
    find(format_args!("{side}:{endpoint}")).expect("the manifest grants what the plan uses")
}

/// A context that an operation names.
fn named(table: u64, instance: u64) -> ContextTarget {
    ContextTarget { context: table as usize, instance: (instance != NONE).then_some(instance as u32) }
}

fn operate([what, a, b, c, d]: [u64; OPERATION_WORDS - 2]) {
    match what {
        operation::REVOKE => contexts::contexts(named(a, b)).for_each(|context| {
            // One that was revoked before is gone already.
            let _ = context.revoke();
        }),
        operation::LOGOUT => log_out(a),
        operation::ADJUST => contexts::adjust(a, b, c, d),
        operation::LEAVE => plan().islands[a as usize].leave(),
        operation::EXIT => plan().instances_of(a, b).for_each(end),
        operation::CLOSE => {
            if let Err(code) = caps::close_endpoint(endpoint_cap("serve", a as usize)) {
                say!("workload: closing an endpoint was refused: {code:?}");
            }
        }
        operation::POLICY_WEIGHT => policy::treat(a, b, Some(c), None, d),
        operation::POLICY_CLASS => policy::treat(a, b, None, Some(plan::class(c)), d),
        operation::POLICY_STALLS => policy::stall(plan()),
        operation::POLICY_DIES => policy::service(plan()).into_iter().for_each(end),
        // One that has ended before has nothing to take back.
        operation::REVOKE_LEASE => _ = plan().leases[a as usize].revoke(),
        _ => say!("workload: an operation that this program does not know"),
    }
}

/// A session ends, and what its threads are bound to. Their leases end with it.
fn log_out(number: u64) {
    // A second logout finds that it has ended.
    let _ended = session(number).map(Session::logout);
    plan().leases.iter().for_each(leases::Lease::look);
}

/// A session that this process holds.
fn session(number: u64) -> Option<Session> {
    find(format_args!("session:{number}")).map(Session)
}

/// The thread of an instance runs no more, if it is this process's. Its life goes on in the report until the run is over.
fn stop(instance: &Instance) {
    let handle = caps::Thread::from_cap(instance.handle.load(Ordering::Acquire));
    let _quiet = QUIET.lock();
    if handle.kill().is_ok() {
        let _code = handle.join();
    }
}

/// Makes the thread of an instance, whose life begins at `at`; whether it could be. One with a context begins on the CPU where its
/// time is set aside.
fn begin(number: usize, at: u64) -> bool {
    let instance = &plan().instances[number];
    let table = &plan().tables[instance.table];
    instance.lives.fetch_add(1, Ordering::AcqRel);
    // Making a thread and saying which slot it got are one act, so that the lines are in order.
    let _quiet = QUIET.lock();
    let mut options = table.options;
    if let Some((weight, class)) = instance.treated.get() {
        (options.weight, options.class) = (weight, class);
    }
    instance.weight.store(options.weight, Ordering::Relaxed);
    if let Some(cpu) = contexts::claim_before_life(number) {
        options.cpus = 1 << cpu;
    }
    let before = instance.handle.swap(0, Ordering::AcqRel);
    if before != 0 {
        let _ = caps::Thread::from_cap(before).detach();
    }
    match caps::spawn(options, move || player::live(number, at)) {
        Ok(thread) => {
            tell(Note::Started { instance: number as u32, slot: thread.slot() });
            instance.slot.store(thread.slot(), Ordering::Relaxed);
            instance.handle.store(thread.cap(), Ordering::Release);
            true
        }
        Err(_) => {
            instance.lives.fetch_add(1, Ordering::AcqRel);
            contexts::give_up(number);
            false
        }
    }
}

/// The kernel's poller in this slot is instance `number`.
fn begin_poller(number: usize, slot: u32) {
    tell(Note::Started { instance: number as u32, slot });
}

/// Ends an instance from outside, if it lives.
fn end(number: usize) {
    let instance = &plan().instances[number];
    let handle = caps::Thread::from_cap(instance.handle.load(Ordering::Acquire));
    let quiet = QUIET.lock();
    if instance.lives.load(Ordering::Acquire).is_multiple_of(2) || handle.kill().is_err() {
        return;
    }
    // It may spin for what this has, and then ends there.
    let _code = handle.join();
    if !instance.lives.load(Ordering::Acquire).is_multiple_of(2) {
        sync::end(number);
        policy::ended(number);
        rings::ended(number);
        contexts::give_up(number);
        let (instance_number, period) = (number as u32, plan().tables[instance.table].first_period());
        instance.jobs.lock().push(Note::Ended { instance: instance_number, at: caps::now(), period });
        instance.lives.fetch_add(1, Ordering::AcqRel);
    }
    drop(quiet);
    let _ = caps::unpark(instance.lives.as_ptr() as u64, u32::MAX);
}

/// What instance `number` draws from, before its first draw.
fn stream(number: usize) -> Random {
    Random::new(plan().seed, Stream::Thread(number))
}
