//! The text of one step: a verb and its arguments.

use crate::error::{Report, Reported, clipped, did_you_mean};
use crate::source::At;
use crate::value::{fixed_in, name_in, out_of_range, span_in};
use crate::{Span, Step};
use mainspring_abi::{Nanos, Weight};
use std::fmt;
use std::ops::Range;

/// A step whose names are not resolved yet.
#[derive(Clone, Debug)]
pub(crate) enum RawStep<'d> {
    /// A step without names.
    Plain(Step),
    Unpark(At<&'d str>),
    Call(At<&'d str>, Option<Span>),
    Recv(At<&'d str>, Option<Span>),
    Spawn(At<&'d str>),
    Join(At<&'d str>, Option<Span>),
}

/// A verb: its name, how many arguments it takes, and what to write.
struct Verb {
    name: &'static str,
    least: usize,
    most: usize,
    usage: &'static str,
    read: for<'d> fn(&Words<'d>, &mut Report<'_>) -> Result<RawStep<'d>, Reported>,
}

const VERBS: [Verb; 13] = [
    verb("run", 1, 1, "\"run 300us\", \"run 1ms..4ms\" or \"run forever\"", run),
    verb("sleep", 1, 1, "\"sleep 16ms\" or \"sleep 1ms..4ms\"", |words, report| {
        words.span(1, report).map(|span| RawStep::Plain(Step::Sleep(span)))
    }),
    verb("every", 1, 1, "\"every 20ms\"", |words, report| {
        let period = fixed_in(&words.text, words.part(1), "every", Nanos::new(1)..=Nanos::MAX, report);
        period.map(|period| RawStep::Plain(Step::Every(period)))
    }),
    verb("yield", 0, 0, "\"yield\"", |_, _| Ok(RawStep::Plain(Step::Yield))),
    verb("park", 0, 1, "\"park\" or \"park 5ms\"", |words, report| {
        words.timeout(1, report).map(|timeout| RawStep::Plain(Step::Park { timeout }))
    }),
    verb("unpark", 1, 1, "\"unpark NAME\"", |words, report| {
        words.name(1, "thread", report).map(RawStep::Unpark)
    }),
    verb("call", 1, 2, "\"call ENDPOINT\" or \"call ENDPOINT 5ms\"", |words, report| {
        let (name, timeout) = words.name_and_timeout("endpoint", report)?;
        Ok(RawStep::Call(name, timeout))
    }),
    verb("recv", 1, 2, "\"recv ENDPOINT\" or \"recv ENDPOINT 5ms\"", |words, report| {
        let (name, timeout) = words.name_and_timeout("endpoint", report)?;
        Ok(RawStep::Recv(name, timeout))
    }),
    verb("reply", 0, 0, "\"reply\"", |_, _| Ok(RawStep::Plain(Step::Reply))),
    verb("spawn", 1, 1, "\"spawn NAME\"", |words, report| {
        words.name(1, "thread", report).map(RawStep::Spawn)
    }),
    verb("join", 1, 2, "\"join NAME\" or \"join NAME 5ms\"", |words, report| {
        let (name, timeout) = words.name_and_timeout("thread", report)?;
        Ok(RawStep::Join(name, timeout))
    }),
    verb("weight", 1, 1, "\"weight 128\"", weight),
    verb("exit", 0, 0, "\"exit\"", |_, _| Ok(RawStep::Plain(Step::Exit))),
];

const fn verb(
    name: &'static str,
    least: usize,
    most: usize,
    usage: &'static str,
    read: for<'d> fn(&Words<'d>, &mut Report<'_>) -> Result<RawStep<'d>, Reported>,
) -> Verb {
    Verb { name, least, most, usage, read }
}

/// Why a text is no step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// Nothing there.
    Empty,
    /// A verb that does not exist.
    Unknown {
        /// The whole step.
        text: String,
        /// The whole step as it was probably meant.
        suggestion: Option<String>,
    },
    /// Too few arguments.
    TooFew {
        /// The verb.
        verb: &'static str,
        /// What to write.
        usage: &'static str,
    },
    /// Too many arguments.
    TooMany {
        /// The verb.
        verb: &'static str,
        /// The first that is too many.
        extra: String,
        /// What to write.
        usage: &'static str,
    },
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the step is empty"),
            Self::Unknown { text, .. } => write!(f, "unknown step {text:?}"),
            Self::TooFew { verb, .. } => write!(f, "step {verb:?} lacks an argument"),
            Self::TooMany { verb, extra, .. } => write!(f, "step {verb:?} does not take {extra:?}"),
        }
    }
}

impl StepError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Empty => "write a step, such as \"run 300us\" or \"sleep 16ms\", or remove it".into(),
            Self::Unknown { suggestion, .. } => {
                let verbs: Vec<&str> = VERBS.iter().map(|verb| verb.name).collect();
                did_you_mean(suggestion.as_ref(), &format!("the steps are {}", verbs.join(", ")))
            }
            Self::TooFew { usage, .. } | Self::TooMany { usage, .. } => format!("write {usage}"),
        }
    }
}

