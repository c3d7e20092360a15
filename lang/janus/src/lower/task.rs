//! Nurseries, tasks, asynchronous calls and channels.

use super::scope::Var;
use super::{FnLower, Lowered, Ty, Val, names, too_many};
use crate::ast::{Body, Expr, Named, SpawnWhat};
use crate::diagnostic::{Code, Diagnostic};
use mainspring::Profile;
use mainspring_qtjir::{MAX_FUNCTIONS, Op, Pos, Tenancy, Terminator, Type, Value};

/// The parts of a budget, in the order of the operands of `Task_Create`.
const AMOUNTS: [&str; 5] = ["ops", "memory", "spawn_count", "channel_ops", "syscalls"];

impl FnLower<'_> {
    pub(super) fn no_nursery(&self, pos: Pos, word: &str) -> Diagnostic {
        let message = format!("NurseryNotActive: `{word}` outside of a nursery");
        Diagnostic::new(Code::NurseryNotActive, pos, message)
            .help("put it into `nursery { … }`, which waits for its tasks")
    }

    /// What needs a scheduler.
    pub(super) fn scheduled(&self, pos: Pos, what: &str) -> Lowered {
        if self.unit.profile != Profile::Core {
            return Ok(());
        }
        let message = format!("{what} needs a scheduler, and the core profile has none");
        Err(Diagnostic::new(Code::NotPermitted, pos, message)
            .help("begin the file with {.profile: service.}"))
    }

    /// In a sovereign program, what `cap` allows needs it in scope.
    fn permitted(&self, cap: &Type, pos: Pos, what: &str) -> Lowered {
        let held = self.vars.iter().any(|var| var.ty == Ty::Plain(cap.clone()));
        if self.unit.profile != Profile::Sovereign || held {
            return Ok(());
        }
        let name = self.unit.type_name(cap);
        let message = format!("in a sovereign program {what} needs a {name}");
        Err(Diagnostic::new(Code::NotPermitted, pos, message)
            .help(format!("take one as a parameter, as `cap: {name}`")))
    }

    pub(super) fn nursery(
        &mut self,
        body: &Body,
        try_it: bool,
        catch: Option<&(Option<Named>, Body)>,
        pos: Pos,
    ) -> Lowered {
        let before = self.values();
        let nursery = self.emit_one(Op::NurseryBegin, Type::Nursery, pos);
        self.nurseries.push(nursery);
        self.body(body)?;
        self.nurseries.pop();
        if self.at.is_none() {
            let message = "control never reaches the end of this nursery";
            return Err(Diagnostic::new(Code::Flow, body.end, message).help("a nursery ends at its brace"));
        }
        let code = self.emit_one(Op::NurseryEnd(nursery), Type::I64, body.end);
        if try_it && !self.function.fails && !self.is_block {
            let mistake = Diagnostic::new(Code::Unhandled, pos, "`try` in a function that cannot fail");
            return Err(
                mistake.help("declare its result with `!`, as `-> !i64`, or handle the error with `catch`")
            );
        }
        // A nursery that fails may have been left anywhere, so its variables are then as they were before it.
        let after = self.values();
        let Some((name, handler)) = catch else {
            let fails = self.function.fails && self.nurseries.is_empty() || try_it;
            return self.on_error(code, body.end, |this| {
                if fails {
                    return this.fail(code, pos, "try");
                }
                this.end(Terminator::Raise(code), pos);
                Ok(())
            });
        };
        let mut failed = (None, Vec::new());
        self.on_error(code, body.end, |this| {
            this.restore(&before);
            let outside = this.vars.len();
            if let Some(name) = name {
                this.declare(name, Ty::Error, code, false)?;
            }
            this.body(handler)?;
            this.vars.truncate(outside);
            failed = (this.at, this.values());
            Ok(())
        })?;
        self.restore(&after);
        let ok = (self.at, after);
        self.join(ok, failed, body.end);
        Ok(())
    }

    pub(super) fn spawn(&mut self, what: &SpawnWhat, pos: Pos) -> Lowered<Val> {
        if self.nurseries.is_empty() {
            return Err(self.no_nursery(pos, "spawn"));
        }
        self.permitted(&Type::CapSpawn, pos, "`spawn`")?;
        let (name, args, budget, result) = match what {
            SpawnWhat::Call { name, args, budget } => {
                let values = self.call_args(name, args)?;
                let result = self.unit.functions[&name.name].result.clone();
                (name.name.clone(), values, budget, result)
            }
            SpawnWhat::Block { body, budget } => {
                let (name, values) = self.task_block(body, pos)?;
                (name, values, budget, Type::Unit)
            }
        };
        self.sendable(&args, &result, pos)?;
        let handle = Type::Task(Box::new(result));
        let op = if budget.is_empty() {
            Op::Spawn(Tenancy::CpuParallel, name, args)
        } else {
            self.permitted(&Type::CapBudget, pos, "a budget of one's own choice")?;
            let amounts = self.amounts(budget, pos)?;
            Op::TaskCreate(Tenancy::CpuParallel, name, args, amounts)
        };
        let value = self.emit_one(op, handle.clone(), pos);
        Ok(Val { value: Some(value), ty: Ty::Plain(handle), code: None })
    }

    fn sendable(&self, args: &[Value], result: &Type, pos: Pos) -> Lowered {
        let of = args
            .iter()
            .map(|value| self.function.type_of(*value))
            .chain([result])
            .find(|of| !of.can_be_sent());
        match of {
            None => Ok(()),
            Some(of) => {
                let message = format!("{} does not leave its task", self.unit.type_name(of));
                Err(Diagnostic::new(Code::Mismatch, pos, message))
            }
        }
    }

    /// An amount that is not named is the profile's default.
    fn amounts(&mut self, budget: &[(Named, Expr)], pos: Pos) -> Lowered<[Value; 5]> {
        let default = self.unit.profile.child_budget();
        let defaults = [
            i64::from(default.ops),
            default.memory as i64,
            0,
            i64::from(default.channel_ops),
            i64::from(default.syscalls),
        ];
        let mut amounts = [None; 5];
        for (name, amount) in budget {
            let Some(at) = AMOUNTS.iter().position(|known| *known == name.name) else {
                let mistake =
                    Diagnostic::new(Code::UnknownName, name.pos, format!("a budget has no `{}`", name.name));
                let mistake = mistake.help(format!("it has {}", AMOUNTS.join(", ")));
                return Err(mistake.similar(&name.name, AMOUNTS.into_iter()));
            };
            amounts[at] = Some(self.value_of(amount, &Ty::Plain(Type::I64))?);
        }
        let mut values = [Value(0); 5];
        for (at, amount) in amounts.into_iter().enumerate() {
            values[at] = match amount {
                Some(value) => value,
                None => self.int(defaults[at], pos),
            };
        }
        Ok(values)
    }

    /// Makes a function of a block. Its parameters are copies of the variables that the block uses.
    fn task_block(&mut self, body: &Body, pos: Pos) -> Lowered<(String, Vec<Value>)> {
        if self.made.len() >= MAX_FUNCTIONS {
            return Err(too_many("blocks of tasks", pos));
        }
        let used = names::used(body);
        let is_used = |var: &Var| {
            let by_name = used.names.contains(&var.name);
            let by_right = used.spawns && var.ty == Ty::Plain(Type::CapSpawn)
                || used.budgets && var.ty == Ty::Plain(Type::CapBudget);
            (by_name || by_right) && var.ty.ir().can_be_sent()
        };
        // The innermost of each name.
        let taken: Vec<usize> = (0..self.vars.len())
            .filter(|&at| is_used(&self.vars[at]) && self.find(&self.vars[at].name) == Some(at))
            .collect();
        let name = format!("{}${}_{}", self.function.name, pos.line, pos.column);
        let mut inner = FnLower::new(self.unit, name.clone(), Type::Unit, false, pos);
        inner.is_block = true;
        let types = self.types_of(&taken);
        let entry = inner.new_block(&types);
        inner.at = Some(entry);
        let params = inner.function.blocks[entry].params.clone();
        for (var, value) in taken.iter().zip(params) {
            let Var { name, ty, .. } = &self.vars[*var];
            let (name, ty) = (name.clone(), ty.clone());
            inner.vars.push(Var { name, ty, value, mutable: false, is_copy: true });
        }
        inner.body(body)?;
        self.made.extend(inner.finish(body.end));
        Ok((name, self.values_of(&taken)))
    }

    pub(super) fn async_call(&mut self, name: &Named, args: Vec<Value>, pos: Pos) -> Lowered<Val> {
        if self.nurseries.is_empty() {
            return Err(self.no_nursery(pos, &format!("{}(…), which is asynchronous,", name.name)));
        }
        self.permitted(&Type::CapSpawn, pos, "an asynchronous call")?;
        let sig = &self.unit.functions[&name.name];
        self.sendable(&args, &sig.result, pos)?;
        let of = Type::Future { result: Box::new(sig.result.clone()), fails: sig.fails };
        let value =
            self.emit_one(Op::AsyncCall(Tenancy::CpuParallel, name.name.clone(), args), of.clone(), pos);
        Ok(Val { value: Some(value), ty: Ty::Plain(of), code: None })
    }

    pub(super) fn awaited(&mut self, task: &Expr, pos: Pos) -> Lowered<Val> {
        let (handle, ty) = self.value(task)?;
        let (result, fails) = match ty {
            Ty::Plain(Type::Task(result)) => (*result, false),
            Ty::Plain(Type::Future { result, fails }) => (*result, fails),
            other => {
                let message = format!("`await` needs a task, not {}", self.unit.name_of(&other));
                let mistake = Diagnostic::new(Code::Mismatch, task.pos, message);
                return Err(mistake.help("spawn it, or declare the function as `async fn`"));
            }
        };
        if self.nurseries.is_empty() {
            return Err(self.no_nursery(pos, "await"));
        }
        let mut types = Vec::new();
        types.extend((result != Type::Unit).then(|| result.clone()));
        types.extend(fails.then_some(Type::I64));
        let results = self.emit(Op::Await(handle), &types, pos);
        Ok(Val {
            value: (result != Type::Unit).then(|| results[0]),
            ty: Ty::Plain(result),
            code: if fails { results.last().copied() } else { None },
        })
    }

    pub(super) fn method(&mut self, of: &Expr, name: &Named, args: &[Expr], pos: Pos) -> Lowered<Val> {
        let (channel, ty) = self.value(of)?;
        let Ty::Plain(Type::Chan(element)) = ty else {
            let message = format!("{} has no method `{}`", self.unit.name_of(&ty), name.name);
            return Err(Diagnostic::new(Code::UnknownName, name.pos, message));
        };
        match name.name.as_str() {
            "send" => {
                self.count_args(name, args, 1)?;
                let value = self.value_of(&args[0], &Ty::Plain(*element))?;
                let code = self.emit_one(Op::Send(channel, value), Type::I64, pos);
                Ok(Val { code: Some(code), ..Val::nothing() })
            }
            "recv" => {
                self.count_args(name, args, 0)?;
                let results = self.emit(Op::Recv(channel), &[(*element).clone(), Type::I64], pos);
                Ok(Val { value: Some(results[0]), ty: Ty::Plain(*element), code: Some(results[1]) })
            }
            "close" => {
                self.count_args(name, args, 0)?;
                self.emit(Op::Close(channel), &[], pos);
                Ok(Val::nothing())
            }
            other => {
                let mistake = Diagnostic::new(
                    Code::UnknownName,
                    name.pos,
                    format!("a channel has no method `{other}`"),
                );
                Err(mistake.similar(other, ["send", "recv", "close"].into_iter()))
            }
        }
    }

    /// `recharge(task, ops)` by a supervisor, or `recharge(ops)` of the task itself.
    pub(super) fn recharge(&mut self, name: &Named, args: &[Expr], pos: Pos) -> Lowered<Val> {
        self.scheduled(pos, "`recharge`")?;
        self.permitted(&Type::CapBudget, pos, "`recharge`")?;
        if let [ops] = args {
            let ops = self.value_of(ops, &Ty::Plain(Type::I64))?;
            self.emit(Op::RechargeSelf(ops), &[], pos);
            return Ok(Val::nothing());
        }
        self.count_args(name, args, 2)?;
        if self.unit.profile != Profile::Cluster {
            let mistake = Diagnostic::new(
                Code::NotPermitted,
                pos,
                "only a supervisor of the cluster profile recharges tasks",
            );
            return Err(mistake.help("begin the file with {.profile: cluster.}"));
        }
        let (task, ty) = self.value(&args[0])?;
        if !matches!(ty, Ty::Plain(Type::Task(_))) {
            let message = format!("`recharge` needs a task, not {}", self.unit.name_of(&ty));
            return Err(Diagnostic::new(Code::Mismatch, args[0].pos, message));
        }
        let ops = self.value_of(&args[1], &Ty::Plain(Type::I64))?;
        self.emit(Op::Recharge(task, ops), &[], pos);
        Ok(Val::nothing())
    }
}
