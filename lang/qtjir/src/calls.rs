//! Which functions lead to which instructions.

use crate::ir::{Module, Op};

/// Which functions contain an instruction that `does` it, or name a function that leads to one in an instruction that `follows`.
pub fn reaching(module: &Module, does: impl Fn(&Op) -> bool, follows: impl Fn(&Op) -> bool) -> Vec<bool> {
    let index = module.index();
    let mut reaches = vec![false; module.functions.len()];
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); module.functions.len()];
    let mut todo = Vec::new();
    for (at, function) in module.functions.iter().enumerate() {
        for op in function.blocks.iter().flat_map(|block| &block.instrs).map(|instr| &instr.op) {
            if let Some(&callee) = op.callee().filter(|_| follows(op)).and_then(|name| index.get(name)) {
                callers[callee].push(at);
            }
            if does(op) {
                todo.push(at);
            }
        }
    }
    while let Some(at) = todo.pop() {
        if !std::mem::replace(&mut reaches[at], true) {
            todo.extend(&callers[at]);
        }
    }
    reaches
}