/// Reads a step.
pub(crate) fn step<'d>(text: At<&'d str>, report: &mut Report<'_>) -> Result<RawStep<'d>, Reported> {
    let words = Words::split(text);
    let Some(first) = words.word(0) else {
        return Err(report.push(&words.text.at, StepError::Empty));
    };
    let Some(verb) = VERBS.iter().find(|verb| verb.name == first) else {
        let error = unknown(words.text.value, first, report);
        return Err(words.refuse(0, error, report));
    };
    let given = words.parts.len() - 1;
    if given < verb.least {
        return Err(words.refuse(0, StepError::TooFew { verb: verb.name, usage: verb.usage }, report));
    }
    if given > verb.most {
        let place = verb.most + 1;
        let extra = clipped(words.word(place).unwrap_or(""));
        return Err(words.refuse(
            place,
            StepError::TooMany { verb: verb.name, extra, usage: verb.usage },
            report,
        ));
    }
    (verb.read)(&words, report)
}

fn unknown(text: &str, first: &str, report: &Report<'_>) -> StepError {
    let rest = text.trim_start().strip_prefix(first).unwrap_or("");
    let mistyped =
        || report.guess(first, VERBS.iter().map(|verb| verb.name)).map(|meant| format!("{meant}{rest}"));
    // "sleep3ms": the blank is missing.
    let glued = || {
        let verb = VERBS.iter().find(|verb| verb.most > 0 && first.starts_with(verb.name))?;
        let argument = first.strip_prefix(verb.name)?;
        let plausible = argument.starts_with(|c: char| c.is_ascii_digit()) || argument == "forever";
        plausible.then(|| format!("{} {argument}{rest}", verb.name))
    };
    let suggestion = glued().or_else(mistyped).filter(|meant| meant.len() < 80);
    StepError::Unknown { text: clipped(text), suggestion }
}

/// A step's words and where each stands.
struct Words<'d> {
    text: At<&'d str>,
    parts: Vec<Range<usize>>,
}

impl<'d> Words<'d> {
    fn split(text: At<&'d str>) -> Self {
        let mut parts = Vec::new();
        let mut begun = None;
        let end = (text.value.len(), ' ');
        for (offset, c) in text.value.char_indices().chain(std::iter::once(end)) {
            match (begun, c.is_whitespace()) {
                (None, false) => begun = Some(offset),
                (Some(start), true) => {
                    parts.push(start..offset);
                    begun = None;
                }
                _ => {}
            }
        }
        Self { text, parts }
    }

    fn part(&self, n: usize) -> Range<usize> {
        self.parts.get(n).cloned().unwrap_or(0..0)
    }

    fn word(&self, n: usize) -> Option<&'d str> {
        self.parts.get(n).and_then(|part| self.text.value.get(part.clone()))
    }

    fn refuse(&self, n: usize, error: StepError, report: &mut Report<'_>) -> Reported {
        let at = report.source.within(&self.text, self.part(n));
        report.push(&at, error)
    }

    fn span(&self, n: usize, report: &mut Report<'_>) -> Result<Span, Reported> {
        span_in(&self.text, self.part(n), report)
    }

    fn timeout(&self, n: usize, report: &mut Report<'_>) -> Result<Option<Span>, Reported> {
        self.word(n).map(|_| self.span(n, report)).transpose()
    }

    fn name(&self, n: usize, what: &'static str, report: &mut Report<'_>) -> Result<At<&'d str>, Reported> {
        name_in(&self.text, self.part(n), what, report)
    }

    fn name_and_timeout(
        &self,
        what: &'static str,
        report: &mut Report<'_>,
    ) -> Result<(At<&'d str>, Option<Span>), Reported> {
        let (name, timeout) = (self.name(1, what, report), self.timeout(2, report));
        Ok((name?, timeout?))
    }
}

fn run<'d>(words: &Words<'d>, report: &mut Report<'_>) -> Result<RawStep<'d>, Reported> {
    if words.word(1) == Some("forever") {
        return Ok(RawStep::Plain(Step::RunForever));
    }
    words.span(1, report).map(|span| RawStep::Plain(Step::Run(span)))
}

fn weight<'d>(words: &Words<'d>, report: &mut Report<'_>) -> Result<RawStep<'d>, Reported> {
    let word = words.word(1).unwrap_or("");
    let number = word.parse().ok().and_then(|number| Weight::new(number).ok());
    number.map(|weight| RawStep::Plain(Step::Weight(weight))).ok_or_else(|| {
        let at = report.source.within(&words.text, words.part(1));
        report.push(&at, out_of_range("weight", clipped(word), &(1..=u64::from(u16::MAX))))
    })
}
