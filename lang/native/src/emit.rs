//! One function after the other as Cranelift's form.
//!
//! A value is a word, or a float in a register of its own. A function gives two words: its result, and its status: 0 if the result is
//! its value, 1 if the task must end, 2 if the result is the code of its error. What the function has counted is in a register; it
//! is in the context whenever another function may look.

use crate::code::Metering;
use crate::context::{
    ABOUT, HEAP, PENDING, POLL, SITE, STACK_LIMIT, STACK_WORDS, TRAP, TRAP_BOUNDS, TRAP_DIVIDE, TRAP_EMPTY,
    TRAP_HOST, TRAP_OVERFLOW, TRAP_RAISED, TRAP_STACK,
};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    AbiParam, BlockArg, FuncRef, InstBuilder, MemFlagsData, Signature, Type as IrType, UserFuncName, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_codegen::{Context as Codegen, ir};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Linkage, Module as _, ModuleError};
use mainspring_qtjir::pass::reverse_postorder;
use mainspring_qtjir::{
    Binary, Block, FRAME_OVERHEAD_WORDS, Function, Instr, Op, Pos, Program, Target, Terminator, Type, Unary,
    Value,
};
use std::collections::HashMap;

type Emitted<T = ()> = Result<T, Box<ModuleError>>;

/// An instruction at which generated code may end the task.
pub(crate) struct Site {
    pos: Pos,
    function: String,
}

impl Site {
    pub(crate) fn place(&self) -> (Pos, String) {
        (self.pos, self.function.clone())
    }
}

pub(crate) struct Emitter<'a> {
    jit: &'a mut JITModule,
    program: &'a Program,
    metering: Metering,
    index: HashMap<&'a str, usize>,
    declared: HashMap<usize, FuncId>,
    pay: FuncId,
    allocate: FuncId,
    print: FuncId,
    sites: Vec<Site>,
    texts: Vec<String>,
}

/// How a value of this type is held.
fn held(of: &Type) -> IrType {
    if *of == Type::F64 { types::F64 } else { types::I64 }
}

