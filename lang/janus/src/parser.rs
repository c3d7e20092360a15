//! Words as a tree. Any text gets a tree or a mistake with its place: depth and height are bounded.

mod expr;
mod stmt;

use crate::ast::{Body, File, Func, Named, Struct, TypeExpr, TypeKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::{Lexed, Token};
use mainspring::Profile;
use mainspring_qtjir::Pos;
use mainspring_qtjir::text::PROFILES;

/// Blocks, parentheses and types nest at most this deep.
pub(crate) const MAX_DEPTH: usize = 96;
/// An expression is at most this high.
const MAX_HEIGHT: u16 = 128;
/// Names that mean something to the language.
pub(crate) const KEYWORDS: [&str; 29] = [
    "fn", "async", "struct", "error", "let", "var", "if", "else", "while", "for", "in", "break", "continue",
    "return", "fail", "yield", "cancel", "nursery", "catch", "try", "spawn", "await", "with", "and", "or",
    "not", "true", "false", "make",
];
/// Words that need a scheduler.
const SCHEDULED: [&str; 6] = ["spawn", "nursery", "await", "async", "yield", "cancel"];

type Parsed<T> = Result<T, Diagnostic>;

pub(crate) fn parse(tokens: &[Lexed]) -> Parsed<File> {
    let mut parser = Parser { tokens, next: 0, depth: 0, in_parens: 0, profile: Profile::Service };
    parser.file()
}

struct Parser<'a> {
    tokens: &'a [Lexed],
    next: usize,
    depth: usize,
    /// Inside of parentheses a line's end means nothing.
    in_parens: usize,
    profile: Profile,
}

