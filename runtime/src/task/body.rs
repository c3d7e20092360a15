//! What a task runs: a closure, and then its result, in the same bytes of the record.
//!
//! Conserved: the storage holds a closure until the task starts, nothing while it runs, and its result after that until
//! the handle takes it or the task is freed.
#![allow(unsafe_code)]

use super::{BODY, Task, TaskPtr};
use crate::cx::Cx;
use crate::error::TaskError;
use crate::future::FutureBody;
use crate::stack::roomy::with_room;
use std::any::Any;
use std::future::Future;
use std::mem::needs_drop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::task::Poll;

/// How to run and drop one kind of closure.
#[derive(Debug)]
pub(crate) struct BodyKind {
    /// Takes the closure, runs it and writes its result.
    pub(crate) run: unsafe fn(&Task, &Cx) -> Ran,
    /// Drops the closure of a task that never ran and writes an error as its result: that one, or that a destructor panicked.
    pub(crate) refuse: unsafe fn(&Task, TaskError) -> Ended,
    /// Writes an error as the result of a task whose frames were abandoned.
    pub(crate) abandon: unsafe fn(&Task, TaskError),
    /// Whether there is anything to drop of a result that is a value.
    pub(crate) value_drops: bool,
    /// Drops the result. An error if its destructor panicked.
    pub(crate) drop_result: unsafe fn(&Task) -> Result<(), TaskError>,
}

/// What a run of a body came to.
#[must_use]
#[derive(Debug)]
pub(crate) enum Ran {
    /// The result is written.
    Ended(Ended),
    /// A future that waits: the storage holds it still, and no stack does.
    Pending,
}

/// How a body ended, for the nursery.
#[derive(Debug)]
pub(crate) enum Ended {
    Returned,
    Failed(TaskError),
    Cancelled,
}

/// The panic payload by which a yield point ends a task that must stop.
///
/// Code that catches panics cannot keep it from the task: where it drops the payload, the task goes on to unwind.
pub(crate) struct StopUnwind {
    /// Until a holder with the right to it takes it.
    error: Option<TaskError>,
    task: TaskPtr,
    id: u64,
}

impl StopUnwind {
    /// Ends the task that runs here.
    pub(crate) fn raise(task: TaskPtr, error: TaskError) -> ! {
        let id = task.id.load(Ordering::Relaxed);
        resume_unwind(Box::new(Self { error: Some(error), task, id }))
    }

    /// Why the task ends, until somebody has taken it.
    pub(crate) fn error(&self) -> Option<&TaskError> {
        self.error.as_ref()
    }

    /// Whether the task ends because it was cancelled, or because a nursery around it has failed.
    pub(crate) fn is_cancellation(payload: &(dyn Any + Send)) -> bool {
        payload.downcast_ref::<Self>().is_some_and(|stop| matches!(stop.error, Some(TaskError::Cancelled)))
    }

    /// Drops a payload that has done what it was for, if it is one of these. In the task that was stopped.
    pub(crate) fn is_over(mut payload: Box<dyn Any + Send>) {
        if let Some(stop) = payload.downcast_mut::<Self>() {
            stop.error = None;
            stop.task.clear_stopped();
        }
        discard(payload);
    }

    /// Whether the reason for the stop still stands, for the task that runs on this thread.
    fn still_stands(&self) -> bool {
        // SAFETY: null, or the worker of this thread.
        let worker = unsafe { crate::worker::current().as_ref() };
        let runs = worker.is_some_and(|worker| std::ptr::eq(worker.current.get(), self.task.raw()));
        let is_same = runs && self.task.id.load(Ordering::Relaxed) == self.id;
        if !is_same || std::thread::panicking() || self.task.mask.is_set() {
            return false;
        }
        match self.error {
            Some(TaskError::Cancelled) => self.task.is_interrupted(),
            Some(TaskError::BudgetExhausted(component) | TaskError::BudgetCut(component)) => {
                self.task.budget().get(component) == 0
            }
            // As a panic would be: the code that caught it has a stack with room again.
            _ => false,
        }
    }
}

