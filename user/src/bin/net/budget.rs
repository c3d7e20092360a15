//! How much work the network process may do: what its context has left.

use mainspring_user::CapError;
use mainspring_user::caps::{self, Context};
use mainspring_user::net::NetUsage;

/// One of so many parts of the budget is kept for calls and timers when packets are many.
const KEPT: u64 = 4;

/// The context of the process.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    context: Context,
    cpu: u32,
    kept_ns: u64,
    period_ns: u64,
}

impl Budget {
    /// The context `context:net`, if the process was granted one.
    pub fn find() -> Option<Self> {
        let context = Context(caps::find("context:net")?);
        let info = context.info().ok()?;
        Some(Self { context, cpu: info.cpu, kept_ns: info.budget_ns / KEPT, period_ns: info.period_ns })
    }

    /// The CPU on which the context is spent.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// The calling thread runs on it from now on.
    pub fn bind(&self) -> Result<(), CapError> {
        self.context.bind()
    }

    /// Whether there is enough left for a few packets.
    pub fn allows_packets(&self) -> bool {
        self.context.info().is_ok_and(|info| info.remaining_ns > self.kept_ns)
    }

    /// What has been used of it, beside the packets that were taken for it.
    pub fn usage(&self, packets: u64) -> NetUsage {
        let Ok(info) = self.context.info() else { return NetUsage { packets, ..NetUsage::default() } };
        NetUsage {
            packets,
            used_ns: info.used_ns,
            budget_ns: info.budget_ns,
            period_ns: info.period_ns,
            overshoot_max_ns: info.overshoot_max_ns,
        }
    }

    /// How long to leave packets alone when there is not.
    pub fn rest_ns(&self) -> u64 {
        self.period_ns / 4
    }
}
