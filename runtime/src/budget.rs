//! Budgets: what a task may still use, and pools: what a nursery may still hand out.
//!
//! Conserved: a [`Pool`] and the [`Budget`]s carved from it always sum to what the pool was opened with, less what was
//! charged. A charge, a carve and a grant decide first and change nothing when they are refused. No component ever
//! goes below zero, wraps or saturates: what does not fit is handed back or refused.

use core::fmt;

/// The five things that a task uses up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// Abstract operations: loop iterations and calls.
    Ops,
    /// Bytes allocated.
    Memory,
    /// Children spawned.
    SpawnCount,
    /// Sends and receives.
    ChannelOps,
    /// File and network operations.
    Syscalls,
}

impl Component {
    /// All five, in the order of the fields of [`Budget`].
    pub const ALL: [Self; 5] = [Self::Ops, Self::Memory, Self::SpawnCount, Self::ChannelOps, Self::Syscalls];
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ops => "ops",
            Self::Memory => "memory",
            Self::SpawnCount => "spawn_count",
            Self::ChannelOps => "channel_ops",
            Self::Syscalls => "syscalls",
        })
    }
}

/// What one task may still use.
///
/// ```
/// use mainspring::{Budget, Cost};
/// let mut budget = Budget { ops: 2, memory: 100, ..Budget::ZERO };
/// budget.charge(Cost::alloc(60)).unwrap();
/// assert_eq!(budget, Budget { ops: 1, memory: 40, ..Budget::ZERO });
/// assert!(budget.charge(Cost::alloc(60)).is_err());
/// assert_eq!(budget.memory, 40, "a refused charge changes nothing");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Abstract operations.
    pub ops: u32,
    /// Bytes of memory.
    pub memory: usize,
    /// Children.
    pub spawn_count: u16,
    /// Channel sends and receives.
    pub channel_ops: u16,
    /// File and network operations.
    pub syscalls: u16,
}

/// What an operation costs. Only these rows exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost(Budget);

impl Cost {
    /// `n` loop iterations.
    pub const fn iterations(n: u32) -> Self {
        Self(Budget { ops: n, ..Budget::ZERO })
    }

    /// A function call.
    pub const CALL: Self = Self(Budget { ops: 1, ..Budget::ZERO });
    /// A spawn.
    pub const SPAWN: Self = Self(Budget { ops: 1, spawn_count: 1, ..Budget::ZERO });
    /// A channel send or receive.
    pub const CHANNEL_OP: Self = Self(Budget { ops: 1, channel_ops: 1, ..Budget::ZERO });
    /// A file or network operation.
    pub const SYSCALL: Self = Self(Budget { ops: 1, syscalls: 1, ..Budget::ZERO });

    /// An allocation of `size` bytes.
    pub const fn alloc(size: usize) -> Self {
        Self(Budget { ops: 1, memory: size, ..Budget::ZERO })
    }

    /// The cost as amounts per component.
    pub const fn amounts(self) -> Budget {
        self.0
    }
}

/// A charge that was made: whether it used up a component.
#[must_use = "a charge that used up a component makes the task stop at its next yield point"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// Something is left of everything that was charged.
    Left,
    /// This component went from something to nothing.
    UsedUp(Component),
}

/// A charge that could not be paid. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpayable {
    /// What there is too little of.
    pub component: Component,
    /// What was asked for.
    pub needed: u64,
    /// What there is.
    pub available: u64,
}

impl fmt::Display for Unpayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {} and {} is left", self.component, self.needed, self.available)
    }
}

impl std::error::Error for Unpayable {}

impl Budget {
    /// Nothing.
    pub const ZERO: Self = Self { ops: 0, memory: 0, spawn_count: 0, channel_ops: 0, syscalls: 0 };
    /// The most that one task can hold.
    pub const MAX: Self = Self {
        ops: u32::MAX,
        memory: usize::MAX,
        spawn_count: u16::MAX,
        channel_ops: u16::MAX,
        syscalls: u16::MAX,
    };

    /// The amount of one component.
    pub const fn get(&self, component: Component) -> u64 {
        match component {
            Component::Ops => self.ops as u64,
            Component::Memory => self.memory as u64,
            Component::SpawnCount => self.spawn_count as u64,
            Component::ChannelOps => self.channel_ops as u64,
            Component::Syscalls => self.syscalls as u64,
        }
    }

