//! A nursery whose scope the compiler cannot see: for other languages, which open it in one call and end it in another.
//!
//! Conserved: as for a nursery that is a closure's scope. The caller promises what the closure would guarantee.
#![allow(unsafe_code)]

use super::core::NurseryCore;
use super::scope::{
    Source, conclude, conclude_host, enter, enter_host, found_by_host, found_by_task, leave, leave_host,
};
use super::{Nursery, NurseryError, NurseryOptions};
use crate::calls;
use crate::cx::Cx;
use crate::error::TaskError;
use crate::runtime::Runtime;
use crate::stop::Stop;
use crate::task::TaskPtr;
use crate::time::timers::TimerKey;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A nursery that is open until [`OpenNursery::end`].
pub struct OpenNursery {
    core: Arc<NurseryCore>,
    /// The task that opened it, and where the pool came from; none for an ordinary thread.
    owner: Option<(TaskPtr, Source)>,
    deadline: Option<TimerKey>,
    _of_its_owner: PhantomData<*const ()>,
}

impl fmt::Debug for OpenNursery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nursery().fmt(f)
    }
}

/// Cancels a nursery from any thread, for as long as it is open.
#[derive(Clone)]
pub struct Canceller(Arc<NurseryCore>);

// SAFETY: a nursery is cancelled from any thread, under its lock; one that is over has nothing to interrupt.
unsafe impl Send for Canceller {}
// SAFETY: as above.
unsafe impl Sync for Canceller {}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Canceller")
    }
}

impl Canceller {
    /// Tells all children to stop. False if the nursery is over already.
    pub fn cancel(&self) -> bool {
        calls::count_costly_action();
        self.0.cancel(None)
    }

    /// Fails the nursery, with what its owner does inside of it.
    pub(crate) fn fail(&self, error: TaskError) {
        self.0.cancel(Some(error));
    }

    pub(super) fn of(core: &Arc<NurseryCore>) -> Self {
        Self(core.clone())
    }
}

/// Other threads get at it by a [`Canceller`] alone, which is why the type itself need not be `Send`.
#[allow(clippy::arc_with_non_send_sync)]
pub(super) fn shared(core: NurseryCore) -> Arc<NurseryCore> {
    Arc::new(core)
}

impl Cx {
    /// Opens a nursery that no closure encloses.
    ///
    /// # Safety
    ///
    /// The task calls [`OpenNursery::end`] before its own closure returns or unwinds. Its nurseries end in the reverse order of
    /// their beginnings. What children borrow lives until then, and so long only are their handles used.
    pub unsafe fn open_nursery(&self, options: NurseryOptions) -> Result<OpenNursery, NurseryError> {
        calls::count(self);
        let (core, source) = found_by_task(self, &options)?;
        let core = shared(core);
        let deadline = enter(self, &core, &options);
        Ok(OpenNursery { core, owner: Some((self.task_ptr(), source)), deadline, _of_its_owner: PhantomData })
    }
}

impl Runtime {
    /// As [`Cx::open_nursery`], from an ordinary thread.
    ///
    /// # Safety
    ///
    /// As for [`Cx::open_nursery`], and the runtime lives until the nursery has ended.
    pub unsafe fn open_nursery(&self, options: NurseryOptions) -> Result<OpenNursery, NurseryError> {
        calls::count_costly_action();
        self.open_as_host(options, false)
    }

    /// A nursery for [`Runtime::spawn_root`], as [`Runtime::run`] has one.
    ///
    /// # Safety
    ///
    /// As for [`Runtime::open_nursery`].
    pub unsafe fn open_run(&self) -> Result<OpenNursery, NurseryError> {
        calls::count_costly_action();
        self.open_as_host(Self::run_options(), true)
    }

    fn open_as_host(&self, options: NurseryOptions, is_run: bool) -> Result<OpenNursery, NurseryError> {
        let core = shared(found_by_host(self.inner(), &options, is_run)?);
        let deadline = enter_host(self.inner(), &core, &options);
        Ok(OpenNursery { core, owner: None, deadline, _of_its_owner: PhantomData })
    }
}

impl OpenNursery {
    /// The nursery, to spawn into. It and the handles that it gives are used only until the end, as the opener has promised.
    pub fn nursery(&self) -> Nursery<'static, 'static> {
        // SAFETY: the core lives until the end, and who opened the nursery promised to use this no longer.
        let core: &'static NurseryCore = unsafe { &*Arc::as_ptr(&self.core) };
        Nursery::of(core, self.owner.map(|(task, _)| task))
    }

    /// What cancels it from elsewhere.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.core.clone())
    }

    /// Waits for the children and ends the nursery. `body` is what stopped the code inside, if anything did: then the children
    /// are cancelled. An outer error is what the task has to stop for.
    ///
    /// # Panics
    ///
    /// If a task opened the nursery and `cx` is not its own.
    pub fn end(self, cx: Option<&Cx>, body: Option<Stop>) -> Result<Result<(), NurseryError>, Stop> {
        let Self { core, owner, deadline, .. } = self;
        if body.is_some() {
            core.cancel(None);
        }
        let body = body.map_or(Ok(()), |stop| Err(stop.into_payload()));
        let Some((owner, source)) = owner else {
            leave_host(core.rt(), &core, deadline);
            return conclude_host(core.rt(), &core, body).map_err(Stop::of);
        };
        let cx = cx.filter(|cx| cx.task_ptr() == owner).expect("a task ends its own nurseries");
        leave(cx, &core, deadline);
        let ended = conclude(cx, &core, body, source).map_err(Stop::of)?;
        Stop::catch(|| cx.acknowledge())?;
        Ok(ended)
    }
}
