//! Checks with nothing between them are one check.

use crate::ir::{Function, Op};

/// Removes each check that another one follows in its block before anything can wait, trap, charge or be seen.
pub fn merge_charges(function: &mut Function) {
    for at in 0..function.blocks.len() {
        let values = &function.values;
        let mut checked_later = false;
        let mut kept = Vec::new();
        for instr in std::mem::take(&mut function.blocks[at].instrs).into_iter().rev() {
            let quiet = match &instr.op {
                Op::BudgetCheck if checked_later => continue,
                Op::BudgetCheck => {
                    checked_later = true;
                    true
                }
                Op::Int(_) | Op::Float(_) | Op::Bool(_) | Op::BudgetDecrement(_) | Op::Len(_) => true,
                Op::Binary(op, a, _) => !op.traps(&values[a.0 as usize]),
                _ => false,
            };
            checked_later &= quiet;
            kept.push(instr);
        }
        kept.reverse();
        function.blocks[at].instrs = kept;
    }
}
