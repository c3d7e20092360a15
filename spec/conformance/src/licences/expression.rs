//! SPDX licence expressions: `OR`, `AND`, `WITH`, parentheses, and the `/` that old manifests use for `OR`.
//!
//! `AND` binds tighter than `OR`. A licence with an exception is one term (`Apache-2.0 WITH LLVM-exception`):
//! the exception changes the licence, so that allowing the bare licence does not allow it.

use std::fmt;

/// Nesting beyond this is refused: the text comes from strangers, and the parser recurses.
const MAX_DEPTH: usize = 32;

/// What a package asks of its users.
#[derive(Debug, PartialEq, Eq)]
pub enum Expression {
    /// A licence, with its exception if it has one.
    Term(String),
    /// All must be allowed.
    All(Vec<Expression>),
    /// One must be allowed.
    Any(Vec<Expression>),
}

/// Why a text is not an expression.
#[derive(Debug, PartialEq, Eq)]
pub enum ExpressionError {
    /// A licence was expected at the end of the text.
    EndsEarly,
    /// This word stands where it cannot.
    Misplaced(String),
    /// A parenthesis is not closed.
    Unclosed,
    /// More parentheses than any real expression has.
    TooDeep,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpressionError::EndsEarly => write!(f, "it ends where a licence should follow"),
            ExpressionError::Misplaced(word) => write!(f, "misplaced `{word}`"),
            ExpressionError::Unclosed => write!(f, "a parenthesis is not closed"),
            ExpressionError::TooDeep => write!(f, "more than {MAX_DEPTH} nested parentheses"),
        }
    }
}

impl Expression {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let mut parser = Parser { words: spaced.split_whitespace().collect(), next: 0, depth: 0 };
        let expression = parser.any()?;
        match parser.peek() {
            Some(word) => Err(ExpressionError::Misplaced(word.to_owned())),
            None => Ok(expression),
        }
    }

    /// Whether allowed terms suffice.
    pub fn is_met_by(&self, allowed: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Expression::Term(term) => allowed(term),
            Expression::All(terms) => terms.iter().all(|term| term.is_met_by(allowed)),
            Expression::Any(terms) => terms.iter().any(|term| term.is_met_by(allowed)),
        }
    }
}

struct Parser<'a> {
    words: Vec<&'a str>,
    next: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }

    /// Steps over the word if it is the next one.
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        self.next += usize::from(is_next);
        is_next
    }

    fn any(&mut self) -> Result<Expression, ExpressionError> {
        let mut terms = vec![self.all()?];
        while self.takes("OR") {
            terms.push(self.all()?);
        }
        Ok(single_or(terms, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression, ExpressionError> {
        let mut terms = vec![self.term()?];
        while self.takes("AND") {
            terms.push(self.term()?);
        }
        Ok(single_or(terms, Expression::All))
    }

    fn term(&mut self) -> Result<Expression, ExpressionError> {
        if !self.takes("(") {
            let licence = self.name()?;
            let exception = if self.takes("WITH") { Some(self.name()?) } else { None };
            return Ok(Expression::Term(match exception {
                Some(exception) => format!("{licence} WITH {exception}"),
                None => licence.to_owned(),
            }));
        }
        if self.depth == MAX_DEPTH {
            return Err(ExpressionError::TooDeep);
        }
        self.depth += 1;
        let inner = self.any()?;
        self.depth -= 1;
        if self.takes(")") {
            Ok(inner)
        } else {
            Err(self.peek().map_or(ExpressionError::Unclosed, misplaced))
        }
    }

    fn name(&mut self) -> Result<&'a str, ExpressionError> {
        match self.peek().ok_or(ExpressionError::EndsEarly)? {
            word @ ("(" | ")" | "AND" | "OR" | "WITH") => Err(misplaced(word)),
            name => {
                self.next += 1;
                Ok(name)
            }
        }
    }
}

fn misplaced(word: &str) -> ExpressionError {
    ExpressionError::Misplaced(word.to_owned())
}

fn single_or(mut terms: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    match terms.pop() {
        Some(only) if terms.is_empty() => only,
        last => {
            terms.extend(last);
            many(terms)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(text: &str) -> bool {
        let allow = ["MIT", "Apache-2.0", "Unicode-3.0", "ISC WITH Some-exception"];
        Expression::parse(text).unwrap().is_met_by(&|term| allow.contains(&term))
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert!(allowed("MIT"));
        assert!(allowed("GPL-3.0-only OR MIT"));
        assert!(allowed("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"));
        assert!(!allowed("GPL-3.0-only OR LGPL-3.0-only"));
    }

    #[test]
    fn every_part_of_a_conjunction_must_be_allowed() {
        assert!(allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!allowed("(MIT OR Apache-2.0) AND GPL-3.0-only"));
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert!(allowed("GPL-3.0-only AND MIT OR Apache-2.0"));
        assert!(allowed("MIT OR GPL-3.0-only AND Apache-2.0"));
        assert!(!allowed("GPL-3.0-only AND (MIT OR Apache-2.0)"));
    }

    #[test]
    fn a_slash_is_an_old_or() {
        assert!(allowed("GPL-3.0-only/MIT"));
        assert!(allowed("Unlicense / MIT"));
    }

    #[test]
    fn an_exception_makes_another_licence() {
        assert!(!allowed("MIT WITH Some-exception"));
        assert!(!allowed("ISC"));
        assert!(allowed("ISC WITH Some-exception"));
        assert!(allowed("MIT AND ISC  WITH  Some-exception"));
    }

    #[test]
    fn malformed_expressions_are_refused_with_the_reason() {
        use ExpressionError::{EndsEarly, Misplaced, TooDeep, Unclosed};
        let deep = |n| format!("{}MIT{}", "(".repeat(n), ")".repeat(n));
        assert_eq!(Expression::parse(&deep(MAX_DEPTH)), Ok(Expression::Term("MIT".into())));
        let cases = [
            ("", EndsEarly),
            ("MIT OR", EndsEarly),
            ("MIT WITH", EndsEarly),
            ("AND MIT", Misplaced("AND".into())),
            ("MIT Apache-2.0", Misplaced("Apache-2.0".into())),
            ("(MIT", Unclosed),
            ("(MIT ISC)", Misplaced("ISC".into())),
            ("MIT)", Misplaced(")".into())),
            ("()", Misplaced(")".into())),
            (&deep(MAX_DEPTH + 1), TooDeep),
        ];
        for (text, error) in cases {
            assert_eq!(Expression::parse(text), Err(error), "{text}");
        }
    }
}
