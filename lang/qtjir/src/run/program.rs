//! A program that is ready to run.

use super::account::{Account, Limits};
use super::exec::{FRAME_OVERHEAD_WORDS, Interp};
use super::fault::{Fault, FaultKind, Trap};
use super::task::{Interrupt, Returned, TaskState};
use super::tasks::Nest;
use crate::calls::reaching;
use crate::ir::{Module, Op, Type, Value};
use crate::nests::escaping;
use crate::pass::{insert_checks, remove_charges, simplify};
use crate::verify::{VerifyError, verify};
use mainspring::Cx;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Where a program prints.
pub trait Output: Sync {
    /// Takes a line, without its end.
    fn line(&self, text: &str);
}

/// Prints nothing.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Output for Quiet {
    fn line(&self, _text: &str) {}
}

/// What compiled code gets for one call: the words of the arguments, and the task's state.
#[allow(missing_debug_implementations)]
pub struct NativeCall<'a, 'e, 'c> {
    /// One word for each parameter.
    pub args: &'a [u64],
    /// The task's state.
    pub task: &'a mut TaskState<'e, 'c>,
    /// Words of stack that are left when the function has its frame.
    pub stack_words: usize,
    /// The nurseries that the task has open.
    pub nest: Option<&'a dyn Nest>,
}

/// Functions that run as machine code.
pub trait Native: Send + Sync {
    /// Whether it has this function.
    fn has(&self, function: usize) -> bool;
    /// Runs a function that it has: its value and the code of its error, or why it did not come to its end. A trap comes with its place.
    fn call(&self, function: usize, call: NativeCall<'_, '_, '_>) -> Result<(u64, i64), Interrupt>;
}

/// What all tasks of a run share.
#[derive(Clone, Copy)]
pub struct TaskEnv<'e> {
    pub(super) program: &'e Program,
    pub(super) output: &'e dyn Output,
    /// Ops that tasks which have ended were charged.
    pub(super) charged: &'e AtomicU64,
}

impl fmt::Debug for TaskEnv<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskEnv")
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What the function returned, as a word.
    pub value: Option<u64>,
    /// Ops that the task itself was charged, without its children's ops.
    pub ops: u64,
    /// How often the task looked up to pay for what it had counted.
    pub looks: u64,
    /// Ops that the task and all tasks below it were charged.
    pub all_ops: u64,
}

/// Where a nursery ends, and what is used of its inside after that.
pub(super) struct NurseryEnd {
    /// The block and the instruction.
    pub(super) place: (usize, usize),
    /// Zero if the nursery failed: its inside may not have come to them.
    pub(super) escaping: Vec<Value>,
}

/// A verified module with its yield checks.
pub struct Program {
    module: Module,
    pub(super) by_name: HashMap<String, usize>,
    /// Where each nursery ends, by function and value.
    pub(super) nursery_ends: HashMap<(usize, Value), NurseryEnd>,
    /// Whether a function, or one that it calls or spawns, spawns.
    pub(super) spawns: Vec<bool>,
    frame_words: Vec<usize>,
    pub(super) native: Option<Box<dyn Native>>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("functions", &self.module.functions.len()).finish_non_exhaustive()
    }
}

impl Program {
    /// Verifies a module, inserts its checks and makes them cheap.
    pub fn compile(module: Module) -> Result<Self, VerifyError> {
        Self::build(module, simplify)
    }

    /// As [`Program::compile`], with every check where it was inserted: what the passes must agree with.
    pub fn compile_plainly(module: Module) -> Result<Self, VerifyError> {
        Self::build(module, |_| {})
    }

    /// Verifies a module and charges for no loops and calls: what checks are measured against. Such a program is charged for
    /// allocations, messages, spawns and system calls alone.
    pub fn compile_unmetered(module: Module) -> Result<Self, VerifyError> {
        Self::build(module, remove_charges)
    }

    fn build(mut module: Module, pass: impl FnOnce(&mut Module)) -> Result<Self, VerifyError> {
        verify(&module)?;
        // How deep calls may nest is the program's affair, and not that of the passes.
        let frame_words =
            module.functions.iter().map(|function| function.values.len() + FRAME_OVERHEAD_WORDS);
        let frame_words = frame_words.collect();
        module.functions.iter_mut().for_each(insert_checks);
        pass(&mut module);
        // The passes conserve what the verifier establishes; generated code relies on it.
        verify(&module)?;
        Ok(Self::ready(module, frame_words))
    }

