//! CpuIsolation and CpuIsolationLease: CPUs to oneself.

use super::{call_for, call_for_long, find, need, with_params_of};
use crate::client;
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;
use mainspring_schema::CpuIsolationLeaseMethod as Method;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct LeaseGrant<'a> {
    /// The CPUs: CPU n is bit n mod 8 of byte n div 8, and the last byte is not 0.
    pub cpus: &'a [u8],
    /// Those that may not do the housekeeping for it.
    pub housekeeping_exclusions: &'a [u8],
    /// What for.
    pub mode: schema::LeaseMode,
    /// The ring that it is coupled to.
    pub ring: schema::NamedRing,
    /// How long it may take until its end is felt.
    pub max_revocation_latency_ns: u64,
    /// How long it lasts; 0 for until it is taken back.
    pub lifetime_ns: u64,
    /// A thread handle; 0 for the calling thread.
    pub thread: u32,
    /// A scheduling context; 0 for the ledger.
    pub account: u32,
    /// An endpoint that is told of its end; 0 for none.
    pub revoke_endpoint: u32,
    /// A lease that it takes the place of; 0 for none.
    pub replaces: u32,
    /// Whether its CPU does without a tick when it can.
    pub tickless: bool,
    /// Whether its thread may spin.
    pub allow_busy_spin: bool,
    /// How long a poller that may spin looks for more; 0 for as long as one may.
    pub idle_spin_ns: u64,
}

impl Default for LeaseGrant<'_> {
    fn default() -> Self {
        Self {
            cpus: &[],
            housekeeping_exclusions: &[],
            mode: schema::LeaseMode::Compute,
            ring: schema::NamedRing::None,
            max_revocation_latency_ns: 100_000_000,
            lifetime_ns: 0,
            thread: 0,
            account: 0,
            revoke_endpoint: 0,
            replaces: 0,
            tickless: true,
            allow_busy_spin: false,
            idle_spin_ns: 0,
        }
    }
}

/// The capability to lease CPUs, in every mode if that was granted.
fn authority() -> u32 {
    find("leases:any").unwrap_or_else(|| need("leases"))
}

/// Leases CPUs.
pub fn lease(asked: &LeaseGrant<'_>) -> Result<Lease, CapError> {
    with_lease_params(asked, |bytes| {
        let made = |made: schema::lease_handle::Reader<'_>| Lease {
            cap: made.get_cap(),
            id: made.get_id(),
            generation: made.get_generation(),
        };
        let method = schema::CpuIsolationMethod::Grant as u16;
        call_for::<schema::lease_handle::Owned, _>(authority(), method, bytes, made)
    })?
}

/// The same with room for the answer at any address at all: for programs that try what they may not.
pub fn lease_with_answer_at(asked: &LeaseGrant<'_>, address: u64) -> Result<u32, CapError> {
    let method = schema::CpuIsolationMethod::Grant as u16;
    with_lease_params(asked, |bytes| client::call_with_answer_at(authority(), method, bytes, address))?
}

fn with_lease_params<T>(asked: &LeaseGrant<'_>, work: impl FnOnce(&[u8]) -> T) -> Result<T, CapError> {
    with_params_of::<schema::lease_grant::Owned, _, 64>(
        |mut params| {
            params.set_cpus(asked.cpus);
            params.set_housekeeping_exclusions(asked.housekeeping_exclusions);
            params.set_mode(asked.mode);
            params.set_ring(asked.ring);
            params.set_max_revocation_latency_ns(asked.max_revocation_latency_ns);
            params.set_lifetime_ns(asked.lifetime_ns);
            params.set_thread(asked.thread);
            params.set_account(asked.account);
            params.set_revoke_endpoint(asked.revoke_endpoint);
            params.set_replaces(asked.replaces);
            params.set_tickless(asked.tickless);
            params.set_allow_busy_spin(asked.allow_busy_spin);
            params.set_idle_spin_ns(asked.idle_spin_ns);
        },
        work,
    )
}

/// A lease that this process has a capability of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct Lease {
    pub cap: u32,
    pub id: u64,
    pub generation: u64,
}

/// The most of a label that is kept.
const LABEL: usize = 48;

/// A label of the kernel's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label {
    len: u8,
    bytes: [u8; LABEL],
}

impl Label {
    fn new(text: capnp::Result<capnp::text::Reader<'_>>) -> Self {
        let text = text.ok().and_then(|text| text.to_str().ok()).unwrap_or("?");
        let (len, mut bytes) = (text.len().min(LABEL), [0; LABEL]);
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self { len: len as u8, bytes }
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("?")
    }
}

