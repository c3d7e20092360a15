//! PolicyService.

use super::message::{with_params, with_result};
use super::{Answer, Call};
use crate::sched::policy::{self, CHANGES, Status};
use alloc::string::String;
use alloc::vec::Vec;
use mainspring_abi::ring::CapError;
use mainspring_abi::{CpuId, LatencyClass, Nanos, ProcessId, Weight};
use mainspring_authority::boundary::{
    Change, Epoch, Lost, OnLoss, ProfileKey, ResourceProfile, Service, Treatment, Update,
};
use mainspring_schema as schema;
use mainspring_schema::PolicyServiceMethod as Method;

#[inline(never)]
pub fn service(call: &Call<'_>) -> Result<Answer, CapError> {
    let process = call.process();
    match Method::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        Method::Status => tell(call, &policy::look(process).ok_or(CapError::NotFound)?),
        Method::Start => {
            room(call)?;
            tell(call, &policy::start(process).ok_or(CapError::QuotaExceeded)?)
        }
        Method::Heartbeat => {
            if policy::heard(process) {
                Ok(Answer::Done(0))
            } else {
                Err(CapError::Denied)
            }
        }
        Method::Stop => {
            if policy::stop(process) {
                Ok(Answer::Done(0))
            } else {
                Err(CapError::Denied)
            }
        }
        Method::Recover => {
            let treatment = super::threads::Share::of_caller().treatment();
            if policy::recover(process, call.thread.name(), treatment) {
                Ok(Answer::Done(0))
            } else {
                Err(CapError::Denied)
            }
        }
        Method::Submit => {
            room(call)?;
            let update = {
                // What an update needs of the heap is bounded by the length of a request.
                let _bounded = crate::arch::open_heap();
                with_params::<schema::policy_update::Owned, _>(call, |params| read(&params))?
            };
            let (taken, status) = policy::submit(process, update)?;
            let told = tell(call, &status)?;
            if taken { Ok(told) } else { Err(CapError::Denied) }
        }
    }
}

/// What cannot be told is not done.
fn room(call: &Call<'_>) -> Result<(), CapError> {
    let longest = [b' '; 96];
    with_result::<schema::policy_status::Owned>(call, |mut result| {
        result.set_refusal(core::str::from_utf8(&longest).unwrap_or(""));
    })
    .map(|_| ())
}

fn read(params: &schema::policy_update::Reader<'_>) -> Result<Update, CapError> {
    let invalid = |_| CapError::InvalidParameter;
    let listed = params.get_changes().map_err(invalid)?;
    if listed.len() as usize > CHANGES {
        return Err(CapError::InvalidParameter);
    }
    let mut changes = Vec::new();
    changes.try_reserve_exact(listed.len() as usize).map_err(|_| CapError::NoMemory)?;
    for one in listed {
        changes.push(change(&one)?);
    }
    Ok(Update { epoch: Epoch(params.get_epoch()), changes })
}

fn change(one: &schema::policy_change::Reader<'_>) -> Result<Change, CapError> {
    let class = match one.get_latency_class().map_err(|_| CapError::InvalidParameter)? {
        schema::LatencyClass::Interactive => LatencyClass::Interactive,
        schema::LatencyClass::Normal => LatencyClass::Normal,
        schema::LatencyClass::Batch => LatencyClass::Batch,
    };
    let cpu = || CpuId::new(one.get_cpu() as usize).map_err(|_| CapError::InvalidParameter);
    Ok(match one.get_kind().map_err(|_| CapError::InvalidParameter)? {
        schema::PolicyChangeKind::Treat => Change::Treat {
            thread: policy::thread_of(one.get_slot(), one.get_process()).ok_or(CapError::NotFound)?,
            weight: one.get_weight(),
            class,
        },
        schema::PolicyChangeKind::Lease => Change::Lease {
            cpu: cpu()?,
            holder: ProcessId::new(one.get_process()),
            lifetime: Nanos::new(one.get_lifetime_ns()),
            on_loss: if one.get_outlives() { OnLoss::Keep } else { OnLoss::Revoke },
        },
        schema::PolicyChangeKind::EndLease => Change::EndLease(cpu()?),
        schema::PolicyChangeKind::Profile => {
            let weight = Weight::new(one.get_weight()).map_err(|_| CapError::InvalidParameter)?;
            let treatment = Treatment { weight, class };
            let profile = ResourceProfile { name: String::new(), treatment, quota: None };
            Change::SetProfile(ProfileKey(one.get_slot()), profile)
        }
        schema::PolicyChangeKind::Floor => {
            Change::SetFloor { parts_per_million: u32::try_from(one.get_weight()).unwrap_or(u32::MAX) }
        }
    })
}

fn tell(call: &Call<'_>, status: &Status) -> Result<Answer, CapError> {
    with_result::<schema::policy_status::Owned>(call, |mut result| {
        let (state, instance) = match status.state {
            Service::Absent => (schema::PolicyState::Absent, None),
            Service::Alive { instance, .. } => (schema::PolicyState::Alive, Some(instance)),
            Service::Slow { instance, .. } => (schema::PolicyState::Slow, Some(instance)),
            Service::Lost { .. } => (schema::PolicyState::Lost, None),
        };
        result.set_state(state);
        result.set_instance(instance.map_or(0, |instance| instance.number() + 1));
        result.set_in_charge(status.in_charge);
        result.set_epoch(status.epoch);
        result.set_taken(status.taken);
        result.set_refused(status.refused);
        result.set_leased(status.leased);
        result.set_not_granted(status.not_granted);
        result.set_refusal(status.refusal.as_str());
        result.set_slow_times(status.slow_times);
        result.set_slow_at_ns(status.slow_at.get());
        result.set_lost_at_ns(status.lost.map_or(0, |(at, _)| at.get()));
        result.set_lost(match status.lost.map(|(_, why)| why) {
            None => schema::PolicyLoss::Never,
            Some(Lost::Silent) => schema::PolicyLoss::Silent,
            Some(Lost::Exited) => schema::PolicyLoss::Exited,
            Some(Lost::CutOff) => schema::PolicyLoss::CutOff,
        });
    })
}
