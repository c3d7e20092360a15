//! `while` loops that are counted by what they count themselves: `while i < end { …; i += step; }`.
//!
//! Conserved: such a loop is left by its condition only, and nothing in it but its last statement changes the counter or the step. So
//! the counter says how often the loop went round, and it may be given less far to go.

use crate::certain;
use crate::survey::Survey;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprPath, ExprWhile, Ident, Lit, Macro, Pat, PatIdent, Stmt};

/// The parts of such a loop.
pub(crate) struct Strides {
    pub(crate) counter: Ident,
    pub(crate) bound: Expr,
    pub(crate) step: Expr,
}

impl Strides {
    /// Of a loop without others in it, if it is such a one. Not with calls: those would be counted with the rounds, and a loop may be
    /// unpaid for no more than its rounds.
    pub(crate) fn of(each: &ExprWhile, context: &Ident) -> Option<Self> {
        let found = Survey::of(&each.body, context);
        if found.leaves() || found.context || found.loops || found.is_one_of_a_kind {
            return None;
        }
        let Expr::Binary(condition) = &*each.cond else { return None };
        if !matches!(condition.op, BinOp::Lt(_)) || !is_plain(&condition.right) {
            return None;
        }
        let counter = variable(&condition.left)?.clone();
        let (last, others) = each.body.stmts.split_last()?;
        let Stmt::Expr(Expr::Binary(last), _) = last else { return None };
        if !matches!(last.op, BinOp::AddAssign(_)) || *variable(&last.left)? != counter {
            return None;
        }
        let step = &*last.right;
        let is_number = matches!(step, Expr::Lit(literal) if matches!(literal.lit, Lit::Int(_)));
        let names = [Some(&counter), variable(step)];
        if !is_number && (names[1].is_none() || names[1] == names[0]) {
            return None;
        }
        let mut changes = Changes { names, found: false };
        others.iter().for_each(|statement| changes.visit_stmt(statement));
        if changes.found {
            return None;
        }
        Some(Self { counter, bound: (*condition.right).clone(), step: step.clone() })
    }
}

fn variable(expr: &Expr) -> Option<&Ident> {
    let Expr::Path(ExprPath { path, qself: None, .. }) = expr else { return None };
    path.get_ident()
}

/// Whether it may be evaluated once more: numbers, variables, their fields, and how long they are.
fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(literal) => matches!(literal.lit, Lit::Int(_)),
        Expr::Path(_) => variable(expr).is_some(),
        Expr::Field(field) => is_plain(&field.base),
        Expr::MethodCall(call) => call.method == "len" && call.args.is_empty() && is_plain(&call.receiver),
        _ => false,
    }
}

/// Whether something may change one of the variables, or means another by its name, or is a call.
struct Changes<'a> {
    names: [Option<&'a Ident>; 2],
    found: bool,
}

impl Changes<'_> {
    fn names(&self, name: &Ident) -> bool {
        self.names.contains(&Some(name))
    }

    fn is_named(&self, expr: &Expr) -> bool {
        variable(expr).is_some_and(|name| self.names(name))
    }

    fn visit_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.visit_tokens(group.stream()),
                TokenTree::Ident(word) => self.found |= self.names(&word),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Changes<'_> {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        self.found |= match expr {
            Expr::Assign(assign) => contains(&assign.left, self),
            Expr::Binary(binary) => is_assignment(&binary.op) && self.is_named(&binary.left),
            Expr::Reference(reference) => reference.mutability.is_some() && self.is_named(&reference.expr),
            Expr::RawAddr(address) => self.is_named(&address.expr),
            Expr::Call(call) => !matches!(&*call.func, Expr::Path(_)) || certain::counts(&call.func),
            // A trait may give numbers a method that changes them.
            Expr::MethodCall(call) => self.is_named(&call.receiver),
            _ => false,
        };
        visit::visit_expr(self, expr);
    }

    fn visit_pat(&mut self, pattern: &'ast Pat) {
        if let Pat::Ident(PatIdent { ident, .. }) = pattern {
            self.found |= self.names(ident);
        }
        visit::visit_pat(self, pattern);
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        self.visit_tokens(mac.tokens.clone());
    }
}

/// What is assigned to may be a tuple of variables; an index of one is only read.
fn contains(target: &Expr, changes: &Changes<'_>) -> bool {
    match target {
        Expr::Tuple(parts) => parts.elems.iter().any(|part| contains(part, changes)),
        Expr::Paren(inner) => contains(&inner.expr, changes),
        Expr::Array(parts) => parts.elems.iter().any(|part| contains(part, changes)),
        Expr::Call(parts) => parts.args.iter().any(|part| contains(part, changes)),
        Expr::Struct(parts) => parts.fields.iter().any(|part| contains(&part.expr, changes)),
        target => changes.is_named(target),
    }
}

fn is_assignment(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}
