//! Text as a module. Any text gets a module or an error with a place: sizes and depths are bounded.

use super::PROFILES;
use super::token::{Token, tokens};
use crate::ir::{
    Binary, Block, BlockId, Function, Instr, MAX_TYPE_DEPTH, Module, Op, Pos, StructDef, Target, Tenancy,
    Terminator, Type, Unary, Value,
};
use mainspring::Profile;
use std::collections::HashMap;
use std::fmt;

/// A longer text is refused.
pub const MAX_TEXT_BYTES: usize = 4 << 20;
/// A function has no more values.
const MAX_VALUES: u32 = 1 << 16;
/// All functions together have no more. A function has a place for each number up to the largest that it defines.
const MAX_ALL_VALUES: usize = 1 << 20;

/// Why a text is no module.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseFault {
    /// The text is longer than [`MAX_TEXT_BYTES`].
    TooLong,
    /// This does not belong here.
    Unexpected(String),
    /// Something else stands where this belongs.
    Expected {
        /// What belongs here.
        wanted: String,
        /// What stands here.
        found: String,
    },
    /// No number of its kind.
    BadNumber(String),
    /// A text has no closing quote.
    UnclosedText,
    /// No such type, or one that nests too deep.
    BadType(String),
    /// No such operation.
    UnknownOp(String),
    /// Values are numbered beyond what a function may have.
    TooManyValues,
    /// The functions together number more values than a module may have.
    TooManyInAll,
    /// A name is too long.
    LongName,
    /// A value is defined twice.
    DefinedTwice(Value),
    /// Blocks are not numbered in order.
    BlockOrder,
}

impl fmt::Display for ParseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the text is longer than {MAX_TEXT_BYTES} bytes; split the module"),
            Self::Unexpected(what) => write!(f, "unexpected `{what}`"),
            Self::Expected { wanted, found } => write!(f, "expected {wanted}, found {found}"),
            Self::BadNumber(text) => write!(f, "`{text}` is no number that fits here"),
            Self::UnclosedText => f.write_str("this text is not closed; end it with `\"`"),
            Self::BadType(text) => write!(f, "`{text}` is no type; types nest at most {MAX_TYPE_DEPTH} deep"),
            Self::UnknownOp(name) => write!(f, "there is no operation `{name}`"),
            Self::TooManyValues => write!(f, "a function has at most {MAX_VALUES} values; split it"),
            Self::TooManyInAll => {
                write!(f, "a module has at most {MAX_ALL_VALUES} values; number those of a function from 0")
            }
            Self::LongName => f.write_str("this name is too long; choose a shorter one"),
            Self::DefinedTwice(value) => write!(f, "{value} is defined twice; give it a number of its own"),
            Self::BlockOrder => f.write_str("blocks are numbered b0, b1, … in order"),
        }
    }
}

/// Why a text is no module, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Where.
    pub pos: Pos,
    /// Why.
    pub fault: ParseFault,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pos, self.fault)
    }
}

impl std::error::Error for ParseError {}

/// Reads a module.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ParseError { pos: Pos { line: 1, column: 1 }, fault: ParseFault::TooLong });
    }
    let tokens = tokens(text).map_err(|(fault, pos)| ParseError { pos, fault })?;
    let module = Module::new(Profile::Service);
    let mut parser = Parser { tokens, next: 0, module, structs: HashMap::new(), values: 0 };
    parser.module().map_err(|fault| ParseError { pos: parser.pos(), fault })?;
    Ok(parser.module)
}

struct Parser {
    tokens: Vec<(Token, Pos)>,
    next: usize,
    module: Module,
    /// The number of each struct, by its name.
    structs: HashMap<String, u32>,
    /// The values of all functions so far.
    values: usize,
}

/// Values of a function by number, as they are defined.
#[derive(Default)]
struct Defined(Vec<Option<Type>>);

impl Defined {
    fn define(&mut self, value: Value, of: Type) -> Result<(), ParseFault> {
        let at = value.0 as usize;
        if value.0 >= MAX_VALUES {
            return Err(ParseFault::TooManyValues);
        }
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        if self.0[at].replace(of).is_some() {
            return Err(ParseFault::DefinedTwice(value));
        }
        Ok(())
    }
}

