//! Nurseries, tasks and channels: calls of the host, with the words that it takes and gives in the frame.

use super::body::Body;
use super::{ENDS, held};
use crate::context::STACK_WORDS;
use cranelift_codegen::ir;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlagsData, StackSlotData, StackSlotKind, types};
use mainspring_qtjir::{Instr, Terminator, Value};

impl Body<'_, '_, '_> {
    /// The words of the frame that the host takes and gives. One such part serves all calls, one after the other.
    fn slot(&mut self) -> ir::StackSlot {
        if let Some(slot) = self.words {
            return slot;
        }
        let shape = self.whole.shape;
        let blocks = (0..self.blocks.len()).filter(|at| shape.piece_of[*at] == self.piece);
        let most = blocks.map(|at| {
            let instrs = self.function.blocks[at].instrs.iter();
            let scheduled = instrs.filter(|instr| instr.op.needs_scheduler());
            let acts = scheduled.map(|instr| instr.op.operands().len().max(2)).max().unwrap_or(0);
            let nursery =
                shape.begins(at).map_or(0, |(nursery, _)| shape.pieces[shape.piece(nursery)].words());
            acts.max(nursery)
        });
        let words = most.max().unwrap_or(0);
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, words as u32 * 8, 3);
        let slot = self.builder.create_sized_stack_slot(data);
        self.words = Some(slot);
        slot
    }

    fn put_word(&mut self, value: ir::Value, number: usize) {
        let slot = self.slot();
        self.builder.ins().stack_store(types::I64, value, slot, number as i32 * 8);
    }

    fn take_word(&mut self, of: ir::Type, number: usize) -> ir::Value {
        let slot = self.slot();
        self.builder.ins().stack_load(types::I64, of, slot, number as i32 * 8)
    }

    fn words_address(&mut self) -> ir::Value {
        let slot = self.slot();
        self.builder.ins().stack_addr(types::I64, slot, 0)
    }

    /// An instruction of the program as it was, for the host.
    fn origin(&mut self, (block, number): (usize, usize)) -> [ir::Value; 2] {
        let place = (block as i64) << 32 | number as i64;
        [self.int(self.whole.at as i64), self.int(place)]
    }

    /// Executes an instruction that needs the scheduler.
    pub(super) fn schedule(&mut self, instr: &Instr, place: (usize, usize)) {
        self.seen.forget_words();
        let operands = instr.op.operands();
        for (number, operand) in operands.iter().enumerate() {
            let word = self.word(*operand);
            self.put_word(word, number);
        }
        let [function, origin] = self.origin(self.whole.shape.places[place.0][place.1]);
        let words = self.words_address();
        let failed = self.call_host(self.act, &[function, origin, words]);
        self.host_trap_if(failed, instr.pos);
        self.reread_heap();
        for (number, result) in instr.results.iter().enumerate() {
            let word = self.take_word(types::I64, number);
            self.set_word(*result, word);
        }
    }

    /// Takes over what the inside of a nursery uses of the function around it.
    pub(super) fn take_from_frame(&mut self) {
        let piece = &self.whole.shape.pieces[self.piece];
        let frame = self.frame.expect("an inside has one");
        for (number, value) in piece.nursery.iter().chain(&piece.takes).enumerate() {
            let of = held(self.function.type_of(*value));
            let word = self.builder.ins().load(of, MemFlagsData::trusted(), frame, number as i32 * 8);
            self.set(*value, word);
        }
        for (value, op) in &piece.constants {
            self.constant_op(*value, op);
        }
    }

    /// Runs a nursery: what its inside takes goes into a part of the frame, and what it leaves comes from there.
    pub(super) fn begin_nursery(&mut self, block: usize) {
        let shape = self.whole.shape;
        let (nursery, origin) = shape.begins(block).expect("it begins one");
        let number = shape.piece(nursery);
        let piece = &shape.pieces[number];
        for (number, value) in piece.takes.iter().enumerate() {
            let value = self.get(*value);
            self.put_word(value, 1 + number);
        }
        self.write(self.left, STACK_WORDS);
        let inside = self.emitter.module.declare_func_in_func(self.whole.ids[number], self.builder.func);
        let inside = self.builder.ins().func_addr(types::I64, inside);
        let frame = self.words_address();
        let escaping = self.int(piece.gives.len() as i64);
        let [function, origin] = self.origin(origin);
        let failed = self.call_host(self.nursery, &[inside, frame, escaping, function, origin]);
        let (ended, goes_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(ended);
        let fails = self.builder.ins().icmp_imm_s(IntCC::NotEqual, failed, 0);
        self.builder.ins().brif(fails, ended, &[], goes_on, &[]);
        // Who ended it has noted where.
        self.builder.switch_to_block(ended);
        let zero = self.int(0);
        self.leave(zero, ENDS);
        self.builder.switch_to_block(goes_on);
        self.reread_heap();
        let Terminator::Branch(_, _, after) = &self.function.blocks[block].end else {
            unreachable!("it was cut so")
        };
        let after = after.block.0 as usize;
        let params: Vec<Value> = self.function.blocks[after].params.clone();
        let args: Vec<BlockArg> = params
            .iter()
            .enumerate()
            .map(|(number, param)| {
                let of = held(self.function.type_of(*param));
                BlockArg::Value(self.take_word(of, number))
            })
            .collect();
        let after = self.blocks[after];
        self.builder.ins().jump(after, &args);
    }

    /// Leaves the inside of a nursery, and there what is used of it.
    pub(super) fn end_nursery(&mut self) {
        let piece = &self.whole.shape.pieces[self.piece];
        let frame = self.frame.expect("an inside has one");
        for (number, value) in piece.gives.iter().enumerate() {
            let value = self.get(*value);
            self.builder.ins().store(MemFlagsData::trusted(), value, frame, 8 + number as i32 * 8);
        }
        let zero = self.int(0);
        self.leave(zero, 0);
    }
}
