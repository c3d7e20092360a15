//! Ordinary threads beside the tasks.

use super::future::wake_stale;
use crate::line::{self, Line, Patience};
use crate::rng::Rng;
use crate::run::END;
use crate::verdict::violation;
use crate::world::{Job, Me, World};
use mainspring::{BlockingError, Budget, BudgetError, Capacity, Component, Cost, Cx, Runtime};
use std::sync::mpsc;
use std::time::Duration;

pub fn blocking(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !me.affords(cx, Cost::SYSCALL.amounts()) {
        return;
    }
    let input = rng.draw();
    let sleeps = rng.one_in(8) && !me.world.setting.is_deterministic();
    let result = me.paid(
        cx,
        Cost::SYSCALL,
        || {
            cx.blocking(|| {
                if sleeps {
                    std::thread::sleep(Duration::from_micros(50));
                }
                input ^ 1
            })
        },
        |result| result.is_ok(),
    );
    match (result, me.authority.executor) {
        (Err(BlockingError::NotPermitted), false) => {}
        (other, false) => violation(format_args!("a blocking call without CapExecutor: {other:?}")),
        (Ok(output), true) if output == input ^ 1 && !me.has_none(Component::Syscalls) => {}
        (Err(BlockingError::Budget(BudgetError::NeverGranted(Component::Syscalls))), true)
            if !me.was_granted(Component::Syscalls) => {}
        (Err(BlockingError::Unwinding), true) if me.cleans_up.get() => {}
        (other, true) => violation(format_args!("a blocking call of {input}: {other:?}")),
    }
}

/// Messages to or from an ordinary thread that blocks for them.
pub fn bridge(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    const MESSAGES: u64 = 6;
    let share = Budget { ops: 50, channel_ops: 2 * MESSAGES as u16 + 4, ..Budget::ZERO };
    let Some(host) = me.world.hosts.last().filter(|_| me.affords(cx, share)) else { return };
    if me.has_none(Component::ChannelOps)
        || !me.scope.is_ample
        || me.authority.channel.is_none()
        || me.is_half
    {
        return;
    }
    let capacity = rng.pick(&[Capacity::Rendezvous, Capacity::Bounded(2), Capacity::Unbounded]);
    let Ok(ends) = cx.channel(capacity) else { return };
    me.channels_made.set(me.channels_made.get() + 1);
    let Line { tx, rx } = line::line(capacity, ends);
    let (count, from) = (1 + rng.below(MESSAGES), me.world.uid());
    if rng.one_in(2) {
        drop(host.send(Box::new(move || {
            for number in 1..=count {
                if !tx.send_blocking(from, number) {
                    return;
                }
            }
        })));
        while rx.recv(cx, me, Patience::Forever) {}
    } else {
        let silent = if rng.one_in(2) { cx.channel::<()>(Capacity::Rendezvous).ok() } else { None };
        me.channels_made.set(me.channels_made.get() + u32::from(silent.is_some()));
        drop(host.send(Box::new(move || match silent {
            Some((_silent, never)) => rx.select_blocking(&never),
            None => rx.drain_blocking(),
        })));
        for _ in 0..count {
            if !tx.send(cx, me, Patience::Forever) {
                return;
            }
        }
    }
}

/// A host thread: does the jobs that tasks give it, and looks at the runtimes from outside in between.
pub fn host_thread(runtimes: &[&Runtime], world: &World, jobs: &mpsc::Receiver<Job>, seed: u64) {
    let mut rng = Rng::new(seed);
    loop {
        match jobs.recv_timeout(Duration::from_micros(300)) {
            Ok(job) => job(),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if END.get() {
            return;
        }
        let number = rng.below(runtimes.len() as u64) as usize;
        let runtime = runtimes[number];
        let parker = &world.parkers[rng.below(world.parkers.len() as u64) as usize];
        match rng.below(9) {
            0 => drop((runtime.snapshot(), runtime.metrics())),
            1 => drop((runtime.worker_stats(), runtime.take_overstays())),
            8 => super::lease(runtimes, number, world, &mut rng),
            2 => {
                let worker = rng.below(world.setting.workers as u64) as usize;
                if !runtime.set_steal_enabled(worker, rng.one_in(2)) {
                    violation("a worker is not there");
                }
            }
            3 | 4 => parker.unpark(),
            5 => drop(parker.park_blocking(Some(Duration::from_micros(rng.below(100))))),
            _ => wake_stale(world, &mut rng),
        }
    }
}
