//! One task's execution, instruction by instruction.

use super::account::Account;
use super::arith::{binary, unary};
use super::fault::{Fault, FaultKind, Trap};
use super::parcel::Parcel;
use super::program::{NativeCall, TaskEnv};
use super::task::{HasTask, Interrupt, Returned, TaskState, in_nursery};
use super::tasks::Nest;
use crate::ir::{Function, Instr, Op, Pos, Terminator, Type, Value};

/// Words of stack that the frames of one task may take: a frame takes one for each value that its function was
/// written with, and [`FRAME_OVERHEAD_WORDS`].
pub const STACK_WORDS: usize = 1 << 16;
/// What a frame takes besides its values.
pub const FRAME_OVERHEAD_WORDS: usize = 16;

/// Why a run of the interpreter's loop ended.
enum Exit {
    /// The frame that it began with is done.
    Returned(Returned),
    /// The nursery that it runs the inside of is to be closed.
    NurseryEnds,
}

struct Frame {
    function: usize,
    block: usize,
    at: usize,
    values: Vec<u64>,
}

/// A task's execution.
pub(super) struct Interp<'e, 'c> {
    task: TaskState<'e, 'c>,
    frames: Vec<Frame>,
    stack_words: usize,
    interval: u32,
}

impl<'e, 'c> HasTask<'e, 'c> for Interp<'e, 'c> {
    fn task(&mut self) -> &mut TaskState<'e, 'c> {
        &mut self.task
    }
}

impl<'e, 'c> Interp<'e, 'c> {
    pub(super) fn new(env: TaskEnv<'e>, account: Account<'c>) -> Self {
        let interval = env.program.module().interval();
        Self { task: TaskState::new(env, account), frames: Vec::new(), stack_words: STACK_WORDS, interval }
    }

    pub(super) fn ops(&self) -> u64 {
        self.task.ops
    }

    pub(super) fn looks(&self) -> u64 {
        self.task.looks
    }

    /// Runs a function, and pays for what it did.
    pub(super) fn run_function(&mut self, function: usize, args: Vec<u64>) -> Result<Returned, Fault> {
        let program = self.task.program();
        let here = |trap| program.trap(function, program.module().functions[function].pos, trap);
        let returned = if self.task.program().is_native(function) {
            let stack_words = self.words_below(function).map_err(here)?;
            self.call_native(function, &args, stack_words, None)
        } else {
            self.push_frame(function, args).map_err(here)?;
            self.run(1, None).map(|exit| match exit {
                Exit::Returned(returned) => returned,
                Exit::NurseryEnds => unreachable!("the verifier matches the ends of nurseries"),
            })
        };
        let returned = returned.map_err(|interrupt| match interrupt {
            Interrupt::Trap(trap) => here(trap),
            Interrupt::Fault(fault) => fault,
            Interrupt::ChildFailed(..) => unreachable!("its nursery is further in"),
        })?;
        self.task.settle().map_err(here)?;
        Ok(returned)
    }

    /// Takes over the arguments of a task and runs its function. Gives a copy of the result that the task has paid for.
    pub(super) fn run_task(&mut self, function: usize, args: Parcel) -> Result<Result<Parcel, i64>, Fault> {
        let module = self.task.program().module();
        let body = &module.functions[function];
        let args = self.task.heap.unpack(module, args, &body.params());
        match self.run_function(function, args)? {
            Returned::Error(code) => Ok(Err(code)),
            Returned::Value(value) => {
                let values: Vec<_> = value.map(|word| (word, body.result.clone())).into_iter().collect();
                let packed = self.task.pack(&values);
                Ok(Ok(packed.map_err(|trap| self.task.program().trap(function, body.pos, trap))?))
            }
        }
    }

