//! What a program is made of.
//!
//! A function is a list of blocks. A block has parameters in place of phi nodes, instructions, and one terminator. Each value is
//! defined once: by a block's parameter or by an instruction. Every value is one word: an integer, the bits of a float, or a
//! reference into the task's own heap. Tasks share no memory: what goes from one to another is copied.

use mainspring::Profile;
use std::collections::HashMap;
use std::fmt;

/// Types nest at most this deep.
pub const MAX_TYPE_DEPTH: usize = 8;

/// Errors that every program knows. A program's own come after them.
pub const ERRORS_OF_THE_LANGUAGE: [&str; 5] =
    ["Closed", "BudgetExhausted", "Cancelled", "Trapped", "StackOverflow"];

/// The code of one of the [`ERRORS_OF_THE_LANGUAGE`]. Zero means that there is no error.
pub fn error_code(name: &str) -> Option<i64> {
    ERRORS_OF_THE_LANGUAGE.iter().position(|&known| known == name).map(|at| at as i64 + 1)
}

/// A place in a source text. Zero if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u32);

/// A block of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value: the result of a function that returns nothing.
    Unit,
    /// A signed integer of 64 bits.
    I64,
    /// A float of 64 bits.
    F64,
    /// True or false.
    Bool,
    /// A row of values in the task's heap.
    Slice(Box<Type>),
    /// A struct of the module, in the task's heap.
    Struct(u32),
    /// A spawned task that ends with this.
    Task(Box<Type>),
    /// An asynchronous call that ends with this. `fails`: or with an error.
    Future {
        /// The result.
        result: Box<Type>,
        /// Whether the function can fail.
        fails: bool,
    },
    /// An open nursery.
    Nursery,
    /// A channel of these.
    Chan(Box<Type>),
    /// The right to spawn.
    CapSpawn,
    /// The right to budgets other than the default.
    CapBudget,
}

impl Type {
    /// Whether values of the type may go to another task.
    pub fn can_be_sent(&self) -> bool {
        match self {
            Self::Task(_) | Self::Future { .. } | Self::Nursery => false,
            Self::Slice(inner) | Self::Chan(inner) => inner.can_be_sent(),
            _ => true,
        }
    }

    /// Whether a value of the type is a right that somebody has granted.
    pub const fn is_capability(&self) -> bool {
        matches!(self, Self::CapSpawn | Self::CapBudget)
    }

    /// Whether values of the type live in the heap.
    pub const fn is_reference(&self) -> bool {
        matches!(self, Self::Slice(_) | Self::Struct(_))
    }

    /// How deep the type nests.
    pub fn depth(&self) -> usize {
        match self {
            Self::Slice(inner)
            | Self::Task(inner)
            | Self::Chan(inner)
            | Self::Future { result: inner, .. } => 1 + inner.depth(),
            _ => 1,
        }
    }
}

/// Where a node runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tenancy {
    /// In the task that executes it.
    #[default]
    CpuSerial,
    /// In a task of the scheduler, on any worker.
    CpuParallel,
}

impl fmt::Display for Tenancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CpuSerial => "CPU_Serial",
            Self::CpuParallel => "CPU_Parallel",
        })
    }
}

/// An operation on two values. Arithmetic traps when an integer result does not fit, unless it says that it wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    AddWrap,
    SubWrap,
    MulWrap,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    MinUnsigned,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Binary {
    /// Every operation and its name in text.
    pub const NAMES: [(Self, &'static str); 20] = [
        (Self::Add, "Add"),
        (Self::Sub, "Sub"),
        (Self::Mul, "Mul"),
        (Self::Div, "Div"),
        (Self::Rem, "Rem"),
        (Self::AddWrap, "Add_Wrap"),
        (Self::SubWrap, "Sub_Wrap"),
        (Self::MulWrap, "Mul_Wrap"),
        (Self::And, "And"),
        (Self::Or, "Or"),
        (Self::Xor, "Xor"),
        (Self::Shl, "Shl"),
        (Self::Shr, "Shr"),
        (Self::MinUnsigned, "Min_Unsigned"),
        (Self::Eq, "Eq"),
        (Self::Ne, "Ne"),
        (Self::Lt, "Lt"),
        (Self::Le, "Le"),
        (Self::Gt, "Gt"),
        (Self::Ge, "Ge"),
    ];

    /// Whether it compares, and so gives a bool.
    pub const fn compares(self) -> bool {
        matches!(self, Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge)
    }

    /// Whether it takes operands of this type.
    pub fn takes(self, operand: &Type) -> bool {
        match operand {
            Type::I64 => true,
            Type::F64 => matches!(self, Self::Add | Self::Sub | Self::Mul | Self::Div) || self.compares(),
            Type::Bool => matches!(self, Self::Eq | Self::Ne),
            _ => false,
        }
    }

    /// Whether it can trap on these operands.
    pub fn traps(self, operand: &Type) -> bool {
        *operand == Type::I64 && matches!(self, Self::Add | Self::Sub | Self::Mul | Self::Div | Self::Rem)
    }
}

/// An operation on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Unary {
    Neg,
    Not,
    ToFloat,
    /// Towards zero; what does not fit becomes the nearest integer that does, and what is no number becomes zero.
    ToInt,
}

