//! Iterations that need no count of their own: whatever way they take, they come by a check before they can end, and it counts them.
//!
//! Conserved: a check is marked only if each iteration that begins comes by it, once.

use crate::survey::{Survey, is_short};
use syn::{Attribute, BinOp, Block, Expr, ExprCall, ExprForLoop, Ident, Stmt, parse_quote};

/// What an iteration comes by first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    /// A check, which is marked now.
    Check,
    /// Something that may leave the iteration.
    Exit,
    Neither,
}

/// Marks the check that counts the iterations of a loop with this body, if there is one.
pub(crate) fn mark_check(body: &mut Block, context: &Ident) -> bool {
    in_block(body, context) == Met::Check
}

/// Whether a loop or a call was marked. It is not any more.
pub(crate) fn take_mark(attributes: &mut Vec<Attribute>) -> bool {
    let before = attributes.len();
    attributes.retain(|attribute| !attribute.path().is_ident("__mainspring_counts_iteration"));
    attributes.len() < before
}

fn mark(attributes: &mut Vec<Attribute>) -> Met {
    attributes.push(parse_quote!(#[__mainspring_counts_iteration]));
    Met::Check
}

/// The first of these that is not `Neither`.
fn first(met: impl IntoIterator<Item = Met>) -> Met {
    met.into_iter().find(|met| *met != Met::Neither).unwrap_or(Met::Neither)
}

fn in_block(block: &mut Block, context: &Ident) -> Met {
    first(block.stmts.iter_mut().map(|statement| match statement {
        Stmt::Local(local) => match &mut local.init {
            Some(init) => match in_expr(&mut init.expr, context) {
                Met::Neither if init.diverge.is_some() => Met::Exit,
                met => met,
            },
            None => Met::Neither,
        },
        Stmt::Expr(expr, _) => in_expr(expr, context),
        Stmt::Item(_) => Met::Neither,
        Stmt::Macro(_) => exit_if(Survey::of_statement(statement, context).leaves()),
    }))
}

/// In the order of evaluation.
fn in_expr(expr: &mut Expr, context: &Ident) -> Met {
    let met = match expr {
        Expr::ForLoop(each) => in_expr(&mut each.expr, context),
        Expr::Call(call) => return in_call(call, context),
        Expr::MethodCall(call) => {
            let receiver = in_expr(&mut call.receiver, context);
            first(
                [receiver].into_iter().chain(call.args.iter_mut().map(|argument| in_expr(argument, context))),
            )
        }
        Expr::Binary(binary) => match in_expr(&mut binary.left, context) {
            Met::Neither if !matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) => {
                in_expr(&mut binary.right, context)
            }
            met => met,
        },
        Expr::Assign(assign) => in_expr(&mut assign.right, context),
        Expr::Let(condition) => in_expr(&mut condition.expr, context),
        Expr::If(branch) => in_expr(&mut branch.cond, context),
        Expr::Match(branches) => in_expr(&mut branches.expr, context),
        Expr::Try(tried) => in_expr(&mut tried.expr, context),
        Expr::Paren(inner) => in_expr(&mut inner.expr, context),
        Expr::Group(inner) => in_expr(&mut inner.expr, context),
        Expr::Unary(inner) => in_expr(&mut inner.expr, context),
        Expr::Reference(inner) => in_expr(&mut inner.expr, context),
        Expr::Cast(inner) => in_expr(&mut inner.expr, context),
        Expr::Field(inner) => in_expr(&mut inner.base, context),
        Expr::Block(inner) if inner.label.is_none() => return in_block(&mut inner.block, context),
        Expr::Unsafe(inner) => return in_block(&mut inner.block, context),
        _ => Met::Neither,
    };
    match (met, expr) {
        (Met::Neither, Expr::ForLoop(each)) if is_counted_as_a_whole(each, context) => mark(&mut each.attrs),
        (Met::Neither, expr) => unmarked(expr, context),
        (met, _) => met,
    }
}

fn in_call(call: &mut ExprCall, context: &Ident) -> Met {
    let is_counted = counts(&call.func);
    for argument in &mut call.args {
        if is_counted && is_context(argument, context) {
            return mark(&mut call.attrs);
        }
        match in_expr(argument, context) {
            Met::Neither => {}
            met => return met,
        }
    }
    unmarked(&call.func, context)
}

fn unmarked(expr: &Expr, context: &Ident) -> Met {
    exit_if(Survey::of_expr(expr, context).leaves())
}

fn exit_if(leaves: bool) -> Met {
    if leaves { Met::Exit } else { Met::Neither }
}

/// Whether a loop counts its iterations before the first of them.
fn is_counted_as_a_whole(each: &ExprForLoop, context: &Ident) -> bool {
    let found = Survey::of(&each.body, context);
    !is_short(each) && found.is_left_by_its_items_only() && !found.loops && !found.is_one_of_a_kind
}

/// Whether a call of this counts as one: a path whose last name begins with a capital makes a value, it calls nothing.
pub(crate) fn counts(function: &Expr) -> bool {
    let Expr::Path(path) = function else { return false };
    let last = path.path.segments.last().map(|segment| segment.ident.to_string());
    !last.is_some_and(|name| name.starts_with(char::is_uppercase))
}

pub(crate) fn is_context(expr: &Expr, context: &Ident) -> bool {
    matches!(expr, Expr::Path(path) if path.path.is_ident(context))
}