fn memory() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// A function that pays and keeps all registers: its callers spill nothing around a call that is rarely made. It gives nothing; a
/// task that must end finds the reason in its context.
fn pay_keeping_registers(jit: &mut JITModule, pay: FuncId) -> Emitted<FuncId> {
    let mut codegen = jit.make_context();
    codegen.func.signature.call_conv = CallConv::PreserveAll;
    codegen.func.signature.params = vec![AbiParam::new(types::I64)];
    let id = jit.declare_anonymous_function(&codegen.func.signature)?;
    codegen.func.name = UserFuncName::user(0, id.as_u32());
    let mut frontend = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut codegen.func, &mut frontend);
    let block = builder.create_block();
    builder.append_block_params_for_function_params(block);
    builder.switch_to_block(block);
    let context = builder.block_params(block)[0];
    let callee = jit.declare_func_in_func(pay, builder.func);
    builder.ins().call(callee, &[context]);
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize(jit.target_config());
    jit.define_function(id, &mut codegen)?;
    Ok(id)
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(jit: &'a mut JITModule, program: &'a Program, metering: Metering) -> Emitted<Self> {
        let mut import = |name: &str, params: usize| {
            let mut signature = jit.make_signature();
            signature.params = vec![AbiParam::new(types::I64); params];
            signature.returns = vec![AbiParam::new(types::I64)];
            jit.declare_function(name, Linkage::Import, &signature).map_err(Box::new)
        };
        let (pay, allocate, print) = (import("pay", 1)?, import("allocate", 2)?, import("print", 3)?);
        let pay = pay_keeping_registers(jit, pay)?;
        let (declared, sites, texts) = (HashMap::new(), Vec::new(), Vec::new());
        let index = program.module().index();
        Ok(Self { jit, program, metering, index, declared, pay, allocate, print, sites, texts })
    }

    fn signature(&self, function: &Function) -> Signature {
        let mut signature = self.jit.make_signature();
        signature.params = vec![AbiParam::new(types::I64)];
        signature.params.extend(function.params().iter().map(|of| AbiParam::new(held(of))));
        signature.returns = vec![AbiParam::new(types::I64); 2];
        signature
    }

    pub(crate) fn declare(&mut self, function: &Function) -> Emitted<FuncId> {
        let signature = self.signature(function);
        let id = self.jit.declare_anonymous_function(&signature)?;
        self.declared.insert(self.index[function.name.as_str()], id);
        Ok(id)
    }

    /// Compiles a function, and an entry for the interpreter.
    pub(crate) fn define(&mut self, at: usize, id: FuncId) -> Emitted<FuncId> {
        let function = &self.program.module().functions[at];
        let mut codegen = self.jit.make_context();
        codegen.func.signature = self.signature(function);
        codegen.func.name = UserFuncName::user(0, id.as_u32());
        let mut frontend = FunctionBuilderContext::new();
        Body::emit(self, function, FunctionBuilder::new(&mut codegen.func, &mut frontend));
        self.jit.define_function(id, &mut codegen)?;
        self.jit.clear_context(&mut codegen);
        self.entry(function, id, codegen)
    }

    /// Takes the arguments from memory and puts the result there.
    fn entry(&mut self, function: &Function, id: FuncId, mut codegen: Codegen) -> Emitted<FuncId> {
        let mut signature = self.jit.make_signature();
        signature.params = vec![AbiParam::new(types::I64); 3];
        signature.returns = vec![AbiParam::new(types::I64)];
        let entry = self.jit.declare_anonymous_function(&signature)?;
        codegen.func.signature = signature;
        codegen.func.name = UserFuncName::user(0, entry.as_u32());
        let mut frontend = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut codegen.func, &mut frontend);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        let [context, args, out] = builder.block_params(block) else { unreachable!("three parameters") };
        let (context, args, out) = (*context, *args, *out);
        let mut values = vec![context];
        for (number, of) in function.params().iter().enumerate() {
            values.push(builder.ins().load(held(of), memory(), args, number as i32 * 8));
        }
        let callee = self.jit.declare_func_in_func(id, builder.func);
        let call = builder.ins().call(callee, &values);
        let [result, status] = builder.inst_results(call) else { unreachable!("two results") };
        let (result, status) = (*result, *status);
        builder.ins().store(memory(), result, out, 0);
        builder.ins().return_(&[status]);
        builder.seal_all_blocks();
        builder.finalize(self.jit.target_config());
        self.jit.define_function(entry, &mut codegen)?;
        Ok(entry)
    }

    pub(crate) fn finish(self) -> (Vec<Site>, Vec<String>) {
        (self.sites, self.texts)
    }
}

/// A function while it is compiled.
struct Body<'b, 'e, 'a> {
    emitter: &'e mut Emitter<'a>,
    function: &'a Function,
    builder: FunctionBuilder<'b>,
    blocks: Vec<ir::Block>,
    values: HashMap<Value, ir::Value>,
    context: ir::Value,
    /// What was counted and not paid for.
    pending: Variable,
    /// Ends the task: the kind of trap, the site, and what is to be said.
    traps: ir::Block,
    interval: i64,
    /// The place of each block in the order of emission: a way to an earlier one is a way back.
    rank: Vec<usize>,
    /// The address that is polled.
    poll: Option<ir::Value>,
    /// The values that are known numbers.
    known: HashMap<Value, i64>,
    pay: FuncRef,
    allocate: FuncRef,
    print: FuncRef,
}

impl<'b, 'e, 'a> Body<'b, 'e, 'a> {
    fn emit(emitter: &'e mut Emitter<'a>, function: &'a Function, mut builder: FunctionBuilder<'b>) {
        let blocks: Vec<ir::Block> = function.blocks.iter().map(|_| builder.create_block()).collect();
        let (entry, traps) = (builder.create_block(), builder.create_block());
        builder.append_block_params_for_function_params(entry);
        for _ in 0..4 {
            builder.append_block_param(traps, types::I64);
        }
        builder.set_cold_block(traps);
        builder.switch_to_block(entry);
        let context = builder.block_params(entry)[0];
        let pending = builder.declare_var(types::I64);
        let pay = emitter.jit.declare_func_in_func(emitter.pay, builder.func);
        let allocate = emitter.jit.declare_func_in_func(emitter.allocate, builder.func);
        let print = emitter.jit.declare_func_in_func(emitter.print, builder.func);
        let interval = emitter.program.module().interval().into();
        let values = HashMap::new();
        let order = reverse_postorder(function);
        let mut rank = vec![0; function.blocks.len()];
        order.iter().enumerate().for_each(|(at, block)| rank[*block] = at);
        let mut body = Self {
            emitter,
            function,
            builder,
            blocks,
            values,
            context,
            pending,
            traps,
            interval,
            rank,
            poll: None,
            known: HashMap::new(),
            pay,
            allocate,
            print,
        };
        body.declare_params(entry);
        body.enter();
        for at in order {
            body.block(at);
        }
        body.trap_block();
        body.builder.seal_all_blocks();
        let target = body.emitter.jit.target_config();
        body.builder.finalize(target);
    }

