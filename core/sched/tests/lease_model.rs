//! Random leases, ends, requests, interrupts, contention and work on up to 8 CPUs, against a slow and obvious model.
//!
//! The model keeps every lease ever granted in a list and knows a CPU's timer only as the one time it was armed for.

mod rig;

use mainspring_abi::{CpuSet, Nanos, Policy, ProcessId, ThreadRef};
use mainspring_sched::lease::{
    LeaseRef, LeaseRequest, Limits, Refusal, Registry, RollBack, ServiceId, SessionId, Standing,
    TargetStanding,
};
use mainspring_sched::nohz::{
    Claim, Conditions, Contended, Interrupt, Kind, Origin, RemoteSlot, on_contention,
};
use mainspring_sched::{Entity, NohzEntry, NohzRecheck, Seat, State, Stop, TickMode, Via, WaitKind};
use proptest::prelude::*;
use rig::lease::{compute, eligibility, mask, owner};
use rig::{Rig, cpu_id, entity, ms, only, us};
use std::collections::BTreeSet;

const TICK: Nanos = Nanos::from_millis(10);
const MIN_DELTA: Nanos = Nanos::from_micros(50);

#[derive(Clone, Debug)]
enum Op {
    /// Process, CPUs as bits, lifetime and latency in ms, which earlier lease to replace.
    Create(u32, u8, u64, u64, Option<usize>),
    Revoke(usize),
    Release(usize),
    Exit(u32),
    Logout(u32),
    Replace(u32),
    /// A thread on the CPU claims it under an earlier lease.
    Enter(usize, usize),
    /// A thread elsewhere does.
    Park(usize, usize),
    /// A reschedule that is not for new work.
    Interrupt(usize),
    /// A second thread comes to the CPU, or leaves it.
    Arrive(usize),
    Leave(usize),
    /// Time passes, in quarters of a millisecond.
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let lease = 0..6usize;
    let cpu = 0..8usize;
    let some_cpus = prop_oneof![3 => (0..8u32).prop_map(|bit| 1u8 << bit), 1 => any::<u8>()];
    let lifetime = prop_oneof![Just(0u64), 1..80u64];
    prop_oneof![
        4 => (0..4u32, some_cpus, lifetime, 1..60u64, proptest::option::weighted(0.2, lease.clone()))
            .prop_map(|(process, cpus, life, latency, old)| Op::Create(process, cpus, life, latency, old)),
        1 => lease.clone().prop_map(Op::Revoke),
        1 => lease.clone().prop_map(Op::Release),
        1 => (0..4u32).prop_map(Op::Exit),
        1 => (0..2u32).prop_map(Op::Logout),
        1 => (0..4u32).prop_map(Op::Replace),
        4 => (cpu.clone(), lease.clone()).prop_map(|(cpu, lease)| Op::Enter(cpu, lease)),
        2 => (cpu.clone(), lease).prop_map(|(cpu, lease)| Op::Park(cpu, lease)),
        2 => cpu.clone().prop_map(Op::Interrupt),
        2 => cpu.clone().prop_map(Op::Arrive),
        2 => cpu.prop_map(Op::Leave),
        6 => (1..160u64).prop_map(Op::Pass),
    ]
}

/// A lease, as the model remembers it.
struct Granted {
    lease: LeaseRef,
    process: u32,
    cpus: BTreeSet<usize>,
    expires_at: Nanos,
    latency: Nanos,
    ended_at: Option<Nanos>,
}

impl Granted {
    fn is_live(&self, now: Nanos) -> bool {
        self.ended_at.is_none() && now < self.expires_at
    }

    /// When it ended, if it has.
    fn end(&self, now: Nanos) -> Option<Nanos> {
        self.ended_at.or(Some(self.expires_at)).filter(|end| *end <= now)
    }
}

struct Cpu {
    rig: Rig,
    slot: RemoteSlot,
    /// What the hardware timer is armed for.
    armed: Nanos,
    main: Seat,
    /// The second thread: away, or here.
    away: Option<Entity>,
    second: Option<Seat>,
    /// How much later than it should a recheck may be, because handlers could not reach the scheduler.
    delayed: Nanos,
}

struct World {
    now: Nanos,
    cpus: Vec<Cpu>,
    registry: Registry,
    granted: Vec<Granted>,
    /// Drives contention.
    dice: u64,
    entered: usize,
    contended: usize,
    rolled_back: usize,
}

