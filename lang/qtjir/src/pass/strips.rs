//! Loops that know their length pay in strips.
//!
//! A loop that counts up by one to a bound that does not change, and ends nowhere else, becomes two: the outer one pays for as
//! many turns as are left, at most an interval, and the inner one runs them without any check. A trap in a strip forfeits what
//! was paid for its other turns.

use super::Dominators;
use super::checks::ways_back;
use super::unroll::charged;
use crate::ir::{Binary, Block, BlockId, Function, Instr, Op, Pos, Target, Terminator, Type, Value};
use std::collections::{HashMap, HashSet};

/// A strip has no more turns, whatever interval the program chose: nothing stops code in the middle of a strip.
const MOST_TURNS: u32 = 1024;
/// A function with more blocks is left as it is: each loop is looked for anew.
const MOST_BLOCKS: usize = 2048;

/// Turns counted loops into strips of at most `interval` turns, and at most [`MOST_TURNS`].
pub fn strip_mine(function: &mut Function, interval: u32) {
    let interval = interval.min(MOST_TURNS);
    if function.blocks.len() > MOST_BLOCKS {
        return;
    }
    // Each loop changes the blocks, so the next one is looked for afterwards. A loop that was changed is no candidate again.
    while let Some(counted) = find(function) {
        split(function, &counted, interval);
    }
}

/// A loop that counts.
struct Counted {
    header: usize,
    latch: usize,
    /// Which parameter of the header counts.
    counter: usize,
    bound: Value,
    /// The blocks of the loop but for the header.
    body: HashSet<usize>,
}

fn find(function: &Function) -> Option<Counted> {
    let tree = Dominators::of(function);
    let homes = homes(function);
    let ways = ways_back(function);
    ways.iter().find_map(|&(latch, way)| {
        let header = function.blocks[latch].end.targets()[way].block.0 as usize;
        let ways_to_header = ways
            .iter()
            .filter(|&&(from, way)| function.blocks[from].end.targets()[way].block.0 as usize == header);
        if ways_to_header.count() != 1 || !tree.dominates(header, latch) {
            return None;
        }
        counted(function, &homes, header, latch)
    })
}

/// The block and the instruction that define each value; the block alone for a parameter.
fn homes(function: &Function) -> HashMap<Value, (usize, Option<usize>)> {
    let mut homes = HashMap::new();
    for (at, block) in function.blocks.iter().enumerate() {
        homes.extend(block.params.iter().map(|value| (*value, (at, None))));
        for (number, instr) in block.instrs.iter().enumerate() {
            homes.extend(instr.results.iter().map(|value| (*value, (at, Some(number)))));
        }
    }
    homes
}

fn counted(
    function: &Function,
    homes: &HashMap<Value, (usize, Option<usize>)>,
    header: usize,
    latch: usize,
) -> Option<Counted> {
    let (head, last) = (&function.blocks[header], &function.blocks[latch]);
    let Terminator::Jump(back) = &last.end else { return None };
    let Terminator::Branch(condition, inside, _) = &head.end else { return None };
    let (compare, constants) = head.instrs.split_last()?;
    let Op::Binary(Binary::Lt, index, bound) = compare.op else { return None };
    if !charged(last) || compare.results != [*condition] || *function.type_of(index) != Type::I64 {
        return None;
    }
    let body = blocks_between(function, header, latch)?;
    let outside = |value: &Value| homes.get(value).is_some_and(|(at, _)| *at != header && !body.contains(at));
    let fixed = constants.iter().all(|instr| match &instr.op {
        Op::Int(_) => true,
        Op::Len(slice) => outside(slice),
        _ => false,
    });
    let bound_is_fixed = outside(&bound) || constants.iter().any(|instr| instr.results == [bound]);
    let counter = head.params.iter().position(|param| *param == index)?;
    let ends_alone = body.iter().all(|&at| {
        let targets = function.blocks[at].end.targets();
        !targets.is_empty()
            && targets.iter().all(|to| to.block.0 as usize == header || body.contains(&(to.block.0 as usize)))
    });
    let ok = fixed && bound_is_fixed && ends_alone && body.contains(&(inside.block.0 as usize));
    (ok && steps_by_one(function, homes, *back.args.get(counter)?, index)).then_some(Counted {
        header,
        latch,
        counter,
        bound,
        body,
    })
}