    fn declare_params(&mut self, entry: ir::Block) {
        let params = self.builder.block_params(entry)[1..].to_vec();
        for (value, param) in self.function.blocks[0].params.iter().zip(params) {
            self.values.insert(*value, param);
        }
        for (at, block) in self.function.blocks.iter().enumerate().skip(1) {
            for value in &block.params {
                let param =
                    self.builder.append_block_param(self.blocks[at], held(self.function.type_of(*value)));
                self.values.insert(*value, param);
            }
        }
    }

    /// Looks at the real stack. The caller has taken a frame of the one that the task may use.
    fn enter(&mut self) {
        let pending = if self.counts() { self.read(PENDING) } else { self.int(0) };
        self.builder.def_var(self.pending, pending);
        if self.emitter.metering == Metering::Poll {
            self.poll = Some(self.read(POLL));
        }
        let site = self.site(self.function.pos);
        let limit = self.read(STACK_LIMIT);
        let pointer = self.builder.ins().get_stack_pointer(types::I64);
        let low = self.builder.ins().icmp(IntCC::UnsignedLessThan, pointer, limit);
        self.trap_if(low, TRAP_STACK, site, [None, None]);
        let first = self.blocks[0];
        self.builder.ins().jump(first, &[]);
    }

    fn counts(&self) -> bool {
        matches!(self.emitter.metering, Metering::Ops | Metering::OpsGauged)
    }

    /// Polls, on a way back. The load may trap, so that it stays though nobody uses what it loads.
    fn poll_on_the_way_back(&mut self, from: usize, targets: &[&Target]) {
        let goes_back = |to: &&Target| self.rank[to.block.0 as usize] <= self.rank[from];
        if let Some(poll) = self.poll
            && targets.iter().any(goes_back)
        {
            self.builder.ins().load(types::I8, MemFlagsData::new(), poll, 0);
        }
    }

    fn read(&mut self, offset: i32) -> ir::Value {
        self.builder.ins().load(types::I64, memory(), self.context, offset)
    }

    fn write(&mut self, value: ir::Value, offset: i32) {
        self.builder.ins().store(memory(), value, self.context, offset);
    }

    fn get(&self, value: Value) -> ir::Value {
        self.values[&value]
    }

    fn set(&mut self, value: Value, to: ir::Value) {
        self.values.insert(value, to);
    }

    fn int(&mut self, value: i64) -> ir::Value {
        self.builder.ins().iconst(types::I64, value)
    }

    fn site(&mut self, pos: Pos) -> i64 {
        self.emitter.sites.push(Site { pos, function: self.function.name.clone() });
        self.emitter.sites.len() as i64 - 1
    }

    /// The word of a value, as memory and other functions hold it.
    fn word(&mut self, value: Value) -> ir::Value {
        let held = self.get(value);
        if *self.function.type_of(value) == Type::F64 {
            return self.builder.ins().bitcast(types::I64, MemFlagsData::new(), held);
        }
        held
    }

    fn set_word(&mut self, value: Value, word: ir::Value) {
        let held = if *self.function.type_of(value) == Type::F64 {
            self.builder.ins().bitcast(types::F64, MemFlagsData::new(), word)
        } else {
            word
        };
        self.set(value, held);
    }

    /// Ends the task here if the condition holds.
    fn trap_if(&mut self, condition: ir::Value, kind: i64, site: i64, about: [Option<ir::Value>; 2]) {
        let goes_on = self.builder.create_block();
        let zero = self.int(0);
        let (kind, site) = (self.int(kind), self.int(site));
        let [one, other] = about.map(|about| about.unwrap_or(zero));
        let args = [kind, site, one, other].map(BlockArg::Value);
        self.builder.ins().brif(condition, self.traps, &args, goes_on, &[]);
        self.builder.switch_to_block(goes_on);
    }

