//! What a policy service asks for.
//!
//! A policy service may treat every thread as badly as the manifest's bounds allow, and that is no failure of the kernel. So a
//! fuzzer names threads of its own process, and slots and processes that do not belong together.

use super::{EACH, PROCESS_SLOTS, Params, THREAD_SLOTS, edge, schema, small_or_edge};
use crate::random::Random;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use schema::{LatencyClass, PolicyChangeKind, PolicyServiceMethod};

/// The last epoch that a status said was taken.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// This process's slot, if it has been told.
static OWN_PROCESS: AtomicU32 = AtomicU32::new(u32::MAX);

/// Remembers an epoch.
pub fn learn_epoch(epoch: u64) {
    EPOCH.store(epoch, Ordering::Relaxed);
}

/// Remembers this process's slot.
pub fn learn_own_process(slot: u32) {
    OWN_PROCESS.store(slot, Ordering::Relaxed);
}

/// The parameters of a method of the service.
pub fn parameters(random: &mut Random, method: PolicyServiceMethod) -> Params {
    match method {
        PolicyServiceMethod::Start
        | PolicyServiceMethod::Heartbeat
        | PolicyServiceMethod::Status
        | PolicyServiceMethod::Stop
        | PolicyServiceMethod::Recover => Params::none(),
        PolicyServiceMethod::Submit => update(random),
    }
}

/// An update: most often the next one, of a change or two.
fn update(random: &mut Random) -> Params {
    let taken = EPOCH.load(Ordering::Relaxed);
    let epoch = match random.below(12) {
        0 => taken,
        1 => edge(random),
        _ => taken.wrapping_add(1 + random.below(20)),
    };
    let count = match random.below(10) {
        0 => random.below(18),
        _ => 1 + random.below(2),
    };
    Params::of::<schema::policy_update::Owned>(|mut params| {
        params.set_epoch(epoch);
        let mut changes = params.init_changes(count as u32);
        for place in 0..count as u32 {
            change(random, changes.reborrow().get(place));
        }
    })
}

fn change(random: &mut Random, mut one: schema::policy_change::Builder<'_>) {
    let kind = match random.below(12) {
        0..5 => PolicyChangeKind::Treat,
        5..8 => PolicyChangeKind::Lease,
        8 | 9 => PolicyChangeKind::EndLease,
        10 => PolicyChangeKind::Profile,
        // Always refused, and so rare: a service that is refused too often is cut off.
        _ if random.once_in(4) => PolicyChangeKind::Floor,
        _ => PolicyChangeKind::Profile,
    };
    one.set_kind(kind);
    one.set_latency_class(random.one_of(&[
        LatencyClass::Interactive,
        LatencyClass::Normal,
        LatencyClass::Batch,
    ]));
    one.set_weight(if random.once_in(16) { edge(random) } else { 1 + random.below(4096) });
    one.set_cpu(small_or_edge(random, 4) as u32);
    one.set_outlives(random.once_in(2));
    one.set_lifetime_ns(1 + random.below(30_000_000));
    let own = OWN_PROCESS.load(Ordering::Relaxed);
    let (slot, process) = match kind {
        // The key of a template.
        PolicyChangeKind::Profile => (small_or_edge(random, 16) as u32, own),
        PolicyChangeKind::Lease => {
            let made = PROCESS_SLOTS[random.below(EACH as u64) as usize].load(Ordering::Relaxed);
            (0, if random.once_in(3) { made } else { own })
        }
        _ if random.once_in(8) => (edge(random) as u32, own),
        _ if random.once_in(8) => (own_thread(random), edge(random) as u32),
        _ => (own_thread(random), own),
    };
    one.set_slot(slot);
    one.set_process(process);
}

/// The slot of a thread of this process, which may have ended.
fn own_thread(random: &mut Random) -> u32 {
    THREAD_SLOTS[random.below(EACH as u64) as usize].load(Ordering::Relaxed)
}
