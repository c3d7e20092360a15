//! The policy service of the workload: one of its threads. It is in charge from the beginning of its life to its end, is heard at
//! each of its steps unless it stalls, and what the timed operations make it say goes to the kernel's policy boundary.
//!
//! Conserved: all threads that an operation of the service names are in its process.

use crate::plan::{Plan, plan};
use crate::tell;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mainspring_abi::plan::{NONE, Note, POLICY_WORDS, TEXT, loss};
use mainspring_program::Words;
use mainspring_user::caps::{self, PolicyChange};
use mainspring_user::schema::{LatencyClass, PolicyLoss};
use mainspring_user::{CapError, say};
use spin::Mutex;

/// The profile that stands for threads which are not there yet: the boundary looks at its weight, and nobody is treated by it.
const LATER: u32 = 0;
/// Bytes of a reason that are told.
const REASON: usize = 96;

/// The policy service.
pub struct Policy {
    pub process: u64,
    /// The instance that is the service.
    service: (u64, u64),
    /// The instance that no update changes.
    recovery: Option<(u64, u64)>,
    epoch: u64,
    started: AtomicBool,
    /// It is not heard of any more.
    stalled: AtomicBool,
    /// Updates with a change that were taken.
    taken: AtomicU32,
    refused: Mutex<Vec<Note>>,
}

impl Policy {
    /// The one of a plan.
    pub fn read(words: &mut Words<'_>) -> Option<Self> {
        let [process, service, service_instance, recovery, recovery_instance, epoch] =
            words.take::<POLICY_WORDS>()?;
        Some(Self {
            process,
            service: (service, service_instance),
            recovery: (recovery != NONE).then_some((recovery, recovery_instance)),
            epoch,
            started: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            taken: AtomicU32::new(0),
            refused: Mutex::new(Vec::new()),
        })
    }

    fn is_service(&self, number: usize) -> bool {
        plan().instance(self.service.0, self.service.1) == number
    }

    /// The reason why an update was refused is told at the end.
    fn refuse(&self, reason: &[u8]) {
        let at = caps::now();
        let mut refused = self.refused.lock();
        for (part, piece) in (0..).zip(reason.chunks(TEXT)) {
            let mut text = [0; TEXT];
            text[..piece.len()].copy_from_slice(piece);
            refused.push(Note::PolicyRefused { at, part, text });
        }
    }

