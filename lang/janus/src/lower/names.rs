//! Which names a part of the tree assigns or uses.

use crate::ast::{Body, Expr, ExprKind, SpawnWhat, Stmt, StmtKind};
use std::collections::BTreeSet;

/// Functions of the language.
pub(super) const BUILTINS: [&str; 5] = ["print", "len", "int", "float", "recharge"];

/// The names that a body assigns. Bodies of tasks have copies, and assign nothing.
pub(super) fn assigned(body: &Body) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    bodies(body, &mut |statement| {
        if let StmtKind::Assign { to: Expr { kind: ExprKind::Name(name), .. }, .. } = &statement.kind {
            names.insert(name.clone());
        }
    });
    names
}

/// Visits the statements of a body and of the bodies in it.
fn bodies(body: &Body, visit: &mut dyn FnMut(&Stmt)) {
    for statement in &body.statements {
        visit(statement);
        for inner in bodies_of(statement) {
            bodies(inner, visit);
        }
    }
}

fn bodies_of(statement: &Stmt) -> Vec<&Body> {
    match &statement.kind {
        StmtKind::If { yes, no, .. } => std::iter::once(yes).chain(no).collect(),
        StmtKind::While { body, .. } | StmtKind::ForRange { body, .. } | StmtKind::ForEach { body, .. } => {
            vec![body]
        }
        StmtKind::Nursery { body, catch, .. } => {
            std::iter::once(body).chain(catch.as_ref().map(|(_, body)| body)).collect()
        }
        _ => Vec::new(),
    }
}

/// What the body of a task takes from around it.
#[derive(Default)]
pub(super) struct Used {
    pub(super) names: BTreeSet<String>,
    pub(super) spawns: bool,
    pub(super) budgets: bool,
}

pub(super) fn used(body: &Body) -> Used {
    let mut used = Used::default();
    in_body(body, &mut used);
    used
}

fn in_body(body: &Body, used: &mut Used) {
    bodies(body, &mut |statement| {
        for expr in exprs_of(statement) {
            in_expr(expr, used);
        }
    });
}

fn exprs_of(statement: &Stmt) -> Vec<&Expr> {
    match &statement.kind {
        StmtKind::Let { value, .. } => vec![value],
        StmtKind::Assign { to, value, .. } => vec![to, value],
        StmtKind::If { condition, .. } | StmtKind::While { condition, .. } => vec![condition],
        StmtKind::ForRange { from, to, .. } => vec![from, to],
        StmtKind::ForEach { of, .. } => vec![of],
        StmtKind::Return(Some(value)) | StmtKind::Fail(value) | StmtKind::Expr(value) => vec![value],
        StmtKind::Return(None)
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Yield
        | StmtKind::Cancel
        | StmtKind::Nursery { .. } => Vec::new(),
    }
}

fn in_expr(expr: &Expr, used: &mut Used) {
    match &expr.kind {
        ExprKind::Name(name) => {
            used.names.insert(name.clone());
        }
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Bool(_)
        | ExprKind::Text(_)
        | ExprKind::ErrorName(_) => {}
        ExprKind::Neg(a)
        | ExprKind::Not(a)
        | ExprKind::Await(a)
        | ExprKind::Try(a)
        | ExprKind::Field(a, _)
        | ExprKind::Make(_, a) => in_expr(a, used),
        ExprKind::Binary(_, a, b)
        | ExprKind::And(a, b)
        | ExprKind::Or(a, b)
        | ExprKind::Catch(a, b)
        | ExprKind::Index(a, b) => {
            in_expr(a, used);
            in_expr(b, used);
        }
        ExprKind::Call(name, args) => {
            used.budgets |= name.name == "recharge";
            // An asynchronous call spawns.
            used.spawns = true;
            args.iter().for_each(|arg| in_expr(arg, used));
        }
        ExprKind::List(items) => items.iter().for_each(|item| in_expr(item, used)),
        ExprKind::Method(of, _, args) => {
            in_expr(of, used);
            args.iter().for_each(|arg| in_expr(arg, used));
        }
        ExprKind::StructLit(_, fields) => fields.iter().for_each(|(_, value)| in_expr(value, used)),
        ExprKind::Spawn(what) => {
            used.spawns = true;
            let budget = match &**what {
                SpawnWhat::Call { args, budget, .. } => {
                    args.iter().for_each(|arg| in_expr(arg, used));
                    budget
                }
                SpawnWhat::Block { body, budget } => {
                    in_body(body, used);
                    budget
                }
            };
            used.budgets |= !budget.is_empty();
            budget.iter().for_each(|(_, amount)| in_expr(amount, used));
        }
    }
}