fn steps_by_one(
    function: &Function,
    homes: &HashMap<Value, (usize, Option<usize>)>,
    next: Value,
    index: Value,
) -> bool {
    let op = |value: Value| {
        let (block, number) = homes.get(&value)?;
        Some(&function.blocks[*block].instrs[(*number)?].op)
    };
    match op(next) {
        Some(Op::Binary(Binary::Add | Binary::AddWrap, a, step)) => {
            *a == index && op(*step) == Some(&Op::Int(1))
        }
        _ => false,
    }
}

/// The blocks from which the latch is reached without the header. `None` if the entry is among them.
fn blocks_between(function: &Function, header: usize, latch: usize) -> Option<HashSet<usize>> {
    if header == latch {
        return None;
    }
    let before = function.predecessors();
    let mut found = HashSet::from([latch]);
    let mut todo = vec![latch];
    while let Some(at) = todo.pop() {
        for from in before[at].iter().map(|id| id.0 as usize).filter(|&from| from != header) {
            if found.insert(from) {
                todo.push(from);
            }
        }
    }
    (!found.contains(&0)).then_some(found)
}

fn split(function: &mut Function, counted: &Counted, interval: u32) {
    let Counted { header, latch, counter, bound, ref body } = *counted;
    let pos = function.blocks[header].end_pos;
    let (strip_id, inner_id) =
        (BlockId(function.blocks.len() as u32), BlockId(function.blocks.len() as u32 + 1));
    let params = function.blocks[header].params.clone();
    let condition =
        *function.blocks[header].instrs.last().and_then(|instr| instr.results.first()).expect("counted");
    let fresh: Vec<Value> =
        params.iter().map(|param| function.new_value(function.type_of(*param).clone())).collect();
    let goes_on = function.new_value(Type::Bool);
    let mut renamed: HashMap<Value, Value> = params.iter().copied().zip(fresh.iter().copied()).collect();
    renamed.insert(condition, goes_on);

    let rename = |value: &mut Value| *value = renamed.get(value).copied().unwrap_or(*value);
    for &at in body {
        let block = &mut function.blocks[at];
        block.instrs.iter_mut().for_each(|instr| instr.op.for_each_operand(&mut |value| rename(value)));
        block.end.for_each_operand(&mut |value| rename(value));
    }
    let last = &mut function.blocks[latch];
    last.instrs.truncate(last.instrs.len() - 3);
    if let Terminator::Jump(back) = &mut last.end {
        back.block = inner_id;
    }

    let strip_target = Target { block: strip_id, args: Vec::new() };
    let Terminator::Branch(_, inside, _) = &mut function.blocks[header].end else { return };
    let mut inside = std::mem::replace(inside, strip_target);
    inside.args.iter_mut().for_each(rename);

    let (strip, stop) = strip_block(function, pos, params[counter], bound, interval, inner_id, params);
    function.blocks.push(strip);
    let again = Target { block: BlockId(header as u32), args: fresh.clone() };
    let compare = Instr { results: vec![goes_on], op: Op::Binary(Binary::Lt, fresh[counter], stop), pos };
    function.blocks.push(Block {
        params: fresh,
        instrs: vec![compare],
        end: Terminator::Branch(goes_on, inside, again),
        end_pos: pos,
    });
}

/// Pays for the next strip. Gives the block, and where the strip ends.
fn strip_block(
    function: &mut Function,
    pos: Pos,
    index: Value,
    bound: Value,
    interval: u32,
    inner: BlockId,
    params: Vec<Value>,
) -> (Block, Value) {
    let mut instrs = Vec::new();
    let mut define = |function: &mut Function, op| {
        let value = function.new_value(Type::I64);
        instrs.push(Instr { results: vec![value], op, pos });
        value
    };
    // The index is below the bound, so that the difference is exact as an unsigned number.
    let left = define(function, Op::Binary(Binary::SubWrap, bound, index));
    let most = define(function, Op::Int(interval.into()));
    let length = define(function, Op::Binary(Binary::MinUnsigned, left, most));
    let stop = define(function, Op::Binary(Binary::AddWrap, index, length));
    instrs.push(Instr { results: Vec::new(), op: Op::BudgetDecrement(length), pos });
    instrs.push(Instr { results: Vec::new(), op: Op::BudgetCheck, pos });
    let end = Terminator::Jump(Target { block: inner, args: params });
    (Block { params: Vec::new(), instrs, end, end_pos: pos }, stop)
}
