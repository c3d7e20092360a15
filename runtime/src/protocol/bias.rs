//! An object that mostly one worker uses, it uses without an atomic read-modify-write; any other thread takes that
//! right away first.
//!
//! Conserved: while a worker is inside a section, the section's object is the worker's, and no other thread touches it. A
//! thread that takes the right away makes that known, passes a fence that every running thread passes with it, and waits
//! until the worker is outside: a worker that goes in later sees that it has lost the right.

use super::lock::{Guard, Lock};
use super::mutant::{Mutant, broken};
use super::prim::{AtomicBool, AtomicPtr, Ordering};
use super::{asymmetric, give_way};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::Arc;

/// Where others see whether a worker is inside a section. One for each thread that runs workers.
#[derive(Debug)]
#[repr(align(64))]
pub struct SectionFlag {
    inside: AtomicBool,
}

/// The worker is inside, until this is dropped. Nothing in a section waits for another thread, and sections do not
/// nest.
#[derive(Debug)]
pub struct Section<'a>(&'a SectionFlag);

impl Default for SectionFlag {
    fn default() -> Self {
        Self { inside: AtomicBool::new(false) }
    }
}

impl SectionFlag {
    /// Goes in if `is_mine` still holds then. The worker's own thread only.
    #[inline(always)]
    fn enter(&self, is_mine: impl FnOnce() -> bool) -> Option<Section<'_>> {
        debug_assert!(!self.inside.load(Ordering::Relaxed), "sections do not nest");
        self.inside.store(true, Ordering::Relaxed);
        // Pairs with the heavy fence of a thread that takes the right away: the loss is seen here, or the section
        // there.
        if !broken(Mutant::EnterWithoutFence) {
            asymmetric::light();
        }
        let section = Section(self);
        is_mine().then_some(section)
    }

    /// Ends the section in which a task left its stack. The context that runs next on the thread calls this. Does nothing
    /// outside of a section.
    #[inline(always)]
    pub fn leave(&self) {
        // Pairs with the acquire in `wait_until_outside`.
        self.inside.store(false, Ordering::Release);
    }

    fn wait_until_outside(&self) {
        // Acquire pairs with the release in `drop`: what was done inside is seen.
        while self.inside.load(Ordering::Acquire) && !broken(Mutant::EvictWithoutWaiting) {
            give_way();
        }
    }
}

impl<'a> Section<'a> {
    /// Whose section it is.
    #[inline(always)]
    pub fn section_flag(&self) -> &'a SectionFlag {
        self.0
    }

    /// It is over: the task left its stack inside, and the context that ran next ended it ([`SectionFlag::leave`]).
    #[inline(always)]
    pub fn was_ended(self) {
        std::mem::forget(self);
    }
}

impl Drop for Section<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Whose worker may do without: none, one, or none any more as soon as that one is outside.
#[derive(Debug)]
pub struct Home(AtomicPtr<SectionFlag>);

/// What a home looks like to one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Nobodys,
    Mine,
    Others(*mut SectionFlag),
    /// A thread is taking it away.
    Going,
}

