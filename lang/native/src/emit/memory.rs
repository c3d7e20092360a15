//! Slices and structs: how code reaches the words of the task's heap.
//!
//! A word belongs to one region: those of the context, the lengths of objects, and the words of each kind of type. Words of two
//! regions are never the same, since an object keeps its type. A length is never written again. So lengths are read as if memory
//! were constant, also from a heap that has moved since: the host keeps the old one until the call ends.

use super::body::Body;
use super::held;
use crate::context::{TRAP_BOUNDS, TRAP_EMPTY};
use cranelift_codegen::ir;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AliasRegion, AliasRegionData, InstBuilder, MemFlagsData, types};
use mainspring_qtjir::{Instr, Op, Pos, Type, Value};
use std::collections::{HashMap, HashSet};

/// An index is taken apart into at most so many parts. Each may keep an address in a register while a copied loop runs: with more, the loops around
/// it spill.
const MOST_PARTS: usize = 3;

/// Where words are that do not overlap.
pub(super) struct Regions {
    context: AliasRegion,
    lengths: AliasRegion,
    integers: AliasRegion,
    floats: AliasRegion,
    others: AliasRegion,
}

impl Regions {
    pub(super) fn declare(function: &mut ir::Function) -> Self {
        let mut next = 0;
        let mut declare = |description: &'static str| {
            next += 1;
            function
                .dfg
                .alias_regions
                .insert(AliasRegionData { user_id: next, description: description.into() })
        };
        Self {
            context: declare("context"),
            lengths: declare("lengths"),
            integers: declare("integers"),
            floats: declare("floats"),
            others: declare("others"),
        }
    }

    pub(super) fn context(&self) -> MemFlagsData {
        MemFlagsData::trusted().with_alias_region(Some(self.context))
    }

    fn lengths(&self) -> MemFlagsData {
        MemFlagsData::trusted().with_readonly().with_can_move().with_alias_region(Some(self.lengths))
    }

    fn region(&self, of: &Type) -> AliasRegion {
        match of {
            Type::I64 => self.integers,
            Type::F64 => self.floats,
            _ => self.others,
        }
    }

    fn words(&self, of: &Type) -> MemFlagsData {
        MemFlagsData::trusted().with_alias_region(Some(self.region(of)))
    }
}

/// Which word of an object: the one of this number, or of this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Number(i64),
    Value(ir::Value),
}

/// A word of an object, and its region.
type Word = (ir::Value, Place, AliasRegion);

/// What was seen of the words of objects. It holds on every way that leads on from there, until a word is written.
///
/// Conserved: a word that was seen is one that its object has.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    words: HashMap<Word, ir::Value>,
    /// Numbers of words that objects have: none is below zero, and none is near the largest integer.
    indices: HashSet<ir::Value>,
}

impl Seen {
    /// Somebody else may have written any word.
    pub(super) fn forget_words(&mut self) {
        self.words.clear();
    }

    /// A word was written. Others of its region may be the same one.
    fn write(&mut self, word: Word, value: ir::Value) {
        self.words.retain(|(_, _, region), _| *region != word.2);
        self.words.insert(word, value);
    }

    /// Whether the sum or difference of this and a number always fits.
    pub(super) fn moves(&self, value: ir::Value, by: i64) -> bool {
        self.indices.contains(&value) && by.unsigned_abs() <= 1 << 40
    }
}

