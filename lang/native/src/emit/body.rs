//! The blocks of one piece of a function: control, calls, traps and the meter.

use super::memory::{Regions, Seen};
use super::{ENDS, Emitter, FAILED, STATUS_BITS, STATUS_MASK, Whole, held};
use crate::code::{Metering, Site};
use crate::context::{
    ABOUT, HEAP, PENDING, SITE, STACK_LIMIT, STACK_WORDS, TRAP, TRAP_HOST, TRAP_RAISED, TRAP_STACK,
};
use crate::facts::Facts;
use crate::loops::Loops;
use crate::stop::PAGE;
use cranelift_codegen::ir;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, FuncRef, InstBuilder, MemFlagsData, types};
use cranelift_frontend::{FunctionBuilder, Variable};
use mainspring_qtjir::pass::reverse_postorder;
use mainspring_qtjir::{Binary, Block, BlockId, Function, Instr, Op, Pos, Target, Terminator, Type, Value};
use std::collections::HashMap;

/// The first byte of the page that is polled: the word before is the limit of the stack.
const FIRST_POLL: i32 = 8;
/// Each poll of a function has a byte of the page.
pub(super) const MOST_POLLS: usize = PAGE - FIRST_POLL as usize;

/// How a value came about.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// In how many loops it was made.
    pub(super) depth: usize,
    /// What was added up, if it is a sum.
    pub(super) sum: Option<(Value, Value)>,
}

/// A piece of a function while it is compiled.
pub(super) struct Body<'b, 'e, 'a> {
    pub(super) emitter: &'e mut Emitter<'a>,
    pub(super) whole: Whole<'e>,
    /// Which piece it is.
    pub(super) piece: usize,
    pub(super) function: &'e Function,
    pub(super) builder: FunctionBuilder<'b>,
    pub(super) facts: &'e Facts,
    loops: &'e Loops,
    /// What the inside of a nursery shares with the function around it.
    pub(super) frame: Option<ir::Value>,
    /// The part of its own frame that the host takes words from and gives words in.
    pub(super) words: Option<ir::StackSlot>,
    /// The blocks with a call of generated code.
    calling: Vec<usize>,
    /// How many polls there are.
    polls: usize,
    /// Sums: what was added, and how many loops the value is in, by value.
    pub(super) origins: HashMap<Value, Origin>,
    pub(super) regions: Regions,
    /// What was seen of memory up to here, and up to the end of each block.
    pub(super) seen: Seen,
    left_seen: HashMap<usize, Seen>,
    /// The only block from which a block is entered, if there is one.
    entered_from: Vec<Option<usize>>,
    pub(super) blocks: Vec<ir::Block>,
    pub(super) values: HashMap<Value, ir::Value>,
    context: ir::Value,
    /// Words of stack that callees may use.
    pub(super) left: ir::Value,
    /// What was counted and not paid for.
    pending: Variable,
    /// The first word of the heap, which moves when something is allocated.
    pub(super) heap: Variable,
    /// Ends the task: the kind of trap, the site, and what is to be said.
    traps: ir::Block,
    interval: i64,
    /// The values that are known numbers.
    known: HashMap<Value, i64>,
    pay: FuncRef,
    pub(super) allocate: FuncRef,
    print: FuncRef,
    pub(super) act: FuncRef,
    pub(super) nursery: FuncRef,
}