type Parsed<T> = Result<T, ParseFault>;

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)].0
    }

    fn pos(&self) -> Pos {
        self.tokens[self.next.min(self.tokens.len() - 1)].1
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn expected<T>(&self, wanted: &str) -> Parsed<T> {
        let found = match self.peek() {
            Token::End => "the end of the text".to_owned(),
            Token::Word(word) => format!("`{word}`"),
            Token::Number(number) => format!("`{number}`"),
            Token::Value(at) => format!("`%{at}`"),
            Token::Function(name) => format!("`@{name}`"),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::Arrow => "`->`".to_owned(),
            Token::Text(_) => "a text".to_owned(),
        };
        Err(ParseFault::Expected { wanted: wanted.to_owned(), found })
    }

    fn takes(&mut self, mark: char) -> bool {
        let is_next = *self.peek() == Token::Mark(mark);
        self.next += usize::from(is_next);
        is_next
    }

    fn mark(&mut self, mark: char) -> Parsed<()> {
        if self.takes(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    fn word(&mut self, wanted: &str) -> Parsed<String> {
        let Token::Word(word) = self.peek() else { return self.expected(wanted) };
        let word = word.clone();
        self.next += 1;
        Ok(word)
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Word(next) if next == word);
        self.next += usize::from(is_next);
        is_next
    }

    fn value(&mut self) -> Parsed<Value> {
        let Token::Value(at) = *self.peek() else { return self.expected("a value") };
        self.next += 1;
        Ok(Value(at))
    }

    fn function_name(&mut self) -> Parsed<String> {
        let Token::Function(name) = self.peek() else { return self.expected("a function, as `@name`") };
        let name = name.clone();
        self.next += 1;
        Ok(name)
    }

    fn number<T: std::str::FromStr>(&mut self) -> Parsed<T> {
        let Token::Number(text) = self.peek() else { return self.expected("a number") };
        let number = text.parse().map_err(|_| ParseFault::BadNumber(text.clone()))?;
        self.next += 1;
        Ok(number)
    }

    fn comma(&mut self) -> Parsed<()> {
        self.mark(',')
    }

    /// What `item` reads, between parentheses and commas.
    fn listed<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.mark('(')?;
        let mut items = Vec::new();
        while !self.takes(')') {
            if !items.is_empty() {
                self.comma()?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn values(&mut self) -> Parsed<Vec<Value>> {
        self.listed(Self::value)
    }

    fn module(&mut self) -> Parsed<()> {
        loop {
            if *self.peek() == Token::End {
                return Ok(());
            }
            let at = self.next;
            match self.word("`profile`, `error`, `struct` or `fn`")?.as_str() {
                "profile" => {
                    let name = self.word("a profile")?;
                    let known = PROFILES.iter().find(|(_, known)| *known == name);
                    let Some((profile, _)) = known else {
                        self.next -= 1;
                        return self.expected("core, service, cluster or sovereign");
                    };
                    self.module.profile = *profile;
                }
                "interval" => self.module.yield_interval = Some(self.number()?),
                "error" => {
                    let name = self.word("a name")?;
                    self.module.errors.push(name);
                }
                "struct" => self.structure()?,
                "fn" => self.function()?,
                _ => {
                    self.next = at;
                    return self.expected("`profile`, `error`, `struct` or `fn`");
                }
            }
        }
    }

    fn structure(&mut self) -> Parsed<()> {
        let name = self.word("a name")?;
        self.mark('{')?;
        let mut fields = Vec::new();
        while !self.takes('}') {
            if !fields.is_empty() {
                self.comma()?;
            }
            let field = self.word("a field")?;
            self.mark(':')?;
            fields.push((field, self.of_type(0)?));
        }
        // The verifier refuses a second one of the same name.
        self.structs.entry(name.clone()).or_insert(self.module.structs.len() as u32);
        self.module.structs.push(StructDef { name, fields });
        Ok(())
    }

    fn of_type(&mut self, depth: usize) -> Parsed<Type> {
        let name = self.word("a type")?;
        if depth >= MAX_TYPE_DEPTH {
            return Err(ParseFault::BadType(name));
        }
        let inner = |this: &mut Self| {
            this.mark('<')?;
            let inner = this.of_type(depth + 1)?;
            this.mark('>')?;
            Ok(Box::new(inner))
        };
        Ok(match name.as_str() {
            "unit" => Type::Unit,
            "i64" => Type::I64,
            "f64" => Type::F64,
            "bool" => Type::Bool,
            "nursery" => Type::Nursery,
            "CapSpawn" => Type::CapSpawn,
            "CapBudget" => Type::CapBudget,
            "slice" => Type::Slice(inner(self)?),
            "task" => Type::Task(inner(self)?),
            "chan" => Type::Chan(inner(self)?),
            "future" => {
                let fails = self.takes('!');
                Type::Future { fails, result: inner(self)? }
            }
            _ => Type::Struct(self.structure_named(&name)?),
        })
    }

    fn structure_named(&self, name: &str) -> Parsed<u32> {
        self.structs.get(name).copied().ok_or_else(|| ParseFault::BadType(name.to_owned()))
    }

    fn typed_values(&mut self, defined: &mut Defined) -> Parsed<Vec<Value>> {
        self.listed(|this| this.typed_value(defined))
    }

    fn typed_value(&mut self, defined: &mut Defined) -> Parsed<Value> {
        let value = self.value()?;
        self.mark(':')?;
        let of = self.of_type(0)?;
        defined.define(value, of)?;
        Ok(value)
    }

    fn function(&mut self) -> Parsed<()> {
        let pos = self.pos();
        let name = self.function_name()?;
        let mut defined = Defined::default();
        let mut params = Some(self.typed_values(&mut defined)?);
        if self.take() != Token::Arrow {
            self.next -= 1;
            return self.expected("`->` and a type");
        }
        let result = self.of_type(0)?;
        let fails = self.takes_word("fails");
        self.mark('{')?;
        let mut blocks = Vec::new();
        while !self.takes('}') {
            let block = self.block(blocks.len(), params.take(), &mut defined)?;
            blocks.push(block);
        }
        self.values += defined.0.len();
        if self.values > MAX_ALL_VALUES {
            return Err(ParseFault::TooManyInAll);
        }
        // A number that is not defined is a value that no instruction can use.
        let values = defined.0.into_iter().map(|of| of.unwrap_or(Type::Unit)).collect();
        self.module.functions.push(Function { name, result, fails, blocks, values, pos });
        Ok(())
    }

    fn block_id(&mut self) -> Parsed<BlockId> {
        let Token::Word(word) = self.peek() else { return self.expected("a block, as `b0`") };
        let number = word.strip_prefix('b').and_then(|digits| digits.parse().ok());
        let Some(number) = number else { return self.expected("a block, as `b0`") };
        self.next += 1;
        Ok(BlockId(number))
    }

    fn block(&mut self, at: usize, params: Option<Vec<Value>>, defined: &mut Defined) -> Parsed<Block> {
        let named = self.block_id()?;
        if named.0 as usize != at {
            self.next -= 1;
            return Err(ParseFault::BlockOrder);
        }
        let params = match params {
            Some(params) => params,
            None if *self.peek() == Token::Mark('(') => self.typed_values(defined)?,
            None => Vec::new(),
        };
        self.mark(':')?;
        let mut instrs = Vec::new();
        loop {
            let pos = self.pos();
            if let Some(end) = self.terminator()? {
                return Ok(Block { params, instrs, end, end_pos: pos });
            }
            let mut results = Vec::new();
            if matches!(self.peek(), Token::Value(_)) {
                results.push(self.typed_value(defined)?);
                while self.takes(',') {
                    results.push(self.typed_value(defined)?);
                }
                self.mark('=')?;
            }
            let op = self.op()?;
            instrs.push(Instr { results, op, pos });
        }
    }

    fn target(&mut self) -> Parsed<Target> {
        let block = self.block_id()?;
        let args = if *self.peek() == Token::Mark('(') { self.values()? } else { Vec::new() };
        Ok(Target { block, args })
    }

    fn terminator(&mut self) -> Parsed<Option<Terminator>> {
        let Token::Word(word) = self.peek() else { return Ok(None) };
        let word = word.clone();
        if !matches!(word.as_str(), "Jump" | "Branch" | "Return" | "Fail" | "Raise") {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(match word.as_str() {
            "Jump" => Terminator::Jump(self.target()?),
            "Branch" => {
                let condition = self.value()?;
                self.comma()?;
                let yes = self.target()?;
                self.comma()?;
                Terminator::Branch(condition, yes, self.target()?)
            }
            "Fail" => Terminator::Fail(self.value()?),
            "Raise" => Terminator::Raise(self.value()?),
            _ if matches!(self.peek(), Token::Value(_)) => Terminator::Return(Some(self.value()?)),
            _ => Terminator::Return(None),
        }))
    }

    fn tenancy(&mut self) -> Parsed<Tenancy> {
        self.mark('[')?;
        let name = self.word("a tenancy")?;
        let known =
            [Tenancy::CpuSerial, Tenancy::CpuParallel].into_iter().find(|known| known.to_string() == name);
        let Some(tenancy) = known else {
            self.next -= 1;
            return self.expected("CPU_Parallel");
        };
        self.mark(']')?;
        Ok(tenancy)
    }

    fn op(&mut self) -> Parsed<Op> {
        let at = self.next;
        let name = self.word("an operation")?;
        if let Some((op, _)) = Binary::NAMES.iter().find(|(_, known)| *known == name) {
            let a = self.value()?;
            self.comma()?;
            return Ok(Op::Binary(*op, a, self.value()?));
        }
        if let Some((op, _)) = Unary::NAMES.iter().find(|(_, known)| *known == name) {
            return Ok(Op::Unary(*op, self.value()?));
        }
        Ok(match name.as_str() {
            "Int" => Op::Int(self.number()?),
            "Float" if self.takes_word("bits") => Op::Float(f64::from_bits(self.number()?)),
            "Float" => Op::Float(self.number()?),
            "Bool" if self.takes_word("true") => Op::Bool(true),
            "Bool" if self.takes_word("false") => Op::Bool(false),
            "Call" => Op::Call(self.function_name()?, self.values()?),
            "Slice_New" => {
                let of = self.of_type(1)?;
                self.comma()?;
                Op::SliceNew(of, self.value()?)
            }
            "Channel_New" => {
                let of = self.of_type(1)?;
                self.comma()?;
                Op::ChannelNew(of, self.value()?)
            }
            "Len" => Op::Len(self.value()?),
            "Load" => {
                let of = self.value()?;
                self.comma()?;
                Op::Load(of, self.value()?)
            }
            "Store" => {
                let of = self.value()?;
                self.comma()?;
                let index = self.value()?;
                self.comma()?;
                Op::Store(of, index, self.value()?)
            }
            "Struct_New" => {
                let name = self.word("a struct")?;
                Op::StructNew(self.structure_named(&name)?, self.values()?)
            }
            "Field" => {
                let of = self.value()?;
                self.comma()?;
                Op::Field(of, self.number()?)
            }
            "Set_Field" => {
                let of = self.value()?;
                self.comma()?;
                let field = self.number()?;
                self.comma()?;
                Op::SetField(of, field, self.value()?)
            }
            "Budget_Check" => Op::BudgetCheck,
            "Budget_Decrement" => Op::BudgetDecrement(self.value()?),
            "Yield" => Op::Yield,
            "Nursery_Begin" => Op::NurseryBegin,
            "Nursery_End" => Op::NurseryEnd(self.value()?),
            "Nursery_Cancel" => Op::NurseryCancel(self.value()?),
            "Spawn" => Op::Spawn(self.tenancy()?, self.function_name()?, self.values()?),
            "Async_Call" => Op::AsyncCall(self.tenancy()?, self.function_name()?, self.values()?),
            "Task_Create" => {
                let tenancy = self.tenancy()?;
                let callee = self.function_name()?;
                let args = self.values()?;
                self.comma()?;
                if !self.takes_word("budget") {
                    return self.expected("`budget(ops, memory, spawn_count, channel_ops, syscalls)`");
                }
                let budget = self.values()?;
                let Ok(budget) = budget.try_into() else { return self.expected("five amounts before this") };
                Op::TaskCreate(tenancy, callee, args, budget)
            }
            "Task_Join" => Op::TaskJoin(self.value()?),
            "Await" => Op::Await(self.value()?),
            "Recharge" => {
                let task = self.value()?;
                self.comma()?;
                Op::Recharge(task, self.value()?)
            }
            "Recharge_Self" => Op::RechargeSelf(self.value()?),
            "Send" => {
                let to = self.value()?;
                self.comma()?;
                Op::Send(to, self.value()?)
            }
            "Recv" => Op::Recv(self.value()?),
            "Close" => Op::Close(self.value()?),
            "Print" => Op::Print(self.value()?),
            "Print_Text" => {
                let Token::Text(text) = self.peek() else { return self.expected("a text") };
                let text = text.clone();
                self.next += 1;
                Op::PrintText(text)
            }
            _ => {
                self.next = at;
                return Err(ParseFault::UnknownOp(name));
            }
        })
    }
}
