//! One function after the other as Cranelift's form.
//!
//! A value is a word, or a float in a register of its own. A function takes its context, the words of stack that it may use, what
//! was counted and not paid for, and its arguments. It gives two words: its result, and its status in the two lowest bits below what
//! is counted: 0 if the result is its value, 1 if the task must end, 2 if the result is the code of its error. So what is counted
//! stays in a register; it is in the context whenever the host may look.
//!
//! The inside of a nursery has the shape of an entry: it takes what it uses of the function from a part of the function's frame, and
//! leaves there what the function uses of it.

mod body;
mod memory;
mod ops;
mod tasks;

use crate::code::{Metering, Site};
use crate::context::{PENDING, STACK_WORDS};
use crate::facts::Facts;
use crate::loops::Loops;
use crate::shape::Shape;
use body::{Body, MOST_POLLS};
use cranelift_codegen::Context as Codegen;
use cranelift_codegen::ir::{
    AbiParam, InstBuilder, MemFlagsData, Signature, Type as IrType, UserFuncName, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{FuncId, Linkage, Module, ModuleError};
use mainspring_qtjir::{Function, Op, Program, Type, reaching};
use std::collections::{HashMap, HashSet};

type Emitted<T = ()> = Result<T, Box<ModuleError>>;

/// What the functions of the host are called in generated code.
pub(crate) const PAY: &str = "mainspring_jan_pay";
pub(crate) const ALLOCATE: &str = "mainspring_jan_allocate";
pub(crate) const PRINT: &str = "mainspring_jan_print";
pub(crate) const ACT: &str = "mainspring_jan_act";
pub(crate) const NURSERY: &str = "mainspring_jan_nursery";

/// The statuses of a call, and the bits that they take below what is counted.
const ENDS: i64 = 1;
const FAILED: i64 = 2;
const STATUS_BITS: i64 = 2;
const STATUS_MASK: i64 = (1 << STATUS_BITS) - 1;

pub(crate) struct Emitter<'a> {
    module: &'a mut dyn Module,
    program: &'a Program,
    metering: Metering,
    index: HashMap<&'a str, usize>,
    declared: HashMap<usize, FuncId>,
    pay: FuncId,
    allocate: FuncId,
    print: FuncId,
    act: FuncId,
    nursery: FuncId,
    sites: Vec<Site>,
    texts: Vec<String>,
    /// The bytes that each function takes.
    sizes: Vec<(FuncId, usize)>,
    /// Which functions allocate, those that they call included: the heap may move while they run.
    allocates: Vec<bool>,
}

/// How a value of this type is held.
fn held(of: &Type) -> IrType {
    if *of == Type::F64 { types::F64 } else { types::I64 }
}

/// How the arguments of an entry, and its result, are reached.
fn trusted() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// A function that pays and keeps all registers: its callers spill nothing around a call that is rarely made. It gives nothing; a
/// task that must end finds the reason in its context.
fn pay_keeping_registers(module: &mut dyn Module, pay: FuncId) -> Emitted<FuncId> {
    let mut codegen = module.make_context();
    codegen.func.signature.call_conv = CallConv::PreserveAll;
    codegen.func.signature.params = vec![AbiParam::new(types::I64)];
    let id = module.declare_anonymous_function(&codegen.func.signature)?;
    codegen.func.name = UserFuncName::user(0, id.as_u32());
    let mut frontend = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut codegen.func, &mut frontend);
    let block = builder.create_block();
    builder.append_block_params_for_function_params(block);
    builder.switch_to_block(block);
    let context = builder.block_params(block)[0];
    let callee = module.declare_func_in_func(pay, builder.func);
    builder.ins().call(callee, &[context]);
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize(module.target_config());
    module.define_function(id, &mut codegen)?;
    Ok(id)
}

/// What was emitted: the entry of each function that was, and what generated code refers to by number.
pub(crate) struct Emission {
    pub(crate) entries: Vec<Option<FuncId>>,
    pub(crate) sites: Vec<Site>,
    pub(crate) texts: Vec<String>,
    pub(crate) sizes: Vec<(FuncId, usize)>,
}

