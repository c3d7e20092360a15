//! Compiled functions, and how the interpreter calls them.
#![allow(unsafe_code)]

use crate::context::{self, Context, Host};
use crate::emit::{Emitter, Site};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, default_libcall_names};
use mainspring_qtjir::{Fault, FaultKind, Native, NativeCall, Op, Pos, Program, Trap};
use std::collections::HashMap;
use std::fmt;
use std::panic::resume_unwind;

/// A function with more values is interpreted: its frame could be larger than what is kept free of the stack.
const MAX_VALUES: usize = 1024;

/// How programs are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of its task's stack that compiled code may use. Calls that nest deeper trap. With less than a mebibyte they may trap
    /// before they do in the interpreter.
    pub stack_bytes: usize,
    /// How compiled code is metered.
    pub metering: Metering,
}

/// How compiled code is metered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metering {
    /// By the checks of the program, which count ops.
    #[default]
    Ops,
    /// As `Ops`, and the time between payments is looked at ([`take_longest_gap`](crate::take_longest_gap)).
    OpsGauged,
    /// By a load on each way back of a loop, from a page that would be protected to stop the task. Only its cost can be measured:
    /// nothing protects the page. The program has no checks ([`Program::compile_unmetered`]).
    Poll,
    /// Not at all, to measure against. The program has no checks ([`Program::compile_unmetered`]).
    None,
}

impl Default for Options {
    /// For the stacks that a runtime has unless it is told otherwise.
    fn default() -> Self {
        Self { stack_bytes: 32 << 10, metering: Metering::Ops }
    }
}

/// Why a program cannot be compiled. It can be interpreted.
#[derive(Debug)]
#[non_exhaustive]
pub enum NativeError {
    /// There is no code generator for this processor.
    NoTarget(String),
    /// The code generator failed.
    Codegen(String),
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget(why) => {
                write!(f, "no machine code for this processor: {why}; run it without --native")
            }
            Self::Codegen(why) => write!(f, "the code generator failed: {why}; run it without --native"),
        }
    }
}

impl std::error::Error for NativeError {}

/// The entry of a function: its context, its arguments, and where its result goes. Gives its status.
type Entry = unsafe extern "C" fn(*mut Context, *const u64, *mut u64) -> u64;

struct Code {
    /// The entries, by function.
    entries: Vec<Option<Entry>>,
    sites: Vec<Site>,
    texts: Vec<String>,
    errors: Vec<String>,
    stack_bytes: usize,
    /// Owns the memory of the code.
    module: Option<JITModule>,
}

// SAFETY: the code is never written again, and the module is only used to free it.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: the entries go with it, and a call borrows the code.
            unsafe { module.free_memory() };
        }
    }
}

/// Compiles what can be compiled of a program.
pub fn compile(program: Program, options: Options) -> Result<Program, NativeError> {
    let failed = |error: String| NativeError::Codegen(error);
    let mut flags = settings::builder();
    for (name, value) in [("opt_level", "speed"), ("is_pic", "false"), ("enable_verifier", "false")] {
        flags.set(name, value).map_err(|error| failed(error.to_string()))?;
    }
    let isa = cranelift_native::builder().map_err(|why| NativeError::NoTarget(why.to_owned()))?;
    let isa = isa.finish(settings::Flags::new(flags)).map_err(|error| failed(error.to_string()))?;
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    let pay = if options.metering == Metering::OpsGauged { context::pay_gauged } else { context::pay };
    builder.symbol("pay", pay as *const u8);
    builder.symbol("allocate", context::allocate as *const u8);
    builder.symbol("print", context::print as *const u8);
    let mut module = JITModule::new(builder);
    let eligible = eligible(&program);
    let mut emitter =
        Emitter::new(&mut module, &program, options.metering).map_err(|error| failed(error.to_string()))?;
    let mut ids: Vec<Option<FuncId>> = Vec::new();
    for (at, function) in program.module().functions.iter().enumerate() {
        ids.push(match eligible[at] {
            true => Some(emitter.declare(function).map_err(|error| failed(error.to_string()))?),
            false => None,
        });
    }
    let mut entries = Vec::new();
    for (at, id) in ids.iter().enumerate() {
        entries.push(match id {
            Some(id) => Some(emitter.define(at, *id).map_err(|error| failed(error.to_string()))?),
            None => None,
        });
    }
    let (sites, texts) = emitter.finish();
    module.finalize_definitions().map_err(|error| failed(error.to_string()))?;
    let entries = entries
        .into_iter()
        .map(|id| {
            id.map(|id| {
                let address = module.get_finalized_function(id);
                // SAFETY: the emitter gave the function this signature, and the code lives as long as `Code`.
                unsafe { std::mem::transmute::<*const u8, Entry>(address) }
            })
        })
        .collect();
    let errors = program.module().errors.clone();
    let stack_bytes = options.stack_bytes;
    let code = Code { entries, sites, texts, errors, stack_bytes, module: Some(module) };
    Ok(program.with_native(Box::new(code)))
}

