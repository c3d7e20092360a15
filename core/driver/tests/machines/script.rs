//! What the CPUs of a machine do, step by step: the same for every machine.

use super::{cpu, entity, thread};
use mainspring_abi::{CpuId, CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_driver::contexts::{
    CallEnd, ContextMachine, Contexts, Delivery, Grant, HomeCpu, Lent, RevokeReason, may_block,
};
use mainspring_driver::leases::{Attended, GrantRequest, LeaseMachine, Leases};
use mainspring_driver::placement::{
    exit_current, expire, hand_over, migrate, place, remove, share_leftovers, start, steal, wake,
};
use mainspring_sched::context::ContextSpec;
use mainspring_sched::lease::{AccountingTarget, LeaseRequest, Mode, NamedRing, Owner, RevocationPolicy};
use mainspring_sched::{
    Affinity, Decision, IdleConditions, Stop, TickMode, Timeout, Via, WaitKind, WaitPermit, WaitQuota,
};
use proptest::prelude::*;

/// A machine whose CPUs take the steps of a script.
pub trait Driven: ContextMachine + LeaseMachine {
    /// Exclusive access to the leases. No CPU is held, and the contexts are not.
    fn with_leases<R>(&mut self, act: impl FnOnce(&mut Leases, &mut Self) -> R) -> R;
    /// `thread` may run where `affinity` says if no lease decides.
    fn set_own_affinity(&mut self, thread: ThreadRef, affinity: Affinity);
    /// Exclusive access to the quota of timed waits.
    fn with_quota<R>(&mut self, act: impl FnOnce(&mut WaitQuota) -> R) -> R;
    /// Exclusive access to the contexts. No CPU is held.
    fn with_contexts<R>(&mut self, act: impl FnOnce(&mut Contexts, &mut Self) -> R) -> R;
    /// `cpu` has nothing to run, or has.
    fn set_idle(&mut self, cpu: CpuId, idle: bool);
    /// `cpu` is about to look at its queue: whether it was told to.
    fn take_notification(&mut self, cpu: CpuId) -> bool;
}

/// What one CPU does, or its running thread.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Makes a new thread; which CPUs it may use, bit by bit, 0 for all.
    Start {
        thread: u32,
        cpus: u8,
    },
    Wake(u32),
    /// Hands over to a thread and waits.
    HandOver(u32),
    Wait,
    /// Waits for so many microseconds, or until it is woken.
    Sleep(u16),
    Yield,
    /// The running thread's turn is over.
    Preempt,
    Exit,
    Migrate {
        thread: u32,
        to: usize,
    },
    /// Ends a thread that does not run.
    Kill(u32),
    /// Makes a context that is spent on `home`, and binds it to a thread.
    Grant {
        thread: u32,
        home: usize,
    },
    /// The running thread gives its context up.
    Unbind,
    /// The running thread calls another, and lends it its context; for so many microseconds at most, unless that is 0.
    Call {
        server: u32,
        timeout: u16,
    },
    /// The call of a thread ends, in the way with this number.
    EndCall {
        caller: u32,
        end: usize,
    },
    /// The context with this place in the table is revoked.
    Revoke(usize),
    /// A thread gets a CPU to itself, for half a millisecond or until it is taken back.
    Lease {
        thread: u32,
        cpu: usize,
        expires: bool,
    },
    /// The lease of a thread ends: it is revoked, or its owner releases it.
    EndLease {
        thread: u32,
        revoke: bool,
    },
    /// Nothing, but that the CPU looks at its queue.
    Look,
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub cpu: usize,
    pub action: Action,
}

const WAITS: Stop = Stop::Blocked(WaitKind::Park, None);

