//! The tree as QTJIR: types are checked and values numbered in one walk.
//!
//! A variable is the value that it has at the moment. Where ways join, blocks get parameters for the variables that differ.

mod expr;
mod names;
mod scope;
mod stmt;
mod task;

use crate::ast::{File, Func, TypeExpr, TypeKind};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use mainspring::Profile;
use mainspring_qtjir::{
    Block, BlockId, Function, Instr, MAX_FUNCTIONS, MAX_PARAMS, Module, Op, Pos, StructDef, Target,
    Terminator, Type, Value,
};
use scope::{Loop, Var};
use std::collections::HashMap;

/// So many mistakes of a file are listed. To find what a name should have been takes a look at all others.
const MOST_MISTAKES: usize = 32;

type Lowered<T = ()> = Result<T, Diagnostic>;

/// A type of the language.
#[derive(Clone, Debug, PartialEq)]
enum Ty {
    Plain(Type),
    /// An error, which is a number in the end.
    Error,
}

impl Ty {
    fn ir(&self) -> Type {
        match self {
            Self::Plain(of) => of.clone(),
            Self::Error => Type::I64,
        }
    }
}

/// What an expression comes to.
struct Val {
    /// `None` for nothing.
    value: Option<Value>,
    ty: Ty,
    /// The code of the error, if it can fail.
    code: Option<Value>,
}

struct Sig {
    params: Vec<Type>,
    result: Type,
    fails: bool,
    is_async: bool,
}

/// What all functions of a file know.
struct Unit {
    profile: Profile,
    /// The structs and errors; functions come later.
    module: Module,
    functions: HashMap<String, Sig>,
}

pub(crate) fn lower(file: &File) -> Result<Module, Diagnostics> {
    let unit = declare(file)?;
    let mut mistakes = Vec::new();
    let mut functions = Vec::new();
    for func in &file.functions {
        match FnLower::function(&unit, func) {
            Ok(lowered) => functions.extend(lowered),
            Err(mistake) => mistakes.push(mistake),
        }
        if functions.len() > MAX_FUNCTIONS {
            mistakes.push(too_many("functions and blocks of tasks", func.name.pos));
        }
        if mistakes.len() >= MOST_MISTAKES || functions.len() > MAX_FUNCTIONS {
            break;
        }
    }
    if !mistakes.is_empty() {
        return Err(Diagnostics(mistakes));
    }
    let mut module = unit.module;
    module.functions = functions;
    match mainspring_qtjir::verify(&module) {
        Ok(()) => Ok(module),
        // What the verifier bounds and the language does not: sizes.
        Err(error) => Err(Diagnostic::new(Code::TooLarge, error.pos, error.complaint.to_string()).into()),
    }
}

fn too_many(what: &str, pos: Pos) -> Diagnostic {
    Diagnostic::new(Code::TooLarge, pos, format!("too many {what}")).help("split it")
}

/// Refuses a file with more names than are looked through for each of them.
fn bounded(file: &File) -> Lowered {
    let structs = file.structs.iter().map(|structure| &structure.name).nth(MAX_FUNCTIONS);
    let fields = file.structs.iter().find_map(|structure| structure.fields.get(MAX_PARAMS));
    let params = file.functions.iter().find_map(|func| func.params.get(MAX_PARAMS));
    let first = [
        ("errors", file.errors.get(MAX_FUNCTIONS)),
        ("structs", structs),
        ("functions", file.functions.iter().map(|func| &func.name).nth(MAX_FUNCTIONS)),
        ("fields", fields.map(|(name, _)| name)),
        ("parameters", params.map(|(name, _)| name)),
    ];
    match first.into_iter().find_map(|(what, name)| Some((what, name?))) {
        Some((what, name)) => Err(too_many(what, name.pos)),
        None => Ok(()),
    }
}

fn declare(file: &File) -> Result<Unit, Diagnostic> {
    bounded(file)?;
    let mut module = Module::new(file.profile);
    module.yield_interval = file.interval;
    for error in &file.errors {
        if module.code_of(&error.name).is_some() {
            return Err(twice(&error.name, error.pos));
        }
        module.errors.push(error.name.clone());
    }
    let mut unit = Unit { profile: file.profile, module, functions: HashMap::new() };
    for structure in &file.structs {
        let name = &structure.name.name;
        if unit.module.structs.iter().any(|known| known.name == *name)
            || BUILTIN_TYPES.contains(&name.as_str())
        {
            return Err(twice(name, structure.name.pos));
        }
        let mut fields: Vec<(String, Type)> = Vec::new();
        for (field, of) in &structure.fields {
            if fields.iter().any(|(known, _)| *known == field.name) {
                return Err(twice(&field.name, field.pos));
            }
            fields.push((field.name.clone(), unit.of_type(of)?));
        }
        unit.module.structs.push(StructDef { name: name.clone(), fields });
    }
    for func in &file.functions {
        let params = func.params.iter().map(|(_, of)| unit.of_type(of)).collect::<Result<_, _>>()?;
        let result = func.result.as_ref().map_or(Ok(Type::Unit), |of| unit.of_type(of))?;
        let sig = Sig { params, result, fails: func.fails, is_async: func.is_async };
        let builtin = names::BUILTINS.contains(&func.name.name.as_str());
        if builtin || unit.functions.insert(func.name.name.clone(), sig).is_some() {
            return Err(twice(&func.name.name, func.name.pos));
        }
    }
    Ok(unit)
}

