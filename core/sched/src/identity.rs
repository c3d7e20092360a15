//! Names that are never used twice.
//!
//! Conserved: an [`Identity`] that an [`Allocator`] has given out is given out by it never again, whatever happens to
//! its owner. So the holder of a stale one can be told so, and can never reach a later owner by it. Nothing wraps: an
//! allocator that has no more names refuses.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

/// The name of a `T`: which one, and as of when.
///
/// The id stays for as long as the thing exists. The generation moves on when authority over it is taken back, so
/// that what was handed out before is stale.
pub struct Identity<T> {
    id: u64,
    generation: u64,
    of: PhantomData<fn() -> T>,
}

impl<T> Identity<T> {
    /// The identity with these numbers, as a record or a caller names it. Each use of it checks whether it is
    /// stale.
    #[must_use]
    pub const fn from_parts(id: u64, generation: u64) -> Self {
        Self { id, generation, of: PhantomData }
    }

    /// Which one.
    #[must_use]
    pub const fn id(self) -> u64 {
        self.id
    }

    /// As of when.
    #[must_use]
    pub const fn generation(self) -> u64 {
        self.generation
    }
}

impl<T> Clone for Identity<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Identity<T> {}

impl<T> PartialEq for Identity<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.generation) == (other.id, other.generation)
    }
}

impl<T> Eq for Identity<T> {}

impl<T> PartialOrd for Identity<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Identity<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.id, self.generation).cmp(&(other.id, other.generation))
    }
}

impl<T> Hash for Identity<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id, self.generation).hash(state);
    }
}

impl<T> fmt::Debug for Identity<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}.{}", self.id, self.generation)
    }
}

impl<T> fmt::Display for Identity<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// There are no more names to give out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "every identity has been given out once, and none is given out twice; restart the machine",
        )
    }
}

impl core::error::Error for Exhausted {}

/// Gives out the identities of one kind of thing. One counter serves ids and generations, so that a generation is
/// later than every one given out before it, of whatever id.
#[derive(Debug)]
pub struct Allocator<T> {
    last: u64,
    of: PhantomData<fn() -> T>,
}

impl<T> Allocator<T> {
    /// Nothing has been given out. The first id is 1: zero names nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self::resume_after(0)
    }

    /// Everything up to `last` has been given out.
    #[must_use]
    pub const fn resume_after(last: u64) -> Self {
        Self { last, of: PhantomData }
    }

    /// The identity of something new.
    pub fn fresh(&mut self) -> Result<Identity<T>, Exhausted> {
        let number = self.advance()?;
        Ok(Identity::from_parts(number, number))
    }

    /// The next identity of what `old` names: whatever still holds `old` is stale.
    pub fn renew(&mut self, old: Identity<T>) -> Result<Identity<T>, Exhausted> {
        Ok(Identity::from_parts(old.id, self.advance()?))
    }

    /// Whether something has or had the id `id`, as far as can be known without keeping them all: a number that has not
    /// been reached yet names nothing.
    #[must_use]
    pub fn has_given_out(&self, id: u64) -> bool {
        id != 0 && id <= self.last
    }

    fn advance(&mut self) -> Result<u64, Exhausted> {
        self.last = self.last.checked_add(1).ok_or(Exhausted)?;
        Ok(self.last)
    }
}

impl<T> Default for Allocator<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::HashSet;
    use std::vec::Vec;

    struct Thing;

    #[test]
    fn no_identity_is_given_out_twice() {
        let mut names = Allocator::<Thing>::new();
        let mut given = HashSet::new();
        let mut live: Vec<Identity<Thing>> = Vec::new();
        for round in 0..10_000usize {
            let name = match live.get(round * 7 % (live.len() + 1)) {
                Some(old) if round % 3 != 0 => names.renew(*old),
                _ => names.fresh(),
            }
            .expect("plenty are left");
            assert!(given.insert(name), "{name} again");
            live.retain(|old| old.id() != name.id());
            live.push(name);
        }
    }

    #[test]
    fn renewing_keeps_the_id_and_stales_the_generation() {
        let mut names = Allocator::<Thing>::new();
        let (first, second) = (names.fresh().expect("left"), names.fresh().expect("left"));
        let renewed = names.renew(first).expect("left");
        assert_eq!(renewed.id(), first.id());
        assert_ne!(renewed, first);
        assert!(renewed.generation() > second.generation(), "later than all before it");
        assert_ne!(first.id(), second.id());
        assert_ne!(first.id(), 0, "zero names nothing");
    }

    #[test]
    fn an_allocator_at_its_end_refuses_for_ever() {
        let mut names = Allocator::<Thing>::resume_after(u64::MAX - 1);
        let last = names.fresh().expect("one is left");
        assert_eq!(last.id(), u64::MAX);
        for _ in 0..3 {
            assert_eq!(names.fresh(), Err(Exhausted));
            assert_eq!(names.renew(last), Err(Exhausted), "nor does a generation wrap");
        }
    }
}
