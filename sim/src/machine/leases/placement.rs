//! Who is where because of a lease: its thread comes and is bound, others leave and stay away.

use crate::machine::Machine;
use mainspring_abi::Nanos;
use mainspring_driver::placement;
use mainspring_sched::{Affinity, State, Via, WaitKind};
use std::sync::Arc;

impl Machine<'_> {
    /// Where `thread` may run if no lease has a say in it.
    pub(super) fn own_affinity(&self, thread: usize) -> Affinity {
        let spec = &self.workload.threads[self.table_of(thread)];
        spec.cpus.map_or(Affinity::Any, |cpus| Affinity::Only(Arc::new(cpus)))
    }

    /// Where `thread` may run by the leases of this moment.
    pub(in crate::machine) fn due_affinity(&self, thread: usize) -> Affinity {
        let own = self.own_affinity(thread);
        match self.leases.of_thread(thread) {
            None => own,
            Some(lease) => {
                let allowed = self.workload.leases[lease].cpus.iter().filter(|cpu| own.allows(*cpu));
                Affinity::Only(Arc::new(allowed.collect()))
            }
        }
    }

    /// Whether no lease keeps `thread` away from `cpu`.
    pub(in crate::machine) fn no_lease_keeps_away(&self, thread: usize, cpu: usize) -> bool {
        if !self.leases.any() {
            return true;
        }
        let lessee = self.leases.of_cpu[cpu].map(|lease| self.leases.list[lease as usize].thread);
        lessee.is_none_or(|lessee| lessee == thread)
    }

    /// `thread` is about to start: it may run where its lease is, if it has one.
    pub(in crate::machine) fn bind_to_lease(&mut self, thread: usize) {
        if self.leases.any() {
            self.threads[thread].affinity = self.due_affinity(thread);
        }
    }

    /// The best CPU for `thread`, which would rather be at `near`: one that nobody has to himself, if it may run on one.
    pub(in crate::machine) fn open_place(&self, thread: usize, near: usize) -> usize {
        let affinity = self.due_affinity(thread);
        let allowed = |cpu: &usize| affinity.allows(self.cpu_id(*cpu));
        let open = |cpu: &usize| allowed(cpu) && self.no_lease_keeps_away(thread, *cpu);
        if open(&near) {
            return near;
        }
        let load = |cpu: &usize| self.cores[*cpu].queued() + usize::from(!self.lanes[*cpu].idle);
        let least = (0..self.cores.len()).filter(open).min_by_key(load);
        least
            .or_else(|| Some(near).filter(allowed))
            .or_else(|| (0..self.cores.len()).find(allowed))
            .unwrap_or(near)
    }

    /// Where `thread` is to be, if that is not where and as it is.
    pub(super) fn due_elsewhere(&self, thread: usize) -> Option<(usize, Affinity)> {
        let (home, _) = self.place_of(thread)?;
        let affinity = self.due_affinity(thread);
        let bound = self.threads[thread].pinned || self.has_lent(thread).is_some();
        let goes = if bound { home } else { self.open_place(thread, home) };
        let stays = goes == home && affinity == self.threads[thread].affinity;
        (!stays && affinity.allows(self.cpu_id(goes))).then_some((goes, affinity))
    }

    /// Everybody on the CPUs of a lease who can be elsewhere goes there, and its thread comes.
    pub(super) fn clear_cpus_of(&mut self, lease: usize) {
        let lessee = self.leases.list[lease].thread;
        let cpus = self.workload.leases[lease].cpus;
        let there = |machine: &Self, thread: usize| {
            machine.place_of(thread).is_some_and(|(cpu, _)| cpus.contains(machine.cpu_id(cpu)))
        };
        for thread in 0..self.threads.len() {
            if thread != lessee && there(self, thread) {
                self.resettle(thread);
                if there(self, thread) && self.due_elsewhere(thread).is_none() {
                    self.log_lease("lease-obstacle", lease, Some(lessee), Some(thread), "bound-here");
                }
            }
        }
        self.resettle(lessee);
    }

    /// Moves `thread` if a lease wants it elsewhere or bound otherwise. A sleeper stays until it wakes. The CPU that it
    /// ran on chooses another.
    pub(super) fn resettle(&mut self, thread: usize) {
        let Some((home, seat)) = self.place_of(thread) else { return };
        let Some((goes, affinity)) = self.due_elsewhere(thread) else { return };
        let running = self.lanes[home].running == Some(thread as u32);
        let queued =
            matches!(self.cores[home].state(seat), Ok(State::Queued)) && !self.threads[thread].pinned;
        if !running && !queued {
            return;
        }
        if running {
            self.pause_work(home);
            self.look_at_lag_of_stopping(home, thread as u32);
            self.end_segment(home, "moved");
            self.core_block_current(home, WaitKind::Park, None);
            self.lanes[home].running = None;
            self.lanes[home].done_at = Nanos::MAX;
        }
        self.carry_over(thread, goes, affinity);
        if running {
            self.choose(home);
            if self.acting != Some(home) {
                self.carry_on(home);
            }
        }
    }

    /// Takes `thread`, which does not run, from its seat to one on `goes`, where it is ready.
    pub(super) fn carry_over(&mut self, thread: usize, goes: usize, affinity: Affinity) {
        let (who, goes) = (self.threads[thread].identity, self.cpu_id(goes));
        if placement::migrate(self, who, goes, Some(affinity.clone()), Via::Admit).is_some() {
            self.threads[thread].affinity = affinity;
            self.leases.unsettled.retain(|other| *other != thread as u32);
        }
    }

    /// What `thread` waited for has come, and a lease wants it to wake somewhere else: it does; whether that is so.
    pub(in crate::machine) fn lease_wakes_elsewhere(&mut self, thread: usize) -> bool {
        if self.has_lent(thread).is_some() {
            return false;
        }
        let Some((goes, affinity)) = self.due_elsewhere(thread) else { return false };
        self.carry_over(thread, goes, affinity);
        true
    }

    /// `thread` has woken where a lease does not want it: moves it on; whether that was so.
    pub(in crate::machine) fn moves_on(&mut self, thread: usize) -> bool {
        let due = self.leases.any() && self.due_elsewhere(thread).is_some();
        if due {
            self.resettle(thread);
        }
        due
    }
}
