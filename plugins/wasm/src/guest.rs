//! An instance of a plugin in one task.
//!
//! Conserved: a guest runs only inside of a call of its task, and everything that it uses is charged to that task before the call
//! returns.

use crate::error::GuestError;
use crate::import::{Answer, HostCall, Imports, MOST_BYTES, Mailbox, Request, Why};
use crate::plugin::{Meter, Plugin};
use crate::rate::Rate;
use mainspring::{Component, Cx};
use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wasmtime::{
    AsContext, AsContextMut, Caller, Extern, FuncType, Instance, Linker, ResourceLimiterAsync, Store, Trap,
    Val, ValType,
};

/// After so many instructions a guest that counts ops pays.
const QUANTUM: u64 = 4096;

/// What a guest may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory. What it has is charged to its task's budget too. A guest that asks for more is told that there is no more.
    pub memory_bytes: usize,
    /// Elements of its tables together.
    pub table_elements: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 16 << 20, table_elements: 10_000 }
    }
}

/// What a guest has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Instructions that were charged as ops. None under [`Meter::Time`].
    pub ops: u64,
    /// CPU time of its own code, by the clock of the worker's thread. What its imports do is the host's.
    pub time: Duration,
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Calls of imports.
    pub imports: u64,
    /// How often it went back to its task to pay or to look up.
    pub looks: u64,
}

/// What the store of a guest holds.
struct State {
    mailbox: Mailbox,
    limits: Limits,
    memory_bytes: usize,
    table_elements: usize,
}

#[async_trait::async_trait]
impl ResourceLimiterAsync for State {
    async fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        if self.memory_bytes.saturating_add(more) > self.limits.memory_bytes {
            return Ok(false);
        }
        match self.mailbox.ask(Request::Memory(more)).await {
            Answer::Granted(true) => {
                self.memory_bytes += more;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        let fits = self.table_elements.saturating_add(more) <= self.limits.table_elements;
        self.table_elements += if fits { more } else { 0 };
        Ok(fits)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        8
    }

    fn memories(&self) -> usize {
        1
    }
}

/// A plugin in a task: its memory, and what it may call.
pub struct Guest<'p, 'h> {
    store: Store<State>,
    instance: Instance,
    driver: Driver<'p, 'h>,
    over: bool,
}

impl std::fmt::Debug for Guest<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest")
            .field("used", &self.driver.used)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

impl<'p, 'h> Guest<'p, 'h> {
    /// Makes an instance, and runs what the module runs at its start, in the task of `cx`. With a rate, the guest waits when it is
    /// used up.
    pub fn new(
        cx: &Cx,
        plugin: &Plugin,
        imports: &'p Imports<'h>,
        limits: Limits,
        rate: Option<Rate>,
    ) -> Result<Self, GuestError> {
        let mailbox = Mailbox::default();
        let state = State { mailbox: mailbox.clone(), limits, memory_bytes: 0, table_elements: 0 };
        let mut store = Store::new(plugin.module.engine(), state);
        store.limiter_async(|state| state);
        let failed = |error: wasmtime::Error| GuestError::Trapped(format!("{error:#}"));
        match plugin.meter {
            Meter::Ops => {
                store.set_fuel(u64::MAX).map_err(failed)?;
                store.fuel_async_yield_interval(Some(QUANTUM)).map_err(failed)?;
            }
            Meter::Time => {
                store.set_epoch_deadline(1);
                store.epoch_deadline_async_yield_and_update(1);
            }
        }
        let linker = linker(plugin, imports)?;
        let mut driver =
            Driver { mailbox, imports, meter: plugin.meter, rate, used: Used::default(), paid: 0 };
        let made = driver.drive(cx, linker.instantiate_async(&mut store, &plugin.module));
        driver.settle(cx, &store);
        let instance = made.map_err(|error| driver.why(&error))?;
        driver.used.memory_bytes = store.data().memory_bytes;
        Ok(Self { store, instance, driver, over: false })
    }

