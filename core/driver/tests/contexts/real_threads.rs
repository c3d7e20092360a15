//! CPUs that are threads of the host, with a lock each and one for all contexts, as in a kernel. They call each other, are timed
//! out, revoked and killed at random; then every context is in one place and no thread waits.

use crate::machines::host::{Host, Seen};
use crate::machines::{cpu, entity};
use crate::rig::{at, ms, on, rules};
use mainspring_abi::ThreadRef;
use mainspring_driver::contexts::{CallEnd, Contexts, Delivery, Lent, RevokeReason, may_block};
use mainspring_driver::ledgers::Ledgers;
use mainspring_driver::sessions::Sessions;
use mainspring_driver::{Machine, placement};
use mainspring_sched::context::ContextSpec;
use mainspring_sched::{Authority, Decision, Stop, WaitKind};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

const CPUS: usize = 4;
const CLIENTS: usize = 4;
const THREADS: usize = 10;
/// As many loans are made as this, unless a CPU has had so many turns before.
const LOANS: u64 = 3_000;
const TURNS: u32 = 1_000_000;

/// The threads that wait for requests and for answers. Its lock comes before the lock of the contexts, which comes
/// before a CPU's.
#[derive(Default)]
struct Endpoint {
    receivers: VecDeque<usize>,
    /// By caller: the server that has its call.
    calls: Vec<Option<usize>>,
    /// By server: whose calls it has taken.
    serving: Vec<Vec<usize>>,
    dead: Vec<bool>,
}

struct World {
    host: Host,
    endpoint: Mutex<Endpoint>,
    contexts: Mutex<Contexts>,
    /// CPUs that still have turns to take.
    busy: AtomicU64,
    loans: AtomicU64,
    nested: AtomicU64,
    ended: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with a lock")
}

fn name(index: usize) -> ThreadRef {
    ThreadRef::new(index as u32, 0)
}

/// Small and good enough.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

impl World {
    fn new() -> Self {
        let (sessions, ledgers) = (Sessions::new(1).expect("fits"), Ledgers::new(1).expect("fits"));
        let contexts = Contexts::new(64, rules(CPUS), sessions, ledgers).expect("fits");
        let endpoint = Endpoint {
            calls: vec![None; THREADS],
            serving: vec![Vec::new(); THREADS],
            dead: vec![false; THREADS],
            ..Endpoint::default()
        };
        let world = Self {
            host: Host::new(CPUS, THREADS),
            endpoint: Mutex::new(endpoint),
            contexts: Mutex::new(contexts),
            busy: AtomicU64::new(CPUS as u64),
            loans: AtomicU64::new(0),
            nested: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        };
        let mut outside = world.host.seen_from(None);
        for index in 0..THREADS {
            placement::start(&mut outside, cpu(index % CPUS), entity(index as u32, None)).expect("a seat");
        }
        // Every server comes to wait for requests before a client can keep a CPU.
        let mut chance = Chance(1);
        for turn in 0..64 * CPUS {
            let on = turn % CPUS;
            world.turn(&mut world.host.seen_from(Some(cpu(on))), on, &mut chance);
        }
        for index in 0..CLIENTS {
            world.grant(&mut outside, index);
        }
        world
    }

    /// A new context for a thread that has none.
    fn grant(&self, machine: &mut Seen<'_>, index: usize) {
        let mut contexts = lock(&self.contexts);
        let home = index % CPUS;
        let spec = ContextSpec { cpus: on(&[0, 1, 2, 3]), ..ContextSpec::new(ms(9), ms(10)) };
        let now = self.host.now();
        if let Ok(who) = contexts.grant(now, spec, at(home))
            && contexts.bind(machine, who, name(index)).is_err()
        {
            contexts.revoke(machine, who, RevokeReason::Explicit).expect("it is at rest");
        }
    }