    fn trap_block(&mut self) {
        self.builder.switch_to_block(self.traps);
        let params = self.builder.block_params(self.traps).to_vec();
        for (value, offset) in params.into_iter().zip([TRAP, SITE, ABOUT, ABOUT + 8]) {
            self.write(value, offset);
        }
        self.publish();
        self.end_task();
    }

    /// Gives the status that ends the task. The host has the reason.
    fn end_task(&mut self) {
        let (zero, one) = (self.int(0), self.int(1));
        self.builder.ins().return_(&[zero, one]);
    }

    /// Puts what was counted where other functions see it.
    fn publish(&mut self) {
        if !self.counts() {
            return;
        }
        let pending = self.builder.use_var(self.pending);
        self.write(pending, PENDING);
    }

    /// Takes up what other functions have counted.
    fn reread(&mut self) {
        if !self.counts() {
            return;
        }
        let pending = self.read(PENDING);
        self.builder.def_var(self.pending, pending);
    }

    /// Calls a function of the host. Gives its result.
    fn call_host(&mut self, callee: FuncRef, args: &[ir::Value]) -> ir::Value {
        self.publish();
        let mut all = vec![self.context];
        all.extend(args);
        let call = self.builder.ins().call(callee, &all);
        let result = self.builder.inst_results(call)[0];
        self.reread();
        result
    }

    fn block(&mut self, at: usize) {
        let block: &'a Block = &self.function.blocks[at];
        self.builder.switch_to_block(self.blocks[at]);
        for instr in &block.instrs {
            self.instr(instr);
        }
        match &block.end {
            Terminator::Jump(to) => self.poll_on_the_way_back(at, &[to]),
            Terminator::Branch(_, yes, no) => self.poll_on_the_way_back(at, &[yes, no]),
            _ => {}
        }
        self.end(&block.end, block.end_pos);
    }

    fn leave(&mut self, result: ir::Value, status: i64) {
        self.publish();
        let status = self.int(status);
        self.builder.ins().return_(&[result, status]);
    }

    fn target(&self, target: &Target) -> (ir::Block, Vec<BlockArg>) {
        let args = target.args.iter().map(|value| BlockArg::Value(self.get(*value))).collect();
        (self.blocks[target.block.0 as usize], args)
    }

    fn end(&mut self, end: &Terminator, pos: Pos) {
        match end {
            Terminator::Jump(to) => {
                let (block, args) = self.target(to);
                self.builder.ins().jump(block, &args);
            }
            Terminator::Branch(condition, yes, no) => {
                let condition = self.get(*condition);
                let ((yes, yes_args), (no, no_args)) = (self.target(yes), self.target(no));
                self.builder.ins().brif(condition, yes, &yes_args, no, &no_args);
            }
            Terminator::Return(value) => {
                let result = match value {
                    Some(value) => self.word(*value),
                    None => self.int(0),
                };
                self.leave(result, 0);
            }
            Terminator::Fail(code) => {
                // An error whose code is zero is none.
                let code = self.get(*code);
                let is_error = self.builder.ins().icmp_imm_s(IntCC::NotEqual, code, 0);
                let (error, none) = (self.builder.create_block(), self.builder.create_block());
                self.builder.ins().brif(is_error, error, &[], none, &[]);
                self.builder.switch_to_block(error);
                self.leave(code, 2);
                self.builder.switch_to_block(none);
                self.leave(code, 0);
            }
            Terminator::Raise(code) => {
                let (code, site) = (self.get(*code), self.site(pos));
                let (kind, site, zero) = (self.int(TRAP_RAISED), self.int(site), self.int(0));
                let args = [kind, site, code, zero].map(BlockArg::Value);
                self.builder.ins().jump(self.traps, &args);
            }
        }
    }

