//! PolicyService: setting how others are treated, within bounds.

use super::{call_for, need, with_params_of};
use crate::client;
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;
use mainspring_schema::PolicyServiceMethod as Method;

/// One change.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct PolicyChange {
    pub kind: schema::PolicyChangeKind,
    pub class: schema::LatencyClass,
    pub slot: u32,
    pub process: u32,
    pub weight: u64,
    pub cpu: u32,
    pub outlives: bool,
    pub lifetime_ns: u64,
}

impl PolicyChange {
    const NOTHING: Self = Self {
        kind: schema::PolicyChangeKind::Treat,
        class: schema::LatencyClass::Normal,
        slot: 0,
        process: 0,
        weight: 0,
        cpu: 0,
        outlives: false,
        lifetime_ns: 0,
    };

    /// The thread in this slot, of this process, has this weight from now on.
    #[must_use]
    pub fn treat(slot: u32, process: u32, weight: u64) -> Self {
        Self { slot, process, weight, ..Self::NOTHING }
    }

    /// The process gets a CPU to itself.
    #[must_use]
    pub fn lease(process: u32, cpu: u32, lifetime_ns: u64) -> Self {
        Self { kind: schema::PolicyChangeKind::Lease, process, cpu, lifetime_ns, ..Self::NOTHING }
    }

    /// The lease of this CPU ends.
    #[must_use]
    pub fn end_lease(cpu: u32) -> Self {
        Self { kind: schema::PolicyChangeKind::EndLease, cpu, ..Self::NOTHING }
    }

    /// What is left for best effort.
    #[must_use]
    pub fn floor(parts_per_million: u64) -> Self {
        Self { kind: schema::PolicyChangeKind::Floor, weight: parts_per_million, ..Self::NOTHING }
    }

    /// A template.
    #[must_use]
    pub fn profile(key: u32, weight: u64) -> Self {
        Self { kind: schema::PolicyChangeKind::Profile, slot: key, weight, ..Self::NOTHING }
    }
}

/// How the service is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct PolicyStatus {
    pub state: schema::PolicyState,
    pub in_charge: bool,
    pub instance: u32,
    pub epoch: u64,
    pub taken: u64,
    pub refused: u64,
    pub leased: u64,
    pub not_granted: u32,
    pub slow_times: u32,
    pub slow_at_ns: u64,
    pub lost_at_ns: u64,
    pub lost: schema::PolicyLoss,
}

fn read(status: schema::policy_status::Reader<'_>) -> Result<PolicyStatus, CapError> {
    Ok(PolicyStatus {
        state: status.get_state().map_err(|_| CapError::InvalidParameter)?,
        in_charge: status.get_in_charge(),
        instance: status.get_instance(),
        epoch: status.get_epoch(),
        taken: status.get_taken(),
        refused: status.get_refused(),
        leased: status.get_leased(),
        not_granted: status.get_not_granted(),
        slow_times: status.get_slow_times(),
        slow_at_ns: status.get_slow_at_ns(),
        lost_at_ns: status.get_lost_at_ns(),
        lost: status.get_lost().map_err(|_| CapError::InvalidParameter)?,
    })
}

/// The calling process is in charge from now on.
pub fn policy_start() -> Result<PolicyStatus, CapError> {
    call_for::<schema::policy_status::Owned, _>(need("policy-service"), Method::Start as u16, &[], read)?
}

/// How the service is.
pub fn policy_status() -> Result<PolicyStatus, CapError> {
    call_for::<schema::policy_status::Owned, _>(need("policy-service"), Method::Status as u16, &[], read)?
}

/// The calling process, which is in charge, lives.
pub fn policy_heartbeat() -> Result<(), CapError> {
    client::call(need("policy-service"), Method::Heartbeat as u16, &[], &mut []).map(|_| ())
}

/// The calling process, which is in charge, is so no more.
pub fn policy_stop() -> Result<(), CapError> {
    client::call(need("policy-service"), Method::Stop as u16, &[], &mut []).map(|_| ())
}

/// The calling thread, of the program that recovers, is the one that no update changes.
pub fn policy_recover() -> Result<(), CapError> {
    client::call(need("policy-service"), Method::Recover as u16, &[], &mut []).map(|_| ())
}

/// Why the last update was refused, in words; how many bytes of `text` those are.
pub fn policy_refusal(text: &mut [u8]) -> Result<usize, CapError> {
    let cap = need("policy-service");
    call_for::<schema::policy_status::Owned, _>(cap, Method::Status as u16, &[], |status| {
        let refusal = status.get_refusal().map_err(|_| CapError::InvalidParameter)?.as_bytes();
        let len = refusal.len().min(text.len());
        text[..len].copy_from_slice(&refusal[..len]);
        Ok(len)
    })?
}

/// Asks for changes: all are made, or none. [`CapError::Denied`] if they are refused.
pub fn policy_submit(epoch: u64, changes: &[PolicyChange]) -> Result<PolicyStatus, CapError> {
    with_params_of::<schema::policy_update::Owned, _, 128>(
        |mut params| {
            params.set_epoch(epoch);
            let mut list = params.init_changes(changes.len() as u32);
            for (number, change) in (0..).zip(changes) {
                let mut one = list.reborrow().get(number);
                one.set_kind(change.kind);
                one.set_latency_class(change.class);
                one.set_slot(change.slot);
                one.set_process(change.process);
                one.set_weight(change.weight);
                one.set_cpu(change.cpu);
                one.set_outlives(change.outlives);
                one.set_lifetime_ns(change.lifetime_ns);
            }
        },
        |bytes| {
            let method = Method::Submit as u16;
            call_for::<schema::policy_status::Owned, _>(need("policy-service"), method, bytes, read)?
        },
    )?
}
