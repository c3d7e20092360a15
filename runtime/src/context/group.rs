//! Contexts of a nursery and of a tenant: one task of the group has the context at a time. The one that was spawned first has it
//! first, and the next one when that task gives it up or ends.
//!
//! Conserved: see [`crate::protocol::fair_tasks::Group`]; the context is with one task of the group, or at rest.

use super::{ContextError, Group, SchedulingContext};
use crate::calls;
use crate::nursery::Nursery;
use crate::runtime::Runtime;

impl SchedulingContext {
    /// Binds it to a tenant: the tasks with this [`Schedule::process`](crate::Schedule::process), wherever they were spawned. It is
    /// given to the one that was spawned first of those that have had no context, now or as soon as there is one, and to the next
    /// when that one gives it up or ends. A task on another worker comes over if it may move or has not started. Only the host can:
    /// `runtime` proves that its caller is.
    ///
    /// ```
    /// use mainspring::{Budget, Caps, Config, FairTaskSettings, Profile, Reservation, Schedule};
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let settings = FairTaskSettings { contexts: 8, ..FairTaskSettings::default() };
    /// let caps = Caps::root(100, Budget::MAX, Budget::MAX, 10, 64).with_contexts(8, 500_000);
    /// let runtime = Config::new(Profile::Service).root_caps(caps).fair_by_task(settings).build()?;
    /// let context = runtime.create_context(Reservation::new(ms(2), ms(10)))?;
    /// context.bind_to_tenant(&runtime, 7)?;
    /// runtime.run(|cx| {
    ///     cx.nursery(|n| {
    ///         let of_tenant = || n.builder().schedule(Schedule { process: 7, ..Schedule::default() });
    ///         let first = of_tenant().spawn(|cx| cx.context().is_some()).unwrap();
    ///         assert!(first.join(cx).unwrap());
    ///         let next = of_tenant().spawn(|cx| cx.context().is_some()).unwrap();
    ///         assert!(next.join(cx).unwrap());
    ///     })
    ///     .unwrap();
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind_to_tenant(&self, runtime: &Runtime, tenant: u32) -> Result<(), ContextError> {
        calls::count_action();
        if !self.is_of(runtime.inner()) {
            return Err(ContextError::OtherRuntime);
        }
        self.bind_to_group(Group::Tenant(tenant))
    }

    /// It is the nursery's or the tenant's no longer: the task that has it keeps it, and no other is given it. False if it was bound
    /// to none.
    pub fn unbind_group(&self) -> Result<bool, ContextError> {
        calls::count_action();
        self.cores()?.unbind_group(self.who).ok_or(ContextError::NoContexts)
    }

    fn bind_to_group(&self, group: Group) -> Result<(), ContextError> {
        let bound = self.cores()?.bind_group(self.who, group, self.rt.now());
        let (bound, aftermath) = bound.ok_or(ContextError::NoContexts)?;
        self.rt.notify_contexts(&aftermath);
        Ok(bound?)
    }
}

impl Nursery<'_, '_> {
    /// Binds a context to the nursery: it is given to the child that was spawned first of those that have had no context, now or as
    /// soon as there is one, and to the next when that one gives it up or ends. A child on another worker comes over if it may move
    /// or has not started. When the nursery ends, the context is at rest. Tasks below the children have no part in it.
    pub fn bind_context(&self, context: &SchedulingContext) -> Result<(), ContextError> {
        calls::count_action();
        if !context.is_of(self.core().rt()) {
            return Err(ContextError::OtherRuntime);
        }
        context.bind_to_group(Group::Nursery(self.core().id))?;
        self.core().note_context();
        Ok(())
    }
}
