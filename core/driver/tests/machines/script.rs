//! What the CPUs of a machine do, step by step: the same for every machine.

use super::{cpu, entity, thread};
use mainspring_abi::CpuId;
use mainspring_driver::Machine;
use mainspring_driver::placement::{
    exit_current, hand_over, migrate, place, share_leftovers, start, steal, wake,
};
use mainspring_sched::{Decision, Stop, Via, WaitKind};
use proptest::prelude::*;

/// A machine whose CPUs take the steps of a script.
pub trait Driven: Machine {
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
    Yield,
    /// The running thread's turn is over.
    Preempt,
    Exit,
    Migrate {
        thread: u32,
        to: usize,
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
        2 => Just(Action::Yield),
        2 => Just(Action::Preempt),
        1 => Just(Action::Exit),
        1 => (0..threads, 0..cpus).prop_map(|(thread, to)| Action::Migrate { thread, to }),
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
    match action {
        Action::Start { thread: index, cpus } => start_thread(machine, here, index, cpus),
        Action::Wake(index) => {
            let _whether_it_slept = wake(machine, thread(index));
        }
        Action::HandOver(index) => {
            if machine.with_cpu(here, |cpu| cpu.cpu().current().is_some()) {
                let _whether_it_slept = hand_over(machine, thread(index));
                stop(machine, here, WAITS);
            }
        }
        Action::Wait => stop(machine, here, WAITS),
        Action::Yield => stop(machine, here, Stop::Yielded),
        Action::Preempt => stop(machine, here, Stop::Preempted),
        Action::Exit => {
            if exit_current(machine, here).is_some() {
                decide(machine, here, Stop::Nothing);
            }
        }
        Action::Migrate { thread: index, to } => {
            let _where = migrate(machine, thread(index), cpu(to), None, Via::Admit);
        }
        Action::Look => {}
    }
    look(machine, here);
}

fn start_thread<M: Driven>(machine: &mut M, here: CpuId, index: u32, cpus: u8) {
    let allowed: Vec<usize> = (0..machine.cpus().min(8)).filter(|cpu| cpus >> cpu & 1 == 1).collect();
    let entity = entity(index, (!allowed.is_empty()).then_some(&allowed[..]));
    let weight = entity.weight().get().into();
    let cpu = place(machine, thread(index), entity.affinity(), weight, Some(here)).expect("a CPU");
    start(machine, cpu, entity).expect("a seat");
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
    match decision {
        Decision::Run(_) => share_leftovers(machine, here),
        Decision::Idle => {
            if let Some(decision) = steal(machine, here, |cpu, _| cpu.event().resched(Stop::Nothing)) {
                machine.set_idle(here, decision == Decision::Idle);
                share_leftovers(machine, here);
            }
        }
    }
}

/// CPU `here` looks at its queue, and if it has nothing to run at the others'.
fn look<M: Driven>(machine: &mut M, here: CpuId) {
    if machine.take_notification(here) {
        machine.with_cpu(here, |cpu| cpu.event().reschedule_received());
    }
    let (running, wanted) =
        machine.with_cpu(here, |cpu| (cpu.cpu().current().is_some(), cpu.cpu().reschedule_wanted()));
    if !running {
        decide(machine, here, Stop::Nothing);
    } else if wanted {
        decide(machine, here, Stop::Preempted);
    }
}