/// Which functions do without the scheduler, those that they call included.
fn eligible(program: &Program) -> Vec<bool> {
    let module = program.module();
    let index = module.index();
    let mut eligible: Vec<bool> = module
        .functions
        .iter()
        .map(|function| {
            let mut ops = function.blocks.iter().flat_map(|block| &block.instrs).map(|instr| &instr.op);
            function.values.len() <= MAX_VALUES && ops.all(|op| !op.needs_scheduler())
        })
        .collect();
    let mut callers: HashMap<usize, Vec<usize>> = HashMap::new();
    for (at, function) in module.functions.iter().enumerate() {
        for op in function.blocks.iter().flat_map(|block| &block.instrs).map(|instr| &instr.op) {
            if let Op::Call(name, _) = op {
                callers.entry(index[name.as_str()]).or_default().push(at);
            }
        }
    }
    let mut todo: Vec<usize> = (0..eligible.len()).filter(|at| !eligible[*at]).collect();
    while let Some(at) = todo.pop() {
        for caller in callers.remove(&at).unwrap_or_default() {
            if std::mem::replace(&mut eligible[caller], false) {
                todo.push(caller);
            }
        }
    }
    eligible
}

impl Native for Code {
    fn has(&self, function: usize) -> bool {
        self.entries.get(function).is_some_and(Option::is_some)
    }

    fn call(&self, function: usize, call: NativeCall<'_, '_>) -> Result<(u64, i64), Fault> {
        let entry = self.entries[function].expect("it has the function");
        let NativeCall { args, heap, account, pending, ops, looks, stack_words, output } = call;
        let mut host =
            Host { heap, account, ops, looks, output, texts: &self.texts, trap: None, payload: None };
        // While generated code runs, what is pending is not part of the sum.
        *host.ops -= *pending;
        let here = std::ptr::from_ref(&args) as u64;
        let limit = here.saturating_sub(self.stack_bytes as u64);
        let mut context = Context::new(&mut host, *pending, stack_words, limit);
        let mut result = 0;
        // SAFETY: the arguments are as many words as the function has parameters, the context is valid, and so is the place for the
        // result. Generated code neither unwinds nor keeps any of them.
        let status = unsafe { entry(&raw mut context, args.as_ptr(), &raw mut result) };
        *pending = context.pending;
        *host.ops += context.pending;
        if let Some(payload) = host.payload.take() {
            resume_unwind(payload);
        }
        match status {
            0 => Ok((result, 0)),
            2 => Ok((0, result as i64)),
            _ => Err(self.fault(&context, host.trap.take())),
        }
    }
}

impl Code {
    fn fault(&self, context: &Context, of_host: Option<Trap>) -> Fault {
        let (pos, function) = self
            .sites
            .get(context.site as usize)
            .map_or_else(|| (Pos::default(), String::new()), Site::place);
        let [one, other] = context.about;
        let trap = match context.trap as i64 {
            context::TRAP_OVERFLOW => Trap::Overflow,
            context::TRAP_DIVIDE => Trap::DivideByZero,
            context::TRAP_BOUNDS => Trap::OutOfBounds { index: one as i64, len: other },
            context::TRAP_EMPTY => Trap::Empty,
            context::TRAP_RAISED => {
                let code = one as i64;
                let own = (code as usize).wrapping_sub(1 + mainspring_qtjir::ERRORS_OF_THE_LANGUAGE.len());
                let known =
                    mainspring_qtjir::ERRORS_OF_THE_LANGUAGE.get((code as usize).wrapping_sub(1)).copied();
                let name = known
                    .or_else(|| self.errors.get(own).map(String::as_str))
                    .unwrap_or("Unknown")
                    .to_owned();
                return Fault { kind: FaultKind::Unhandled { code, name, cause: None }, pos, function };
            }
            context::TRAP_HOST => of_host.unwrap_or(Trap::StackOverflow),
            _ => Trap::StackOverflow,
        };
        Fault { kind: FaultKind::Trap(trap), pos, function }
    }
}