/// Scripts for `cpus` CPUs and at most `threads` threads, each of which is started once.
pub fn scripts(cpus: usize, threads: u32, length: usize) -> impl Strategy<Value = Vec<Step>> {
    let action = prop_oneof![
        3 => any::<u8>().prop_map(|cpus| Action::Start { thread: 0, cpus: if cpus < 128 { 0 } else { cpus } }),
        4 => (0..threads).prop_map(Action::Wake),
        3 => (0..threads).prop_map(Action::HandOver),
        3 => Just(Action::Wait),
        3 => (0..3_000_u16).prop_map(Action::Sleep),
        2 => Just(Action::Yield),
        2 => Just(Action::Preempt),
        1 => Just(Action::Exit),
        1 => (0..threads, 0..cpus).prop_map(|(thread, to)| Action::Migrate { thread, to }),
        1 => (0..threads).prop_map(Action::Kill),
        2 => (0..threads, 0..cpus).prop_map(|(thread, home)| Action::Grant { thread, home }),
        1 => Just(Action::Unbind),
        4 => (0..threads, 0..4_000_u16)
            .prop_map(|(server, timeout)| Action::Call { server, timeout: timeout.saturating_sub(2_000) }),
        3 => (0..threads, 0..CallEnd::ALL.len()).prop_map(|(caller, end)| Action::EndCall { caller, end }),
        1 => (0..16_usize).prop_map(Action::Revoke),
        2 => (0..threads, 0..cpus, any::<bool>())
            .prop_map(|(thread, cpu, expires)| Action::Lease { thread, cpu, expires }),
        1 => (0..threads, any::<bool>()).prop_map(|(thread, revoke)| Action::EndLease { thread, revoke }),
        3 => Just(Action::Look),
    ];
    let step = (0..cpus, action).prop_map(|(cpu, action)| Step { cpu, action });
    prop::collection::vec(step, 1..length).prop_map(move |mut script| {
        let mut next = 0..threads;
        for step in &mut script {
            if let Action::Start { cpus, .. } = step.action {
                step.action = next.next().map_or(Action::Look, |thread| Action::Start { thread, cpus });
            }
        }
        script
    })
}

/// CPU `here` takes a step, and looks at its queue afterwards.
pub fn take<M: Driven>(machine: &mut M, here: CpuId, action: Action) {
    arrive(machine, here);
    match action {
        Action::Start { thread: index, cpus } => start_thread(machine, here, index, cpus),
        Action::Wake(index) => {
            let _whether_it_slept = wake(machine, thread(index));
        }
        Action::HandOver(index) => {
            if may_wait(machine, here, WaitKind::Park) {
                let _whether_it_slept = hand_over(machine, thread(index));
                stop(machine, here, WAITS);
            }
        }
        Action::Wait => {
            if may_wait(machine, here, WaitKind::Park) {
                decide(machine, here, WAITS);
            }
        }
        Action::Sleep(micros) => {
            if may_wait(machine, here, WaitKind::Sleep) {
                let timeout = timeout(machine, here, micros);
                decide(machine, here, Stop::Blocked(WaitKind::Sleep, Some(timeout)));
            }
        }
        Action::Yield => stop(machine, here, Stop::Yielded),
        Action::Preempt => stop(machine, here, Stop::Preempted),
        Action::Exit => {
            let ended = machine.with_contexts(|contexts, machine| {
                let mut entity = exit_current(machine, here)?;
                contexts.thread_ended(machine, &mut entity);
                Some(entity.thread())
            });
            if let Some(ended) = ended {
                machine.with_leases(|leases, machine| leases.thread_exited(machine, ended));
                decide(machine, here, Stop::Nothing);
            }
        }
        Action::Migrate { thread: index, to } => {
            // A thread with a context moves under the lock of the contexts only.
            machine.with_contexts(|_, machine| {
                if machine.may_enter(thread(index), cpu(to)) {
                    let _where = migrate(machine, thread(index), cpu(to), None, Via::Admit);
                }
            });
        }
        Action::Kill(index) => {
            let killed = machine.with_contexts(|contexts, machine| {
                let mut removed = remove(machine, thread(index))?;
                give_back(machine, removed.permit.take());
                contexts.thread_ended(machine, &mut removed.entity);
                Some(removed.entity.thread())
            });
            if let Some(killed) = killed {
                machine.with_leases(|leases, machine| leases.thread_exited(machine, killed));
            }
        }
        Action::Grant { thread: index, home } => grant(machine, here, index, home),
        Action::Unbind => {
            let current = machine.with_cpu(here, |cpu| cpu.cpu().current());
            if let Some(seat) = current {
                machine.with_contexts(|contexts, machine| contexts.unbind(machine, seat.thread()));
            }
        }
        Action::Call { server, timeout } => call(machine, here, thread(server), timeout),
        Action::EndCall { caller, end } => machine.with_contexts(|contexts, machine| {
            let _what_came_back = contexts.end_call(machine, thread(caller), CallEnd::ALL[end]);
            let _whether_it_slept = wake(machine, thread(caller));
        }),
        Action::Revoke(place) => machine.with_contexts(|contexts, machine| {
            let name = contexts.names().nth(place);
            if let Some(who) = name {
                let _gone_before = contexts.revoke(machine, who, RevokeReason::Explicit);
            }
        }),
        Action::Lease { thread: index, cpu, expires } => lease(machine, thread(index), cpu, expires),
        Action::EndLease { thread: index, revoke } => machine.with_leases(|leases, machine| {
            let Some(lease) = leases.lease_of(thread(index)) else { return };
            // One that has expired meanwhile has ended already.
            let _ended = if revoke {
                leases.revoke(machine, lease).is_ok()
            } else {
                leases.release(machine, lease).is_ok()
            };
        }),
        Action::Look => {}
    }
    look(machine, here);
}

