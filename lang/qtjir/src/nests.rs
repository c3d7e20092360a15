//! Which instructions are inside of which nurseries.

use crate::ir::{Function, Op, Value};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// The nurseries that are open where each block begins, from the outermost. For functions that the verifier has passed.
pub fn open_at(function: &Function) -> Vec<Vec<Value>> {
    let mut open_at = vec![None; function.blocks.len()];
    open_at[0] = Some(Vec::new());
    let mut todo = vec![0];
    while let Some(at) = todo.pop() {
        let mut open: Vec<Value> = open_at[at].clone().unwrap_or_default();
        let block = &function.blocks[at];
        block.instrs.iter().for_each(|instr| step(&mut open, &instr.op, &instr.results));
        for target in block.end.targets() {
            let to = target.block.0 as usize;
            if open_at[to].is_none() {
                open_at[to] = Some(open.clone());
                todo.push(to);
            }
        }
    }
    open_at.into_iter().map(Option::unwrap_or_default).collect()
}

/// What an instruction does to the nurseries that are open.
fn step(open: &mut Vec<Value>, op: &Op, results: &[Value]) {
    match op {
        Op::NurseryBegin => open.extend(results),
        Op::NurseryEnd(_) => drop(open.pop()),
        _ => {}
    }
}

/// The nurseries of `defined` that are over where `used` are open.
pub fn over<'a>(defined: &'a [Value], used: &[Value]) -> &'a [Value] {
    let common = defined.iter().zip(used).take_while(|(one, other)| one == other).count();
    &defined[common..]
}

/// The values that are defined inside of each nursery and used after its end. If the nursery fails, they are zero.
pub fn escaping(function: &Function) -> HashMap<Value, Vec<Value>> {
    let begins = |op: &Op| matches!(op, Op::NurseryBegin);
    if !function.blocks.iter().flat_map(|block| &block.instrs).any(|instr| begins(&instr.op)) {
        return HashMap::new();
    }
    let open_at: Vec<Rc<[Value]>> = open_at(function).into_iter().map(Rc::from).collect();
    let mut defined: HashMap<Value, Rc<[Value]>> = HashMap::new();
    let mut uses: Vec<(Vec<Value>, Rc<[Value]>)> = Vec::new();
    for (block, open) in function.blocks.iter().zip(open_at) {
        let mut open = open;
        defined.extend(block.params.iter().map(|value| (*value, open.clone())));
        for instr in &block.instrs {
            uses.push((instr.op.operands(), open.clone()));
            // A nursery itself is outside of it, and so is how it ended.
            let before = open.clone();
            if matches!(instr.op, Op::NurseryBegin | Op::NurseryEnd(_)) {
                let mut after = open.to_vec();
                step(&mut after, &instr.op, &instr.results);
                open = Rc::from(after);
            }
            let home = if begins(&instr.op) { &before } else { &open };
            defined.extend(instr.results.iter().map(|value| (*value, home.clone())));
        }
        uses.push((block.end.operands(), open));
    }
    let mut escaping: HashMap<Value, Vec<Value>> = HashMap::new();
    let mut seen = HashSet::new();
    for (values, open) in uses {
        for value in values {
            for nursery in over(&defined[&value], &open) {
                if seen.insert((*nursery, value)) {
                    escaping.entry(*nursery).or_default().push(value);
                }
            }
        }
    }
    escaping
}