impl World {
    fn new(count: usize, dice: u64) -> Self {
        let cpu = |n: usize| {
            let mut rig = Rig::on(n, Policy::Eevdf);
            let main = rig.admit(|spec| spec.affinity = only(&[n]));
            rig.start();
            let away = Some(entity(5_000 + n as u32));
            let slot = RemoteSlot::new();
            Cpu { armed: rig.cpu.next_timer(), rig, slot, main, away, second: None, delayed: Nanos::ZERO }
        };
        let registry = Registry::new(CpuSet::first(count), Limits { capacity: 6, ..Limits::default() });
        Self {
            now: Nanos::ZERO,
            cpus: (0..count).map(cpu).collect(),
            registry: registry.expect("memory"),
            granted: Vec::new(),
            dice: dice | 1,
            entered: 0,
            contended: 0,
            rolled_back: 0,
        }
    }

    fn roll(&mut self, one_in: u64) -> bool {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice.is_multiple_of(one_in)
    }

    fn online(&self) -> CpuSet {
        CpuSet::first(self.cpus.len())
    }

    fn model_of(&self, lease: LeaseRef) -> &Granted {
        self.granted.iter().find(|one| one.lease == lease).expect("only granted leases are used")
    }

    fn named(&self, index: usize) -> Option<LeaseRef> {
        self.granted.iter().rev().nth(index).map(|one| one.lease)
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Create(process, bits, lifetime, latency, old) => {
                self.create(process, bits, ms(lifetime), ms(latency), old.and_then(|old| self.named(old)));
            }
            Op::Revoke(index) => {
                self.end_one(index, |world, lease| world.registry.revoke(world.now, lease).is_ok());
            }
            Op::Release(index) => {
                self.end_one(index, |world, lease| world.registry.release(world.now, lease).is_ok());
            }
            Op::Exit(process) => {
                let _ = self.registry.process_exited(ProcessId::new(process));
                self.end_those(|one| one.process == process);
            }
            Op::Logout(session) => {
                let _ = self.registry.logged_out(SessionId(session.into()));
                self.end_those(|one| one.process / 2 == session);
            }
            Op::Replace(service) => {
                let _ = self.registry.service_replaced(ServiceId(service));
                self.end_those(|one| one.process == service);
            }
            Op::Enter(cpu, index) => {
                if let (Some(lease), true) = (self.named(index), cpu < self.cpus.len()) {
                    let origin = Origin::Local { caller: self.cpus[cpu].main.thread(), poller: None };
                    self.enter(cpu, claim(lease, origin));
                    self.arm(cpu);
                }
            }
            Op::Park(cpu, index) => {
                if let (Some(lease), true) = (self.named(index), cpu < self.cpus.len()) {
                    let origin = Origin::Remote { caller: ThreadRef::new(9_000, 0) };
                    let occupied = self.cpus[cpu].slot.peek().is_some();
                    assert_eq!(self.cpus[cpu].slot.park(claim(lease, origin)).is_err(), occupied);
                    self.interrupt(cpu, Interrupt::Reschedule);
                }
            }
            Op::Interrupt(cpu) if cpu < self.cpus.len() => self.interrupt(cpu, Interrupt::Reschedule),
            Op::Arrive(cpu) if cpu < self.cpus.len() => self.arrive(cpu),
            Op::Leave(cpu) if cpu < self.cpus.len() => self.leave(cpu),
            Op::Interrupt(_) | Op::Arrive(_) | Op::Leave(_) => {}
            Op::Pass(quarters) => self.pass(us(250 * quarters)),
        }
        self.check();
    }

    fn create(
        &mut self,
        process: u32,
        bits: u8,
        lifetime: Nanos,
        latency: Nanos,
        replaces: Option<LeaseRef>,
    ) {
        let cpus: BTreeSet<usize> = (0..8).filter(|bit| bits >> bit & 1 == 1).collect();
        let bytes = mask(&cpus.iter().copied().collect::<Vec<_>>());
        let request = LeaseRequest {
            owner: owner(process),
            lifetime,
            max_revocation_latency: latency,
            replaces,
            ..compute(&bytes)
        };
        let free: BTreeSet<usize> = (0..self.cpus.len()).collect();
        let others =
            || self.granted.iter().filter(|one| one.is_live(self.now) && Some(one.lease) != replaces);
        let taken: BTreeSet<usize> = others().flat_map(|one| one.cpus.iter().copied()).collect();
        let replaced = replaces.map(|lease| self.model_of(lease));
        let expected = if replaced.is_some_and(|old| !old.is_live(self.now)) {
            Some("stale-lease-generation")
        } else if replaced.is_some_and(|old| old.process != process) {
            Some("not-the-owner")
        } else if cpus.is_empty() {
            Some("empty-mask")
        } else if !cpus.is_subset(&free) {
            Some("cpu-offline")
        } else if !cpus.is_disjoint(&taken) {
            Some("overlap")
        } else if free.iter().all(|cpu| cpus.contains(cpu) || taken.contains(cpu)) {
            Some("no-housekeeping-cpu")
        } else {
            None
        };
        let online = self.online();
        match self.registry.create(self.now, &request, TargetStanding::Chargeable, &online) {
            Ok(created) => {
                assert_eq!(expected, None, "{request:?}");
                assert!(self.granted.iter().all(|one| one.lease != created.lease), "a name was used twice");
                let now = self.now;
                if let Some(old) = self.granted.iter_mut().find(|one| Some(one.lease) == replaces) {
                    old.ended_at = Some(now);
                }
                let expires_at = if lifetime.is_zero() { Nanos::MAX } else { now + lifetime };
                let lease = created.lease;
                self.granted.push(Granted { lease, process, cpus, expires_at, latency, ended_at: None });
            }
            // Ended leases that were not released take room; the model does not count them.
            Err(Refusal::Full { .. }) => {}
            Err(refusal) => assert_eq!(Some(refusal.label()), expected, "{request:?}"),
        }
        self.roll_back();
    }

    fn end_one(&mut self, index: usize, end: impl Fn(&mut Self, LeaseRef) -> bool) {
        let Some(lease) = self.named(index) else { return };
        let live = self.model_of(lease).is_live(self.now);
        let ended = end(self, lease);
        assert!(ended || !live, "a live lease can be ended");
        if live {
            self.end_those(|one| one.lease == lease);
        } else {
            self.roll_back();
        }
    }

    fn end_those(&mut self, which: impl Fn(&Granted) -> bool) {
        let now = self.now;
        for one in self.granted.iter_mut().filter(|one| which(one) && one.is_live(now)) {
            one.ended_at = Some(now);
        }
        self.roll_back();
    }

    /// Does what must be done for leases that have ended; sometimes the CPU is not reached.
    fn roll_back(&mut self) {
        while let Some(RollBack { lease, cpu, .. }) = self.registry.roll_back() {
            let now = self.now;
            let model = self.granted.iter().find(|one| one.lease == lease).expect("granted");
            assert!(!model.is_live(now), "{lease} was rolled back while it was live");
            let Some(cpu) = cpu else { continue };
            assert_eq!(model.cpus, BTreeSet::from([cpu.index()]));
            self.rolled_back += 1;
            if self.roll(2) {
                self.cpus[cpu.index()].slot.withdraw(lease);
            }
            if self.roll(2) {
                self.cpus[cpu.index()].rig.cpu.nohz_forget(lease);
            }
            if !self.roll(4) {
                self.interrupt(cpu.index(), Interrupt::Reschedule);
            }
        }
    }

    fn conditions(&mut self, lease: LeaseRef) -> Conditions {
        let standing = self.registry.standing(self.now, lease);
        assert_eq!(matches!(standing, Standing::Live(_)), self.model_of(lease).is_live(self.now), "{lease}");
        let online = self.online();
        let housekeeping = self.registry.housekeepers_for(lease, &online).is_ok_and(|cpus| !cpus.is_empty());
        Conditions { lease: standing, housekeeping, min_delta: MIN_DELTA, ..Conditions::default() }
    }

    fn is_alone(&self, cpu: usize) -> bool {
        let cpu = &self.cpus[cpu];
        cpu.second.is_none() && cpu.rig.cpu.current() == Some(cpu.main)
    }

    fn is_tickless(&self, cpu: usize) -> bool {
        matches!(self.cpus[cpu].rig.cpu.tick_mode(), TickMode::TicklessLease { .. })
    }

    fn enter(&mut self, cpu: usize, claim: Claim) {
        let conditions = self.conditions(claim.lease);
        let (already, alone) = (self.is_tickless(cpu), self.is_alone(cpu));
        let model = self.model_of(claim.lease);
        let ours = model.cpus == BTreeSet::from([cpu]);
        let within = claim.max_revocation_latency <= model.latency;
        let due = model.is_live(self.now) && ours && within && alone;
        let entry = self.cpus[cpu].rig.cpu.nohz_enter(self.now, &claim, &conditions);
        assert_eq!(matches!(entry, NohzEntry::Tickless { .. }), due && !already, "{entry:?}");
        assert_eq!(entry == NohzEntry::Already, already);
        self.entered += usize::from(due && !already);
    }

    /// The machine programs its timer after each event that reaches the scheduler. What is overdue came while the
    /// scheduler could not be reached, and the timer was armed for another try then.
    fn arm(&mut self, cpu: usize) {
        let tickless = self.is_tickless(cpu);
        let (now, cpu) = (self.now, &mut self.cpus[cpu]);
        let due = cpu.rig.cpu.next_timer();
        if due > now {
            (cpu.armed, cpu.delayed) = (due, Nanos::ZERO);
        } else {
            assert!(!tickless || !cpu.delayed.is_zero(), "tickless, and armed for the past");
            cpu.armed = if cpu.armed > now { cpu.armed.min(now + MIN_DELTA) } else { now + MIN_DELTA };
        }
    }

    /// An interrupt comes: drain, recheck, and what else the timer is for.
    fn interrupt(&mut self, cpu: usize, interrupt: Interrupt) {
        if self.roll(5) {
            return self.contended(cpu, interrupt);
        }
        if let Some(request) = self.cpus[cpu].slot.peek() {
            self.enter(cpu, request.claim);
            self.cpus[cpu].slot.finish(&request);
        }
        self.recheck(cpu);
        if interrupt == Interrupt::Timer {
            let _ = self.cpus[cpu].rig.cpu.timer(self.now);
        }
        if self.cpus[cpu].rig.cpu.reschedule_wanted() {
            let _ = self.cpus[cpu].rig.cpu.resched(self.now, Stop::Preempted);
        }
        self.arm(cpu);
    }

    fn contended(&mut self, cpu: usize, interrupt: Interrupt) {
        self.contended += 1;
        let tickless = self.is_tickless(cpu);
        match on_contention(interrupt, tickless) {
            Contended::ArmShortest => {
                self.cpus[cpu].armed = self.now + MIN_DELTA;
                self.cpus[cpu].delayed += MIN_DELTA;
            }
            Contended::StillArmed if interrupt == Interrupt::Timer => {
                self.cpus[cpu].armed = Nanos::new((self.now.get() / TICK.get() + 1) * TICK.get());
            }
            Contended::StillArmed => {}
        }
    }

    fn recheck(&mut self, cpu: usize) {
        let was_tickless = self.is_tickless(cpu);
        let record = self.cpus[cpu].rig.cpu.nohz().map(|window| (window.lease(), *window.claim()));
        let unreadable = self.roll(6);
        let mut conditions = match record {
            Some((lease, _)) => self.conditions(lease),
            None => Conditions { min_delta: MIN_DELTA, ..Conditions::default() },
        };
        if unreadable {
            conditions.lease = Standing::Contended;
        }
        let stands = record.is_some_and(|(lease, _)| self.model_of(lease).is_live(self.now));
        let alone = self.is_alone(cpu);
        match self.cpus[cpu].rig.cpu.nohz_recheck(self.now, &conditions) {
            NohzRecheck::NotTickless => assert!(!was_tickless),
            NohzRecheck::Kept { wake_at } => {
                assert!(was_tickless && alone && (stands || unreadable && record.is_some()));
                assert!(wake_at > self.now);
            }
            NohzRecheck::RolledBack(why) => {
                assert!(was_tickless && (!stands || !alone || unreadable), "{why} for nothing");
                assert!(!self.is_tickless(cpu));
            }
        }
    }

    fn arrive(&mut self, cpu: usize) {
        let Some(newcomer) = self.cpus[cpu].away.take() else { return };
        let accepted = self.cpus[cpu].rig.cpu.accept(self.now, newcomer, Via::Steal);
        let (seat, woken) = accepted.expect("there is a seat");
        self.cpus[cpu].second = Some(seat);
        assert!(!self.is_tickless(cpu), "the tick is back before the newcomer runs");
        if woken.reschedule {
            let _ = self.cpus[cpu].rig.cpu.resched(self.now, Stop::Preempted);
        }
        self.arm(cpu);
    }

    fn leave(&mut self, cpu: usize) {
        let Some(seat) = self.cpus[cpu].second.take() else { return };
        let (now, cpu_state) = (self.now, &mut self.cpus[cpu]);
        if cpu_state.rig.cpu.state(seat) == Ok(State::Running) {
            let _ = cpu_state.rig.cpu.resched(now, Stop::Blocked(WaitKind::Park, None));
        }
        let removed = cpu_state.rig.cpu.remove(now, seat).expect("it is here and does not run");
        cpu_state.away = Some(removed.entity);
        self.arm(cpu);
    }

    fn pass(&mut self, time: Nanos) {
        let end = self.now + time;
        loop {
            let first = self.cpus.iter().map(|cpu| cpu.armed).min().expect("there are CPUs");
            if first > end {
                break;
            }
            assert!(first >= self.now, "a timer that was armed for the past");
            self.now = first;
            let _ = self.registry.expire(first);
            self.roll_back();
            for cpu in 0..self.cpus.len() {
                if self.cpus[cpu].armed <= first {
                    self.interrupt(cpu, Interrupt::Timer);
                }
            }
            self.check();
        }
        self.now = end;
    }

    fn check(&mut self) {
        let (now, online) = (self.now, self.online());
        assert!(!self.registry.housekeepers(&online).is_empty(), "no housekeeping CPU is left");
        for granted in &self.granted {
            let standing = self.registry.standing(now, granted.lease);
            assert_eq!(matches!(standing, Standing::Live(_)), granted.is_live(now), "{}", granted.lease);
        }
        for (n, cpu) in self.cpus.iter().enumerate() {
            let TickMode::TicklessLease { .. } = cpu.rig.cpu.tick_mode() else {
                assert!(cpu.armed <= now + TICK, "CPU {n} ticks, but is armed for {}", cpu.armed);
                continue;
            };
            assert!(self.is_alone(n), "CPU {n} is tickless with others waiting");
            let window = cpu.rig.cpu.nohz();
            let latency = window.map_or(ms(60), |window| window.claim().max_revocation_latency);
            assert!(cpu.armed >= now, "CPU {n} has no timer armed");
            assert!(cpu.armed <= now + latency, "CPU {n} is armed for {} only", cpu.armed);
            let Some(window) = window else { continue };
            let model = self.model_of(window.lease());
            assert_eq!(model.cpus, BTreeSet::from([n]), "tickless under somebody else's lease");
            if let Some(end) = model.end(now) {
                let bound = end + latency + cpu.delayed;
                assert!(now <= bound, "CPU {n}: the lease ended at {end}, and it is still tickless at {now}");
            }
        }
    }
}