fn lease<M: Driven>(machine: &mut M, lessee: ThreadRef, index: usize, expires: bool) {
    if machine.home(lessee).is_none() {
        return;
    }
    let mask: CpuSet = [cpu(index)].into_iter().collect();
    let cpus: Vec<u8> = mask.bytes().collect();
    let asked = GrantRequest {
        request: LeaseRequest {
            owner: Owner { process: ProcessId::new(0), session: None, service: None },
            cpus: &cpus,
            housekeeping_exclusions: &[],
            mode: Mode::Compute,
            ring: NamedRing::None,
            allow_irqs: false,
            target: AccountingTarget::Ledger,
            max_revocation_latency: Nanos::from_millis(1),
            revocation: RevocationPolicy::Silent,
            lifetime: if expires { Nanos::from_micros(500) } else { Nanos::ZERO },
            replaces: None,
        },
        lessee,
        caller: None,
        ring: None,
        tickless: true,
        allow_busy_spin: false,
    };
    // It may be refused: the CPU is leased, or the last that is not, or the thread may not run there.
    let _granted = machine.with_leases(|leases, machine| leases.grant(machine, &asked).is_ok());
}

fn start_thread<M: Driven>(machine: &mut M, here: CpuId, index: u32, cpus: u8) {
    let allowed: Vec<usize> = (0..machine.cpus().min(8)).filter(|cpu| cpus >> cpu & 1 == 1).collect();
    let entity = entity(index, (!allowed.is_empty()).then_some(&allowed[..]));
    let weight = entity.weight().get().into();
    machine.set_own_affinity(thread(index), entity.affinity().clone());
    let cpu = place(machine, thread(index), entity.affinity(), weight, Some(here)).expect("a CPU");
    start(machine, cpu, entity).expect("a seat");
}

/// Two milliseconds in every ten, so that some are used up.
fn grant<M: Driven>(machine: &mut M, here: CpuId, index: u32, home: usize) {
    let now = machine.with_cpu(here, |cpu| cpu.now());
    let spec = ContextSpec::new(Nanos::from_millis(2), Nanos::from_millis(10));
    let grant = Grant { session: None, process: None, ledger: None, home: HomeCpu::Decided(cpu(home)) };
    machine.with_contexts(|contexts, machine| {
        if let Ok(who) = contexts.grant(now, spec, grant) {
            // One that cannot be bound stays at rest.
            let _bound = contexts.bind(machine, who, thread(index));
        }
    });
}

/// The running thread waits for an answer of `server`, which serves it on the caller's context if that can be lent.
fn call<M: Driven>(machine: &mut M, here: CpuId, server: ThreadRef, micros: u16) {
    let caller = machine.with_cpu(here, |cpu| cpu.cpu().current()).map(|seat| seat.thread());
    let Some(caller) = caller.filter(|caller| *caller != server) else { return };
    let timeout = (micros != 0).then(|| timeout(machine, here, micros));
    machine.with_contexts(|contexts, machine| {
        machine.with_cpu(here, |cpu| assert!(cpu.event().block_current(WaitKind::Call, timeout)));
        let lent = contexts.lend(machine, caller, server);
        if !matches!(lent, Ok(Lent::Ready(_))) {
            let _whether_it_slept = wake(machine, server);
        }
    });
    decide(machine, here, Stop::Nothing);
}

/// The end of a wait that begins now, with leave for it.
fn timeout<M: Driven>(machine: &mut M, here: CpuId, micros: u16) -> Timeout {
    let permit = machine.with_quota(|quota| quota.take(ProcessId::new(0))).expect("a wait for each thread");
    let now = machine.with_cpu(here, |cpu| cpu.now());
    Timeout { deadline: now + Nanos::from_micros(micros.into()), user_data: 0, permit }
}

