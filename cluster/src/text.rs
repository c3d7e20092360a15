//! Grants and receipts as the text that is signed: words with one space between them. The first word says which of the two it is, so that
//! one is never taken for the other. Each call writes and reads four of these, so they are short.

use crate::grant::{Amount, Grant, Receipt, Worthless};
use crate::session::Within;
use std::fmt::Write as _;
use std::str::Split;

/// What can be signed.
pub trait Text: Sized {
    /// As it travels.
    fn write(&self) -> String;

    /// As it was written. Anything else is malformed.
    fn read(text: &str) -> Result<Self, Worthless>;
}

/// The words of a text, of which the first is `kind`.
struct Words<'a>(Split<'a, char>);

impl<'a> Words<'a> {
    fn of(kind: &str, text: &'a str) -> Result<Self, Worthless> {
        let mut words = Self(text.split(' '));
        if words.next()? == kind { Ok(words) } else { Err(Worthless::Malformed) }
    }

    fn next(&mut self) -> Result<&'a str, Worthless> {
        self.0.next().filter(|word| !word.is_empty()).ok_or(Worthless::Malformed)
    }

    fn text(&mut self) -> Result<String, Worthless> {
        self.next().map(str::to_owned)
    }

    /// Digits alone: each number is written in one way.
    fn number(&mut self) -> Result<u64, Worthless> {
        let word = self.next()?;
        if word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0')) {
            word.parse().map_err(|_| Worthless::Malformed)
        } else {
            Err(Worthless::Malformed)
        }
    }

    fn amount(&mut self) -> Result<Amount, Worthless> {
        Ok(Amount {
            ops: self.number()?,
            memory: self.number()?,
            spawn_count: self.number()?,
            channel_ops: self.number()?,
            syscalls: self.number()?,
        })
    }

    /// The value, if there are no more words.
    fn end<T>(mut self, value: T) -> Result<T, Worthless> {
        if self.0.next().is_none() { Ok(value) } else { Err(Worthless::Malformed) }
    }
}

fn write_amount(text: &mut String, amount: &Amount) {
    let Amount { ops, memory, spawn_count, channel_ops, syscalls } = amount;
    // A text takes all that is written to it.
    let _ = write!(text, " {ops} {memory} {spawn_count} {channel_ops} {syscalls}");
}

impl Text for Grant {
    fn write(&self) -> String {
        let mut text = String::with_capacity(256);
        let _ = write!(text, "grant {} {} {}", self.id, self.from, self.to);
        write_amount(&mut text, &self.amount);
        let _ = write!(text, " {}", self.expires_ms);
        if let Some(Within { from, to, number, recorded }) = &self.within {
            let _ = write!(text, " {from} {to} {number} {recorded}");
        }
        text
    }

    fn read(text: &str) -> Result<Self, Worthless> {
        let mut words = Words::of("grant", text)?;
        let (id, from, to) = (words.text()?, words.text()?, words.text()?);
        let (amount, expires_ms) = (words.amount()?, words.number()?);
        let mut grant = Self { id, from, to, amount, expires_ms, within: None };
        if let Some(from) = words.0.next() {
            if from.is_empty() {
                return Err(Worthless::Malformed);
            }
            let (from, to) = (from.to_owned(), words.text()?);
            let (number, recorded) = (words.number()?, words.number()?);
            grant.within = Some(Within { from, to, number, recorded });
        }
        words.end(grant)
    }
}

impl Text for Receipt {
    fn write(&self) -> String {
        let mut text = String::with_capacity(128);
        let _ = write!(text, "receipt {} {}", self.id, self.by);
        write_amount(&mut text, &self.rest);
        text
    }

    fn read(text: &str) -> Result<Self, Worthless> {
        let mut words = Words::of("receipt", text)?;
        let (id, by, rest) = (words.text()?, words.text()?, words.amount()?);
        words.end(Self { id, by, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(ops: u64) -> Amount {
        Amount { ops, memory: 1, spawn_count: 2, channel_ops: 3, syscalls: u64::MAX }
    }

    fn grant(within: Option<Within>) -> Grant {
        let (id, from, to) = ("grant0001".into(), "anna".into(), "group/sum".into());
        Grant { id, from, to, amount: amount(0), expires_ms: 1_700_000_000_000, within }
    }

    fn within() -> Within {
        Within { from: "anna#1".into(), to: "bert#2".into(), number: 7, recorded: 5 }
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_is() {
        for grant in [grant(None), grant(Some(within()))] {
            let text = grant.write();
            assert_eq!(Grant::read(&text), Ok(grant));
            assert_eq!(Receipt::read(&text), Err(Worthless::Malformed));
            assert_eq!(Grant::read(&text.replacen("grant", "receipt", 1)), Err(Worthless::Malformed));
            for bad in
                [format!("{text} "), format!("{text} 1"), format!(" {text}"), text.replace(" 1 ", " 01 ")]
            {
                assert_eq!(Grant::read(&bad), Err(Worthless::Malformed), "{bad:?}");
            }
            for bad in ["+1", "-1", "", "18446744073709551616", "1.0"] {
                let bad = text.replace(" 1 ", &format!(" {bad} "));
                assert_eq!(Grant::read(&bad), Err(Worthless::Malformed), "{bad:?}");
            }
        }
        let receipt = Receipt { id: "grant0001".into(), by: "bert#2/s7".into(), rest: amount(9) };
        assert_eq!(Receipt::read(&receipt.write()), Ok(receipt.clone()));
        assert_eq!(Grant::read(&receipt.write()), Err(Worthless::Malformed));
    }

    #[test]
    fn a_text_that_ends_early_is_none() {
        let text = grant(Some(within())).write();
        let whole = grant(None).write();
        for end in (0..text.len()).filter(|end| text[..*end] != whole) {
            // A number that lost digits is another one: the signature says so.
            if let Ok(read) = Grant::read(&text[..end]) {
                assert_eq!(read.write(), text[..end]);
            }
        }
        assert_eq!(Grant::read(""), Err(Worthless::Malformed));
    }
}
