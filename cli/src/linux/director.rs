//! The one thread that starts the players of a run and does what is due: operations, leases and islands at their times, and what
//! the owners of contexts want to happen when those are used up.
//!
//! Conserved: the thread that begins a life of an instance orders its start, and each order is carried out once.

use super::contexts::Fault;
use super::player;
use super::policy::Policy;
use super::stage::{Order, Stage, duration};
use mainspring::policy::Treatment;
use mainspring::{Budget, Cx, Handle, Nursery, Schedule, SpawnError};
use mainspring_abi::{Nanos, Weight};
use mainspring_workload::Operation;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the one who starts the others looks at the time at least: for the progress bar.
const LOOK: Duration = Duration::from_millis(50);

/// What is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Island(usize),
    Lease(usize),
    Operation(usize),
    Start(usize),
}

impl Stage<'_> {
    /// Starts instances when their time comes or others ask for it, and does what is due, until the run is over.
    pub fn direct<'scope>(
        &'scope self,
        nursery: &Nursery<'scope, '_>,
        duration: Duration,
        mut progress: impl FnMut(Duration),
    ) {
        let began = Instant::now();
        let orders = self.taken.lock().expect("no panic while it is held");
        let mut agenda = self.agenda();
        let mut handles: Vec<Option<Handle<'scope, ()>>> = self.instances.iter().map(|_| None).collect();
        loop {
            let now = began.elapsed();
            while let Some(&Reverse((at, due))) = agenda.peek()
                && at <= now
            {
                agenda.pop();
                match due {
                    Due::Start(instance) => {
                        if self.begin(instance).is_some() {
                            handles[instance] = self.start(nursery, instance);
                        }
                    }
                    Due::Operation(number) => {
                        let operation = self.workload.operations[number].operation;
                        self.operate(operation, player::nanos(now), &handles);
                    }
                    Due::Lease(lease) => _ = self.ask_for_lease(lease),
                    Due::Island(island) => {
                        for context in self.contexts.ask_for(island, player::nanos(now)) {
                            self.give_to_its_thread(context);
                        }
                    }
                }
            }
            if now >= duration {
                return;
            }
            progress(now);
            let next = agenda.peek().map_or(duration, |Reverse((at, _))| *at);
            let silent = self.policy.as_ref().and_then(Policy::poll).unwrap_or(LOOK);
            let wait = next.min(duration).saturating_sub(now).min(LOOK).min(silent);
            match orders.recv_timeout(wait) {
                Ok(Order::Start(instance)) => handles[instance] = self.start(nursery, instance),
                Ok(Order::Fault(fault)) => self.fault(fault, player::nanos(began.elapsed()), &handles),
                Err(_) => {}
            }
        }
    }

    /// Does what an `[[at]]` table says.
    fn operate(&self, operation: Operation, now: Nanos, handles: &[Option<Handle<'_, ()>>]) {
        match operation {
            Operation::Revoke(target) => {
                // One that was revoked before is gone already.
                self.contexts.named(target).for_each(|context| _ = self.contexts.revoke(context, now));
            }
            Operation::Adjust { context, budget, period } => {
                self.contexts.named(context).for_each(|one| self.contexts.adjust(one, budget, period, now));
            }
            Operation::Logout(session) => self.logout(session, now),
            Operation::Exit(target) => self.targets(target).for_each(|instance| self.kill(instance, handles)),
            Operation::CloseEndpoint(endpoint) => self.endpoints[endpoint].calls.close(),
            Operation::LeaveIsland(island) => self.contexts.leave(island, "left", now),
            // One that has ended before has nothing to take back.
            Operation::RevokeLease(lease) => _ = self.leases.revoke(lease),
            Operation::PolicyDies => {
                if let Some(policy) = &self.policy {
                    self.kill(policy.service(), handles);
                }
            }
            Operation::PolicyStalls => self.policy.iter().for_each(Policy::stall),
            Operation::PolicyWeight { thread, weight, epoch } => {
                self.policy_asks(thread, Some(weight), None, epoch);
            }
            Operation::PolicyProfile { thread, latency, epoch } => {
                self.policy_asks(thread, None, Some(latency), epoch);
            }
        }
    }

    fn logout(&self, session: usize, now: Nanos) {
        // A second logout of a session finds that it has ended.
        let left = self.sessions[session].logout().map_or(0, |done| done.loans_left);
        self.contexts.note_ends(now);
        if left != 0 {
            self.loans_left.fetch_add(left.into(), Ordering::Relaxed);
            let name = &self.workload.sessions[session];
            let notice = format!("at {now} the logout of {name} left loans in flight alone: {left}");
            self.noticed.lock().expect("no panic while it is held").push(notice);
        }
    }

    /// A context is used up that must not be.
    fn fault(&self, fault: Fault, now: Nanos, handles: &[Option<Handle<'_, ()>>]) {
        match (self.contexts.shuts_down(fault.context), self.contexts.fault_endpoint(fault.context)) {
            (Some(Some(island)), _) => self.contexts.leave(island, "shutdown", now),
            (Some(None), _) => _ = self.contexts.revoke(fault.context, now),
            (None, Some(endpoint)) => _ = self.endpoints[endpoint].calls.interrupt(),
            (None, None) => self.kill(fault.thread, handles),
        }
    }

    /// Ends an instance from outside, at its next check or out of its wait.
    fn kill(&self, instance: usize, handles: &[Option<Handle<'_, ()>>]) {
        let Some(this) = self.instances.get(instance).filter(|this| this.is_alive()) else { return };
        this.killed.store(true, Ordering::Release);
        if let Some(handle) = &handles[instance] {
            handle.cancel();
        }
    }

    /// What is due when.
    fn agenda(&self) -> BinaryHeap<Reverse<(Duration, Due)>> {
        let mut agenda: BinaryHeap<_> = self
            .starts()
            .into_iter()
            .map(|Reverse((at, instance))| Reverse((at, Due::Start(instance))))
            .collect();
        let operations = self.workload.operations.iter().enumerate();
        agenda.extend(operations.map(|(number, at)| Reverse((duration(at.time), Due::Operation(number)))));
        agenda.extend(self.leases.starts().map(|(at, lease)| Reverse((duration(at), Due::Lease(lease)))));
        let islands = self.workload.islands.iter().enumerate();
        let later = islands.filter(|(_, spec)| spec.start != Nanos::ZERO);
        agenda.extend(later.map(|(island, spec)| Reverse((duration(spec.start), Due::Island(island)))));
        agenda
    }

    /// A context was made for a thread that may live already: it fetches it at its next step.
    fn give_to_its_thread(&self, context: usize) {
        let due = (0..self.instances.len())
            .find(|instance| self.instances[*instance].is_alive() && self.due_to(*instance) == Some(context));
        if let Some(instance) = due {
            self.give(instance, context);
        }
    }

    fn start<'scope>(
        &'scope self,
        nursery: &Nursery<'scope, '_>,
        instance: usize,
    ) -> Option<Handle<'scope, ()>> {
        let spec = self.spec(instance);
        self.instances[instance].killed.store(false, Ordering::Release);
        let session = spec.session.map(|session| self.sessions[session].name());
        let said = self.policy.as_ref().and_then(|policy| policy.treatment(instance));
        let treatment = said.unwrap_or(Treatment { weight: spec.weight, class: spec.latency });
        self.note_weight(instance, treatment.weight);
        let schedule = Schedule {
            thread: Some(instance),
            process: spec.process as u32,
            weight: treatment.weight,
            // A program may change its weight to any.
            most_weight: Some(Weight::MAX),
            class: treatment.class,
            request: spec.request,
            workers: spec.cpus,
            session,
        };
        let limit = spec.budget.unwrap_or_default();
        let budget = Budget {
            ops: limit.ops.unwrap_or(u32::MAX),
            memory: limit.memory.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            spawn_count: limit.spawns.unwrap_or(0),
            channel_ops: limit.channel_ops.unwrap_or(0),
            syscalls: limit.syscalls.unwrap_or(0),
        };
        if let Some(policy) = &self.policy {
            policy.started(instance);
        }
        let builder = || nursery.builder().budget(budget).schedule(schedule.clone());
        // What it starts on is its own from the start. It may be given one from here on, which it binds itself to.
        let live_on = |context| move |cx: &Cx| player::live(self, instance, context, cx);
        let due = self.due_to(instance).and_then(|context| Some((context, self.contexts.get(context)?)));
        let mut started = match due {
            Some((number, context)) => builder().context(context).spawn(live_on(Some(number))),
            None => builder().spawn(live_on(None)),
        };
        // One that was revoked, or whose CPU the thread may not use, leaves the thread without.
        if let Err(SpawnError::Context(_)) = started {
            started = builder().spawn(live_on(None));
        }
        if started.is_err() {
            self.refuse(instance);
            self.end(instance);
        }
        started.ok()
    }
}