    /// Whether nothing is held of any component.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The first component of which `self` holds less than `other`.
    pub fn lacking(&self, other: &Self) -> Option<Unpayable> {
        Component::ALL.into_iter().find_map(|component| {
            let (needed, available) = (other.get(component), self.get(component));
            (needed > available).then_some(Unpayable { component, needed, available })
        })
    }

    /// Takes `cost`, all of it or nothing.
    pub fn charge(&mut self, cost: Cost) -> Result<Charged, Unpayable> {
        let cost = cost.0;
        if let Some(unpayable) = self.lacking(&cost) {
            return Err(unpayable);
        }
        self.ops -= cost.ops;
        self.memory -= cost.memory;
        self.spawn_count -= cost.spawn_count;
        self.channel_ops -= cost.channel_ops;
        self.syscalls -= cost.syscalls;
        let used_up = Component::ALL.into_iter().find(|&c| cost.get(c) > 0 && self.get(c) == 0);
        Ok(used_up.map_or(Charged::Left, Charged::UsedUp))
    }

    /// Takes up to `most` ops and says how many it took: the batched loop check pays for a whole interval at once.
    pub fn charge_ops_saturating(&mut self, most: u32) -> u32 {
        let taken = most.min(self.ops);
        self.ops -= taken;
        taken
    }

    /// Adds as much of `more` as fits, and hands back what does not.
    #[must_use = "what does not fit must go back to where it came from"]
    pub fn add(&mut self, more: Self) -> Self {
        fn fill<T: Copy + Ord + core::ops::Sub<Output = T> + core::ops::AddAssign>(
            have: &mut T,
            more: T,
            max: T,
        ) -> T {
            let fits = more.min(max - *have);
            *have += fits;
            more - fits
        }
        Self {
            ops: fill(&mut self.ops, more.ops, u32::MAX),
            memory: fill(&mut self.memory, more.memory, usize::MAX),
            spawn_count: fill(&mut self.spawn_count, more.spawn_count, u16::MAX),
            channel_ops: fill(&mut self.channel_ops, more.channel_ops, u16::MAX),
            syscalls: fill(&mut self.syscalls, more.syscalls, u16::MAX),
        }
    }

    /// Less `other`, of which there must be no less.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self {
            ops: self.ops - other.ops,
            memory: self.memory - other.memory,
            spawn_count: self.spawn_count - other.spawn_count,
            channel_ops: self.channel_ops - other.channel_ops,
            syscalls: self.syscalls - other.syscalls,
        }
    }

    /// The smaller of both, component by component.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            ops: self.ops.min(other.ops),
            memory: self.memory.min(other.memory),
            spawn_count: self.spawn_count.min(other.spawn_count),
            channel_ops: self.channel_ops.min(other.channel_ops),
            syscalls: self.syscalls.min(other.syscalls),
        }
    }
}

/// What a nursery may still hand out. Wider than a budget, since it pays for many tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Abstract operations.
    pub ops: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Children, and the children that children may have.
    pub spawn_count: u64,
    /// Channel sends and receives.
    pub channel_ops: u64,
    /// File and network operations.
    pub syscalls: u64,
}

impl Pool {
    /// Nothing.
    pub const ZERO: Self = Self { ops: 0, memory: 0, spawn_count: 0, channel_ops: 0, syscalls: 0 };
    /// More than any program uses, and small enough that sums of pools stay exact.
    pub const AMPLE: Self =
        Self { ops: 1 << 60, memory: 1 << 60, spawn_count: 1 << 60, channel_ops: 1 << 60, syscalls: 1 << 60 };

    /// The amount of one component.
    pub const fn get(&self, component: Component) -> u64 {
        match component {
            Component::Ops => self.ops,
            Component::Memory => self.memory,
            Component::SpawnCount => self.spawn_count,
            Component::ChannelOps => self.channel_ops,
            Component::Syscalls => self.syscalls,
        }
    }

    /// As many equal parts as `parts`, and what is left over stays here: the amount of one part, not yet taken.
    #[must_use]
    pub fn part(&self, parts: u64) -> Self {
        self.map(|have| have / parts.max(1))
    }

    fn map(&self, f: impl Fn(u64) -> u64) -> Self {
        Self {
            ops: f(self.ops),
            memory: f(self.memory),
            spawn_count: f(self.spawn_count),
            channel_ops: f(self.channel_ops),
            syscalls: f(self.syscalls),
        }
    }