/// A function while its pieces are compiled.
#[derive(Clone, Copy)]
struct Whole<'w> {
    /// Its number in the program.
    at: usize,
    shape: &'w Shape,
    facts: &'w Facts,
    loops: &'w Loops,
    /// What the pieces are called.
    ids: &'w [FuncId],
}

impl<'a> Emitter<'a> {
    /// Compiles the functions of a program that can be.
    pub(crate) fn emit(
        module: &'a mut dyn Module,
        program: &'a Program,
        metering: Metering,
    ) -> Emitted<Emission> {
        let mut emitter = Self::new(module, program, metering)?;
        let eligible = eligible(program);
        let functions = &program.module().functions;
        let mut ids: Vec<Option<FuncId>> = Vec::new();
        for (function, eligible) in functions.iter().zip(eligible) {
            ids.push(if eligible { Some(emitter.declare(function)?) } else { None });
        }
        let mut entries = Vec::new();
        for (at, id) in ids.into_iter().enumerate() {
            entries.push(match id {
                Some(id) => Some(emitter.define(at, id)?),
                None => None,
            });
        }
        Ok(Emission { entries, sites: emitter.sites, texts: emitter.texts, sizes: emitter.sizes })
    }

    fn new(module: &'a mut dyn Module, program: &'a Program, metering: Metering) -> Emitted<Self> {
        let mut import = |name: &str, params: usize| {
            let mut signature = module.make_signature();
            signature.params = vec![AbiParam::new(types::I64); params];
            signature.returns = vec![AbiParam::new(types::I64)];
            module.declare_function(name, Linkage::Import, &signature).map_err(Box::new)
        };
        let (pay, allocate, print) = (import(PAY, 1)?, import(ALLOCATE, 2)?, import(PRINT, 3)?);
        let (act, nursery) = (import(ACT, 4)?, import(NURSERY, 6)?);
        let pay = pay_keeping_registers(module, pay)?;
        let (declared, sites, texts, sizes) = (HashMap::new(), Vec::new(), Vec::new(), Vec::new());
        let index = program.module().index();
        let allocates = allocating(program);
        Ok(Self {
            module,
            program,
            metering,
            index,
            declared,
            pay,
            allocate,
            print,
            act,
            nursery,
            sites,
            texts,
            sizes,
            allocates,
        })
    }

    /// The signature of what generated code calls. It may end with a call of another function, and keeps no registers for its caller: most functions
    /// that are called often call none, and have nothing to keep.
    fn signature(&self, function: &Function) -> Signature {
        let mut signature = self.module.make_signature();
        signature.call_conv = CallConv::Tail;
        signature.params = vec![AbiParam::new(types::I64); 3];
        signature.params.extend(function.params().iter().map(|of| AbiParam::new(held(of))));
        signature.returns = vec![AbiParam::new(types::I64); 2];
        signature
    }

    fn declare(&mut self, function: &Function) -> Emitted<FuncId> {
        let signature = self.signature(function);
        let id = self.module.declare_anonymous_function(&signature)?;
        self.declared.insert(self.index[function.name.as_str()], id);
        Ok(id)
    }

    /// Compiles a function, with the insides of its nurseries, and an entry for the interpreter.
    fn define(&mut self, at: usize, id: FuncId) -> Emitted<FuncId> {
        let function = &self.program.module().functions[at];
        let shape = Shape::of(function);
        let mut ids = vec![id];
        for _ in 1..shape.pieces.len() {
            ids.push(self.module.declare_anonymous_function(&self.entry_signature())?);
        }
        let (facts, loops) = (Facts::of(&shape.function), Loops::of(&shape.function));
        let whole = Whole { at, shape: &shape, facts: &facts, loops: &loops, ids: &ids };
        let mut codegen = self.module.make_context();
        for (piece, id) in ids.iter().enumerate() {
            codegen.func.signature =
                if piece == 0 { self.signature(function) } else { self.entry_signature() };
            codegen.func.name = UserFuncName::user(0, id.as_u32());
            let mut frontend = FunctionBuilderContext::new();
            Body::emit(self, whole, piece, FunctionBuilder::new(&mut codegen.func, &mut frontend));
            self.module.define_function(*id, &mut codegen)?;
            let size = codegen.compiled_code().map_or(0, |code| code.code_info().total_size as usize);
            self.sizes.push((*id, size));
            self.module.clear_context(&mut codegen);
        }
        self.entry(function, id, codegen)
    }

