//! What was decided, where an operator can read it.

use super::liveness::{Instance, Lost};
use super::update::{Change, Epoch, Refusal};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, Nanos};

/// A decision at the boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// An instance of the service began.
    Started,
    /// An update was taken.
    Took(Epoch, Vec<Change>),
    /// An update was refused.
    Refused(Epoch, Refusal),
    /// The service has been silent for too long; everything stands.
    Slow,
    /// It was heard again.
    HeardAgain,
    /// It is gone; the recovery profile applies.
    Lost(Lost),
    /// A lease ended by itself.
    LeaseExpired(CpuId),
    /// A lease was revoked because the service, or its holder, is gone.
    LeaseRevoked(CpuId),
}

/// A decision with its circumstances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number; none is left out.
    pub sequence: u64,
    /// When.
    pub at: Nanos,
    /// The instance that it concerns.
    pub instance: Option<Instance>,
    /// What.
    pub decision: Decision,
}

/// The last decisions. When it is full the oldest goes, and is counted.
#[derive(Debug)]
pub struct DecisionLog {
    records: VecDeque<Record>,
    capacity: usize,
    next: u64,
}

impl DecisionLog {
    pub(super) fn new(capacity: usize) -> Self {
        Self { records: VecDeque::new(), capacity: capacity.max(1), next: 0 }
    }

    pub(super) fn write(&mut self, at: Nanos, instance: Option<Instance>, decision: Decision) {
        if self.records.len() == self.capacity {
            self.records.pop_front();
        }
        self.records.push_back(Record { sequence: self.next, at, instance, decision });
        self.next += 1;
    }

    /// The records that are left, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.records.iter()
    }

    /// How many decisions there were.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.next
    }

    /// How many are no longer here.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.next - self.records.len() as u64
    }
}
