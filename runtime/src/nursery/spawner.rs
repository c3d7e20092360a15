//! Spawning into a nursery from elsewhere: from its children with a [`Spawner`], and from threads with a [`ThreadSpawner`].
//!
//! Conserved: a child that a guest spawns is counted before it is paid for, under the lock under which the nursery decides that
//! it takes no more: either it is waited for, or it is refused. It is paid from the nursery's pool, and has no capability that
//! its spawner does not have. A thread has no capabilities, so what it may give is in the value that it holds. A task with a
//! [`Spawner`] alone gives no more than it has, through whatever thread it goes.

use super::core::NurseryCore;
use super::state::NurseryState;
use super::{Nursery, SpawnBuilder};
use crate::calls;
use crate::caps::{Caps, Held};
use crate::cx::Cx;
use crate::error::SpawnError;
use crate::waiter;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// The right to spawn into a nursery, for its children: [`Nursery::spawner`]. As long as the nursery is open.
///
/// ```
/// # use mainspring::{Config, Profile};
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let served = AtomicU32::new(0);
/// runtime.run(|cx| {
///     cx.nursery(|n| {
///         let spawner = n.spawner();
///         let (served, connections) = (&served, 3);
///         let accepting = n.spawn(move |cx| {
///             for _ in 0..connections {
///                 spawner.start(cx, |_| _ = served.fetch_add(1, Ordering::Relaxed)).unwrap();
///             }
///         }).unwrap();
///         accepting.join(cx).unwrap();
///     })
/// }).unwrap().unwrap();
/// assert_eq!(served.into_inner(), 3);
/// ```
#[derive(Clone, Copy)]
pub struct Spawner<'scope> {
    core: &'scope NurseryCore,
    /// Invariant: as for a handle.
    _brand: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

impl fmt::Debug for Spawner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spawner(nursery {})", self.core.id)
    }
}

/// The right to spawn into a nursery from any thread, with all authority that the nursery has: [`Nursery::thread_spawner`]. As
/// long as the nursery is open. A task that is given it has that authority too.
#[derive(Clone, Copy)]
pub struct ThreadSpawner<'scope>(Spawner<'scope>);

impl fmt::Debug for ThreadSpawner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadSpawner(nursery {})", self.0.core.id)
    }
}

/// A child that is counted and not yet spawned.
pub(super) struct Counted<'a>(&'a NurseryCore);

impl<'a> Counted<'a> {
    pub(super) fn begin(core: &'a NurseryCore) -> Result<Self, SpawnError> {
        if core.wait_group.add_guest(|_| core.state() == NurseryState::Open) {
            Ok(Self(core))
        } else {
            Err(SpawnError::NurseryNotActive)
        }
    }

    /// Others may run the child from here on: its end counts it out.
    pub(super) fn spawned(self) {
        std::mem::forget(self);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.0.wait_group.ended(1, |_| ()) {
            waiter::wake(waiter);
        }
    }
}

impl<'scope> Nursery<'scope, '_> {
    /// The right to spawn into this nursery, for its children.
    pub fn spawner(&self) -> Spawner<'scope> {
        Spawner { core: self.core, _brand: PhantomData }
    }

    /// The right to spawn into this nursery from any thread, with all authority that the nursery has.
    pub fn thread_spawner(&self) -> ThreadSpawner<'scope> {
        ThreadSpawner(self.spawner())
    }
}

impl<'scope> Spawner<'scope> {
    /// Spawns a child of the nursery, with the default budget. What it may do is what the nursery's children may, and this task.
    /// Needs `CapSpawn`. Costs the task one op, and the nursery's pool what a spawn costs.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn start(&self, cx: &Cx, f: impl FnOnce(&Cx) + Send + 'scope) -> Result<(), SpawnError> {
        self.start_with(cx, |builder| builder, f)
    }

    /// As [`Spawner::start`], with options.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn start_with(
        &self,
        cx: &Cx,
        options: impl for<'n> FnOnce(SpawnBuilder<'n, 'scope, 'scope>) -> SpawnBuilder<'n, 'scope, 'scope>,
        f: impl FnOnce(&Cx) + Send + 'scope,
    ) -> Result<(), SpawnError> {
        cx.task().assert_running();
        calls::count(cx);
        let mine = cx.caps();
        if mine.spawn().is_none() {
            return Err(SpawnError::NotPermitted);
        }
        // Whoever makes a runtime chooses what its tasks may do there. That is no authority here.
        if !std::ptr::eq(cx.rt(), self.core.rt()) {
            return Err(SpawnError::OtherRuntime);
        }
        let nursery = Nursery { guest: Some(mine), ..Nursery::of(self.core, Some(cx.task_ptr())) };
        self.spawn_as(&nursery, mine, options, f)
    }

    #[cfg_attr(feature = "console", track_caller)]
    fn spawn_as(
        &self,
        nursery: &Nursery<'scope, 'scope>,
        most: Caps,
        options: impl for<'n> FnOnce(SpawnBuilder<'n, 'scope, 'scope>) -> SpawnBuilder<'n, 'scope, 'scope>,
        f: impl FnOnce(&Cx) + Send + 'scope,
    ) -> Result<(), SpawnError> {
        options(nursery.builder().caps(Held::usual(&most))).start(f)
    }
}

impl<'scope> ThreadSpawner<'scope> {
    /// Spawns a child of the nursery, with the default budget. Never waits. The nursery's pool pays what a spawn costs.
    pub fn start(&self, f: impl FnOnce(&Cx) + Send + 'scope) -> Result<(), SpawnError> {
        calls::count_costly_action();
        let core = self.0.core;
        let all = core.caps;
        // Kept until the lock is free: if it is refused, it is dropped, and its destructor is the program's.
        let kept = Arc::new(Mutex::new(Some(f)));
        let f = kept.clone();
        let f = move |cx: &Cx| {
            let f = f.lock().unwrap_or_else(PoisonError::into_inner).take();
            f.expect("it is called once")(cx);
        };
        // At once for the search for a deadlock: in between a task is counted that no worker can run.
        let mut started = Err(SpawnError::NurseryNotActive);
        core.rt().hand_over(|| {
            let nursery = Nursery { guest: Some(all), ..Nursery::of(core, None) };
            started = self.0.spawn_as(&nursery, all, |builder| builder, f);
        });
        drop(kept);
        started
    }
}
