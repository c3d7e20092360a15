//! Which contexts there are, and where each of them is.
//!
//! Conserved:
//! * a number is given once; a generation only grows; a name of an old generation changes nothing;
//! * a context is on the shelf here, or out with the thread that it is bound to, or revoked: it is in one place;
//! * what comes back under an old generation is dropped, never shelved.
//!
//! The registry belongs to the machine as a whole. It holds no CPU's state: whoever binds a context takes the value from
//! here and gives it to the CPU where the thread sits, and the other way round.

use super::ledger::{Context, Usage};
use super::notice::Drained;
use super::spec::{ContextSpec, SpecError};
use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::{ContextRef, Nanos, ThreadRef};

/// Where a context is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nobody has it.
    Shelf,
    /// It is bound to this thread, which has it or has lent it.
    Bound(ThreadRef),
    /// It was taken away for good.
    Revoked,
}

/// A name that could not be used; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContextError {
    /// No such context was ever created.
    Unknown(ContextRef),
    /// The name is of an old generation.
    StaleGeneration {
        /// The present one.
        current: u32,
    },
    /// The context is revoked.
    Revoked,
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(who) => write!(f, "there is no context {who:?}; create one"),
            Self::StaleGeneration { current } => {
                write!(
                    f,
                    "the name is of an old generation (it is {current} now); ask its owner for a new one"
                )
            }
            Self::Revoked => f.write_str("the context is revoked; ask for a new one"),
        }
    }
}

impl core::error::Error for ContextError {}

/// Why a context was not bound; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindError {
    /// The name could not be used.
    Context(ContextError),
    /// Another thread has it.
    Busy(ThreadRef),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context(error) => error.fmt(f),
            Self::Busy(owner) => write!(f, "the context is bound to {owner:?}; release it there first"),
        }
    }
}

impl core::error::Error for BindError {}

/// Why no context was created; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateError {
    /// The grant makes no sense.
    Spec(SpecError),
    /// As many contexts as were reserved have been created.
    Full {
        /// How many.
        capacity: usize,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec(error) => error.fmt(f),
            Self::Full { capacity } => {
                write!(f, "{capacity} contexts were reserved and created; reserve more")
            }
        }
    }
}

impl core::error::Error for CreateError {}

/// No memory for the contexts asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct RegistryFull;

impl From<TryReserveError> for RegistryFull {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

/// A context was revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Revoked {
    /// The thread that it was bound to: its CPU must give the value up.
    pub bound_to: Option<ThreadRef>,
    /// The generation that names it from now on, as revoked.
    pub generation: u32,
}

/// What became of a context that came back.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum PutBack {
    /// It is on the shelf.
    Shelved,
    /// It was revoked while it was away, and is gone.
    Dropped(Usage),
}

/// What is known of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info<'a> {
    /// Its present name.
    pub who: ContextRef,
    /// What it grants.
    pub spec: &'a ContextSpec,
    /// Where it is.
    pub place: Place,
    /// The value, if it is on the shelf.
    pub shelved: Option<&'a Context>,
}

#[derive(Debug)]
struct Record {
    generation: u32,
    spec: ContextSpec,
    place: Place,
    value: Option<Box<Context>>,
    revoke_on_return: bool,
}

/// All contexts of a machine.
#[derive(Debug, Default)]
pub struct Registry {
    records: Vec<Record>,
}

impl Registry {
    /// No contexts, and room for none.
    #[must_use]
    pub const fn new() -> Self {
        Self { records: Vec::new() }
    }

    /// Sets room for `contexts` contexts aside, over the registry's life.
    pub fn reserve(&mut self, contexts: usize) -> Result<(), RegistryFull> {
        self.records.try_reserve_exact(contexts.saturating_sub(self.records.len()))?;
        Ok(())
    }

    /// Creates a context, which lies on the shelf, its budget usable from `now` on. This is where its memory comes from;
    /// nothing that happens to it later needs more.
    pub fn create(&mut self, now: Nanos, spec: ContextSpec) -> Result<ContextRef, CreateError> {
        spec.check().map_err(CreateError::Spec)?;
        let (id, capacity) = (self.records.len(), self.records.capacity());
        // Number zero names no context in a ring entry.
        let number =
            u32::try_from(id + 1).ok().filter(|_| id < capacity).ok_or(CreateError::Full { capacity })?;
        let who = ContextRef::new(number, 0);
        let value = Some(Box::new(Context::new(who, spec.clone(), now)));
        self.records.push(Record {
            generation: 0,
            spec,
            place: Place::Shelf,
            value,
            revoke_on_return: false,
        });
        Ok(who)
    }

