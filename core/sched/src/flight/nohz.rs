//! Records of going tickless under a lease: the facts that were put before the CPU, and what it made of them.

use super::bytes::{DecodeError, Reader, Writer};
use crate::cpu::{NohzEntry, NohzRecheck};
use crate::lease::{AccountingTarget, LeaseRef, Mode, NamedRing, Standing, TargetStanding, Terms};
use crate::nohz::{Claim, Conditions, Kind, Obstacle, Origin, RingFacts};
use mainspring_abi::{CpuId, Nanos, ThreadRef};

/// An event about a tickless window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the method of `Cpu` whose name ends so")]
pub enum NohzEvent {
    Enter(Claim, Conditions),
    Recheck(Conditions),
    Forget(LeaseRef),
}

/// What a CPU answered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NohzOutcome {
    /// Whether it went tickless.
    Entry(NohzEntry),
    /// Whether it stays so.
    Recheck(NohzRecheck),
    /// Whether there was a window under that lease.
    Forgot(bool),
}

impl NohzEvent {
    pub(super) fn apply(self, cpu: &mut crate::Cpu, now: Nanos) -> NohzOutcome {
        match self {
            Self::Enter(claim, conditions) => NohzOutcome::Entry(cpu.nohz_enter(now, &claim, &conditions)),
            Self::Recheck(conditions) => NohzOutcome::Recheck(cpu.nohz_recheck(now, &conditions)),
            Self::Forget(lease) => NohzOutcome::Forgot(cpu.nohz_forget(lease)),
        }
    }
}

type Read<T> = Result<T, DecodeError>;

fn code_of<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|other| other == one).map_or(u8::MAX, |code| code as u8)
}

fn one_of<T: Copy>(r: &mut Reader<'_>, what: &'static str, all: &[T]) -> Read<T> {
    let code = r.byte()?;
    all.get(usize::from(code)).copied().ok_or(DecodeError::UnknownCode { what, code: u64::from(code) })
}

fn nanos(r: &mut Reader<'_>, what: &'static str) -> Read<Nanos> {
    Ok(Nanos::new(r.number(what)?))
}

const TARGETS: [TargetStanding; 3] =
    [TargetStanding::Chargeable, TargetStanding::Stale, TargetStanding::Fabricated];
const RINGS: [NamedRing; 2] = [NamedRing::None, NamedRing::CallerThread];
const FLAGS: [bool; 2] = [false, true];

pub(super) fn write_event(w: &mut Writer<'_>, event: &NohzEvent) {
    match event {
        NohzEvent::Enter(claim, conditions) => {
            w.byte(0);
            write_claim(w, claim);
            write_conditions(w, conditions);
        }
        NohzEvent::Recheck(conditions) => {
            w.byte(1);
            write_conditions(w, conditions);
        }
        NohzEvent::Forget(lease) => {
            w.byte(2);
            write_lease(w, *lease);
        }
    }
}

pub(super) fn read_event(r: &mut Reader<'_>) -> Read<NohzEvent> {
    Ok(match r.byte()? {
        0 => {
            let claim = read_claim(r)?;
            NohzEvent::Enter(claim, read_conditions(r)?)
        }
        1 => NohzEvent::Recheck(read_conditions(r)?),
        2 => NohzEvent::Forget(read_lease(r)?),
        code => return Err(DecodeError::UnknownCode { what: "window event", code: u64::from(code) }),
    })
}

pub(super) fn write_outcome(w: &mut Writer<'_>, outcome: NohzOutcome) {
    match outcome {
        NohzOutcome::Entry(NohzEntry::Tickless { wake_at }) => {
            w.byte(0);
            w.number(wake_at.get());
        }
        NohzOutcome::Entry(NohzEntry::Refused(obstacle)) => {
            w.byte(1);
            w.byte(code_of(&Obstacle::ALL, &obstacle));
        }
        NohzOutcome::Entry(NohzEntry::Already) => w.byte(2),
        NohzOutcome::Recheck(NohzRecheck::NotTickless) => w.byte(3),
        NohzOutcome::Recheck(NohzRecheck::Kept { wake_at }) => {
            w.byte(4);
            w.number(wake_at.get());
        }
        NohzOutcome::Recheck(NohzRecheck::RolledBack(obstacle)) => {
            w.byte(5);
            w.byte(code_of(&Obstacle::ALL, &obstacle));
        }
        NohzOutcome::Forgot(there_was_one) => w.byte(6 + u8::from(there_was_one)),
    }
}