    /// The signature of what the host calls.
    fn entry_signature(&self) -> Signature {
        let mut signature = self.module.make_signature();
        signature.params = vec![AbiParam::new(types::I64); 3];
        signature.returns = vec![AbiParam::new(types::I64)];
        signature
    }

    /// Takes the arguments from memory and puts the result there.
    fn entry(&mut self, function: &Function, id: FuncId, mut codegen: Codegen) -> Emitted<FuncId> {
        let signature = self.entry_signature();
        let entry = self.module.declare_anonymous_function(&signature)?;
        codegen.func.signature = signature;
        codegen.func.name = UserFuncName::user(0, entry.as_u32());
        let mut frontend = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut codegen.func, &mut frontend);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        let [context, args, out] = builder.block_params(block) else { unreachable!("three parameters") };
        let (context, args, out) = (*context, *args, *out);
        let left = builder.ins().load(types::I64, trusted(), context, STACK_WORDS);
        let pending = builder.ins().load(types::I64, trusted(), context, PENDING);
        let mut values = vec![context, left, pending];
        for (number, of) in function.params().iter().enumerate() {
            values.push(builder.ins().load(held(of), trusted(), args, number as i32 * 8));
        }
        let callee = self.module.declare_func_in_func(id, builder.func);
        let call = builder.ins().call(callee, &values);
        let [result, came] = builder.inst_results(call) else { unreachable!("two results") };
        let (result, came) = (*result, *came);
        builder.ins().store(trusted(), result, out, 0);
        let pending = builder.ins().ushr_imm_s(came, STATUS_BITS);
        builder.ins().store(trusted(), pending, context, PENDING);
        let status = builder.ins().band_imm_s(came, STATUS_MASK);
        builder.ins().return_(&[status]);
        builder.seal_all_blocks();
        builder.finalize(self.module.target_config());
        self.module.define_function(entry, &mut codegen)?;
        Ok(entry)
    }
}

/// Which functions may move the heap, those included that only call one that does.
fn allocating(program: &Program) -> Vec<bool> {
    let allocates = |op: &Op| op.needs_scheduler() || matches!(op, Op::SliceNew(..) | Op::StructNew(..));
    reaching(program.module(), allocates, |op| matches!(op, Op::Call(..)))
}

/// A function with more values is interpreted: its frame could be larger than what is kept free of the stack.
const MAX_VALUES: usize = 1024;

/// Whether a function is too large to be compiled.
fn is_large(function: &Function) -> bool {
    let instrs = function.blocks.iter().flat_map(|block| &block.instrs);
    function.values.len() > MAX_VALUES
        || instrs.filter(|instr| instr.op == Op::BudgetCheck).count() > MOST_POLLS
}

/// Which functions are small enough, and call none that is not.
fn eligible(program: &Program) -> Vec<bool> {
    let module = program.module();
    let large: HashSet<&str> = module
        .functions
        .iter()
        .filter(|function| is_large(function))
        .map(|function| function.name.as_str())
        .collect();
    let calls = |op: &Op| matches!(op, Op::Call(..));
    let calls_large = |op: &Op| calls(op) && op.callee().is_some_and(|name| large.contains(name));
    let refused = reaching(module, calls_large, calls);
    let fits = |function: &Function| !large.contains(function.name.as_str());
    module.functions.iter().zip(refused).map(|(function, refused)| !refused && fits(function)).collect()
}