    /// Takes the context from the shelf for `thread`.
    pub fn bind(&mut self, who: ContextRef, thread: ThreadRef) -> Result<Box<Context>, BindError> {
        let record = self.live(who).map_err(BindError::Context)?;
        match (record.place, record.value.take()) {
            (Place::Shelf, Some(value)) => {
                record.place = Place::Bound(thread);
                Ok(value)
            }
            (Place::Bound(owner), _) => Err(BindError::Busy(owner)),
            (_, _) => Err(BindError::Context(ContextError::Revoked)),
        }
    }

    /// A context comes back from the thread that it was bound to.
    pub fn put_back(&mut self, mut value: Box<Context>) -> PutBack {
        let usage = value.usage;
        let Ok(record) = self.live(value.who) else { return PutBack::Dropped(usage) };
        if record.revoke_on_return {
            record.place = Place::Revoked;
            record.generation = record.generation.saturating_add(1);
            return PutBack::Dropped(usage);
        }
        value.active = false;
        record.place = Place::Shelf;
        record.value = Some(value);
        PutBack::Shelved
    }

    /// The context that is out with one thread belongs to `to` from now on; who had it.
    pub fn rebind(&mut self, who: ContextRef, to: ThreadRef) -> Result<ThreadRef, BindError> {
        let record = self.live(who).map_err(BindError::Context)?;
        match record.place {
            Place::Bound(from) => {
                record.place = Place::Bound(to);
                Ok(from)
            }
            Place::Shelf | Place::Revoked => Err(BindError::Context(ContextError::Unknown(who))),
        }
    }

    /// Takes the context away for good. Names of it are stale from now on; a value that is out is dropped when it comes
    /// back.
    pub fn revoke(&mut self, who: ContextRef) -> Result<Revoked, ContextError> {
        let record = self.live(who)?;
        let bound_to = match record.place {
            Place::Bound(thread) => Some(thread),
            Place::Shelf | Place::Revoked => None,
        };
        record.place = Place::Revoked;
        record.generation = record.generation.saturating_add(1);
        record.value = None;
        Ok(Revoked { bound_to, generation: record.generation })
    }

    /// The session that the context belongs to has ended while it is donated: it is revoked when it comes back.
    pub fn revoke_on_return(&mut self, who: ContextRef) -> Result<(), ContextError> {
        self.live(who)?.revoke_on_return = true;
        Ok(())
    }

    /// Whether the context is to be revoked when it comes back to its owner.
    #[must_use]
    pub fn ends_on_return(&self, who: ContextRef) -> bool {
        self.record(who).is_ok_and(|record| record.revoke_on_return)
    }

    /// Grants another budget, period and deadline to a context on the shelf, or takes note that one which is out has
    /// been [adjusted](Context::adjust).
    pub fn adjust(
        &mut self,
        now: Nanos,
        who: ContextRef,
        budget: Nanos,
        period: Nanos,
        deadline: Nanos,
    ) -> Result<(), AdjustError> {
        let record = self.live(who).map_err(AdjustError::Context)?;
        let spec = ContextSpec { budget, period, deadline, ..record.spec.clone() };
        spec.check().map_err(AdjustError::Spec)?;
        if let Some(value) = &mut record.value {
            value.adjust(budget, period, deadline, now).map_err(AdjustError::Spec)?;
        }
        record.spec = spec;
        Ok(())
    }

    /// Empties the notice cells of a context on the shelf; one that is out is drained where it is.
    pub fn drain(&mut self, who: ContextRef) -> Result<Drained, ContextError> {
        let record = match self.record_mut(who) {
            Err(ContextError::StaleGeneration { current }) => {
                return Ok(Drained::StaleGeneration { current });
            }
            Err(ContextError::Revoked) => {
                let generation = self.records[who.id() as usize - 1].generation;
                return Ok(Drained::Revoked { generation });
            }
            Err(error) => return Err(error),
            Ok(record) => record,
        };
        Ok(Drained::Ok(record.value.as_mut().map_or([None, None], |value| value.notices.drain())))
    }

    /// What is known of a context by any of its names.
    #[must_use]
    pub fn info(&self, who: ContextRef) -> Option<Info<'_>> {
        let record = self.records.get((who.id() as usize).checked_sub(1)?)?;
        Some(Info {
            who: ContextRef::new(who.id(), record.generation),
            spec: &record.spec,
            place: record.place,
            shelved: record.value.as_deref(),
        })
    }

    /// Every context there ever was.
    pub fn all(&self) -> impl Iterator<Item = Info<'_>> {
        (1..=self.records.len() as u32).filter_map(|id| self.info(ContextRef::new(id, 0)))
    }

    fn record(&self, who: ContextRef) -> Result<&Record, ContextError> {
        let index = (who.id() as usize).checked_sub(1).ok_or(ContextError::Unknown(who))?;
        let record = self.records.get(index).ok_or(ContextError::Unknown(who))?;
        match record.place {
            Place::Revoked if who.generation() == record.generation => Err(ContextError::Revoked),
            _ if who.generation() != record.generation => {
                Err(ContextError::StaleGeneration { current: record.generation })
            }
            _ => Ok(record),
        }
    }

    fn record_mut(&mut self, who: ContextRef) -> Result<&mut Record, ContextError> {
        self.record(who)?;
        Ok(&mut self.records[who.id() as usize - 1])
    }

    fn live(&mut self, who: ContextRef) -> Result<&mut Record, ContextError> {
        self.record_mut(who)
    }
}