/// In place of a flag: it is being taken away.
const GOING: *mut SectionFlag = std::ptr::dangling_mut();

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// A home that no worker has.
    pub fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    #[inline(always)]
    fn is(&self, flag: &SectionFlag) -> bool {
        std::ptr::eq(self.0.load(Ordering::Relaxed), flag)
    }

    /// Whether it is the home of the worker inside `section`, for as long as the section lasts.
    #[inline(always)]
    pub fn is_here(&self, section: &Section<'_>) -> bool {
        self.is(section.section_flag())
    }

    #[inline(always)]
    fn view(&self, here: Option<&SectionFlag>) -> View {
        match self.0.load(Ordering::Acquire) {
            flag if flag.is_null() => View::Nobodys,
            flag if here.is_some_and(|here| std::ptr::eq(here, flag)) => View::Mine,
            GOING => View::Going,
            flag => View::Others(flag),
        }
    }

    /// Goes into a section if this is the home of `flag`. The flag's own thread only.
    #[inline(always)]
    pub fn enter<'a>(&self, flag: &'a SectionFlag) -> Option<Section<'a>> {
        if self.is(flag) { flag.enter(|| self.is(flag)) } else { None }
    }

    /// Makes it the home of `flag`, if no worker has it. Only the object's holder may call this, on the flag's
    /// thread.
    #[inline(always)]
    pub fn move_in(&self, flag: &SectionFlag) {
        // Only the holder makes a home, so that no other thread comes between.
        if self.0.load(Ordering::Relaxed).is_null() {
            self.0.store(std::ptr::from_ref(flag).cast_mut(), Ordering::Release);
        }
    }

    /// Gives the home up, waiting for a thread that is about to take it away. Only the object's holder may call this, on
    /// the thread whose home it was, if there was one.
    #[inline(always)]
    pub fn move_out(&self) {
        if !self.0.load(Ordering::Relaxed).is_null() {
            self.move_out_slowly();
        }
    }

    #[cold]
    fn move_out_slowly(&self) {
        loop {
            let flag = self.0.load(Ordering::Acquire);
            if flag.is_null() {
                return;
            }
            if flag == GOING {
                give_way();
            } else if self.0.compare_exchange(flag, null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Takes the home away from another thread's flag, or waits for a thread that does, until no worker has it or `here`
    /// has it. `settle` runs while neither its owner nor any other thread relies on it. True if it is `here`'s.
    ///
    /// # Safety
    ///
    /// The seats that have this for a home live as long as it.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub unsafe fn claim(&self, here: Option<&SectionFlag>, settle: impl Fn()) -> bool {
        match self.view(here) {
            View::Nobodys => false,
            View::Mine => true,
            // SAFETY: as the caller promises.
            View::Going | View::Others(_) => unsafe { self.claim_from_another(here, settle) },
        }
    }

    /// As [`Home::claim`], out of line.
    #[allow(unsafe_code)]
    #[cold]
    #[inline(never)]
    unsafe fn claim_from_another(&self, here: Option<&SectionFlag>, settle: impl Fn()) -> bool {
        loop {
            match self.view(here) {
                View::Nobodys => return false,
                View::Mine => return true,
                View::Going => give_way(),
                // SAFETY: as the caller promises.
                View::Others(flag) => self.evict(flag, unsafe { &*flag }, &settle),
            }
        }
    }

    #[cold]
    fn evict(&self, address: *mut SectionFlag, flag: &SectionFlag, settle: &impl Fn()) {
        if self.0.compare_exchange(address, GOING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // Another thread does it.
            return give_way();
        }
        // Pairs with the light one in `enter`.
        asymmetric::heavy();
        flag.wait_until_outside();
        settle();
        // Release: a thread that sees no owner sees what was done in the section.
        self.0.store(null_mut(), Ordering::Release);
    }
}

/// A worker gets a lock for a home when it has taken it so often, and no other thread in between; and twice as often each
/// time that turned out wrong.
const STREAK: u32 = if cfg!(loom) { 1 } else { 64 };

/// A lock that a worker which mostly is alone with it takes without an atomic read-modify-write.
#[derive(Debug)]
pub struct BiasedLock<T> {
    bias: AtomicPtr<SectionFlag>,
    book: Lock<Book>,
    value: UnsafeCell<T>,
}

/// Under the inner lock.
#[derive(Debug)]
struct Book {
    /// Whose the lock is; the reference keeps its flag for the thread that takes the lock away.
    owner: Option<Arc<SectionFlag>>,
    /// The thread that took it last, and how often.
    last: usize,
    streak: u32,
    needed: u32,
}

#[allow(unsafe_code)]
// SAFETY: one thread at a time has the guard, and the value may move between threads.
unsafe impl<T: Send> Sync for BiasedLock<T> {}
#[allow(unsafe_code)]
// SAFETY: as for the value itself.
unsafe impl<T: Send> Send for BiasedLock<T> {}

/// The right to the value, until dropped.
#[derive(Debug)]
pub struct BiasedGuard<'a, T> {
    lock: &'a BiasedLock<T>,
    how: How<'a>,
}