impl<'b, 'e, 'a> Body<'b, 'e, 'a> {
    pub(super) fn emit(
        emitter: &'e mut Emitter<'a>,
        whole: Whole<'e>,
        piece: usize,
        mut builder: FunctionBuilder<'b>,
    ) {
        let function = &whole.shape.function;
        let blocks: Vec<ir::Block> = function.blocks.iter().map(|_| builder.create_block()).collect();
        let (entry, traps) = (builder.create_block(), builder.create_block());
        builder.append_block_params_for_function_params(entry);
        for _ in 0..4 {
            builder.append_block_param(traps, types::I64);
        }
        builder.set_cold_block(traps);
        builder.switch_to_block(entry);
        let [context, second, third] = builder.block_params(entry)[..3] else {
            unreachable!("three at least")
        };
        let (pending, heap) = (builder.declare_var(types::I64), builder.declare_var(types::I64));
        let pay = emitter.module.declare_func_in_func(emitter.pay, builder.func);
        let allocate = emitter.module.declare_func_in_func(emitter.allocate, builder.func);
        let print = emitter.module.declare_func_in_func(emitter.print, builder.func);
        let act = emitter.module.declare_func_in_func(emitter.act, builder.func);
        let nursery = emitter.module.declare_func_in_func(emitter.nursery, builder.func);
        let interval = emitter.program.module().interval().into();
        let order = reverse_postorder(function);
        let regions = Regions::declare(builder.func);
        let only = |before: Vec<BlockId>| match before.as_slice() {
            [only] => Some(only.0 as usize),
            _ => None,
        };
        let entered_from = function.predecessors().into_iter().map(only).collect();
        let calls = |block: &Block| block.instrs.iter().any(|instr| matches!(instr.op, Op::Call(..)));
        let calling = (0..function.blocks.len()).filter(|at| calls(&function.blocks[*at])).collect();
        let mut body = Self {
            emitter,
            whole,
            piece,
            function,
            builder,
            facts: whole.facts,
            loops: whole.loops,
            frame: (piece > 0).then_some(second),
            words: None,
            calling,
            polls: 0,
            origins: HashMap::new(),
            regions,
            seen: Seen::default(),
            left_seen: HashMap::new(),
            entered_from,
            blocks,
            values: HashMap::new(),
            context,
            left: second,
            pending,
            heap,
            traps,
            interval,
            known: HashMap::new(),
            pay,
            allocate,
            print,
            act,
            nursery,
        };
        body.declare_params();
        if piece == 0 {
            body.take_params(entry);
            body.enter(third);
        } else {
            body.left = body.read(STACK_WORDS);
            let counted = body.read(PENDING);
            body.take_from_frame();
            body.enter(counted);
        }
        for at in order {
            if whole.shape.piece_of[at] == piece {
                body.block(at);
            }
        }
        body.trap_block();
        body.builder.seal_all_blocks();
        let target = body.emitter.module.target_config();
        body.builder.finalize(target);
    }

    fn take_params(&mut self, entry: ir::Block) {
        let params = self.builder.block_params(entry)[3..].to_vec();
        for (value, param) in self.function.blocks[0].params.iter().zip(params) {
            self.values.insert(*value, param);
        }
    }

    fn declare_params(&mut self) {
        for (at, block) in self.function.blocks.iter().enumerate().skip(1) {
            if self.whole.shape.piece_of[at] != self.piece {
                continue;
            }
            let depth = self.loops.depth(at);
            self.origins.extend(block.params.iter().map(|value| (*value, Origin { depth, sum: None })));
            for value in &block.params {
                let param =
                    self.builder.append_block_param(self.blocks[at], held(self.function.type_of(*value)));
                self.values.insert(*value, param);
            }
        }
    }

    /// Looks at the real stack. The caller has taken a frame of the one that the task may use. Where time is the meter, the limit is on the
    /// page that is protected: a call polls and needs nothing for it.
    fn enter(&mut self, counted: ir::Value) {
        let pending = if self.counts() { counted } else { self.int(0) };
        self.builder.def_var(self.pending, pending);
        self.reread_heap();
        let site = self.site(self.function.pos);
        let limit = if self.emitter.metering == Metering::Time {
            self.builder.ins().load(types::I64, MemFlagsData::new(), self.context, STACK_LIMIT)
        } else {
            self.read(STACK_LIMIT)
        };
        let pointer = self.builder.ins().get_stack_pointer(types::I64);
        let low = self.builder.ins().icmp(IntCC::UnsignedLessThan, pointer, limit);
        self.trap_if(low, TRAP_STACK, site, [None, None]);
        let first = self.blocks[self.whole.shape.pieces[self.piece].first];
        self.builder.ins().jump(first, &[]);
    }

    pub(super) fn counts(&self) -> bool {
        matches!(self.emitter.metering, Metering::Ops | Metering::OpsGauged)
    }

    /// Polls where a check stands, unless an allocation needs the check, or a call: the callee polls where it begins. The load may trap, so
    /// that it stays though nobody uses what it loads. Each poll loads a byte of its own: of two loads from one address, with no store
    /// between them, the code generator keeps the first alone.
    fn poll(&mut self, (block, number): (usize, usize)) {
        let instrs = &self.function.blocks[block].instrs;
        let after_allocation = number
            .checked_sub(1)
            .is_some_and(|before| matches!(instrs[before].op, Op::SliceNew(..) | Op::StructNew(..)));
        let is_needed = match instrs.get(number + 1).map(|instr| &instr.op) {
            Some(Op::Call(..)) => false,
            // The end of a turn in which something was called.
            _ => !self.calling.iter().any(|above| self.loops.passes(*above, block)),
        };
        if self.emitter.metering == Metering::Time && !after_allocation && is_needed {
            let byte = STACK_LIMIT + FIRST_POLL + self.polls as i32;
            debug_assert!(self.polls < MOST_POLLS, "a function with more polls is interpreted");
            self.polls += 1;
            self.builder.ins().load(types::I8, MemFlagsData::new(), self.context, byte);
        }
    }