impl Drop for StopUnwind {
    fn drop(&mut self) {
        if self.error.is_some() && self.still_stands() {
            let error = self.error.take().expect("just looked");
            Self::raise(self.task, error);
        }
    }
}

const fn fits<T>() -> bool {
    size_of::<T>() <= BODY && align_of::<T>() <= 8
}

const fn value_drops<T>() -> bool {
    needs_drop::<T>() || !fits::<Result<T, TaskError>>()
}

unsafe fn put<T>(task: &Task, value: T) {
    let storage = task.storage();
    // SAFETY: the caller holds the task and the storage is empty; it is aligned to 8 within a record aligned to 64, and
    // a value that does not fit is boxed.
    unsafe {
        if fits::<T>() {
            storage.cast::<T>().write(value);
        } else {
            storage.cast::<*mut T>().write(Box::into_raw(Box::new(value)));
        }
    }
}

unsafe fn take<T>(task: &Task) -> T {
    let storage = task.storage();
    // SAFETY: the caller knows that `put` stored a `T`, and takes it once.
    unsafe {
        if fits::<T>() { storage.cast::<T>().read() } else { *Box::from_raw(storage.cast::<*mut T>().read()) }
    }
}

/// Puts a closure into a slot that the caller holds.
///
/// # Safety
///
/// The storage is empty. The task ends before anything that the closure borrows does.
pub(crate) unsafe fn put_closure<F, T>(task: &Task, closure: F)
where
    F: FnOnce(&Cx) -> Result<T, TaskError> + Send,
    T: Send,
{
    struct Kind<F, T>(std::marker::PhantomData<(F, T)>);
    impl<F, T> Kind<F, T>
    where
        F: FnOnce(&Cx) -> Result<T, TaskError> + Send,
        T: Send,
    {
        const BODY: BodyKind = BodyKind {
            run: run::<F, T>,
            refuse: refuse::<F, T>,
            abandon: write_error::<T>,
            value_drops: value_drops::<T>(),
            drop_result: drop_result::<T>,
        };
    }
    task.body.set(Some(&Kind::<F, T>::BODY));
    // SAFETY: the caller holds the task and its storage is empty.
    unsafe { put(task, closure) };
}

/// Takes the result of a task that has ended.
///
/// # Safety
///
/// `T` is the type that the closure returned, the task has ended, and the result is taken once.
pub(crate) unsafe fn take_result<T>(task: &Task) -> Result<T, TaskError> {
    // SAFETY: as the caller promises.
    unsafe { take::<Result<T, TaskError>>(task) }
}

unsafe fn run<F, T>(task: &Task, cx: &Cx) -> Ran
where
    F: FnOnce(&Cx) -> Result<T, TaskError>,
{
    // SAFETY: the task has not run yet, so its storage holds the closure.
    let closure = unsafe { take::<F>(task) };
    let result = match catch_unwind(AssertUnwindSafe(|| closure(cx))) {
        Ok(result) => result,
        Err(payload) => Err(error_of(payload)),
    };
    // SAFETY: the storage is empty since the closure was taken.
    Ran::Ended(unsafe { finish(task, result) })
}

/// Writes the result into the empty storage.
unsafe fn finish<T>(task: &Task, result: Result<T, TaskError>) -> Ended {
    let ended = match &result {
        Ok(_) => Ended::Returned,
        Err(TaskError::Cancelled | TaskError::BudgetCut(_)) => Ended::Cancelled,
        Err(error) => Ended::Failed(error.echo()),
    };
    // SAFETY: as the caller promises.
    unsafe { put(task, result) };
    ended
}

/// Puts a future into a slot that the caller holds.
///
/// # Safety
///
/// As for [`put_closure`].
pub(crate) unsafe fn put_future<F>(task: &Task, future: FutureBody<F>)
where
    F: Future + Send,
    F::Output: Send,
{
    struct Kind<F>(std::marker::PhantomData<F>);
    impl<F> Kind<F>
    where
        F: Future + Send,
        F::Output: Send,
    {
        const BODY: BodyKind = BodyKind {
            run: poll::<F>,
            refuse: refuse::<FutureBody<F>, F::Output>,
            abandon: write_error::<F::Output>,
            value_drops: value_drops::<F::Output>(),
            drop_result: drop_result::<F::Output>,
        };
    }
    task.body.set(Some(&Kind::<F>::BODY));
    task.mark.holds_future();
    // SAFETY: the caller holds the task and its storage is empty.
    unsafe { put(task, future) };
}

