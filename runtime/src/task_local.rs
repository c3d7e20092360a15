//! Values that code further down a task's stack finds without having been handed them.
//!
//! A value is carried by the [`Cx`] that its scope hands to the code inside, so that it lasts exactly as long as that code, on
//! every way out, and costs nothing where there is none. The halves of a [`Cx::join`] see what their task sees, whichever worker
//! runs them. Children do not: what a child is to know is handed to it.
#![allow(unsafe_code)]

use crate::cx::Cx;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU8;

/// A scope that is open, in the frame of [`TaskLocal::scope`].
pub(crate) struct Scope {
    key: *const (),
    value: *const (),
    outer: *const Scope,
}

/// A key for a value that code of a task finds by its [`Cx`]: made by [`task_local!`](crate::task_local).
///
/// A key finds values of its own type only. It is the same key in all of its types, so it has one:
///
/// ```compile_fail,E0308
/// static KEY: mainspring::TaskLocal<for<'a> fn(&'a u8)> = mainspring::TaskLocal::new();
/// let narrower: &'static mainspring::TaskLocal<fn(&'static u8)> = &KEY;
/// ```
///
/// and no two keys are one constant in memory:
///
/// ```compile_fail,E0492
/// const KEY: &mainspring::TaskLocal<u8> = &mainspring::TaskLocal::new();
/// ```
pub struct TaskLocal<T> {
    /// The address is the key. What has no size, or is constant, may share its address with others.
    _has_an_address: AtomicU8,
    /// Invariant: a value that was set as one type is read as that type.
    _value: PhantomData<fn(T) -> T>,
}

impl<T> fmt::Debug for TaskLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskLocal")
    }
}

/// Makes keys for values that code of a task finds by its [`Cx`].
///
/// ```
/// # use mainspring::{Config, Cx, Profile};
/// mainspring::task_local! {
///     static REQUEST: u64;
/// }
///
/// fn log(cx: &Cx) -> String {
///     format!("request {:?}", REQUEST.get(cx))
/// }
///
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let line = runtime.run(|cx| REQUEST.scope(cx, 7, |cx| log(cx))).unwrap();
/// assert_eq!(line, "request Some(7)");
/// ```
#[macro_export]
macro_rules! task_local {
    ($($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty;)+) => {
        $($(#[$attribute])* $visible static $name: $crate::TaskLocal<$type> = $crate::TaskLocal::new();)+
    };
}

impl<T: Sync> TaskLocal<T> {
    /// A key without a value.
    #[doc(hidden)]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { _has_an_address: AtomicU8::new(0), _value: PhantomData }
    }

    fn key(&'static self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Runs `f`, to whose [`Cx`] the key has this value. An outer scope of the same key is hidden meanwhile.
    pub fn scope<R>(&'static self, cx: &Cx, value: T, f: impl FnOnce(&Cx) -> R) -> R {
        cx.probe_stack();
        let scope = Scope { key: self.key(), value: std::ptr::from_ref(&value).cast(), outer: cx.locals() };
        f(&cx.with_locals(&scope))
    }

    /// Uses the value of the innermost scope that `cx` is in. `None` outside of all scopes.
    pub fn with<R>(&'static self, cx: &Cx, f: impl FnOnce(&T) -> R) -> Option<R> {
        let mut next = cx.locals();
        // SAFETY: a `Cx` with a scope lives inside of it, and a half of a fork inside of its task's.
        while let Some(scope) = unsafe { next.as_ref() } {
            if scope.key == self.key() {
                // SAFETY: the key is of one type, and the value in a frame that waits for this one. Another worker may use
                // it at the same time, for a half of a fork, so it is `Sync`.
                return Some(f(unsafe { &*scope.value.cast::<T>() }));
            }
            next = scope.outer;
        }
        None
    }

    /// A copy of the value.
    pub fn get(&'static self, cx: &Cx) -> Option<T>
    where
        T: Clone,
    {
        self.with(cx, T::clone)
    }
}