impl Unary {
    /// Every operation and its name in text.
    pub const NAMES: [(Self, &'static str); 4] =
        [(Self::Neg, "Neg"), (Self::Not, "Not"), (Self::ToFloat, "To_Float"), (Self::ToInt, "To_Int")];
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A constant.
    Int(i64),
    /// A constant.
    Float(f64),
    /// A constant.
    Bool(bool),
    /// An operation on two values of one type.
    Binary(Binary, Value, Value),
    /// An operation on one value.
    Unary(Unary, Value),
    /// Calls a function. A second result is the error's code, or zero, if the function can fail.
    Call(String, Vec<Value>),
    /// Allocates a slice of zeros.
    SliceNew(Type, Value),
    /// The length of a slice.
    Len(Value),
    /// An element.
    Load(Value, Value),
    /// Writes an element.
    Store(Value, Value, Value),
    /// Allocates a struct.
    StructNew(u32, Vec<Value>),
    /// A field.
    Field(Value, u32),
    /// Writes a field.
    SetField(Value, u32, Value),
    /// Yields if the budget is used up, and looks up now and then.
    BudgetCheck,
    /// Takes a cost from the budget.
    BudgetDecrement(Value),
    /// Gives way to other tasks.
    Yield,
    /// Opens a nursery.
    NurseryBegin,
    /// Waits for all children and closes the nursery. Gives the code of the first error, or zero.
    NurseryEnd(Value),
    /// Tells all children of an open nursery to stop.
    NurseryCancel(Value),
    /// Starts a child of the innermost nursery.
    Spawn(Tenancy, String, Vec<Value>),
    /// As `Spawn`, with a budget: ops, memory, spawn_count, channel_ops, syscalls.
    TaskCreate(Tenancy, String, Vec<Value>, [Value; 5]),
    /// Waits for a task and takes its result.
    TaskJoin(Value),
    /// Waits for a task or an asynchronous call, and takes its result.
    Await(Value),
    /// Calls a function in a child of the innermost nursery, with a channel of one value for its result.
    AsyncCall(Tenancy, String, Vec<Value>),
    /// Grants a child so many ops more, by the authority of a supervisor.
    Recharge(Value, Value),
    /// Grants the task itself so many ops more, by its `CapBudget`.
    RechargeSelf(Value),
    /// A channel with room for so many values.
    ChannelNew(Type, Value),
    /// Sends. Gives the error's code, or zero.
    Send(Value, Value),
    /// Receives. A second result is the error's code, or zero.
    Recv(Value),
    /// Closes a channel.
    Close(Value),
    /// Prints a number or a bool.
    Print(Value),
    /// Prints a text.
    PrintText(String),
}

impl Op {
    /// The name in text.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Int(_) => "Int",
            Self::Float(_) => "Float",
            Self::Bool(_) => "Bool",
            Self::Binary(op, ..) => Binary::NAMES[*op as usize].1,
            Self::Unary(op, _) => Unary::NAMES[*op as usize].1,
            Self::Call(..) => "Call",
            Self::SliceNew(..) => "Slice_New",
            Self::Len(_) => "Len",
            Self::Load(..) => "Load",
            Self::Store(..) => "Store",
            Self::StructNew(..) => "Struct_New",
            Self::Field(..) => "Field",
            Self::SetField(..) => "Set_Field",
            Self::BudgetCheck => "Budget_Check",
            Self::BudgetDecrement(_) => "Budget_Decrement",
            Self::Yield => "Yield",
            Self::NurseryBegin => "Nursery_Begin",
            Self::NurseryEnd(_) => "Nursery_End",
            Self::NurseryCancel(_) => "Nursery_Cancel",
            Self::Spawn(..) => "Spawn",
            Self::TaskCreate(..) => "Task_Create",
            Self::TaskJoin(_) => "Task_Join",
            Self::Await(_) => "Await",
            Self::AsyncCall(..) => "Async_Call",
            Self::Recharge(..) => "Recharge",
            Self::RechargeSelf(_) => "Recharge_Self",
            Self::ChannelNew(..) => "Channel_New",
            Self::Send(..) => "Send",
            Self::Recv(_) => "Recv",
            Self::Close(_) => "Close",
            Self::Print(_) => "Print",
            Self::PrintText(_) => "Print_Text",
        }
    }

