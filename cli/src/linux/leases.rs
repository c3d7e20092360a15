//! The leases of a run, by name: when each is asked for, and what became of it.
//!
//! Conserved: a name is live exactly while the runtime calls its last grant so.

use super::contexts::Contexts;
use super::endpoint::Endpoint;
use super::rings::Ring;
use mainspring::lease::{EndReason, Mode};
use mainspring::{CpuIsolationLease, LeaseError, LeaseRequest, Runtime, SessionName};
use mainspring_abi::Nanos;
use mainspring_report::LeaseReport;
use mainspring_ring::{AccountingTarget, StopReason};
use mainspring_workload::{Account, LeaseMode, LeaseSpec, LeaseStart, Numbering, Workload};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The state of a lease, and how it came to that.
#[derive(Debug)]
struct State {
    live: bool,
    outcome: String,
}

#[derive(Debug)]
struct Named {
    /// The instance that is isolated.
    thread: usize,
    lease: Mutex<Option<CpuIsolationLease>>,
    state: Arc<Mutex<State>>,
    /// The CPU of the host that it was pinned to, while it was live.
    pinned: Mutex<Vec<usize>>,
}

/// All leases of a run.
pub struct Leases<'w> {
    workload: &'w Workload,
    runtime: &'w Runtime,
    named: Vec<Named>,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().expect("no panic while it is held")
}

impl<'w> Leases<'w> {
    pub fn new(workload: &'w Workload, runtime: &'w Runtime, numbers: &Numbering) -> Self {
        let named = |spec: &LeaseSpec| Named {
            thread: numbers.threads(spec.thread).start,
            lease: Mutex::new(None),
            state: Arc::new(Mutex::new(State { live: false, outcome: "not asked for".to_owned() })),
            pinned: Mutex::default(),
        };
        Self { workload, runtime, named: workload.leases.iter().map(named).collect() }
    }

