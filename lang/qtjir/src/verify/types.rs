//! The types of each instruction's operands and results.

use super::{Check, Complaint, MAX_PARAMS};
use crate::ir::{Function, Instr, MAX_TYPE_DEPTH, Op, Target, Tenancy, Terminator, Type, Unary, Value};
use crate::text;

/// Whether a type is made of structs below `structs`, and nests no deeper than allowed.
pub(super) fn exists(of: &Type, structs: usize) -> bool {
    fn known(of: &Type, structs: usize) -> bool {
        match of {
            Type::Struct(at) => (*at as usize) < structs,
            Type::Slice(inner) | Type::Chan(inner) => **inner != Type::Unit && known(inner, structs),
            Type::Task(inner) | Type::Future { result: inner, .. } => known(inner, structs),
            _ => true,
        }
    }
    of.depth() <= MAX_TYPE_DEPTH && known(of, structs)
}

type Typed<T = ()> = Result<T, Complaint>;

fn count(wanted: usize, found: usize) -> Typed {
    if wanted == found { Ok(()) } else { Err(Complaint::Count { wanted, found }) }
}

impl Check<'_> {
    fn of(&self, value: Value) -> &Type {
        self.function.type_of(value)
    }

    fn text(&self, of: &Type) -> String {
        text::type_text(self.module, of)
    }

    fn mismatch<T>(&self, wanted: &str, found: &Type) -> Typed<T> {
        Err(Complaint::Mismatch { wanted: wanted.to_owned(), found: self.text(found) })
    }

    fn is(&self, value: Value, wanted: &Type) -> Typed {
        if self.of(value) == wanted { Ok(()) } else { self.mismatch(&self.text(wanted), self.of(value)) }
    }

    fn are(&self, values: &[Value], wanted: &[Type]) -> Typed {
        count(wanted.len(), values.len())?;
        values.iter().zip(wanted).try_for_each(|(value, wanted)| self.is(*value, wanted))
    }

    fn callee(&self, name: &str, args: &[Value]) -> Typed<&Function> {
        let callee = self.functions.get(name).ok_or_else(|| Complaint::NoFunction(name.to_owned()))?;
        if args.len() > MAX_PARAMS {
            return Err(Complaint::TooLarge("parameters"));
        }
        self.are(args, &callee.params())?;
        Ok(callee)
    }

    /// A function that is to run as a task of its own.
    fn task(&self, tenancy: Tenancy, name: &str, args: &[Value]) -> Typed<&Function> {
        if tenancy != Tenancy::CpuParallel {
            return Err(Complaint::BadTenancy);
        }
        let callee = self.callee(name, args)?;
        let params = callee.params();
        match params.iter().chain([&callee.result]).find(|of| !of.can_be_sent()) {
            Some(of) => Err(Complaint::StaysInTask(self.text(of))),
            None => Ok(callee),
        }
    }

    pub(super) fn instr(&self, instr: &Instr) -> Typed {
        let results = self.results(&instr.op)?;
        self.are(&instr.results, &results)
    }

    /// Checks the operands and says what the instruction defines.
    fn results(&self, op: &Op) -> Typed<Vec<Type>> {
        let one = |of: Type| Ok(vec![of]);
        match op {
            Op::Int(_) => one(Type::I64),
            Op::Float(_) => one(Type::F64),
            Op::Bool(_) => one(Type::Bool),
            Op::Binary(op, a, b) => {
                let of = self.of(*a);
                if !op.takes(of) {
                    return self.mismatch("a type that this operation takes", of);
                }
                self.is(*b, of)?;
                one(if op.compares() { Type::Bool } else { of.clone() })
            }
            Op::Unary(op, a) => {
                let of = self.of(*a).clone();
                match (op, &of) {
                    (Unary::Neg, Type::I64 | Type::F64) | (Unary::Not, Type::Bool) => one(of),
                    (Unary::ToFloat, Type::I64) => one(Type::F64),
                    (Unary::ToInt, Type::F64) => one(Type::I64),
                    _ => self.mismatch("a type that this operation takes", &of),
                }
            }
            Op::Call(name, args) => Ok(self.callee(name, args)?.call_results()),
            Op::SliceNew(of, len) => {
                self.is(*len, &Type::I64)?;
                self.element(of)?;
                if of.is_capability() {
                    return Err(Complaint::Forged(self.text(of)));
                }
                one(Type::Slice(Box::new(of.clone())))
            }
            Op::Len(slice) => {
                self.slice(*slice)?;
                one(Type::I64)
            }
            Op::Load(slice, index) => {
                self.is(*index, &Type::I64)?;
                one(self.slice(*slice)?.clone())
            }
            Op::Store(slice, index, value) => {
                self.is(*index, &Type::I64)?;
                self.is(*value, self.slice(*slice)?)?;
                Ok(Vec::new())
            }
            Op::StructNew(at, fields) => {
                let def = self.module.structs.get(*at as usize);
                let def = def.ok_or_else(|| Complaint::BadStruct(format!("#{at}")))?;
                let wanted: Vec<Type> = def.fields.iter().map(|(_, of)| of.clone()).collect();
                self.are(fields, &wanted)?;
                one(Type::Struct(*at))
            }
            Op::Field(of, field) => one(self.field(*of, *field)?.clone()),
            Op::SetField(of, field, value) => {
                self.is(*value, self.field(*of, *field)?)?;
                Ok(Vec::new())
            }
            Op::BudgetCheck | Op::Yield | Op::PrintText(_) => Ok(Vec::new()),
            Op::BudgetDecrement(cost) => {
                self.is(*cost, &Type::I64)?;
                Ok(Vec::new())
            }
            Op::RechargeSelf(ops) => {
                self.is(*ops, &Type::I64)?;
                Ok(Vec::new())
            }
            Op::NurseryBegin => one(Type::Nursery),
            Op::NurseryEnd(nursery) => {
                self.is(*nursery, &Type::Nursery)?;
                one(Type::I64)
            }
            Op::NurseryCancel(nursery) => {
                self.is(*nursery, &Type::Nursery)?;
                Ok(Vec::new())
            }
            Op::Spawn(tenancy, name, args) => {
                one(Type::Task(Box::new(self.task(*tenancy, name, args)?.result.clone())))
            }
            Op::TaskCreate(tenancy, name, args, budget) => {
                budget.iter().try_for_each(|amount| self.is(*amount, &Type::I64))?;
                one(Type::Task(Box::new(self.task(*tenancy, name, args)?.result.clone())))
            }
            Op::AsyncCall(tenancy, name, args) => {
                let callee = self.task(*tenancy, name, args)?;
                one(Type::Future { result: Box::new(callee.result.clone()), fails: callee.fails })
            }
            Op::TaskJoin(task) => match self.of(*task) {
                Type::Task(result) => Ok(value_of(result)),
                other => self.mismatch("a task", other),
            },
            Op::Await(task) => match self.of(*task) {
                Type::Task(result) => Ok(value_of(result)),
                Type::Future { result, fails } => {
                    let mut results = value_of(result);
                    results.extend(fails.then_some(Type::I64));
                    Ok(results)
                }
                other => self.mismatch("a task or an asynchronous call", other),
            },
            Op::Recharge(task, ops) => {
                self.is(*ops, &Type::I64)?;
                match self.of(*task) {
                    Type::Task(_) => Ok(Vec::new()),
                    other => self.mismatch("a task", other),
                }
            }
            Op::ChannelNew(of, capacity) => {
                self.is(*capacity, &Type::I64)?;
                self.element(of)?;
                one(Type::Chan(Box::new(of.clone())))
            }
            Op::Send(to, value) => {
                self.is(*value, self.channel(*to)?)?;
                one(Type::I64)
            }
            Op::Recv(from) => Ok(vec![self.channel(*from)?.clone(), Type::I64]),
            Op::Close(of) => {
                self.channel(*of)?;
                Ok(Vec::new())
            }
            Op::Print(value) => match self.of(*value) {
                Type::I64 | Type::F64 | Type::Bool => Ok(Vec::new()),
                other => self.mismatch("a number or a bool", other),
            },
        }
    }

    fn element(&self, of: &Type) -> Typed {
        if !of.can_be_sent() || *of == Type::Unit {
            return Err(Complaint::StaysInTask(self.text(of)));
        }
        if exists(of, self.module.structs.len()) { Ok(()) } else { Err(Complaint::BadStruct(self.text(of))) }
    }

    fn slice(&self, value: Value) -> Typed<&Type> {
        match self.of(value) {
            Type::Slice(of) => Ok(of),
            other => self.mismatch("a slice", other),
        }
    }

    fn channel(&self, value: Value) -> Typed<&Type> {
        match self.of(value) {
            Type::Chan(of) => Ok(of),
            other => self.mismatch("a channel", other),
        }
    }

    fn field(&self, value: Value, field: u32) -> Typed<&Type> {
        match self.of(value) {
            Type::Struct(at) => {
                let fields = self.module.structs.get(*at as usize).map(|def| &def.fields);
                let found = fields.and_then(|fields| fields.get(field as usize));
                found.map(|(_, of)| of).ok_or(Complaint::NoField(field))
            }
            other => self.mismatch("a struct", other),
        }
    }

    fn target(&self, target: &Target) -> Typed {
        let params = &self.function.blocks[target.block.0 as usize].params;
        let wanted: Vec<Type> = params.iter().map(|value| self.of(*value).clone()).collect();
        self.are(&target.args, &wanted)
    }

    pub(super) fn end(&self, end: &Terminator) -> Typed {
        match end {
            Terminator::Jump(to) => self.target(to),
            Terminator::Branch(condition, yes, no) => {
                self.is(*condition, &Type::Bool)?;
                self.target(yes)?;
                self.target(no)
            }
            Terminator::Return(value) => {
                let wanted = value_of(&self.function.result);
                self.are(value.as_slice(), &wanted)
            }
            Terminator::Fail(code) => {
                if !self.function.fails {
                    return Err(Complaint::CannotFail);
                }
                self.is(*code, &Type::I64)
            }
            Terminator::Raise(code) => self.is(*code, &Type::I64),
        }
    }
}

/// A result, unless it is nothing.
fn value_of(result: &Type) -> Vec<Type> {
    if *result == Type::Unit { Vec::new() } else { vec![result.clone()] }
}