pub(super) fn read_outcome(r: &mut Reader<'_>) -> Read<NohzOutcome> {
    Ok(match r.byte()? {
        0 => NohzOutcome::Entry(NohzEntry::Tickless { wake_at: nanos(r, "one-shot")? }),
        1 => NohzOutcome::Entry(NohzEntry::Refused(one_of(r, "obstacle", &Obstacle::ALL)?)),
        2 => NohzOutcome::Entry(NohzEntry::Already),
        3 => NohzOutcome::Recheck(NohzRecheck::NotTickless),
        4 => NohzOutcome::Recheck(NohzRecheck::Kept { wake_at: nanos(r, "one-shot")? }),
        5 => NohzOutcome::Recheck(NohzRecheck::RolledBack(one_of(r, "obstacle", &Obstacle::ALL)?)),
        code @ 6..=7 => NohzOutcome::Forgot(code == 7),
        code => return Err(DecodeError::UnknownCode { what: "window outcome", code: u64::from(code) }),
    })
}

fn write_lease(w: &mut Writer<'_>, lease: LeaseRef) {
    w.number(lease.id());
    w.number(lease.generation());
}

fn read_lease(r: &mut Reader<'_>) -> Read<LeaseRef> {
    Ok(LeaseRef::from_parts(r.number("lease")?, r.number("lease generation")?))
}

fn write_payer(w: &mut Writer<'_>, target: AccountingTarget) {
    match target {
        AccountingTarget::Ledger => w.byte(0),
        AccountingTarget::Context { id, generation } => {
            w.byte(1);
            w.number(id);
            w.number(generation);
        }
    }
}

fn read_payer(r: &mut Reader<'_>) -> Read<AccountingTarget> {
    Ok(match r.byte()? {
        0 => AccountingTarget::Ledger,
        1 => AccountingTarget::Context {
            id: r.number("context")?,
            generation: r.number("context generation")?,
        },
        code => return Err(DecodeError::UnknownCode { what: "payer", code: u64::from(code) }),
    })
}

fn write_thread(w: &mut Writer<'_>, thread: ThreadRef) {
    w.number(u64::from(thread.index()));
    w.number(u64::from(thread.generation()));
}

fn read_thread(r: &mut Reader<'_>) -> Read<ThreadRef> {
    Ok(ThreadRef::new(r.small("thread")?, r.small("generation")?))
}

fn write_claim(w: &mut Writer<'_>, claim: &Claim) {
    write_lease(w, claim.lease);
    w.byte(code_of(&Kind::ALL, &claim.kind));
    w.number(claim.max_revocation_latency.get());
    w.byte(u8::from(claim.allow_busy_spin));
    write_payer(w, claim.accounting_target);
    match claim.origin {
        Origin::Local { caller, poller } => {
            w.byte(u8::from(poller.is_some()));
            write_thread(w, caller);
            if let Some(poller) = poller {
                write_thread(w, poller);
            }
        }
        Origin::Remote { caller } => {
            w.byte(2);
            write_thread(w, caller);
        }
    }
}

fn read_claim(r: &mut Reader<'_>) -> Read<Claim> {
    let lease = read_lease(r)?;
    let kind = one_of(r, "window kind", &Kind::ALL)?;
    let max_revocation_latency = nanos(r, "latency")?;
    let allow_busy_spin = one_of(r, "flag", &FLAGS)?;
    let accounting_target = read_payer(r)?;
    let origin = match r.byte()? {
        0 => Origin::Local { caller: read_thread(r)?, poller: None },
        1 => {
            let caller = read_thread(r)?;
            Origin::Local { caller, poller: Some(read_thread(r)?) }
        }
        2 => Origin::Remote { caller: read_thread(r)? },
        code => return Err(DecodeError::UnknownCode { what: "origin", code: u64::from(code) }),
    };
    Ok(Claim { lease, kind, max_revocation_latency, allow_busy_spin, accounting_target, origin })
}

fn write_conditions(w: &mut Writer<'_>, conditions: &Conditions) {
    write_standing(w, &conditions.lease);
    w.byte(code_of(&TARGETS, &conditions.target));
    write_payer(w, conditions.payer);
    write_ring(w, conditions.ring);
    let flags = [
        conditions.housekeeping,
        conditions.sibling_work,
        conditions.deferred_cleanup,
        conditions.global_timers,
        conditions.unbound_worker,
        conditions.watchdog,
        conditions.network_polling,
        conditions.fixed_irq,
        conditions.devices_on_housekeeping,
        conditions.stable_clock,
        conditions.boundary_accounting,
        conditions.interruptible,
        conditions.periodic,
        conditions.oneshot,
    ];
    w.number(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u64::from(*flag)));
    w.number(conditions.min_delta.get());
    w.number(conditions.next_wakeup.get());
}