impl core::fmt::Debug for Label {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

/// How many reasons there are for which a CPU leaves a tickless state.
pub const EXITS: usize = 16;
/// How many obligations there are.
pub const OBLIGATIONS: usize = 24;

/// What is known of a lease.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct LeaseInfo {
    pub id: u64,
    pub generation: u64,
    pub end: schema::LeaseEnd,
    pub mode: schema::LeaseMode,
    pub cpus: u64,
    pub housekeeping_exclusions: u64,
    pub max_revocation_latency_ns: u64,
    pub expires_at_ns: u64,
    pub context: u32,
    pub lessee: u32,
    pub tickless_since_ns: u64,
    pub obstacle: Label,
    pub ticks: u64,
    pub ticks_suppressed: u64,
    pub timer_interrupts: u64,
    pub activations: u64,
    pub exits: [u32; EXITS],
}

/// How the obligations of a lease stand.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct Preflight {
    pub id: u64,
    pub generation: u64,
    pub cpus: u64,
    pub housekeepers: u64,
    pub cpu: u32,
    pub runnable: u32,
    pub blocked: u32,
    pub labels: [Label; OBLIGATIONS],
}

impl Preflight {
    /// How `obligation` is met, or what stands in the way.
    #[must_use]
    pub fn label(&self, obligation: schema::Obligation) -> &str {
        self.labels[obligation as usize].text()
    }

    /// Whether `obligation` is met.
    #[must_use]
    pub fn is_met(&self, obligation: schema::Obligation) -> bool {
        self.blocked >> obligation as u32 & 1 == 0
    }
}

impl Lease {
    fn call(self, method: Method) -> Result<u32, CapError> {
        client::call(self.cap, method as u16, &[], &mut [])
    }

    /// What is known of it.
    pub fn info(self) -> Result<LeaseInfo, CapError> {
        call_for_long::<schema::lease_info::Owned, _>(self.cap, Method::Info as u16, &[], |info| {
            let invalid = |_| CapError::InvalidParameter;
            let mut exits = [0; EXITS];
            let counted = info.get_exits().map_err(|_| CapError::InvalidParameter)?;
            for (exit, count) in exits.iter_mut().zip(counted.iter()) {
                *exit = count;
            }
            Ok(LeaseInfo {
                id: info.get_id(),
                generation: info.get_generation(),
                end: info.get_end().map_err(invalid)?,
                mode: info.get_mode().map_err(invalid)?,
                cpus: info.get_cpus(),
                housekeeping_exclusions: info.get_housekeeping_exclusions(),
                max_revocation_latency_ns: info.get_max_revocation_latency_ns(),
                expires_at_ns: info.get_expires_at_ns(),
                context: info.get_context(),
                lessee: info.get_lessee(),
                tickless_since_ns: info.get_tickless_since_ns(),
                obstacle: Label::new(info.get_obstacle()),
                ticks: info.get_ticks(),
                ticks_suppressed: info.get_ticks_suppressed(),
                timer_interrupts: info.get_timer_interrupts(),
                activations: info.get_activations(),
                exits,
            })
        })?
    }

    /// How its obligations stand.
    pub fn preflight(self) -> Result<Preflight, CapError> {
        let method = Method::Preflight as u16;
        call_for_long::<schema::lease_preflight::Owned, _>(self.cap, method, &[], |found| {
            let mut labels = [Label { len: 0, bytes: [0; LABEL] }; OBLIGATIONS];
            let told = found.get_labels().map_err(|_| CapError::InvalidParameter)?;
            for (label, text) in labels.iter_mut().zip(told.iter()) {
                *label = Label::new(text);
            }
            Ok(Preflight {
                id: found.get_id(),
                generation: found.get_generation(),
                cpus: found.get_cpus(),
                housekeepers: found.get_housekeepers(),
                cpu: found.get_cpu(),
                runnable: found.get_runnable(),
                blocked: found.get_blocked(),
                labels,
            })
        })?
    }

    /// Takes it back.
    pub fn revoke(self) -> Result<(), CapError> {
        self.call(Method::Revoke).map(|_| ())
    }

    /// Gives it up, and forgets it.
    pub fn release(self) -> Result<(), CapError> {
        self.call(Method::Release).map(|_| ())
    }

    /// Asks its CPU to do without a tick.
    pub fn activate(self) -> Result<(), CapError> {
        self.call(Method::Activate).map(|_| ())
    }
}

/// What the revoke endpoint of a lease is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct LeaseNotice {
    pub id: u64,
    pub generation: u64,
    pub end: schema::LeaseEnd,
    pub at_ns: u64,
}

impl LeaseNotice {
    /// Reads it from the message of a notice, which follows the head.
    #[must_use]
    pub fn from_message(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(8 * at..)?.first_chunk()?));
        let end = schema::LeaseEnd::try_from(u16::try_from(word(2)?).ok()?).ok()?;
        Some(Self { id: word(0)?, generation: word(1)?, end, at_ns: word(3)? })
    }
}