/// The names of types and functions that the language has.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    BUILTIN_TYPES.into_iter().chain(names::BUILTINS)
}

const BUILTIN_TYPES: [&str; 7] = ["i64", "int", "f64", "float", "bool", "CapSpawn", "CapBudget"];

fn twice(name: &str, pos: Pos) -> Diagnostic {
    Diagnostic::new(Code::TwiceNamed, pos, format!("`{name}` has a meaning already"))
        .help("choose another name")
}

impl Unit {
    fn of_type(&self, of: &TypeExpr) -> Lowered<Type> {
        let made = match &of.kind {
            TypeKind::Slice(inner) => {
                let element = self.of_type(inner)?;
                if element.is_capability() {
                    return Err(self.forged(&element, of.pos));
                }
                Type::Slice(Box::new(element))
            }
            TypeKind::Chan(inner) => Type::Chan(Box::new(self.of_type(inner)?)),
            TypeKind::Name(name) => match name.as_str() {
                "i64" | "int" => Type::I64,
                "f64" | "float" => Type::F64,
                "bool" => Type::Bool,
                "CapSpawn" | "CapBudget" if self.profile == Profile::Core => {
                    let message = format!("`{name}`: the core profile has no capabilities");
                    return Err(Diagnostic::new(Code::NotPermitted, of.pos, message));
                }
                "CapSpawn" => Type::CapSpawn,
                "CapBudget" => Type::CapBudget,
                _ => match self.module.structs.iter().position(|known| known.name == *name) {
                    Some(at) => Type::Struct(at as u32),
                    None => {
                        let known = self.module.structs.iter().map(|known| known.name.as_str());
                        let mistake =
                            Diagnostic::new(Code::UnknownName, of.pos, format!("there is no type `{name}`"));
                        return Err(mistake.similar(name, known.chain(BUILTIN_TYPES)));
                    }
                },
            },
        };
        if made.depth() > mainspring_qtjir::MAX_TYPE_DEPTH {
            return Err(
                Diagnostic::new(Code::TooLarge, of.pos, "this type nests too deep").help("use a struct")
            );
        }
        Ok(made)
    }

    /// A new slice is all zeros, which would be capabilities that nobody granted.
    fn forged(&self, element: &Type, pos: Pos) -> Diagnostic {
        let message = format!("a slice does not hold a {}", self.type_name(element));
        Diagnostic::new(Code::NotPermitted, pos, message).help("hand it on as a parameter, or in a struct")
    }

    /// A type as the program writes it.
    fn name_of(&self, ty: &Ty) -> String {
        match ty {
            Ty::Error => "an error".to_owned(),
            Ty::Plain(of) => self.type_name(of),
        }
    }

    fn type_name(&self, of: &Type) -> String {
        match of {
            Type::Unit => "nothing".to_owned(),
            Type::I64 => "i64".to_owned(),
            Type::F64 => "f64".to_owned(),
            Type::Bool => "bool".to_owned(),
            Type::Slice(inner) => format!("[]{}", self.type_name(inner)),
            Type::Chan(inner) => format!("chan {}", self.type_name(inner)),
            Type::Struct(at) => self.module.structs[*at as usize].name.clone(),
            Type::Task(inner) => format!("a task that gives {}", self.type_name(inner)),
            Type::Future { result, .. } => {
                format!("an asynchronous call that gives {}", self.type_name(result))
            }
            Type::Nursery => "a nursery".to_owned(),
            Type::CapSpawn => "CapSpawn".to_owned(),
            Type::CapBudget => "CapBudget".to_owned(),
        }
    }
}

/// A function while it is lowered.
struct FnLower<'a> {
    unit: &'a Unit,
    function: Function,
    /// Where the next instruction goes. `None` after a return.
    at: Option<usize>,
    vars: Vec<Var>,
    loops: Vec<Loop>,
    /// The nurseries that are open, the innermost last.
    nurseries: Vec<Value>,
    /// The body of a `spawn { }`: it may fail without saying so, and returns nothing.
    is_block: bool,
    /// Functions made of the bodies of `spawn { }`.
    made: Vec<Function>,
}

