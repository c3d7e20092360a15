//! What is known of a function's values before it runs, so that code need not check it.
//!
//! Each integer has an interval, found by going through the function until nothing changes. A block that is entered by one side of
//! a branch knows what the branch compared. A slice that the function allocates knows its length if that is a constant, and the
//! length of any object never changes, so that what was looked at once holds wherever the look dominates.
//!
//! Conserved: a check that is left out is one that cannot fail. What is not understood is not known, and is checked.

use crate::interval::{Interval, exchanged, negated};
use mainspring_qtjir::pass::{Dominators, reverse_postorder};
use mainspring_qtjir::{Binary, Function, Op, Terminator, Type, Unary, Value};
use std::collections::{HashMap, HashSet};

/// A function with more blocks is not looked at.
const MOST_BLOCKS: usize = 1024;
/// How often a function is gone through at most until its intervals stand.
const MOST_ROUNDS: usize = 64;
/// How often a value's interval may grow before it goes to the next constant of the function.
const PATIENCE: u32 = 3;
/// How often it may before the end that grows is given up.
const MOST_GROWTH: u32 = 12;
/// How far up the dominators conditions are looked for.
const MOST_CONDITIONS: usize = 64;
/// No object has more words.
const MOST_WORDS: i64 = 1 << 40;

/// An instruction, by its block and its number there.
type InstrIndex = (usize, usize);

/// Which checks cannot fail.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    safe: HashSet<InstrIndex>,
    nonzero: HashSet<InstrIndex>,
    lengths: HashMap<Value, i64>,
}

impl Facts {
    pub(crate) fn of(function: &Function) -> Self {
        if function.blocks.len() > MOST_BLOCKS {
            return Self::default();
        }
        let mut ranges = Ranges::of(function);
        if !ranges.find() {
            return Self::default();
        }
        Looked::through(&ranges)
    }

    /// Whether the instruction cannot trap; for a division: not for its overflow; for a charge: whether it is as it stands; for a
    /// minimum: whether it is the first operand.
    pub(crate) fn is_safe(&self, place: InstrIndex) -> bool {
        self.safe.contains(&place)
    }

    /// Whether the divisor is not zero.
    pub(crate) fn divides(&self, place: InstrIndex) -> bool {
        self.nonzero.contains(&place)
    }

    /// The length of a slice that has the same in every run.
    pub(crate) fn length(&self, slice: Value) -> Option<i64> {
        self.lengths.get(&slice).copied()
    }
}

/// Two values and a comparison that holds.
type Condition = (Binary, Value, Value);

/// The intervals of a function while they are looked for.
struct Ranges<'f> {
    function: &'f Function,
    order: Vec<usize>,
    tree: Dominators,
    /// What a block knows because of how it is entered.
    entered: Vec<Option<Condition>>,
    /// Where each value is defined: its block, and the instruction if it is no parameter.
    homes: HashMap<Value, (usize, Option<usize>)>,
    /// The interval of each value. `None` until a way leads to it.
    known: Vec<Option<Interval>>,
    grown: Vec<u32>,
    /// Where an interval that keeps growing goes next.
    steps: Vec<i64>,
}

impl<'f> Ranges<'f> {
    fn of(function: &'f Function) -> Self {
        let mut homes = HashMap::new();
        let mut steps = vec![i64::MIN, -1, 0, 1, MOST_WORDS, i64::MAX];
        for (at, block) in function.blocks.iter().enumerate() {
            homes.extend(block.params.iter().map(|value| (*value, (at, None))));
            for (number, instr) in block.instrs.iter().enumerate() {
                homes.extend(instr.results.iter().map(|value| (*value, (at, Some(number)))));
                if let Op::Int(value) = instr.op {
                    steps.extend([value.saturating_sub(1), value, value.saturating_add(1)]);
                }
            }
        }
        steps.sort_unstable();
        steps.dedup();
        let (order, tree) = (reverse_postorder(function), Dominators::of(function));
        let values = function.values.len();
        let mut ranges = Self {
            function,
            order,
            tree,
            entered: Vec::new(),
            homes,
            known: vec![None; values],
            grown: vec![0; values],
            steps,
        };
        let before = function.predecessors();
        ranges.entered = (0..function.blocks.len())
            .map(|at| match before[at].as_slice() {
                [only] if at != 0 => ranges.condition(only.0 as usize, at),
                _ => None,
            })
            .collect();
        ranges
    }

