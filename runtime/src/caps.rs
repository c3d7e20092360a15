//! Capabilities: what a task may do, as values that it cannot make.
//!
//! A capability has private fields and no public constructor, so the only ones in a program come from the host's
//! `Config` ([`Caps::root`]) or from attenuating one that is held. Attenuation takes the smaller of what is held and
//! what is asked for, component by component, so that no chain of attenuations ever amplifies.
//!
//! Conserved: the limits of the `CapBudget`s below a root. Whatever a spawner grants of its limit to a child leaves its own
//! limit, and comes back when the child ends, less what the child has drawn. The contexts that tasks below a holder of a
//! `CapContext` have made count towards that holder's limits too, so all of them together never exceed the root's.

use crate::budget::{Budget, Unpayable};
use crate::protocol::fair_tasks::TimeLimits;

/// May spawn: at most `task_limit` live children in one nursery, each with at most `child_budget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapSpawn {
    task_limit: u32,
    child_budget: Budget,
}

impl CapSpawn {
    pub(crate) const fn root(task_limit: u32, child_budget: Budget) -> Self {
        Self { task_limit, child_budget }
    }

    /// How many children of one nursery may be alive at a time.
    pub const fn task_limit(&self) -> u32 {
        self.task_limit
    }

    /// The most that a child gets, and what it gets when the spawner does not say.
    pub const fn child_budget(&self) -> Budget {
        self.child_budget
    }

    /// The same or less.
    #[must_use]
    pub fn attenuate(&self, task_limit: u32, child_budget: Budget) -> Self {
        Self {
            task_limit: self.task_limit.min(task_limit),
            child_budget: self.child_budget.min(child_budget),
        }
    }
}

/// May draw on the pool of the nursery that its holder is a child of, up to these amounts in all: for itself
/// ([`Cx::recharge`](crate::Cx::recharge)), or in the cluster profile for its children
/// ([`Nursery::supervise`](crate::Nursery::supervise)).
///
/// It makes nothing: what is drawn leaves that pool. A child does not inherit it. What
/// [`SpawnBuilder::caps`](crate::SpawnBuilder::caps) grants of it to a child is taken from the spawner's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapBudget {
    limit: Budget,
}

impl CapBudget {
    pub(crate) const fn root(limit: Budget) -> Self {
        Self { limit }
    }

    /// How much can still be drawn.
    pub const fn limit(&self) -> Budget {
        self.limit
    }

    /// The same or less.
    #[must_use]
    pub fn attenuate(&self, limit: Budget) -> Self {
        Self { limit: self.limit.min(limit) }
    }
}

/// May make channels: how many, and how large their buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapChannel {
    channels: u32,
    buffer: u32,
}

impl CapChannel {
    pub(crate) const fn root(channels: u32, buffer: u32) -> Self {
        Self { channels, buffer }
    }

    /// How many channels a task may make.
    pub const fn channels(&self) -> u32 {
        self.channels
    }

    /// The largest buffer of one channel, in messages.
    pub const fn buffer(&self) -> u32 {
        self.buffer
    }

    /// The same or less.
    #[must_use]
    pub fn attenuate(&self, channels: u32, buffer: u32) -> Self {
        Self { channels: self.channels.min(channels), buffer: self.buffer.min(buffer) }
    }
}

/// May run blocking calls on the pool of threads, and spawn futures. To await one on its own stack a task needs no capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapExecutor(());

impl CapExecutor {
    pub(crate) const fn root() -> Self {
        Self(())
    }
}

/// May make scheduling contexts ([`Cx::create_context`](crate::Cx::create_context)): so many at a time, with so much CPU time in
/// all. What the holder's children make counts too.
///
/// It makes no time: a context is admitted only if every deadline on its worker still holds. A child does not inherit it;
/// [`SpawnBuilder::caps`](crate::SpawnBuilder::caps) grants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapContext {
    contexts: u32,
    share_ppm: u32,
}

impl CapContext {
    /// How many contexts may live at a time.
    pub const fn contexts(&self) -> u32 {
        self.contexts
    }

