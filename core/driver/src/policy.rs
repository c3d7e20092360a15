//! The policy service: what it says goes through the [`Boundary`], and what the boundary decides is carried out here.
//!
//! The service is a process that sets weights, classes, quotas, contexts and leases within its bounds. No CPU waits for it: a
//! decision reads what was set, and what was set stands when the service is slow, lost or hostile.
//!
//! Conserved:
//! * only a directive of the boundary changes how a thread is treated on the service's behalf;
//! * a lease that the service granted is in the boundary's settings exactly while it is live, but for what [`PolicyService::poll`]
//!   has not looked at yet;
//! * when the service is lost, its leases that do not outlive it end, hints mean what the manifest says, and the recovery thread
//!   has its treatment from the manifest.

use crate::leases::{CpuGrant, LeaseMachine, Leases};
use crate::placement::LOOKS;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, Nanos, ProcessId, ThreadRef};
use mainspring_authority::boundary::{
    Answer, Boundary, Directive, HintMap, Instance, Lease, Manifest, NotServing, PlacedContext, Quota,
    Refusal, Treatment, Update,
};
use mainspring_sched::lease::{AccountingTarget, LeaseRef, Owner, ServiceId};

/// What the policy service may set on a machine.
pub trait PolicyMachine: LeaseMachine {
    /// The thread of `holder` that is to have `cpu` to itself, and the owner of the lease. `None` if it has none that may
    /// use the CPU.
    fn lessee_for(&mut self, holder: ProcessId, cpu: CpuId) -> Option<(ThreadRef, Owner)>;

    /// The threads of `process` that have no context are charged against `quota` together, or against none.
    fn set_quota(&mut self, process: ProcessId, quota: Option<Quota>);

    /// Creates or adjusts the context that the service calls `id`, or revokes it.
    fn set_context(&mut self, id: u32, placed: Option<&PlacedContext>);

    /// Hints have another meaning: threads that gave one are to be treated anew, by [`treat`].
    fn hints_changed(&mut self, hints: &HintMap);

    /// `thread` is treated so from now on. Nothing depends on whether the machine listens.
    fn treated(&mut self, thread: ThreadRef, treatment: Treatment) {
        let _ = (thread, treatment);
    }
}

/// Gives `thread` another weight and class. One that has not started gets them at its start
/// ([`PolicyService::treatment`]).
pub fn treat<M: PolicyMachine>(machine: &mut M, thread: ThreadRef, treatment: Treatment) {
    // One that is being moved to another CPU is there in a moment.
    for _ in 0..LOOKS {
        let Some(home) = machine.home(thread) else { return };
        let set = machine.with_cpu(home.cpu, |cpu| {
            let sits = cpu.cpu().entity(home.seat).is_ok();
            let set = sits && cpu.event().set_weight(home.seat, treatment.weight).is_ok();
            set && cpu.event().set_class(home.seat, treatment.class).is_ok()
        });
        if set {
            return machine.treated(thread, treatment);
        }
        core::hint::spin_loop();
    }
}

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Submitted {
    /// It was taken and carried out. So many leases of it could not be granted, and are not in the settings.
    Taken {
        /// How many.
        leases_not_granted: usize,
    },
    /// It was refused, and nothing changed.
    Refused(Refusal),
    /// It was refused, once too often: the service is lost.
    CutOff(Refusal),
}

/// The service as the machine sees it.
#[derive(Debug)]
pub struct PolicyService {
    boundary: Boundary,
    instance: Option<Instance>,
    /// The leases that it granted, by CPU.
    leases: Vec<(CpuId, LeaseRef)>,
}

impl PolicyService {
    /// No service yet. The log keeps `log` decisions.
    #[must_use]
    pub fn new(manifest: Manifest, log: usize) -> Self {
        // No CPU is leased twice: it never grows.
        let leases = Vec::with_capacity(manifest.cpus.len());
        Self { boundary: Boundary::new(manifest, log), instance: None, leases }
    }

    /// What the service has set, how it is, and every decision about it.
    #[must_use]
    pub fn boundary(&self) -> &Boundary {
        &self.boundary
    }

    /// The instance that was started last, as an owner of leases.
    #[must_use]
    pub fn service(&self) -> Option<ServiceId> {
        self.instance.map(|instance| ServiceId(instance.number()))
    }

    /// How the service wants `thread` to be treated.
    #[must_use]
    pub fn treatment(&self, thread: ThreadRef) -> Option<Treatment> {
        self.boundary.settings().treatment(thread)
    }

    /// `thread` is the recovery thread from now on: see [`Boundary::set_recovery`].
    pub fn set_recovery(&mut self, thread: ThreadRef, treatment: Treatment) {
        self.boundary.set_recovery(thread, treatment);
    }

    /// When [`PolicyService::poll`] must be called next.
    #[must_use]
    pub fn poll_at(&self) -> Nanos {
        self.boundary.poll_at()
    }

    /// An instance starts and is in charge. Leases that belong to its predecessor end; what that one set stands.
    pub fn start<M: PolicyMachine>(
        &mut self,
        machine: &mut M,
        leases: &mut Leases,
    ) -> Result<Instance, NotServing> {
        let replaced = self.service();
        let instance = self.boundary.start(machine.now())?;
        self.instance = Some(instance);
        if let Some(replaced) = replaced {
            leases.end_leases_of_service(machine, replaced);
        }
        Ok(instance)
    }

