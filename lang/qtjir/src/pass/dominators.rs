//! Which blocks each way to a block leads through.
//!
//! Semidominators by a search in depth, and then the nearest common ancestors in its tree: the time does not depend on how the
//! blocks are connected, which whoever wrote the program chose.

use crate::ir::Function;

/// The tree of dominators.
#[derive(Clone, Debug, Default)]
pub struct Dominators {
    immediate: Vec<usize>,
    /// The place of each block in a walk of the tree that comes to a block before those below it.
    entered: Vec<usize>,
    /// How many blocks are below each one, itself included. None if no way leads to it.
    below: Vec<usize>,
}

/// The blocks in the order of a search in depth, and the search's tree, by places in that order.
struct Search {
    order: Vec<usize>,
    place: Vec<Option<usize>>,
    parent: Vec<usize>,
    before: Vec<Vec<usize>>,
}

impl Search {
    fn through(function: &Function) -> Self {
        let blocks = &function.blocks;
        let after: Vec<Vec<usize>> = blocks
            .iter()
            .map(|block| block.end.targets().iter().map(|target| target.block.0 as usize).collect())
            .collect();
        let mut before = vec![Vec::new(); blocks.len()];
        let (mut order, mut parent, mut place) = (vec![0], vec![0], vec![None; blocks.len()]);
        place[0] = Some(0);
        let mut stack = vec![(0, 0)];
        while let Some((block, way)) = stack.pop() {
            let Some(&to) = after[block].get(way) else { continue };
            stack.push((block, way + 1));
            before[to].push(block);
            if place[to].is_none() {
                place[to] = Some(order.len());
                parent.push(place[block].unwrap_or_default());
                order.push(to);
                stack.push((to, 0));
            }
        }
        Self { order, place, parent, before }
    }

    /// The semidominator of each place.
    fn semidominators(&self) -> Vec<usize> {
        let count = self.order.len();
        let mut semi: Vec<usize> = (0..count).collect();
        let mut best = semi.clone();
        let mut above = self.parent.clone();
        for at in (1..count).rev() {
            let mut least = self.parent[at];
            for from in &self.before[self.order[at]] {
                let from = self.place[*from].unwrap_or_default();
                least = least.min(semi[least_above(from, at + 1, &mut above, &mut best, &semi)]);
            }
            semi[at] = least;
        }
        semi
    }
}

/// The place with the least semidominator on the way up from `from` through places that are done: those from `done` on. The way is
/// made shorter for the next who goes it.
fn least_above(from: usize, done: usize, above: &mut [usize], best: &mut [usize], semi: &[usize]) -> usize {
    if above[from] < done {
        return best[from];
    }
    let (mut way, mut at) = (Vec::new(), from);
    while above[at] >= done {
        way.push(at);
        at = above[at];
    }
    let top = above[at];
    let mut least = best[at];
    for place in way.into_iter().rev() {
        above[place] = top;
        if semi[least] < semi[best[place]] {
            best[place] = least;
        } else {
            least = best[place];
        }
    }
    best[from]
}

impl Dominators {
    /// Those of a function. A block that no way leads to is dominated by itself alone.
    pub fn of(function: &Function) -> Self {
        let search = Search::through(function);
        let (semi, count) = (search.semidominators(), search.order.len());
        let mut up = search.parent.clone();
        for at in 1..count {
            while up[at] > semi[at] {
                up[at] = up[up[at]];
            }
        }
        let mut sizes = vec![1; count];
        for at in (1..count).rev() {
            sizes[up[at]] += sizes[at];
        }
        // Each block's place comes after those below its elder siblings.
        let (mut places, mut next) = (vec![0; count], vec![1; count]);
        for at in 1..count {
            places[at] = next[up[at]];
            next[up[at]] += sizes[at];
            next[at] = places[at] + 1;
        }
        let blocks = function.blocks.len();
        let mut tree =
            Self { immediate: (0..blocks).collect(), entered: vec![0; blocks], below: vec![0; blocks] };
        for (at, &block) in search.order.iter().enumerate() {
            tree.immediate[block] = search.order[up[at]];
            (tree.entered[block], tree.below[block]) = (places[at], sizes[at]);
        }
        tree
    }

    /// The nearest block that every way to this one leads through before. The first block's is itself.
    pub fn immediate(&self, block: usize) -> usize {
        self.immediate[block]
    }

    /// Whether every way to `block` leads through `above`.
    pub fn dominates(&self, above: usize, block: usize) -> bool {
        let below = self.entered[above]..self.entered[above] + self.below[above];
        above == block || self.below[block] > 0 && below.contains(&self.entered[block])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Block, BlockId, Pos, Target, Terminator, Type, Value};

    /// A function whose blocks lead where `next` says.
    fn random(count: usize, mut next: impl FnMut() -> usize) -> Function {
        let mut target = || Target { block: BlockId((1 + next() % (count - 1)) as u32), args: Vec::new() };
        let ends: Vec<Terminator> = (0..count)
            .map(|at| match at % 5 {
                4 => Terminator::Return(None),
                3 => Terminator::Jump(target()),
                _ => Terminator::Branch(Value(0), target(), target()),
            })
            .collect();
        let block = |end| Block { params: Vec::new(), instrs: Vec::new(), end, end_pos: Pos::default() };
        Function {
            name: String::new(),
            result: Type::Unit,
            fails: false,
            blocks: ends.into_iter().map(block).collect(),
            values: vec![Type::Bool],
            pos: Pos::default(),
        }
    }

    /// The blocks that a way leads to which keeps out of `avoided`.
    fn reached(function: &Function, avoided: usize) -> Vec<bool> {
        let mut reached = vec![false; function.blocks.len()];
        let mut todo = vec![0];
        while let Some(at) = todo.pop() {
            if at != avoided && !std::mem::replace(&mut reached[at], true) {
                todo.extend(function.blocks[at].end.targets().iter().map(|target| target.block.0 as usize));
            }
        }
        reached
    }

    #[test]
    fn a_block_dominates_those_that_no_way_leads_to_without_it() {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for round in 0..300 {
            let function = random(2 + round % 40, &mut next);
            let (tree, all) = (Dominators::of(&function), reached(&function, usize::MAX));
            let known: Vec<usize> = (0..all.len()).filter(|at| all[*at]).collect();
            for &above in &known {
                let without = reached(&function, above);
                for &block in &known {
                    assert_eq!(
                        tree.dominates(above, block),
                        !without[block],
                        "{above}, {block}: {function:?}"
                    );
                }
                let up = tree.immediate(above);
                assert!(tree.dominates(up, above) && (up != above || above == 0));
                let between = |at: usize| at != up && at != above && tree.dominates(up, at);
                assert!(known.iter().all(|at| !(between(*at) && tree.dominates(*at, above))));
            }
        }
    }
}
