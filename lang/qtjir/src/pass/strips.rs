//! Loops that know their length pay in strips.
//!
//! A loop that counts up by one to a bound that does not change, and ends nowhere else, becomes two: the outer one pays for as
//! many turns as are left, at most an interval, and the inner one runs them without any check. A trap in a strip forfeits what
//! was paid for its other turns.
//!
//! A loop that is never longer than an interval pays as a whole where it is entered, and stays as it is otherwise. If it is not longer with
//! all turns of the loops in it either, these pay without a check.

use super::checks::ways_back;
use super::unroll::charged;
use super::{Dominators, reverse_postorder};
use crate::ir::{Binary, Block, BlockId, Function, Instr, Op, Pos, Target, Terminator, Type, Value};
use std::collections::{HashMap, HashSet};

/// A strip has no more turns, whatever interval the program chose: nothing stops code in the middle of a strip.
const MOST_TURNS: u32 = 1024;
/// A function with more blocks is left as it is: each loop is looked for anew.
const MOST_BLOCKS: usize = 2048;

/// Lets counted loops pay before they run: in strips of at most `interval` turns, and of at most `MOST_TURNS`.
pub fn strip_mine(function: &mut Function, interval: u32) {
    let interval = interval.min(MOST_TURNS);
    if function.blocks.len() > MOST_BLOCKS {
        return;
    }
    let (mut lows, mut short) = (HashMap::new(), Short::default());
    // Each loop changes the blocks, so the next one is looked for afterwards. A loop that was changed is no candidate again.
    while let Some(counted) = find(function) {
        let low = counted.low(&lows);
        match (low, counted.turns(low, interval)) {
            (Some(low), Some(turns)) => {
                lows.insert(function.blocks[counted.header].params[counted.counter], low);
                short.turns.insert(counted.header, turns);
                short.payments.insert(pay_as_a_whole(function, &counted));
            }
            (low, _) => {
                let index = split(function, &counted, interval);
                lows.extend(low.map(|low| (index, low)));
            }
        }
    }
    drop_checks(function, &short, interval);
}

/// The loops that are never longer than an interval.
#[derive(Default)]
struct Short {
    /// How many turns each of them makes at most, by its header.
    turns: HashMap<usize, u32>,
    /// The blocks where they pay.
    payments: HashSet<usize>,
}

/// A loop that counts.
struct Counted {
    header: usize,
    latch: usize,
    /// Which parameter of the header counts.
    counter: usize,
    bound: Value,
    /// The bound, if it is a constant.
    constant: Option<i64>,
    /// What the counter begins with, on each way into the loop.
    begins: Vec<Begin>,
    /// The blocks of the loop but for the header.
    body: HashSet<usize>,
}

/// A value, and what is added to it; or only a number.
type Begin = (Option<Value>, i64);

impl Counted {
    /// The least number that the counter begins with, if that is known. `lows` are those of the counters around it.
    fn low(&self, lows: &HashMap<Value, i64>) -> Option<i64> {
        let lows = self.begins.iter().map(|(value, more)| match value {
            Some(value) => lows.get(value)?.checked_add(*more),
            None => Some(*more),
        });
        lows.collect::<Option<Vec<i64>>>()?.into_iter().min()
    }

    /// How many turns it makes at most, if those are no more than `most`.
    fn turns(&self, low: Option<i64>, most: u32) -> Option<u32> {
        // With a bound below zero the difference might not fit.
        let bound = self.constant.filter(|bound| *bound >= 0)?;
        let turns = u32::try_from(bound.checked_sub(low?)?.max(0)).ok()?;
        (turns <= most).then_some(turns)
    }
}

/// The bound of a loop and how many turns it makes, if it always makes the same number, up to [`MOST_TURNS`].
pub(super) fn fixed_turns(function: &Function, header: usize, latch: usize) -> Option<(i64, u32)> {
    let counted = counted(function, &homes(function), header, latch)?;
    let (first, others) = counted.begins.split_first()?;
    let (None, begin) = *first else { return None };
    let turns = counted.turns(Some(begin), MOST_TURNS)?;
    others.iter().all(|other| other == first).then_some((counted.constant?, turns))
}

