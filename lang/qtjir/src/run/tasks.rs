//! An open nursery of a task, and the children in it.

use super::account::Account;
use super::exec::Interp;
use super::fault::{Fault, Trap, task_fault};
use super::parcel::Parcel;
use super::program::TaskEnv;
use super::task::Interrupt;
use crate::ir::Type;
use mainspring::{
    Budget, Capacity, Caps, Cx, Handle, Nursery, NurseryError, Profile, Receiver, SpawnError, TaskError,
};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

/// A task to be started.
#[allow(missing_debug_implementations)]
pub struct Order {
    pub(super) function: usize,
    pub(super) args: Parcel,
    /// The types of the arguments: which capabilities are among them.
    pub(super) caps: Vec<Type>,
    pub(super) budget: Option<Budget>,
    pub(super) is_async: bool,
}

/// The nurseries that a task has open, from the innermost outwards. Handles name the nursery by its serial number.
#[allow(missing_docs)]
pub trait Nest {
    fn spawn(&self, cx: &Cx, order: Order) -> Result<u64, Interrupt>;
    fn join(&self, cx: &Cx, handle: u64) -> Result<Result<Parcel, i64>, Interrupt>;
    fn recharge(&self, cx: &Cx, handle: u64, ops: u32) -> Result<(), Trap>;
    fn cancel(&self, nursery: u64) -> Result<(), Trap>;
}

/// How the children of a nursery failed, by task.
#[derive(Clone, Debug)]
pub(super) struct Faults(Arc<Mutex<Vec<(u64, Fault)>>>);

pub(super) fn faults_of() -> Faults {
    Faults(Arc::default())
}

impl Faults {
    fn note(&self, cx: &Cx, fault: &Fault) {
        self.0.lock().expect("no panic while it is held").push((cx.id().0, fault.clone()));
    }

    /// How the child failed that failed the nursery.
    pub(super) fn of(&self, error: &NurseryError) -> Option<Fault> {
        let TaskError::Failed(_) = error.error else { return None };
        let task = error.task?;
        let noted = self.0.lock().expect("no panic while it is held");
        noted.iter().find(|(id, _)| *id == task.0).map(|(_, fault)| fault.clone())
    }
}

/// What a task's function came to: a copy of its value, the code of its error, or how it trapped.
type Ended = Result<Result<Parcel, i64>, Fault>;

enum Child<'scope> {
    Task(Handle<'scope, Parcel>),
    Async(Receiver<Result<Parcel, i64>>),
}

pub(super) struct TaskNest<'scope, 'env, 'o> {
    nursery: &'scope Nursery<'scope, 'env>,
    env: TaskEnv<'env>,
    serial: u32,
    outer: Option<&'o dyn Nest>,
    children: RefCell<Vec<Option<Child<'scope>>>>,
    faults: Faults,
}

impl<'scope, 'env, 'o> TaskNest<'scope, 'env, 'o> {
    pub(super) fn new(
        nursery: &'scope Nursery<'scope, 'env>,
        env: TaskEnv<'env>,
        serial: u32,
        outer: Option<&'o dyn Nest>,
        faults: Faults,
    ) -> Self {
        Self { nursery, env, serial, outer, children: RefCell::default(), faults }
    }

    /// What the child may do: in a sovereign program the capabilities that it is given, and no more.
    fn caps(&self, cx: &Cx, given: &[Type]) -> Option<Caps> {
        if self.env.program.module().profile != Profile::Sovereign {
            return None;
        }
        let mut caps = cx.caps();
        if !given.contains(&Type::CapSpawn) {
            caps = caps.without_spawn();
        }
        if !given.contains(&Type::CapBudget) {
            caps = caps.without_budget();
        }
        Some(caps)
    }

