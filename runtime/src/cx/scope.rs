//! Scopes of a task: nurseries, and what runs when it is cancelled.

use super::Cx;
use crate::budget::{Budget, Component, Pool};
use crate::calls;
use crate::nursery::{Nursery, NurseryError, NurseryOptions, task_nursery};
use crate::quota;
use crate::task::body::StopUnwind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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

    /// Runs `body`; if the task is cancelled inside, runs `cleanup` before it ends. The cleanup may wait. It has a small budget:
    /// `Config::cleanup_ops` for all cleanups of the task together, taken from what the task has left and then from its
    /// nursery's pool. It is cut short when that is used up. A timeout or a nursery inside of it stops it as anywhere.
    pub fn with_cleanup<R>(&self, body: impl FnOnce(&Self) -> R, cleanup: impl FnOnce(&Self)) -> R {
        calls::count(self);
        self.probe_stack();
        match catch_unwind(AssertUnwindSafe(|| body(self))) {
            Ok(value) => value,
            Err(payload) => {
                if payload.is::<StopUnwind>() {
                    self.clean_up(cleanup);
                }
                resume_unwind(payload)
            }
        }
    }

    fn clean_up(&self, cleanup: impl FnOnce(&Self)) {
        let (task, nursery, most) = (self.task(), self.task.nursery(), self.rt().config.cleanup_ops);
        if task.has_quota() {
            quota::pause(task);
        }
        let masked = task.mask.begin_cleanup();
        if masked.is_set() {
            // Inside of another cleanup: what that one has left is for both.
            catch_unwind(AssertUnwindSafe(|| cleanup(self))).unwrap_or_else(StopUnwind::is_over);
            return task.mask.set(masked);
        }
        let allowed = nursery.change_ext(task, |ext| *ext.cleanup_ops.get_or_insert(most));
        let before = task.budget();
        let own = before.ops.min(allowed);
        let drawn =
            nursery.draw_up_to(Component::Ops, 1, &Pool::only(Component::Ops, (allowed - own).into()));
        task.write_budget(Budget { ops: own, ..before });
        self.give(drawn);
        let had = task.ops_used();
        // Its own panic or its budget's end changes nothing about how the task ends.
        catch_unwind(AssertUnwindSafe(|| cleanup(self))).unwrap_or_else(StopUnwind::is_over);
        task.mask.set(masked);
        let used = u32::try_from(task.ops_used().saturating_sub(had)).unwrap_or(u32::MAX);
        nursery.change_ext(task, |ext| ext.cleanup_ops = Some(allowed.saturating_sub(used)));
        let mut after = task.budget();
        let over = after.add(Budget { ops: before.ops - own, ..Budget::ZERO });
        task.write_budget(after);
        if !over.is_zero() {
            nursery.put_back(&over.into());
        }
    }
}
