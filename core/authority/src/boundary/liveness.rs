//! The service's life, and the door that its updates come through.

use super::log::{Decision, DecisionLog};
use super::settings::{Lease, Manifest, OnLoss, Settings, Treatment};
use super::update::{Directive, Epoch, Refusal, Update, decide};
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::{CpuId, Nanos, ProcessId, ThreadRef};

/// One run of the service. A restarted service is another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(u32);

impl Instance {
    /// Its number: each instance has another.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Why a service is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It was silent for too long.
    Silent,
    /// It ended.
    Exited,
    /// Too many of its updates were refused in a row.
    CutOff,
}

/// How the service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// None has started yet.
    Absent,
    /// It was heard lately.
    Alive {
        /// Which instance.
        instance: Instance,
        /// When it was heard last.
        heard: Nanos,
    },
    /// It has been silent past its timeout. Everything stands; it may come back.
    Slow {
        /// Which instance.
        instance: Instance,
        /// When it was heard last.
        heard: Nanos,
    },
    /// It is gone. Another instance must start.
    Lost {
        /// Which instance.
        instance: Instance,
        /// Why.
        why: Lost,
    },
}

impl Service {
    /// The instance that is in charge.
    #[must_use]
    pub const fn in_charge(self) -> Option<Instance> {
        match self {
            Self::Alive { instance, .. } | Self::Slow { instance, .. } => Some(instance),
            Self::Absent | Self::Lost { .. } => None,
        }
    }

    /// The instance of the last that was in charge.
    #[must_use]
    pub const fn instance(self) -> Option<Instance> {
        match self {
            Self::Alive { instance, .. } | Self::Slow { instance, .. } | Self::Lost { instance, .. } => {
                Some(instance)
            }
            Self::Absent => None,
        }
    }
}

/// The caller is not the service that is in charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotServing;

impl fmt::Display for NotServing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this instance of the policy service is not in charge; start another")
    }
}

impl core::error::Error for NotServing {}

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "what was decided must be carried out"]
pub enum Answer {
    /// It was taken; do this.
    Taken(Vec<Directive>),
    /// It was refused. Nothing changed.
    Refused(Refusal),
    /// It was refused, once too often: its sender is no longer in charge. Do this.
    CutOff(Refusal, Vec<Directive>),
}

/// What stands between a policy service and the core.
#[derive(Debug)]
pub struct Boundary {
    manifest: Manifest,
    settings: Settings,
    service: Service,
    taken: Epoch,
    next_instance: Option<u32>,
    refused_in_a_row: u32,
    refused: [u64; Refusal::KINDS],
    log: DecisionLog,
}

impl Boundary {
    /// A boundary as boot leaves it, whose log keeps `log_capacity` decisions.
    #[must_use]
    pub fn new(manifest: Manifest, log_capacity: usize) -> Self {
        let settings = Settings { hints: manifest.hints, ..Settings::default() };
        Self {
            manifest,
            settings,
            service: Service::Absent,
            taken: Epoch(0),
            next_instance: Some(0),
            refused_in_a_row: 0,
            refused: [0; Refusal::KINDS],
            log: DecisionLog::new(log_capacity),
        }
    }

    /// What boot says.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What the service has set.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How the service is.
    #[must_use]
    pub const fn service(&self) -> Service {
        self.service
    }