#[derive(Debug)]
enum How<'a> {
    AtHome { _section: Section<'a> },
    Shared { _book: Guard<'a, Book> },
}

impl<T> BiasedLock<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        let book = Book { owner: None, last: 0, streak: 0, needed: STREAK };
        Self { bias: AtomicPtr::new(null_mut()), book: Lock::new(book), value: UnsafeCell::new(value) }
    }

    #[inline(always)]
    fn is_of(&self, flag: &SectionFlag) -> bool {
        std::ptr::eq(self.bias.load(Ordering::Relaxed), flag)
    }

    /// Takes the lock if it is the worker's own: without waiting for another thread, but perhaps in vain.
    #[inline(always)]
    pub fn lock_at_home<'a>(&'a self, flag: &'a SectionFlag) -> Option<HomeGuard<'a, T>> {
        if !self.is_of(flag) {
            return None;
        }
        let section = flag.enter(|| self.is_of(flag))?;
        Some(HomeGuard { lock: self, section })
    }

    /// Waits for the lock. `here` is the flag of the calling thread, if it runs workers; it holds no other biased lock.
    #[inline(always)]
    pub fn lock<'a>(&'a self, here: Option<&'a Arc<SectionFlag>>) -> BiasedGuard<'a, T> {
        if let Some(flag) = here
            && let Some(guard) = self.lock_at_home(flag)
        {
            return BiasedGuard { lock: self, how: How::AtHome { _section: guard.section } };
        }
        self.lock_shared(here)
    }

    #[inline(never)]
    fn lock_shared(&self, here: Option<&Arc<SectionFlag>>) -> BiasedGuard<'_, T> {
        let mut book = self.book.lock();
        if let Some(owner) = book.owner.take() {
            self.bias.store(null_mut(), Ordering::Relaxed);
            // Pairs with the light one in `enter`.
            asymmetric::heavy();
            owner.wait_until_outside();
            book.needed = book.needed.saturating_mul(2);
            book.streak = 0;
        }
        let address = here.map_or(0, |flag| Arc::as_ptr(flag) as usize);
        if address != book.last {
            book.last = address;
            book.streak = 0;
        }
        book.streak += 1;
        if let Some(flag) = here
            && book.streak >= book.needed
        {
            // From the release of the inner lock on. The next thread to take the inner lock takes this lock away.
            book.owner = Some(flag.clone());
            self.bias.store(Arc::as_ptr(flag).cast_mut(), Ordering::Relaxed);
        }
        BiasedGuard { lock: self, how: How::Shared { _book: book } }
    }
}

/// The right to the value of a lock that is the worker's own: a section.
#[derive(Debug)]
pub struct HomeGuard<'a, T> {
    lock: &'a BiasedLock<T>,
    section: Section<'a>,
}

impl<'a, T> HomeGuard<'a, T> {
    /// The section, for what else it is about.
    #[inline(always)]
    pub fn section(&self) -> &Section<'a> {
        &self.section
    }

    /// As [`Section::was_ended`].
    #[inline(always)]
    pub fn was_ended(self) {
        self.section.was_ended();
    }
}

impl<T> Deref for HomeGuard<'_, T> {
    type Target = T;

    #[allow(unsafe_code)]
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves that this thread alone may use the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for HomeGuard<'_, T> {
    #[allow(unsafe_code)]
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard proves that this thread alone may use the value.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> BiasedGuard<'_, T> {
    /// Whether the lock is the worker's own.
    #[inline(always)]
    pub fn is_at_home(&self) -> bool {
        matches!(self.how, How::AtHome { .. })
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[allow(unsafe_code)]
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves that this thread alone may use the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[allow(unsafe_code)]
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard proves that this thread alone may use the value.
        unsafe { &mut *self.lock.value.get() }
    }
}