    fn op(&self, value: Value) -> Option<&'f Op> {
        let (block, number) = self.homes.get(&value)?;
        Some(&self.function.blocks[*block].instrs[(*number)?].op)
    }

    /// What holds on the way from a block to another, if only one side of its branch leads there.
    fn condition(&self, from: usize, to: usize) -> Option<Condition> {
        let Terminator::Branch(condition, yes, no) = &self.function.blocks[from].end else { return None };
        if yes.block == no.block {
            return None;
        }
        let Some(Op::Binary(op, a, b)) = self.op(*condition) else { return None };
        if !op.compares() || *self.function.type_of(*a) != Type::I64 {
            return None;
        }
        Some((if yes.block.0 as usize == to { *op } else { negated(*op) }, *a, *b))
    }

    /// The conditions that hold in a block, from the nearest outwards.
    fn conditions(&self, block: usize) -> impl Iterator<Item = Condition> + '_ {
        let up = move |at: &usize| (*at != 0).then(|| self.tree.immediate(*at));
        std::iter::successors(Some(block), up).take(MOST_CONDITIONS).filter_map(|at| self.entered[at])
    }

    /// What a value can be where the condition holds.
    fn under(&self, value: Value, range: Interval, (op, a, b): Condition) -> Option<Interval> {
        let mut range = range;
        if a == value {
            range = range.where_it(op, self.known[b.0 as usize]?)?;
        }
        if b == value {
            range = range.where_it(exchanged(op), self.known[a.0 as usize]?)?;
        }
        Some(range)
    }

    /// What a value can be in a block.
    fn at(&self, value: Value, block: usize) -> Option<Interval> {
        let known = self.known[value.0 as usize]?;
        self.conditions(block).try_fold(known, |range, condition| self.under(value, range, condition))
    }

    /// Goes through the function until nothing changes. False if that does not come to an end.
    fn find(&mut self) -> bool {
        for param in &self.function.blocks[0].params {
            self.known[param.0 as usize] = Some(Interval::ALL);
        }
        if !(0..MOST_ROUNDS).any(|_| !self.round(Self::grow)) {
            return false;
        }
        // What went too far comes back as far as the function itself says.
        for _ in 0..3 {
            self.round(Self::shrink);
        }
        true
    }

    fn round(&mut self, take: fn(&mut Self, Value, Option<Interval>) -> bool) -> bool {
        let mut changed = false;
        let before = self.function.predecessors();
        for block in self.order.clone() {
            if block != 0 {
                for number in 0..self.function.blocks[block].params.len() {
                    let came = self.came_in(block, number, &before[block]);
                    changed |= take(self, self.function.blocks[block].params[number], came);
                }
            }
            for instr in &self.function.blocks[block].instrs {
                for result in &instr.results {
                    let given = match instr.results.as_slice() {
                        [_] => self.given(&instr.op, block),
                        _ => Some(Interval::ALL),
                    };
                    changed |= take(self, *result, given);
                }
            }
        }
        changed
    }

    fn grow(&mut self, value: Value, new: Option<Interval>) -> bool {
        let at = value.0 as usize;
        let Some(new) = new else { return false };
        let Some(old) = self.known[at] else {
            self.known[at] = Some(new);
            return true;
        };
        let mut joined = old.join(new);
        if joined == old {
            return false;
        }
        // What an instruction gives grows with what it is given, so that whatever grows for ever does so in a parameter.
        let is_param = self.homes.get(&value).is_some_and(|(_, number)| number.is_none());
        self.grown[at] += u32::from(is_param);
        if self.grown[at] > MOST_GROWTH {
            // The end that does not grow is still the end.
            joined.lo = if joined.lo < old.lo { i64::MIN } else { joined.lo };
            joined.hi = if joined.hi > old.hi { i64::MAX } else { joined.hi };
        } else if self.grown[at] > PATIENCE {
            if joined.lo < old.lo {
                let below = self.steps.partition_point(|step| *step <= joined.lo);
                joined.lo = self.steps[below.max(1) - 1];
            }
            if joined.hi > old.hi {
                let above = self.steps.partition_point(|step| *step < joined.hi);
                joined.hi = self.steps[above.min(self.steps.len() - 1)];
            }
        }
        self.known[at] = Some(joined);
        true
    }

    fn shrink(&mut self, value: Value, new: Option<Interval>) -> bool {
        let at = value.0 as usize;
        if let (Some(old), Some(new)) = (self.known[at], new) {
            self.known[at] = old.meet(new).or(Some(old));
        }
        true
    }

    /// What a parameter of a block can be.
    fn came_in(&self, block: usize, number: usize, before: &[mainspring_qtjir::BlockId]) -> Option<Interval> {
        let mut all: Option<Interval> = None;
        for from in before.iter().map(|id| id.0 as usize) {
            for target in self.function.blocks[from].end.targets() {
                if target.block.0 as usize != block {
                    continue;
                }
                let arg = target.args[number];
                let mut range = self.at(arg, from);
                if let (Some(known), Some(condition)) = (range, self.condition(from, block)) {
                    range = self.under(arg, known, condition);
                }
                all = match (all, range) {
                    (Some(all), Some(range)) => Some(all.join(range)),
                    (all, range) => all.or(range),
                };
            }
        }
        all
    }

    fn given(&self, op: &Op, block: usize) -> Option<Interval> {
        Some(match op {
            Op::Int(value) => Interval::one(*value),
            Op::Len(slice) => self.length(*slice),
            Op::Binary(op, a, b) if *self.function.type_of(*a) == Type::I64 && !op.compares() => {
                let (x, y) = (self.at(*a, block)?, self.at(*b, block)?);
                let plain = x.apply(*op, y)?;
                match self.end_of_strip(*op, *a, *b, block) {
                    Some(bound) => {
                        let bound = self.at(bound, block)?;
                        return Interval::new(x.lo.saturating_add(1), bound.hi).meet(plain);
                    }
                    None => plain,
                }
            }
            Op::Unary(Unary::Neg, a) if *self.function.type_of(*a) == Type::I64 => {
                Interval::one(0).apply(Binary::Sub, self.at(*a, block)?)?
            }
            _ => Interval::ALL,
        })
    }

    fn length(&self, slice: Value) -> Interval {
        let most = Interval::new(0, MOST_WORDS - 1);
        match self.op(slice) {
            Some(Op::SliceNew(_, len)) => {
                let made = self.known[len.0 as usize];
                made.and_then(|len| len.meet(most)).unwrap_or(most)
            }
            _ => most,
        }
    }

    /// The bound of a counted loop whose next strip ends at `a + b`: `b` is at most what is left up to the bound, and something is.
    fn end_of_strip(&self, op: Binary, a: Value, b: Value, block: usize) -> Option<Value> {
        let Some(Op::Binary(Binary::MinUnsigned, left, _)) = self.op(b) else { return None };
        let Some(Op::Binary(Binary::SubWrap, bound, from)) = self.op(*left) else { return None };
        let holds = |(op, x, y): Condition| op == Binary::Lt && x == a && y == *bound;
        (op == Binary::AddWrap && *from == a && self.conditions(block).any(holds)).then_some(*bound)
    }

    /// Whether the value is at most the length of the slice, whatever that is.
    fn is_within_length(&self, value: Value, slice: Value) -> bool {
        match self.op(value) {
            Some(Op::Len(of)) => *of == slice,
            Some(Op::Binary(op, a, b)) => {
                let (block, _) = self.homes[&value];
                let bound = self.end_of_strip(*op, *a, *b, block);
                bound.is_some_and(|bound| matches!(self.op(bound), Some(Op::Len(of)) if *of == slice))
            }
            _ => false,
        }
    }

    /// Whether an index is inside of its slice.
    fn is_inside(&self, slice: Value, index: Value, block: usize) -> bool {
        let Some(range) = self.at(index, block) else { return false };
        let below = |(op, a, b): Condition| match op {
            Binary::Lt => a == index && self.is_within_length(b, slice),
            Binary::Gt => b == index && self.is_within_length(a, slice),
            _ => false,
        };
        range.lo >= 0 && (range.hi < self.length(slice).lo || self.conditions(block).any(below))
    }
}

