//! Passes: where yield checks go, and how they become cheap.
//!
//! Conserved: the ops that a run is charged which ends without a trap. [`insert_checks`] charges one op for each turn of a loop
//! and for each call. [`simplify`] moves these charges and never changes their sum: turns of loops that know their length are
//! paid in strips before they run, small loops are charged for several turns at once, and charges with nothing between them are
//! added up.

mod checks;
mod dominators;
mod merge;
mod strips;
mod unroll;

pub use checks::insert_checks;
pub use dominators::Dominators;
pub use merge::merge_charges;
pub use strips::strip_mine;
pub use unroll::unroll;

use crate::ir::{Function, Module, Op};

/// Makes checks cheap: counted loops pay in strips, other small ones for several turns, and neighbouring charges are added up.
pub fn simplify(module: &mut Module) {
    let interval = module.interval();
    for function in &mut module.functions {
        strip_mine(function, interval);
        unroll(function);
        merge_charges(function);
    }
}

/// Takes all charges out. What is left has the loops that metered code has, but for the strips.
pub fn remove_charges(module: &mut Module) {
    for function in &mut module.functions {
        unroll(function);
        for block in &mut function.blocks {
            block.instrs.retain(|instr| !matches!(instr.op, Op::BudgetDecrement(_) | Op::BudgetCheck));
        }
    }
}

/// The blocks of a function, each after those that dominate it.
pub fn reverse_postorder(function: &Function) -> Vec<usize> {
    let mut seen = vec![false; function.blocks.len()];
    let mut order = Vec::new();
    let mut stack = vec![(0, 0)];
    seen[0] = true;
    while let Some((block, next)) = stack.pop() {
        match function.blocks[block].end.targets().get(next) {
            Some(target) => {
                stack.push((block, next + 1));
                let to = target.block.0 as usize;
                if !std::mem::replace(&mut seen[to], true) {
                    stack.push((to, 0));
                }
            }
            None => order.push(block),
        }
    }
    order.reverse();
    order
}