    /// The CPU time of all of them together, in millionths of one worker.
    pub const fn share_ppm(&self) -> u32 {
        self.share_ppm
    }

    /// The same or less.
    #[must_use]
    pub fn attenuate(&self, contexts: u32, share_ppm: u32) -> Self {
        Self { contexts: self.contexts.min(contexts), share_ppm: self.share_ppm.min(share_ppm) }
    }

    pub(crate) fn limits(&self) -> TimeLimits {
        TimeLimits { contexts: self.contexts, share_ppm: self.share_ppm }
    }
}

/// The capabilities of a task.
///
/// ```
/// use mainspring::{Budget, Caps};
/// let all = Caps::root(100, Budget::MAX, Budget::MAX, 10, 64);
/// let plugin = all.without_spawn().attenuate_budget(Budget { ops: 500, ..Budget::ZERO });
/// assert!(plugin.spawn().is_none());
/// assert_eq!(plugin.budget().unwrap().limit().ops, 500);
/// assert!(plugin.is_within(&all) && !all.is_within(&plugin));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Caps {
    spawn: Option<CapSpawn>,
    budget: Option<CapBudget>,
    channel: Option<CapChannel>,
    executor: Option<CapExecutor>,
    context: Option<CapContext>,
}

impl Caps {
    /// No authority at all.
    pub const fn none() -> Self {
        Self { spawn: None, budget: None, channel: None, executor: None, context: None }
    }

    /// Authority as the host of a runtime gives it: `Config` takes it, and only a host builds a `Config`.
    pub const fn root(
        task_limit: u32,
        child_budget: Budget,
        recharge_limit: Budget,
        channels: u32,
        buffer: u32,
    ) -> Self {
        Self {
            spawn: Some(CapSpawn::root(task_limit, child_budget)),
            budget: Some(CapBudget::root(recharge_limit)),
            channel: Some(CapChannel::root(channels, buffer)),
            executor: Some(CapExecutor::root()),
            context: None,
        }
    }

    /// The same, and leave to make so many contexts at a time, with so many millionths of a worker in all: as a host gives it to
    /// `Config`, or as a spawner asks for it for a child, which gets no more than the spawner has.
    #[must_use]
    pub const fn with_contexts(self, contexts: u32, share_ppm: u32) -> Self {
        Self { context: Some(CapContext { contexts, share_ppm }), ..self }
    }

    pub(crate) const fn from_parts(
        spawn: Option<CapSpawn>,
        budget: Option<CapBudget>,
        channel: Option<CapChannel>,
        executor: Option<CapExecutor>,
    ) -> Self {
        Self { spawn, budget, channel, executor, context: None }
    }

    /// The capability to spawn.
    pub const fn spawn(&self) -> Option<&CapSpawn> {
        self.spawn.as_ref()
    }

    /// The capability to draw on the nursery's pool.
    pub const fn budget(&self) -> Option<&CapBudget> {
        self.budget.as_ref()
    }

    /// The capability to make channels.
    pub const fn channel(&self) -> Option<&CapChannel> {
        self.channel.as_ref()
    }

    /// The capability to use the pool of threads.
    pub const fn executor(&self) -> Option<&CapExecutor> {
        self.executor.as_ref()
    }

    /// The capability to make scheduling contexts.
    pub const fn context(&self) -> Option<&CapContext> {
        self.context.as_ref()
    }

    /// Without the capability to make scheduling contexts.
    #[must_use]
    pub const fn without_context(self) -> Self {
        Self { context: None, ..self }
    }

    /// Without the capability to spawn.
    #[must_use]
    pub const fn without_spawn(self) -> Self {
        Self { spawn: None, ..self }
    }

    /// Without the capability to draw on the nursery's pool.
    #[must_use]
    pub const fn without_budget(self) -> Self {
        Self { budget: None, ..self }
    }

    /// Without the capability to make channels.
    #[must_use]
    pub const fn without_channel(self) -> Self {
        Self { channel: None, ..self }
    }

