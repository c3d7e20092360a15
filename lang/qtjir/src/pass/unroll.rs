//! Small loops run several turns between two ways back.
//!
//! A loop without loops, calls, allocations or anything that the scheduler does is copied a few times, one copy after the other. Each
//! copy keeps its own conditions, so that the turns are the same. A turn that was charged on the way back is charged by the last
//! copy for all of them, and on each way out for those that came before. A loop that always makes a multiple of so many turns is left
//! before a turn that would be the first of the copies, and asks in no other.

use super::Dominators;
use super::checks::ways_back;
use super::strips::fixed_turns;
use crate::ir::{Block, BlockId, Function, Instr, Op, Pos, Target, Terminator, Type, Value};
use std::collections::{HashMap, HashSet};

/// Copies of a loop with at most so many instructions.
const COPIES: [(usize, usize); 3] = [(14, 8), (48, 4), (96, 2)];
/// A function is not made larger than this, in values and in blocks.
const MOST_VALUES: usize = 768;
const MOST_BLOCKS: usize = 512;

/// Copies the bodies of small loops.
pub fn unroll(function: &mut Function) {
    if function.blocks.len() > MOST_BLOCKS {
        return;
    }
    // Headers stay where they are, and a loop that was copied has another header as its only way back.
    let mut done = HashSet::new();
    while let Some(small) = find(function, &mut done) {
        give_params_to_exits(function, &small.blocks);
        if is_closed(function, &small.blocks) {
            copy(function, &small);
        }
        if function.values.len() > MOST_VALUES || function.blocks.len() > MOST_BLOCKS {
            return;
        }
    }
}

/// A loop that can be copied.
struct Small {
    header: usize,
    latch: usize,
    /// All blocks, the header first.
    blocks: Vec<usize>,
    /// Whether the latch charges for the turn.
    is_charged: bool,
    copies: usize,
    /// The bound of its counter, if it always makes a multiple of so many turns.
    whole: Option<i64>,
}

fn find(function: &Function, done: &mut HashSet<usize>) -> Option<Small> {
    let tree = Dominators::of(function);
    let ways = ways_back(function);
    let to = |&(from, way): &(usize, usize)| function.blocks[from].end.targets()[way].block.0 as usize;
    let headers: Vec<usize> = ways.iter().map(to).collect();
    for (way, &header) in ways.iter().zip(&headers) {
        let latch = way.0;
        let is_jump = matches!(function.blocks[latch].end, Terminator::Jump(_));
        let is_only = headers.iter().filter(|other| **other == header).count() == 1;
        if !is_jump || !is_only || header == 0 || !tree.dominates(header, latch) || !done.insert(header) {
            continue;
        }
        let Some(blocks) = blocks_of(function, header, latch) else { continue };
        let inner = headers.iter().any(|other| *other != header && blocks.contains(other));
        let instrs: Vec<&Instr> = blocks.iter().flat_map(|at| &function.blocks[*at].instrs).collect();
        let is_charged = charged(&function.blocks[latch]);
        // Without its charge, so that code without checks has the same copies.
        let count = instrs.len() - if is_charged { 3 } else { 0 };
        let copies = COPIES.iter().find(|(most, _)| count <= *most).map(|(_, copies)| *copies);
        let (Some(copies), false) = (copies, inner) else { continue };
        let quiet = |op: &Op| {
            let calls = matches!(op, Op::Call(..) | Op::SliceNew(..) | Op::StructNew(..) | Op::Print(_));
            !op.needs_scheduler() && !calls && !matches!(op, Op::PrintText(_))
        };
        let checks = instrs.iter().filter(|instr| instr.op == Op::BudgetCheck).count();
        if instrs.iter().all(|instr| quiet(&instr.op)) && checks == usize::from(is_charged) {
            // Copies that ask nothing are smaller, so that there may be twice as many.
            let fixed = fixed_turns(function, header, latch).and_then(|(bound, turns)| {
                let divides = |copies: &usize| (turns as usize).is_multiple_of(*copies);
                Some((bound, (copies..=2 * copies).rev().find(divides)?))
            });
            let (whole, copies) = fixed.map_or((None, copies), |(bound, copies)| (Some(bound), copies));
            return Some(Small { header, latch, blocks, is_charged, copies, whole });
        }
    }
    None
}

