//! Variables and loops.

use super::{FnLower, Lowered, Ty, twice};
use crate::ast::Named;
use crate::diagnostic::{Code, Diagnostic};
use mainspring_qtjir::{Pos, Type, Value};

pub(super) struct Var {
    pub(super) name: String,
    pub(super) ty: Ty,
    pub(super) value: Value,
    pub(super) mutable: bool,
    /// A copy that the body of a `spawn { }` has.
    pub(super) is_copy: bool,
}

pub(super) struct Loop {
    pub(super) exit: usize,
    /// Where `continue` goes, once there is one.
    pub(super) again: Option<usize>,
    /// The variables that the loop assigns.
    pub(super) assigned: Vec<usize>,
    /// How many nurseries were open around it.
    pub(super) nurseries: usize,
}

impl FnLower<'_> {
    pub(super) fn declare(&mut self, name: &Named, ty: Ty, value: Value, mutable: bool) -> Lowered {
        if self.vars.len() >= 4096 {
            return Err(Diagnostic::new(Code::TooLarge, name.pos, "more than 4096 variables")
                .help("split the function"));
        }
        if self.unit.functions.contains_key(&name.name) {
            return Err(twice(&name.name, name.pos));
        }
        self.vars.push(Var { name: name.name.clone(), ty, value, mutable, is_copy: false });
        Ok(())
    }

    /// The innermost variable of this name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.vars.iter().rposition(|var| var.name == name)
    }

    pub(super) fn lookup(&self, name: &str, pos: Pos) -> Lowered<usize> {
        self.find(name).ok_or_else(|| {
            let names = self.vars.iter().map(|var| var.name.as_str());
            Diagnostic::new(Code::UnknownName, pos, format!("there is no variable `{name}`"))
                .similar(name, names)
        })
    }

    /// The values of all variables.
    pub(super) fn values(&self) -> Vec<Value> {
        self.vars.iter().map(|var| var.value).collect()
    }

    pub(super) fn restore(&mut self, values: &[Value]) {
        for (var, value) in self.vars.iter_mut().zip(values) {
            var.value = *value;
        }
    }

    pub(super) fn values_of(&self, vars: &[usize]) -> Vec<Value> {
        vars.iter().map(|var| self.vars[*var].value).collect()
    }

    pub(super) fn types_of(&self, vars: &[usize]) -> Vec<Type> {
        vars.iter().map(|var| self.vars[*var].ty.ir()).collect()
    }

    pub(super) fn set_values(&mut self, vars: &[usize], values: &[Value]) {
        for (var, value) in vars.iter().zip(values) {
            self.vars[*var].value = *value;
        }
    }

    /// Two ways join, one or both of which may have ended: each with where it is and the values of its variables there.
    pub(super) fn join(
        &mut self,
        one: (Option<usize>, Vec<Value>),
        other: (Option<usize>, Vec<Value>),
        pos: Pos,
    ) {
        let (first, second) = match (one, other) {
            ((Some(a), a_values), (Some(b), b_values)) => ((a, a_values), (b, b_values)),
            ((None, _), (at, values)) | ((at, values), (None, _)) => {
                self.at = at;
                self.restore(&values);
                return;
            }
        };
        let differ: Vec<usize> = (0..self.vars.len()).filter(|&var| first.1[var] != second.1[var]).collect();
        let types = self.types_of(&differ);
        let joined = self.new_block(&types);
        for (at, values) in [first, second] {
            self.at = Some(at);
            self.restore(&values);
            let args = self.values_of(&differ);
            self.jump(joined, args, pos);
        }
        self.at = Some(joined);
        let params = self.function.blocks[joined].params.clone();
        self.set_values(&differ, &params);
    }
}