fn give_back<M: Driven>(machine: &mut M, permit: Option<WaitPermit>) {
    if let Some(permit) = permit {
        machine.with_quota(|quota| quota.give_back(permit));
    }
}

/// The call of `thread`, which is served on its context, has timed out: it wakes when that is back.
pub fn end_timed_out_call<M: Driven>(machine: &mut M, thread: ThreadRef) {
    machine.with_contexts(|contexts, machine| {
        let _what_came_back = contexts.end_call(machine, thread, CallEnd::TimedOut);
        let _whether_it_slept = wake(machine, thread);
    });
}

/// A context that was in flight to the running thread while that moved lands now.
fn arrive<M: Driven>(machine: &mut M, here: CpuId) {
    let current = machine.with_cpu(here, |cpu| cpu.cpu().current());
    if let Some(seat) = current {
        machine.with_contexts(|contexts, machine| {
            if contexts.in_flight() > 0 {
                let delivered = contexts.deliver(machine, seat.thread());
                assert!(!matches!(delivered, Delivery::StillInFlight(_)), "it runs, so it has arrived");
            }
        });
    }
}

/// Whether the running thread, if there is one, may wait: not on borrowed time.
fn may_wait<M: Driven>(machine: &mut M, here: CpuId, kind: WaitKind) -> bool {
    machine.with_cpu(here, |cpu| {
        cpu.cpu().current().is_some_and(|seat| may_block(cpu.cpu(), seat, kind).is_ok())
    })
}

/// The running thread, if there is one, stops.
fn stop<M: Driven>(machine: &mut M, here: CpuId, stop: Stop) {
    if machine.with_cpu(here, |cpu| cpu.cpu().current().is_some()) {
        decide(machine, here, stop);
    }
}

fn decide<M: Driven>(machine: &mut M, here: CpuId, stop: Stop) {
    let decision = machine.with_cpu(here, |cpu| cpu.event().resched(stop));
    carry_out(machine, here, decision);
}

fn carry_out<M: Driven>(machine: &mut M, here: CpuId, decision: Decision) {
    machine.set_idle(here, decision == Decision::Idle);
    let leased = machine.with_isolation(|isolation| {
        isolation.ask_for_tickless(here);
        isolation.is_leased(here)
    });
    if decision != Decision::Idle {
        return share_leftovers(machine, here);
    }
    // A window without a tick ends before the CPU looks at the queues of others.
    let tickless =
        machine.with_cpu(here, |cpu| matches!(cpu.cpu().tick_mode(), TickMode::TicklessLease { .. }));
    if tickless {
        rest(machine, here);
    }
    let stolen =
        if leased { None } else { steal(machine, here, |cpu, _| cpu.event().resched(Stop::Nothing)) };
    match stolen {
        Some(decision) => {
            machine.set_idle(here, decision == Decision::Idle);
            share_leftovers(machine, here);
        }
        None if tickless => {}
        None => rest(machine, here),
    }
}

fn rest<M: Driven>(machine: &mut M, here: CpuId) {
    let _tick = machine.with_cpu(here, |cpu| cpu.event().enter_idle(&IdleConditions::default()));
}

/// CPU `here` takes its interrupts and looks at its queue, and if it has nothing to run at the others'. Leases come first.
fn look<M: Driven>(machine: &mut M, here: CpuId) {
    let told = machine.take_notification(here);
    let due = machine.with_cpu(here, |cpu| cpu.cpu().next_timer() <= cpu.now());
    if told || due {
        let attended = machine.with_leases(|leases, machine| leases.attend(machine, here));
        machine.with_cpu(here, |cpu| {
            if due {
                let _outcome = cpu.event().timer();
            }
            if told {
                cpu.event().reschedule_received();
            }
        });
        if due {
            expire(machine, here, u32::MAX);
        }
        if attended == Attended::ChooseNext {
            decide(machine, here, Stop::Nothing);
        }
    }
    let (running, wanted) =
        machine.with_cpu(here, |cpu| (cpu.cpu().current().is_some(), cpu.cpu().reschedule_wanted()));
    if !running {
        decide(machine, here, Stop::Nothing);
    } else if wanted {
        decide(machine, here, Stop::Preempted);
    }
    machine.with_leases(|leases, machine| leases.after_event_on(machine, here));
}
