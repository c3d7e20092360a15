//! Expressions.

use super::{FnLower, Lowered, Ty, Val, target};
use crate::ast::{Expr, ExprKind, Named};
use crate::diagnostic::{Code, Diagnostic};
use mainspring_qtjir::{Binary, Op, Pos, Type, Unary, Value};

impl Val {
    fn of(value: Value, ty: Type) -> Self {
        Self { value: Some(value), ty: Ty::Plain(ty), code: None }
    }

    pub(super) const fn nothing() -> Self {
        Self { value: None, ty: Ty::Plain(Type::Unit), code: None }
    }
}

impl FnLower<'_> {
    /// An expression that cannot fail and gives something.
    pub(super) fn value(&mut self, expr: &Expr) -> Lowered<(Value, Ty)> {
        let came = self.expr(expr)?;
        self.handled(&came, expr.pos)?;
        match came.value {
            Some(value) => Ok((value, came.ty)),
            None => Err(Diagnostic::new(Code::Mismatch, expr.pos, "this gives nothing")),
        }
    }

    /// An expression of this type.
    pub(super) fn value_of(&mut self, expr: &Expr, wanted: &Ty) -> Lowered<Value> {
        let (value, ty) = self.value(expr)?;
        if ty == *wanted {
            return Ok(value);
        }
        let message = format!("expected {}, found {}", self.unit.name_of(wanted), self.unit.name_of(&ty));
        let mistake = Diagnostic::new(Code::Mismatch, expr.pos, message);
        Err(match (wanted, &ty, &expr.kind) {
            (Ty::Plain(Type::F64), Ty::Plain(Type::I64), ExprKind::Int(number)) => {
                mistake.help(format!("write `{number}.0`"))
            }
            (Ty::Plain(Type::F64), Ty::Plain(Type::I64), _) => mistake.help("convert it with `float(…)`"),
            (Ty::Plain(Type::I64), Ty::Plain(Type::F64), _) => mistake.help("convert it with `int(…)`"),
            (_, Ty::Plain(Type::Task(_) | Type::Future { .. }), _) => {
                mistake.help("get its result with `await`")
            }
            _ => mistake,
        })
    }

    /// Refuses an error that is not handled.
    pub(super) fn handled(&self, came: &Val, pos: Pos) -> Lowered {
        match came.code {
            None => Ok(()),
            Some(_) => {
                Err(Diagnostic::new(Code::Unhandled, pos, "this can fail, and nobody handles its error")
                    .help("put `try` before it, or `catch` and another value after it"))
            }
        }
    }

    pub(super) fn expr(&mut self, expr: &Expr) -> Lowered<Val> {
        let pos = expr.pos;
        match &expr.kind {
            ExprKind::Int(value) => Ok(Val::of(self.int(*value, pos), Type::I64)),
            ExprKind::Float(value) => {
                Ok(Val::of(self.emit_one(Op::Float(*value), Type::F64, pos), Type::F64))
            }
            ExprKind::Bool(value) => {
                Ok(Val::of(self.emit_one(Op::Bool(*value), Type::Bool, pos), Type::Bool))
            }
            ExprKind::Text(_) => {
                Err(Diagnostic::new(Code::Mismatch, pos, "a text stands only in `print(…)`"))
            }
            ExprKind::Name(name) => {
                let var = self.lookup(name, pos)?;
                Ok(Val { value: Some(self.vars[var].value), ty: self.vars[var].ty.clone(), code: None })
            }
            ExprKind::ErrorName(name) => self.error_name(name, pos),
            ExprKind::Neg(inner) => self.negated(inner, pos),
            ExprKind::Not(inner) => {
                let value = self.value_of(inner, &Ty::Plain(Type::Bool))?;
                Ok(Val::of(self.emit_one(Op::Unary(Unary::Not, value), Type::Bool, pos), Type::Bool))
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                let (value, ty) = self.binary(*op, &a, &b, pos)?;
                Ok(Val { value: Some(value), ty, code: None })
            }
            ExprKind::And(a, b) => self.shortcut(a, b, true, pos),
            ExprKind::Or(a, b) => self.shortcut(a, b, false, pos),
            ExprKind::Call(name, args) => self.call(name, args, pos),
            ExprKind::Method(of, name, args) => self.method(of, name, args, pos),
            ExprKind::Field(of, name) => self.read_field(of, name, pos),
            ExprKind::Index(slice, index) => {
                let (slice, element) = self.slice(slice)?;
                let index = self.value_of(index, &Ty::Plain(Type::I64))?;
                Ok(Val::of(self.emit_one(Op::Load(slice, index), element.clone(), pos), element))
            }
            ExprKind::StructLit(name, fields) => self.struct_literal(name, fields, pos),
            ExprKind::List(items) => self.list(items, pos),
            ExprKind::Make(of, size) => {
                let made = self.unit.of_type(of)?;
                let size = self.value_of(size, &Ty::Plain(Type::I64))?;
                match &made {
                    Type::Slice(of) => Ok(Val::of(
                        self.emit_one(Op::SliceNew((**of).clone(), size), made.clone(), pos),
                        made,
                    )),
                    Type::Chan(of) => {
                        self.scheduled(pos, "a channel")?;
                        Ok(Val::of(
                            self.emit_one(Op::ChannelNew((**of).clone(), size), made.clone(), pos),
                            made,
                        ))
                    }
                    _ => {
                        let message =
                            format!("`make` makes slices and channels, not {}", self.unit.type_name(&made));
                        Err(Diagnostic::new(Code::Mismatch, of.pos, message).help("write `make([]i64, 10)`"))
                    }
                }
            }
            ExprKind::Spawn(what) => self.spawn(what, pos),
            ExprKind::Await(task) => self.awaited(task, pos),
            ExprKind::Try(inner) => {
                let came = self.expr(inner)?;
                let code = self.can_fail(&came, inner.pos, "try")?;
                self.on_error(code, pos, |this| this.fail(code, pos, "try"))?;
                Ok(Val { code: None, ..came })
            }
            ExprKind::Catch(inner, other) => self.caught(inner, other, pos),
        }
    }

    fn can_fail(&self, came: &Val, pos: Pos, word: &str) -> Lowered<Value> {
        came.code.ok_or_else(|| {
            Diagnostic::new(Code::Unhandled, pos, format!("`{word}` for what cannot fail"))
                .help(format!("remove `{word}`"))
        })
    }

    fn caught(&mut self, inner: &Expr, other: &Expr, pos: Pos) -> Lowered<Val> {
        let came = self.expr(inner)?;
        let code = self.can_fail(&came, inner.pos, "catch")?;
        let Some(value) = came.value else {
            return Err(Diagnostic::new(
                Code::Mismatch,
                inner.pos,
                "`catch` needs a value to replace, and this gives nothing",
            )
            .help("use `try`"));
        };
        let (ty, joined) = (came.ty.clone(), self.new_block(&[came.ty.ir()]));
        let result = self.function.blocks[joined].params[0];
        self.on_error(code, pos, |this| {
            let instead = this.value_of(other, &ty)?;
            this.jump(joined, vec![instead], pos);
            Ok(())
        })?;
        self.jump(joined, vec![value], pos);
        self.at = Some(joined);
        Ok(Val { value: Some(result), ty, code: None })
    }

    fn error_name(&mut self, name: &str, pos: Pos) -> Lowered<Val> {
        let Some(code) = self.unit.module.code_of(name) else {
            let known = self.unit.module.errors.iter().map(String::as_str);
            let known = known.chain(mainspring_qtjir::ERRORS_OF_THE_LANGUAGE);
            let mistake = Diagnostic::new(Code::UnknownName, pos, format!("there is no error `{name}`"))
                .similar(name, known);
            return Err(if mistake.help.is_some() {
                mistake
            } else {
                mistake.help(format!("declare it: `error {name}`"))
            });
        };
        Ok(Val { value: Some(self.int(code, pos)), ty: Ty::Error, code: None })
    }

    fn negated(&mut self, inner: &Expr, pos: Pos) -> Lowered<Val> {
        // A literal. The least integer has no opposite: that traps when it is computed.
        if let ExprKind::Int(value) = inner.kind
            && let Some(value) = value.checked_neg()
        {
            return Ok(Val::of(self.int(value, pos), Type::I64));
        }
        let (value, ty) = self.value(inner)?;
        match ty {
            Ty::Plain(of @ (Type::I64 | Type::F64)) => {
                Ok(Val::of(self.emit_one(Op::Unary(Unary::Neg, value), of.clone(), pos), of))
            }
            other => {
                let message = format!("`-` needs a number, not {}", self.unit.name_of(&other));
                Err(Diagnostic::new(Code::Mismatch, pos, message))
            }
        }
    }

    pub(super) fn binary(
        &mut self,
        op: Binary,
        a: &(Value, Ty),
        b: &(Value, Ty),
        pos: Pos,
    ) -> Lowered<(Value, Ty)> {
        let takes = match &a.1 {
            Ty::Error => matches!(op, Binary::Eq | Binary::Ne),
            Ty::Plain(of) => op.takes(of),
        };
        if a.1 != b.1 || !takes {
            let (one, other) = (self.unit.name_of(&a.1), self.unit.name_of(&b.1));
            let mistake = Diagnostic::new(
                Code::Mismatch,
                pos,
                format!("this operator does not take {one} and {other}"),
            );
            return Err(match (&a.1, &b.1) {
                (Ty::Plain(Type::F64), Ty::Plain(Type::I64))
                | (Ty::Plain(Type::I64), Ty::Plain(Type::F64)) => {
                    mistake.help("convert one with `float(…)` or `int(…)`; write whole floats as 1.0")
                }
                _ => mistake,
            });
        }
        let ty = if op.compares() { Ty::Plain(Type::Bool) } else { a.1.clone() };
        Ok((self.emit_one(Op::Binary(op, a.0, b.0), ty.ir(), pos), ty))
    }

    /// `a and b`, `a or b`: the second is evaluated only if it decides.
    fn shortcut(&mut self, a: &Expr, b: &Expr, and: bool, pos: Pos) -> Lowered<Val> {
        let first = self.value_of(a, &Ty::Plain(Type::Bool))?;
        let (second, joined) = (self.new_block(&[]), self.new_block(&[Type::Bool]));
        let (go_on, decided) = (target(second, Vec::new()), target(joined, vec![first]));
        let (yes, no) = if and { (go_on, decided) } else { (decided, go_on) };
        self.branch(first, yes, no, pos);
        self.at = Some(second);
        let value = self.value_of(b, &Ty::Plain(Type::Bool))?;
        self.jump(joined, vec![value], pos);
        self.at = Some(joined);
        Ok(Val::of(self.function.blocks[joined].params[0], Type::Bool))
    }

    pub(super) fn slice(&mut self, expr: &Expr) -> Lowered<(Value, Type)> {
        match self.value(expr)? {
            (value, Ty::Plain(Type::Slice(element))) => Ok((value, *element)),
            (_, other) => {
                let message = format!("only a slice has elements, not {}", self.unit.name_of(&other));
                Err(Diagnostic::new(Code::Mismatch, expr.pos, message))
            }
        }
    }

    /// The struct, the field's number and its type.
    pub(super) fn field(&mut self, of: &Expr, name: &Named) -> Lowered<(Value, u32, Type)> {
        let (value, ty) = self.value(of)?;
        let Ty::Plain(Type::Struct(at)) = ty else {
            let message = format!("{} has no fields", self.unit.name_of(&ty));
            return Err(Diagnostic::new(Code::Mismatch, name.pos, message));
        };
        let def = &self.unit.module.structs[at as usize];
        match def.fields.iter().position(|(field, _)| *field == name.name) {
            Some(field) => Ok((value, field as u32, def.fields[field].1.clone())),
            None => {
                let message = format!("`{}` has no field `{}`", def.name, name.name);
                let known = def.fields.iter().map(|(field, _)| field.as_str());
                Err(Diagnostic::new(Code::UnknownName, name.pos, message).similar(&name.name, known))
            }
        }
    }

    fn read_field(&mut self, of: &Expr, name: &Named, pos: Pos) -> Lowered<Val> {
        if name.name == "len" {
            let (value, ty) = self.value(of)?;
            if let Ty::Plain(Type::Slice(_)) = ty {
                return Ok(Val::of(self.emit_one(Op::Len(value), Type::I64, pos), Type::I64));
            }
        }
        let (value, at, ty) = self.field(of, name)?;
        Ok(Val::of(self.emit_one(Op::Field(value, at), ty.clone(), pos), ty))
    }

    fn struct_literal(&mut self, name: &Named, fields: &[(Named, Expr)], pos: Pos) -> Lowered<Val> {
        let structs = &self.unit.module.structs;
        let Some(at) = structs.iter().position(|def| def.name == name.name) else {
            let known = structs.iter().map(|def| def.name.as_str());
            let mistake =
                Diagnostic::new(Code::UnknownName, name.pos, format!("there is no struct `{}`", name.name));
            return Err(mistake.similar(&name.name, known));
        };
        let def = &structs[at];
        let mut values = vec![None; def.fields.len()];
        for (field, value) in fields {
            let Some(number) = def.fields.iter().position(|(known, _)| *known == field.name) else {
                let known = def.fields.iter().map(|(known, _)| known.as_str());
                let message = format!("`{}` has no field `{}`", def.name, field.name);
                return Err(
                    Diagnostic::new(Code::UnknownName, field.pos, message).similar(&field.name, known)
                );
            };
            let value = self.value_of(value, &Ty::Plain(def.fields[number].1.clone()))?;
            if values[number].replace(value).is_some() {
                return Err(super::twice(&field.name, field.pos));
            }
        }
        let missing = def.fields.iter().zip(&values).find(|(_, value)| value.is_none());
        if let Some(((field, _), _)) = missing {
            let message = format!("the field `{field}` of `{}` is missing", def.name);
            return Err(Diagnostic::new(Code::Mismatch, pos, message).help(format!("add `{field}: …`")));
        }
        let values = values.into_iter().flatten().collect();
        let of = Type::Struct(at as u32);
        Ok(Val::of(self.emit_one(Op::StructNew(at as u32, values), of.clone(), pos), of))
    }

    fn list(&mut self, items: &[Expr], pos: Pos) -> Lowered<Val> {
        let Some((first, rest)) = items.split_first() else {
            let mistake = Diagnostic::new(Code::Mismatch, pos, "an empty list has no type");
            return Err(mistake.help("write `make([]i64, 0)`"));
        };
        let (first, ty) = self.value(first)?;
        let Ty::Plain(element) = ty.clone() else {
            return Err(Diagnostic::new(Code::Mismatch, pos, "a list of errors"));
        };
        if !element.can_be_sent() {
            let message = format!("a list does not hold {}", self.unit.type_name(&element));
            return Err(Diagnostic::new(Code::Mismatch, pos, message).help("give each task a name"));
        }
        if element.is_capability() {
            return Err(self.unit.forged(&element, pos));
        }
        let mut values = vec![first];
        for item in rest {
            values.push(self.value_of(item, &ty)?);
        }
        let len = self.int(values.len() as i64, pos);
        let of = Type::Slice(Box::new(element.clone()));
        if of.depth() > mainspring_qtjir::MAX_TYPE_DEPTH {
            return Err(Diagnostic::new(Code::TooLarge, pos, "this type nests too deep").help("use a struct"));
        }
        let slice = self.emit_one(Op::SliceNew(element, len), of.clone(), pos);
        for (at, value) in values.into_iter().enumerate() {
            let index = self.int(at as i64, pos);
            self.emit(Op::Store(slice, index, value), &[], pos);
        }
        Ok(Val::of(slice, of))
    }

    fn call(&mut self, name: &Named, args: &[Expr], pos: Pos) -> Lowered<Val> {
        if super::names::BUILTINS.contains(&name.name.as_str()) {
            return self.builtin(name, args, pos);
        }
        let values = self.call_args(name, args)?;
        let sig = &self.unit.functions[&name.name];
        if sig.is_async {
            return self.async_call(name, values, pos);
        }
        let mut types = Vec::new();
        types.extend((sig.result != Type::Unit).then(|| sig.result.clone()));
        types.extend(sig.fails.then_some(Type::I64));
        let results = self.emit(Op::Call(name.name.clone(), values), &types, pos);
        Ok(Val {
            value: (sig.result != Type::Unit).then(|| results[0]),
            ty: Ty::Plain(sig.result.clone()),
            code: if sig.fails { results.last().copied() } else { None },
        })
    }

    /// The arguments of a call of a function of the file.
    pub(super) fn call_args(&mut self, name: &Named, args: &[Expr]) -> Lowered<Vec<Value>> {
        let unit = self.unit;
        let Some(sig) = unit.functions.get(&name.name) else {
            let known = unit.functions.keys().map(String::as_str).chain(super::names::BUILTINS);
            let mistake =
                Diagnostic::new(Code::UnknownName, name.pos, format!("there is no function `{}`", name.name));
            return Err(mistake.similar(&name.name, known));
        };
        self.count_args(name, args, sig.params.len())?;
        let wanted: Vec<Ty> = sig.params.iter().cloned().map(Ty::Plain).collect();
        args.iter().zip(&wanted).map(|(arg, wanted)| self.value_of(arg, wanted)).collect()
    }

    pub(super) fn count_args(&self, name: &Named, args: &[Expr], wanted: usize) -> Lowered {
        if args.len() == wanted {
            return Ok(());
        }
        let message = format!("`{}` takes {wanted} arguments, not {}", name.name, args.len());
        Err(Diagnostic::new(Code::Mismatch, name.pos, message))
    }

    fn builtin(&mut self, name: &Named, args: &[Expr], pos: Pos) -> Lowered<Val> {
        let number = |this: &Self, ty: &Ty| {
            let message = format!("`{}` does not take {}", name.name, this.unit.name_of(ty));
            Diagnostic::new(Code::Mismatch, pos, message)
        };
        if name.name == "recharge" {
            return self.recharge(name, args, pos);
        }
        self.count_args(name, args, 1)?;
        if let (ExprKind::Text(text), "print") = (&args[0].kind, name.name.as_str()) {
            self.emit(Op::PrintText(text.clone()), &[], pos);
            return Ok(Val::nothing());
        }
        let (value, ty) = self.value(&args[0])?;
        match (name.name.as_str(), &ty) {
            ("print", Ty::Plain(Type::I64 | Type::F64 | Type::Bool) | Ty::Error) => {
                self.emit(Op::Print(value), &[], pos);
                Ok(Val::nothing())
            }
            ("len", Ty::Plain(Type::Slice(_))) => {
                Ok(Val::of(self.emit_one(Op::Len(value), Type::I64, pos), Type::I64))
            }
            ("int", Ty::Plain(Type::F64)) => {
                Ok(Val::of(self.emit_one(Op::Unary(Unary::ToInt, value), Type::I64, pos), Type::I64))
            }
            ("float", Ty::Plain(Type::I64)) => {
                Ok(Val::of(self.emit_one(Op::Unary(Unary::ToFloat, value), Type::F64, pos), Type::F64))
            }
            _ => Err(number(self, &ty)),
        }
    }
}