impl<'a> FnLower<'a> {
    fn new(unit: &'a Unit, name: String, result: Type, fails: bool, pos: Pos) -> Self {
        let function = Function { name, result, fails, blocks: Vec::new(), values: Vec::new(), pos };
        let (at, vars, loops, nurseries, made) = (None, Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { unit, function, at, vars, loops, nurseries, is_block: false, made }
    }

    fn function(unit: &'a Unit, func: &Func) -> Lowered<Vec<Function>> {
        let sig = &unit.functions[&func.name.name];
        let name = func.name.name.clone();
        let mut this = Self::new(unit, name, sig.result.clone(), sig.fails, func.name.pos);
        let entry = this.new_block(&sig.params);
        this.at = Some(entry);
        for ((param, _), (value, of)) in
            func.params.iter().zip(this.function.blocks[entry].params.clone().into_iter().zip(&sig.params))
        {
            this.declare(param, Ty::Plain(of.clone()), value, false)?;
        }
        this.body(&func.body)?;
        if this.at.is_some() && sig.result != Type::Unit {
            let message =
                format!("`{}` ends without returning {}", func.name.name, unit.type_name(&sig.result));
            return Err(
                Diagnostic::new(Code::Flow, func.body.end, message).help("add a `return` before this brace")
            );
        }
        Ok(this.finish(func.body.end))
    }

    /// The function, and those made of its blocks.
    fn finish(mut self, end: Pos) -> Vec<Function> {
        self.end(Terminator::Return(None), end);
        prune(&mut self.function);
        let mut all = vec![self.function];
        all.append(&mut self.made);
        all
    }

    fn new_block(&mut self, params: &[Type]) -> usize {
        let params = params.iter().map(|of| self.function.new_value(of.clone())).collect();
        let end = Terminator::Return(None);
        self.function.blocks.push(Block { params, instrs: Vec::new(), end, end_pos: Pos::default() });
        self.function.blocks.len() - 1
    }

    /// Adds an instruction. Code that nothing leads to has been refused before.
    fn emit(&mut self, op: Op, results: &[Type], pos: Pos) -> Vec<Value> {
        let results: Vec<Value> = results.iter().map(|of| self.function.new_value(of.clone())).collect();
        if let Some(at) = self.at {
            self.function.blocks[at].instrs.push(Instr { results: results.clone(), op, pos });
        }
        results
    }

    fn emit_one(&mut self, op: Op, of: Type, pos: Pos) -> Value {
        self.emit(op, &[of], pos)[0]
    }

    fn int(&mut self, value: i64, pos: Pos) -> Value {
        self.emit_one(Op::Int(value), Type::I64, pos)
    }

    /// Ends the block.
    fn end(&mut self, end: Terminator, pos: Pos) {
        if let Some(at) = self.at.take() {
            self.function.blocks[at].end = end;
            self.function.blocks[at].end_pos = pos;
        }
    }

    fn jump(&mut self, to: usize, args: Vec<Value>, pos: Pos) {
        self.end(Terminator::Jump(target(to, args)), pos);
    }

    fn branch(&mut self, condition: Value, yes: Target, no: Target, pos: Pos) {
        self.end(Terminator::Branch(condition, yes, no), pos);
    }

    /// Goes on after `code` is known to be zero. Where it is not, `failed` ends the way.
    fn on_error(&mut self, code: Value, pos: Pos, failed: impl FnOnce(&mut Self) -> Lowered) -> Lowered {
        let zero = self.int(0, pos);
        let is_ok = self.emit_one(Op::Binary(mainspring_qtjir::Binary::Eq, code, zero), Type::Bool, pos);
        let (ok, bad) = (self.new_block(&[]), self.new_block(&[]));
        self.branch(is_ok, target(ok, Vec::new()), target(bad, Vec::new()), pos);
        self.at = Some(bad);
        failed(self)?;
        self.at = Some(ok);
        Ok(())
    }
}

fn target(block: usize, args: Vec<Value>) -> Target {
    Target { block: BlockId(block as u32), args }
}

/// Removes blocks that nothing leads to, and numbers the others anew.
fn prune(function: &mut Function) {
    let mut reached = vec![false; function.blocks.len()];
    let mut todo = vec![0];
    while let Some(at) = todo.pop() {
        if !std::mem::replace(&mut reached[at], true) {
            todo.extend(function.blocks[at].end.targets().iter().map(|target| target.block.0 as usize));
        }
    }
    let mut next = 0;
    let numbers: Vec<u32> = reached
        .iter()
        .map(|reached| {
            let number = next;
            next += u32::from(*reached);
            number
        })
        .collect();
    let mut keep = reached.iter();
    function.blocks.retain(|_| *keep.next().expect("one for each"));
    for block in &mut function.blocks {
        for target in block.end.targets_mut() {
            target.block = BlockId(numbers[target.block.0 as usize]);
        }
    }
}
