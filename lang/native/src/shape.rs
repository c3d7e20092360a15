//! A function with its nurseries taken apart: what becomes one piece of code each.
//!
//! A block ends where a nursery begins or ends. The inside of a nursery is a piece of its own. From the beginning of a nursery two ways
//! lead on: into it, and to what comes after it, since its failure may interrupt it anywhere. What is used of the inside after the end
//! comes there as a parameter: on the second way it is zero. So all that is found out about the function holds on both ways.
//!
//! Conserved: what the function computes, in the order in which it does.

use mainspring_qtjir::{
    Block, BlockId, Function, Instr, Op, Target, Terminator, Type, Value, escaping, open_at, over,
};
use std::collections::{HashMap, HashSet};

/// A piece of code: the function without its nurseries, or the inside of one.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// The nursery that it is the inside of.
    pub(crate) nursery: Option<Value>,
    /// Where it begins.
    pub(crate) first: usize,
    /// What it uses of what is around it.
    pub(crate) takes: Vec<Value>,
    /// Constants that it uses of what is around it.
    pub(crate) constants: Vec<(Value, Op)>,
    /// What is used of it after its end.
    pub(crate) gives: Vec<Value>,
}

impl Piece {
    /// The words that it shares with the function around it: the nursery, and what goes in or comes out.
    pub(crate) fn words(&self) -> usize {
        1 + self.takes.len().max(self.gives.len())
    }
}

/// A function in pieces.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) function: Function,
    /// Where each instruction stands in the function as it was: its block and its number there.
    pub(crate) places: Vec<Vec<(usize, usize)>>,
    /// The pieces, from the outside in.
    pub(crate) pieces: Vec<Piece>,
    /// Which piece each block belongs to.
    pub(crate) piece_of: Vec<usize>,
}

impl Shape {
    pub(crate) fn of(function: &Function) -> Self {
        let escaping = escaping(function);
        let mut shape = cut(function);
        if shape.pieces.len() > 1 {
            shape.lead_around(&escaping);
            shape.take_and_give(&escaping);
        }
        shape
    }

    /// The piece of a nursery.
    pub(crate) fn piece(&self, nursery: Value) -> usize {
        self.pieces.iter().position(|piece| piece.nursery == Some(nursery)).expect("each has a piece")
    }

    /// The nursery whose beginning ends the block.
    pub(crate) fn begins(&self, block: usize) -> Option<(Value, (usize, usize))> {
        let last = self.function.blocks[block].instrs.last()?;
        let place = *self.places[block].last()?;
        matches!(last.op, Op::NurseryBegin).then(|| (last.results[0], place))
    }

    /// Where each nursery begins, and what comes after its end.
    fn ends(&self) -> HashMap<Value, (usize, usize)> {
        let blocks = || self.function.blocks.iter().enumerate();
        let after: HashMap<Value, usize> = blocks()
            .filter_map(|(_, block)| match (&block.instrs.last()?.op, &block.end) {
                (Op::NurseryEnd(nursery), Terminator::Jump(to)) => Some((*nursery, to.block.0 as usize)),
                _ => None,
            })
            .collect();
        blocks()
            .filter_map(|(at, _)| self.begins(at).map(|(nursery, _)| (nursery, (at, after[&nursery]))))
            .collect()
    }

    /// Adds the ways around the nurseries, and the parameters of what comes after them.
    fn lead_around(&mut self, escaping: &HashMap<Value, Vec<Value>>) {
        let (open, defined) = (open_at(&self.function), self.definitions());
        let mut names: HashMap<(Value, Value), Value> = HashMap::new();
        for (nursery, values) in escaping {
            for value in values {
                let of = self.function.type_of(*value).clone();
                names.insert((*nursery, *value), self.function.new_value(of));
            }
        }
        // What a value is called where these nurseries are open.
        let named = |value: Value, open: &[Value]| match over(&defined[&value], open).first() {
            Some(nursery) => names[&(*nursery, value)],
            None => value,
        };
        for (block, open) in self.function.blocks.iter_mut().zip(&open) {
            let mut rename = |value: &mut Value| *value = named(*value, open);
            for instr in &mut block.instrs {
                instr.op.for_each_operand(&mut rename);
            }
            // The end of a block that a nursery ends is after the nursery: `take_and_give` hands over what is needed there.
            if !matches!(block.instrs.last().map(|instr| &instr.op), Some(Op::NurseryEnd(_))) {
                block.end.for_each_operand(&mut rename);
            }
        }
        for (nursery, (begin, after)) in self.ends() {
            let values = escaping.get(&nursery).map_or(&[][..], Vec::as_slice);
            let params: Vec<Value> = values.iter().map(|value| names[&(nursery, *value)]).collect();
            self.function.blocks[after].params.extend(&params);
            let end = self.function.blocks.iter_mut().zip(&open).find(|(block, _)| {
                matches!(block.instrs.last().map(|instr| &instr.op), Some(Op::NurseryEnd(of)) if *of == nursery)
            });
            let (end, inside) = end.expect("it has an end");
            if let Terminator::Jump(to) = &mut end.end {
                to.args.extend(values.iter().map(|value| named(*value, inside)));
            }
            self.add_way_around(begin, after, &params);
        }
    }