fn claim(lease: LeaseRef, origin: Origin) -> Claim {
    let mut eligibility = eligibility(Kind::AutoCompute);
    eligibility.max_revocation_latency = ms(20);
    eligibility.claim(lease, origin)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    //= ARCH:nohz.armed-timer ARCH:lease.overlap ARCH:lease.revoke ARCH:lease.lifetime ARCH:nohz.rollback ARCH:nohz.remote-slot
    //= TICK:L2.dynamic TICK:tax.nohz
    #[test]
    fn leases_and_windows_do_what_the_model_says(
        cpus in 2..=8usize,
        dice in any::<u64>(),
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new(cpus, dice);
        for op in &ops {
            world.apply(op);
        }
        // Whatever was going on, ended leases leave no CPU tickless.
        for process in 0..4 {
            world.apply(&Op::Exit(process));
        }
        world.apply(&Op::Pass(4 * 300));
        for cpu in 0..cpus {
            prop_assert!(!world.is_tickless(cpu));
        }
    }
}

/// The random histories reach what they are meant to test.
#[test]
fn a_long_history_goes_tickless_and_back_often() {
    let mut world = World::new(4, 77);
    for round in 0..2_000usize {
        let cpu = round % 3;
        world.apply(&Op::Create(cpu as u32, 1 << cpu, (round % 7 * 20) as u64, 40, None));
        world.apply(&if round % 2 == 0 { Op::Enter(cpu, 0) } else { Op::Park(cpu, 0) });
        world.apply(&Op::Pass(30));
        world.apply(&match round % 5 {
            0 => Op::Revoke(0),
            1 => Op::Exit(cpu as u32),
            2 => Op::Arrive(cpu),
            3 => Op::Leave(cpu),
            _ => Op::Release(1),
        });
        world.apply(&Op::Leave(cpu));
    }
    let counted = (world.entered, world.contended, world.rolled_back);
    assert!(world.entered > 200 && world.contended > 200 && world.rolled_back > 200, "{counted:?}");
    assert_eq!(world.cpus[0].rig.cpu.id(), cpu_id(0));
}
