//! Profiles: which authority and which budgets a program starts with.

use crate::budget::Budget;
use crate::caps::{CapBudget, CapChannel, CapExecutor, CapSpawn, Caps};

/// What kind of program this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// One thread and no scheduler: a runtime of this profile cannot be built.
    Core,
    /// Implicit capabilities and default budgets.
    #[default]
    Service,
    /// Larger defaults; supervisors may recharge the tasks that they supervise.
    Cluster,
    /// Nothing that was not granted.
    Sovereign,
}

impl Profile {
    /// The budget that a child gets when its spawner does not say.
    pub const fn child_budget(self) -> Budget {
        match self {
            Self::Core | Self::Sovereign => Budget::ZERO,
            Self::Service => {
                Budget { ops: 100_000, memory: 10 << 20, spawn_count: 100, channel_ops: 1_000, syscalls: 100 }
            }
            Self::Cluster => Budget {
                ops: 1_000_000,
                memory: 100 << 20,
                spawn_count: 1_000,
                channel_ops: 10_000,
                syscalls: 1_000,
            },
        }
    }

    /// How many live children one nursery may have when its opener does not say.
    pub const fn task_limit(self) -> u32 {
        match self {
            Self::Core | Self::Sovereign => 0,
            Self::Service => 100,
            Self::Cluster => 10_000,
        }
    }

    /// How many channels a task may make.
    pub const fn channel_limit(self) -> u32 {
        match self {
            Self::Core | Self::Sovereign => 0,
            Self::Service => 1_000,
            Self::Cluster => 10_000,
        }
    }

    /// After how many loop iterations `#[budgeted]` code checks. A sovereign program may set its own in `Config`.
    pub const fn yield_interval(self) -> u32 {
        match self {
            Self::Cluster => 512,
            Self::Core | Self::Service | Self::Sovereign => 1024,
        }
    }

    /// The capabilities that tasks of this profile hold without being granted any.
    pub fn implicit_caps(self) -> Caps {
        match self {
            Self::Core | Self::Sovereign => Caps::none(),
            Self::Service | Self::Cluster => Caps::from_parts(
                Some(CapSpawn::root(self.task_limit(), self.child_budget())),
                (self == Self::Cluster).then(|| CapBudget::root(self.child_budget())),
                Some(CapChannel::root(self.channel_limit(), u32::MAX)),
                Some(CapExecutor::root()),
            ),
        }
    }
}
