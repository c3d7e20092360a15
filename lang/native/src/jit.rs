//! Code that is made in memory and called at once.
#![allow(unsafe_code)]

use crate::code::{Code, Memory, Metering, NativeError, Options};
use crate::context::{self, Entry};
use crate::emit::{ACT, ALLOCATE, Emitter, NURSERY, PAY, PRINT};
use crate::stop::Polling;
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_jit::{
    BranchProtection, JITBuilder, JITMemoryKind, JITMemoryProvider, JITModule, SystemMemoryProvider,
};
use cranelift_module::{FuncId, ModuleResult, default_libcall_names};
use mainspring_qtjir::Program;
use std::io;

/// Owns the memory of the code.
struct Owner(Option<JITModule>);

// SAFETY: the code is never written again, and the module is only used to free it.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Memory for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(module) = self.0.take() {
            // SAFETY: the entries go with it, and a call borrows the code.
            unsafe { module.free_memory() };
        }
    }
}

/// What a processor fetches at once at most: where code begins in it can change its time.
const LINE: u64 = 64;

/// Memory in which each function begins so many bytes after the beginning of a line.
struct Shifted {
    memory: SystemMemoryProvider,
    bytes: usize,
}

impl JITMemoryProvider for Shifted {
    fn allocate(&mut self, size: usize, align: u64, kind: JITMemoryKind) -> io::Result<*mut u8> {
        if !matches!(kind, JITMemoryKind::Executable) {
            return self.memory.allocate(size, align, kind);
        }
        let memory = self.memory.allocate(size + self.bytes, align.max(LINE), kind)?;
        // SAFETY: the allocation is larger by these bytes.
        Ok(unsafe { memory.add(self.bytes) })
    }

    unsafe fn free_memory(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { self.memory.free_memory() };
    }

    fn finalize(&mut self, protection: BranchProtection) -> ModuleResult<()> {
        self.memory.finalize(protection)
    }
}

// `map_err` hands errors over.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn failed(error: impl ToString) -> NativeError {
    NativeError::Codegen(error.to_string())
}

/// What code is made for: this processor, or any of its kind.
pub(crate) fn target(builder: &isa::Builder, is_pic: &str) -> Result<OwnedTargetIsa, NativeError> {
    let mut flags = settings::builder();
    // A function that ends with a call of another one needs its frame pointer.
    let chosen = [
        ("opt_level", "speed"),
        ("is_pic", is_pic),
        ("enable_verifier", "false"),
        ("preserve_frame_pointers", "true"),
    ];
    for (name, value) in chosen {
        flags.set(name, value).map_err(failed)?;
    }
    builder.finish(settings::Flags::new(flags)).map_err(failed)
}

/// Compiles what can be compiled of a program.
pub fn compile(program: Program, options: Options) -> Result<Program, NativeError> {
    compile_in(program, options, None)
}

/// As [`compile`], with each function so many bytes after the beginning of a line, a multiple of 16. For measurements: the same code takes
/// another time at another address.
#[doc(hidden)]
pub fn compile_shifted(program: Program, options: Options, bytes: usize) -> Result<Program, NativeError> {
    // Constants of 16 bytes are aligned within their function.
    assert_eq!(bytes % 16, 0, "no multiple of 16");
    compile_in(program, options, Some(Shifted { memory: SystemMemoryProvider::new(), bytes }))
}

fn compile_in(program: Program, options: Options, memory: Option<Shifted>) -> Result<Program, NativeError> {
    let isa = cranelift_native::builder().map_err(|why| NativeError::NoTarget(why.to_owned()))?;
    let mut builder = JITBuilder::with_isa(target(&isa, "false")?, default_libcall_names());
    if let Some(memory) = memory {
        builder.memory_provider(Box::new(memory));
    }
    let pay = if options.metering == Metering::OpsGauged { context::pay_gauged } else { context::pay };
    builder.symbol(PAY, pay as *const u8);
    builder.symbol(ALLOCATE, context::allocate as *const u8);
    builder.symbol(PRINT, context::print as *const u8);
    builder.symbol(ACT, context::act as *const u8);
    builder.symbol(NURSERY, context::nursery as *const u8);
    let mut module = JITModule::new(builder);
    let emission = Emitter::emit(&mut module, &program, options.metering).map_err(failed)?;
    module.finalize_definitions().map_err(failed)?;
    let entry = |id: FuncId| {
        let address = module.get_finalized_function(id);
        // SAFETY: the emitter gave the function this signature, and the code lives as long as its owner.
        unsafe { std::mem::transmute::<*const u8, Entry>(address) }
    };
    let entries = emission.entries.iter().map(|id| id.map(entry)).collect();
    let polling = (options.metering == Metering::Time).then(|| {
        let range = |(id, size): &(FuncId, usize)| {
            let from = module.get_finalized_function(*id) as usize;
            (from, from + size)
        };
        Polling::register(emission.sizes.iter().map(range).collect())
    });
    let code = Code {
        entries,
        sites: emission.sites,
        texts: emission.texts,
        stack_bytes: options.stack_bytes,
        polling,
        _memory: Some(Box::new(Owner(Some(module)))),
    };
    Ok(code.attach(program))
}