    /// The service says that it lives.
    pub fn heard(&mut self, now: Nanos) -> Result<(), NotServing> {
        let instance = self.instance.ok_or(NotServing)?;
        self.boundary.heartbeat(now, instance)
    }

    /// The service asks for changes: all are made, or none.
    pub fn submit<M: PolicyMachine>(
        &mut self,
        machine: &mut M,
        leases: &mut Leases,
        update: Update,
    ) -> Submitted {
        self.forget_ended_leases(machine.now(), leases);
        let Some(instance) = self.instance else { return Submitted::Refused(Refusal::NotInCharge) };
        match self.boundary.submit(machine.now(), instance, update) {
            Answer::Taken(directives) => {
                Submitted::Taken { leases_not_granted: self.carry_out(machine, leases, directives) }
            }
            Answer::Refused(why) => Submitted::Refused(why),
            Answer::CutOff(why, directives) => {
                self.carry_out(machine, leases, directives);
                Submitted::CutOff(why)
            }
        }
    }

    /// Time has passed: leases end, and a silent service counts as slow, then as lost.
    pub fn poll<M: PolicyMachine>(&mut self, machine: &mut M, leases: &mut Leases) {
        self.forget_ended_leases(machine.now(), leases);
        let directives = self.boundary.poll(machine.now());
        self.carry_out(machine, leases, directives);
    }

    /// The service's process has ended.
    pub fn exited<M: PolicyMachine>(&mut self, machine: &mut M, leases: &mut Leases) {
        if let Some(instance) = self.instance {
            let directives = self.boundary.exited(machine.now(), instance);
            self.carry_out(machine, leases, directives);
        }
    }

    /// A thread has ended: what was said of it is forgotten.
    pub fn thread_ended(&mut self, thread: ThreadRef) {
        self.boundary.thread_ended(thread);
    }

    /// A process has ended: its quota and the leases that the service gave it end with it.
    pub fn process_ended<M: PolicyMachine>(
        &mut self,
        machine: &mut M,
        leases: &mut Leases,
        process: ProcessId,
    ) {
        let directives = self.boundary.process_ended(machine.now(), process);
        self.carry_out(machine, leases, directives);
    }

    /// How many leases could not be granted.
    fn carry_out<M: PolicyMachine>(
        &mut self,
        machine: &mut M,
        leases: &mut Leases,
        directives: Vec<Directive>,
    ) -> usize {
        let mut not_granted = 0;
        for directive in directives {
            match directive {
                Directive::Treat(thread, treatment) => treat(machine, thread, treatment),
                Directive::Quota(process, quota) => machine.set_quota(process, quota),
                Directive::Context(id, placed) => machine.set_context(id, placed.as_deref()),
                Directive::Lease(cpu, lease) => {
                    if !self.grant(machine, leases, cpu, lease) {
                        self.boundary.lease_ended(machine.now(), cpu);
                        not_granted += 1;
                    }
                }
                Directive::Revoke(cpu) => {
                    if let Some(lease) = self.granted(cpu) {
                        // One that has ended meanwhile has nothing left to take back.
                        let _ended =
                            leases.revoke(machine, lease).or_else(|_| leases.release(machine, lease));
                    }
                    self.leases.retain(|(leased, _)| *leased != cpu);
                }
                Directive::HintsChanged => machine.hints_changed(self.boundary.settings().hints()),
            }
        }
        not_granted
    }

    fn granted(&self, cpu: CpuId) -> Option<LeaseRef> {
        self.leases.iter().find(|(leased, _)| *leased == cpu).map(|(_, lease)| *lease)
    }

    fn grant<M: PolicyMachine>(
        &mut self,
        machine: &mut M,
        leases: &mut Leases,
        cpu: CpuId,
        lease: Lease,
    ) -> bool {
        let Some((lessee, owner)) = machine.lessee_for(lease.holder, cpu) else { return false };
        let asked = CpuGrant {
            owner,
            lessee,
            target: payer(machine, lessee),
            lifetime: lease.expires - machine.now(),
            replaces: self.granted(cpu),
        };
        let granted = leases.grant_cpu(machine, cpu, asked);
        self.leases.retain(|(leased, _)| *leased != cpu);
        self.leases.extend(granted.ok().map(|lease| (cpu, lease)));
        granted.is_ok()
    }

    /// Leases end for reasons that the service does not hear of. The CPU is free for its next update.
    fn forget_ended_leases(&mut self, now: Nanos, leases: &mut Leases) {
        let boundary = &mut self.boundary;
        self.leases.retain(|(cpu, lease)| {
            let live = leases.info(now, *lease).is_ok();
            if !live {
                boundary.lease_ended(now, *cpu);
            }
            live
        });
    }
}

/// The target that the time of `thread` is charged to.
fn payer<M: PolicyMachine>(machine: &mut M, thread: ThreadRef) -> AccountingTarget {
    let Some(home) = machine.home(thread) else { return AccountingTarget::Ledger };
    let who = machine.with_cpu(home.cpu, |cpu| {
        let entity = cpu.cpu().entity(home.seat).ok()?;
        entity.context().map(mainspring_sched::context::Context::who)
    });
    who.map_or(AccountingTarget::Ledger, AccountingTarget::from)
}