    /// The way from the beginning of a nursery to what comes after it. How it ended is anything, and what it leaves is zero.
    fn add_way_around(&mut self, begin: usize, after: usize, params: &[Value]) {
        let nursery = self.function.blocks[begin].instrs.last().expect("it begins").results[0];
        let mut args = vec![nursery];
        for param in params {
            let of = self.function.type_of(*param).clone();
            let op = if of == Type::F64 { Op::Float(0.0) } else { Op::Int(0) };
            let zero = self.function.new_value(of);
            let pos = self.function.pos;
            self.function.blocks[begin].instrs.insert(0, Instr { results: vec![zero], op, pos });
            self.places[begin].insert(0, (0, 0));
            args.push(zero);
        }
        let block = &mut self.function.blocks[begin];
        let Terminator::Jump(inside) = block.end.clone() else { unreachable!("it was cut so") };
        let around = Target { block: BlockId(after as u32), args };
        block.end = Terminator::Branch(nursery, inside, around);
    }

    /// The nurseries that are open where each value is defined. Blocks end where nurseries do.
    fn definitions(&self) -> HashMap<Value, Vec<Value>> {
        let open = open_at(&self.function);
        let mut defined = HashMap::new();
        for (block, open) in self.function.blocks.iter().zip(&open) {
            let results = block.instrs.iter().flat_map(|instr| &instr.results);
            defined.extend(block.params.iter().chain(results).map(|value| (*value, open.clone())));
        }
        defined
    }

    /// Finds what each piece takes from around it, from the inside out.
    fn take_and_give(&mut self, escaping: &HashMap<Value, Vec<Value>>) {
        let mut constants = HashMap::new();
        for instr in self.function.blocks.iter().flat_map(|block| &block.instrs) {
            if let (Op::Int(_) | Op::Float(_) | Op::Bool(_), [value]) = (&instr.op, instr.results.as_slice())
            {
                constants.insert(*value, instr.op.clone());
            }
        }
        for number in (1..self.pieces.len()).rev() {
            let (mut uses, mut defines) = (Vec::new(), HashSet::new());
            defines.extend(self.pieces[number].nursery);
            for (at, block) in self.function.blocks.iter().enumerate() {
                if self.piece_of[at] != number {
                    continue;
                }
                defines
                    .extend(block.params.iter().chain(block.instrs.iter().flat_map(|instr| &instr.results)));
                uses.extend(block.instrs.iter().flat_map(|instr| instr.op.operands()));
                match &block.end {
                    // The way around is the host's.
                    Terminator::Branch(nursery, ..) if self.begins(at).is_some() => {
                        let inner = &self.pieces[self.piece(*nursery)];
                        uses.extend(&inner.takes);
                    }
                    end => uses.extend(end.operands()),
                }
            }
            let mut seen = HashSet::new();
            uses.retain(|value| !defines.contains(value) && seen.insert(*value));
            let nursery = self.pieces[number].nursery.expect("it is one's inside");
            let end =
                self.function.blocks.iter().find_map(|block| match (&block.instrs.last()?.op, &block.end) {
                    (Op::NurseryEnd(of), Terminator::Jump(to)) if *of == nursery => Some(to.args.clone()),
                    _ => None,
                });
            debug_assert_eq!(
                end.as_ref().map_or(0, Vec::len),
                1 + escaping.get(&nursery).map_or(0, Vec::len)
            );
            let piece = &mut self.pieces[number];
            piece.gives = end.unwrap_or_default().into_iter().skip(1).collect();
            for value in uses {
                match constants.get(&value) {
                    Some(op) => piece.constants.push((value, op.clone())),
                    None => piece.takes.push(value),
                }
            }
        }
    }
}

/// Ends blocks where nurseries begin and end. How a nursery ended becomes the first parameter of what comes after it.
fn cut(function: &Function) -> Shape {
    let mut cut = function.clone();
    let mut places: Vec<Vec<(usize, usize)>> = function
        .blocks
        .iter()
        .enumerate()
        .map(|(at, block)| (0..block.instrs.len()).map(|number| (at, number)).collect())
        .collect();
    let mut at = 0;
    while at < cut.blocks.len() {
        let is_cut = |instr: &Instr| matches!(instr.op, Op::NurseryBegin | Op::NurseryEnd(_));
        // What is cut off is looked at in its turn.
        if let Some(number) = cut.blocks[at].instrs.iter().position(is_cut) {
            let next = BlockId(cut.blocks.len() as u32);
            let (params, args) = match cut.blocks[at].instrs[number].op {
                Op::NurseryEnd(nursery) => {
                    (std::mem::take(&mut cut.blocks[at].instrs[number].results), vec![nursery])
                }
                _ => (Vec::new(), Vec::new()),
            };
            let block = &mut cut.blocks[at];
            let rest = Block {
                params,
                instrs: block.instrs.split_off(number + 1),
                end: std::mem::replace(&mut block.end, Terminator::Jump(Target { block: next, args })),
                end_pos: block.end_pos,
            };
            let rest_places = places[at].split_off(number + 1);
            cut.blocks.push(rest);
            places.push(rest_places);
        }
        at += 1;
    }
    let open = open_at(&cut);
    let mut nurseries: Vec<(usize, Value, usize)> = Vec::new();
    for (block, open) in cut.blocks.iter().zip(&open) {
        if let (Some(Instr { op: Op::NurseryBegin, results, .. }), Terminator::Jump(to)) =
            (block.instrs.last(), &block.end)
        {
            nurseries.push((open.len(), results[0], to.block.0 as usize));
        }
    }
    nurseries.sort_unstable();
    let mut pieces = vec![Piece::default()];
    pieces.extend(nurseries.iter().map(|(_, nursery, first)| Piece {
        nursery: Some(*nursery),
        first: *first,
        ..Piece::default()
    }));
    let number: HashMap<Value, usize> =
        pieces.iter().enumerate().filter_map(|(at, piece)| Some((piece.nursery?, at))).collect();
    let piece_of = open.iter().map(|open| open.last().map_or(0, |nursery| number[nursery])).collect();
    Shape { function: cut, places, pieces, piece_of }
}
