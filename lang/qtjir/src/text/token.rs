//! The words of the text form, with their places.

use super::parse::ParseFault;
use crate::ir::Pos;

/// A word of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    /// `%n`
    Value(u32),
    /// `@name`
    Function(String),
    /// Digits, a sign, a point, an exponent: what it means depends on where it stands.
    Number(String),
    Text(String),
    Mark(char),
    /// `->`
    Arrow,
    End,
}

/// A longer name is refused. A front end makes the names of tasks of the names of functions, so that they are longer than those of its source.
const MAX_NAME_BYTES: usize = 1024;

pub(super) fn tokens(text: &str) -> Result<Vec<(Token, Pos)>, (ParseFault, Pos)> {
    let mut reader = Reader { chars: text.chars().peekable(), pos: Pos { line: 1, column: 1 } };
    let mut out = Vec::new();
    loop {
        reader.skip_blank();
        let pos = reader.pos;
        let token = reader.token().map_err(|fault| (fault, pos))?;
        let is_end = token == Token::End;
        out.push((token, pos));
        if is_end {
            return Ok(out);
        }
    }
}

struct Reader<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    pos: Pos,
}

fn in_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$' | '#')
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let character = self.chars.next()?;
        if character == '\n' {
            self.pos = Pos { line: self.pos.line + 1, column: 1 };
        } else {
            self.pos.column += 1;
        }
        Some(character)
    }

    fn skip_blank(&mut self) {
        while let Some(&character) = self.chars.peek() {
            if character == ';' {
                while self.chars.peek().is_some_and(|&other| other != '\n') {
                    self.next();
                }
            } else if character.is_whitespace() {
                self.next();
            } else {
                return;
            }
        }
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let mut word = String::new();
        while let Some(&character) = self.chars.peek() {
            if !belongs(character) {
                break;
            }
            word.push(character);
            self.next();
        }
        word
    }

    fn name(&mut self) -> Result<String, ParseFault> {
        let name = self.take(in_word);
        if name.len() > MAX_NAME_BYTES { Err(ParseFault::LongName) } else { Ok(name) }
    }

    fn token(&mut self) -> Result<Token, ParseFault> {
        let Some(&first) = self.chars.peek() else { return Ok(Token::End) };
        if first.is_ascii_alphabetic() || first == '_' {
            return self.name().map(Token::Word);
        }
        if first.is_ascii_digit() {
            return Ok(Token::Number(self.number()));
        }
        self.next();
        match first {
            '%' => {
                let digits = self.take(|character| character.is_ascii_digit());
                digits.parse().map(Token::Value).map_err(|_| ParseFault::BadNumber(digits))
            }
            '@' => self.name().map(Token::Function),
            '-' if self.chars.peek() == Some(&'>') => {
                self.next();
                Ok(Token::Arrow)
            }
            '-' if self.chars.peek().is_some_and(char::is_ascii_digit) => {
                Ok(Token::Number(format!("-{}", self.number())))
            }
            '"' => self.text(),
            '(' | ')' | '{' | '}' | '<' | '>' | '[' | ']' | ',' | ':' | '=' | '!' => Ok(Token::Mark(first)),
            other => Err(ParseFault::Unexpected(other.to_string())),
        }
    }

    /// Digits, and what makes them a float.
    fn number(&mut self) -> String {
        let mut number = self.take(|character| character.is_ascii_digit() || matches!(character, '.' | 'e'));
        if number.ends_with('e') && self.chars.peek() == Some(&'-') {
            self.next();
            number.push('-');
            number.push_str(&self.take(|character| character.is_ascii_digit()));
        }
        number
    }

    fn text(&mut self) -> Result<Token, ParseFault> {
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(ParseFault::UnclosedText),
                Some('"') => return Ok(Token::Text(text)),
                Some('\\') => match self.next() {
                    Some('n') => text.push('\n'),
                    Some('u') => text.push(self.by_number()?),
                    Some(other @ ('"' | '\\')) => text.push(other),
                    _ => return Err(ParseFault::UnclosedText),
                },
                Some(other) => text.push(other),
            }
        }
    }

    /// `{hex}`, after `\u`.
    fn by_number(&mut self) -> Result<char, ParseFault> {
        self.next();
        let digits = self.take(|character| character.is_ascii_hexdigit());
        self.next();
        let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
        code.ok_or(ParseFault::BadNumber(digits))
    }
}