    fn instr(&mut self, instr: &'a Instr) {
        match &instr.op {
            Op::Int(value) => {
                self.known.insert(instr.results[0], *value);
                let value = self.int(*value);
                self.set(instr.results[0], value);
            }
            Op::Float(value) => {
                let value = self.builder.ins().f64const(*value);
                self.set(instr.results[0], value);
            }
            Op::Bool(value) => {
                let value = self.int((*value).into());
                self.set(instr.results[0], value);
            }
            Op::Binary(op, a, b) => {
                let result = if *self.function.type_of(*a) == Type::F64 {
                    self.float(*op, self.get(*a), self.get(*b))
                } else {
                    self.integer(*op, self.get(*a), self.get(*b), instr.pos)
                };
                self.set(instr.results[0], result);
            }
            Op::Unary(op, a) => {
                let result = self.unary(*op, *a, instr.pos);
                self.set(instr.results[0], result);
            }
            Op::Call(name, args) => self.call(instr, name, args),
            Op::BudgetDecrement(cost) => self.count(*cost),
            Op::BudgetCheck => self.check(instr.pos),
            Op::SliceNew(..)
            | Op::Len(_)
            | Op::Load(..)
            | Op::Store(..)
            | Op::StructNew(..)
            | Op::Field(..)
            | Op::SetField(..) => self.memory(instr),
            Op::Print(value) => {
                let kind = match self.function.type_of(*value) {
                    Type::F64 => 1,
                    Type::Bool => 2,
                    _ => 0,
                };
                let word = self.word(*value);
                self.print_word(word, kind, instr.pos);
            }
            Op::PrintText(text) => {
                self.emitter.texts.push(text.clone());
                let number = self.int(self.emitter.texts.len() as i64 - 1);
                self.print_word(number, 3, instr.pos);
            }
            other => unreachable!("{} needs the scheduler, and its function is not compiled", other.name()),
        }
    }

    fn print_word(&mut self, word: ir::Value, kind: i64, pos: Pos) {
        let kind = self.int(kind);
        let failed = self.call_host(self.print, &[word, kind]);
        self.host_trap_if(failed, pos);
    }

    fn host_trap_if(&mut self, failed: ir::Value, pos: Pos) {
        let site = self.site(pos);
        self.trap_if(failed, TRAP_HOST, site, [None, None]);
    }

    /// As the interpreter counts: never less than nothing, and no more than 32 bits at once.
    fn count(&mut self, cost: Value) {
        let cost = match self.known.get(&cost) {
            Some(known) => self.int((*known).clamp(0, u32::MAX.into())),
            None => {
                let (zero, most) = (self.int(0), self.int(u32::MAX.into()));
                let cost = self.builder.ins().smax(self.values[&cost], zero);
                self.builder.ins().umin(cost, most)
            }
        };
        let pending = self.builder.use_var(self.pending);
        let pending = self.builder.ins().iadd(pending, cost);
        self.builder.def_var(self.pending, pending);
    }

    fn check(&mut self, pos: Pos) {
        let pending = self.builder.use_var(self.pending);
        let due = self.builder.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, pending, self.interval);
        let (pays, goes_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(pays);
        self.builder.ins().brif(due, pays, &[], goes_on, &[]);
        self.builder.switch_to_block(pays);
        self.publish();
        self.builder.ins().call(self.pay, &[self.context]);
        self.reread();
        let failed = self.read(TRAP);
        self.host_trap_if(failed, pos);
        self.builder.ins().jump(goes_on, &[]);
        self.builder.switch_to_block(goes_on);
    }

    fn call(&mut self, instr: &Instr, name: &str, args: &[Value]) {
        let at = self.emitter.index[name];
        let callee = &self.emitter.program.module().functions[at];
        let function = self.emitter.jit.declare_func_in_func(self.emitter.declared[&at], self.builder.func);
        let mut values = vec![self.context];
        values.extend(args.iter().map(|value| self.get(*value)));
        let frame_words = (callee.values.len() + FRAME_OVERHEAD_WORDS) as i64;
        let left = self.read(STACK_WORDS);
        let left = self.builder.ins().iadd_imm_s(left, -frame_words);
        let deep = self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, left, 0);
        let site = self.site(instr.pos);
        self.trap_if(deep, TRAP_STACK, site, [None, None]);
        self.write(left, STACK_WORDS);
        self.publish();
        let call = self.builder.ins().call(function, &values);
        let [result, status] = self.builder.inst_results(call) else { unreachable!("two results") };
        let (result, status) = (*result, *status);
        self.reread();
        let ends = self.builder.ins().icmp_imm_s(IntCC::Equal, status, 1);
        let (ended, goes_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(ended);
        self.builder.ins().brif(ends, ended, &[], goes_on, &[]);
        self.builder.switch_to_block(ended);
        self.end_task();
        self.builder.switch_to_block(goes_on);
        let left = self.read(STACK_WORDS);
        let left = self.builder.ins().iadd_imm_s(left, frame_words);
        self.write(left, STACK_WORDS);
        let mut results = instr.results.iter();
        let (mut value, zero) = (result, self.int(0));
        let mut code = zero;
        if callee.fails {
            let failed = self.builder.ins().icmp_imm_s(IntCC::Equal, status, 2);
            value = self.builder.ins().select(failed, zero, result);
            code = self.builder.ins().select(failed, result, zero);
        }
        if callee.result != Type::Unit {
            self.set_word(*results.next().expect("it gives something"), value);
        }
        if let Some(error) = results.next() {
            self.set(*error, code);
        }
    }

