//! Updates: what is in them, and why they are refused.

use super::quota::Quota;
use super::settings::{
    Hint, Lease, Manifest, OnLoss, PlacedContext, ProfileKey, ResourceProfile, Settings, Treatment,
};
use crate::admission::{Banded, Candidate, CpuDenial, Load, Task, judge_cpu};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::{CpuId, LatencyClass, Nanos, ProcessId, ThreadRef, Weight};

/// The longest name that an update may carry: what it says is kept in the log.
pub const NAME_MAX: usize = 64;

/// The number of an update. Each must be above the last that was taken from any sender, by at most [`Epoch::LEAP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// How far an update may be above the last. One instance that could name the greatest number there is would leave none to its
    /// successors.
    pub const LEAP: u64 = 1 << 32;
}

/// Changes that are made together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Which update this is.
    pub epoch: Epoch,
    /// What to change, in this order.
    pub changes: Vec<Change>,
}

/// One change, as it comes from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Defines a profile, or replaces it.
    SetProfile(ProfileKey, ResourceProfile),
    /// Takes a profile away.
    DropProfile(ProfileKey),
    /// Says how a thread is treated.
    Treat {
        /// Which thread.
        thread: ThreadRef,
        /// Its weight.
        weight: u64,
        /// Its latency class.
        class: LatencyClass,
    },
    /// Says what a hint means.
    MapHint {
        /// Which hint.
        hint: Hint,
        /// The weight of threads that have it.
        weight: u64,
        /// Their latency class.
        class: LatencyClass,
    },
    /// Limits what the threads of a process that have no context use together, or lifts the limit.
    SetQuota(ProcessId, Option<Quota>),
    /// Admits a context, or changes what an admitted one asks for.
    Admit {
        /// The service's number for it.
        id: u32,
        /// What it asks for.
        candidate: Box<Candidate>,
    },
    /// Takes an admitted context away.
    Withdraw {
        /// The service's number for it.
        id: u32,
    },
    /// Leases a CPU, or renews a lease of the same holder.
    Lease {
        /// Which CPU.
        cpu: CpuId,
        /// The process that gets it.
        holder: ProcessId,
        /// For how long.
        lifetime: Nanos,
        /// What becomes of it when the service is lost.
        on_loss: OnLoss,
    },
    /// Ends a lease.
    EndLease(CpuId),
    /// Changes the floor of best effort, in millionths of a CPU. It is always refused; that it can be asked for at all
    /// lets the log tell which sender tried.
    SetFloor {
        /// What was asked for.
        parts_per_million: u32,
    },
}

/// What the machine must do now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "what was decided must be carried out"]
pub enum Directive {
    /// Treat this thread so from now on.
    Treat(ThreadRef, Treatment),
    /// Charge this process's threads without a context against this quota, or against none.
    Quota(ProcessId, Option<Quota>),
    /// Create or adjust this context, or, for `None`, revoke it. These come after all others.
    Context(u32, Option<Box<PlacedContext>>),
    /// Lease this CPU.
    Lease(CpuId, Lease),
    /// Revoke the lease of this CPU.
    Revoke(CpuId),
    /// Hints changed their meaning: treat hinted threads anew.
    HintsChanged,
}

/// Why an update was refused. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its sender is not the service that is in charge now.
    NotInCharge,
    /// Its epoch is not above the last one that was taken.
    StaleEpoch {
        /// What it carries.
        epoch: Epoch,
        /// The last one taken.
        taken: Epoch,
    },
    /// Its epoch is too far above the last one that was taken.
    DistantEpoch {
        /// What it carries.
        epoch: Epoch,
        /// The last one taken.
        taken: Epoch,
    },
    /// More changes than an update may have.
    TooManyChanges,
    /// A weight outside of what the manifest allows.
    Weight {
        /// What was asked for.
        weight: u64,
    },
    /// The recovery thread is not the service's.
    RecoveryUntouchable,
    /// The floor is not the service's.
    FloorUntouchable,
    /// A table is full.
    TableFull,
    /// It speaks of a profile, context or lease that is not there.
    Unknown,
    /// A context fits on no CPU that it may use, beside those that are admitted.
    Admission {
        /// The service's number for it.
        id: u32,
        /// The last CPU that refused it, and why; `None` if it may use none.
        last: Option<(CpuId, CpuDenial)>,
    },
    /// A name longer than [`NAME_MAX`] bytes.
    NameTooLong,
    /// A lease for no time, or longer than the manifest allows.
    LeaseLifetime,
    /// The CPU is not of this machine.
    NoSuchCpu(CpuId),
    /// Another holder has the CPU.
    Leased(CpuId),
    /// It is the last CPU that is not leased, which stays so.
    LastHousekeepingCpu,
}

impl Refusal {
    /// How many kinds of refusals there are.
    pub const KINDS: usize = 15;

