//! Children whose results come in the order in which they end.
//!
//! Conserved: each child's result is handed out once. A child that ends, however it ends, says so once: by the destructor of
//! something that its closure owns.

use super::{Handle, Nursery, SpawnBuilder};
use crate::calls;
use crate::cx::{Cx, TaskId};
use crate::error::{SpawnError, TaskError};
use crate::parker::Parker;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Which children have ended, and where their owner waits for that.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    ended: Mutex<VecDeque<u64>>,
    bell: Parker,
}

impl Ends {
    /// The next child that has ended.
    pub(crate) fn pop(&self) -> Option<u64> {
        self.ended.lock().expect("no panic while it is held").pop_front()
    }

    /// A child that was never there has said its end, which is not wanted.
    pub(crate) fn forget(&self, number: u64) {
        let mut ended = self.ended.lock().expect("no panic while it is held");
        if let Some(place) = ended.iter().rposition(|other| *other == number) {
            ended.remove(place);
        }
    }

    /// Waits until another child may have ended. False if time was over.
    pub(crate) fn wait(&self, cx: &Cx, timeout: Option<Duration>) -> bool {
        self.bell.wait(cx, crate::task::WaitReason::Join, timeout)
    }
}

/// Says that a child has ended, when it is dropped: with the child's closure, on every way out.
#[derive(Debug)]
pub(crate) struct SaysEnd {
    pub(crate) ends: Arc<Ends>,
    pub(crate) number: u64,
}

impl Drop for SaysEnd {
    fn drop(&mut self) {
        self.ends.ended.lock().expect("no panic while it is held").push_back(self.number);
        self.ends.bell.ring();
    }
}

/// Children of a nursery, whose results come in the order in which they end. In a nursery that isolates failures
/// ([`NurseryOptions::isolate`](super::NurseryOptions::isolate)), one that fails does not take the others with it.
///
/// ```
/// # use mainspring::{Config, JoinSet, NurseryOptions, Profile, TaskError};
/// # std::panic::set_hook(Box::new(|_| {}));
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let sum = runtime.run(|cx| {
///     cx.nursery_with(NurseryOptions::new().isolate(), |n| {
///         let mut set = JoinSet::new(n);
///         for i in 0..10 {
///             set.spawn(move |_| if i == 3 { panic!("a bad item") } else { i }).unwrap();
///         }
///         let mut sum = 0;
///         while let Some((_, result)) = set.join_next(cx) {
///             sum += result.unwrap_or(0);
///         }
///         sum
///     })
/// });
/// assert_eq!(sum.unwrap().unwrap(), 42);
/// ```
#[derive(Debug)]
pub struct JoinSet<'n, 'scope, 'env, T> {
    nursery: &'n Nursery<'scope, 'env>,
    ends: Arc<Ends>,
    handles: BTreeMap<u64, Handle<'scope, T>>,
    next: u64,
}

impl<'n, 'scope, 'env, T: Send + 'scope> JoinSet<'n, 'scope, 'env, T> {
    /// No children yet.
    pub fn new(nursery: &'n Nursery<'scope, 'env>) -> Self {
        Self { nursery, ends: Arc::default(), handles: BTreeMap::new(), next: 0 }
    }

    /// Spawns a child with the default budget.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn spawn(&mut self, f: impl FnOnce(&Cx) -> T + Send + 'scope) -> Result<TaskId, SpawnError> {
        self.spawn_with(self.nursery.builder(), f)
    }

    /// Spawns a child with options.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn spawn_with(
        &mut self,
        builder: SpawnBuilder<'_, 'scope, 'env>,
        f: impl FnOnce(&Cx) -> T + Send + 'scope,
    ) -> Result<TaskId, SpawnError> {
        let number = self.next;
        let says_end = SaysEnd { ends: self.ends.clone(), number };
        self.next += 1;
        let spawned = builder.spawn(move |cx| {
            let _says_end = says_end;
            f(cx)
        });
        // The closure of a spawn that is refused says an end too. Ends that nobody waits for would pile up.
        let handle = spawned.inspect_err(|_| self.ends.forget(number))?;
        let id = handle.id();
        self.handles.insert(number, handle);
        Ok(id)
    }

    /// Waits for the next child to end: its id and its result. `None` if there are no more.
    pub fn join_next(&mut self, cx: &Cx) -> Option<(TaskId, Result<T, TaskError>)> {
        self.join_until(cx, None).unwrap_or(None)
    }

    /// As [`JoinSet::join_next`], for at most this long.
    #[allow(clippy::type_complexity)]
    pub fn join_next_timeout(
        &mut self,
        cx: &Cx,
        timeout: Duration,
    ) -> Result<Option<(TaskId, Result<T, TaskError>)>, crate::sync::Stopped> {
        self.join_until(cx, Some(timeout)).ok_or(crate::sync::Stopped::TimedOut)
    }

    /// `None` if time was over, or if a destructor must not wait.
    #[allow(clippy::type_complexity)]
    fn join_until(
        &mut self,
        cx: &Cx,
        timeout: Option<Duration>,
    ) -> Option<Option<(TaskId, Result<T, TaskError>)>> {
        calls::count(cx);
        let deadline = timeout.map(|timeout| cx.now().saturating_add(timeout));
        loop {
            while let Some(number) = self.ends.pop() {
                let Some(handle) = self.handles.remove(&number) else { continue };
                let id = handle.id();
                return Some(Some((id, handle.join(cx))));
            }
            if self.handles.is_empty() {
                return Some(None);
            }
            // The bell may have rung for an end that was taken before, or for a spawn that was refused.
            let left = deadline.map(|deadline| deadline.saturating_sub(cx.now()));
            if !self.ends.wait(cx, left) {
                return None;
            }
        }
    }

    /// Tells all children to stop. Their results are still to be had.
    pub fn cancel_all(&self) {
        calls::count_costly_action();
        self.handles.values().for_each(|handle| _ = handle.cancel());
    }

    /// Children whose results have not been taken.
    pub fn len(&self) -> usize {
        calls::count_poll();
        self.handles.len()
    }

    /// Whether all results have been taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::JoinSet;
    use crate::{Budget, Config, Profile};

    #[test]
    fn a_spawn_that_is_refused_leaves_nothing_behind() {
        let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
        let run = runtime.run(|cx| {
            cx.nursery(|n| {
                let mut set = JoinSet::new(n);
                for _ in 0..10 {
                    set.spawn_with(n.builder().budget(Budget::MAX), |_| ()).unwrap_err();
                }
                assert!(set.is_empty() && set.ends.pop().is_none());
            })
        });
        run.unwrap().unwrap();
    }
}