    fn integer(&mut self, op: Binary, a: ir::Value, b: ir::Value, pos: Pos) -> ir::Value {
        let compared = match op {
            Binary::Eq => Some(IntCC::Equal),
            Binary::Ne => Some(IntCC::NotEqual),
            Binary::Lt => Some(IntCC::SignedLessThan),
            Binary::Le => Some(IntCC::SignedLessThanOrEqual),
            Binary::Gt => Some(IntCC::SignedGreaterThan),
            Binary::Ge => Some(IntCC::SignedGreaterThanOrEqual),
            _ => None,
        };
        if let Some(compared) = compared {
            let bit = self.builder.ins().icmp(compared, a, b);
            return self.builder.ins().uextend(types::I64, bit);
        }
        match op {
            Binary::AddWrap => self.builder.ins().iadd(a, b),
            Binary::SubWrap => self.builder.ins().isub(a, b),
            Binary::MulWrap => self.builder.ins().imul(a, b),
            Binary::And => self.builder.ins().band(a, b),
            Binary::Or => self.builder.ins().bor(a, b),
            Binary::Xor => self.builder.ins().bxor(a, b),
            Binary::Shl => self.builder.ins().ishl(a, b),
            Binary::Shr => self.builder.ins().sshr(a, b),
            Binary::MinUnsigned => self.builder.ins().umin(a, b),
            Binary::Div | Binary::Rem => self.divided(op, a, b, pos),
            _ => {
                let (result, over) = match op {
                    Binary::Add => self.builder.ins().sadd_overflow(a, b),
                    Binary::Sub => self.builder.ins().ssub_overflow(a, b),
                    _ => self.builder.ins().smul_overflow(a, b),
                };
                let site = self.site(pos);
                self.trap_if(over, TRAP_OVERFLOW, site, [None, None]);
                result
            }
        }
    }

    fn divided(&mut self, op: Binary, a: ir::Value, b: ir::Value, pos: Pos) -> ir::Value {
        let site = self.site(pos);
        let by_zero = self.builder.ins().icmp_imm_s(IntCC::Equal, b, 0);
        self.trap_if(by_zero, TRAP_DIVIDE, site, [None, None]);
        let least = self.builder.ins().icmp_imm_s(IntCC::Equal, a, i64::MIN);
        let negated = self.builder.ins().icmp_imm_s(IntCC::Equal, b, -1);
        let over = self.builder.ins().band(least, negated);
        self.trap_if(over, TRAP_OVERFLOW, site, [None, None]);
        match op {
            Binary::Div => self.builder.ins().sdiv(a, b),
            _ => self.builder.ins().srem(a, b),
        }
    }

    fn float(&mut self, op: Binary, a: ir::Value, b: ir::Value) -> ir::Value {
        let compared = match op {
            Binary::Add => return self.builder.ins().fadd(a, b),
            Binary::Sub => return self.builder.ins().fsub(a, b),
            Binary::Mul => return self.builder.ins().fmul(a, b),
            Binary::Div => return self.builder.ins().fdiv(a, b),
            Binary::Eq => FloatCC::Equal,
            Binary::Ne => FloatCC::NotEqual,
            Binary::Lt => FloatCC::LessThan,
            Binary::Le => FloatCC::LessThanOrEqual,
            Binary::Gt => FloatCC::GreaterThan,
            _ => FloatCC::GreaterThanOrEqual,
        };
        let bit = self.builder.ins().fcmp(compared, a, b);
        self.builder.ins().uextend(types::I64, bit)
    }

