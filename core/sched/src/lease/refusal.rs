//! Why a lease is not granted or not honoured. Each says what to do instead.

use super::record::{EndReason, LeaseRef, Mode};
use crate::identity::Exhausted;
use core::fmt;
use mainspring_abi::{CpuId, MaskError, Nanos};

/// A lease that cannot be used, because there is none such any more, or never was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotLive {
    /// No lease was ever issued under that id.
    Unknown,
    /// The generation is not the lease's: another lease took its place, or it was made up.
    StaleGeneration,
    /// It has ended, and why.
    Ended(EndReason),
}

impl fmt::Display for NotLive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no lease was ever issued under that name; ask for one"),
            Self::StaleGeneration => f.write_str("that lease is gone; use the one that took its place"),
            Self::Ended(reason) => write!(f, "that lease has ended ({}); ask for another", reason.label()),
        }
    }
}

impl core::error::Error for NotLive {}

/// Why a lease was not granted. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The CPU mask, or the mask of the housekeeping exclusions, is not canonical.
    MalformedMask(MaskError),
    /// The CPU mask has no CPU.
    EmptyMask,
    /// This CPU is not online.
    Offline(CpuId),
    /// This CPU is in a live lease.
    Overlap {
        /// The lowest such CPU.
        cpu: CpuId,
        /// The lease that has it.
        held_by: LeaseRef,
    },
    /// No online housekeeping CPU would be left outside all leases, or none that may work for this one.
    NoHousekeeping,
    /// The machine does not grant this mode.
    ModeNotAllowed(Mode),
    /// It names a ring, but its mode does not have the kernel poll it, and devices are still served from every CPU.
    RingWithoutSqpoll,
    /// Its mode is to poll a ring, but it names none.
    SqpollWithoutRing,
    /// It would own a device, but devices are still served from every CPU.
    DevicesNotRouted,
    /// The accounting target has ended.
    StaleTarget,
    /// There is no such accounting target.
    FabricatedTarget,
    /// The revocation latency is zero or longer than the machine allows.
    RevocationLatency {
        /// The longest that is allowed.
        max: Nanos,
    },
    /// The lease to be replaced is not live.
    Replaces(NotLive),
    /// The lease to be replaced belongs to another owner.
    NotOwner,
    /// As many leases as there is room for exist already, ended leases that were not released
    /// included.
    Full {
        /// How many.
        capacity: usize,
    },
    /// There are no more names for leases.
    Exhausted,
}

impl From<Exhausted> for Refusal {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

impl Refusal {
    /// As it stands in reports.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::MalformedMask(_) => "malformed-mask",
            Self::EmptyMask => "empty-mask",
            Self::Offline(_) => "cpu-offline",
            Self::Overlap { .. } => "overlap",
            Self::NoHousekeeping => "no-housekeeping-cpu",
            Self::ModeNotAllowed(_) => "mode-not-allowed",
            Self::RingWithoutSqpoll => "ring-without-kernel-sqpoll",
            Self::SqpollWithoutRing => "kernel-sqpoll-without-ring",
            Self::DevicesNotRouted => "devices-not-routed",
            Self::StaleTarget => "stale-accounting-target",
            Self::FabricatedTarget => "fabricated-accounting-target",
            Self::RevocationLatency { .. } => "revocation-latency-out-of-policy",
            Self::Replaces(_) => "stale-lease-generation",
            Self::NotOwner => "not-the-owner",
            Self::Full { .. } => "no-room",
            Self::Exhausted => "identities-exhausted",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MalformedMask(why) => write!(f, "{why}"),
            Self::EmptyMask => f.write_str("a lease needs at least one CPU; set a bit in its mask"),
            Self::Offline(cpu) => write!(f, "CPU {cpu} is not online; leave it out"),
            Self::Overlap { cpu, held_by } => {
                write!(f, "CPU {cpu} is leased already, by {held_by}; choose another or wait for its end")
            }
            Self::NoHousekeeping => {
                f.write_str("no online housekeeping CPU would be left for this lease; lease fewer CPUs")
            }
            Self::ModeNotAllowed(mode) => {
                write!(f, "this machine grants no {} leases; the policy service can allow them", mode.label())
            }
            Self::RingWithoutSqpoll => f.write_str(
                "a lease with a ring needs the kernel-sqpoll mode, unless devices are served by housekeeping CPUs",
            ),
            Self::SqpollWithoutRing => f.write_str("a kernel-sqpoll lease must name the ring to poll"),
            Self::DevicesNotRouted => f.write_str(
                "a lease that owns a device needs network polls and interrupts on the housekeeping CPUs first",
            ),
            Self::StaleTarget => f.write_str("the accounting target has ended; name one that can be charged"),
            Self::FabricatedTarget => {
                f.write_str("there is no such accounting target; name one that can be charged")
            }
            Self::RevocationLatency { max } => {
                write!(f, "the revocation latency must be above zero and at most {max}")
            }
            Self::Replaces(why) => write!(f, "the lease to be replaced: {why}"),
            Self::NotOwner => f.write_str("the lease to be replaced belongs to somebody else"),
            Self::Full { capacity } => {
                write!(f, "all {capacity} places for leases are taken; release one that has ended")
            }
            Self::Exhausted => write!(f, "{Exhausted}"),
        }
    }
}

impl core::error::Error for Refusal {}