    /// The kind, below [`Refusal::KINDS`]: where it is counted.
    #[must_use]
    pub const fn kind(&self) -> usize {
        match self {
            Self::NotInCharge => 0,
            Self::StaleEpoch { .. } => 1,
            Self::TooManyChanges => 2,
            Self::Weight { .. } => 3,
            Self::RecoveryUntouchable => 4,
            Self::FloorUntouchable => 5,
            Self::TableFull => 6,
            Self::Unknown => 7,
            Self::Admission { .. } => 8,
            Self::LeaseLifetime => 9,
            Self::NoSuchCpu(_) => 10,
            Self::Leased(_) => 11,
            Self::LastHousekeepingCpu => 12,
            Self::NameTooLong => 13,
            Self::DistantEpoch { .. } => 14,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInCharge => f.write_str("another instance is in charge, or none; start anew"),
            Self::StaleEpoch { epoch, taken } => {
                write!(f, "epoch {} is not above {}; read the settings again", epoch.0, taken.0)
            }
            Self::DistantEpoch { epoch, taken } => {
                write!(f, "epoch {} is too far above {}; use the next", epoch.0, taken.0)
            }
            Self::TooManyChanges => f.write_str("too many changes in one update; split it"),
            Self::Weight { weight } => write!(f, "weight {weight} is outside of the manifest's bounds"),
            Self::RecoveryUntouchable => f.write_str("the recovery thread is not the policy's"),
            Self::FloorUntouchable => f.write_str("the floor of best effort is not the policy's"),
            Self::TableFull => f.write_str("the table is full; take something away first"),
            Self::Unknown => f.write_str("there is no such profile, context or lease"),
            Self::Admission { id, last: None } => write!(f, "context {id} may use no CPU of this machine"),
            Self::Admission { id, last: Some((cpu, why)) } => {
                write!(f, "context {id} does not fit, on CPU {cpu} because {}", why.denial)
            }
            Self::NameTooLong => write!(f, "a name has at most {NAME_MAX} bytes"),
            Self::LeaseLifetime => {
                f.write_str("a lease must last longer than nothing and no longer than allowed")
            }
            Self::NoSuchCpu(cpu) => write!(f, "there is no CPU {cpu}"),
            Self::Leased(cpu) => write!(f, "CPU {cpu} is leased to somebody else"),
            Self::LastHousekeepingCpu => f.write_str("one CPU must stay unleased"),
        }
    }
}

impl core::error::Error for Refusal {}

/// Decides about all of `changes`: the settings after them and what to do, or why not. The present settings stay as they
/// are either way.
pub(super) fn decide(
    now: Nanos,
    changes: &[Change],
    settings: &Settings,
    manifest: &Manifest,
) -> Result<(Settings, Vec<Directive>), Refusal> {
    if changes.len() > manifest.bounds.changes {
        return Err(Refusal::TooManyChanges);
    }
    let mut next = settings.clone();
    let mut directives = Vec::new();
    for change in changes {
        directives.extend(apply(now, change, &mut next, manifest)?);
    }
    place_contexts(settings, &mut next, manifest)?;
    let gone = settings.contexts.keys().filter(|id| !next.contexts.contains_key(id));
    directives.extend(gone.map(|id| Directive::Context(*id, None)));
    let changed = next.contexts.iter().filter(|(id, placed)| settings.contexts.get(id) != Some(placed));
    directives.extend(changed.map(|(id, placed)| Directive::Context(*id, Some(Box::new(placed.clone())))));
    Ok((next, directives))
}

