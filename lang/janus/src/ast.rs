//! A source file as a tree. Its height is bounded, so that what walks it need not count.

use mainspring::Profile;
use mainspring_qtjir::{Binary, Pos};

pub(crate) struct File {
    pub(crate) profile: Profile,
    pub(crate) interval: Option<u32>,
    pub(crate) errors: Vec<Named>,
    pub(crate) structs: Vec<Struct>,
    pub(crate) functions: Vec<Func>,
}

pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) pos: Pos,
}

pub(crate) struct Struct {
    pub(crate) name: Named,
    pub(crate) fields: Vec<(Named, TypeExpr)>,
}

pub(crate) struct Func {
    pub(crate) name: Named,
    pub(crate) params: Vec<(Named, TypeExpr)>,
    pub(crate) result: Option<TypeExpr>,
    pub(crate) fails: bool,
    pub(crate) is_async: bool,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) struct TypeExpr {
    pub(crate) pos: Pos,
    pub(crate) kind: TypeKind,
}

#[derive(Clone, Debug)]
pub(crate) enum TypeKind {
    Name(String),
    Slice(Box<TypeExpr>),
    Chan(Box<TypeExpr>),
}

pub(crate) struct Body {
    pub(crate) statements: Vec<Stmt>,
    /// Where it closes.
    pub(crate) end: Pos,
}

pub(crate) struct Stmt {
    pub(crate) pos: Pos,
    pub(crate) kind: StmtKind,
}

pub(crate) enum StmtKind {
    Let { name: Named, of: Option<TypeExpr>, value: Expr, mutable: bool },
    Assign { to: Expr, op: Option<Binary>, value: Expr },
    If { condition: Expr, yes: Body, no: Option<Body> },
    While { condition: Expr, body: Body },
    ForRange { name: Named, from: Expr, to: Expr, body: Body },
    ForEach { name: Named, of: Expr, body: Body },
    Break,
    Continue,
    Return(Option<Expr>),
    Fail(Expr),
    Yield,
    Cancel,
    Nursery { body: Body, try_it: bool, catch: Option<(Option<Named>, Body)> },
    Expr(Expr),
}

pub(crate) struct Expr {
    pub(crate) pos: Pos,
    pub(crate) kind: ExprKind,
    pub(crate) height: u16,
}

pub(crate) enum ExprKind {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Name(String),
    ErrorName(String),
    Neg(Box<Expr>),
    Not(Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Call(Named, Vec<Expr>),
    Method(Box<Expr>, Named, Vec<Expr>),
    Field(Box<Expr>, Named),
    Index(Box<Expr>, Box<Expr>),
    StructLit(Named, Vec<(Named, Expr)>),
    List(Vec<Expr>),
    Make(TypeExpr, Box<Expr>),
    Spawn(Box<SpawnWhat>),
    Await(Box<Expr>),
    Try(Box<Expr>),
    Catch(Box<Expr>, Box<Expr>),
}

pub(crate) enum SpawnWhat {
    Call { name: Named, args: Vec<Expr>, budget: Vec<(Named, Expr)> },
    Block { body: Body, budget: Vec<(Named, Expr)> },
}