    /// Without the capability to use the pool of threads.
    #[must_use]
    pub const fn without_executor(self) -> Self {
        Self { executor: None, ..self }
    }

    /// Spawning held to these limits, if it is held at all.
    #[must_use]
    pub fn attenuate_spawn(self, task_limit: u32, child_budget: Budget) -> Self {
        Self { spawn: self.spawn.map(|cap| cap.attenuate(task_limit, child_budget)), ..self }
    }

    /// Draws on the nursery's pool held to this limit, if they are allowed at all.
    #[must_use]
    pub fn attenuate_budget(self, limit: Budget) -> Self {
        Self { budget: self.budget.map(|cap| cap.attenuate(limit)), ..self }
    }

    /// Channels held to these limits, if they are held at all.
    #[must_use]
    pub fn attenuate_channel(self, channels: u32, buffer: u32) -> Self {
        Self { channel: self.channel.map(|cap| cap.attenuate(channels, buffer)), ..self }
    }

    /// The authority that both have: what a child gets of what its spawner asks for.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        fn both<T: Copy>(a: Option<T>, b: Option<T>, min: impl Fn(T, T) -> T) -> Option<T> {
            a.zip(b).map(|(a, b)| min(a, b))
        }
        Self {
            spawn: both(self.spawn, other.spawn, |a, b| a.attenuate(b.task_limit, b.child_budget)),
            budget: both(self.budget, other.budget, |a, b| a.attenuate(b.limit)),
            channel: both(self.channel, other.channel, |a, b| a.attenuate(b.channels, b.buffer)),
            executor: both(self.executor, other.executor, |a, _| a),
            context: both(self.context, other.context, |a, b| a.attenuate(b.contexts, b.share_ppm)),
        }
    }

    /// Whether this is no more than `other` in anything.
    pub fn is_within(&self, other: &Self) -> bool {
        self.intersect(other) == *self
    }
}

/// The capabilities of one child, where they differ from what children of its nursery usually have. Made only by taking from
/// what the spawner holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held(Caps);

impl Held {
    /// What a child of a nursery has if its spawner asks for nothing: no right to draw on the pool, nor to make contexts.
    pub(crate) fn usual(nursery: &Caps) -> Caps {
        nursery.without_budget().without_context()
    }

    /// What a child gets of what its spawner asks for.
    pub(crate) fn child(nursery: &Caps, asked: &Caps) -> Self {
        Self(nursery.intersect(asked))
    }

    /// What it holds now.
    pub(crate) fn caps(&self) -> Caps {
        self.0
    }

    /// Takes from the limit of the `CapBudget`, all of `amount` or nothing.
    pub(crate) fn draw(&mut self, amount: &Budget) -> Result<(), Unpayable> {
        let Some(cap) = &mut self.0.budget else {
            return Budget::ZERO.lacking(amount).map_or(Ok(()), Err);
        };
        match cap.limit.lacking(amount) {
            Some(over) => Err(over),
            None => {
                cap.limit = cap.limit.minus(amount);
                Ok(())
            }
        }
    }

    /// Puts back what was taken from the limit and not drawn.
    pub(crate) fn restore(&mut self, amount: Budget) {
        if let Some(cap) = &mut self.0.budget {
            let over = cap.limit.add(amount);
            debug_assert!(over.is_zero(), "no more comes back than was taken");
        }
    }

    /// The spawner pays for the child's limit out of its own. The child gets no more than there is.
    pub(crate) fn paid_by(&mut self, spawner: &mut Option<Held>) {
        let Some(wanted) = self.0.budget.map(|cap| cap.limit) else { return };
        let most = spawner.and_then(|held| held.0.budget).map(|cap| cap.limit);
        let Some(most) = most else {
            self.0.budget = None;
            return;
        };
        let paid = wanted.min(most);
        let paid_for = spawner.as_mut().is_some_and(|held| held.draw(&paid).is_ok());
        debug_assert!(paid_for, "no more than there is");
        self.0 = self.0.attenuate_budget(paid);
    }
}