    fn ready(module: Module, frame_words: Vec<usize>) -> Self {
        let by_name = module.index().into_iter().map(|(name, at)| (name.to_owned(), at)).collect();
        let mut nursery_ends = HashMap::new();
        for (function, body) in module.functions.iter().enumerate() {
            let mut escaping = escaping(body);
            for (block, body) in body.blocks.iter().enumerate() {
                for (at, instr) in body.instrs.iter().enumerate() {
                    if let Op::NurseryEnd(nursery) = instr.op {
                        let escaping = escaping.remove(&nursery).unwrap_or_default();
                        let end = NurseryEnd { place: (block, at), escaping };
                        nursery_ends.insert((function, nursery), end);
                    }
                }
            }
        }
        let spawn = |op: &Op| matches!(op, Op::Spawn(..) | Op::TaskCreate(..) | Op::AsyncCall(..));
        let spawns = reaching(&module, spawn, |_| true);
        Self { module, by_name, nursery_ends, spawns, frame_words, native: None }
    }

    /// Words of stack that a frame of the function takes.
    pub fn frame_words(&self, function: usize) -> usize {
        self.frame_words[function]
    }

    /// Runs some functions as machine code.
    #[must_use]
    pub fn with_native(mut self, native: Box<dyn Native>) -> Self {
        self.native = Some(native);
        self
    }

    /// Whether the function runs as machine code.
    pub fn is_native(&self, function: usize) -> bool {
        self.native.as_ref().is_some_and(|native| native.has(function))
    }

    /// The module, with its checks.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Runs a function without a runtime. Only programs of the core profile need none.
    pub fn run_alone(
        &self,
        name: &str,
        args: &[u64],
        limits: Limits,
        output: &dyn Output,
    ) -> Result<Ended, Fault> {
        self.run_alone_until(name, args, limits, None, output)
    }

    /// As [`Program::run_alone`], and no longer than until then. Code that counts nothing is stopped too.
    pub fn run_alone_until(
        &self,
        name: &str,
        args: &[u64],
        limits: Limits,
        until: Option<Instant>,
        output: &dyn Output,
    ) -> Result<Ended, Fault> {
        self.run(name, args, Account::Alone(limits, until), output)
    }

    /// Runs a function in a task of the runtime. If its budget ends, or it is cancelled, the runtime unwinds the task.
    pub fn run_in_task(
        &self,
        name: &str,
        args: &[u64],
        cx: &Cx,
        output: &dyn Output,
    ) -> Result<Ended, Fault> {
        self.run(name, args, Account::Task(cx), output)
    }

    fn run(
        &self,
        name: &str,
        args: &[u64],
        account: Account<'_>,
        output: &dyn Output,
    ) -> Result<Ended, Fault> {
        let refused = |why: String| Fault {
            kind: FaultKind::Stopped { code: 0, why },
            pos: crate::ir::Pos::default(),
            function: name.to_owned(),
        };
        let Some(&function) = self.by_name.get(name) else {
            return Err(refused(format!("there is no function `{name}`")));
        };
        let params = self.module.functions[function].params();
        if params.len() != args.len() {
            return Err(refused(format!("`{name}` takes {} arguments, not {}", params.len(), args.len())));
        }
        let plain =
            |of: &Type| matches!(of, Type::I64 | Type::F64 | Type::Bool | Type::CapSpawn | Type::CapBudget);
        if !params.iter().all(plain) {
            return Err(refused(format!("`{name}` takes what only a task can give it")));
        }
        let charged = AtomicU64::new(0);
        let mut interp = Interp::new(TaskEnv { program: self, output, charged: &charged }, account);
        let returned = interp.run_function(function, args.to_vec())?;
        let (ops, looks) = (interp.ops(), interp.looks());
        drop(interp);
        match returned {
            Returned::Value(value) => Ok(Ended { value, ops, looks, all_ops: charged.into_inner() }),
            Returned::Error(code) => Err(self.error(function, code)),
        }
    }

    /// An error that leaves a task.
    pub(super) fn error(&self, function: usize, code: i64) -> Fault {
        let function = &self.module.functions[function];
        let kind = FaultKind::Error { code, name: self.module.error_name(code).to_owned() };
        Fault { kind, pos: function.pos, function: function.name.clone() }
    }

    /// A trap, with its place.
    pub fn trap(&self, function: usize, pos: crate::ir::Pos, trap: Trap) -> Fault {
        Fault { kind: FaultKind::Trap(trap), pos, function: self.module.functions[function].name.clone() }
    }
}