    pub(super) fn read(&mut self, offset: i32) -> ir::Value {
        self.builder.ins().load(types::I64, self.regions.context(), self.context, offset)
    }

    pub(super) fn write(&mut self, value: ir::Value, offset: i32) {
        self.builder.ins().store(self.regions.context(), value, self.context, offset);
    }

    /// Takes up where the heap is. It may have moved.
    pub(super) fn reread_heap(&mut self) {
        let heap = self.read(HEAP);
        self.builder.def_var(self.heap, heap);
    }

    pub(super) fn get(&self, value: Value) -> ir::Value {
        self.values[&value]
    }

    pub(super) fn set(&mut self, value: Value, to: ir::Value) {
        self.values.insert(value, to);
    }

    pub(super) fn int(&mut self, value: i64) -> ir::Value {
        self.builder.ins().iconst(types::I64, value)
    }

    /// A value that is a constant.
    pub(super) fn constant_op(&mut self, value: Value, op: &Op) {
        let held = match op {
            Op::Int(number) => {
                self.known.insert(value, *number);
                self.int(*number)
            }
            Op::Float(number) => self.builder.ins().f64const(*number),
            Op::Bool(bit) => self.int((*bit).into()),
            _ => unreachable!("no constant"),
        };
        self.set(value, held);
    }

    /// The number, if the value is a constant.
    pub(super) fn constant(&self, value: Value) -> Option<i64> {
        self.known.get(&value).copied()
    }

    pub(super) fn site(&mut self, pos: Pos) -> i64 {
        self.emitter.sites.push(Site::new(pos, self.function.name.clone()));
        self.emitter.sites.len() as i64 - 1
    }

    /// The word of a value, as memory and other functions hold it.
    pub(super) fn word(&mut self, value: Value) -> ir::Value {
        let held = self.get(value);
        if *self.function.type_of(value) == Type::F64 {
            return self.builder.ins().bitcast(types::I64, MemFlagsData::new(), held);
        }
        held
    }

    pub(super) fn set_word(&mut self, value: Value, word: ir::Value) {
        let held = if *self.function.type_of(value) == Type::F64 {
            self.builder.ins().bitcast(types::F64, MemFlagsData::new(), word)
        } else {
            word
        };
        self.set(value, held);
    }