/// What was looked at on the way to an instruction.
struct Looked<'r, 'f> {
    ranges: &'r Ranges<'f>,
    facts: Facts,
    /// Indices that are inside of their slice.
    indices: HashSet<(Value, Value)>,
    /// Objects with so many words at least.
    words: HashMap<Value, i64>,
    /// How to forget what holds below a block only.
    undo: Vec<Undo>,
}

enum Undo {
    Index(Value, Value),
    Words(Value, Option<i64>),
}

impl<'r, 'f> Looked<'r, 'f> {
    /// Goes down the tree of dominators.
    fn through(ranges: &'r Ranges<'f>) -> Facts {
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); ranges.function.blocks.len()];
        for block in ranges.order.iter().skip(1) {
            below[ranges.tree.immediate(*block)].push(*block);
        }
        let (facts, indices, words, undo) = (Facts::default(), HashSet::new(), HashMap::new(), Vec::new());
        let mut looked = Self { ranges, facts, indices, words, undo };
        // A block to enter, or how much to keep when it is left.
        let mut todo: Vec<Result<usize, usize>> = vec![Ok(0)];
        while let Some(next) = todo.pop() {
            match next {
                Ok(block) => {
                    todo.push(Err(looked.undo.len()));
                    looked.block(block);
                    todo.extend(below[block].iter().map(|block| Ok(*block)));
                }
                Err(kept) => looked.forget(kept),
            }
        }
        looked.facts
    }

    fn forget(&mut self, kept: usize) {
        for undo in self.undo.drain(kept..).rev() {
            match undo {
                Undo::Index(slice, index) => {
                    self.indices.remove(&(slice, index));
                }
                Undo::Words(of, Some(words)) => {
                    self.words.insert(of, words);
                }
                Undo::Words(of, None) => {
                    self.words.remove(&of);
                }
            }
        }
    }

    fn has_words(&mut self, of: Value, words: i64) {
        if self.words.get(&of).is_none_or(|known| *known < words) {
            let old = self.words.insert(of, words);
            self.undo.push(Undo::Words(of, old));
        }
    }

    fn block(&mut self, block: usize) {
        let function = self.ranges.function;
        for (number, instr) in function.blocks[block].instrs.iter().enumerate() {
            if self.instr(&instr.op, block, (block, number)) {
                self.facts.safe.insert((block, number));
            }
            if let Op::SliceNew(_, len) = &instr.op
                && let Some(Interval { lo, hi }) = self.ranges.at(*len, block)
                && lo == hi
            {
                self.facts.lengths.insert(instr.results[0], lo);
            }
            if let Op::StructNew(_, fields) = &instr.op {
                self.has_words(instr.results[0], fields.len() as i64);
            }
        }
    }

    /// Whether the instruction cannot trap. What it shows holds from here on.
    fn instr(&mut self, op: &Op, block: usize, place: InstrIndex) -> bool {
        let ranges = self.ranges;
        let at = |value: &Value| ranges.at(*value, block);
        match op {
            Op::Binary(op @ (Binary::Add | Binary::Sub | Binary::Mul), a, b) => {
                matches!((at(a), at(b)), (Some(a), Some(b)) if a.fits(*op, b))
            }
            Op::Binary(Binary::Div | Binary::Rem, a, b) if *ranges.function.type_of(*a) == Type::I64 => {
                let (Some(a), Some(b)) = (at(a), at(b)) else { return false };
                if b.lo > 0 || b.hi < 0 {
                    self.facts.nonzero.insert(place);
                }
                a.lo > i64::MIN || b.lo > -1 || b.hi < -1
            }
            Op::Unary(Unary::Neg, a) => at(a).is_some_and(|a| a.lo > i64::MIN),
            Op::Load(slice, index) | Op::Store(slice, index, _) => {
                let constant = at(index).filter(|index| index.lo >= 0).map(|index| index.hi);
                let inside = ranges.is_inside(*slice, *index, block)
                    || self.indices.contains(&(*slice, *index))
                    || constant.is_some_and(|most| self.words.get(slice).is_some_and(|words| most < *words));
                if self.indices.insert((*slice, *index)) {
                    self.undo.push(Undo::Index(*slice, *index));
                }
                if let Some(least) = at(index).filter(|index| (0..MOST_WORDS).contains(&index.lo)) {
                    self.has_words(*slice, least.lo + 1);
                }
                inside
            }
            Op::Binary(Binary::MinUnsigned, a, b) => {
                matches!((at(a), at(b)), (Some(a), Some(b)) if a.lo >= 0 && a.hi <= b.lo)
            }
            // A cost that needs no clamping.
            Op::BudgetDecrement(cost) => {
                at(cost).is_some_and(|cost| cost.lo >= 0 && cost.hi <= u32::MAX.into())
            }
            Op::Field(of, field) | Op::SetField(of, field, _) => {
                let words = i64::from(*field) + 1;
                let filled = self.words.get(of).is_some_and(|known| *known >= words);
                self.has_words(*of, words);
                filled
            }
            _ => false,
        }
    }
}