impl Parser<'_> {
    fn lexed(&self) -> &Lexed {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> &Token {
        &self.lexed().token
    }

    fn pos(&self) -> Pos {
        self.lexed().pos
    }

    fn peek_after(&self, further: usize) -> &Token {
        &self.tokens[(self.next + further).min(self.tokens.len() - 1)].token
    }

    fn found(&self) -> String {
        match self.peek() {
            Token::Name(name) => format!("`{name}`"),
            Token::Int(value) => format!("`{value}`"),
            Token::Least => format!("`{}`", i64::MIN.unsigned_abs()),
            Token::Float(value) => format!("`{value}`"),
            Token::Text(_) => "a text".to_owned(),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::End => "the end of the file".to_owned(),
        }
    }

    fn expected<T>(&self, wanted: &str) -> Parsed<T> {
        Err(Diagnostic::new(Code::Syntax, self.pos(), format!("expected {wanted}, found {}", self.found())))
    }

    fn is_mark(&self, mark: &str) -> bool {
        matches!(self.peek(), Token::Mark(next) if *next == mark)
    }

    fn takes(&mut self, mark: &str) -> bool {
        let is_next = self.is_mark(mark);
        self.next += usize::from(is_next);
        is_next
    }

    fn mark(&mut self, mark: &str) -> Parsed<Pos> {
        let pos = self.pos();
        if self.takes(mark) { Ok(pos) } else { self.expected(&format!("`{mark}`")) }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(name) if name == word)
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_next = self.is_word(word);
        self.next += usize::from(is_next);
        is_next
    }

    /// A name of the program's.
    fn name(&mut self, wanted: &str) -> Parsed<Named> {
        let pos = self.pos();
        let Token::Name(name) = self.peek() else { return self.expected(wanted) };
        if KEYWORDS.contains(&name.as_str()) {
            return self
                .expected::<Named>(wanted)
                .map_err(|mistake| mistake.help("this word is the language's; choose another name"));
        }
        let name = name.clone();
        self.next += 1;
        Ok(Named { name, pos })
    }

    /// Goes one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} levels inside each other");
            return Err(Diagnostic::new(Code::TooLarge, self.pos(), message)
                .help("move the inner part to a function"));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// What needs a scheduler is no word of the core profile.
    fn refuse_in_core(&self) -> Parsed<()> {
        match self.peek() {
            Token::Name(word) if self.profile == Profile::Core && SCHEDULED.contains(&word.as_str()) => {
                let message = format!("`{word}` is not part of the core profile, which has no scheduler");
                let mistake = Diagnostic::new(Code::Syntax, self.pos(), message);
                Err(mistake.help("begin the file with {.profile: service.}"))
            }
            _ => Ok(()),
        }
    }

    fn file(&mut self) -> Parsed<File> {
        let interval = if self.is_mark("{.") { self.header()? } else { None };
        let mut file = File {
            profile: self.profile,
            interval,
            errors: Vec::new(),
            structs: Vec::new(),
            functions: Vec::new(),
        };
        while *self.peek() != Token::End {
            self.refuse_in_core()?;
            if self.takes_word("error") {
                file.errors.push(self.name("the name of an error")?);
                while self.takes(",") {
                    file.errors.push(self.name("the name of an error")?);
                }
            } else if self.takes_word("struct") {
                file.structs.push(self.structure()?);
            } else if self.is_word("fn") || self.is_word("async") {
                file.functions.push(self.function()?);
            } else {
                let mistake = self.expected::<()>("`fn`, `async fn`, `struct` or `error`");
                return mistake
                    .map(|()| file)
                    .map_err(|mistake| mistake.help("statements belong into a function"));
            }
            self.takes(";");
        }
        Ok(file)
    }

    /// `{.profile: service.}`, or with `, interval: 512`.
    fn header(&mut self) -> Parsed<Option<u32>> {
        self.mark("{.")?;
        let mut interval = None;
        loop {
            let pos = self.pos();
            let key = self.name("`profile`")?;
            self.mark(":")?;
            match key.name.as_str() {
                "profile" => self.header_profile()?,
                "interval" => {
                    let Token::Int(value) = *self.peek() else { return self.expected("a number") };
                    let Ok(value) = u32::try_from(value) else {
                        return self.expected("a number from 1 to 4294967295");
                    };
                    self.next += 1;
                    interval = Some(value);
                    if self.profile != Profile::Sovereign {
                        return Err(Diagnostic::new(
                            Code::NotPermitted,
                            pos,
                            "only a sovereign program chooses its interval",
                        )
                        .help("write {.profile: sovereign, interval: 512.}"));
                    }
                }
                _ => {
                    return Err(Diagnostic::new(
                        Code::Syntax,
                        pos,
                        format!("a header says nothing about `{}`", key.name),
                    )
                    .help("it has `profile`, and for sovereign programs `interval`"));
                }
            }
            if !self.takes(",") {
                break;
            }
        }
        self.mark(".}")?;
        Ok(interval)
    }

    fn header_profile(&mut self) -> Parsed<()> {
        let profile = self.name("a profile")?;
        match PROFILES.iter().find(|(_, known)| *known == profile.name) {
            Some((known, _)) => {
                self.profile = *known;
                Ok(())
            }
            None => Err(Diagnostic::new(
                Code::UnknownName,
                profile.pos,
                format!("there is no profile `{}`", profile.name),
            )
            .help("there are core, service, cluster and sovereign")),
        }
    }

    fn structure(&mut self) -> Parsed<Struct> {
        let name = self.name("a name")?;
        self.mark("{")?;
        let mut fields = Vec::new();
        while !self.takes("}") {
            let field = self.name("a field")?;
            self.mark(":")?;
            fields.push((field, self.of_type()?));
            if !self.takes(",") && !self.lexed().begins_line && !self.is_mark("}") {
                return self.expected("`,` or `}`");
            }
        }
        Ok(Struct { name, fields })
    }

    fn of_type(&mut self) -> Parsed<TypeExpr> {
        self.deeper(|this| {
            let pos = this.pos();
            if this.takes("[") {
                this.mark("]")?;
                let inner = this.of_type()?;
                return Ok(TypeExpr { pos, kind: TypeKind::Slice(Box::new(inner)) });
            }
            if this.takes_word("chan") {
                let inner = this.of_type()?;
                return Ok(TypeExpr { pos, kind: TypeKind::Chan(Box::new(inner)) });
            }
            let name = this.name("a type")?;
            Ok(TypeExpr { pos, kind: TypeKind::Name(name.name) })
        })
    }

    fn function(&mut self) -> Parsed<Func> {
        let is_async = self.takes_word("async");
        if !self.takes_word("fn") {
            return self.expected("`fn`");
        }
        let name = self.name("the name of a function")?;
        self.mark("(")?;
        let mut params = Vec::new();
        while !self.takes(")") {
            if !params.is_empty() {
                self.mark(",")?;
            }
            let param = self.name("a parameter")?;
            self.mark(":")?;
            params.push((param, self.of_type()?));
        }
        let (mut fails, mut result) = (false, None);
        if self.takes("->") {
            fails = self.takes("!");
            if !fails || !self.is_mark("{") {
                result = Some(self.of_type()?);
            }
        }
        let body = self.body()?;
        Ok(Func { name, params, result, fails, is_async, body })
    }

    fn body(&mut self) -> Parsed<Body> {
        let outside = std::mem::take(&mut self.in_parens);
        let body = self.deeper(|this| {
            this.mark("{")?;
            let mut statements = Vec::new();
            loop {
                let end = this.pos();
                if this.takes("}") {
                    return Ok(Body { statements, end });
                }
                statements.push(this.statement()?);
                let separated = this.takes(";") || this.is_mark("}") || this.lexed().begins_line;
                if !separated {
                    return this
                        .expected("the end of the statement")
                        .map_err(|mistake| mistake.help("begin a new line, or write `;`"));
                }
            }
        });
        self.in_parens = outside;
        body
    }
}
