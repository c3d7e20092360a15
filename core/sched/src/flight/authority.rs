//! Contexts as bytes. One that comes to a CPU is recorded by value, like a thread.

use super::bytes::{DecodeError, Reader, Writer};
use super::decode::{Read, affinity, optional as read_optional, thread as read_thread, unknown};
use super::encode::{affinity as write_affinity, optional, thread_ref};
use crate::context::{
    Context, ContextSpec, Donors, MAX_DEPTH, MAX_REFILLS, Notices, Overrun, Refill, Refills, Usage,
};
use crate::entity::Authority;
use alloc::boxed::Box;
use mainspring_abi::{ContextRef, Nanos};

pub(super) fn write_authority(w: &mut Writer<'_>, authority: &Authority) {
    match authority {
        Authority::BestEffort => w.byte(0),
        Authority::Context(context) => {
            w.byte(1);
            write_context(w, context);
        }
        Authority::Lent(who) => {
            w.byte(2);
            write_who(w, *who);
        }
    }
}

pub(super) fn read_authority(r: &mut Reader<'_>) -> Read<Authority> {
    Ok(match r.byte()? {
        0 => Authority::BestEffort,
        1 => Authority::Context(read_context(r)?),
        2 => Authority::Lent(read_who(r)?),
        code => return unknown("authority", code),
    })
}

pub(super) fn write_who(w: &mut Writer<'_>, who: ContextRef) {
    w.number(u64::from(who.id()));
    w.number(u64::from(who.generation()));
}

pub(super) fn read_who(r: &mut Reader<'_>) -> Read<ContextRef> {
    Ok(ContextRef::new(r.small("context")?, r.small("generation")?))
}

/// What its notice cells hold is not recorded: no decision depends on it.
pub(super) fn write_context(w: &mut Writer<'_>, context: &Context) {
    write_who(w, context.who);
    let spec = &context.spec;
    for time in [spec.budget, spec.period, spec.deadline] {
        w.number(time.get());
    }
    w.number(u64::from(spec.priority));
    w.byte(spec.criticality);
    write_affinity(w, &spec.cpus);
    w.byte(spec.refills);
    w.byte(Overrun::ALL.iter().position(|one| *one == spec.overrun).map_or(u8::MAX, |code| code as u8));
    optional(w, spec.timeout_endpoint.map(u64::from));
    w.byte(spec.depth);
    let refills = context.refills.list();
    w.byte(refills.len() as u8);
    for refill in refills {
        w.number(refill.at.get());
        w.number(refill.amount.get());
    }
    w.byte(context.donors.depth() as u8);
    for donor in context.donors.iter() {
        thread_ref(w, donor);
    }
    let usage = &context.usage;
    for number in [usage.used.get(), usage.donated.get(), usage.depletions, usage.misses] {
        w.number(number);
    }
    w.number(usage.overshoot_max.get());
    w.number(usage.overrun.get());
    optional(w, usage.missed_release.map(Nanos::get));
    w.byte(u8::from(context.active));
    w.number(context.paused.0.get());
    w.number(context.paused.1.get());
}

pub(super) fn read_context(r: &mut Reader<'_>) -> Read<Box<Context>> {
    let bad = |what: &'static str| DecodeError::OutOfRange { what };
    let who = read_who(r)?;
    let mut time = |what: &'static str| Ok(Nanos::new(r.number(what)?));
    let (budget, period, deadline) = (time("budget")?, time("period")?, time("deadline")?);
    let priority = r.small("priority")?;
    let criticality = r.byte()?;
    let cpus = affinity(r)?;
    let refills = r.byte()?;
    let code = r.byte()?;
    let Some(overrun) = Overrun::ALL.get(usize::from(code)).copied() else { return unknown("overrun", code) };
    let timeout_endpoint = match read_optional(r, "endpoint")? {
        None => None,
        Some(endpoint) => Some(u32::try_from(endpoint).map_err(|_| bad("endpoint"))?),
    };
    let depth = r.byte()?;
    let spec = ContextSpec {
        budget,
        period,
        deadline,
        priority,
        criticality,
        cpus,
        refills,
        overrun,
        timeout_endpoint,
        depth,
    };
    spec.check().map_err(|_| bad("context"))?;
    let count = usize::from(r.byte()?);
    let mut list = [Refill::default(); MAX_REFILLS];
    for refill in list.get_mut(..count).ok_or(bad("refills"))? {
        *refill = Refill { at: Nanos::new(r.number("refill")?), amount: Nanos::new(r.number("refill")?) };
    }
    let refills =
        Refills::from_parts(&list[..count], usize::from(refills), budget, period).ok_or(bad("refills"))?;
    let mut donors = Donors::new(depth);
    let given = usize::from(r.byte()?);
    if given > MAX_DEPTH.min(usize::from(depth)) {
        return Err(bad("donors"));
    }
    for _ in 0..given {
        donors.push(read_thread(r)?);
    }
    let usage = Usage {
        used: Nanos::new(r.number("used")?),
        donated: Nanos::new(r.number("donated")?),
        depletions: r.number("depletions")?,
        misses: r.number("misses")?,
        overshoot_max: Nanos::new(r.number("overshoot")?),
        overrun: Nanos::new(r.number("overrun")?),
        missed_release: read_optional(r, "missed release")?.map(Nanos::new),
    };
    let active = match r.byte()? {
        0 => false,
        1 => true,
        code => return unknown("activity", code),
    };
    let paused = (Nanos::new(r.number("pause")?), Nanos::new(r.number("pause")?));
    Ok(Box::new(Context { who, spec, refills, donors, usage, notices: Notices::new(), active, paused }))
}
