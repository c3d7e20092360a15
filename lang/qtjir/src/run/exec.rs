//! One task's execution, instruction by instruction.

use super::account::Account;
use super::arith::{binary, unary};
use super::fault::{Fault, FaultKind, Trap, task_fault};
use super::parcel::{Channel, Heap, Parcel};
use super::program::{NativeCall, TaskEnv};
use super::tasks::{Nest, Order, TaskNest, faults_of};
use crate::ir::{Function, Instr, Op, Pos, Terminator, Type, Value, error_code};
use mainspring::{Budget, Capacity, Refusal};
use std::sync::atomic::Ordering;

/// Words of stack that the frames of one task may take: a frame takes one for each value of its function, and
/// [`FRAME_OVERHEAD_WORDS`].
pub const STACK_WORDS: usize = 1 << 16;
/// What a frame takes besides its values.
pub const FRAME_OVERHEAD_WORDS: usize = 16;
/// Nurseries that a task may have open, one inside the other. Each takes some of the task's real stack.
const MAX_OPEN_NURSERIES: u32 = 16;
/// The largest buffer of a channel.
const MAX_CAPACITY: i64 = 1 << 16;
/// The largest object, in words.
const MAX_WORDS: i64 = 1 << 40;

/// What a function came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    Value(Option<u64>),
    Error(i64),
}

/// Why a run of the interpreter's loop ended.
enum Exit {
    /// The frame that it began with is done.
    Returned(Returned),
    /// The nursery that it runs the inside of is to be closed.
    NurseryEnds,
    /// A child of the nursery with this number was awaited, and has failed: with it the nursery fails.
    ChildFailed(u32, Fault),
}

struct Frame {
    function: usize,
    block: usize,
    at: usize,
    values: Vec<u64>,
}

/// A task's execution.
pub(super) struct Interp<'e, 'c> {
    env: TaskEnv<'e>,
    account: Account<'c>,
    heap: Heap,
    frames: Vec<Frame>,
    stack_words: usize,
    /// Ops that were counted and not yet paid for.
    pending: u64,
    /// Ops that were charged in all.
    ops: u64,
    /// How often it looked up.
    looks: u64,
    interval: u32,
    next_nursery: u32,
    open_nurseries: u32,
    /// How the child ended whose error the program saw last.
    last_child: Option<Fault>,
}

impl Drop for Interp<'_, '_> {
    fn drop(&mut self) {
        self.env.charged.fetch_add(self.ops, Ordering::Relaxed);
    }
}

impl<'e, 'c> Interp<'e, 'c> {
    pub(super) fn new(env: TaskEnv<'e>, account: Account<'c>) -> Self {
        Self {
            env,
            account,
            heap: Heap::default(),
            frames: Vec::new(),
            stack_words: STACK_WORDS,
            pending: 0,
            ops: 0,
            looks: 0,
            interval: env.program.module().interval(),
            next_nursery: 0,
            open_nurseries: 0,
            last_child: None,
        }
    }

    pub(super) fn ops(&self) -> u64 {
        self.ops
    }

    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Runs a function, and pays for what it did.
    pub(super) fn run_function(&mut self, function: usize, args: Vec<u64>) -> Result<Returned, Fault> {
        let here =
            |trap| self.env.program.trap(function, self.env.program.module().functions[function].pos, trap);
        let returned = if self.is_native(function) {
            let stack_words = self.words_below(function).map_err(here)?;
            self.call_native(function, &args, stack_words)?
        } else {
            self.push_frame(function, args).map_err(here)?;
            match self.run(1, None)? {
                Exit::Returned(returned) => returned,
                Exit::NurseryEnds | Exit::ChildFailed(..) => {
                    unreachable!("the verifier matches the ends of nurseries")
                }
            }
        };
        self.settle().map_err(|trap| {
            self.env.program.trap(function, self.env.program.module().functions[function].pos, trap)
        })?;
        Ok(returned)
    }

    /// Takes over the arguments of a task and runs its function. Gives a copy of the result that the task has paid for.
    pub(super) fn run_task(&mut self, function: usize, args: Parcel) -> Result<Result<Parcel, i64>, Fault> {
        let module = self.env.program.module();
        let body = &module.functions[function];
        let args = self.heap.unpack(module, args, &body.params());
        match self.run_function(function, args)? {
            Returned::Error(code) => Ok(Err(code)),
            Returned::Value(value) => {
                let values: Vec<_> = value.map(|word| (word, body.result.clone())).into_iter().collect();
                let packed =
                    self.pack(&values).map_err(|trap| self.env.program.trap(function, body.pos, trap))?;
                Ok(Ok(packed))
            }
        }
    }