unsafe fn poll<F>(task: &Task, cx: &Cx) -> Ran
where
    F: Future + Send,
{
    let storage = task.storage();
    // SAFETY: the storage holds the future, in place or boxed; neither moves before it is dropped below, since slots do
    // not move.
    let place: *mut FutureBody<F> = unsafe {
        if fits::<FutureBody<F>>() { storage.cast() } else { storage.cast::<*mut FutureBody<F>>().read() }
    };
    let polled = catch_unwind(AssertUnwindSafe(|| {
        cx.check();
        // SAFETY: as above.
        unsafe { FutureBody::poll(place, task) }
    }));
    let result = match polled {
        Ok(Poll::Pending) => return Ran::Pending,
        Ok(Poll::Ready(output)) => Ok(output),
        Err(payload) => Err(error_of(payload)),
    };
    // SAFETY: the future is polled no more. It is dropped where it is, as pinning asks, and the box, if any, freed.
    let dropped = catch_unwind(AssertUnwindSafe(|| unsafe {
        if fits::<FutureBody<F>>() {
            std::ptr::drop_in_place(place);
        } else {
            drop(Box::from_raw(place));
        }
    }));
    let result = match dropped {
        Ok(()) => result,
        Err(payload) => result.and(Err(error_of(payload))),
    };
    // SAFETY: the storage is empty since the future was dropped.
    Ran::Ended(unsafe { finish(task, result) })
}

unsafe fn refuse<F, T>(task: &Task, error: TaskError) -> Ended {
    let storage = task.storage();
    // SAFETY: the storage holds the closure, or the future that waits. It is dropped where it is, since a future that was
    // polled must not move.
    let dropped = drop_with_room(needs_drop::<F>(), || unsafe {
        if fits::<F>() {
            std::ptr::drop_in_place(storage.cast::<F>());
        } else {
            drop(Box::from_raw(storage.cast::<*mut F>().read()));
        }
    });
    // SAFETY: the storage is empty now.
    unsafe { finish::<T>(task, Err(dropped.err().unwrap_or(error))) }
}

/// Runs a destructor where there is room for it, and says what became of it. `deep`: it may take much room.
fn drop_with_room(deep: bool, destroy: impl FnOnce()) -> Result<(), TaskError> {
    let mut result = Ok(());
    let destroy = || result = catch_unwind(AssertUnwindSafe(destroy)).map_err(error_of);
    if deep {
        with_room(destroy);
    } else {
        destroy();
    }
    result
}

unsafe fn write_error<T>(task: &Task, error: TaskError) {
    // SAFETY: the storage is empty: the closure was taken, and no result was written.
    unsafe { put::<Result<T, TaskError>>(task, Err(error)) };
}

unsafe fn drop_result<T>(task: &Task) -> Result<(), TaskError> {
    // SAFETY: the task has ended and its result was not taken.
    let result = unsafe { take::<Result<T, TaskError>>(task) };
    let deep = result.is_ok() && needs_drop::<T>();
    drop_with_room(deep, || drop(result))
}

/// Drops a result that its owner does not want: with room, as if it were dropped in place.
pub(crate) fn drop_here<T>(result: Result<T, TaskError>) {
    if result.is_err() || !needs_drop::<T>() {
        return;
    }
    let mut dropped = Ok(());
    with_room(|| dropped = catch_unwind(AssertUnwindSafe(|| drop(result))));
    if let Err(payload) = dropped {
        resume_unwind(payload);
    }
}

/// Drops a payload, which may panic, and so may the payload of that: the second is left where it is.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// What a panic payload says.
pub(crate) fn error_of(payload: Box<dyn Any + Send>) -> TaskError {
    match payload.downcast::<StopUnwind>() {
        Ok(mut stop) => stop.error.take().expect("taken once"),
        Err(payload) => {
            let message = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a value that is no text".to_owned());
            discard(payload);
            TaskError::Panicked(message)
        }
    }
}