    /// Calls an export that takes and gives `i64`s and `i32`s. A guest that ends with an error is over.
    pub fn call(&mut self, cx: &Cx, name: &str, args: &[i64]) -> Result<Vec<i64>, GuestError> {
        if self.over {
            return Err(GuestError::Over);
        }
        let function = self.instance.get_func(&mut self.store, name);
        let function = function.ok_or_else(|| GuestError::NoFunction(name.to_owned()))?;
        let of = function.ty(&self.store);
        let params: Option<Vec<Val>> = of.params().zip(args).map(|(of, arg)| value(&of, *arg)).collect();
        let wrong = || GuestError::NoFunction(name.to_owned());
        let params = params.filter(|params| params.len() == args.len() && of.params().len() == args.len());
        let params = params.ok_or_else(wrong)?;
        let plain = |of: ValType| matches!(of, ValType::I32 | ValType::I64);
        if !of.results().all(plain) {
            return Err(wrong());
        }
        let mut results = vec![Val::I64(0); of.results().len()];
        // A task that is unwound in the middle leaves a guest that is over.
        self.over = true;
        let came = self.driver.drive(cx, function.call_async(&mut self.store, &params, &mut results));
        self.driver.settle(cx, &self.store);
        self.driver.used.memory_bytes = self.store.data().memory_bytes;
        came.map_err(|error| self.driver.why(&error))?;
        self.over = false;
        Ok(results.iter().map(|value| value.i64().or(value.i32().map(i64::from)).unwrap_or(0)).collect())
    }

    /// What it has used so far.
    pub fn used(&self) -> Used {
        self.driver.used
    }
}

fn value(of: &ValType, number: i64) -> Option<Val> {
    match of {
        ValType::I64 => Some(Val::I64(number)),
        ValType::I32 => i32::try_from(number).ok().map(Val::I32),
        _ => None,
    }
}

/// What the module imports, as far as it was granted.
fn linker(plugin: &Plugin, imports: &Imports<'_>) -> Result<Linker<State>, GuestError> {
    let engine = plugin.module.engine();
    let mut linker = Linker::new(engine);
    for (number, ((module, name), import)) in imports.all.iter().enumerate() {
        let params = match import.params {
            Some(count) => vec![ValType::I64; count],
            None => vec![ValType::I32; 4],
        };
        let of = FuncType::new(engine, params, [ValType::I64]);
        let takes_bytes = import.params.is_none();
        let added = linker.func_new_async(module, name, of, move |caller, params, results| {
            Box::new(async move {
                results[0] = Val::I64(asked(caller, params, number, takes_bytes).await?);
                Ok(())
            })
        });
        added.map_err(|error| GuestError::NotGranted(format!("{error:#}")))?;
    }
    Ok(linker)
}

/// A call of an import, on the guest's side.
async fn asked(
    mut caller: Caller<'_, State>,
    params: &[Val],
    number: usize,
    takes_bytes: bool,
) -> wasmtime::Result<i64> {
    let mailbox = caller.data().mailbox.clone();
    let mut call = HostCall::default();
    let mut room = 0..0;
    if takes_bytes {
        // Lengths and addresses are unsigned.
        let [at, len, to, most] = [0, 1, 2, 3].map(|at| params[at].i32().unwrap_or(0) as u32 as usize);
        let memory = caller.get_export("memory").and_then(Extern::into_memory);
        let memory = memory.ok_or_else(|| wasmtime::Error::msg("it exports no `memory`"))?;
        let all = memory.data(caller.as_context());
        let given = at.checked_add(len).and_then(|end| all.get(at..end)).filter(|_| len <= MOST_BYTES);
        let end = to.checked_add(most).filter(|end| *end <= all.len());
        let (Some(given), Some(end)) = (given, end) else { return Err(Trap::MemoryOutOfBounds.into()) };
        call.bytes = given.to_vec();
        room = to..end.min(to + MOST_BYTES);
    } else {
        call.args = params.iter().map(|value| value.i64().unwrap_or(0)).collect();
    }
    match mailbox.ask(Request::Call(number, call)).await {
        Answer::Value(value, reply) => {
            if let Some(memory) = caller.get_export("memory").and_then(Extern::into_memory)
                && !room.is_empty()
            {
                let count = reply.len().min(room.len());
                memory.data_mut(caller.as_context_mut())[room.start..room.start + count]
                    .copy_from_slice(&reply[..count]);
            }
            Ok(value)
        }
        _ => Err(wasmtime::Error::msg("its task ended it")),
    }
}

/// The task's side of a guest.
struct Driver<'p, 'h> {
    mailbox: Mailbox,
    imports: &'p Imports<'h>,
    meter: Meter,
    rate: Option<Rate>,
    used: Used,
    /// Instructions that were paid for.
    paid: u64,
}

impl Driver<'_, '_> {
    /// Runs the guest until it is done. Whenever it comes back, the task answers it, pays, or looks up; all of these may unwind the
    /// task, and the guest with it.
    fn drive<R>(&mut self, cx: &Cx, guest: impl Future<Output = wasmtime::Result<R>>) -> wasmtime::Result<R> {
        let mut guest = pin!(guest);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Some(rate) = &self.rate {
                rate.wait(cx);
            }
            let began = cpu_time();
            let polled = guest.as_mut().poll(&mut context);
            self.charge_time(began);
            if let Poll::Ready(done) = polled {
                return done;
            }
            let request = self.mailbox.open().request.take();
            match request {
                Some(request) => {
                    let answer = self.answer(cx, request);
                    self.mailbox.open().answer = Some(answer);
                }
                None => {
                    self.used.looks += 1;
                    match self.meter {
                        Meter::Ops => self.pay(cx, QUANTUM),
                        Meter::Time => cx.look_up(),
                    }
                }
            }
        }
    }

