//! What a workload says of its policy service, for every machine: its bounds, and the story of what became of it.

use crate::admission;
use mainspring_abi::{CpuSet, Nanos, ThreadRef};
use mainspring_authority::boundary::{Boundary, Decision, Manifest, Refusal, Treatment};
pub use mainspring_authority::boundary::{Epoch, Lost};
use mainspring_workload::{Numbering, ThreadTarget, Workload};

/// How much longer than until it is slow a service is waited for.
const DEAD_AFTER: u64 = 10;

/// How many refusals are listed one by one.
const SHOWN: usize = 8;

/// The service and the thread that recovers the machine, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parties {
    /// The thread that is the service.
    pub service: usize,
    /// The thread that recovers the machine without it.
    pub recovery: Option<usize>,
}

/// The bounds of the service of `workload`, if it has one. `numbers` are those of its threads.
#[must_use]
pub fn manifest(workload: &Workload, numbers: &Numbering) -> Option<(Manifest, Parties)> {
    let spec = workload.policy.as_ref()?;
    let instance_of = |target: &ThreadTarget| numbers.threads(*target).start;
    let recovery = spec.recovery.as_ref().map(instance_of);
    // Without a recovery thread this names no thread.
    let untouchable = ThreadRef::new(recovery.map_or(u32::MAX, |index| index as u32), 0);
    let treatment = spec.recovery.as_ref().map(|target| {
        let table = &workload.threads[target.thread];
        Treatment { weight: table.weight, class: table.latency }
    });
    let manifest = Manifest {
        floor: admission::floor(workload),
        recovery_treatment: treatment.unwrap_or_default(),
        slow_after: spec.timeout,
        dead_after: Nanos::new(spec.timeout.get().saturating_mul(DEAD_AFTER)),
        ..Manifest::new(CpuSet::first(workload.machine.cpus), untouchable)
    };
    Some((manifest, Parties { service: instance_of(&spec.service), recovery }))
}

/// What has become of a service so far.
#[derive(Debug, Default)]
pub struct Story {
    /// Decisions below this number have been taken in.
    seen: u64,
    taken: u64,
    /// How often it was slow, and when it first was.
    slow: (usize, Nanos),
    lost: Option<(Nanos, Lost)>,
    refused: Vec<(Nanos, String)>,
}

impl Story {
    /// The story of a service as another machine has counted it: updates taken and refused, how often it was slow and when it first was,
    /// and when and why it was lost.
    #[must_use]
    pub fn counted(
        taken: u64,
        refused: Vec<(Nanos, String)>,
        slow: (usize, Nanos),
        lost: Option<(Nanos, Lost)>,
    ) -> Self {
        Self { seen: 0, taken, slow, lost, refused }
    }

    /// Takes in what the boundary has decided since the last look: when, what, and why.
    pub fn look(&mut self, boundary: &Boundary) -> Vec<(Nanos, &'static str, String)> {
        let seen = std::mem::replace(&mut self.seen, boundary.log().written());
        let new = boundary.log().iter().filter(|record| record.sequence >= seen);
        new.filter_map(|record| {
            let (kind, reason) = match &record.decision {
                Decision::Started => ("policy-start", String::new()),
                Decision::Took(epoch, changes) => {
                    self.taken += u64::from(!changes.is_empty());
                    ("policy-take", format!("epoch {}, {} changes", epoch.0, changes.len()))
                }
                Decision::Refused(epoch, why) => {
                    self.refused.push((record.at, why.to_string()));
                    ("policy-refuse", format!("epoch {}: {why}", epoch.0))
                }
                Decision::Slow => {
                    if self.slow.0 == 0 {
                        self.slow.1 = record.at;
                    }
                    self.slow.0 += 1;
                    ("policy-slow", "silent".to_owned())
                }
                Decision::HeardAgain => ("policy-heard", String::new()),
                Decision::Lost(why) => {
                    self.lost = Some((record.at, *why));
                    ("policy-lost", in_words(*why).to_owned())
                }
                Decision::LeaseExpired(_) | Decision::LeaseRevoked(_) => return None,
            };
            Some((record.at, kind, reason))
        })
        .collect()
    }

    /// Something was asked for in the name of a service that has not started.
    pub fn refused_before_start(&mut self, at: Nanos) {
        self.refused.push((at, Refusal::NotInCharge.to_string()));
    }

    /// What a reader of a report should know.
    #[must_use]
    pub fn notices(&self, name: &str, recovery: Option<&str>, Epoch(epoch): Epoch) -> Vec<String> {
        let mut notices = Vec::new();
        let (taken, refused) = (self.taken, self.refused.len());
        if taken + refused as u64 > 0 {
            notices.push(format!(
                "policy service {name}: {taken} updates taken, the last epoch is {epoch}; {refused} refused"
            ));
        }
        let shown = self.refused.iter().take(SHOWN);
        notices.extend(shown.map(|(at, why)| format!("at {at} an update of {name} was refused: {why}")));
        let (times, first) = self.slow;
        if times > 0 {
            notices.push(format!(
                "policy service {name} was slow {times} times, first at {first}; what it had set stood"
            ));
        }
        if let Some((at, why)) = self.lost {
            let recovery = recovery.unwrap_or("nobody");
            notices.push(format!(
                "policy service {name} was lost at {at}: {}; what it had set stands, and {recovery} is there to recover",
                in_words(why)
            ));
        }
        notices
    }
}

fn in_words(why: Lost) -> &'static str {
    match why {
        Lost::Silent => "it was silent for too long",
        Lost::Exited => "it ended",
        Lost::CutOff => "too many of its updates in a row were refused",
    }
}
