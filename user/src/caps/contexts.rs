//! SchedulingContext and UserSession: CPU time that a thread can be bound to.

use super::{call_for, with_params};
use crate::client;
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;
use mainspring_schema::SchedulingContextMethod as Method;

/// A scheduling context that this process has a capability of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context(pub u32);

/// What a context grants.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct Grant {
    pub budget_ns: u64,
    pub period_ns: u64,
    pub deadline_ns: u64,
    pub overrun: schema::OverrunPolicy,
    pub cpus: u64,
    pub depth: u8,
}

/// What is known of a context.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct ContextInfo {
    pub id: u32,
    pub generation: u32,
    pub budget_ns: u64,
    pub period_ns: u64,
    pub deadline_ns: u64,
    pub remaining_ns: u64,
    pub used_ns: u64,
    pub donated_ns: u64,
    pub depletions: u64,
    pub misses: u64,
    pub overshoot_max_ns: u64,
    pub cpu: u32,
    pub budget_enforced: bool,
    pub bound: bool,
    pub stale: bool,
    pub lent: bool,
}

/// What a drain gives: how often the budget was used up since the last one, and how often a deadline passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct Drained {
    pub status: schema::DrainStatus,
    pub reason: schema::ContextEnd,
    pub depleted: u32,
    pub missed: u32,
    /// The last time that it was used up, it was on loan.
    pub donated: bool,
}

impl Context {
    fn call(self, method: Method) -> Result<u32, CapError> {
        client::call(self.0, method as u16, &[], &mut [])
    }

    /// Another context, which grants no more than this one.
    pub fn create(self, grant: Grant) -> Result<Self, CapError> {
        with_params::<schema::context_create::Owned, _>(
            |mut params| {
                params.set_budget_ns(grant.budget_ns);
                params.set_period_ns(grant.period_ns);
                params.set_deadline_ns(grant.deadline_ns);
                params.set_overrun(grant.overrun);
                params.set_cpus(grant.cpus);
                params.set_depth(grant.depth);
            },
            |bytes| {
                let made = |made: schema::handle::Reader<'_>| Self(made.get_cap());
                call_for::<schema::handle::Owned, _>(self.0, Method::Create as u16, bytes, made)
            },
        )?
    }

    /// What is known of it.
    pub fn info(self) -> Result<ContextInfo, CapError> {
        call_for::<schema::context_info::Owned, _>(self.0, Method::Info as u16, &[], |info| ContextInfo {
            id: info.get_id(),
            generation: info.get_generation(),
            budget_ns: info.get_budget_ns(),
            period_ns: info.get_period_ns(),
            deadline_ns: info.get_deadline_ns(),
            remaining_ns: info.get_remaining_ns(),
            used_ns: info.get_used_ns(),
            donated_ns: info.get_donated_ns(),
            depletions: info.get_depletions(),
            misses: info.get_misses(),
            overshoot_max_ns: info.get_overshoot_max_ns(),
            cpu: info.get_cpu(),
            budget_enforced: info.get_budget_enforced(),
            bound: info.get_bound(),
            stale: info.get_stale(),
            lent: info.get_lent(),
        })
    }

    /// The calling thread runs on it from now on. [`CapError::Denied`] if the thread is not on the context's CPU.
    pub fn bind(self) -> Result<(), CapError> {
        self.call(Method::BindCallerThread).map(|_| ())
    }

    /// The calling thread gives it up.
    pub fn unbind(self) -> Result<(), CapError> {
        self.call(Method::Unbind).map(|_| ())
    }

    /// Takes it away from wherever it is, for good.
    pub fn revoke(self) -> Result<(), CapError> {
        self.call(Method::Revoke).map(|_| ())
    }

    /// Gives the capability up, and the calling thread's binding if it is to this context. The context itself goes on.
    pub fn release(self) -> Result<(), CapError> {
        self.call(Method::Release).map(|_| ())
    }

    /// It grants something else from now on.
    pub fn adjust(self, budget_ns: u64, period_ns: u64, deadline_ns: u64) -> Result<(), CapError> {
        with_params::<schema::context_adjust::Owned, _>(
            |mut params| {
                params.set_budget_ns(budget_ns);
                params.set_period_ns(period_ns);
                params.set_deadline_ns(deadline_ns);
            },
            |bytes| client::call(self.0, Method::Adjust as u16, bytes, &mut []).map(|_| ()),
        )?
    }

    /// Empties its cells.
    pub fn drain(self) -> Result<Drained, CapError> {
        let method = Method::DrainNotifications as u16;
        call_for::<schema::context_notices::Owned, _>(self.0, method, &[], |notices| {
            let refused = |_| CapError::InvalidParameter;
            Ok(Drained {
                status: notices.get_status().map_err(|_| CapError::InvalidParameter)?,
                reason: notices.get_reason().map_err(|_| CapError::InvalidParameter)?,
                depleted: notices.get_depleted().map_err(refused)?.get_coalesced(),
                missed: notices.get_deadline().map_err(refused)?.get_coalesced(),
                donated: notices.get_depleted().map_err(refused)?.get_donated(),
            })
        })?
    }

    /// Waits until there is something to drain.
    pub fn wait(self) -> Result<(), CapError> {
        self.call(Method::Wait).map(|_| ())
    }
}

/// A login session that this process has a capability of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session(pub u32);

impl Session {
    /// Its number, and whether it is live.
    pub fn info(self) -> Result<(u64, bool), CapError> {
        let method = schema::UserSessionMethod::Info as u16;
        call_for::<schema::session_info::Owned, _>(self.0, method, &[], |info| {
            (info.get_id(), info.get_live())
        })
    }

    /// The calling thread is in it from now on. [`CapError::Denied`] if the process is in one.
    pub fn enter(self) -> Result<(), CapError> {
        client::call(self.0, schema::UserSessionMethod::Enter as u16, &[], &mut []).map(|_| ())
    }

    /// Ends it. How many contexts have ended with it, and how many are on loan and end when they come back.
    pub fn logout(self) -> Result<(u32, u32), CapError> {
        let method = schema::UserSessionMethod::Logout as u16;
        call_for::<schema::session_logout::Owned, _>(self.0, method, &[], |ended| {
            (ended.get_stale_marked(), ended.get_donation_inflight_skipped())
        })
    }
}