    fn charge_time(&mut self, began: Duration) {
        let used = cpu_time().saturating_sub(began);
        self.used.time += used;
        if let Some(rate) = &self.rate {
            rate.charge(used);
        }
    }

    fn pay(&mut self, cx: &Cx, ops: u64) {
        self.paid += ops;
        self.used.ops += ops;
        cx.check_iterations(u32::try_from(ops).unwrap_or(u32::MAX));
    }

    /// Pays for what the guest has used since it last came back.
    fn settle(&mut self, cx: &Cx, store: &Store<State>) {
        if let Ok(left) = store.get_fuel() {
            let burnt = u64::MAX - left;
            let more = burnt.saturating_sub(self.paid);
            self.pay(cx, more);
        }
    }

    fn answer(&mut self, cx: &Cx, request: Request) -> Answer {
        let why = match request {
            Request::Memory(bytes) => match cx.charge_alloc(bytes) {
                Ok(()) => return Answer::Granted(true),
                // It is told that there is no more, as WebAssembly has it.
                Err(_) => return Answer::Granted(false),
            },
            Request::Call(number, mut call) => match cx.pay(Component::Syscalls) {
                Err(error) => Why::Budget(error),
                Ok(()) => {
                    self.used.imports += 1;
                    let import = self.imports.all.values().nth(number).expect("the linker has numbered them");
                    match (import.act)(cx, &mut call) {
                        Ok(value) => return Answer::Value(value, call.reply),
                        Err(error) => Why::Import(error),
                    }
                }
            },
        };
        self.mailbox.open().why = Some(why);
        Answer::Ends
    }

    fn why(&self, error: &wasmtime::Error) -> GuestError {
        match self.mailbox.open().why.take() {
            Some(Why::Import(error)) => return GuestError::Import(error.0),
            Some(Why::Budget(error)) => return GuestError::Budget(error),
            None => {}
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::StackOverflow) => GuestError::StackOverflow,
            Some(trap) => GuestError::Trapped(trap.to_string()),
            None if error.to_string().contains("import") => GuestError::NotGranted(format!("{error:#}")),
            None => GuestError::Trapped(format!("{error:#}")),
        }
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