    fn start(
        &self,
        cx: &Cx,
        order: Order,
        body: impl FnOnce(&Cx, Ended) -> Result<Parcel, Fault> + Send + 'scope,
    ) -> Result<Handle<'scope, Parcel>, SpawnError> {
        let Order { function, args, caps, budget, is_async: _ } = order;
        let (env, faults) = (self.env, self.faults.clone());
        let mut builder = self.nursery.builder();
        if let Some(caps) = self.caps(cx, &caps) {
            builder = builder.caps(caps);
        }
        builder = match budget {
            Some(budget) => builder.budget(budget),
            // A child that spawns needs something to pay its children with.
            None if env.program.spawns[function] => builder.pool(self.nursery.pool().part(4)),
            None => builder,
        };
        builder.spawn_try(move |cx| {
            let ended = Interp::new(env, Account::Task(cx)).run_task(function, args);
            body(cx, ended).inspect_err(|fault| faults.note(cx, fault))
        })
    }
}

impl Nest for TaskNest<'_, '_, '_> {
    fn spawn(&self, cx: &Cx, order: Order) -> Result<u64, Interrupt> {
        let (program, function) = (self.env.program, order.function);
        let child = if order.is_async {
            let (sender, receiver) = cx.channel(Capacity::Bounded(1)).map_err(Trap::Channel)?;
            let handle = self.start(cx, order, move |cx, ended| {
                // If no task waits for the result, the send fails and the result is dropped.
                let _ = sender.send(cx, ended?);
                Ok(Parcel::default())
            });
            // The result comes through the channel.
            handle.map(|_| Child::Async(receiver))
        } else {
            let body = move |_: &Cx, ended: Ended| ended?.map_err(|code| program.error(function, code));
            self.start(cx, order, body).map(Child::Task)
        };
        let child = child.map_err(|error| match error {
            // A child has failed, or the nursery was cancelled: the owner leaves it here, and not when it is told.
            SpawnError::NurseryNotActive => {
                Interrupt::ChildFailed(self.serial, task_fault(&TaskError::Cancelled))
            }
            error => Interrupt::Trap(Trap::Spawn(error)),
        })?;
        let mut children = self.children.borrow_mut();
        children.push(Some(child));
        Ok(u64::from(self.serial) << 32 | (children.len() as u64 - 1))
    }

    fn join(&self, cx: &Cx, handle: u64) -> Result<Result<Parcel, i64>, Interrupt> {
        if handle >> 32 != self.serial.into() {
            return self.outer.ok_or(Trap::StaleHandle)?.join(cx, handle);
        }
        let at = handle as u32 as usize;
        let child = self.children.borrow_mut().get_mut(at).and_then(Option::take);
        let error = match child.ok_or(Trap::AwaitedTwice)? {
            Child::Task(task) => match task.join(cx) {
                Ok(parcel) => return Ok(Ok(parcel)),
                Err(error) => task_fault(&error),
            },
            Child::Async(receiver) => match receiver.recv(cx) {
                Ok(result) => return Ok(result),
                Err(refused) => {
                    let error = TaskError::Failed(refused.into());
                    task_fault(&error)
                }
            },
        };
        // The child's failure is its nursery's, which ends the owner's stay in it: here, and not when the owner is told.
        Err(Interrupt::ChildFailed(self.serial, error))
    }

    fn recharge(&self, cx: &Cx, handle: u64, ops: u32) -> Result<(), Trap> {
        if handle >> 32 != self.serial.into() {
            return self.outer.ok_or(Trap::StaleHandle)?.recharge(cx, handle, ops);
        }
        let children = self.children.borrow();
        match children.get(handle as u32 as usize) {
            Some(Some(Child::Task(task))) => {
                let amount = Budget { ops, ..Budget::ZERO };
                self.nursery.supervise(cx, task, amount).map_err(Trap::Recharge)
            }
            _ => Err(Trap::AwaitedTwice),
        }
    }

    fn cancel(&self, nursery: u64) -> Result<(), Trap> {
        if nursery == self.serial.into() {
            self.nursery.cancel();
            return Ok(());
        }
        self.outer.ok_or(Trap::StaleHandle)?.cancel(nursery)
    }
}
