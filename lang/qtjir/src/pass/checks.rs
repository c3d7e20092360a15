//! Where yield checks go.
//!
//! - On each way back of a loop: one op, and a check. Every cycle of blocks has such a way, also one with two entries.
//! - Before each call: one op, and a check.
//! - Before each send and receive, and after each allocation: a check. The runtime charges these itself.
//!
//! A check looks up once per interval: [`Op::BudgetDecrement`] counts in the task, and [`Op::BudgetCheck`] pays for what was counted
//! when that has reached the interval.

use crate::ir::{Block, BlockId, Function, Instr, Op, Pos, Target, Terminator, Type};

/// Inserts the yield checks of a function that has none.
pub fn insert_checks(function: &mut Function) {
    for (block, way) in ways_back(function) {
        charge_way_back(function, block, way);
    }
    for at in 0..function.blocks.len() {
        let instrs = std::mem::take(&mut function.blocks[at].instrs);
        let mut checked = Vec::with_capacity(instrs.len());
        for instr in instrs {
            let pos = instr.pos;
            match instr.op {
                Op::Call(..) => {
                    checked.extend(charge(function, pos));
                    checked.push(instr);
                }
                Op::Send(..) | Op::Recv(_) => {
                    checked.push(check(pos));
                    checked.push(instr);
                }
                Op::SliceNew(..) | Op::StructNew(..) => {
                    checked.push(instr);
                    checked.push(check(pos));
                }
                _ => checked.push(instr),
            }
        }
        function.blocks[at].instrs = checked;
    }
}

fn check(pos: Pos) -> Instr {
    Instr { results: Vec::new(), op: Op::BudgetCheck, pos }
}

/// One op, and a check.
fn charge(function: &mut Function, pos: Pos) -> [Instr; 3] {
    let one = function.new_value(Type::I64);
    [
        Instr { results: vec![one], op: Op::Int(1), pos },
        Instr { results: Vec::new(), op: Op::BudgetDecrement(one), pos },
        check(pos),
    ]
}

fn charge_way_back(function: &mut Function, block: usize, way: usize) {
    let pos = function.blocks[block].end_pos;
    let charge = charge(function, pos);
    if let Terminator::Jump(_) = function.blocks[block].end {
        function.blocks[block].instrs.extend(charge);
        return;
    }
    // The charge is for one of two ways, so that way gets a block.
    let between = BlockId(function.blocks.len() as u32);
    let mut targets = function.blocks[block].end.targets_mut();
    let to = std::mem::replace(&mut *targets[way], Target { block: between, args: Vec::new() });
    function.blocks.push(Block {
        params: Vec::new(),
        instrs: charge.to_vec(),
        end: Terminator::Jump(to),
        end_pos: pos,
    });
}

/// The ways that lead back to a block through which a search from the entry came: each cycle has one.
pub(super) fn ways_back(function: &Function) -> Vec<(usize, usize)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnWay,
        Done,
    }
    let mut seen = vec![Seen::No; function.blocks.len()];
    let mut ways = Vec::new();
    let mut stack = vec![(0, 0)];
    seen[0] = Seen::OnWay;
    while let Some((block, way)) = stack.pop() {
        let Some(to) = function.blocks[block].end.targets().get(way).map(|target| target.block.0 as usize)
        else {
            seen[block] = Seen::Done;
            continue;
        };
        stack.push((block, way + 1));
        match seen[to] {
            Seen::No => {
                seen[to] = Seen::OnWay;
                stack.push((to, 0));
            }
            Seen::OnWay => ways.push((block, way)),
            Seen::Done => {}
        }
    }
    ways
}
