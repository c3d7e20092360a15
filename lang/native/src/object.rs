//! Code that is written to an object file, for a program that is linked.
//!
//! The object has the functions, the source, and a table that says where both are ([`Table`]). Its `main` hands the table to the library,
//! which compiles the source to the same program again and lets it call the functions. A hash tells whether it is the same.

use crate::code::{Metering, NativeError, Options};
use crate::emit::{Emission, Emitter};
use crate::jit::{failed, target};
use crate::start::{FIELDS, START, fingerprint, pack};
use cranelift_codegen::ir::{AbiParam, InstBuilder, UserFuncName, types};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};
use mainspring_qtjir::Program;

/// Writes a program to an object file: what can be compiled of it, its source, and a `main`. `source` is what the program was compiled
/// from. Its code runs on any processor of this kind.
pub fn object(program: &Program, name: &str, source: &str, options: Options) -> Result<Vec<u8>, NativeError> {
    if !matches!(options.metering, Metering::Ops | Metering::Time) {
        return Err(failed("an object file counts ops, or polls"));
    }
    let isa = cranelift_codegen::isa::lookup(target_lexicon::Triple::host());
    let isa = isa.map_err(|why| NativeError::NoTarget(why.to_string()))?;
    let builder = ObjectBuilder::new(target(&isa, "true")?, name, default_libcall_names()).map_err(failed)?;
    let mut module = ObjectModule::new(builder);
    let emission = Emitter::emit(&mut module, program, options.metering).map_err(failed)?;
    let table = table(&mut module, program, &emission, [name, source], options)?;
    main(&mut module, table)?;
    module.finish().emit().map_err(failed)
}

fn data(module: &mut ObjectModule, bytes: Vec<u8>) -> Result<DataId, NativeError> {
    let id = module.declare_anonymous_data(false, false).map_err(failed)?;
    let mut description = DataDescription::new();
    description.define(bytes.into());
    module.define_data(id, &description).map_err(failed)?;
    Ok(id)
}

/// The entries of functions, one after the other; zero for those that are interpreted.
fn entries(module: &mut ObjectModule, ids: &[Option<FuncId>]) -> Result<DataId, NativeError> {
    let id = module.declare_anonymous_data(false, false).map_err(failed)?;
    let mut description = DataDescription::new();
    description.define(vec![0; ids.len().max(1) * 8].into());
    description.set_align(8);
    for (at, function) in ids.iter().enumerate() {
        if let Some(function) = function {
            let function = module.declare_func_in_data(*function, &mut description);
            description.write_function_addr(at as u32 * 8, function);
        }
    }
    module.define_data(id, &description).map_err(failed)?;
    Ok(id)
}

/// Where code is that polls, and how long each piece is.
fn polls(module: &mut ObjectModule, sizes: &[(FuncId, usize)]) -> Result<DataId, NativeError> {
    let id = module.declare_anonymous_data(false, false).map_err(failed)?;
    let mut description = DataDescription::new();
    let words = sizes.iter().flat_map(|(_, size)| [0, *size as u64]);
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.resize(bytes.len().max(8), 0);
    description.define(bytes.into());
    description.set_align(8);
    for (at, (function, _)) in sizes.iter().enumerate() {
        let function = module.declare_func_in_data(*function, &mut description);
        description.write_function_addr(at as u32 * 16, function);
    }
    module.define_data(id, &description).map_err(failed)?;
    Ok(id)
}

fn table(
    module: &mut ObjectModule,
    program: &Program,
    emission: &Emission,
    [name, source]: [&str; 2],
    options: Options,
) -> Result<DataId, NativeError> {
    let (sites, texts) = pack(&emission.sites, &emission.texts);
    let parts = [name.as_bytes().to_vec(), source.as_bytes().to_vec(), sites, texts];
    let id = module.declare_anonymous_data(false, false).map_err(failed)?;
    let sizes = if options.metering == Metering::Time { emission.sizes.as_slice() } else { &[] };
    let mut words = vec![fingerprint(program), options.stack_bytes as u64, emission.entries.len() as u64];
    words.push(sizes.len() as u64);
    words.extend(parts.iter().map(|part| part.len() as u64));
    words.resize(FIELDS, 0);
    let mut description = DataDescription::new();
    description.define(words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().into());
    description.set_align(8);
    let mut places = vec![entries(module, &emission.entries)?, polls(module, sizes)?];
    for part in parts {
        places.push(data(module, part)?);
    }
    // The addresses follow the numbers.
    for (at, place) in places.into_iter().enumerate() {
        let place = module.declare_data_in_data(place, &mut description);
        description.write_data_addr((8 + at as u32) * 8, place, 0);
    }
    module.define_data(id, &description).map_err(failed)?;
    Ok(id)
}

/// `int main(int, char **)`.
fn main(module: &mut ObjectModule, table: DataId) -> Result<(), NativeError> {
    let mut signature = module.make_signature();
    signature.params = vec![AbiParam::new(types::I32), AbiParam::new(types::I64)];
    signature.returns = vec![AbiParam::new(types::I32)];
    let id = module.declare_function("main", Linkage::Export, &signature).map_err(failed)?;
    let mut codegen = module.make_context();
    codegen.func.signature = signature.clone();
    codegen.func.name = UserFuncName::user(0, id.as_u32());
    signature.params.push(AbiParam::new(types::I64));
    let start = module.declare_function(START, Linkage::Import, &signature).map_err(failed)?;
    let mut frontend = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut codegen.func, &mut frontend);
    let block = builder.create_block();
    builder.append_block_params_for_function_params(block);
    builder.switch_to_block(block);
    let mut args = builder.block_params(block).to_vec();
    let table = module.declare_data_in_func(table, builder.func);
    args.push(builder.ins().symbol_value(types::I64, table));
    let start = module.declare_func_in_func(start, builder.func);
    let call = builder.ins().call(start, &args);
    let status = builder.inst_results(call)[0];
    builder.ins().return_(&[status]);
    builder.seal_all_blocks();
    builder.finalize(module.target_config());
    module.define_function(id, &mut codegen).map_err(failed)
}
