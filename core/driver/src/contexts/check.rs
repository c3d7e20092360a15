//! The check that each context is in exactly one place.

use super::record::{Phase, Position};
use super::transfer::at_home;
use super::{ContextMachine, Contexts};
use mainspring_abi::ContextRef;
use mainspring_sched::Authority;
use mainspring_sched::context::Donors;

impl Contexts {
    /// Checks all contexts in a debug build.
    pub(super) fn debug_verify<M: ContextMachine>(&self, machine: &mut M) {
        if cfg!(debug_assertions)
            && let Err(what) = self.verify(machine)
        {
            panic!("{what}");
        }
    }

    /// Whether every context is in exactly one place, every thread that waits for one has lent it, and all counts are right.
    /// Holds between operations. Takes time in proportion to the number of contexts.
    pub fn verify<M: ContextMachine>(&self, machine: &mut M) -> Result<(), &'static str> {
        let mut flying = 0;
        for record in &self.records {
            let who = record.value_name();
            match &record.position {
                Position::Gone => {
                    if !matches!(record.phase, Phase::Ended(_)) {
                        return Err("a context that has not ended is nowhere");
                    }
                }
                _ if matches!(record.phase, Phase::Ended(_)) => {
                    return Err("a context has ended and is somewhere");
                }
                Position::Rest(value) => {
                    if value.who() != who || value.donors().depth() != 0 || record.owner.is_some() {
                        return Err("a context at rest belongs to somebody");
                    }
                }
                Position::InFlight(flight) => {
                    flying += 1;
                    check_donors(machine, who, flight.value.donors())?;
                }
                Position::With(holder) => {
                    let donors = at_home(machine, *holder, |access, seat| {
                        let context = access.cpu().entity(seat).ok()?.context()?;
                        (context.who() == who).then(|| context.donors().clone())
                    });
                    let Some(donors) = donors.flatten() else {
                        return Err("a context is not with the thread that is said to hold it");
                    };
                    let owner = donors.iter().next().unwrap_or(*holder);
                    if record.owner != Some(owner) {
                        return Err("a context has another owner than the first who lent it, or its holder");
                    }
                    check_donors(machine, who, &donors)?;
                }
            }
        }
        if flying == self.in_flight { Ok(()) } else { Err("the count of contexts in flight is wrong") }
    }
}

fn check_donors<M: ContextMachine>(
    machine: &mut M,
    who: ContextRef,
    donors: &Donors,
) -> Result<(), &'static str> {
    for donor in donors.iter() {
        let lent = at_home(machine, donor, |access, seat| {
            let authority = access.cpu().entity(seat).ok()?.authority();
            Some(matches!(authority, Authority::Lent(lent) if *lent == who))
        });
        if lent.flatten() != Some(true) {
            return Err("somebody on the stack of donors has not lent the context");
        }
    }
    Ok(())
}