    /// The default grant of a child: the smaller of the pool and `default`, with no children of its own.
    #[must_use]
    pub fn child_grant(&self, default: &Budget) -> Budget {
        Budget { spawn_count: 0, ..self.narrow().min(*default) }
    }

    /// The most that a single task could get from this pool.
    #[must_use]
    pub fn narrow(&self) -> Budget {
        fn to<T: TryFrom<u64>>(value: u64, max: T) -> T {
            T::try_from(value).unwrap_or(max)
        }
        Budget {
            ops: to(self.ops, u32::MAX),
            memory: to(self.memory, usize::MAX),
            spawn_count: to(self.spawn_count, u16::MAX),
            channel_ops: to(self.channel_ops, u16::MAX),
            syscalls: to(self.syscalls, u16::MAX),
        }
    }

    /// Whether it has at least `amount`.
    #[inline]
    pub(crate) fn covers(&self, amount: &Self) -> bool {
        self.ops >= amount.ops
            && self.memory >= amount.memory
            && self.spawn_count >= amount.spawn_count
            && self.channel_ops >= amount.channel_ops
            && self.syscalls >= amount.syscalls
    }

    /// Takes `amount` out, all of it or nothing.
    #[inline]
    pub fn take(&mut self, amount: &Self) -> Result<(), Unpayable> {
        if !self.covers(amount) {
            return Err(self.lacking(amount));
        }
        self.ops -= amount.ops;
        self.memory -= amount.memory;
        self.spawn_count -= amount.spawn_count;
        self.channel_ops -= amount.channel_ops;
        self.syscalls -= amount.syscalls;
        Ok(())
    }

    /// The first component of which it has less than `amount`, which it does not cover.
    #[cold]
    fn lacking(&self, amount: &Self) -> Unpayable {
        let lacks = |component: &Component| amount.get(*component) > self.get(*component);
        let component = Component::ALL.into_iter().find(lacks).expect("it does not cover the amount");
        Unpayable { component, needed: amount.get(component), available: self.get(component) }
    }

    /// Both together, or the first component whose sum no pool can hold.
    #[inline]
    pub fn plus(&self, other: &Self) -> Result<Self, Unpayable> {
        let add = |component| {
            let (a, b) = (self.get(component), other.get(component));
            a.checked_add(b).ok_or(Unpayable { component, needed: u64::MAX, available: u64::MAX - a })
        };
        Ok(Self {
            ops: add(Component::Ops)?,
            memory: add(Component::Memory)?,
            spawn_count: add(Component::SpawnCount)?,
            channel_ops: add(Component::ChannelOps)?,
            syscalls: add(Component::Syscalls)?,
        })
    }

    /// Puts back what was taken out.
    ///
    /// # Panics
    ///
    /// If the sum does not fit. Parts of one whole never come to more than it, so such amounts were made, not moved.
    pub fn put(&mut self, amount: &Self) {
        *self = self.plus(amount).expect("parts of one whole fit into it");
    }

    /// The smaller of both, component by component.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        Self {
            ops: self.ops.min(other.ops),
            memory: self.memory.min(other.memory),
            spawn_count: self.spawn_count.min(other.spawn_count),
            channel_ops: self.channel_ops.min(other.channel_ops),
            syscalls: self.syscalls.min(other.syscalls),
        }
    }

    /// So much of one component and nothing of the others.
    #[must_use]
    pub fn only(component: Component, amount: u64) -> Self {
        let mut pool = Self::ZERO;
        *match component {
            Component::Ops => &mut pool.ops,
            Component::Memory => &mut pool.memory,
            Component::SpawnCount => &mut pool.spawn_count,
            Component::ChannelOps => &mut pool.channel_ops,
            Component::Syscalls => &mut pool.syscalls,
        } = amount;
        pool
    }

    /// Takes as much as there is of `amount`, and says how much that was.
    #[must_use = "what was taken must go somewhere"]
    pub(crate) fn take_up_to(&mut self, amount: &Self) -> Self {
        let taken = self.min(amount);
        self.take(&taken).expect("no more than there is");
        taken
    }
}

impl From<Budget> for Pool {
    fn from(budget: Budget) -> Self {
        Self {
            ops: budget.ops.into(),
            memory: budget.memory as u64,
            spawn_count: budget.spawn_count.into(),
            channel_ops: budget.channel_ops.into(),
            syscalls: budget.syscalls.into(),
        }
    }
}