    fn decide(&self, machine: &mut Seen<'_>, on: usize, stop: Stop) {
        let decision = machine.with_cpu(cpu(on), |cpu| cpu.event().resched(stop));
        self.host.set_idle(cpu(on), decision == Decision::Idle);
        if decision == Decision::Idle {
            let stolen = placement::steal(machine, cpu(on), |cpu, _| cpu.event().resched(Stop::Nothing));
            self.host.set_idle(cpu(on), stolen.is_none());
            std::thread::yield_now();
        }
    }

    fn block(&self, machine: &mut Seen<'_>, on: usize, kind: WaitKind) {
        machine.with_cpu(cpu(on), |cpu| {
            let current = cpu.cpu().current().expect("it runs");
            assert_eq!(may_block(cpu.cpu(), current, kind), Ok(()));
            assert!(cpu.event().block_current(kind, None));
        });
    }

    /// One thing that the running thread of a CPU does.
    fn turn(&self, machine: &mut Seen<'_>, on: usize, chance: &mut Chance) {
        self.host.take_notification(cpu(on));
        let (current, wanted) = machine.with_cpu(cpu(on), |cpu| {
            if cpu.cpu().next_timer() <= cpu.now() {
                let _outcome = cpu.event().timer();
            }
            (cpu.cpu().current(), cpu.cpu().reschedule_wanted())
        });
        let Some(seat) = current else { return self.decide(machine, on, Stop::Nothing) };
        if wanted {
            return self.decide(machine, on, Stop::Preempted);
        }
        let index = seat.thread().index() as usize;
        let mut endpoint = lock(&self.endpoint);
        let serves = !endpoint.serving[index].is_empty();
        if serves {
            let delivered = lock(&self.contexts).deliver(machine, name(index));
            assert!(!matches!(delivered, Delivery::StillInFlight(_)), "it runs, so it has arrived");
        }
        let calls_on = index < CLIENTS || serves && chance.below(3) == 0;
        if calls_on && !endpoint.receivers.is_empty() {
            self.call(machine, &mut endpoint, on, index);
            drop(endpoint);
            return self.decide(machine, on, Stop::Nothing);
        }
        if let Some(caller) = endpoint.serving[index].pop() {
            self.end(machine, &mut endpoint, caller, CallEnd::Reply);
        } else if index >= CLIENTS {
            self.block(machine, on, WaitKind::Receive);
            endpoint.receivers.retain(|one| *one != index);
            endpoint.receivers.push_back(index);
            drop(endpoint);
            return self.decide(machine, on, Stop::Nothing);
        }
        drop(endpoint);
        self.decide(machine, on, Stop::Yielded);
    }

    fn call(&self, machine: &mut Seen<'_>, endpoint: &mut Endpoint, on: usize, caller: usize) {
        let Some(server) = endpoint.receivers.pop_front() else { return };
        let mut contexts = lock(&self.contexts);
        self.block(machine, on, WaitKind::Call);
        let lent = contexts.lend(machine, name(caller), name(server));
        endpoint.calls[caller] = Some(server);
        endpoint.serving[server].push(caller);
        if lent.is_ok() {
            self.loans.fetch_add(1, Ordering::Relaxed);
            self.nested.fetch_add(u64::from(caller >= CLIENTS), Ordering::Relaxed);
        }
        if !matches!(lent, Ok(Lent::Ready(_))) {
            placement::wake(machine, name(server));
        }
    }

