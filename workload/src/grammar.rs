//! Phrases: the steps of a program and the operations of an operator, each a verb with its arguments.

use crate::error::{Report, Reported, clipped, did_you_mean};
use crate::words::Words;
use std::fmt;

/// What a phrase is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phrase {
    /// A step of a program.
    Step,
    /// What `[[at]]` does.
    Operation,
}

impl fmt::Display for Phrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Step => "step",
            Self::Operation => "operation",
        })
    }
}

/// A verb: its name, how many arguments it takes, what to write, and what reads it.
pub(crate) struct Verb<F> {
    pub name: &'static str,
    pub least: usize,
    pub most: usize,
    pub usage: &'static str,
    pub read: F,
}

pub(crate) const fn verb<F: Copy>(
    name: &'static str,
    least: usize,
    most: usize,
    usage: &'static str,
    read: F,
) -> Verb<F> {
    Verb { name, least, most, usage, read }
}

/// Why a text is no step, or no operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// Nothing there.
    Empty {
        /// What was expected.
        phrase: Phrase,
    },
    /// A verb that does not exist.
    Unknown {
        /// What was expected.
        phrase: Phrase,
        /// The whole text.
        text: String,
        /// The whole text as it was probably meant.
        suggestion: Option<String>,
        /// The verbs there are, for a message.
        known: String,
    },
    /// Too few arguments.
    TooFew {
        /// What it is.
        phrase: Phrase,
        /// The verb.
        verb: &'static str,
        /// What to write.
        usage: &'static str,
    },
    /// Too many arguments, or one that means nothing here.
    TooMany {
        /// What it is.
        phrase: Phrase,
        /// The verb.
        verb: &'static str,
        /// The first that is too many.
        extra: String,
        /// What was probably meant.
        suggestion: Option<String>,
        /// What to write.
        usage: &'static str,
    },
    /// An option given twice, or two that exclude each other.
    Repeated {
        /// The second.
        option: String,
        /// What to write.
        usage: &'static str,
    },
    /// An option without its value.
    NoValue {
        /// The option.
        option: &'static str,
        /// What to write.
        usage: &'static str,
    },
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { phrase } => write!(f, "the {phrase} is empty"),
            Self::Unknown { phrase, text, .. } => write!(f, "unknown {phrase} {text:?}"),
            Self::TooFew { phrase, verb, .. } => write!(f, "{phrase} {verb:?} lacks an argument"),
            Self::TooMany { phrase, verb, extra, .. } => {
                write!(f, "{phrase} {verb:?} does not take {extra:?}")
            }
            Self::Repeated { option, .. } => write!(f, "{option:?} is one too many"),
            Self::NoValue { option, .. } => write!(f, "{option:?} lacks its value"),
        }
    }
}

impl StepError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Empty { phrase: Phrase::Step } => {
                "write a step, such as \"run 300us\" or \"sleep 16ms\", or remove it".into()
            }
            Self::Empty { phrase: Phrase::Operation } => "write an operation, such as \"revoke NAME\"".into(),
            Self::Unknown { phrase, suggestion, known, .. } => {
                did_you_mean(suggestion.as_ref(), &format!("the {phrase}s are {known}"))
            }
            Self::TooMany { suggestion: Some(meant), .. } => format!("did you mean {meant:?}?"),
            Self::TooFew { usage, .. }
            | Self::TooMany { usage, .. }
            | Self::Repeated { usage, .. }
            | Self::NoValue { usage, .. } => format!("write {usage}"),
        }
    }
}

/// The verb of a phrase, which is word `first` of it, if its arguments are as many as it takes.
pub(crate) fn find<'v, F>(
    words: &Words<'_>,
    first: usize,
    verbs: &'v [Verb<F>],
    report: &mut Report<'_>,
) -> Result<&'v Verb<F>, Reported> {
    let phrase = words.phrase;
    let Some(word) = words.word(first) else {
        return Err(report.push(&words.text.at, StepError::Empty { phrase }));
    };
    let Some(verb) = verbs.iter().find(|verb| verb.name == word) else {
        let error = unknown(words, first, verbs, report);
        return Err(words.refuse(first, error, report));
    };
    let given = words.parts.len() - 1 - first;
    if given < verb.least {
        let error = StepError::TooFew { phrase, verb: verb.name, usage: verb.usage };
        return Err(words.refuse(first, error, report));
    }
    if given > verb.most {
        return Err(words.refuse_extra(first + verb.most + 1, verb.name, verb.usage, &[], report));
    }
    Ok(verb)
}

fn unknown<F>(words: &Words<'_>, first: usize, verbs: &[Verb<F>], report: &Report<'_>) -> StepError {
    let text = words.text.value;
    let word = words.word(first).unwrap_or("");
    let part = words.part(first);
    let (before, rest) = (text.get(..part.start).unwrap_or(""), text.get(part.end..).unwrap_or(""));
    let meant = |words: String| format!("{}{words}{}", before.trim_start(), rest.trim_end());
    let mistyped = || report.guess(word, verbs.iter().map(|verb| verb.name)).map(&meant);
    // "sleep3ms": the blank is missing.
    let glued = || {
        let verb = verbs.iter().find(|verb| verb.most > 0 && word.starts_with(verb.name))?;
        let argument = word.strip_prefix(verb.name)?;
        let plausible = argument.starts_with(|c: char| c.is_ascii_digit()) || argument == "forever";
        plausible.then(|| meant(format!("{} {argument}", verb.name)))
    };
    let suggestion = glued().or_else(mistyped).filter(|meant| meant.len() < 80);
    let known: Vec<&str> = verbs.iter().map(|verb| verb.name).collect();
    StepError::Unknown { phrase: words.phrase, text: clipped(text), suggestion, known: known.join(", ") }
}