    fn function(&self) -> &'e Function {
        &self.env.program.module().functions[self.frames.last().expect("it runs").function]
    }

    fn get(&self, value: Value) -> u64 {
        self.frames.last().expect("it runs").values[value.0 as usize]
    }

    fn int(&self, value: Value) -> i64 {
        self.get(value) as i64
    }

    fn set(&mut self, value: Value, word: u64) {
        self.frames.last_mut().expect("it runs").values[value.0 as usize] = word;
    }

    fn push_frame(&mut self, function: usize, args: Vec<u64>) -> Result<(), Trap> {
        let body = &self.env.program.module().functions[function];
        self.stack_words = self.words_below(function)?;
        let mut values = vec![0; body.values.len()];
        for (param, word) in body.blocks[0].params.iter().zip(args) {
            values[param.0 as usize] = word;
        }
        self.frames.push(Frame { function, block: 0, at: 0, values });
        Ok(())
    }

    /// Words of stack that are left when the function has its frame.
    fn words_below(&self, function: usize) -> Result<usize, Trap> {
        let words = self.env.program.module().functions[function].values.len() + FRAME_OVERHEAD_WORDS;
        self.stack_words.checked_sub(words).ok_or(Trap::StackOverflow)
    }

    fn pop_frame(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.stack_words += frame.values.len() + FRAME_OVERHEAD_WORDS;
        }
    }

    /// Pays for what was counted.
    fn settle(&mut self) -> Result<(), Trap> {
        // Before the payment, which may unwind: what it pays for must not be paid for again.
        match std::mem::take(&mut self.pending) {
            0 => Ok(()),
            pending => {
                self.looks += 1;
                self.account.pay(u32::try_from(pending).unwrap_or(u32::MAX))
            }
        }
    }

    fn is_native(&self, function: usize) -> bool {
        self.env.program.native.as_ref().is_some_and(|native| native.has(function))
    }

    fn call_native(&mut self, function: usize, args: &[u64], stack_words: usize) -> Result<Returned, Fault> {
        let native = self.env.program.native.as_ref().expect("it has the function");
        let call = NativeCall {
            args,
            heap: &mut self.heap.words,
            account: &mut self.account,
            pending: &mut self.pending,
            ops: &mut self.ops,
            looks: &mut self.looks,
            stack_words,
            output: self.env.output,
        };
        let (value, code) = native.call(function, call)?;
        let body = &self.env.program.module().functions[function];
        Ok(match code {
            0 => Returned::Value((body.result != Type::Unit).then_some(value)),
            code => Returned::Error(code),
        })
    }

    /// Runs until the frame at `floor - 1` is done, or the innermost nursery of that frame ends.
    fn run(&mut self, floor: usize, nest: Option<&dyn Nest>) -> Result<Exit, Fault> {
        loop {
            let function = self.function();
            let frame = self.frames.last().expect("it runs");
            let block = &function.blocks[frame.block];
            let Some(instr) = block.instrs.get(frame.at) else {
                match self.end(&block.end, block.end_pos)? {
                    Some(returned) if self.frames.len() == floor - 1 => return Ok(Exit::Returned(returned)),
                    Some(returned) => self.resume(returned),
                    None => {}
                }
                continue;
            };
            if matches!(instr.op, Op::NurseryEnd(_)) {
                return Ok(Exit::NurseryEnds);
            }
            if matches!(instr.op, Op::NurseryBegin) {
                match self.nursery(instr, nest)? {
                    None => continue,
                    Some((serial, fault)) => return Ok(Exit::ChildFailed(serial, fault)),
                }
            }
            let stepped = self.step(instr, nest);
            match stepped {
                Ok(true) => self.frames.last_mut().expect("it runs").at += 1,
                Ok(false) => {}
                Err(Stop::Trap(trap)) => return Err(self.trap(instr.pos, trap)),
                Err(Stop::Fault(fault)) => return Err(fault),
                Err(Stop::ChildFailed(serial, fault)) => return Ok(Exit::ChildFailed(serial, fault)),
            }
        }
    }

    fn trap(&self, pos: Pos, trap: Trap) -> Fault {
        let function = self.frames.last().map_or(0, |frame| frame.function);
        self.env.program.trap(function, pos, trap)
    }

    /// Ends a block. Says what the function came to if that ends it, and leaves its frame.
    fn end(&mut self, end: &'e Terminator, pos: Pos) -> Result<Option<Returned>, Fault> {
        let target = match end {
            Terminator::Jump(to) => to,
            Terminator::Branch(condition, yes, no) => {
                if self.get(*condition) != 0 {
                    yes
                } else {
                    no
                }
            }
            Terminator::Return(value) => {
                let value = value.map(|value| self.get(value));
                self.pop_frame();
                return Ok(Some(Returned::Value(value)));
            }
            Terminator::Fail(code) => {
                let code = self.int(*code);
                let is_unit = self.function().result == Type::Unit;
                self.pop_frame();
                // An error whose code is zero is none.
                return Ok(Some(if code == 0 {
                    Returned::Value((!is_unit).then_some(0))
                } else {
                    Returned::Error(code)
                }));
            }
            Terminator::Raise(code) => {
                let code = self.int(*code);
                let name = self.env.program.module().error_name(code).to_owned();
                let cause = self.last_child.take().map(Box::new);
                let kind = FaultKind::Unhandled { code, name, cause };
                return Err(Fault { kind, pos, function: self.function().name.clone() });
            }
        };
        let words: Vec<u64> = target.args.iter().map(|value| self.get(*value)).collect();
        let params = &self.function().blocks[target.block.0 as usize].params;
        let frame = self.frames.last_mut().expect("it runs");
        for (param, word) in params.iter().zip(words) {
            frame.values[param.0 as usize] = word;
        }
        frame.block = target.block.0 as usize;
        frame.at = 0;
        Ok(None)
    }

    /// Goes on in the caller, which stands at its call.
    fn resume(&mut self, returned: Returned) {
        let function = self.function();
        let frame = self.frames.last().expect("it runs");
        let instr = &function.blocks[frame.block].instrs[frame.at];
        self.set_results(instr, returned);
        self.frames.last_mut().expect("it runs").at += 1;
    }

    /// The results of a call: its value, if there is one, and the code of its error, if it can fail.
    fn set_results(&mut self, instr: &Instr, returned: Returned) {
        let (word, code) = match returned {
            Returned::Value(word) => (word.unwrap_or(0), 0),
            Returned::Error(code) => (0, code),
        };
        let words = [word, code as u64];
        // A function that gives nothing and can fail has its code as the only result.
        let skipped = usize::from(self.gives_nothing(&instr.op));
        for (result, word) in instr.results.iter().zip(&words[skipped..]) {
            self.set(*result, *word);
        }
    }

    fn gives_nothing(&self, op: &Op) -> bool {
        let program = self.env.program;
        match op {
            Op::Call(name, _) => program.module().functions[program.by_name[name]].result == Type::Unit,
            Op::Await(task) | Op::TaskJoin(task) => match self.function().type_of(*task) {
                Type::Task(result) | Type::Future { result, .. } => **result == Type::Unit,
                _ => false,
            },
            _ => false,
        }
    }

    /// Opens a nursery, runs its inside, and closes it. Says which nursery further out has failed, if that is what ended it.
    fn nursery(&mut self, begin: &'e Instr, outer: Option<&dyn Nest>) -> Result<Option<(u32, Fault)>, Fault> {
        let stop = |this: &Self, trap| this.trap(begin.pos, trap);
        let cx = self.account.cx().map_err(|trap| stop(self, trap))?;
        self.settle().map_err(|trap| stop(self, trap))?;
        if self.open_nurseries >= MAX_OPEN_NURSERIES {
            return Err(stop(self, Trap::StackOverflow));
        }
        let depth = self.frames.len();
        let function = self.frames[depth - 1].function;
        self.next_nursery += 1;
        let serial = self.next_nursery;
        self.set(begin.results[0], serial.into());
        self.frames[depth - 1].at += 1;
        self.open_nurseries += 1;
        let faults = faults_of();
        let (mut own_fault, mut awaited) = (None, None);
        let ended = {
            let (env, faults, this) = (self.env, &faults, &mut *self);
            cx.nursery(|nursery| {
                let nest = TaskNest::new(nursery, env, serial, outer, faults.clone());
                match this.run(depth, Some(&nest)) {
                    Ok(Exit::ChildFailed(of, fault)) => {
                        awaited = Some((of, fault));
                        if of != serial {
                            nursery.cancel();
                        }
                    }
                    Ok(_) => {}
                    Err(fault) => {
                        own_fault = Some(fault);
                        nursery.cancel();
                    }
                }
            })
        };
        self.open_nurseries -= 1;
        if let Some(fault) = own_fault {
            return Err(fault);
        }
        let code = match (ended, awaited) {
            (_, Some((of, fault))) if of != serial => return Ok(Some((of, fault))),
            (Ok(()), Some((_, fault))) => return Err(fault),
            (Ok(()), None) => 0,
            (Err(error), _) => {
                // The nursery's failure may have interrupted its inside anywhere.
                while self.frames.len() > depth {
                    self.pop_frame();
                }
                let fault = faults.of(&error).unwrap_or_else(|| task_fault(&error.error));
                let code = fault.code();
                self.last_child = Some(fault);
                code
            }
        };
        let (block, at) = self.env.program.nursery_ends[&(function, begin.results[0])];
        let result = self.function().blocks[block].instrs[at].results[0];
        self.set(result, code as u64);
        let frame = &mut self.frames[depth - 1];
        (frame.block, frame.at) = (block, at + 1);
        Ok(None)
    }

    /// Executes an instruction. False if it is a call that has begun.
    fn step(&mut self, instr: &'e Instr, nest: Option<&dyn Nest>) -> Result<bool, Stop> {
        match &instr.op {
            Op::Int(value) => self.set(instr.results[0], *value as u64),
            Op::Float(value) => self.set(instr.results[0], value.to_bits()),
            Op::Bool(value) => self.set(instr.results[0], (*value).into()),
            Op::Binary(op, a, b) => {
                let word = binary(*op, self.function().type_of(*a), self.get(*a), self.get(*b))?;
                self.set(instr.results[0], word);
            }
            Op::Unary(op, a) => {
                let word = unary(*op, self.function().type_of(*a), self.get(*a))?;
                self.set(instr.results[0], word);
            }
            Op::Call(name, args) => return self.call(instr, name, args),
            Op::BudgetCheck => {
                if self.pending >= u64::from(self.interval) {
                    self.settle()?;
                }
            }
            Op::BudgetDecrement(cost) => self.count(self.int(*cost)),
            Op::SliceNew(..)
            | Op::Len(_)
            | Op::Load(..)
            | Op::Store(..)
            | Op::StructNew(..)
            | Op::Field(..)
            | Op::SetField(..) => self.memory(instr)?,
            Op::Print(value) => {
                let word = self.get(*value);
                let text = match self.function().type_of(*value) {
                    Type::F64 => format!("{:?}", f64::from_bits(word)),
                    Type::Bool => (word != 0).to_string(),
                    _ => (word as i64).to_string(),
                };
                self.print(&text)?;
            }
            Op::PrintText(text) => self.print(text)?,
            Op::ChannelNew(..) | Op::Send(..) | Op::Recv(_) | Op::Close(_) => self.channel(instr)?,
            _ => self.schedule(instr, nest)?,
        }
        Ok(true)
    }

    fn count(&mut self, cost: i64) {
        // A negative cost counts as 0: no task is paid for work.
        let cost = u64::from(u32::try_from(cost.max(0)).unwrap_or(u32::MAX));
        self.pending += cost;
        self.ops += cost;
    }

    fn print(&mut self, text: &str) -> Result<(), Trap> {
        self.settle()?;
        self.account.system_call()?;
        self.ops += 1;
        self.env.output.line(text);
        Ok(())
    }

    fn call(&mut self, instr: &'e Instr, name: &str, args: &[Value]) -> Result<bool, Stop> {
        let callee = self.env.program.by_name[name];
        let args: Vec<u64> = args.iter().map(|value| self.get(*value)).collect();
        if self.is_native(callee) {
            let returned = self.call_native(callee, &args, self.words_below(callee)?).map_err(Stop::Fault)?;
            self.set_results(instr, returned);
            return Ok(true);
        }
        self.push_frame(callee, args)?;
        Ok(false)
    }

    fn allocate(&mut self, len: usize) -> Result<u64, Trap> {
        self.account.allocate((len + 1) * 8)?;
        self.ops += 1;
        Ok(self.heap.allocate(len))
    }

    fn memory(&mut self, instr: &'e Instr) -> Result<(), Trap> {
        match &instr.op {
            Op::SliceNew(_, len) => {
                let len = self.int(*len);
                if !(0..MAX_WORDS).contains(&len) {
                    return Err(Trap::BadSize(len));
                }
                let at = self.allocate(len as usize)?;
                self.set(instr.results[0], at);
            }
            Op::Len(slice) => self.set(instr.results[0], self.heap.len(self.get(*slice))),
            Op::Load(slice, index) => {
                let place = self.element(*slice, *index)?;
                self.set(instr.results[0], self.heap.words[place]);
            }
            Op::Store(slice, index, value) => {
                let place = self.element(*slice, *index)?;
                self.heap.words[place] = self.get(*value);
            }
            Op::StructNew(_, fields) => {
                let at = self.allocate(fields.len())?;
                for (field, value) in fields.iter().enumerate() {
                    self.heap.words[at as usize + 1 + field] = self.get(*value);
                }
                self.set(instr.results[0], at);
            }
            Op::Field(of, field) => {
                let place = self.heap.place(self.get(*of), (*field).into()).ok_or(Trap::Empty)?;
                self.set(instr.results[0], self.heap.words[place]);
            }
            Op::SetField(of, field, value) => {
                let place = self.heap.place(self.get(*of), (*field).into()).ok_or(Trap::Empty)?;
                self.heap.words[place] = self.get(*value);
            }
            _ => unreachable!("no operation on memory"),
        }
        Ok(())
    }

    fn element(&self, slice: Value, index: Value) -> Result<usize, Trap> {
        let (at, index) = (self.get(slice), self.get(index));
        let place = self.heap.place(at, index);
        place.ok_or_else(|| Trap::OutOfBounds { index: index as i64, len: self.heap.len(at) })
    }

    /// A copy of values for another task, which this one pays for.
    fn pack(&mut self, values: &[(u64, Type)]) -> Result<Parcel, Trap> {
        let parcel = self.heap.pack(self.env.program.module(), values);
        if parcel.bytes() > 0 {
            self.account.allocate(parcel.bytes())?;
            self.ops += 1;
        }
        Ok(parcel)
    }

    fn pack_values(&mut self, values: &[Value]) -> Result<Parcel, Trap> {
        let typed: Vec<_> =
            values.iter().map(|value| (self.get(*value), self.function().type_of(*value).clone())).collect();
        self.pack(&typed)
    }

    fn unpack_one(&mut self, parcel: Parcel, of: &Type) -> u64 {
        let module = self.env.program.module();
        self.heap.unpack(module, parcel, std::slice::from_ref(of)).first().copied().unwrap_or(0)
    }

    fn channel(&mut self, instr: &'e Instr) -> Result<(), Trap> {
        let cx = self.account.cx()?;
        self.settle()?;
        match &instr.op {
            Op::ChannelNew(_, capacity) => {
                let capacity = match self.int(*capacity) {
                    0 => Capacity::Rendezvous,
                    room @ 1..=MAX_CAPACITY => Capacity::Bounded(room as u32),
                    room => return Err(Trap::BadSize(room)),
                };
                let (sender, receiver) = cx.channel(capacity).map_err(Trap::Channel)?;
                let word = self.heap.hold(Channel { sender, receiver });
                self.set(instr.results[0], word);
            }
            Op::Send(to, value) => {
                let parcel = self.pack_values(std::slice::from_ref(value))?;
                let sent = self.held(*to)?.sender.send(cx, parcel).map_err(|refused| refused.why);
                self.ops += 1;
                let code = refusal_code(sent)?;
                self.set(instr.results[0], code);
            }
            Op::Recv(from) => {
                let received = self.held(*from)?.receiver.recv(cx);
                self.ops += 1;
                let (word, received) = match received {
                    Ok(parcel) => {
                        (self.unpack_one(parcel, self.function().type_of(instr.results[0])), Ok(()))
                    }
                    Err(refused) => (0, Err(refused)),
                };
                let code = refusal_code(received)?;
                self.set(instr.results[0], word);
                self.set(instr.results[1], code);
            }
            Op::Close(of) => self.held(*of)?.sender.close(),
            _ => unreachable!("no operation on a channel"),
        }
        Ok(())
    }

    fn held(&self, channel: Value) -> Result<Channel, Trap> {
        self.heap.channel(self.get(channel)).ok_or(Trap::Empty)
    }

    fn schedule(&mut self, instr: &'e Instr, nest: Option<&dyn Nest>) -> Result<(), Stop> {
        let cx = self.account.cx()?;
        self.settle()?;
        match &instr.op {
            Op::Yield => cx.yield_now(),
            Op::Spawn(_, name, args) | Op::TaskCreate(_, name, args, _) | Op::AsyncCall(_, name, args) => {
                let nest = nest.ok_or(Trap::NoScheduler)?;
                let caps: Vec<Type> =
                    args.iter().map(|value| self.function().type_of(*value).clone()).collect();
                let parcel = self.pack_values(args)?;
                let budget = match &instr.op {
                    Op::TaskCreate(_, _, _, budget) => Some(amounts(budget.map(|value| self.int(value)))),
                    _ => None,
                };
                let is_async = matches!(instr.op, Op::AsyncCall(..));
                let function = self.env.program.by_name[name];
                let handle = nest.spawn(cx, Order { function, args: parcel, caps, budget, is_async })?;
                self.ops += 1;
                self.set(instr.results[0], handle);
            }
            Op::Await(task) | Op::TaskJoin(task) => {
                let joined = nest.ok_or(Trap::StaleHandle)?.join(cx, self.get(*task));
                if matches!(self.function().type_of(*task), Type::Future { .. }) {
                    self.ops += 1;
                }
                self.joined(instr, *task, joined)?;
            }
            Op::Recharge(task, ops) => {
                let ops = u32::try_from(self.int(*ops).max(0)).unwrap_or(u32::MAX);
                nest.ok_or(Trap::StaleHandle)?.recharge(cx, self.get(*task), ops)?;
            }
            Op::RechargeSelf(ops) => {
                let ops = u32::try_from(self.int(*ops).max(0)).unwrap_or(u32::MAX);
                cx.recharge(Budget { ops, ..Budget::ZERO }).map_err(Trap::Recharge)?;
            }
            Op::NurseryCancel(nursery) => nest.ok_or(Trap::StaleHandle)?.cancel(self.get(*nursery))?,
            _ => unreachable!("handled before"),
        }
        Ok(())
    }

    fn joined(
        &mut self,
        instr: &'e Instr,
        task: Value,
        joined: Result<Result<Parcel, i64>, Stop>,
    ) -> Result<(), Stop> {
        let returned = match joined {
            Ok(Ok(parcel)) => {
                let of = match self.function().type_of(task) {
                    Type::Task(of) | Type::Future { result: of, .. } => &**of,
                    other => other,
                };
                Returned::Value((*of != Type::Unit).then(|| self.unpack_one(parcel, of)))
            }
            Ok(Err(code)) => Returned::Error(code),
            Err(stop) => return Err(stop),
        };
        self.set_results(instr, returned);
        Ok(())
    }
}