impl Body<'_, '_, '_> {
    fn word_of(&self, object: Value, index: Value, of: &Type) -> Word {
        let place = self.constant(index).map_or_else(|| Place::Value(self.get(index)), Place::Number);
        (self.get(object), place, self.regions.region(of))
    }

    fn field_of(&self, object: Value, field: u32, of: &Type) -> Word {
        (self.get(object), Place::Number(field.into()), self.regions.region(of))
    }

    /// The address of an object.
    fn object(&mut self, of: Value) -> ir::Value {
        let base = self.builder.use_var(self.heap);
        let at = self.get(of);
        let offset = self.builder.ins().ishl_imm_s(at, 3);
        self.builder.ins().iadd(base, offset)
    }

    fn length(&mut self, of: Value) -> ir::Value {
        match self.facts.length(of) {
            Some(length) => self.int(length),
            None => {
                let object = self.object(of);
                self.builder.ins().load(types::I64, self.regions.lengths(), object, 0)
            }
        }
    }

    /// The parts of a sum, with those first that change least, and what is constant.
    fn parts(&self, index: Value) -> (Vec<Value>, i64) {
        let (mut parts, mut constant, mut todo) = (Vec::new(), 0i64, vec![index]);
        while let Some(value) = todo.pop() {
            let sum = self.origins.get(&value).and_then(|origin| origin.sum);
            match (self.constant(value), sum) {
                (Some(number), _) => constant = constant.wrapping_add(number),
                (None, Some((a, b))) if parts.len() + todo.len() < MOST_PARTS => todo.extend([a, b]),
                _ => parts.push(value),
            }
        }
        parts.sort_by_key(|value| self.origins.get(value).map_or(0, |origin| origin.depth));
        (parts, constant)
    }

    /// The address of the word before an element, and how far from it the element is. The parts of the index are added one by one,
    /// so that what does not change in a loop is added before it.
    fn element(
        &mut self,
        slice: Value,
        index: Value,
        pos: Pos,
        place: (usize, usize),
        is_there: bool,
    ) -> (ir::Value, i32) {
        let (parts, constant) = self.parts(index);
        let index = self.get(index);
        if !is_there && !self.facts.is_safe(place) {
            let len = self.length(slice);
            let outside = self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index, len);
            let site = self.site(pos);
            self.trap_if(outside, TRAP_BOUNDS, site, [Some(index), Some(len)]);
        }
        self.seen.indices.insert(index);
        let mut address = self.object(slice);
        let mut add = |index: ir::Value| {
            let offset = self.builder.ins().ishl_imm_s(index, 3);
            address = self.builder.ins().iadd(address, offset);
        };
        // All of this is modulo 2^64, in which the parts come to the index.
        match constant.checked_mul(8).and_then(|bytes| i32::try_from(bytes.checked_add(8)?).ok()) {
            Some(offset) => {
                parts.iter().for_each(|part| add(self.values[part]));
                (address, offset)
            }
            None => {
                add(index);
                (address, 8)
            }
        }
    }

    /// The address of an object that has this field.
    fn filled(
        &mut self,
        of: Value,
        field: u32,
        pos: Pos,
        place: (usize, usize),
        is_there: bool,
    ) -> ir::Value {
        if !is_there && !self.facts.is_safe(place) {
            let len = self.length(of);
            let empty = self.builder.ins().icmp_imm_s(IntCC::UnsignedLessThanOrEqual, len, i64::from(field));
            let site = self.site(pos);
            self.trap_if(empty, TRAP_EMPTY, site, [None, None]);
        }
        self.object(of)
    }

    fn allocated(&mut self, len: ir::Value, pos: Pos) -> ir::Value {
        let at = self.call_host(self.allocate, &[len]);
        let failed = self.builder.ins().icmp_imm_s(IntCC::Equal, at, 0);
        self.host_trap_if(failed, pos);
        self.reread_heap();
        at
    }

    fn load(&mut self, result: Value, word: Word, address: ir::Value, offset: i32) {
        let of = self.function.type_of(result);
        let value = self.builder.ins().load(held(of), self.regions.words(of), address, offset);
        self.seen.words.insert(word, value);
        self.set(result, value);
    }

    fn store(&mut self, value: Value, word: Word, address: ir::Value, offset: i32) {
        let flags = self.regions.words(self.function.type_of(value));
        let value = self.get(value);
        self.builder.ins().store(flags, value, address, offset);
        self.seen.write(word, value);
    }

    pub(super) fn memory(&mut self, instr: &Instr, place: (usize, usize)) {
        let pos = instr.pos;
        match &instr.op {
            Op::SliceNew(_, len) => {
                let at = self.allocated(self.get(*len), pos);
                self.set(instr.results[0], at);
            }
            Op::Len(slice) => {
                let len = self.length(*slice);
                self.set(instr.results[0], len);
            }
            Op::Load(slice, index) => {
                let word = self.word_of(*slice, *index, self.function.type_of(instr.results[0]));
                if let Some(value) = self.seen.words.get(&word) {
                    return self.set(instr.results[0], *value);
                }
                let (address, offset) = self.element(*slice, *index, pos, place, false);
                self.load(instr.results[0], word, address, offset);
            }
            Op::Store(slice, index, value) => {
                let word = self.word_of(*slice, *index, self.function.type_of(*value));
                let is_there = self.seen.words.contains_key(&word);
                let (address, offset) = self.element(*slice, *index, pos, place, is_there);
                self.store(*value, word, address, offset);
            }
            Op::StructNew(_, fields) => {
                let len = self.int(fields.len() as i64);
                let at = self.allocated(len, pos);
                self.set(instr.results[0], at);
                let object = self.object(instr.results[0]);
                for (field, value) in fields.iter().enumerate() {
                    let word = self.field_of(instr.results[0], field as u32, self.function.type_of(*value));
                    self.store(*value, word, object, 8 + field as i32 * 8);
                }
            }
            Op::Field(of, field) => {
                let word = self.field_of(*of, *field, self.function.type_of(instr.results[0]));
                if let Some(value) = self.seen.words.get(&word) {
                    return self.set(instr.results[0], *value);
                }
                let object = self.filled(*of, *field, pos, place, false);
                self.load(instr.results[0], word, object, 8 + *field as i32 * 8);
            }
            Op::SetField(of, field, value) => {
                let word = self.field_of(*of, *field, self.function.type_of(*value));
                let is_there = self.seen.words.contains_key(&word);
                let object = self.filled(*of, *field, pos, place, is_there);
                self.store(*value, word, object, 8 + *field as i32 * 8);
            }
            _ => unreachable!("no operation on memory"),
        }
    }
}
