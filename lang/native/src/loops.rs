//! Which blocks belong to which loop.

use mainspring_qtjir::Function;
use mainspring_qtjir::pass::Dominators;
use std::collections::HashSet;

/// A function with more blocks counts as one without loops.
const MOST_BLOCKS: usize = 1024;

/// The innermost loop of each block.
#[derive(Debug, Default)]
pub(crate) struct Loops {
    /// The blocks of each loop.
    all: Vec<HashSet<usize>>,
    /// The innermost loop of a block, and how many loops it is in.
    of: Vec<Option<(usize, usize)>>,
    tree: Dominators,
}

impl Loops {
    pub(crate) fn of(function: &Function) -> Self {
        if function.blocks.len() > MOST_BLOCKS {
            return Self::default();
        }
        let (tree, before) = (Dominators::of(function), function.predecessors());
        let mut all: Vec<HashSet<usize>> = Vec::new();
        for header in 0..function.blocks.len() {
            let latches = before[header].iter().map(|id| id.0 as usize);
            let mut todo: Vec<usize> = latches.filter(|from| tree.dominates(header, *from)).collect();
            if todo.is_empty() {
                continue;
            }
            let mut blocks = HashSet::from([header]);
            while let Some(at) = todo.pop() {
                if blocks.insert(at) {
                    todo.extend(before[at].iter().map(|id| id.0 as usize));
                }
            }
            all.push(blocks);
        }
        let of = (0..function.blocks.len())
            .map(|at| {
                let around = all.iter().enumerate().filter(|(_, blocks)| blocks.contains(&at));
                let depth = around.clone().count();
                around.min_by_key(|(_, blocks)| blocks.len()).map(|(number, _)| (number, depth))
            })
            .collect();
        Self { all, of, tree }
    }

    /// Whether the way from a block to another leaves the innermost loop of the first.
    pub(crate) fn leaves(&self, from: usize, to: usize) -> bool {
        let innermost = self.of.get(from).copied().flatten();
        innermost.is_some_and(|(number, _)| !self.all[number].contains(&to))
    }

    /// Whether a turn that ends in the block `latch` has always been through `above` too.
    pub(crate) fn passes(&self, above: usize, latch: usize) -> bool {
        let innermost = self.of.get(latch).copied().flatten();
        innermost.is_some_and(|(number, _)| self.all[number].contains(&above))
            && self.tree.dominates(above, latch)
    }

    /// How many loops a block is in.
    pub(crate) fn depth(&self, block: usize) -> usize {
        self.of.get(block).copied().flatten().map_or(0, |(_, depth)| depth)
    }
}