/// Why an instruction does not come to its end.
pub(super) enum Stop {
    Trap(Trap),
    Fault(Fault),
    /// A child of the nursery with this number has failed.
    ChildFailed(u32, Fault),
}

impl From<Trap> for Stop {
    fn from(trap: Trap) -> Self {
        Self::Trap(trap)
    }
}

/// A budget from amounts that a program computed. What does not fit is as much as fits.
fn amounts([ops, memory, spawn_count, channel_ops, syscalls]: [i64; 5]) -> Budget {
    fn fit<T: TryFrom<i64>>(amount: i64, most: T) -> T {
        T::try_from(amount.max(0)).unwrap_or(most)
    }
    Budget {
        ops: fit(ops, u32::MAX),
        memory: fit(memory, usize::MAX),
        spawn_count: fit(spawn_count, u16::MAX),
        channel_ops: fit(channel_ops, u16::MAX),
        syscalls: fit(syscalls, u16::MAX),
    }
}

/// The code of a refused send or receive.
fn refusal_code(result: Result<(), Refusal>) -> Result<u64, Trap> {
    match result {
        Ok(()) => Ok(0),
        Err(Refusal::Budget(error)) => Err(Trap::Budget(error)),
        Err(_) => Ok(error_code("Closed").unwrap_or(0) as u64),
    }
}