/// The outermost loop that counts and was not changed.
fn find(function: &Function) -> Option<Counted> {
    let tree = Dominators::of(function);
    let homes = homes(function);
    let mut rank = vec![0; function.blocks.len()];
    reverse_postorder(function).into_iter().enumerate().for_each(|(at, block)| rank[block] = at);
    let to = |&(from, way): &(usize, usize)| function.blocks[from].end.targets()[way].block.0 as usize;
    let mut ways = ways_back(function);
    ways.sort_by_key(|way| rank[to(way)]);
    ways.iter().find_map(|way| {
        let (latch, header) = (way.0, to(way));
        let is_only = ways.iter().filter(|other| to(other) == header).count() == 1;
        if !charged(&function.blocks[latch]) || !is_only || !tree.dominates(header, latch) {
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
    if compare.results != [*condition] || *function.type_of(index) != Type::I64 {
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
    (ok && steps_by_one(function, homes, *back.args.get(counter)?, index)).then(|| Counted {
        header,
        latch,
        counter,
        bound,
        constant: number(function, homes, bound),
        begins: begins(function, homes, header, latch, counter),
        body,
    })
}

fn op_of<'f>(
    function: &'f Function,
    homes: &HashMap<Value, (usize, Option<usize>)>,
    value: Value,
) -> Option<&'f Op> {
    let (block, number) = homes.get(&value)?;
    Some(&function.blocks[*block].instrs[(*number)?].op)
}

fn number(function: &Function, homes: &HashMap<Value, (usize, Option<usize>)>, value: Value) -> Option<i64> {
    match op_of(function, homes, value)? {
        Op::Int(number) => Some(*number),
        _ => None,
    }
}

/// What a parameter of a block is that one way alone leads to, as to the block that pays for a loop; or the value itself.
fn came_from(function: &Function, homes: &HashMap<Value, (usize, Option<usize>)>, value: Value) -> Value {
    let Some((home, None)) = homes.get(&value) else { return value };
    let Some(number) = function.blocks[*home].params.iter().position(|param| *param == value) else {
        return value;
    };
    let targets = function.blocks.iter().flat_map(|block| block.end.targets());
    let mut ways = targets.filter(|target| target.block.0 as usize == *home);
    match (ways.next(), ways.next()) {
        (Some(way), None) => way.args[number],
        _ => value,
    }
}

/// What the counter of a loop begins with on each way into the loop.
fn begins(
    function: &Function,
    homes: &HashMap<Value, (usize, Option<usize>)>,
    header: usize,
    latch: usize,
    counter: usize,
) -> Vec<Begin> {
    let outside = function.blocks.iter().enumerate().filter(|(at, _)| *at != latch);
    let ways = outside.flat_map(|(_, block)| block.end.targets());
    let ways = ways.filter(|target| target.block.0 as usize == header);
    let begin = |value: Value| {
        let value = came_from(function, homes, value);
        if let Some(number) = number(function, homes, value) {
            return (None, number);
        }
        match op_of(function, homes, value) {
            // A sum that does not fit traps.
            Some(Op::Binary(Binary::Add, a, more)) => match number(function, homes, *more) {
                Some(more) => (Some(*a), more),
                None => (Some(value), 0),
            },
            _ => (Some(value), 0),
        }
    };
    ways.map(|target| begin(target.args[counter])).collect()
}

fn steps_by_one(
    function: &Function,
    homes: &HashMap<Value, (usize, Option<usize>)>,
    next: Value,
    index: Value,
) -> bool {
    match op_of(function, homes, next) {
        Some(Op::Binary(Binary::Add | Binary::AddWrap, a, step)) => {
            *a == index && number(function, homes, *step) == Some(1)
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

/// Makes strips of a loop. Gives what counts in them.
fn split(function: &mut Function, counted: &Counted, interval: u32) -> Value {
    let Counted { header, latch, counter, bound, ref body, .. } = *counted;
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
    let Terminator::Branch(_, inside, _) = &mut function.blocks[header].end else {
        unreachable!("it counts")
    };
    let mut inside = std::mem::replace(inside, strip_target);
    inside.args.iter_mut().for_each(rename);

    let (strip, stop) = strip_block(function, pos, params[counter], bound, interval, inner_id, params);
    function.blocks.push(strip);
    let again = Target { block: BlockId(header as u32), args: fresh.clone() };
    let index = fresh[counter];
    let compare = Instr { results: vec![goes_on], op: Op::Binary(Binary::Lt, index, stop), pos };
    function.blocks.push(Block {
        params: fresh,
        instrs: vec![compare],
        end: Terminator::Branch(goes_on, inside, again),
        end_pos: pos,
    });
    index
}

/// Lets a loop pay for all its turns where it is entered. Gives the block that pays.
fn pay_as_a_whole(function: &mut Function, counted: &Counted) -> usize {
    let Counted { header, latch, counter, .. } = *counted;
    let (pos, payment) = (function.blocks[header].end_pos, function.blocks.len());
    for block in function.blocks.iter_mut().enumerate().filter(|(at, _)| *at != latch).map(|(_, block)| block)
    {
        for target in block.end.targets_mut() {
            if target.block.0 as usize == header {
                target.block = BlockId(payment as u32);
            }
        }
    }
    let charge = &mut function.blocks[latch].instrs;
    charge.truncate(charge.len() - 3);
    let params = function.blocks[header].params.clone();
    let params: Vec<Value> =
        params.into_iter().map(|param| function.new_value(function.type_of(param).clone())).collect();
    let (bound, left) = (function.new_value(Type::I64), function.new_value(Type::I64));
    let instr = |results: &[Value], op| Instr { results: results.to_vec(), op, pos };
    let instrs = vec![
        instr(&[bound], Op::Int(counted.constant.expect("it is known"))),
        // Below zero if there is no turn, which costs nothing.
        instr(&[left], Op::Binary(Binary::SubWrap, bound, params[counter])),
        instr(&[], Op::BudgetDecrement(left)),
        instr(&[], Op::BudgetCheck),
    ];
    let end = Terminator::Jump(Target { block: BlockId(header as u32), args: params.clone() });
    function.blocks.push(Block { params, instrs, end, end_pos: pos });
    payment
}

/// Removes the checks of short loops inside of a short loop that makes at most `most` turns with all loops in it.
fn drop_checks(function: &mut Function, short: &Short, most: u32) {
    if short.turns.len() < 2 {
        return;
    }
    let (tree, ways) = (Dominators::of(function), ways_back(function));
    let to = |&(from, way): &(usize, usize)| function.blocks[from].end.targets()[way].block.0 as usize;
    let mut loops: Vec<(usize, HashSet<usize>)> = Vec::new();
    for way in &ways {
        // A cycle with two entries is no loop, and what is in it is not known.
        if !tree.dominates(to(way), way.0) {
            return;
        }
        let Some(body) = blocks_between(function, to(way), way.0) else { return };
        match loops.iter_mut().find(|(header, _)| *header == to(way)) {
            Some((_, blocks)) => blocks.extend(body),
            None => loops.push((to(way), body)),
        }
    }
    // What is in a loop is smaller than it.
    loops.sort_by_key(|(_, body)| body.len());
    let around =
        |inner: usize| (inner + 1..loops.len()).find(|outer| loops[*outer].1.contains(&loops[inner].0));
    // The turns of a loop, and of those in each of its turns: none if they are not known.
    let (mut turns, mut inside) = (Vec::new(), vec![Some(1u32); loops.len()]);
    for (at, (header, _)) in loops.iter().enumerate() {
        let own = short.turns.get(header).copied();
        let all = own.zip(inside[at]).and_then(|(own, inside)| own.checked_mul(inside));
        if let Some(outer) = around(at) {
            inside[outer] = inside[outer].zip(all).and_then(|(sum, all)| sum.checked_add(all));
        }
        turns.push(all.filter(|all| *all <= most));
    }
    let quiet: HashSet<usize> = loops
        .iter()
        .zip(&turns)
        .filter(|(_, turns)| turns.is_some())
        .flat_map(|((_, body), _)| body)
        .copied()
        .collect();
    for &payment in short.payments.intersection(&quiet) {
        function.blocks[payment].instrs.retain(|instr| instr.op != Op::BudgetCheck);
    }
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