/// Whether a block ends with the charge for one turn.
pub(super) fn charged(latch: &Block) -> bool {
    let [.., one, pay, check] = latch.instrs.as_slice() else { return false };
    one.op == Op::Int(1) && pay.op == Op::BudgetDecrement(one.results[0]) && check.op == Op::BudgetCheck
}

fn blocks_of(function: &Function, header: usize, latch: usize) -> Option<Vec<usize>> {
    let before = function.predecessors();
    let mut blocks = vec![header];
    let mut todo = vec![latch];
    while let Some(at) = todo.pop() {
        if !blocks.contains(&at) {
            blocks.push(at);
            todo.extend(before[at].iter().map(|id| id.0 as usize));
        }
    }
    (!blocks.contains(&0)).then_some(blocks)
}

/// The values that blocks define.
fn defined(function: &Function, blocks: &[usize]) -> HashSet<Value> {
    let mut defined = HashSet::new();
    for block in blocks.iter().map(|at| &function.blocks[*at]) {
        defined.extend(block.params.iter().copied());
        defined.extend(block.instrs.iter().flat_map(|instr| instr.results.iter().copied()));
    }
    defined
}

fn uses(block: &Block) -> impl Iterator<Item = Value> + '_ {
    block.instrs.iter().flat_map(|instr| instr.op.operands()).chain(block.end.operands())
}

/// What is used after the loop and defined in it becomes a parameter of the block there, if one way alone leads to that block.
fn give_params_to_exits(function: &mut Function, blocks: &[usize]) {
    let inside = defined(function, blocks);
    let (tree, before) = (Dominators::of(function), function.predecessors());
    for &from in blocks {
        for way in 0..function.blocks[from].end.targets().len() {
            let exit = function.blocks[from].end.targets()[way].block.0 as usize;
            if blocks.contains(&exit) || before[exit].len() != 1 {
                continue;
            }
            let below: Vec<usize> =
                (0..function.blocks.len()).filter(|at| tree.dominates(exit, *at)).collect();
            let mut used: Vec<Value> = below
                .iter()
                .flat_map(|at| uses(&function.blocks[*at]))
                .filter(|value| inside.contains(value))
                .collect();
            used.sort_unstable();
            used.dedup();
            let renamed: HashMap<Value, Value> = used
                .iter()
                .map(|value| (*value, function.new_value(function.type_of(*value).clone())))
                .collect();
            for at in below {
                rename(&mut function.blocks[at], &renamed);
            }
            function.blocks[exit].params.extend(used.iter().map(|value| renamed[value]));
            function.blocks[from].end.targets_mut()[way].args.extend(used);
        }
    }
}

/// Whether nothing outside of the loop uses what is defined in it.
fn is_closed(function: &Function, blocks: &[usize]) -> bool {
    let inside = defined(function, blocks);
    let outside = (0..function.blocks.len()).filter(|at| !blocks.contains(at));
    outside.flat_map(|at| uses(&function.blocks[at])).all(|value| !inside.contains(&value))
}

fn rename(block: &mut Block, renamed: &HashMap<Value, Value>) {
    let new = |value: &mut Value| *value = renamed.get(value).copied().unwrap_or(*value);
    block.instrs.iter_mut().for_each(|instr| instr.op.for_each_operand(&mut |value| new(value)));
    block.end.for_each_operand(&mut |value| new(value));
}

