//! Statements.

use super::{Parsed, Parser};
use crate::ast::{Body, Expr, ExprKind, Stmt, StmtKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::Token;
use mainspring_qtjir::Binary;

impl Parser<'_> {
    pub(super) fn statement(&mut self) -> Parsed<Stmt> {
        self.refuse_in_core()?;
        let pos = self.pos();
        let word = match self.peek() {
            Token::Name(name) => name.clone(),
            _ => String::new(),
        };
        let kind = match word.as_str() {
            "let" | "var" => self.binding(word == "var")?,
            "if" => self.conditional()?,
            "while" => {
                self.next += 1;
                let condition = self.condition()?;
                StmtKind::While { condition, body: self.body()? }
            }
            "for" => self.for_loop()?,
            "break" => self.only(StmtKind::Break),
            "continue" => self.only(StmtKind::Continue),
            "yield" => self.only(StmtKind::Yield),
            "cancel" => self.only(StmtKind::Cancel),
            "return" => {
                self.next += 1;
                let ends = self.lexed().begins_line || self.is_mark("}") || self.is_mark(";");
                StmtKind::Return(if ends { None } else { Some(self.expr()?) })
            }
            "fail" => {
                self.next += 1;
                StmtKind::Fail(self.failure()?)
            }
            "nursery" => self.nursery(false)?,
            "try" if matches!(self.peek_after(1), Token::Name(next) if next == "nursery") => {
                self.next += 1;
                self.nursery(true)?
            }
            _ => self.assignment_or_expr()?,
        };
        Ok(Stmt { pos, kind })
    }

    fn only(&mut self, kind: StmtKind) -> StmtKind {
        self.next += 1;
        kind
    }

    fn binding(&mut self, mutable: bool) -> Parsed<StmtKind> {
        self.next += 1;
        let name = self.name("a name")?;
        let of = if self.takes(":") { Some(self.of_type()?) } else { None };
        self.mark("=")?;
        Ok(StmtKind::Let { name, of, value: self.expr()?, mutable })
    }

    fn conditional(&mut self) -> Parsed<StmtKind> {
        self.deeper(|this| {
            this.next += 1;
            let condition = this.condition()?;
            let yes = this.body()?;
            let no = if !this.takes_word("else") {
                None
            } else if this.is_word("if") {
                let pos = this.pos();
                let kind = this.conditional()?;
                Some(Body { statements: vec![Stmt { pos, kind }], end: pos })
            } else {
                Some(this.body()?)
            };
            Ok(StmtKind::If { condition, yes, no })
        })
    }

    fn for_loop(&mut self) -> Parsed<StmtKind> {
        self.next += 1;
        let name = self.name("a name")?;
        if !self.takes_word("in") {
            return self.expected("`in`");
        }
        let from = self.condition()?;
        if self.takes("..") {
            let to = self.condition()?;
            return Ok(StmtKind::ForRange { name, from, to, body: self.body()? });
        }
        Ok(StmtKind::ForEach { name, of: from, body: self.body()? })
    }

    /// `fail NotFound`, or any expression that is an error.
    fn failure(&mut self) -> Parsed<Expr> {
        let pos = self.pos();
        let bare = match self.peek() {
            Token::Name(name) if name.starts_with(|first: char| first.is_ascii_uppercase()) => {
                Some(name.clone())
            }
            _ => None,
        };
        match bare {
            Some(name) => {
                self.next += 1;
                self.node(pos, ExprKind::ErrorName(name), &[])
            }
            None => self.expr(),
        }
    }

    fn nursery(&mut self, try_it: bool) -> Parsed<StmtKind> {
        self.next += 1;
        let body = self.body()?;
        let catch = if self.takes_word("catch") {
            let name = if self.takes("|") {
                let name = self.name("a name for the error")?;
                self.mark("|")?;
                Some(name)
            } else {
                None
            };
            Some((name, self.body()?))
        } else {
            None
        };
        Ok(StmtKind::Nursery { body, try_it, catch })
    }

    fn assignment_or_expr(&mut self) -> Parsed<StmtKind> {
        let to = self.expr()?;
        let pos = self.pos();
        let op = match self.peek() {
            _ if self.lexed().begins_line => return Ok(StmtKind::Expr(to)),
            Token::Mark("=") => None,
            Token::Mark("+=") => Some(Binary::Add),
            Token::Mark("-=") => Some(Binary::Sub),
            Token::Mark("*=") => Some(Binary::Mul),
            _ => return Ok(StmtKind::Expr(to)),
        };
        if !matches!(to.kind, ExprKind::Name(_) | ExprKind::Field(..) | ExprKind::Index(..)) {
            return Err(Diagnostic::new(Code::Syntax, pos, "this cannot be assigned to")
                .help("assign to a variable, a field or an element"));
        }
        self.next += 1;
        Ok(StmtKind::Assign { to, op, value: self.expr()? })
    }
}