    /// Ends the task here if the condition holds. What is said of it is put together out of the way.
    pub(super) fn trap_if(
        &mut self,
        condition: ir::Value,
        kind: i64,
        site: i64,
        about: [Option<ir::Value>; 2],
    ) {
        let (ends, goes_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(ends);
        self.builder.ins().brif(condition, ends, &[], goes_on, &[]);
        self.builder.switch_to_block(ends);
        let zero = self.int(0);
        let (kind, site) = (self.int(kind), self.int(site));
        let [one, other] = about.map(|about| about.unwrap_or(zero));
        let args = [kind, site, one, other].map(BlockArg::Value);
        self.builder.ins().jump(self.traps, &args);
        self.builder.switch_to_block(goes_on);
    }

    fn trap_block(&mut self) {
        self.builder.switch_to_block(self.traps);
        let params = self.builder.block_params(self.traps).to_vec();
        for (value, offset) in params.into_iter().zip([TRAP, SITE, ABOUT, ABOUT + 8]) {
            self.write(value, offset);
        }
        let zero = self.int(0);
        self.leave(zero, ENDS);
    }

    /// Calls a function of the host. Gives its result.
    pub(super) fn call_host(&mut self, callee: FuncRef, args: &[ir::Value]) -> ir::Value {
        if self.counts() {
            let pending = self.builder.use_var(self.pending);
            self.write(pending, PENDING);
        }
        let mut all = vec![self.context];
        all.extend(args);
        let call = self.builder.ins().call(callee, &all);
        let result = self.builder.inst_results(call)[0];
        if self.counts() {
            let pending = self.read(PENDING);
            self.builder.def_var(self.pending, pending);
        }
        result
    }

    fn block(&mut self, at: usize) {
        let block: &'e Block = &self.function.blocks[at];
        self.builder.switch_to_block(self.blocks[at]);
        let before = self.entered_from[at].filter(|_| at != 0);
        self.seen = before.and_then(|before| self.left_seen.get(&before)).cloned().unwrap_or_default();
        for (number, instr) in block.instrs.iter().enumerate() {
            match &instr.op {
                Op::NurseryBegin => return self.begin_nursery(at),
                Op::NurseryEnd(_) => return self.end_nursery(),
                Op::Call(name, args)
                    if number + 1 == block.instrs.len() && self.gives(name, instr, &block.end) =>
                {
                    return self.call_last(instr, name, args);
                }
                _ => self.instr(instr, (at, number)),
            }
        }
        self.end(at, &block.end, block.end_pos);
        self.left_seen.insert(at, std::mem::take(&mut self.seen));
    }

    /// Returns, with what was counted.
    pub(super) fn leave(&mut self, result: ir::Value, status: i64) {
        if self.piece > 0 {
            if self.counts() {
                let pending = self.builder.use_var(self.pending);
                self.write(pending, PENDING);
            }
            let status = self.int(status);
            self.builder.ins().return_(&[status]);
            return;
        }
        let came = if self.counts() {
            let pending = self.builder.use_var(self.pending);
            let shifted = self.builder.ins().ishl_imm_s(pending, STATUS_BITS);
            self.builder.ins().bor_imm_s(shifted, status)
        } else {
            self.int(status)
        };
        self.builder.ins().return_(&[result, came]);
    }

    fn target(&self, target: &Target) -> (ir::Block, Vec<BlockArg>) {
        let args = target.args.iter().map(|value| BlockArg::Value(self.get(*value))).collect();
        (self.blocks[target.block.0 as usize], args)
    }

    fn end(&mut self, from: usize, end: &Terminator, pos: Pos) {
        match end {
            Terminator::Jump(to) => {
                let (block, args) = self.target(to);
                self.builder.ins().jump(block, &args);
            }
            Terminator::Branch(condition, yes, no) => {
                let mut condition = self.get(*condition);
                let leaves = |to: &Target| self.loops.leaves(from, to.block.0 as usize);
                let (yes_leaves, no_leaves) = (leaves(yes), leaves(no));
                let ((mut yes, mut yes_args), (mut no, mut no_args)) = (self.target(yes), self.target(no));
                // The second side is laid out next: that should be the one that goes on with the loop.
                if no_leaves && !yes_leaves {
                    condition = self.builder.ins().icmp_imm_s(IntCC::Equal, condition, 0);
                    ((yes, yes_args), (no, no_args)) = ((no, no_args), (yes, yes_args));
                }
                if yes_leaves == no_leaves {
                    self.builder.ins().brif(condition, yes, &yes_args, no, &no_args);
                } else {
                    // What moves on the way out is out of the way of those who stay.
                    let out = self.builder.create_block();
                    self.builder.set_cold_block(out);
                    self.builder.ins().brif(condition, out, &[], no, &no_args);
                    self.builder.switch_to_block(out);
                    self.builder.ins().jump(yes, &yes_args);
                }
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
                self.leave(code, FAILED);
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

    fn instr(&mut self, instr: &'e Instr, place: (usize, usize)) {
        let sum = match instr.op {
            Op::Binary(Binary::Add | Binary::AddWrap, a, b) => Some((a, b)),
            _ => None,
        };
        let origin = Origin { depth: self.loops.depth(place.0), sum };
        self.origins.extend(instr.results.iter().map(|value| (*value, origin)));
        match &instr.op {
            op @ (Op::Int(_) | Op::Float(_) | Op::Bool(_)) => self.constant_op(instr.results[0], op),
            Op::Binary(op, a, b) => {
                let result = if *self.function.type_of(*a) == Type::F64 {
                    self.float(*op, self.get(*a), self.get(*b))
                } else {
                    self.integer(*op, *a, *b, instr.pos, place)
                };
                self.set(instr.results[0], result);
            }
            Op::Unary(op, a) => {
                let result = self.unary(*op, *a, instr.pos, place);
                self.set(instr.results[0], result);
            }
            Op::Call(name, args) => self.call(instr, name, args),
            Op::BudgetDecrement(cost) => self.count(*cost, place),
            Op::BudgetCheck => self.check(instr.pos, place),
            Op::SliceNew(..)
            | Op::Len(_)
            | Op::Load(..)
            | Op::Store(..)
            | Op::StructNew(..)
            | Op::Field(..)
            | Op::SetField(..) => self.memory(instr, place),
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
            _ => self.schedule(instr, place),
        }
    }

    fn print_word(&mut self, word: ir::Value, kind: i64, pos: Pos) {
        let kind = self.int(kind);
        let failed = self.call_host(self.print, &[word, kind]);
        self.host_trap_if(failed, pos);
    }

    pub(super) fn host_trap_if(&mut self, failed: ir::Value, pos: Pos) {
        let site = self.site(pos);
        self.trap_if(failed, TRAP_HOST, site, [None, None]);
    }

    /// As the interpreter counts: never less than nothing, and no more than 32 bits at once.
    fn count(&mut self, cost: Value, place: (usize, usize)) {
        if !self.counts() {
            return;
        }
        let mut cost = self.get(cost);
        if !self.facts.is_safe(place) {
            let (zero, most) = (self.int(0), self.int(u32::MAX.into()));
            cost = self.builder.ins().smax(cost, zero);
            cost = self.builder.ins().umin(cost, most);
        }
        let pending = self.builder.use_var(self.pending);
        let pending = self.builder.ins().iadd(pending, cost);
        self.builder.def_var(self.pending, pending);
    }

    /// Pays if an interval was counted. All that was counted is paid for, or the task ends.
    fn check(&mut self, pos: Pos, place: (usize, usize)) {
        if !self.counts() {
            return self.poll(place);
        }
        let pending = self.builder.use_var(self.pending);
        let due = self.builder.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, pending, self.interval);
        let (pays, goes_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(pays);
        self.builder.ins().brif(due, pays, &[], goes_on, &[]);
        self.builder.switch_to_block(pays);
        self.write(pending, PENDING);
        self.builder.ins().call(self.pay, &[self.context]);
        let zero = self.int(0);
        self.builder.def_var(self.pending, zero);
        let failed = self.read(TRAP);
        self.host_trap_if(failed, pos);
        // Where the task goes on after a payment is out of the way too.
        if let Some(paid) = self.builder.current_block() {
            self.builder.set_cold_block(paid);
        }
        self.builder.ins().jump(goes_on, &[]);
        self.builder.switch_to_block(goes_on);
    }

    /// Whether the function gives what the call gives, and nothing else: then the words that the callee gives are its own.
    fn gives(&self, name: &str, instr: &Instr, end: &Terminator) -> bool {
        let callee = &self.emitter.program.module().functions[self.emitter.index[name]];
        let is_result = matches!(end, Terminator::Return(value) if value.as_slice() == instr.results);
        self.piece == 0 && is_result && !callee.fails
    }

    /// Ends with a call. The callee returns to the caller of this function.
    fn call_last(&mut self, instr: &Instr, name: &str, args: &[Value]) {
        let (function, values) = self.begin_call(instr, name, args);
        self.builder.ins().return_call(function, &values);
    }

    /// Takes a frame for a function, and puts together what it is called with.
    fn begin_call(&mut self, instr: &Instr, name: &str, args: &[Value]) -> (FuncRef, Vec<ir::Value>) {
        let at = self.emitter.index[name];
        let function =
            self.emitter.module.declare_func_in_func(self.emitter.declared[&at], self.builder.func);
        let frame_words = self.emitter.program.frame_words(at) as i64;
        let deep = self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, self.left, frame_words);
        let site = self.site(instr.pos);
        self.trap_if(deep, TRAP_STACK, site, [None, None]);
        let left = self.builder.ins().iadd_imm_s(self.left, -frame_words);
        let pending = self.builder.use_var(self.pending);
        let mut values = vec![self.context, left, pending];
        values.extend(args.iter().map(|value| self.get(*value)));
        (function, values)
    }

    fn call(&mut self, instr: &Instr, name: &str, args: &[Value]) {
        self.seen.forget_words();
        let at = self.emitter.index[name];
        let callee = &self.emitter.program.module().functions[at];
        let (function, values) = self.begin_call(instr, name, args);
        let call = self.builder.ins().call(function, &values);
        let [result, came] = self.builder.inst_results(call) else { unreachable!("two results") };
        let (result, came) = (*result, *came);
        let mut status = came;
        if self.counts() {
            let pending = self.builder.ins().ushr_imm_s(came, STATUS_BITS);
            self.builder.def_var(self.pending, pending);
            status = self.builder.ins().band_imm_s(came, STATUS_MASK);
        }
        let ends =
            if callee.fails { self.builder.ins().icmp_imm_s(IntCC::Equal, status, ENDS) } else { status };
        let (ended, goes_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(ended);
        self.builder.ins().brif(ends, ended, &[], goes_on, &[]);
        self.builder.switch_to_block(ended);
        self.leave(result, ENDS);
        self.builder.switch_to_block(goes_on);
        if self.emitter.allocates[at] {
            self.reread_heap();
        }
        let mut results = instr.results.iter();
        let (mut value, zero) = (result, self.int(0));
        let mut code = zero;
        if callee.fails {
            let failed = self.builder.ins().icmp_imm_s(IntCC::Equal, status, FAILED);
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
}