    /// The epoch of the last update that was taken. The next must be above it.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.taken
    }

    /// The last decisions.
    #[must_use]
    pub const fn log(&self) -> &DecisionLog {
        &self.log
    }

    /// How many updates were refused for each reason, by [`Refusal::kind`].
    #[must_use]
    pub const fn refused(&self) -> &[u64; Refusal::KINDS] {
        &self.refused
    }

    /// `thread` is the recovery thread from now on. Boot says so, or a program that boot trusts with it, and never the service.
    pub fn set_recovery(&mut self, thread: ThreadRef, treatment: Treatment) {
        // What was said of it before is void.
        self.settings.threads.retain(|treated, _| treated.index() != thread.index());
        (self.manifest.recovery, self.manifest.recovery_treatment) = (thread, treatment);
    }

    /// An instance starts. It is in charge from now on, and one that was in charge is no longer. What was set stands: the
    /// new one reads it and goes on from there, with higher epochs.
    pub fn start(&mut self, now: Nanos) -> Result<Instance, NotServing> {
        let number = self.next_instance.ok_or(NotServing)?;
        self.next_instance = number.checked_add(1);
        let instance = Instance(number);
        self.service = Service::Alive { instance, heard: now };
        self.refused_in_a_row = 0;
        self.log.write(now, Some(instance), Decision::Started);
        Ok(instance)
    }

    /// The service says that it lives.
    pub fn heartbeat(&mut self, now: Nanos, instance: Instance) -> Result<(), NotServing> {
        if self.service.in_charge() != Some(instance) {
            return Err(NotServing);
        }
        if matches!(self.service, Service::Slow { .. }) {
            self.log.write(now, Some(instance), Decision::HeardAgain);
        }
        self.service = Service::Alive { instance, heard: now };
        Ok(())
    }

    /// The service asks for changes. All are made, or none.
    pub fn submit(&mut self, now: Nanos, instance: Instance, update: Update) -> Answer {
        let Update { epoch, changes } = update;
        if self.heartbeat(now, instance).is_err() {
            return Answer::Refused(self.refuse(now, instance, epoch, Refusal::NotInCharge));
        }
        let decided = match epoch.0.checked_sub(self.taken.0) {
            None | Some(0) => Err(Refusal::StaleEpoch { epoch, taken: self.taken }),
            Some(above) if above > Epoch::LEAP => Err(Refusal::DistantEpoch { epoch, taken: self.taken }),
            Some(_) => decide(now, &changes, &self.settings, &self.manifest),
        };
        match decided {
            Ok((settings, directives)) => {
                self.settings = settings;
                self.taken = epoch;
                self.refused_in_a_row = 0;
                self.log.write(now, Some(instance), Decision::Took(epoch, changes));
                Answer::Taken(directives)
            }
            Err(why) => {
                let why = self.refuse(now, instance, epoch, why);
                self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
                if self.refused_in_a_row == self.manifest.refusals_max {
                    return Answer::CutOff(why, self.lose(now, Lost::CutOff));
                }
                Answer::Refused(why)
            }
        }
    }

    fn refuse(&mut self, now: Nanos, instance: Instance, epoch: Epoch, why: Refusal) -> Refusal {
        self.refused[why.kind()] += 1;
        self.log.write(now, Some(instance), Decision::Refused(epoch, why.clone()));
        why
    }

    /// The service's process has ended.
    #[must_use = "what was decided must be carried out"]
    pub fn exited(&mut self, now: Nanos, instance: Instance) -> Vec<Directive> {
        if self.service.in_charge() != Some(instance) {
            return Vec::new();
        }
        self.lose(now, Lost::Exited)
    }

    /// Time has passed: leases end, and a silent service counts as slow, then as lost.
    #[must_use = "what was decided must be carried out"]
    pub fn poll(&mut self, now: Nanos) -> Vec<Directive> {
        let mut directives = self.end_leases(now, |lease| lease.expires <= now, Decision::LeaseExpired);
        if let Service::Alive { instance, heard } = self.service
            && now >= heard + self.manifest.slow_after
        {
            self.service = Service::Slow { instance, heard };
            self.log.write(now, Some(instance), Decision::Slow);
        }
        if let Service::Slow { heard, .. } = self.service
            && now >= heard + self.manifest.dead_after
        {
            directives.extend(self.lose(now, Lost::Silent));
        }
        directives
    }

    /// When [`Boundary::poll`] must be called next.
    #[must_use]
    pub fn poll_at(&self) -> Nanos {
        let service = match self.service {
            Service::Alive { heard, .. } => heard + self.manifest.slow_after,
            Service::Slow { heard, .. } => heard + self.manifest.dead_after,
            Service::Absent | Service::Lost { .. } => Nanos::MAX,
        };
        let leases = self.settings.leases.values().map(|lease| lease.expires);
        leases.min().map_or(service, |lease| lease.min(service))
    }

    /// A thread has ended: what was said of it is forgotten, so that its slot's next occupant begins anew.
    pub fn thread_ended(&mut self, thread: ThreadRef) {
        self.settings.threads.remove(&thread);
    }

    /// A process has ended: its quota and its leases end with it.
    #[must_use = "what was decided must be carried out"]
    pub fn process_ended(&mut self, now: Nanos, process: ProcessId) -> Vec<Directive> {
        self.settings.quotas.remove(&process);
        self.end_leases(now, |lease| lease.holder == process, Decision::LeaseRevoked)
    }

    /// The lease of `cpu` has ended, or could not be granted: it is not in the settings any more.
    pub fn lease_ended(&mut self, now: Nanos, cpu: CpuId) {
        if self.settings.leases.remove(&cpu).is_some() {
            self.log.write(now, self.service.instance(), Decision::LeaseRevoked(cpu));
        }
    }

    /// Contexts, weights and quotas stand. What the service must be there for does not.
    fn lose(&mut self, now: Nanos, why: Lost) -> Vec<Directive> {
        let Some(instance) = self.service.in_charge() else { return Vec::new() };
        self.service = Service::Lost { instance, why };
        self.log.write(now, Some(instance), Decision::Lost(why));
        let mut directives =
            self.end_leases(now, |lease| lease.on_loss == OnLoss::Revoke, Decision::LeaseRevoked);
        if self.settings.hints != self.manifest.hints {
            self.settings.hints = self.manifest.hints;
            directives.push(Directive::HintsChanged);
        }
        directives.push(Directive::Treat(self.manifest.recovery, self.manifest.recovery_treatment));
        directives
    }

    fn end_leases(
        &mut self,
        now: Nanos,
        ends: impl Fn(&Lease) -> bool,
        record: fn(CpuId) -> Decision,
    ) -> Vec<Directive> {
        let ending = self.settings.leases.iter().filter(|(_, lease)| ends(lease));
        let cpus: Vec<CpuId> = ending.map(|(cpu, _)| *cpu).collect();
        for cpu in &cpus {
            self.settings.leases.remove(cpu);
            self.log.write(now, self.service.instance(), record(*cpu));
        }
        cpus.into_iter().map(Directive::Revoke).collect()
    }
}
