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

    fn words(&self, of: &Type) -> MemFlagsData {
        let region = match of {
            Type::I64 => self.integers,
            Type::F64 => self.floats,
            _ => self.others,
        };
        MemFlagsData::trusted().with_alias_region(Some(region))
    }
}

impl Body<'_, '_, '_> {
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
    fn element(&mut self, slice: Value, index: Value, pos: Pos, place: (usize, usize)) -> (ir::Value, i32) {
        let (parts, constant) = self.parts(index);
        let index = self.get(index);
        if !self.facts.is_safe(place) {
            let len = self.length(slice);
            let outside = self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index, len);
            let site = self.site(pos);
            self.trap_if(outside, TRAP_BOUNDS, site, [Some(index), Some(len)]);
        }
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
    fn filled(&mut self, of: Value, field: u32, pos: Pos, place: (usize, usize)) -> ir::Value {
        if !self.facts.is_safe(place) {
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

    fn load(&mut self, result: Value, address: ir::Value, offset: i32) {
        let of = self.function.type_of(result);
        let value = self.builder.ins().load(held(of), self.regions.words(of), address, offset);
        self.set(result, value);
    }

    fn store(&mut self, value: Value, address: ir::Value, offset: i32) {
        let flags = self.regions.words(self.function.type_of(value));
        let value = self.get(value);
        self.builder.ins().store(flags, value, address, offset);
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
                let (address, offset) = self.element(*slice, *index, pos, place);
                self.load(instr.results[0], address, offset);
            }
            Op::Store(slice, index, value) => {
                let (address, offset) = self.element(*slice, *index, pos, place);
                self.store(*value, address, offset);
            }
            Op::StructNew(_, fields) => {
                let len = self.int(fields.len() as i64);
                let at = self.allocated(len, pos);
                self.set(instr.results[0], at);
                let object = self.object(instr.results[0]);
                for (field, value) in fields.iter().enumerate() {
                    self.store(*value, object, 8 + field as i32 * 8);
                }
            }
            Op::Field(of, field) => {
                let object = self.filled(*of, *field, pos, place);
                self.load(instr.results[0], object, 8 + *field as i32 * 8);
            }
            Op::SetField(of, field, value) => {
                let object = self.filled(*of, *field, pos, place);
                self.store(*value, object, 8 + *field as i32 * 8);
            }
            _ => unreachable!("no operation on memory"),
        }
    }
}
