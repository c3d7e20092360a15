//! Random grants, endings, waits, wakeups and failed notifications on up to five CPUs, against a slow and obvious model.
//!
//! The model keeps every lease ever granted in a list, with the reason for which it ended, and knows of the CPUs only which
//! thread sits where. What the driver says is compared with the model after each step.

mod machines;

use machines::isolated::{Isolated, isolated};
use machines::{cpu, entity, thread};
use mainspring_abi::{CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_driver::Machine;
use mainspring_driver::leases::{GrantRefusal, GrantRequest, LeaseEvent, Leases};
use mainspring_driver::placement::{self, start, wake};
use mainspring_sched::lease::{
    AccountingTarget, EndReason, Endpoint, LeaseRef, LeaseRequest, Mode, NamedRing, Owner, Refusal,
    RevocationPolicy, ServiceId, SessionId,
};
use mainspring_sched::{Affinity, State, TickMode};
use proptest::prelude::*;
use std::sync::Arc;

const THREADS: u32 = 6;
const CAPACITY: usize = 4;

#[derive(Clone, Debug)]
struct Ask {
    lessee: u32,
    cpus: u8,
    lifetime_ms: u64,
    latency_ms: u64,
    caller: Option<u32>,
    replaces: Option<usize>,
}

#[derive(Clone, Debug)]
enum Op {
    Grant(Ask),
    Revoke(usize),
    Release(usize),
    Logout(u32),
    ReplaceService(u32),
    ExitProcess(u32),
    ExitThread(u32),
    /// The running thread of a CPU waits.
    Block(usize),
    Wake(u32),
    /// The next notifications fail.
    Fail(u64),
    /// In tenths of a millisecond.
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let ask = (
        0..THREADS,
        prop_oneof![4 => (0..5u32).prop_map(|bit| 1u8 << bit), 1 => 0..32u8],
        prop_oneof![Just(0u64), 1..60u64],
        1..40u64,
        proptest::option::of(0..THREADS),
        proptest::option::weighted(0.3, 0..8usize),
    );
    let ask = ask.prop_map(|(lessee, cpus, lifetime_ms, latency_ms, caller, replaces)| Ask {
        lessee,
        cpus,
        lifetime_ms,
        latency_ms,
        caller,
        replaces,
    });
    prop_oneof![
        6 => ask.prop_map(Op::Grant),
        1 => (0..8usize).prop_map(Op::Revoke),
        1 => (0..8usize).prop_map(Op::Release),
        1 => (0..3u32).prop_map(Op::Logout),
        1 => (0..3u32).prop_map(Op::ReplaceService),
        1 => (0..3u32).prop_map(Op::ExitProcess),
        1 => (0..THREADS).prop_map(Op::ExitThread),
        4 => (0..5usize).prop_map(Op::Block),
        5 => (0..THREADS).prop_map(Op::Wake),
        1 => (1..4u64).prop_map(Op::Fail),
        6 => (1..300u64).prop_map(Op::Pass),
    ]
}

/// A lease, as the model remembers it.
#[derive(Debug)]
struct Granted {
    lease: LeaseRef,
    lessee: u32,
    cpus: Vec<usize>,
    expires_at: Nanos,
    ended: Option<EndReason>,
}

struct Model {
    machine: Isolated,
    leases: Leases,
    cpus: usize,
    granted: Vec<Granted>,
    alive: [bool; THREADS as usize],
}

/// Each process has two threads; processes, sessions and services are numbered alike.
fn process_of(thread: u32) -> u32 {
    thread / 2
}

fn owner_of(thread: u32) -> Owner {
    let number = process_of(thread);
    Owner {
        process: ProcessId::new(number),
        session: Some(SessionId(number.into())),
        service: Some(ServiceId(number)),
    }
}

impl Model {
    fn new(cpus: usize, masks: &[u8]) -> Self {
        let (machine, leases) = isolated(cpus, THREADS as usize, CAPACITY);
        let mut model = Self { machine, leases, cpus, granted: Vec::new(), alive: [true; THREADS as usize] };
        for index in 0..THREADS {
            let mask = masks[index as usize];
            let own: Vec<usize> = (0..cpus).filter(|cpu| mask & 1 << cpu != 0).collect();
            let own = Some(own).filter(|own| !own.is_empty());
            let first = own.as_ref().map_or(index as usize % cpus, |own| own[0]);
            if let Some(own) = &own {
                let set: CpuSet = own.iter().map(|index| cpu(*index)).collect();
                model.machine.own[index as usize] = Affinity::Only(Arc::new(set));
            }
            start(&mut model.machine, cpu(first), entity(index, own.as_deref())).expect("a seat");
        }
        model.machine.deliver(&mut model.leases);
        model
    }

    fn apply(&mut self, op: &Op) {
        let Self { machine, leases, .. } = self;
        match op {
            Op::Grant(ask) => self.grant(ask),
            Op::Revoke(which) => {
                let known = self.granted.get(*which).map(|granted| (granted.lease, granted.ended));
                let Some((lease, ended)) = known else { return };
                assert_eq!(leases.revoke(machine, lease).is_ok(), ended.is_none());
                self.expect_end(EndReason::Revoked, |granted| granted.lease == lease);
            }
            Op::Release(which) => {
                let Some(lease) = self.granted.get(*which).map(|granted| granted.lease) else { return };
                let _released = leases.release(machine, lease);
                self.expect_end(EndReason::Released, |granted| granted.lease == lease);
            }
            Op::Logout(session) => {
                leases.end_leases_of_session(machine, SessionId((*session).into()));
                self.expect_end(EndReason::Logout, |granted| process_of(granted.lessee) == *session);
            }
            Op::ReplaceService(service) => {
                leases.end_leases_of_service(machine, ServiceId(*service));
                self.expect_end(EndReason::ServiceReplaced, |granted| process_of(granted.lessee) == *service);
            }
            Op::ExitProcess(process) => {
                leases.end_leases_of_process(machine, ProcessId::new(*process));
                self.expect_end(EndReason::ProcessExit, |granted| process_of(granted.lessee) == *process);
            }
            Op::ExitThread(index) => self.exit(*index),
            Op::Block(index) => {
                if *index < self.cpus {
                    machine.block(leases, *index);
                }
            }
            Op::Wake(index) => {
                let _wake = wake(machine, thread(*index));
            }
            Op::Fail(count) => machine.failing = *count,
            Op::Pass(tenths) => {
                let until = machine.now + Nanos::from_micros(100 * tenths);
                machine.pass(leases, until);
            }
        }
    }

    /// Every live lease that `whose` names has ended by now, for `reason`.
    fn expect_end(&mut self, reason: EndReason, whose: impl Fn(&Granted) -> bool) {
        for granted in self.granted.iter_mut().filter(|granted| granted.ended.is_none() && whose(granted)) {
            granted.ended = Some(reason);
        }
    }

    fn grant(&mut self, ask: &Ask) {
        let mask: CpuSet = (0..8).filter(|bit| ask.cpus & 1 << bit != 0).map(cpu).collect();
        let bytes: Vec<u8> = mask.bytes().collect();
        let replaces = ask.replaces.and_then(|which| self.granted.get(which)).map(|granted| granted.lease);
        let asked = GrantRequest {
            request: LeaseRequest {
                owner: owner_of(ask.lessee),
                cpus: &bytes,
                housekeeping_exclusions: &[],
                mode: Mode::Compute,
                ring: NamedRing::None,
                allow_irqs: false,
                target: AccountingTarget::Ledger,
                max_revocation_latency: Nanos::from_millis(ask.latency_ms),
                revocation: RevocationPolicy::Notify(Endpoint(ask.lessee)),
                lifetime: Nanos::from_millis(ask.lifetime_ms),
                replaces,
            },
            lessee: thread(ask.lessee),
            caller: ask.caller.map(thread),
            ring: None,
            tickless: true,
            allow_busy_spin: false,
        };
        let before: Vec<LeaseEvent> = self.machine.events.clone();
        let expected = self.verdict(ask, &mask, replaces);
        let Self { machine, leases, .. } = self;
        match leases.grant(machine, &asked) {
            Ok(lease) => {
                assert_eq!(expected, Ok(()), "granted {ask:?}");
                if let Some(old) = replaces {
                    self.expect_end(EndReason::Superseded, |granted| granted.lease == old);
                }
                let expires_at = match ask.lifetime_ms {
                    0 => Nanos::MAX,
                    lifetime => self.machine.now + Nanos::from_millis(lifetime),
                };
                let cpus = mask.iter().map(|cpu| cpu.index()).collect();
                self.granted.push(Granted { lease, lessee: ask.lessee, cpus, expires_at, ended: None });
            }
            Err(why) => {
                assert_eq!(machine.events, before, "a refusal changes nothing");
                // How much room those take that have ended, the model does not know.
                if !matches!(why, GrantRefusal::Lease(Refusal::Full { .. })) {
                    assert_eq!(expected, Err(why.label()), "refused {ask:?}");
                }
            }
        }
    }

    /// What the rules say of a grant.
    fn verdict(&mut self, ask: &Ask, mask: &CpuSet, replaces: Option<LeaseRef>) -> Result<(), &'static str> {
        let live = |granted: &&Granted| granted.ended.is_none();
        let own = &self.machine.own[ask.lessee as usize];
        if !mask.is_empty() && !mask.iter().any(|cpu| own.allows(cpu)) {
            return Err("affinity");
        }
        let other = |granted: &&Granted| granted.lessee == ask.lessee && Some(granted.lease) != replaces;
        if self.granted.iter().filter(live).any(|granted| other(&granted)) {
            return Err("already-leased");
        }
        if let Some(old) = replaces {
            let old = self.granted.iter().find(|granted| granted.lease == old).expect("the model names it");
            if old.ended.is_some() {
                return Err("stale-lease-generation");
            }
            if owner_of(old.lessee) != owner_of(ask.lessee) {
                return Err("not-the-owner");
            }
        }
        if mask.is_empty() {
            return Err("empty-mask");
        }
        if mask.iter().any(|cpu| cpu.index() >= self.cpus) {
            return Err("cpu-offline");
        }
        let others = || self.granted.iter().filter(live).filter(|granted| Some(granted.lease) != replaces);
        let wanted = |index: &usize| mask.contains(cpu(*index));
        if others().any(|granted| granted.cpus.iter().any(wanted)) {
            return Err("overlap");
        }
        let taken = |index: &usize| others().any(|granted| granted.cpus.contains(index));
        if (0..self.cpus).all(|index| wanted(&index) || taken(&index)) {
            return Err("no-housekeeping-cpu");
        }
        Ok(())
    }

    /// Ends a thread, as its machine does: out of its CPU first.
    fn exit(&mut self, index: u32) {
        let Self { machine, leases, .. } = self;
        let Some(home) = machine.home(thread(index)) else { return };
        let runs = machine.core(home.cpu.index()).state(home.seat) == Ok(State::Running);
        machine.on(leases, home.cpu.index(), |machine| {
            if runs {
                assert!(placement::exit_current(machine, home.cpu).is_some());
            } else {
                assert!(placement::remove(machine, thread(index)).is_some());
            }
        });
        leases.thread_exited(machine, thread(index));
        self.alive[index as usize] = false;
        self.expect_end(EndReason::Revoked, |granted| granted.lessee == index);
    }

    fn check(&mut self) {
        self.machine.deliver(&mut self.leases);
        let now = self.machine.now;
        // The first look past its end ends a lease.
        self.leases.expire(&mut self.machine);
        self.machine.deliver(&mut self.leases);
        self.expect_end(EndReason::Expired, |granted| granted.expires_at <= now);
        self.check_exclusion();
        self.check_ticks();
        self.check_endings();
        self.check_homes();
    }

    /// Each CPU is in at most one live lease, one CPU is in none, and on a leased CPU is its lessee alone, or a thread that may
    /// run nowhere else.
    fn check_exclusion(&mut self) {
        let mut leased = vec![None; self.cpus];
        for granted in self.granted.iter().filter(|granted| granted.ended.is_none()) {
            for index in &granted.cpus {
                assert!(leased[*index].replace(granted).is_none(), "CPU {index} is in two leases");
            }
        }
        assert!(leased.iter().any(Option::is_none), "nobody does the housekeeping");
        assert!(!self.leases.housekeepers().is_empty());
        for (index, held) in leased.iter().enumerate() {
            let lessee = self.machine.isolation.lessee(cpu(index));
            assert_eq!(lessee.map(|lessee| lessee.lease), held.map(|granted| granted.lease), "CPU {index}");
            // A CPU that was not told clears itself at its next interrupt.
            let Some(granted) = held.filter(|_| !self.machine.untold[index]) else { continue };
            let mut slot = 0;
            while let Some((seat, state)) = self.machine.core(index).resident_from(slot) {
                slot = seat.slot() + 1;
                let who = seat.thread();
                if who == thread(granted.lessee) || matches!(state, State::Asleep(_)) {
                    continue;
                }
                let own = &self.machine.own[who.index() as usize];
                let elsewhere =
                    (0..self.cpus).find(|index| leased[*index].is_none() && own.allows(cpu(*index)));
                assert_eq!(elsewhere, None, "{who:?} is on CPU {index}, which is leased, and could be there");
            }
        }
    }

    /// A CPU is without a tick only while a live lease has it and its lessee runs there alone.
    fn check_ticks(&mut self) {
        for index in 0..self.cpus {
            if !self.machine.is_tickless(index) || self.machine.untold[index] {
                continue;
            }
            let holds = |granted: &&Granted| granted.ended.is_none() && granted.cpus == [index];
            let granted = self.granted.iter().find(holds);
            let granted = granted.unwrap_or_else(|| panic!("CPU {index} has no tick and no live lease"));
            assert_eq!(self.machine.running(index), Some(thread(granted.lessee)));
            assert_eq!(self.machine.core(index).queued(), 0, "two could run on CPU {index}");
            assert!(
                self.machine.core(index).next_timer() <= granted.expires_at,
                "CPU {index} sleeps past its lease"
            );
        }
        for (cpu, running, mode) in self.machine.decided.drain(..) {
            let tickless = matches!(mode, TickMode::TicklessLease { .. });
            assert!(!tickless, "{cpu:?} chose {running:?} before its tick was back");
        }
    }

    /// Each lease that has ended was told of once, with its reason, to the endpoint that was named.
    fn check_endings(&self) {
        let mut told: Vec<(LeaseRef, EndReason)> = Vec::new();
        for (endpoint, notice) in &self.machine.notices {
            let granted = self.granted.iter().find(|granted| granted.lease == notice.lease);
            let granted = granted.expect("a lease that was granted");
            assert_eq!(*endpoint, Endpoint(granted.lessee));
            assert!(!told.iter().any(|(lease, _)| *lease == notice.lease), "told twice");
            told.push((notice.lease, notice.reason));
        }
        for granted in &self.granted {
            let heard = told.iter().find(|(lease, _)| *lease == granted.lease).map(|(_, reason)| *reason);
            assert_eq!(heard, granted.ended, "{granted:?}");
        }
    }

    /// Every thread that lives sits in exactly one seat, where its home says.
    fn check_homes(&self) {
        let mut seen = [0; THREADS as usize];
        for index in 0..self.cpus {
            let mut slot = 0;
            while let Some((seat, _)) = self.machine.core(index).resident_from(slot) {
                slot = seat.slot() + 1;
                seen[seat.thread().index() as usize] += 1;
                let home = self.machine.home(seat.thread());
                assert_eq!(home.map(|home| (home.cpu, home.seat)), Some((cpu(index), seat)));
            }
        }
        for (index, (seats, alive)) in seen.into_iter().zip(self.alive).enumerate() {
            assert_eq!(seats, u32::from(alive), "thread {index}");
            assert_eq!(self.machine.home(ThreadRef::new(index as u32, 0)).is_some(), alive);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    //= EVO:gate.lease ARCH:lease.overlap ARCH:lease.revoke ARCH:lease.lifetime TICK:L2.dynamic TICK:L3.housekeeping
    #[test]
    fn the_driver_agrees_with_the_model(
        cpus in 2..6usize,
        masks in proptest::collection::vec(prop_oneof![3 => Just(0u8), 1 => 0..32u8], THREADS as usize),
        ops in proptest::collection::vec(op(), 1..60),
    ) {
        let mut model = Model::new(cpus, &masks);
        for op in &ops {
            model.apply(op);
            model.check();
        }
    }
}
