//! Whether a module means something, and where it does not.
//!
//! What passes here cannot go wrong in the interpreter or in generated code other than by a typed trap: each use has a
//! definition of the right type on every way to it, nurseries open and close in order on every way, and no task is started
//! outside of one.

mod types;

use crate::ir::{BlockId, Function, Module, Op, Pos, Terminator, Type, Value};
use mainspring::Profile;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Complaint {
    /// Two functions, structs or errors of one name.
    TwiceNamed(String),
    /// A struct that holds itself, or types that nest too deep or cannot be held.
    BadStruct(String),
    /// A function without a block.
    Empty,
    /// There is no such block.
    NoBlock(BlockId),
    /// Nothing leads to this block.
    Unreachable(BlockId),
    /// A value that is not defined on some way to its use, or that the function does not have.
    Undefined(Value),
    /// A value is defined more than once.
    DefinedTwice(Value),
    /// A type other than the one that belongs here.
    Mismatch {
        /// What belongs here.
        wanted: String,
        /// What stands here.
        found: String,
    },
    /// Another number of operands, results or parameters than belong here.
    Count {
        /// How many belong here.
        wanted: usize,
        /// How many stand here.
        found: usize,
    },
    /// There is no such function.
    NoFunction(String),
    /// There is no such field.
    NoField(u32),
    /// A task is started where no nursery is open.
    NurseryNotActive,
    /// A nursery is not closed on some way out, is closed in the wrong order, or is open on one way to a block and not on another.
    NurseryOrder,
    /// A nursery has no end, or more than one.
    OneNurseryEnd,
    /// The core profile has no scheduler.
    NoScheduler(&'static str),
    /// A task is started with another tenancy than `CPU_Parallel`.
    BadTenancy,
    /// A value of this type stays in its task.
    StaysInTask(String),
    /// A slice begins with zeros, and a capability is never made of one.
    Forged(String),
    /// The function does not say that it can fail.
    CannotFail,
    /// Another interval than the profile's, which only a sovereign program may choose, or one that is too small or too large.
    BadInterval,
    /// An entry block that is jumped to.
    JumpToEntry,
    /// More functions, blocks, values or parameters than are allowed.
    TooLarge(&'static str),
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwiceNamed(name) => write!(f, "`{name}` is named twice"),
            Self::BadStruct(name) => {
                write!(
                    f,
                    "the struct `{name}` holds what a struct cannot: itself, a task, or types nested too deep"
                )
            }
            Self::Empty => f.write_str("a function needs a block"),
            Self::NoBlock(block) => write!(f, "there is no block {block}"),
            Self::Unreachable(block) => write!(f, "nothing leads to {block}; remove it"),
            Self::Undefined(value) => write!(f, "{value} is not defined on every way to here"),
            Self::DefinedTwice(value) => write!(f, "{value} is defined twice"),
            Self::Mismatch { wanted, found } => write!(f, "expected {wanted}, found {found}"),
            Self::Count { wanted, found } => write!(f, "expected {wanted} of them, found {found}"),
            Self::NoFunction(name) => write!(f, "there is no function @{name}"),
            Self::NoField(field) => write!(f, "there is no field {field}"),
            Self::NurseryNotActive => f.write_str(
                "NurseryNotActive: no nursery is open here; put it between Nursery_Begin and Nursery_End",
            ),
            Self::NurseryOrder => {
                f.write_str("nurseries close in reverse order, on every way, before the function ends")
            }
            Self::OneNurseryEnd => f.write_str("a nursery has exactly one Nursery_End"),
            Self::NoScheduler(op) => {
                write!(f, "the core profile has no scheduler for {op}; choose service, cluster or sovereign")
            }
            Self::BadTenancy => f.write_str("a task of the scheduler has the tenancy CPU_Parallel"),
            Self::StaysInTask(of) => write!(f, "a value of type {of} does not leave its task"),
            Self::Forged(of) => write!(f, "a new slice would hold a {of} that nobody granted"),
            Self::CannotFail => f.write_str("this function cannot fail; declare it with `fails`"),
            Self::BadInterval => {
                write!(
                    f,
                    "only a sovereign program chooses its interval, of at least 1 and at most {MAX_INTERVAL}"
                )
            }
            Self::JumpToEntry => f.write_str("nothing may jump to the first block"),
            Self::TooLarge(what) => write!(f, "too many {what}; split it"),
        }
    }
}

