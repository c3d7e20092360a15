//! Expressions.

use super::{MAX_HEIGHT, Parsed, Parser};
use crate::ast::{Expr, ExprKind, Named, SpawnWhat};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::Token;
use mainspring_qtjir::{Binary, Pos};

/// Operators by how tightly they bind, the loosest first.
const LEVELS: [&[(&str, Binary)]; 6] = [
    &[
        ("==", Binary::Eq),
        ("!=", Binary::Ne),
        ("<=", Binary::Le),
        (">=", Binary::Ge),
        ("<", Binary::Lt),
        (">", Binary::Gt),
    ],
    &[("|", Binary::Or)],
    &[("^", Binary::Xor)],
    &[("&", Binary::And), ("<<", Binary::Shl), (">>", Binary::Shr)],
    &[("+%", Binary::AddWrap), ("-%", Binary::SubWrap), ("+", Binary::Add), ("-", Binary::Sub)],
    &[("*%", Binary::MulWrap), ("*", Binary::Mul), ("/", Binary::Div), ("%", Binary::Rem)],
];

impl Parser<'_> {
    /// A node above `below`.
    pub(super) fn node(&self, pos: Pos, kind: ExprKind, below: &[u16]) -> Parsed<Expr> {
        let height = below.iter().max().map_or(1, |height| height + 1);
        if height > MAX_HEIGHT {
            let message = format!("an expression of more than {MAX_HEIGHT} levels");
            return Err(Diagnostic::new(Code::TooLarge, pos, message).help("give a part of it a name"));
        }
        Ok(Expr { pos, kind, height })
    }

    fn unary_node(&self, pos: Pos, inner: Expr, kind: impl FnOnce(Box<Expr>) -> ExprKind) -> Parsed<Expr> {
        let height = inner.height;
        self.node(pos, kind(Box::new(inner)), &[height])
    }

    fn binary_node(
        &self,
        pos: Pos,
        a: Expr,
        b: Expr,
        kind: impl FnOnce(Box<Expr>, Box<Expr>) -> ExprKind,
    ) -> Parsed<Expr> {
        let heights = [a.height, b.height];
        self.node(pos, kind(Box::new(a), Box::new(b)), &heights)
    }

    /// An expression that a block follows: a name there is no struct.
    pub(super) fn condition(&mut self) -> Parsed<Expr> {
        self.deeper(|this| this.catching(false))
    }

    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.deeper(|this| this.catching(true))
    }

    fn catching(&mut self, structs: bool) -> Parsed<Expr> {
        let mut left = self.either(structs)?;
        while self.continues() && self.is_word("catch") {
            let pos = self.pos();
            self.next += 1;
            let right = self.either(structs)?;
            left = self.binary_node(pos, left, right, ExprKind::Catch)?;
        }
        Ok(left)
    }

    /// Whether the next word can go on with the expression.
    fn continues(&self) -> bool {
        self.in_parens > 0 || !self.lexed().begins_line
    }

    fn either(&mut self, structs: bool) -> Parsed<Expr> {
        let mut left = self.both(structs)?;
        while self.continues() && (self.is_word("or") || self.is_mark("||")) {
            let pos = self.pos();
            self.next += 1;
            let right = self.both(structs)?;
            left = self.binary_node(pos, left, right, ExprKind::Or)?;
        }
        Ok(left)
    }

    fn both(&mut self, structs: bool) -> Parsed<Expr> {
        let mut left = self.level(0, structs)?;
        while self.continues() && (self.is_word("and") || self.is_mark("&&")) {
            let pos = self.pos();
            self.next += 1;
            let right = self.level(0, structs)?;
            left = self.binary_node(pos, left, right, ExprKind::And)?;
        }
        Ok(left)
    }

    fn level(&mut self, level: usize, structs: bool) -> Parsed<Expr> {
        let Some(operators) = LEVELS.get(level) else { return self.prefixed(structs) };
        let mut left = self.level(level + 1, structs)?;
        while self.continues() {
            let Token::Mark(mark) = self.peek() else { break };
            let Some((_, op)) = operators.iter().find(|(known, _)| known == mark) else { break };
            let (pos, op) = (self.pos(), *op);
            self.next += 1;
            let right = self.level(level + 1, structs)?;
            left = self.binary_node(pos, left, right, |a, b| ExprKind::Binary(op, a, b))?;
        }
        Ok(left)
    }

    fn prefixed(&mut self, structs: bool) -> Parsed<Expr> {
        let pos = self.pos();
        self.refuse_in_core()?;
        if self.takes("-") {
            if *self.peek() == Token::Least {
                self.next += 1;
                return self.node(pos, ExprKind::Int(i64::MIN), &[]);
            }
            let inner = self.deeper(|this| this.prefixed(structs))?;
            return self.unary_node(pos, inner, ExprKind::Neg);
        }
        if self.takes("!") || self.takes_word("not") {
            let inner = self.deeper(|this| this.prefixed(structs))?;
            return self.unary_node(pos, inner, ExprKind::Not);
        }
        if self.takes_word("await") {
            let inner = self.deeper(|this| this.prefixed(structs))?;
            return self.unary_node(pos, inner, ExprKind::Await);
        }
        if self.takes_word("try") {
            let inner = self.deeper(|this| this.prefixed(structs))?;
            return self.unary_node(pos, inner, ExprKind::Try);
        }
        if self.takes_word("spawn") {
            return self.spawn(pos);
        }
        self.postfixed(structs)
    }

    fn spawn(&mut self, pos: Pos) -> Parsed<Expr> {
        if self.is_mark("{") {
            let body = self.body()?;
            let budget = self.budget()?;
            // What is above a block is added to what is in it.
            let height = MAX_HEIGHT - 8;
            return self.node(pos, ExprKind::Spawn(Box::new(SpawnWhat::Block { body, budget })), &[height]);
        }
        let name = self.name("a call or a block, as `spawn f(x)`")?;
        let args = self.args()?;
        let budget = self.budget()?;
        let heights: Vec<u16> =
            args.iter().chain(budget.iter().map(|(_, amount)| amount)).map(|arg| arg.height).collect();
        self.node(pos, ExprKind::Spawn(Box::new(SpawnWhat::Call { name, args, budget })), &heights)
    }

    /// `with { ops: 1000, memory: 4096 }`
    fn budget(&mut self) -> Parsed<Vec<(Named, Expr)>> {
        if !self.takes_word("with") {
            return Ok(Vec::new());
        }
        self.mark("{")?;
        self.named_values()
    }

    /// `name: value, …}`
    fn named_values(&mut self) -> Parsed<Vec<(Named, Expr)>> {
        let mut values = Vec::new();
        self.in_parens += 1;
        while !self.takes("}") {
            if !values.is_empty() {
                self.mark(",")?;
                if self.takes("}") {
                    break;
                }
            }
            let name = self.name("a name")?;
            self.mark(":")?;
            values.push((name, self.expr()?));
        }
        self.in_parens -= 1;
        Ok(values)
    }

    fn args(&mut self) -> Parsed<Vec<Expr>> {
        self.mark("(")?;
        self.listed(")")
    }

    fn listed(&mut self, end: &str) -> Parsed<Vec<Expr>> {
        let mut args = Vec::new();
        self.in_parens += 1;
        while !self.takes(end) {
            if !args.is_empty() {
                self.mark(",")?;
                if self.takes(end) {
                    break;
                }
            }
            args.push(self.expr()?);
        }
        self.in_parens -= 1;
        Ok(args)
    }

    fn postfixed(&mut self, structs: bool) -> Parsed<Expr> {
        let mut left = self.primary(structs)?;
        while self.continues() {
            let pos = self.pos();
            if self.takes(".") {
                let name = self.name("a field or a method")?;
                if self.is_mark("(") && self.continues() {
                    let args = self.args()?;
                    let mut heights: Vec<u16> = args.iter().map(|arg| arg.height).collect();
                    heights.push(left.height);
                    left = self.node(pos, ExprKind::Method(Box::new(left), name, args), &heights)?;
                } else {
                    left = self.unary_node(pos, left, |inner| ExprKind::Field(inner, name))?;
                }
            } else if self.takes("[") {
                self.in_parens += 1;
                let index = self.expr()?;
                self.in_parens -= 1;
                self.mark("]")?;
                left = self.binary_node(pos, left, index, ExprKind::Index)?;
            } else {
                break;
            }
        }
        Ok(left)
    }

    fn primary(&mut self, structs: bool) -> Parsed<Expr> {
        let pos = self.pos();
        let leaf = match self.peek() {
            Token::Int(value) => Some(ExprKind::Int(*value)),
            Token::Float(value) => Some(ExprKind::Float(*value)),
            Token::Text(text) => Some(ExprKind::Text(text.clone())),
            Token::Name(name) if name == "true" || name == "false" => Some(ExprKind::Bool(name == "true")),
            _ => None,
        };
        if let Some(kind) = leaf {
            self.next += 1;
            return self.node(pos, kind, &[]);
        }
        if self.takes("(") {
            self.in_parens += 1;
            let inner = self.expr()?;
            self.in_parens -= 1;
            self.mark(")")?;
            return Ok(inner);
        }
        if self.takes("[") {
            let items = self.listed("]")?;
            let heights: Vec<u16> = items.iter().map(|item| item.height).collect();
            return self.node(pos, ExprKind::List(items), &heights);
        }
        if self.takes_word("make") {
            self.mark("(")?;
            self.in_parens += 1;
            let of = self.of_type()?;
            self.mark(",")?;
            let size = self.expr()?;
            self.in_parens -= 1;
            self.mark(")")?;
            return self.unary_node(pos, size, |size| ExprKind::Make(of, size));
        }
        if self.takes_word("error") {
            self.mark(".")?;
            let name = self.name("the name of an error")?;
            return self.node(pos, ExprKind::ErrorName(name.name), &[]);
        }
        if *self.peek() == Token::Least {
            let mistake = self.expected::<Expr>("an expression");
            return mistake.map_err(|mistake| {
                mistake.help("integers have 64 bits; this one fits with a `-` before it")
            });
        }
        let name = self.name("an expression")?;
        if self.is_mark("(") && self.continues() {
            let args = self.args()?;
            let heights: Vec<u16> = args.iter().map(|arg| arg.height).collect();
            return self.node(pos, ExprKind::Call(name, args), &heights);
        }
        if structs && self.is_mark("{") && self.continues() {
            self.next += 1;
            let fields = self.named_values()?;
            let heights: Vec<u16> = fields.iter().map(|(_, value)| value.height).collect();
            return self.node(pos, ExprKind::StructLit(name, fields), &heights);
        }
        self.node(pos, ExprKind::Name(name.name), &[])
    }
}