    fn unary(&mut self, op: Unary, a: Value, pos: Pos) -> ir::Value {
        let value = self.get(a);
        match op {
            Unary::Neg if *self.function.type_of(a) == Type::F64 => self.builder.ins().fneg(value),
            Unary::Neg => {
                let least = self.builder.ins().icmp_imm_s(IntCC::Equal, value, i64::MIN);
                let site = self.site(pos);
                self.trap_if(least, TRAP_OVERFLOW, site, [None, None]);
                self.builder.ins().ineg(value)
            }
            Unary::Not => self.builder.ins().bxor_imm_s(value, 1),
            Unary::ToFloat => self.builder.ins().fcvt_from_sint(types::F64, value),
            Unary::ToInt => self.builder.ins().fcvt_to_sint_sat(types::I64, value),
        }
    }

    /// The address of an object.
    fn object(&mut self, of: Value) -> ir::Value {
        let base = self.read(HEAP);
        let offset = self.builder.ins().ishl_imm_s(self.values[&of], 3);
        self.builder.ins().iadd(base, offset)
    }

    fn element(&mut self, slice: Value, index: Value, pos: Pos) -> ir::Value {
        let object = self.object(slice);
        let index = self.get(index);
        let len = self.builder.ins().load(types::I64, memory(), object, 0);
        let outside = self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index, len);
        let site = self.site(pos);
        self.trap_if(outside, TRAP_BOUNDS, site, [Some(index), Some(len)]);
        let offset = self.builder.ins().ishl_imm_s(index, 3);
        self.builder.ins().iadd(object, offset)
    }

    /// The address of an object that has this field.
    fn filled(&mut self, of: Value, field: u32, pos: Pos) -> ir::Value {
        let object = self.object(of);
        let len = self.builder.ins().load(types::I64, memory(), object, 0);
        let empty = self.builder.ins().icmp_imm_s(IntCC::UnsignedLessThanOrEqual, len, i64::from(field));
        let site = self.site(pos);
        self.trap_if(empty, TRAP_EMPTY, site, [None, None]);
        object
    }

    fn allocated(&mut self, len: ir::Value, pos: Pos) -> ir::Value {
        let at = self.call_host(self.allocate, &[len]);
        let failed = self.builder.ins().icmp_imm_s(IntCC::Equal, at, 0);
        self.host_trap_if(failed, pos);
        at
    }

    fn load(&mut self, result: Value, address: ir::Value, offset: i32) {
        let of = held(self.function.type_of(result));
        let value = self.builder.ins().load(of, memory(), address, offset);
        self.set(result, value);
    }

    fn memory(&mut self, instr: &Instr) {
        let pos = instr.pos;
        match &instr.op {
            Op::SliceNew(_, len) => {
                let at = self.allocated(self.get(*len), pos);
                self.set(instr.results[0], at);
            }
            Op::Len(slice) => {
                let object = self.object(*slice);
                let len = self.builder.ins().load(types::I64, memory(), object, 0);
                self.set(instr.results[0], len);
            }
            Op::Load(slice, index) => {
                let address = self.element(*slice, *index, pos);
                self.load(instr.results[0], address, 8);
            }
            Op::Store(slice, index, value) => {
                let address = self.element(*slice, *index, pos);
                self.builder.ins().store(memory(), self.values[value], address, 8);
            }
            Op::StructNew(_, fields) => {
                let len = self.int(fields.len() as i64);
                let at = self.allocated(len, pos);
                self.set(instr.results[0], at);
                let object = self.object(instr.results[0]);
                for (field, value) in fields.iter().enumerate() {
                    self.builder.ins().store(memory(), self.values[value], object, 8 + field as i32 * 8);
                }
            }
            Op::Field(of, field) => {
                let object = self.filled(*of, *field, pos);
                self.load(instr.results[0], object, 8 + *field as i32 * 8);
            }
            Op::SetField(of, field, value) => {
                let object = self.filled(*of, *field, pos);
                self.builder.ins().store(memory(), self.values[value], object, 8 + *field as i32 * 8);
            }
            _ => unreachable!("no operation on memory"),
        }
    }
}
