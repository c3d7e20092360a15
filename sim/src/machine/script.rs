//! Programs as the machine follows them: the steps of all tables in one list, so that where a thread is in its program
//! is one number, and what comes next is one look away.
//!
//! Conserved: a table's steps stand together and in order, and end with [`Op::Again`], so every step has a next one.

use crate::random::Range;
use mainspring_abi::Nanos;
use mainspring_workload::{Step, ThreadSpec, Workload};

/// One thing that a program says. The frequent steps stand here themselves, ready for use.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op<'a> {
    Run(Range),
    RunForever,
    Sleep(Range),
    Every(Nanos),
    Yield,
    /// Any other step.
    Step(&'a Step),
    /// The program is over: once more from `first`, or the end after so many rounds.
    Again {
        first: u32,
        times: Option<u64>,
    },
}

const _: () = assert!(size_of::<Op<'_>>() <= 32);

/// The programs of a workload.
#[derive(Debug)]
pub(super) struct Script<'a> {
    ops: Vec<Op<'a>>,
    firsts: Vec<u32>,
}

impl<'a> Script<'a> {
    pub(super) fn new(workload: &'a Workload) -> Self {
        let mut script = Self { ops: Vec::new(), firsts: Vec::new() };
        for table in &workload.threads {
            script.add(table);
        }
        script
    }

    fn add(&mut self, table: &'a ThreadSpec) {
        let first = self.ops.len() as u32;
        self.firsts.push(first);
        self.ops.extend(table.program.iter().map(op));
        self.ops.push(Op::Again { first, times: table.times });
    }

    /// Where the program of `table` begins.
    pub(super) fn first(&self, table: u32) -> u32 {
        self.firsts[table as usize]
    }

    /// The step before `pc`, if it is one that has no op of its own.
    pub(super) fn step_before(&self, pc: u32) -> Option<&'a Step> {
        match self.ops.get(pc.checked_sub(1)? as usize)? {
            Op::Step(step) => Some(step),
            _ => None,
        }
    }

    #[inline(always)]
    pub(super) fn at(&self, pc: u32) -> Op<'a> {
        self.ops[pc as usize]
    }
}

fn op(step: &Step) -> Op<'_> {
    match step {
        Step::Run(span) => Op::Run(Range::from(*span)),
        Step::RunForever => Op::RunForever,
        Step::Sleep(span) => Op::Sleep(Range::from(*span)),
        Step::Every(period) => Op::Every(*period),
        Step::Yield => Op::Yield,
        other => Op::Step(other),
    }
}
