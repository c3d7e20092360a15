//! The words of a step or an operation: names, numbers, durations and the options behind them.

use crate::error::{Report, Reported, clipped};
use crate::grammar::{Phrase, StepError};
use crate::sections::PERIOD;
use crate::source::At;
use crate::value::{ValueError, fixed_in, name_in, out_of_range, percentage, span_in};
use crate::{Lateness, Span};
use mainspring_abi::{Nanos, Weight};
use std::ops::{Range, RangeInclusive};

/// The words of a text and where each stands.
pub(crate) struct Words<'d> {
    pub phrase: Phrase,
    pub text: At<&'d str>,
    pub parts: Vec<Range<usize>>,
}

impl<'d> Words<'d> {
    pub fn split(phrase: Phrase, text: At<&'d str>) -> Self {
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
        Self { phrase, text, parts }
    }

    pub fn part(&self, n: usize) -> Range<usize> {
        self.parts.get(n).cloned().unwrap_or(0..0)
    }

    pub fn word(&self, n: usize) -> Option<&'d str> {
        self.parts.get(n).and_then(|part| self.text.value.get(part.clone()))
    }

    pub fn refuse(&self, n: usize, error: StepError, report: &mut Report<'_>) -> Reported {
        let at = report.source.within(&self.text, self.part(n));
        report.push(&at, error)
    }

    pub fn span(&self, n: usize, report: &mut Report<'_>) -> Result<Span, Reported> {
        span_in(&self.text, self.part(n), report)
    }

    pub fn timeout(&self, n: usize, report: &mut Report<'_>) -> Result<Option<Span>, Reported> {
        self.word(n).map(|_| self.span(n, report)).transpose()
    }

    pub fn name(
        &self,
        n: usize,
        what: &'static str,
        report: &mut Report<'_>,
    ) -> Result<At<&'d str>, Reported> {
        name_in(&self.text, self.part(n), what, report)
    }

    pub fn name_and_timeout(
        &self,
        what: &'static str,
        report: &mut Report<'_>,
    ) -> Result<(At<&'d str>, Option<Span>), Reported> {
        let (name, timeout) = (self.name(1, what, report), self.timeout(2, report));
        Ok((name?, timeout?))
    }

    /// A whole number within limits.
    pub fn number(
        &self,
        n: usize,
        what: &'static str,
        limits: RangeInclusive<u64>,
        report: &mut Report<'_>,
    ) -> Result<u64, Reported> {
        let word = self.word(n).unwrap_or("");
        word.parse().ok().filter(|number| limits.contains(number)).ok_or_else(|| {
            let at = report.source.within(&self.text, self.part(n));
            report.push(&at, out_of_range(what, clipped(word), &limits))
        })
    }

    /// A percentage, in parts per million; all of what is left if it is not there.
    pub fn chance(&self, n: usize, report: &mut Report<'_>) -> Result<Option<u32>, Reported> {
        let Some(word) = self.word(n) else { return Ok(None) };
        percentage(word).map(Some).ok_or_else(|| {
            let at = report.source.within(&self.text, self.part(n));
            report.push(&at, ValueError::BadChance { text: clipped(word) })
        })
    }

    pub fn weight(&self, n: usize, report: &mut Report<'_>) -> Result<Weight, Reported> {
        let number = self.number(n, "weight", 1..=u64::from(u16::MAX), report)?;
        Ok(Weight::new(number).unwrap_or_default())
    }

    /// One duration within limits.
    pub fn fixed(
        &self,
        n: usize,
        what: &'static str,
        limits: RangeInclusive<Nanos>,
        report: &mut Report<'_>,
    ) -> Result<Nanos, Reported> {
        fixed_in(&self.text, self.part(n), what, limits, report)
    }

    /// Refuses word `n`, which could have been one of `options`.
    pub fn refuse_extra(
        &self,
        n: usize,
        verb: &'static str,
        usage: &'static str,
        options: &[&str],
        report: &mut Report<'_>,
    ) -> Reported {
        let word = self.word(n).unwrap_or("");
        let suggestion = report.guess(word, options.iter().copied());
        let error = StepError::TooMany { phrase: self.phrase, verb, extra: clipped(word), suggestion, usage };
        self.refuse(n, error, report)
    }
}

/// What may stand behind the arguments of a verb, in any order, each once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub needs: Option<Nanos>,
    pub deadline: Option<Nanos>,
    pub timeout: Option<Span>,
    pub budget: Option<Nanos>,
    pub period: Option<Nanos>,
    pub late: Option<Lateness>,
}

impl Options {
    /// Reads the words from `first` on; `options` are those that the verb takes.
    pub fn read(
        words: &Words<'_>,
        first: usize,
        verb: &'static str,
        options: &[&'static str],
        usage: &'static str,
        report: &mut Report<'_>,
    ) -> Result<Self, Reported> {
        let mut read = Self::default();
        read.read_from(words, first, verb, options, usage, report)?;
        Ok(read)
    }

    /// As [`Options::read`], on top of what is known already.
    pub fn read_from(
        &mut self,
        words: &Words<'_>,
        first: usize,
        verb: &'static str,
        options: &[&'static str],
        usage: &'static str,
        report: &mut Report<'_>,
    ) -> Result<(), Reported> {
        let mut n = first;
        while let Some(word) = words.word(n) {
            let Some(option) = options.iter().copied().find(|option| *option == word) else {
                return Err(words.refuse_extra(n, verb, usage, options, report));
            };
            if self.has(option) {
                return Err(words.refuse(n, StepError::Repeated { option: option.into(), usage }, report));
            }
            n += self.take(option, n, words, usage, report)?;
        }
        Ok(())
    }

    fn has(&self, option: &str) -> bool {
        match option {
            "needs" => self.needs.is_some(),
            "deadline" => self.deadline.is_some(),
            "timeout" => self.timeout.is_some(),
            "budget" => self.budget.is_some(),
            "period" => self.period.is_some(),
            _ => self.late.is_some(),
        }
    }

    /// Reads the option at word `n`, and says how many words it took.
    fn take(
        &mut self,
        option: &'static str,
        n: usize,
        words: &Words<'_>,
        usage: &'static str,
        report: &mut Report<'_>,
    ) -> Result<usize, Reported> {
        let lateness = match option {
            "drop" => Some(Lateness::Drop),
            "late" => Some(Lateness::Allow),
            _ => None,
        };
        if lateness.is_some() {
            self.late = lateness;
            return Ok(1);
        }
        if words.word(n + 1).is_none() {
            return Err(words.refuse(n, StepError::NoValue { option, usage }, report));
        }
        let some =
            |limits| move |report: &mut Report<'_>| words.fixed(n + 1, option, limits, report).map(Some);
        // A request that is late at once would be answered at once, and time might stand still.
        let positive = Nanos::new(1)..=Nanos::MAX;
        match option {
            "needs" => self.needs = some(positive)(report)?,
            "deadline" => self.deadline = some(positive)(report)?,
            "budget" => self.budget = some(PERIOD)(report)?,
            "period" => self.period = some(PERIOD)(report)?,
            _ => self.timeout = words.timeout(n + 1, report)?,
        }
        Ok(2)
    }
}