    /// The call of `caller` ends, once.
    fn end(&self, machine: &mut Seen<'_>, endpoint: &mut Endpoint, caller: usize, end: CallEnd) {
        let Some(server) = endpoint.calls[caller].take() else { return };
        endpoint.serving[server].retain(|one| *one != caller);
        let mut contexts = lock(&self.contexts);
        contexts.end_call(machine, name(caller), end);
        assert_eq!(placement::wake(machine, name(caller)), placement::Wake::Woken, "it waited for this");
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Revokes or grants a context, kills or wakes a thread, or ends a call, at random.
    fn disturb(&self, machine: &mut Seen<'_>, chance: &mut Chance) {
        let index = chance.below(THREADS as u64) as usize;
        match chance.below(8) {
            0 => {
                let mut contexts = lock(&self.contexts);
                let names: Vec<_> = contexts.names().collect();
                let who = names[chance.below(names.len() as u64) as usize];
                let _gone = contexts.revoke(machine, who, RevokeReason::Explicit);
            }
            1 | 2 => self.grant(machine, index % CLIENTS),
            3 if chance.below(100) == 0 => self.kill(machine, index),
            4 => {
                // Something else wakes a server that waits for requests.
                let endpoint = lock(&self.endpoint);
                if let Some(server) = endpoint.receivers.front() {
                    placement::wake(machine, name(*server));
                }
            }
            _ => {
                let mut endpoint = lock(&self.endpoint);
                let end = CallEnd::ALL[chance.below(CallEnd::ALL.len() as u64) as usize];
                self.end(machine, &mut endpoint, index, end);
            }
        }
    }

    /// Ends a thread that does not run. One client and two servers are spared, so that there is always a server to call.
    fn kill(&self, machine: &mut Seen<'_>, index: usize) {
        let mut endpoint = lock(&self.endpoint);
        let mut contexts = lock(&self.contexts);
        if endpoint.dead[index] || [0, CLIENTS, CLIENTS + 1].contains(&index) {
            return;
        }
        let Some(mut removed) = placement::remove(machine, name(index)) else { return };
        contexts.thread_ended(machine, &mut removed.entity);
        drop(contexts);
        endpoint.dead[index] = true;
        endpoint.receivers.retain(|one| *one != index);
        if let Some(server) = endpoint.calls[index].take() {
            endpoint.serving[server].retain(|one| *one != index);
        }
        for caller in std::mem::take(&mut endpoint.serving[index]) {
            self.end(machine, &mut endpoint, caller, CallEnd::ServerGone);
        }
    }
}

//= OWN:context.one-place OWN:donation.exits
#[test]
fn cpus_that_race_leave_every_context_in_one_place_and_nobody_waiting() {
    let world = World::new();
    std::thread::scope(|scope| {
        for on in 0..CPUS {
            let world = &world;
            scope.spawn(move || {
                let mut machine = world.host.seen_from(Some(cpu(on)));
                let mut chance = Chance(0x9E37_79B9 + on as u64);
                for _ in 0..TURNS {
                    world.turn(&mut machine, on, &mut chance);
                    if world.loans.load(Ordering::Relaxed) >= LOANS {
                        break;
                    }
                }
                world.busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let world = &world;
        scope.spawn(move || {
            let mut machine = world.host.seen_from(None);
            let mut chance = Chance(0xD1CE);
            while world.busy.load(Ordering::Relaxed) != 0 {
                world.disturb(&mut machine, &mut chance);
                std::thread::sleep(Duration::from_micros(50));
            }
        });
    });
    assert!(world.loans.load(Ordering::Relaxed) >= LOANS, "{} loans", world.loans.load(Ordering::Relaxed));
    assert!(world.nested.load(Ordering::Relaxed) > 0, "some of them are lent on");
    let mut machine = world.host.seen_from(None);
    let mut endpoint = lock(&world.endpoint);
    for caller in 0..THREADS {
        world.end(&mut machine, &mut endpoint, caller, CallEnd::Reply);
    }
    let contexts = lock(&world.contexts);
    contexts.verify(&mut machine).expect("every context is in one place");
    assert_eq!(contexts.in_flight(), 0);
    for index in (0..THREADS).filter(|index| !endpoint.dead[*index]) {
        let home = machine.home(name(index)).expect("it lives");
        machine.with_cpu(home.cpu, |cpu| {
            let entity = cpu.cpu().entity(home.seat).expect("nobody moves any more");
            assert!(!matches!(entity.authority(), Authority::Lent(_)), "thread {index} waits for ever");
            cpu.cpu().verify().expect("the structure holds");
        });
    }
}
