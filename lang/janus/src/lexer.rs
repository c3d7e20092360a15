//! The words of a source file.

use crate::diagnostic::{Code, Diagnostic};
use mainspring_qtjir::Pos;

/// A longer file is refused.
pub const MAX_SOURCE_BYTES: usize = 1 << 20;

/// A longer name is refused: each task of a function, and each place where it can trap, repeats the function's name.
const MAX_NAME_BYTES: usize = 255;

/// A word of the language.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Int(i64),
    /// 9223372036854775808, which fits with a `-` before it.
    Least,
    Float(f64),
    Text(String),
    /// An operator or a mark.
    Mark(&'static str),
    End,
}

/// A word and its place.
#[derive(Clone, Debug)]
pub(crate) struct Lexed {
    pub(crate) token: Token,
    pub(crate) pos: Pos,
    /// Whether it is the first of its line.
    pub(crate) begins_line: bool,
}

/// Longest first, so that the first that fits is the one.
const MARKS: [&str; 48] = [
    "{.", ".}", "..", "->", "==", "!=", "<=", ">=", "<<", ">>", "+%", "-%", "*%", "+=", "-=", "*=", "&&",
    "||", "(", ")", "{", "}", "[", "]", ",", ":", ";", ".", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|",
    "^", "!", "@", "#", "$", "?", "~", "`", "'", "\\",
];

pub(crate) fn tokens(source: &str) -> Result<Vec<Lexed>, Diagnostic> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!("the file is longer than {MAX_SOURCE_BYTES} bytes");
        return Err(Diagnostic::new(Code::TooLarge, Pos { line: 1, column: 1 }, message).help("split it"));
    }
    let mut lexer = Lexer { rest: source, pos: Pos { line: 1, column: 1 }, out: Vec::new() };
    loop {
        let begins_line = lexer.skip_blank() || lexer.out.is_empty();
        let pos = lexer.pos;
        let token = lexer.token()?;
        let is_end = token == Token::End;
        lexer.out.push(Lexed { token, pos, begins_line });
        if is_end {
            return Ok(lexer.out);
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    pos: Pos,
    out: Vec<Lexed>,
}

impl<'a> Lexer<'a> {
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        for character in taken.chars() {
            if character == '\n' {
                self.pos = Pos { line: self.pos.line + 1, column: 1 };
            } else {
                self.pos.column += 1;
            }
        }
        taken
    }

    /// Skips blanks and comments. True if a line ended.
    fn skip_blank(&mut self) -> bool {
        let line = self.pos.line;
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.advance(blank);
            if !self.rest.starts_with("//") {
                return self.pos.line != line;
            }
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.advance(end);
        }
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|character| !belongs(character)).unwrap_or(self.rest.len());
        self.advance(end)
    }

    fn token(&mut self) -> Result<Token, Diagnostic> {
        let pos = self.pos;
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        if first.is_ascii_alphabetic() || first == '_' {
            let name = self.take(|character| character.is_ascii_alphanumeric() || character == '_');
            if name.len() > MAX_NAME_BYTES {
                let message = format!("a name of more than {MAX_NAME_BYTES} letters");
                return Err(Diagnostic::new(Code::TooLarge, pos, message).help("choose a shorter one"));
            }
            return Ok(Token::Name(name.to_owned()));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '"' {
            return self.text();
        }
        match MARKS.iter().find(|mark| self.rest.starts_with(**mark)) {
            Some(mark) => {
                self.advance(mark.len());
                Ok(Token::Mark(mark))
            }
            None => Err(Diagnostic::new(Code::Syntax, pos, format!("`{first}` is no part of the language"))),
        }
    }

    fn number(&mut self) -> Result<Token, Diagnostic> {
        let pos = self.pos;
        let bad = |text: &str| {
            Diagnostic::new(Code::Syntax, pos, format!("`{text}` is no number"))
                .help("integers have 64 bits; write floats as 1.5 or 1.0e9")
        };
        if let Some(digits) = self.rest.strip_prefix("0x") {
            let end = digits.find(|character: char| !character.is_ascii_hexdigit()).unwrap_or(digits.len());
            let text = self.advance(2 + end);
            return u64::from_str_radix(&text[2..], 16)
                .map(|bits| Token::Int(bits as i64))
                .map_err(|_| bad(text));
        }
        let bytes = self.rest.as_bytes();
        let digits = |from: usize| {
            bytes[from..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'_').count()
        };
        let mut end = digits(0);
        let mut is_float = false;
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            is_float = true;
            end += 1 + digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
            let exponent = digits(end + 1 + sign);
            if exponent > 0 {
                is_float = true;
                end += 1 + sign + exponent;
            }
        }
        let text: String = self.advance(end).chars().filter(|character| *character != '_').collect();
        if is_float {
            return text.parse().map(Token::Float).map_err(|_| bad(&text));
        }
        match text.parse::<u64>() {
            Ok(number) if number == i64::MIN.unsigned_abs() => Ok(Token::Least),
            Ok(number) => i64::try_from(number).map(Token::Int).map_err(|_| bad(&text)),
            Err(_) => Err(bad(&text)),
        }
    }

    fn text(&mut self) -> Result<Token, Diagnostic> {
        let pos = self.pos;
        let unclosed =
            || Diagnostic::new(Code::Syntax, pos, "this text is not closed").help("end it with `\"`");
        self.advance(1);
        let mut text = String::new();
        loop {
            let part = self.take(|character| !matches!(character, '"' | '\\' | '\n'));
            text.push_str(part);
            match self.rest.chars().next() {
                Some('"') => {
                    self.advance(1);
                    return Ok(Token::Text(text));
                }
                Some('\\') => {
                    self.advance(1);
                    let escaped = self.rest.chars().next().ok_or_else(unclosed)?;
                    self.advance(escaped.len_utf8());
                    text.push(match escaped {
                        'n' => '\n',
                        't' => '\t',
                        '"' | '\\' => escaped,
                        _ => {
                            return Err(Diagnostic::new(
                                Code::Syntax,
                                pos,
                                format!("there is no `\\{escaped}`"),
                            )
                            .help("there are \\n, \\t, \\\" and \\\\"));
                        }
                    });
                }
                _ => return Err(unclosed()),
            }
        }
    }
}