    /// The leases that are asked for without a step, and when.
    pub fn starts(&self) -> impl Iterator<Item = (Nanos, usize)> + '_ {
        self.workload.leases.iter().enumerate().filter_map(|(lease, spec)| match spec.start {
            LeaseStart::At(at) => Some((at, lease)),
            LeaseStart::Step => None,
        })
    }

    /// Asks for a lease; whether it was granted. One that is live already is replaced.
    pub fn ask(
        &self,
        lease: usize,
        (process, session): (u32, Option<SessionName>),
        contexts: &Contexts<'_>,
        rings: &[Arc<Ring>],
        endpoints: &Arc<[Endpoint]>,
    ) -> bool {
        let (spec, named) = (&self.workload.leases[lease], &self.named[lease]);
        let length = |time: Nanos| Duration::from_nanos(time.get());
        let mut request = LeaseRequest::new(named.thread, spec.cpus)
            .mode(match spec.mode {
                LeaseMode::Compute => Mode::Compute,
                LeaseMode::Poller => Mode::UserspacePoller,
                LeaseMode::KernelSqpoll => Mode::KernelSqpoll,
                LeaseMode::KernelWorker => Mode::KernelWorker,
            })
            .process(process)
            .max_revocation(length(spec.max_revocation));
        if let Some(session) = session {
            request = request.session(session);
        }
        if let Some(context) = self.payer(spec, contexts) {
            request = request.pays(context);
        }
        if let Some(lifetime) = spec.lifetime {
            request = request.lifetime(length(lifetime));
        }
        let ring = spec.ring.map(|ring| rings[ring].clone());
        let notified = (spec.revoke_endpoint, endpoints.clone());
        let state = named.state.clone();
        request = request.on_end(move |reason| {
            if reason == EndReason::Superseded {
                return;
            }
            *locked(&state) = State { live: false, outcome: reason.label().to_owned() };
            if let Some(ring) = &ring {
                ring.stop_polling(StopReason::LeaseRevoked);
            }
            if let (Some(endpoint), endpoints) = &notified {
                endpoints[*endpoint].calls.interrupt();
            }
        });
        let mut held = locked(&named.lease);
        let replaces = held.as_ref().is_some_and(|live| live.ended().is_none());
        // Before it is granted: it may end at once, and the one who ends it has the last word.
        *locked(&named.state) = State { live: true, outcome: "live".to_owned() };
        let granted = match held.as_mut().filter(|_| replaces) {
            Some(live) => live.replace(request),
            None => {
                // What is left of the last one is in the way of the next.
                *held = None;
                self.runtime.lease(request).map(|lease| *held = Some(lease))
            }
        };
        let Err(error) = granted else {
            if let Some(lease) = held.as_ref() {
                *locked(&named.pinned) = lease.host_cpus();
            }
            drop(held);
            if let Some(ring) = spec.ring {
                rings[ring].rouse_poller();
            }
            return true;
        };
        // A replacement that is refused leaves what there is.
        if !replaces {
            let why = match error {
                LeaseError::Refused(refusal) => refusal.label().to_owned(),
                other => other.to_string(),
            };
            *locked(&named.state) = State { live: false, outcome: format!("refused: {why}") };
        }
        false
    }

    fn payer<'c>(
        &self,
        spec: &LeaseSpec,
        contexts: &'c Contexts<'_>,
    ) -> Option<&'c mainspring::SchedulingContext> {
        match spec.account {
            Account::Ledger => None,
            Account::Context(target) => contexts.get(contexts.named(target).start),
        }
    }

    /// The instance that a lease is for.
    pub fn thread(&self, lease: usize) -> usize {
        self.named[lease].thread
    }

    /// On which account the poller of `ring` polls; `None` while its lease is not live. A ring without a lease is polled on what
    /// the poller has itself.
    pub fn account(
        &self,
        ring: usize,
        instance: usize,
        contexts: &Contexts<'_>,
    ) -> Option<Option<AccountingTarget>> {
        let Some(lease) = self.workload.leases.iter().position(|lease| lease.ring == Some(ring)) else {
            return Some(None);
        };
        let live = self.named[lease].thread == instance && locked(&self.named[lease].state).live;
        live.then(|| {
            let context = self.payer(&self.workload.leases[lease], contexts);
            Some(context.map_or(AccountingTarget::SchedulerLedger, |context| {
                AccountingTarget::SchedulingContext(context.number())
            }))
        })
    }

    /// Takes a lease back; whether there was one.
    pub fn revoke(&self, lease: usize) -> bool {
        let held = locked(&self.named[lease].lease);
        held.as_ref().is_some_and(|held| held.revoke().is_ok())
    }

    /// Its owner gives a lease up; whether there was one.
    pub fn release(&self, lease: usize) -> bool {
        let held = locked(&self.named[lease].lease).take();
        let live = held.as_ref().is_some_and(|held| held.ended().is_none());
        drop(held);
        live
    }

    /// What became of each.
    pub fn reports(&self, name_of: impl Fn(usize) -> String) -> Vec<LeaseReport> {
        let rows = self.workload.leases.iter().zip(&self.named);
        rows.map(|(spec, named)| LeaseReport {
            name: spec.name.clone(),
            cpus: spec.cpus.iter().map(|cpu| cpu.index() as u32).collect(),
            thread: name_of(named.thread),
            state: locked(&named.state).outcome.clone(),
            ..LeaseReport::default()
        })
        .collect()
    }

    /// What readers should know: which CPUs of the host were left to lessees.
    pub fn notices(&self) -> Vec<String> {
        let notice = |(spec, named): (&LeaseSpec, &Named)| {
            let (pinned, outcome) = (locked(&named.pinned).clone(), locked(&named.state).outcome.clone());
            if outcome.starts_with("refused") || outcome == "not asked for" {
                return None;
            }
            let pinned: Vec<String> = pinned.iter().map(ToString::to_string).collect();
            Some(match pinned.is_empty() {
                true => format!(
                    "lease {}: this host has no CPU to spare, so its worker shares one with the other workers",
                    spec.name
                ),
                false => format!(
                    "lease {}: its worker had CPU {} of this host, which the run's other threads left; its tick is the host's",
                    spec.name,
                    pinned.join(",")
                ),
            })
        };
        self.workload.leases.iter().zip(&self.named).filter_map(notice).collect()
    }
}