    fn function(&self) -> &'e Function {
        &self.task.program().module().functions[self.frames.last().expect("it runs").function]
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
        let body = &self.task.program().module().functions[function];
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
        self.stack_words.checked_sub(self.task.program().frame_words(function)).ok_or(Trap::StackOverflow)
    }

    fn pop_frame(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.stack_words += self.task.program().frame_words(frame.function);
        }
    }

    fn call_native(
        &mut self,
        function: usize,
        args: &[u64],
        stack_words: usize,
        nest: Option<&dyn Nest>,
    ) -> Result<Returned, Interrupt> {
        let program = self.task.program();
        let native = program.native.as_ref().expect("it has the function");
        self.task.heap.keep_outgrown(true);
        let called = native.call(function, NativeCall { args, task: &mut self.task, stack_words, nest });
        self.task.heap.keep_outgrown(false);
        let (value, code) = called?;
        Ok(match code {
            0 => {
                Returned::Value((program.module().functions[function].result != Type::Unit).then_some(value))
            }
            code => Returned::Error(code),
        })
    }

    /// Runs until the frame at `floor - 1` is done, or the innermost nursery of that frame ends. A trap comes with its place.
    fn run(&mut self, floor: usize, nest: Option<&dyn Nest>) -> Result<Exit, Interrupt> {
        loop {
            let function = self.function();
            let frame = self.frames.last().expect("it runs");
            let block = &function.blocks[frame.block];
            let Some(instr) = block.instrs.get(frame.at) else {
                match self.end(&block.end, block.end_pos).map_err(Interrupt::Fault)? {
                    Some(returned) if self.frames.len() == floor - 1 => return Ok(Exit::Returned(returned)),
                    Some(returned) => self.resume(returned),
                    None => {}
                }
                continue;
            };
            let stepped = match instr.op {
                Op::NurseryEnd(_) => return Ok(Exit::NurseryEnds),
                Op::NurseryBegin => self.nursery(instr, nest).map(|()| false),
                _ => self.step(instr, nest),
            };
            let at = self.frames.last().map_or(0, |frame| frame.function);
            if stepped.map_err(|interrupt| interrupt.at(self.task.program(), at, instr))? {
                self.frames.last_mut().expect("it runs").at += 1;
            }
        }
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
                let name = self.task.program().module().error_name(code).to_owned();
                let cause = self.task.take_last_child().map(Box::new);
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

    fn set_results(&mut self, instr: &Instr, returned: Returned) {
        let program = self.task.program();
        let gives_nothing = match &instr.op {
            Op::Call(name, _) => program.module().functions[program.by_name[name]].result == Type::Unit,
            _ => false,
        };
        self.set_words(instr, returned.words(gives_nothing));
    }

    fn set_words(&mut self, instr: &Instr, words: [u64; 2]) {
        for (result, word) in instr.results.iter().zip(words) {
            self.set(*result, word);
        }
    }

    /// Opens a nursery, runs its inside, and closes it.
    fn nursery(&mut self, begin: &'e Instr, outer: Option<&dyn Nest>) -> Result<(), Interrupt> {
        let depth = self.frames.len();
        let (function, nursery) = (self.frames[depth - 1].function, begin.results[0]);
        let code = in_nursery(self, outer, |this, serial, nest| {
            this.set(nursery, serial.into());
            this.frames[depth - 1].at += 1;
            this.run(depth, Some(nest)).map(|_| ())
        })?;
        let end = &self.task.program().nursery_ends[&(function, nursery)];
        if code != 0 {
            // The nursery's failure may have interrupted its inside anywhere.
            while self.frames.len() > depth {
                self.pop_frame();
            }
            self.task.heap.keep_outgrown(false);
            end.escaping.iter().for_each(|value| self.set(*value, 0));
        }
        let (block, at) = end.place;
        let result = self.function().blocks[block].instrs[at].results[0];
        self.set(result, code as u64);
        let frame = &mut self.frames[depth - 1];
        (frame.block, frame.at) = (block, at + 1);
        Ok(())
    }

    /// Executes an instruction. False if it is a call that has begun.
    fn step(&mut self, instr: &'e Instr, nest: Option<&dyn Nest>) -> Result<bool, Interrupt> {
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
            Op::Call(name, args) => return self.call(instr, name, args, nest),
            Op::BudgetCheck => {
                if self.task.pending >= u64::from(self.interval) {
                    self.task.settle()?;
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
                let of = self.function().type_of(*value);
                self.task.print_word(self.get(*value), of)?;
            }
            Op::PrintText(text) => self.task.print(text)?,
            _ => {
                let function = self.frames.last().expect("it runs").function;
                let operands: Vec<u64> =
                    instr.op.operands().into_iter().map(|value| self.get(value)).collect();
                let words = self.task.act(function, instr, &operands, nest)?;
                self.set_words(instr, words);
            }
        }
        Ok(true)
    }

    fn count(&mut self, cost: i64) {
        // A negative cost counts as 0: no task is paid for work.
        self.task.count_ops(u64::from(u32::try_from(cost.max(0)).unwrap_or(u32::MAX)));
    }

    fn call(
        &mut self,
        instr: &'e Instr,
        name: &str,
        args: &[Value],
        nest: Option<&dyn Nest>,
    ) -> Result<bool, Interrupt> {
        let callee = self.task.program().by_name[name];
        let args: Vec<u64> = args.iter().map(|value| self.get(*value)).collect();
        if self.task.program().is_native(callee) {
            let returned = self.call_native(callee, &args, self.words_below(callee)?, nest)?;
            self.set_results(instr, returned);
            return Ok(true);
        }
        self.push_frame(callee, args)?;
        Ok(false)
    }

    fn memory(&mut self, instr: &'e Instr) -> Result<(), Trap> {
        match &instr.op {
            Op::SliceNew(_, len) => {
                let at = self.task.allocate(self.int(*len))?;
                self.set(instr.results[0], at);
            }
            Op::Len(slice) => self.set(instr.results[0], self.task.heap.len(self.get(*slice))),
            Op::Load(slice, index) => {
                let place = self.element(*slice, *index)?;
                self.set(instr.results[0], self.task.heap.words[place]);
            }
            Op::Store(slice, index, value) => {
                let place = self.element(*slice, *index)?;
                self.task.heap.words[place] = self.get(*value);
            }
            Op::StructNew(_, fields) => {
                let at = self.task.allocate(fields.len() as i64)?;
                for (field, value) in fields.iter().enumerate() {
                    self.task.heap.words[at as usize + 1 + field] = self.get(*value);
                }
                self.set(instr.results[0], at);
            }
            Op::Field(of, field) => {
                let place = self.task.heap.place(self.get(*of), (*field).into()).ok_or(Trap::Empty)?;
                self.set(instr.results[0], self.task.heap.words[place]);
            }
            Op::SetField(of, field, value) => {
                let place = self.task.heap.place(self.get(*of), (*field).into()).ok_or(Trap::Empty)?;
                self.task.heap.words[place] = self.get(*value);
            }
            _ => unreachable!("no operation on memory"),
        }
        Ok(())
    }

    fn element(&self, slice: Value, index: Value) -> Result<usize, Trap> {
        let (at, index) = (self.get(slice), self.get(index));
        let place = self.task.heap.place(at, index);
        place.ok_or_else(|| Trap::OutOfBounds { index: index as i64, len: self.task.heap.len(at) })
    }
}
