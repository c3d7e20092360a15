//! Scopes of a task: nurseries, and what runs when it is cancelled.

use super::Cx;
use crate::budget::Budget;
use crate::calls;
use crate::nursery::{Nursery, NurseryError, NurseryOptions, task_nursery};
use crate::task::body::StopUnwind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

impl Cx {
    /// Opens a nursery: a scope whose tasks may borrow from around it and have all ended when it returns.
    ///
    /// ```
    /// # use mainspring::{Config, Profile};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// let words = ["one", "two", "three"];
    /// let lengths = runtime.run(|cx| {
    ///     cx.nursery(|n| {
    ///         let handles = words.map(|word| n.spawn(move |_| word.len()).unwrap());
    ///         handles.map(|handle| handle.join(cx).unwrap())
    ///     })
    /// });
    /// assert_eq!(lengths.unwrap().unwrap(), [3, 3, 5]);
    /// ```
    pub fn nursery<'env, F, R>(&self, f: F) -> Result<R, NurseryError>
    where
        F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
    {
        calls::count(self);
        task_nursery(self, NurseryOptions::default(), f)
    }

    /// As [`Cx::nursery`], with options.
    pub fn nursery_with<'env, F, R>(&self, options: NurseryOptions, f: F) -> Result<R, NurseryError>
    where
        F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
    {
        calls::count(self);
        task_nursery(self, options, f)
    }

    /// Runs `body`; if the task is cancelled inside, runs `cleanup` before it ends. The cleanup has a small budget of its
    /// own (`Config::cleanup_ops`), may wait, and is cut short when that budget is used up.
    pub fn with_cleanup<R>(&self, body: impl FnOnce(&Self) -> R, cleanup: impl FnOnce(&Self)) -> R {
        calls::count(self);
        match catch_unwind(AssertUnwindSafe(|| body(self))) {
            Ok(value) => value,
            Err(payload) => {
                if payload.is::<StopUnwind>() {
                    let kept = self.task.budget();
                    self.task.write_budget(Budget { ops: self.rt().config.cleanup_ops, ..kept });
                    let masked = self.task.masked.swap(true, Ordering::Relaxed);
                    // Its own panic or its budget's end changes nothing about how the task ends.
                    let ended = catch_unwind(AssertUnwindSafe(|| cleanup(self)));
                    ended.unwrap_or_else(StopUnwind::is_over);
                    self.task.masked.store(masked, Ordering::Relaxed);
                    self.task.write_budget(Budget { ops: kept.ops, ..self.task.budget() });
                }
                resume_unwind(payload)
            }
        }
    }
}
