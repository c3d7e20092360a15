//! Code that is made in memory and called at once.
#![allow(unsafe_code)]

use crate::code::{Code, Memory, Metering, NativeError, Options};
use crate::context::{self, Entry};
use crate::emit::{ACT, ALLOCATE, Emitter, NURSERY, PAY, PRINT};
use crate::stop::Polling;
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, default_libcall_names};
use mainspring_qtjir::Program;

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

// `map_err` hands errors over.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn failed(error: impl ToString) -> NativeError {
    NativeError::Codegen(error.to_string())
}

/// What code is made for: this processor, or any of its kind.
pub(crate) fn target(builder: &isa::Builder, is_pic: &str) -> Result<OwnedTargetIsa, NativeError> {
    let mut flags = settings::builder();
    for (name, value) in [("opt_level", "speed"), ("is_pic", is_pic), ("enable_verifier", "false")] {
        flags.set(name, value).map_err(failed)?;
    }
    builder.finish(settings::Flags::new(flags)).map_err(failed)
}

/// Compiles what can be compiled of a program.
pub fn compile(program: Program, options: Options) -> Result<Program, NativeError> {
    let isa = cranelift_native::builder().map_err(|why| NativeError::NoTarget(why.to_owned()))?;
    let mut builder = JITBuilder::with_isa(target(&isa, "false")?, default_libcall_names());
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