    /// The values that it uses.
    pub fn operands(&self) -> Vec<Value> {
        let mut uses = Vec::new();
        self.clone().for_each_operand(&mut |value| uses.push(*value));
        uses
    }

    /// Visits the values that it uses, which may be replaced.
    pub fn for_each_operand(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        match self {
            Self::Int(_)
            | Self::Float(_)
            | Self::Bool(_)
            | Self::BudgetCheck
            | Self::Yield
            | Self::NurseryBegin
            | Self::PrintText(_) => {}
            Self::Unary(_, a)
            | Self::SliceNew(_, a)
            | Self::Len(a)
            | Self::Field(a, _)
            | Self::BudgetDecrement(a)
            | Self::NurseryEnd(a)
            | Self::NurseryCancel(a)
            | Self::TaskJoin(a)
            | Self::Await(a)
            | Self::RechargeSelf(a)
            | Self::ChannelNew(_, a)
            | Self::Recv(a)
            | Self::Close(a)
            | Self::Print(a) => visit(a),
            Self::Binary(_, a, b)
            | Self::Load(a, b)
            | Self::SetField(a, _, b)
            | Self::Recharge(a, b)
            | Self::Send(a, b) => {
                visit(a);
                visit(b);
            }
            Self::Store(a, b, c) => {
                visit(a);
                visit(b);
                visit(c);
            }
            Self::Call(_, args)
            | Self::StructNew(_, args)
            | Self::Spawn(_, _, args)
            | Self::AsyncCall(_, _, args) => args.iter_mut().for_each(visit),
            Self::TaskCreate(_, _, args, budget) => {
                args.iter_mut().for_each(&mut *visit);
                budget.iter_mut().for_each(visit);
            }
        }
    }

    /// Whether it needs the scheduler.
    pub const fn needs_scheduler(&self) -> bool {
        matches!(
            self,
            Self::Yield
                | Self::NurseryBegin
                | Self::NurseryEnd(_)
                | Self::NurseryCancel(_)
                | Self::Spawn(..)
                | Self::TaskCreate(..)
                | Self::TaskJoin(_)
                | Self::Await(_)
                | Self::AsyncCall(..)
                | Self::Recharge(..)
                | Self::RechargeSelf(_)
                | Self::ChannelNew(..)
                | Self::Send(..)
                | Self::Recv(_)
                | Self::Close(_)
        )
    }

    /// The function that it names.
    pub fn callee(&self) -> Option<&str> {
        match self {
            Self::Call(name, _)
            | Self::Spawn(_, name, _)
            | Self::TaskCreate(_, name, ..)
            | Self::AsyncCall(_, name, _) => Some(name),
            _ => None,
        }
    }
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instr {
    /// What it defines.
    pub results: Vec<Value>,
    /// What it does.
    pub op: Op,
    /// Where it comes from.
    pub pos: Pos,
}

/// Where control goes, and with which values for the parameters of the block there.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The block.
    pub block: BlockId,
    /// Its parameters.
    pub args: Vec<Value>,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Goes on there.
    Jump(Target),
    /// Goes on there if the value is true, else at the second.
    Branch(Value, Target, Target),
    /// Ends the function.
    Return(Option<Value>),
    /// Ends the function with an error, by its code.
    Fail(Value),
    /// Ends the task with an unhandled error, by its code.
    Raise(Value),
}

impl Terminator {
    /// Where control may go.
    pub fn targets(&self) -> Vec<&Target> {
        match self {
            Self::Jump(to) => vec![to],
            Self::Branch(_, yes, no) => vec![yes, no],
            _ => Vec::new(),
        }
    }

    /// Where control may go.
    pub fn targets_mut(&mut self) -> Vec<&mut Target> {
        match self {
            Self::Jump(to) => vec![to],
            Self::Branch(_, yes, no) => vec![yes, no],
            _ => Vec::new(),
        }
    }