/// What is wrong with a module, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The function, if it is about one.
    pub function: Option<String>,
    /// Where.
    pub pos: Pos,
    /// What.
    pub complaint: Complaint,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pos, self.complaint)?;
        match &self.function {
            Some(name) => write!(f, " (in @{name})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for VerifyError {}

/// A module has no more functions, and no more structs.
pub const MAX_FUNCTIONS: usize = 1 << 12;
/// A function has no more parameters, and a struct no more fields.
pub const MAX_PARAMS: usize = 64;
/// The largest interval that a program may choose. It runs so far beyond its budget at most, and its neighbours wait so long.
const MAX_INTERVAL: u32 = 1 << 16;
/// Nurseries of a function that are open at one time. A task traps before it has so many open.
const MAX_OPEN: usize = 64;
const MAX_BLOCKS: usize = 1 << 14;
const MAX_VALUES: usize = 1 << 16;

/// Whether a module means something.
pub fn verify(module: &Module) -> Result<(), VerifyError> {
    let at_module = |complaint| VerifyError { function: None, pos: Pos::default(), complaint };
    whole(module).map_err(at_module)?;
    let functions = module.functions.iter().map(|function| (function.name.as_str(), function)).collect();
    for function in &module.functions {
        let check = Check { module, functions: &functions, function };
        check.all().map_err(|(complaint, pos)| VerifyError {
            function: Some(function.name.clone()),
            pos,
            complaint,
        })?;
    }
    Ok(())
}

fn once<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Complaint> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Complaint::TwiceNamed(name.to_owned()));
        }
    }
    Ok(())
}

fn whole(module: &Module) -> Result<(), Complaint> {
    if module.functions.len() > MAX_FUNCTIONS || module.structs.len() > MAX_FUNCTIONS {
        return Err(Complaint::TooLarge("functions or structs"));
    }
    if let Some(chosen) = module.yield_interval
        && (module.profile != Profile::Sovereign || !(1..=MAX_INTERVAL).contains(&chosen))
    {
        return Err(Complaint::BadInterval);
    }
    once(module.functions.iter().map(|function| function.name.as_str()))?;
    once(module.errors.iter().map(String::as_str).chain(crate::ir::ERRORS_OF_THE_LANGUAGE))?;
    once(module.structs.iter().map(|def| def.name.as_str()))?;
    for (at, def) in module.structs.iter().enumerate() {
        let bad = def.fields.len() > MAX_PARAMS
            || def
                .fields
                .iter()
                .any(|(_, of)| !of.can_be_sent() || *of == Type::Unit || !types::exists(of, at));
        if bad {
            return Err(Complaint::BadStruct(def.name.clone()));
        }
    }
    Ok(())
}

type Checked<T = ()> = Result<T, (Complaint, Pos)>;

struct Check<'a> {
    module: &'a Module,
    functions: &'a HashMap<&'a str, &'a Function>,
    function: &'a Function,
}