fn apply(
    now: Nanos,
    change: &Change,
    next: &mut Settings,
    manifest: &Manifest,
) -> Result<Option<Directive>, Refusal> {
    let bounds = manifest.bounds;
    match change {
        Change::SetProfile(key, profile) => {
            checked_name(&profile.name)?;
            checked_weight(profile.treatment.weight.get().into(), manifest)?;
            insert(&mut next.profiles, *key, profile.clone(), bounds.profiles)?;
            Ok(None)
        }
        Change::DropProfile(key) => {
            next.profiles.remove(key).ok_or(Refusal::Unknown)?;
            Ok(None)
        }
        Change::Treat { thread, weight, class } => {
            // Every generation of the slot: a guess at the next occupant must not get through either.
            if thread.index() == manifest.recovery.index() {
                return Err(Refusal::RecoveryUntouchable);
            }
            let treatment = Treatment { weight: checked_weight(*weight, manifest)?, class: *class };
            insert(&mut next.threads, *thread, treatment, bounds.threads)?;
            Ok(Some(Directive::Treat(*thread, treatment)))
        }
        Change::MapHint { hint, weight, class } => {
            let treatment = Treatment { weight: checked_weight(*weight, manifest)?, class: *class };
            next.hints.set(*hint, treatment);
            Ok(Some(Directive::HintsChanged))
        }
        Change::SetQuota(process, Some(quota)) => {
            insert(&mut next.quotas, *process, *quota, bounds.quotas)?;
            Ok(Some(Directive::Quota(*process, Some(*quota))))
        }
        Change::SetQuota(process, None) => {
            next.quotas.remove(process).ok_or(Refusal::Unknown)?;
            Ok(Some(Directive::Quota(*process, None)))
        }
        Change::Admit { id, candidate } => {
            checked_name(&candidate.name)?;
            // Its home is found when all changes are known.
            let placed = PlacedContext { candidate: (**candidate).clone(), home: CpuId::BOOT };
            insert(&mut next.contexts, *id, placed, bounds.contexts)?;
            Ok(None)
        }
        Change::Withdraw { id } => {
            next.contexts.remove(id).ok_or(Refusal::Unknown)?;
            Ok(None)
        }
        Change::Lease { cpu, holder, lifetime, on_loss } => {
            if lifetime.is_zero() || *lifetime > manifest.lease_max {
                return Err(Refusal::LeaseLifetime);
            }
            let lease = Lease { holder: *holder, expires: now + *lifetime, on_loss: *on_loss };
            grant(*cpu, lease, next, manifest)?;
            Ok(Some(Directive::Lease(*cpu, lease)))
        }
        Change::EndLease(cpu) => {
            next.leases.remove(cpu).ok_or(Refusal::Unknown)?;
            Ok(Some(Directive::Revoke(*cpu)))
        }
        Change::SetFloor { .. } => Err(Refusal::FloorUntouchable),
    }
}

fn checked_weight(weight: u64, manifest: &Manifest) -> Result<Weight, Refusal> {
    let checked = Weight::new(weight).map_err(|_| Refusal::Weight { weight })?;
    let allowed = manifest.weight_min..=manifest.weight_max;
    if allowed.contains(&checked) { Ok(checked) } else { Err(Refusal::Weight { weight }) }
}

fn insert<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, value: V, bound: usize) -> Result<(), Refusal> {
    if !table.contains_key(&key) && table.len() >= bound {
        return Err(Refusal::TableFull);
    }
    table.insert(key, value);
    Ok(())
}

fn grant(cpu: CpuId, lease: Lease, next: &mut Settings, manifest: &Manifest) -> Result<(), Refusal> {
    if !manifest.cpus.contains(cpu) {
        return Err(Refusal::NoSuchCpu(cpu));
    }
    match next.leases.get(&cpu) {
        Some(present) if present.holder != lease.holder => return Err(Refusal::Leased(cpu)),
        Some(_) => {}
        None if next.leases.len() + 1 >= manifest.cpus.len() => return Err(Refusal::LastHousekeepingCpu),
        None => {}
    }
    next.leases.insert(cpu, lease);
    Ok(())
}

/// Gives every context that is new or asks for something else a home beside those that stay where they are.
fn place_contexts(before: &Settings, next: &mut Settings, manifest: &Manifest) -> Result<(), Refusal> {
    let mut loads: BTreeMap<CpuId, Vec<Banded>> = manifest.cpus.iter().map(|cpu| (cpu, Vec::new())).collect();
    let mut unplaced = Vec::new();
    for (id, placed) in &mut next.contexts {
        match before.contexts.get(id) {
            Some(old) if old.candidate == placed.candidate => {
                placed.home = old.home;
                loads.entry(old.home).or_default().push(banded(&old.candidate));
            }
            _ => unplaced.push(*id),
        }
    }
    for id in unplaced {
        let Some(candidate) = next.contexts.get(&id).map(|placed| placed.candidate.clone()) else { continue };
        let mut last = None;
        let mut allowed = loads.iter_mut().filter(|(cpu, _)| candidate.cpus.contains(**cpu));
        let home = allowed.find_map(|(cpu, tasks)| {
            tasks.push(banded(&candidate));
            let floor = Task::of_floor(manifest.floor);
            let load = Load { tasks, floor, interrupts: &[], overhead: manifest.overhead };
            let denial = judge_cpu(&load).denial;
            if let Some(denial) = denial {
                tasks.pop();
                last = Some((*cpu, denial));
            }
            denial.is_none().then_some(*cpu)
        });
        let home = home.ok_or(Refusal::Admission { id, last })?;
        next.contexts.insert(id, PlacedContext { candidate, home });
    }
    Ok(())
}

fn banded(candidate: &Candidate) -> Banded {
    Banded { task: candidate.task, criticality: candidate.criticality }
}

fn checked_name(name: &str) -> Result<(), Refusal> {
    if name.len() <= NAME_MAX { Ok(()) } else { Err(Refusal::NameTooLong) }
}