    /// Asks for `changes`, of which there are some; whether they were made.
    fn ask(&self, epoch: u64, changes: &[PolicyChange]) -> bool {
        if !self.started.load(Ordering::Relaxed) {
            self.refuse(b"its sender is not the policy service in charge");
            return false;
        }
        match caps::policy_submit(epoch, changes) {
            Ok(_) => {
                self.taken.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Err(CapError::Denied) => {
                let mut reason = [0; REASON];
                match caps::policy_refusal(&mut reason) {
                    Ok(len) if len > 0 => self.refuse(&reason[..len]),
                    _ => self.refuse(b"its sender is not the policy service in charge"),
                }
            }
            Err(code) => {
                say!("workload: an update was refused: {code:?}");
                self.refuse(b"the kernel could not read it");
            }
        }
        false
    }
}

/// An instance begins a life: the service is in charge from now on, and the recovery thread is nobody's to treat.
pub fn begins(number: usize) {
    let Some(policy) = &plan().policy else { return };
    if policy.is_service(number) {
        policy.stalled.store(false, Ordering::Relaxed);
        match caps::policy_start() {
            // What the file itself sets is the first word, and nothing older counts.
            Ok(status) if status.epoch < policy.epoch => {
                let _it_is_empty = caps::policy_submit(policy.epoch, &[]);
                policy.started.store(true, Ordering::Relaxed);
            }
            Ok(_) => policy.started.store(true, Ordering::Relaxed),
            Err(code) => say!("workload: the policy service was refused: {code:?}"),
        }
    }
    let recovers =
        policy.recovery.is_some_and(|(table, instance)| plan().instance(table, instance) == number);
    if recovers && let Err(code) = caps::policy_recover() {
        say!("workload: the recovery thread was refused: {code:?}");
    }
}

/// An instance takes a step: the service lives.
pub fn heard(number: usize) {
    if let Some(policy) = &plan().policy
        && policy.is_service(number)
        && !policy.stalled.load(Ordering::Relaxed)
    {
        // One that is lost is heard by nobody.
        let _heard = caps::policy_heartbeat();
    }
}

/// The life of an instance is over: so is the service's charge.
pub fn ended(number: usize) {
    if let Some(policy) = &plan().policy
        && policy.is_service(number)
    {
        // One that was lost before is in charge of nothing.
        let _stopped = caps::policy_stop();
    }
}

/// The service is not heard of any more.
pub fn stall(plan: &Plan) {
    if let Some(policy) = &plan.policy {
        policy.stalled.store(true, Ordering::Relaxed);
    }
}

/// The instance that is the service.
pub fn service(plan: &Plan) -> Option<usize> {
    plan.policy.as_ref().map(|policy| plan.instance(policy.service.0, policy.service.1))
}

/// How an instance is to be treated, other than its table says: a weight in the upper half and a class below, 0 for neither.
#[derive(Default)]
pub struct Treated(AtomicU64);

impl Treated {
    pub fn get(&self) -> Option<(u32, LatencyClass)> {
        let word = self.0.load(Ordering::Relaxed);
        let class = LatencyClass::try_from(word as u16).unwrap_or(LatencyClass::Normal);
        (word != 0).then_some(((word >> 32) as u32, class))
    }

    fn set(&self, weight: u32, class: LatencyClass) {
        self.0.store(u64::from(weight) << 32 | class as u64, Ordering::Relaxed);
    }
}

/// The service asks for another weight or class of all instances that are named. One that does not live is treated so from its start.
pub fn treat(table: u64, instance: u64, weight: Option<u64>, class: Option<LatencyClass>, epoch: u64) {
    let Some(policy) = &plan().policy else { return };
    let wish = |number: usize| {
        let one = &plan().instances[number];
        let options = plan().tables[one.table].options;
        let present = one.treated.get().unwrap_or((options.weight, options.class));
        (weight.unwrap_or(present.0.into()), class.unwrap_or(present.1))
    };
    let numbers = plan().instances_of(table, instance);
    let mut changes = Vec::new();
    for number in numbers.clone() {
        let one = &plan().instances[number];
        let (weight, class) = wish(number);
        let lives = !one.lives.load(Ordering::Acquire).is_multiple_of(2);
        let slot = one.slot.load(Ordering::Relaxed);
        let process = if lives { caps::thread_info(slot, |info| info.get_process()).ok() } else { None };
        changes.push(match process {
            Some(process) => PolicyChange { class, ..PolicyChange::treat(slot, process, weight) },
            None => PolicyChange { class, ..PolicyChange::profile(LATER, weight) },
        });
    }
    if policy.ask(epoch, &changes) {
        for number in numbers {
            let (weight, class) = wish(number);
            let one = &plan().instances[number];
            one.treated.set(weight as u32, class);
            one.weight.store(weight as u32, Ordering::Relaxed);
        }
    }
}

/// Tells how the service fared.
pub fn tell_of(policy: &Policy) {
    for refused in &*policy.refused.lock() {
        tell(*refused);
    }
    let Ok(status) = caps::policy_status() else { return };
    tell(Note::Policy {
        taken: policy.taken.load(Ordering::Relaxed),
        slow_times: status.slow_times,
        slow_at: status.slow_at_ns,
        epoch: status.epoch,
        lost_at: status.lost_at_ns,
        lost: match status.lost {
            PolicyLoss::Never => loss::NEVER,
            PolicyLoss::Silent => loss::SILENT,
            PolicyLoss::Exited => loss::EXITED,
            PolicyLoss::CutOff => loss::CUT_OFF,
        },
    });
}