impl Check<'_> {
    fn all(&self) -> Checked {
        let function = self.function;
        let here = |complaint| (complaint, function.pos);
        if function.blocks.is_empty() {
            return Err(here(Complaint::Empty));
        }
        if function.blocks.len() > MAX_BLOCKS || function.values.len() > MAX_VALUES {
            return Err(here(Complaint::TooLarge("blocks or values")));
        }
        if let Some(bad) = function.values.iter().find(|of| !types::exists(of, self.module.structs.len())) {
            return Err(here(Complaint::BadStruct(format!("{bad:?}"))));
        }
        self.shape()?;
        self.defined_before_use()?;
        self.types()?;
        self.nurseries()
    }

    /// Blocks exist and are reached, and each value has one definition.
    fn shape(&self) -> Checked {
        let mut defined = HashSet::new();
        let mut define = |values: &[Value], pos| {
            for value in values {
                if value.0 as usize >= self.function.values.len() {
                    return Err((Complaint::Undefined(*value), pos));
                }
                if !defined.insert(*value) {
                    return Err((Complaint::DefinedTwice(*value), pos));
                }
            }
            Ok(())
        };
        for block in &self.function.blocks {
            if block.params.len() > MAX_PARAMS * 4 {
                return Err((Complaint::TooLarge("parameters"), block.end_pos));
            }
            define(&block.params, block.end_pos)?;
            for instr in &block.instrs {
                define(&instr.results, instr.pos)?;
            }
            for target in block.end.targets() {
                if target.block.0 as usize >= self.function.blocks.len() {
                    return Err((Complaint::NoBlock(target.block), block.end_pos));
                }
                if target.block.0 == 0 {
                    return Err((Complaint::JumpToEntry, block.end_pos));
                }
            }
        }
        let reached = self.reachable();
        match reached.iter().position(|reached| !reached) {
            Some(at) => Err((Complaint::Unreachable(BlockId(at as u32)), self.function.blocks[at].end_pos)),
            None => Ok(()),
        }
    }

    fn reachable(&self) -> Vec<bool> {
        let mut reached = vec![false; self.function.blocks.len()];
        let mut todo = vec![0];
        while let Some(at) = todo.pop() {
            if !std::mem::replace(&mut reached[at], true) {
                todo.extend(
                    self.function.blocks[at].end.targets().iter().map(|target| target.block.0 as usize),
                );
            }
        }
        reached
    }

    /// Each use is dominated by its definition.
    fn defined_before_use(&self) -> Checked {
        let tree = crate::pass::Dominators::of(self.function);
        let mut home = vec![None; self.function.values.len()];
        for (at, block) in self.function.blocks.iter().enumerate() {
            for value in block.params.iter().chain(block.instrs.iter().flat_map(|instr| &instr.results)) {
                home[value.0 as usize] = Some(at);
            }
        }
        let mut seen = vec![false; self.function.values.len()];
        for (at, block) in self.function.blocks.iter().enumerate() {
            let known = |value: Value, seen: &[bool]| {
                let Some(Some(defined_in)) = home.get(value.0 as usize) else { return false };
                if *defined_in == at { seen[value.0 as usize] } else { tree.dominates(*defined_in, at) }
            };
            block.params.iter().for_each(|value| seen[value.0 as usize] = true);
            for instr in &block.instrs {
                if let Some(value) = instr.op.operands().into_iter().find(|value| !known(*value, &seen)) {
                    return Err((Complaint::Undefined(value), instr.pos));
                }
                instr.results.iter().for_each(|value| seen[value.0 as usize] = true);
            }
            if let Some(value) = block.end.operands().into_iter().find(|value| !known(*value, &seen)) {
                return Err((Complaint::Undefined(value), block.end_pos));
            }
        }
        Ok(())
    }

    fn types(&self) -> Checked {
        for block in &self.function.blocks {
            for instr in &block.instrs {
                if self.module.profile == Profile::Core && instr.op.needs_scheduler() {
                    return Err((Complaint::NoScheduler(instr.op.name()), instr.pos));
                }
                self.instr(instr).map_err(|complaint| (complaint, instr.pos))?;
            }
            self.end(&block.end).map_err(|complaint| (complaint, block.end_pos))?;
        }
        Ok(())
    }

    /// Which nurseries are open at each place is the same on every way to it.
    fn nurseries(&self) -> Checked {
        let blocks = &self.function.blocks;
        let mut ends: HashMap<Value, usize> = HashMap::new();
        let mut begins = Vec::new();
        for instr in blocks.iter().flat_map(|block| &block.instrs) {
            match instr.op {
                Op::NurseryBegin => begins.push((instr.results[0], instr.pos)),
                Op::NurseryEnd(nursery) => *ends.entry(nursery).or_default() += 1,
                _ => {}
            }
        }
        if let Some((_, pos)) = begins.iter().find(|(begin, _)| ends.get(begin) != Some(&1)) {
            return Err((Complaint::OneNurseryEnd, *pos));
        }
        let mut open_at: Vec<Option<Vec<Value>>> = vec![None; blocks.len()];
        open_at[0] = Some(Vec::new());
        let mut todo = vec![0];
        while let Some(at) = todo.pop() {
            let mut open = open_at[at].clone().unwrap_or_default();
            for instr in &blocks[at].instrs {
                match instr.op {
                    Op::NurseryBegin if open.len() >= MAX_OPEN => {
                        return Err((Complaint::TooLarge("nurseries inside of each other"), instr.pos));
                    }
                    Op::NurseryBegin => open.push(instr.results[0]),
                    Op::NurseryEnd(nursery) if open.pop() != Some(nursery) => {
                        return Err((Complaint::NurseryOrder, instr.pos));
                    }
                    Op::NurseryCancel(nursery) if !open.contains(&nursery) => {
                        return Err((Complaint::NurseryNotActive, instr.pos));
                    }
                    Op::Spawn(..) | Op::TaskCreate(..) | Op::AsyncCall(..) if open.is_empty() => {
                        return Err((Complaint::NurseryNotActive, instr.pos));
                    }
                    _ => {}
                }
            }
            let targets = blocks[at].end.targets();
            let leaves = matches!(blocks[at].end, Terminator::Return(_) | Terminator::Fail(_));
            if leaves && !open.is_empty() {
                return Err((Complaint::NurseryOrder, blocks[at].end_pos));
            }
            for target in targets {
                let to = target.block.0 as usize;
                match &open_at[to] {
                    None => {
                        open_at[to] = Some(open.clone());
                        todo.push(to);
                    }
                    Some(known) if *known != open => {
                        return Err((Complaint::NurseryOrder, blocks[at].end_pos));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }
}