fn read_conditions(r: &mut Reader<'_>) -> Read<Conditions> {
    let lease = read_standing(r)?;
    let target = one_of(r, "accounting target", &TARGETS)?;
    let payer = read_payer(r)?;
    let ring = read_ring(r)?;
    let bits: u16 = r.small("conditions")?;
    if bits >> 14 != 0 {
        return Err(DecodeError::OutOfRange { what: "conditions" });
    }
    let flag = |n: u8| bits >> n & 1 == 1;
    Ok(Conditions {
        lease,
        target,
        payer,
        ring,
        housekeeping: flag(0),
        sibling_work: flag(1),
        deferred_cleanup: flag(2),
        global_timers: flag(3),
        unbound_worker: flag(4),
        watchdog: flag(5),
        network_polling: flag(6),
        fixed_irq: flag(7),
        devices_on_housekeeping: flag(8),
        stable_clock: flag(9),
        boundary_accounting: flag(10),
        interruptible: flag(11),
        periodic: flag(12),
        oneshot: flag(13),
        min_delta: nanos(r, "shortest one-shot")?,
        next_wakeup: nanos(r, "next wakeup")?,
    })
}

fn write_ring(w: &mut Writer<'_>, ring: RingFacts) {
    w.byte(match ring {
        RingFacts::NoRing => 0,
        RingFacts::Contended => 1,
        RingFacts::NotSqpoll => 2,
        RingFacts::Sqpoll { owner_live, spinning, other_consumer } => {
            8 + u8::from(owner_live) + 2 * u8::from(spinning) + 4 * u8::from(other_consumer)
        }
    });
}

fn read_ring(r: &mut Reader<'_>) -> Read<RingFacts> {
    Ok(match r.byte()? {
        0 => RingFacts::NoRing,
        1 => RingFacts::Contended,
        2 => RingFacts::NotSqpoll,
        code @ 8..=15 => RingFacts::Sqpoll {
            owner_live: code & 1 != 0,
            spinning: code & 2 != 0,
            other_consumer: code & 4 != 0,
        },
        code => return Err(DecodeError::UnknownCode { what: "ring", code: u64::from(code) }),
    })
}

fn write_standing(w: &mut Writer<'_>, standing: &Standing) {
    match standing {
        Standing::Stale => w.byte(0),
        Standing::Expired => w.byte(1),
        Standing::Contended => w.byte(2),
        Standing::Live(terms) => {
            w.byte(3);
            write_lease(w, terms.lease);
            w.number(terms.sole_cpu.map_or(0, |cpu| cpu.index() as u64 + 1));
            w.byte(code_of(&Mode::ALL, &terms.mode));
            w.byte(code_of(&RINGS, &terms.ring));
            w.byte(u8::from(terms.allow_irqs));
            write_payer(w, terms.target);
            w.number(terms.max_revocation_latency.get());
            w.number(terms.expires_at.get());
        }
    }
}

fn read_standing(r: &mut Reader<'_>) -> Read<Standing> {
    Ok(match r.byte()? {
        0 => Standing::Stale,
        1 => Standing::Expired,
        2 => Standing::Contended,
        3 => Standing::Live(Terms {
            lease: read_lease(r)?,
            sole_cpu: read_sole_cpu(r)?,
            mode: one_of(r, "lease mode", &Mode::ALL)?,
            ring: one_of(r, "named ring", &RINGS)?,
            allow_irqs: one_of(r, "flag", &FLAGS)?,
            target: read_payer(r)?,
            max_revocation_latency: nanos(r, "latency")?,
            expires_at: nanos(r, "end of the lease")?,
        }),
        code => return Err(DecodeError::UnknownCode { what: "standing", code: u64::from(code) }),
    })
}

fn read_sole_cpu(r: &mut Reader<'_>) -> Read<Option<CpuId>> {
    let Some(index) = r.small::<usize>("CPU")?.checked_sub(1) else { return Ok(None) };
    CpuId::new(index).map(Some).map_err(|_| DecodeError::OutOfRange { what: "CPU" })
}
