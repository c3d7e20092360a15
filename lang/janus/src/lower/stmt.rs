//! Statements.

use super::scope::Loop;
use super::{FnLower, Lowered, Ty, names, target};
use crate::ast::{Body, Expr, ExprKind, Named, Stmt, StmtKind};
use crate::diagnostic::{Code, Diagnostic};
use mainspring_qtjir::{Binary, Op, Pos, Terminator, Type, Value};

/// What a loop goes on with.
enum Turns<'b> {
    While(&'b Expr),
    /// From, to; the slice, if these are its elements.
    Count(Value, Value, &'b Named, Option<(Value, Type)>),
}

impl FnLower<'_> {
    /// A body with variables of its own.
    pub(super) fn body(&mut self, body: &Body) -> Lowered {
        let outside = self.vars.len();
        for statement in &body.statements {
            if self.at.is_none() {
                let mistake = Diagnostic::new(Code::Flow, statement.pos, "nothing leads to this statement");
                return Err(mistake.help("remove it, or what ends the block before it"));
            }
            self.statement(statement)?;
        }
        self.vars.truncate(outside);
        Ok(())
    }

    fn statement(&mut self, statement: &Stmt) -> Lowered {
        let pos = statement.pos;
        match &statement.kind {
            StmtKind::Let { name, of, value, mutable } => {
                let wanted = of.as_ref().map(|of| self.unit.of_type(of)).transpose()?;
                let (value, ty) = match wanted {
                    Some(wanted) => {
                        let wanted = Ty::Plain(wanted);
                        (self.value_of(value, &wanted)?, wanted)
                    }
                    None => self.value(value)?,
                };
                self.declare(name, ty, value, *mutable)
            }
            StmtKind::Assign { to, op, value } => self.assign(to, *op, value, pos),
            StmtKind::If { condition, yes, no } => self.conditional(condition, yes, no.as_ref(), pos),
            StmtKind::While { condition, body } => self.turns(&Turns::While(condition), body, pos),
            StmtKind::ForRange { name, from, to, body } => {
                let from = self.value_of(from, &Ty::Plain(Type::I64))?;
                let to = self.value_of(to, &Ty::Plain(Type::I64))?;
                self.turns(&Turns::Count(from, to, name, None), body, pos)
            }
            StmtKind::ForEach { name, of, body } => {
                let (slice, ty) = self.value(of)?;
                let Ty::Plain(Type::Slice(element)) = ty else {
                    let message =
                        format!("`for` goes over a slice or a range, not {}", self.unit.name_of(&ty));
                    return Err(
                        Diagnostic::new(Code::Mismatch, of.pos, message).help("write `for i in 0..n`")
                    );
                };
                let from = self.int(0, pos);
                let to = self.emit_one(Op::Len(slice), Type::I64, pos);
                self.turns(&Turns::Count(from, to, name, Some((slice, *element))), body, pos)
            }
            StmtKind::Break => self.leave_loop(pos, "break"),
            StmtKind::Continue => self.leave_loop(pos, "continue"),
            StmtKind::Return(value) => self.give_back(value.as_ref(), pos),
            StmtKind::Fail(error) => {
                let code = self.value_of(error, &Ty::Error)?;
                self.fail(code, pos, "fail")
            }
            StmtKind::Yield => {
                self.emit(Op::Yield, &[], pos);
                Ok(())
            }
            StmtKind::Cancel => match self.nurseries.last().copied() {
                Some(nursery) => {
                    self.emit(Op::NurseryCancel(nursery), &[], pos);
                    Ok(())
                }
                None => Err(self.no_nursery(pos, "cancel")),
            },
            StmtKind::Nursery { body, try_it, catch } => self.nursery(body, *try_it, catch.as_ref(), pos),
            StmtKind::Expr(expr) => {
                let came = self.expr(expr)?;
                self.handled(&came, expr.pos)
            }
        }
    }

    fn assign(&mut self, to: &Expr, op: Option<Binary>, value: &Expr, pos: Pos) -> Lowered {
        match &to.kind {
            ExprKind::Name(name) => {
                let var = self.lookup(name, to.pos)?;
                if !self.vars[var].mutable {
                    let mistake =
                        Diagnostic::new(Code::NotMutable, to.pos, format!("`{name}` does not change"));
                    return Err(mistake.help(if self.vars[var].is_copy {
                        format!("a task has a copy of `{name}`; send the new value through a channel, or return it")
                    } else {
                        format!("declare it with `var {name}`")
                    }));
                }
                let (old, ty) = (self.vars[var].value, self.vars[var].ty.clone());
                let new = self.combined(op, old, &ty, value, pos)?;
                self.vars[var].value = new;
                Ok(())
            }
            ExprKind::Index(slice, index) => {
                let (slice, element) = self.slice(slice)?;
                let index = self.value_of(index, &Ty::Plain(Type::I64))?;
                let old = match op {
                    Some(_) => self.emit_one(Op::Load(slice, index), element.clone(), pos),
                    None => slice,
                };
                let new = self.combined(op, old, &Ty::Plain(element), value, pos)?;
                self.emit(Op::Store(slice, index, new), &[], pos);
                Ok(())
            }
            ExprKind::Field(of, field) => {
                let (of, at, ty) = self.field(of, field)?;
                let old = match op {
                    Some(_) => self.emit_one(Op::Field(of, at), ty.clone(), pos),
                    None => of,
                };
                let new = self.combined(op, old, &Ty::Plain(ty), value, pos)?;
                self.emit(Op::SetField(of, at, new), &[], pos);
                Ok(())
            }
            _ => unreachable!("the parser takes no other"),
        }
    }

    /// The value, or what `old` and the value come to.
    fn combined(
        &mut self,
        op: Option<Binary>,
        old: Value,
        ty: &Ty,
        value: &Expr,
        pos: Pos,
    ) -> Lowered<Value> {
        let new = self.value_of(value, ty)?;
        match op {
            None => Ok(new),
            Some(op) => self.binary(op, &(old, ty.clone()), &(new, ty.clone()), pos).map(|(value, _)| value),
        }
    }

    fn conditional(&mut self, condition: &Expr, yes: &Body, no: Option<&Body>, pos: Pos) -> Lowered {
        let condition = self.value_of(condition, &Ty::Plain(Type::Bool))?;
        let (yes_block, no_block) = (self.new_block(&[]), self.new_block(&[]));
        self.branch(condition, target(yes_block, Vec::new()), target(no_block, Vec::new()), pos);
        let before = self.values();
        self.at = Some(yes_block);
        self.body(yes)?;
        let after_yes = (self.at, self.values());
        self.at = Some(no_block);
        self.restore(&before);
        if let Some(no) = no {
            self.body(no)?;
        }
        let after_no = (self.at, self.values());
        self.join(after_yes, after_no, pos);
        Ok(())
    }

    fn turns(&mut self, turns: &Turns<'_>, body: &Body, pos: Pos) -> Lowered {
        let mut assigned: Vec<usize> =
            names::assigned(body).iter().filter_map(|name| self.find(name)).collect();
        assigned.sort_unstable();
        assigned.dedup();
        let types = self.types_of(&assigned);
        let counts = matches!(turns, Turns::Count(..));
        let mut header_types = types.clone();
        header_types.extend(counts.then_some(Type::I64));
        let (header, inside, exit) =
            (self.new_block(&header_types), self.new_block(&[]), self.new_block(&types));
        let mut args = self.values_of(&assigned);
        if let Turns::Count(from, ..) = turns {
            args.push(*from);
        }
        self.jump(header, args, pos);
        self.at = Some(header);
        let params = self.function.blocks[header].params.clone();
        self.set_values(&assigned, &params);
        let index = *params.last().unwrap_or(&Value(0));
        match turns {
            Turns::While(Expr { kind: ExprKind::Bool(true), .. }) => self.jump(inside, Vec::new(), pos),
            Turns::While(condition) => {
                let condition = self.value_of(condition, &Ty::Plain(Type::Bool))?;
                let args = self.values_of(&assigned);
                self.branch(condition, target(inside, Vec::new()), target(exit, args), pos);
            }
            Turns::Count(_, to, ..) => {
                let goes_on = self.emit_one(Op::Binary(Binary::Lt, index, *to), Type::Bool, pos);
                let args = self.values_of(&assigned);
                self.branch(goes_on, target(inside, Vec::new()), target(exit, args), pos);
            }
        }
        self.at = Some(inside);
        let nurseries = self.nurseries.len();
        self.loops.push(Loop { exit, again: None, assigned: assigned.clone(), nurseries });
        let outside = self.vars.len();
        if let Turns::Count(_, _, name, of) = turns {
            let (value, ty) = match of {
                Some((slice, element)) => {
                    (self.emit_one(Op::Load(*slice, index), element.clone(), pos), element.clone())
                }
                None => (index, Type::I64),
            };
            self.declare(name, Ty::Plain(ty), value, false)?;
        }
        self.body(body)?;
        self.vars.truncate(outside);
        let left = self.loops.pop();
        if let Some(again) = left.and_then(|left| left.again) {
            let args = self.values_of(&assigned);
            self.jump(again, args, pos);
            self.at = Some(again);
            let params = self.function.blocks[again].params.clone();
            self.set_values(&assigned, &params);
        }
        if self.at.is_some() {
            let mut args = self.values_of(&assigned);
            if counts {
                let one = self.int(1, pos);
                args.push(self.emit_one(Op::Binary(Binary::AddWrap, index, one), Type::I64, pos));
            }
            self.jump(header, args, pos);
        }
        let params = self.function.blocks[exit].params.clone();
        self.set_values(&assigned, &params);
        // An exit that nothing leads to belongs to a loop without end. What leads there is not older than the loop.
        let is_left = self.function.blocks[header..]
            .iter()
            .any(|block| block.end.targets().iter().any(|target| target.block.0 as usize == exit));
        self.at = is_left.then_some(exit);
        Ok(())
    }

    fn leave_loop(&mut self, pos: Pos, word: &str) -> Lowered {
        let Some(inner) = self.loops.last() else {
            return Err(Diagnostic::new(Code::Flow, pos, format!("`{word}` outside of a loop")));
        };
        if inner.nurseries != self.nurseries.len() {
            return Err(leaves_nursery(pos, word));
        }
        let (exit, assigned) = (inner.exit, inner.assigned.clone());
        let args = self.values_of(&assigned);
        if word == "break" {
            self.jump(exit, args, pos);
            return Ok(());
        }
        let again = match inner.again {
            Some(again) => again,
            None => {
                let types = self.types_of(&assigned);
                let again = self.new_block(&types);
                if let Some(inner) = self.loops.last_mut() {
                    inner.again = Some(again);
                }
                again
            }
        };
        self.jump(again, args, pos);
        Ok(())
    }

    fn give_back(&mut self, value: Option<&Expr>, pos: Pos) -> Lowered {
        if !self.nurseries.is_empty() {
            return Err(leaves_nursery(pos, "return"));
        }
        let wanted = self.function.result.clone();
        let value = match (value, &wanted) {
            (None, Type::Unit) => None,
            (None, wanted) => {
                let message = format!("`return` needs {}", self.unit.type_name(wanted));
                return Err(Diagnostic::new(Code::Mismatch, pos, message));
            }
            (Some(value), Type::Unit) => {
                let message = if self.is_block {
                    "the block of a task returns nothing"
                } else {
                    "this function returns nothing"
                };
                let help =
                    if self.is_block { "spawn a function" } else { "say what it returns, as `-> i64`" };
                return Err(Diagnostic::new(Code::Mismatch, value.pos, message).help(help));
            }
            (Some(value), wanted) => Some(self.value_of(value, &Ty::Plain(wanted.clone()))?),
        };
        self.end(Terminator::Return(value), pos);
        Ok(())
    }

    /// Ends the function with an error.
    pub(super) fn fail(&mut self, code: Value, pos: Pos, word: &str) -> Lowered {
        if !self.nurseries.is_empty() {
            return Err(leaves_nursery(pos, word));
        }
        if self.is_block {
            self.function.fails = true;
        }
        if !self.function.fails {
            let message = format!("`{word}` in a function that cannot fail");
            return Err(Diagnostic::new(Code::Unhandled, pos, message)
                .help("declare its result with `!`, as `-> !i64`"));
        }
        self.end(Terminator::Fail(code), pos);
        Ok(())
    }
}

fn leaves_nursery(pos: Pos, word: &str) -> Diagnostic {
    let message = format!("`{word}` would leave a nursery whose tasks may still run");
    Diagnostic::new(Code::LeavesNursery, pos, message)
        .help("keep the value in a variable and leave after the nursery's end")
}
