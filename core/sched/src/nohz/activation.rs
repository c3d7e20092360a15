//! Proof, activation, re-proof.

use super::eligibility::{Claim, Kind};
use super::facts::{Conditions, Facts};
use super::obligation::{Obligation, Obstacle, Preflight};
use crate::lease::{LeaseRef, Standing};
use mainspring_abi::{CpuId, Nanos};

/// Every obligation was met, on one CPU, at one moment. It cannot be copied, and nothing else makes one.
#[derive(Debug)]
#[must_use = "a proof that is not used suppresses nothing"]
pub struct Proof {
    cpu: CpuId,
    claim: Claim,
    proved_at: Nanos,
    expires_at: Nanos,
    next_wakeup: Nanos,
}

impl Proof {
    /// The CPU that it is about.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The moment that it is about.
    #[must_use]
    pub fn proved_at(&self) -> Nanos {
        self.proved_at
    }
}

/// The state of every obligation.
#[must_use]
pub fn preflight(facts: &Facts<'_>) -> Preflight {
    Preflight::look(facts)
}

/// Checks every obligation, the lease first; the first that is not met decides.
pub fn prove(facts: &Facts<'_>) -> Result<Proof, Obstacle> {
    for obligation in Obligation::ALL {
        obligation.check(facts)?;
    }
    let Standing::Live(terms) = facts.conditions.lease else { return Err(Obstacle::StaleLease) };
    Ok(Proof {
        cpu: facts.queue.cpu,
        claim: *facts.claim,
        proved_at: facts.now,
        expires_at: terms.expires_at,
        next_wakeup: facts.queue.next_wakeup.min(facts.conditions.next_wakeup),
    })
}

/// A CPU is without a tick, until [`Activation::wake_at`] at the latest.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the CPU is without a tick"]
pub struct Activation {
    claim: Claim,
    proved_at: Nanos,
    wake_at: Nanos,
}

/// What became of a window.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Recheck {
    /// It was proved again: arm the one-shot for its new [`Activation::wake_at`].
    Keep(Activation),
    /// Whether the lease stands could not be read, and there is time to ask again: arm the one-shot for its
    /// new [`Activation::wake_at`], which is the shortest that the timer can do.
    AskAgain(Activation),
    /// It is over: restore the periodic tick before anything else.
    RollBack(Obstacle),
}

impl Activation {
    /// Stops the tick, on the strength of `proof`.
    #[expect(clippy::needless_pass_by_value, reason = "a proof is used up: it is about one moment")]
    pub fn begin(proof: Proof) -> Self {
        let Proof { claim, proved_at, expires_at, next_wakeup, cpu: _ } = proof;
        let bound = proved_at + claim.max_revocation_latency;
        Self { claim, proved_at, wake_at: bound.min(next_wakeup).min(expires_at) }
    }

    /// When the one-shot comes: at the nearest wakeup, the end of the lease, or the revocation latency after the last
    /// proof, whichever is first.
    #[must_use]
    pub fn wake_at(&self) -> Nanos {
        self.wake_at
    }

    /// When it was last proved.
    #[must_use]
    pub fn proved_at(&self) -> Nanos {
        self.proved_at
    }

    /// What was claimed.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The lease that it is under.
    #[must_use]
    pub fn lease(&self) -> LeaseRef {
        self.claim.lease
    }

    /// What runs without a tick.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.claim.kind
    }

    /// Proves it again, at a timer interrupt or a reschedule, before anything else is done. The claim is the one that
    /// it began with.
    pub fn recheck(self, now: Nanos, queue: &super::QueueFacts, conditions: &Conditions) -> Recheck {
        let facts = Facts { now, claim: &self.claim, conditions, queue };
        match prove(&facts) {
            Ok(proof) => Recheck::Keep(Self::begin(proof)),
            Err(Obstacle::LeaseUnreadable) => self.ask_again(now, queue, conditions),
            Err(obstacle) => Recheck::RollBack(obstacle),
        }
    }

    /// Another CPU has the registry. A little later is good enough, if all else holds and the last proof is
    /// not too old by then.
    fn ask_again(self, now: Nanos, queue: &super::QueueFacts, conditions: &Conditions) -> Recheck {
        let again = now + conditions.min_delta.max(Nanos::new(1));
        let in_time = again <= self.proved_at + self.claim.max_revocation_latency;
        let alone = queue.runnable == 1 && queue.running.is_some() && !queue.direct_target;
        if !in_time || !alone || !conditions.oneshot {
            return Recheck::RollBack(Obstacle::LeaseUnreadable);
        }
        Recheck::AskAgain(Self { wake_at: again, ..self })
    }
}

/// What interrupted a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupt {
    /// Its timer: what was armed is used up.
    Timer,
    /// Another CPU: what is armed stays so.
    Reschedule,
}

/// What to do at an interrupt whose handler cannot get at the CPU's scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Contended {
    /// Arm the shortest one-shot, and recheck then. If the timer cannot do one-shots, restore the periodic tick.
    ArmShortest,
    /// Nothing: the tick, or the one-shot that is armed, comes by itself.
    StillArmed,
}

/// Decides without the scheduler's state, which another CPU has. `tickless` is the machine's own mark of CPUs without
/// a tick, set after each event from [`Cpu::nohz`](crate::Cpu::nohz), and readable without a lock. Without it a timer
/// interrupt that was the one-shot of a tickless CPU would be taken for a tick, and no other would follow.
pub const fn on_contention(interrupt: Interrupt, tickless: bool) -> Contended {
    match (interrupt, tickless) {
        (Interrupt::Timer, true) => Contended::ArmShortest,
        (Interrupt::Timer, false) | (Interrupt::Reschedule, _) => Contended::StillArmed,
    }
}