/// Why a context was not adjusted; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdjustError {
    /// The name could not be used.
    Context(ContextError),
    /// The grant makes no sense.
    Spec(SpecError),
}

impl fmt::Display for AdjustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context(error) => error.fmt(f),
            Self::Spec(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AdjustError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    fn t(index: u32) -> ThreadRef {
        ThreadRef::new(index, 0)
    }

    fn a_registry() -> (Registry, ContextRef) {
        let mut registry = Registry::new();
        registry.reserve(2).expect("two fit");
        let who = registry.create(ms(0), ContextSpec::new(ms(1), ms(10))).expect("a sound grant");
        (registry, who)
    }

    //= ARCH:ctx.ids
    #[test]
    fn numbers_are_given_once_and_never_zero() {
        let (mut registry, first) = a_registry();
        let _ = registry.revoke(first).expect("it lives");
        let second = registry.create(ms(0), ContextSpec::new(ms(1), ms(10))).expect("room for two");
        assert_ne!(first.id(), second.id());
        assert_ne!(first.id(), 0);
        let full = registry.create(ms(0), ContextSpec::new(ms(1), ms(10)));
        assert!(matches!(full, Err(CreateError::Full { .. })));
    }

    //= ARCH:ctx.create-bind
    //= ARCH:ctx.generation
    #[test]
    fn a_revoked_generation_binds_nothing_and_changes_nothing() {
        let (mut registry, who) = a_registry();
        let value = registry.bind(who, t(1)).expect("on the shelf");
        assert_eq!(registry.bind(who, t(2)), Err(BindError::Busy(t(1))));
        let revoked = registry.revoke(who).expect("it lives");
        assert_eq!(revoked, Revoked { bound_to: Some(t(1)), generation: 1 });
        let stale = ContextError::StaleGeneration { current: 1 };
        assert_eq!(registry.bind(who, t(2)), Err(BindError::Context(stale)));
        assert_eq!(registry.revoke(who), Err(stale));
        let current = ContextRef::new(who.id(), 1);
        assert_eq!(registry.revoke(current), Err(ContextError::Revoked));
        assert_eq!(registry.bind(current, t(2)), Err(BindError::Context(ContextError::Revoked)));
        assert!(matches!(registry.put_back(value), PutBack::Dropped(_)), "what comes back late is dropped");
        assert_eq!(registry.info(who).map(|info| info.place), Some(Place::Revoked));
    }

    #[test]
    fn a_drain_says_what_the_name_is_worth() {
        let (mut registry, who) = a_registry();
        assert_eq!(registry.drain(who), Ok(Drained::Ok([None, None])));
        let _ = registry.revoke(who).expect("it lives");
        assert_eq!(registry.drain(who), Ok(Drained::StaleGeneration { current: 1 }));
        assert_eq!(registry.drain(ContextRef::new(who.id(), 1)), Ok(Drained::Revoked { generation: 1 }));
        let nobody = ContextRef::new(77, 0);
        assert_eq!(registry.drain(nobody), Err(ContextError::Unknown(nobody)));
    }

    //= ARCH:ctx.release
    #[test]
    fn a_context_that_comes_back_can_be_bound_again() {
        let (mut registry, who) = a_registry();
        let value = registry.bind(who, t(1)).expect("on the shelf");
        assert_eq!(registry.put_back(value), PutBack::Shelved);
        assert!(registry.bind(who, t(2)).is_ok());
    }

    #[test]
    fn a_context_whose_session_ended_is_revoked_when_it_comes_back() {
        let (mut registry, who) = a_registry();
        let value = registry.bind(who, t(1)).expect("on the shelf");
        registry.revoke_on_return(who).expect("it lives");
        assert!(matches!(registry.put_back(value), PutBack::Dropped(_)));
        assert_eq!(registry.revoke(who), Err(ContextError::StaleGeneration { current: 1 }));
    }

    #[test]
    fn an_adjustment_that_makes_no_sense_changes_nothing() {
        let (mut registry, who) = a_registry();
        let bad = registry.adjust(ms(0), who, ms(20), ms(10), ms(10));
        assert!(matches!(bad, Err(AdjustError::Spec(SpecError::OversizedBudget { .. }))));
        assert_eq!(registry.info(who).expect("known").spec.budget, ms(1));
        registry.adjust(ms(5), who, ms(2), ms(10), ms(10)).expect("sound");
        let shelved = registry.info(who).expect("known").shelved.expect("on the shelf");
        assert_eq!(shelved.refills().budget(), ms(2));
    }
}