    /// Visits the values that it uses, which may be replaced.
    pub fn for_each_operand(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        match self {
            Self::Branch(value, ..) | Self::Return(Some(value)) | Self::Fail(value) | Self::Raise(value) => {
                visit(value);
            }
            Self::Jump(_) | Self::Return(None) => {}
        }
        for target in self.targets_mut() {
            target.args.iter_mut().for_each(&mut *visit);
        }
    }

    /// The values that it uses.
    pub fn operands(&self) -> Vec<Value> {
        let mut uses = Vec::new();
        self.clone().for_each_operand(&mut |value| uses.push(*value));
        uses
    }
}

/// A block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its parameters. The first block's parameters are the function's.
    pub params: Vec<Value>,
    /// Its instructions.
    pub instrs: Vec<Instr>,
    /// How it ends.
    pub end: Terminator,
    /// Where its end comes from.
    pub end_pos: Pos,
}

/// A function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it gives.
    pub result: Type,
    /// Whether it can fail.
    pub fails: bool,
    /// Its blocks. The first is where it begins.
    pub blocks: Vec<Block>,
    /// The type of each value.
    pub values: Vec<Type>,
    /// Where it comes from.
    pub pos: Pos,
}

impl Function {
    /// The types of its parameters.
    pub fn params(&self) -> Vec<Type> {
        self.blocks.first().map_or_else(Vec::new, |block| {
            block.params.iter().filter_map(|value| self.values.get(value.0 as usize).cloned()).collect()
        })
    }

    /// A new value.
    pub fn new_value(&mut self, of: Type) -> Value {
        self.values.push(of);
        Value(self.values.len() as u32 - 1)
    }

    /// The type of a value.
    pub fn type_of(&self, value: Value) -> &Type {
        &self.values[value.0 as usize]
    }

    /// What a call of it defines.
    pub fn call_results(&self) -> Vec<Type> {
        let mut results = Vec::new();
        if self.result != Type::Unit {
            results.push(self.result.clone());
        }
        if self.fails {
            results.push(Type::I64);
        }
        results
    }

    /// The blocks from which each block is reached.
    pub fn predecessors(&self) -> Vec<Vec<BlockId>> {
        let mut before = vec![Vec::new(); self.blocks.len()];
        for (at, block) in self.blocks.iter().enumerate() {
            for target in block.end.targets() {
                if let Some(list) = before.get_mut(target.block.0 as usize) {
                    list.push(BlockId(at as u32));
                }
            }
        }
        before
    }
}

/// A struct.
#[derive(Clone, Debug, PartialEq)]
pub struct StructDef {
    /// Its name.
    pub name: String,
    /// The names and types of its fields. A field's struct comes before this one in the module, so that no value holds itself.
    pub fields: Vec<(String, Type)>,
}

/// A program.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// What its tasks begin with.
    pub profile: Profile,
    /// After how many ops it looks up, if the profile lets it say so.
    pub yield_interval: Option<u32>,
    /// Its own errors. The first has the code after the language's own errors.
    pub errors: Vec<String>,
    /// Its structs.
    pub structs: Vec<StructDef>,
    /// Its functions.
    pub functions: Vec<Function>,
}

impl Module {
    /// An empty module.
    pub fn new(profile: Profile) -> Self {
        Self { profile, yield_interval: None, errors: Vec::new(), structs: Vec::new(), functions: Vec::new() }
    }

    /// After how many ops it looks up.
    pub fn interval(&self) -> u32 {
        self.yield_interval.unwrap_or_else(|| self.profile.yield_interval()).max(1)
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// The place of each function.
    pub fn index(&self) -> HashMap<&str, usize> {
        self.functions.iter().enumerate().map(|(at, function)| (function.name.as_str(), at)).collect()
    }

    /// The name of an error.
    pub fn error_name(&self, code: i64) -> &str {
        let at = usize::try_from(code).unwrap_or(0).wrapping_sub(1);
        let of_language = ERRORS_OF_THE_LANGUAGE.get(at).copied();
        of_language
            .or_else(|| self.errors.get(at.wrapping_sub(ERRORS_OF_THE_LANGUAGE.len())).map(String::as_str))
            .unwrap_or("Unknown")
    }

    /// The code of an error, its own or the language's.
    pub fn code_of(&self, name: &str) -> Option<i64> {
        let own = self.errors.iter().position(|error| error == name);
        error_code(name).or(own.map(|at| (at + ERRORS_OF_THE_LANGUAGE.len()) as i64 + 1))
    }
}
