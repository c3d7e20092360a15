//! What a context grants over time, and how much of it could have been used.

use mainspring_abi::Nanos;

/// What a context has granted: nothing before the first terms, and nothing from its end on.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// In the order of time.
    since: Vec<Term>,
    ended: Option<Nanos>,
}

#[derive(Clone, Copy, Debug)]
struct Term {
    since: Nanos,
    budget: Nanos,
    period: Nanos,
}

impl Terms {
    /// From `now` on, `budget` every `period`.
    pub fn begin(&mut self, now: Nanos, budget: Nanos, period: Nanos) {
        self.since.push(Term { since: now, budget, period });
    }

    /// It grants nothing from `now` on. What has ended stays so.
    pub fn end(&mut self, now: Nanos) {
        self.ended.get_or_insert(now);
    }

    /// The budget and the period that it granted last.
    #[must_use]
    pub fn last(&self) -> Option<(Nanos, Nanos)> {
        self.since.last().map(|term| (term.budget, term.period))
    }

    /// The most that could have been used until `now`: in each period that began the budget, or the time there was.
    #[must_use]
    pub fn available(&self, now: Nanos) -> Nanos {
        let end = self.ended.unwrap_or(now).min(now);
        let ends = self.since.iter().skip(1).map(|next| next.since).chain([end]);
        let during = |(term, until): (&Term, Nanos)| {
            let (time, period) = ((until - term.since).get(), term.period.get().max(1));
            let whole = term.budget.get().saturating_mul(time / period);
            Nanos::new(whole.saturating_add(term.budget.get().min(time % period)))
        };
        self.since.iter().zip(ends).map(during).fold(Nanos::ZERO, |sum, part| sum + part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_used_is_counted_by_the_terms_of_each_moment() {
        let ms = Nanos::from_millis;
        let mut terms = Terms::default();
        assert_eq!(terms.available(ms(50)), Nanos::ZERO, "nothing was granted");
        terms.begin(ms(10), ms(2), ms(10));
        assert_eq!(terms.available(ms(21)), ms(3), "a period, and the time of the next");
        terms.begin(ms(30), ms(5), ms(10));
        assert_eq!(terms.available(ms(50)), ms(2 * 2 + 2 * 5));
        terms.end(ms(40));
        terms.end(ms(45));
        assert_eq!((terms.available(ms(50)), terms.last()), (ms(2 * 2 + 5), Some((ms(5), ms(10)))));
    }
}
