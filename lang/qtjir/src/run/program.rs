//! A program that is ready to run.

use super::account::{Account, Limits};
use super::exec::{Interp, Returned};
use super::fault::{Fault, FaultKind, Trap};
use crate::ir::{Module, Op, Type, Value};
use crate::pass::{insert_checks, simplify};
use crate::verify::{VerifyError, verify};
use mainspring::Cx;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU64;

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
pub struct NativeCall<'a, 'c> {
    /// One word for each parameter.
    pub args: &'a [u64],
    /// The task's heap. An object is its length and so many words.
    pub heap: &'a mut Vec<u64>,
    /// What to charge.
    pub account: &'a mut Account<'c>,
    /// Ops that were counted and not paid for.
    pub pending: &'a mut u64,
    /// Ops that were charged in all, `pending` included.
    pub ops: &'a mut u64,
    /// How often the task looked up.
    pub looks: &'a mut u64,
    /// Words of stack that are left when the function has its frame.
    pub stack_words: usize,
    /// Where to print.
    pub output: &'a dyn Output,
}

/// Functions that run as machine code.
pub trait Native: Send + Sync {
    /// Whether it has this function.
    fn has(&self, function: usize) -> bool;
    /// Runs a function that it has: its value and the code of its error, or how it trapped and where.
    fn call(&self, function: usize, call: NativeCall<'_, '_>) -> Result<(u64, i64), Fault>;
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

/// A verified module with its yield checks.
pub struct Program {
    module: Module,
    pub(super) by_name: HashMap<String, usize>,
    /// Where each nursery ends: by function and value, the block and the instruction.
    pub(super) nursery_ends: HashMap<(usize, Value), (usize, usize)>,
    /// Whether a function, or one that it calls or spawns, spawns.
    pub(super) spawns: Vec<bool>,
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
        Self::build(module, true)
    }

    /// As [`Program::compile`], with every check where it was inserted: what the passes must agree with.
    pub fn compile_plainly(module: Module) -> Result<Self, VerifyError> {
        Self::build(module, false)
    }

    /// Verifies a module and inserts nothing: what checks are measured against. Such a program is charged for allocations, messages,
    /// spawns and system calls, and never for loops and calls.
    pub fn compile_unmetered(module: Module) -> Result<Self, VerifyError> {
        verify(&module)?;
        Ok(Self::ready(module))
    }

    fn build(mut module: Module, simplified: bool) -> Result<Self, VerifyError> {
        verify(&module)?;
        module.functions.iter_mut().for_each(insert_checks);
        if simplified {
            simplify(&mut module);
        }
        // The passes conserve what the verifier establishes; generated code relies on it.
        verify(&module)?;
        Ok(Self::ready(module))
    }

    fn ready(module: Module) -> Self {
        let by_name = module.index().into_iter().map(|(name, at)| (name.to_owned(), at)).collect();
        let mut nursery_ends = HashMap::new();
        for (function, body) in module.functions.iter().enumerate() {
            for (block, body) in body.blocks.iter().enumerate() {
                for (at, instr) in body.instrs.iter().enumerate() {
                    if let Op::NurseryEnd(nursery) = instr.op {
                        nursery_ends.insert((function, nursery), (block, at));
                    }
                }
            }
        }
        let spawns = spawning(&module, &by_name);
        Self { module, by_name, nursery_ends, spawns, native: None }
    }

    /// Runs some functions as machine code.
    #[must_use]
    pub fn with_native(mut self, native: Box<dyn Native>) -> Self {
        self.native = Some(native);
        self
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
        self.run(name, args, Account::Alone(limits), output)
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

    pub(super) fn trap(&self, function: usize, pos: crate::ir::Pos, trap: Trap) -> Fault {
        Fault { kind: FaultKind::Trap(trap), pos, function: self.module.functions[function].name.clone() }
    }
}

/// Which functions spawn, those included that only call or spawn one that does.
fn spawning(module: &Module, by_name: &HashMap<String, usize>) -> Vec<bool> {
    let mut spawns = vec![false; module.functions.len()];
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); module.functions.len()];
    let mut todo = Vec::new();
    for (at, function) in module.functions.iter().enumerate() {
        for op in function.blocks.iter().flat_map(|block| &block.instrs).map(|instr| &instr.op) {
            if let Some(&callee) = op.callee().and_then(|name| by_name.get(name)) {
                callers[callee].push(at);
            }
            if matches!(op, Op::Spawn(..) | Op::TaskCreate(..) | Op::AsyncCall(..)) {
                todo.push(at);
            }
        }
    }
    while let Some(at) = todo.pop() {
        if !std::mem::replace(&mut spawns[at], true) {
            todo.extend(&callers[at]);
        }
    }
    spawns
}