fn copy(function: &mut Function, small: &Small) {
    let Small { header, latch, ref blocks, is_charged, copies, whole } = *small;
    let original: Vec<Block> = blocks.iter().map(|at| function.blocks[*at].clone()).collect();
    let pos = function.blocks[latch].end_pos;
    let place = |at: usize, of: usize| blocks.iter().position(|block| *block == at).map(|number| of + number);
    let mut last_latch = latch;
    uncharge(&mut function.blocks[latch], is_charged);
    for number in 1..copies {
        // What the parameters of the header are in this copy: what the turn before gives.
        let Terminator::Jump(back) = &function.blocks[last_latch].end else { return };
        let mut renamed: HashMap<Value, Value> =
            original[0].params.iter().copied().zip(back.args.iter().copied()).collect();
        let first = function.blocks.len();
        for value in defined_in(&original) {
            let of = function.type_of(value).clone();
            renamed.entry(value).or_insert_with(|| function.new_value(of));
        }
        let mut exits = Vec::new();
        for (at, block) in original.iter().enumerate() {
            let mut copy = block.clone();
            rename(&mut copy, &renamed);
            if at == 0 {
                copy.params.clear();
                if let (Terminator::Branch(_, inside, _), Some(_)) = (&copy.end, whole) {
                    copy.end = Terminator::Jump(inside.clone());
                }
            }
            copy.params.iter_mut().for_each(|param| *param = renamed[param]);
            copy.instrs
                .iter_mut()
                .flat_map(|instr| &mut instr.results)
                .for_each(|result| *result = renamed[result]);
            if blocks[at] == latch {
                uncharge(&mut copy, is_charged);
            }
            for target in copy.end.targets_mut() {
                let to = target.block.0 as usize;
                match place(to, first) {
                    // The way back goes on in the next copy, and from the last one to the header.
                    Some(_) if to == header => {}
                    Some(inside) => target.block = BlockId(inside as u32),
                    None => exits.push((first + at, to)),
                }
            }
            function.blocks.push(copy);
        }
        if is_charged {
            for (from, to) in exits {
                charge_exit(function, from, to, number, pos);
            }
        }
        let Terminator::Jump(back) = &mut function.blocks[last_latch].end else { return };
        *back = Target { block: BlockId(first as u32), args: Vec::new() };
        last_latch = place(latch, first).expect("the latch is in the loop");
    }
    if is_charged {
        charge(function, last_latch, copies, pos, true);
    }
    if let Some(bound) = whole {
        tighten(function, header, bound - (copies as i64 - 1));
    }
}

/// Lets a loop that counts end at another bound. It says the same of the first of several turns that are always made together, and tells
/// what reads the program that the counter is below the old bound in all of them.
fn tighten(function: &mut Function, header: usize, bound: i64) {
    let value = function.new_value(Type::I64);
    let instrs = &mut function.blocks[header].instrs;
    let Some(compare) = instrs.pop() else { return };
    let Op::Binary(op, index, _) = compare.op else { unreachable!("it counts") };
    instrs.push(Instr { results: vec![value], op: Op::Int(bound), pos: compare.pos });
    instrs.push(Instr { op: Op::Binary(op, index, value), ..compare });
}

fn defined_in(blocks: &[Block]) -> Vec<Value> {
    let of = |block: &Block| {
        let results = block.instrs.iter().flat_map(|instr| instr.results.clone());
        block.params.iter().copied().chain(results).collect::<Vec<_>>()
    };
    blocks.iter().flat_map(of).collect()
}

fn uncharge(latch: &mut Block, is_charged: bool) {
    if is_charged {
        latch.instrs.truncate(latch.instrs.len() - 3);
    }
}

/// Charges for so many turns at the end of a block.
fn charge(function: &mut Function, at: usize, turns: usize, pos: Pos, checked: bool) {
    let cost = function.new_value(Type::I64);
    let instrs = &mut function.blocks[at].instrs;
    instrs.push(Instr { results: vec![cost], op: Op::Int(turns as i64), pos });
    instrs.push(Instr { results: Vec::new(), op: Op::BudgetDecrement(cost), pos });
    if checked {
        instrs.push(Instr { results: Vec::new(), op: Op::BudgetCheck, pos });
    }
}

/// Charges for the turns before on the way out of a copy.
fn charge_exit(function: &mut Function, from: usize, to: usize, turns: usize, pos: Pos) {
    let between = function.blocks.len();
    let mut made = None;
    for target in function.blocks[from].end.targets_mut() {
        // Both sides of a branch may lead to one block, with other values.
        if target.block.0 as usize == to && made.is_none() {
            let old = std::mem::replace(target, Target { block: BlockId(between as u32), args: Vec::new() });
            made = Some(old);
        }
    }
    let Some(target) = made else { return };
    let end = Terminator::Jump(target);
    function.blocks.push(Block { params: Vec::new(), instrs: Vec::new(), end, end_pos: pos });
    charge(function, between, turns, pos, false);
}
