//! Programs that cannot keep within their budgets, found without running them.
//!
//! A promise holds as long as each context stays within its budget. The least that a program runs between two of its `every`
//! steps is known from its text. If that is more than its context grants until the next one, or more in the long run than it
//! grants at all, the thread is late whatever else happens.

use mainspring_abi::Nanos;
use mainspring_workload::{ContextSpec, Step, ThreadSpec, Workload};

/// A program that asks for more than its context grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The thread table.
    pub thread: String,
    /// The line of its longest `run` step, if the workload comes from a file.
    pub line: Option<usize>,
    /// The least that it runs.
    pub needs: Nanos,
    /// In each of these.
    pub every: Nanos,
    /// What its context grants.
    pub budget: Nanos,
    /// In each of these.
    pub period: Nanos,
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { thread, line, needs, every, budget, period } = self;
        let line = line.map_or_else(String::new, |line| format!("line {line}: "));
        write!(
            f,
            "{line}{thread} runs at least {needs} in each {every}, and its context grants {budget} in each {period}"
        )
    }
}

/// The threads whose least demand is beyond what they are granted.
#[must_use]
pub fn excessive(workload: &Workload) -> Vec<Excess> {
    let bound = workload.threads.iter().enumerate();
    bound
        .filter_map(|(number, thread)| {
            let spec = &workload.contexts[thread.context?];
            let (needs, longest, every) = excess(thread, spec)?;
            Some(Excess {
                thread: thread.name.clone(),
                line: workload.places.step(number, longest),
                needs,
                every,
                budget: spec.budget,
                period: spec.period,
            })
        })
        .collect()
}

/// What runs between two `every` steps.
#[derive(Clone, Copy, Default)]
struct Stretch {
    needs: Nanos,
    /// The step that runs longest, and how long.
    longest: (Nanos, usize),
}

/// The most that the program of `thread` needs in one stretch, the step to blame, and how long a stretch may take.
fn excess(thread: &ThreadSpec, spec: &ContextSpec) -> Option<(Nanos, usize, Nanos)> {
    // Which way a choice goes, and how long a phase lasts, its text does not say.
    if thread.program.iter().any(|step| matches!(step, Step::End { .. })) {
        return None;
    }
    // Another context, or none, may pay for a part of it.
    if thread.program.iter().any(|step| matches!(step, Step::Bind(_) | Step::Unbind)) {
        return None;
    }
    let mut periods = thread.program.iter().filter_map(|step| match step {
        Step::Every(period) => Some(*period),
        _ => None,
    });
    let every = periods.next()?;
    if periods.any(|other| other != every) || every.is_zero() {
        return None;
    }
    let stretches = stretches(thread);
    let worst = stretches.iter().max_by_key(|stretch| stretch.needs)?;
    let refills = every.get().div_ceil(spec.period.get().max(1));
    let until_next = u128::from(refills) * u128::from(spec.budget.get());
    let goes_on = thread.times.is_none() && !thread.program.contains(&Step::Exit);
    let needs: u128 = stretches.iter().map(|stretch| u128::from(stretch.needs.get())).sum();
    let cycle = u128::from(every.get()) * stretches.len() as u128;
    // Shares are compared without division: needs / cycle > budget / period.
    let asked = needs.saturating_mul(spec.period.get().into());
    let granted = cycle.saturating_mul(spec.budget.get().into());
    let beyond = u128::from(worst.needs.get()) > until_next || (goes_on && asked > granted);
    beyond.then_some((worst.needs, worst.longest.1, every))
}

/// The stretches of one round of the program. What follows the last `every` belongs to the first of the next round.
fn stretches(thread: &ThreadSpec) -> Vec<Stretch> {
    let mut all = vec![Stretch::default()];
    for (at, step) in thread.program.iter().enumerate() {
        match step {
            Step::Every(_) => all.push(Stretch::default()),
            Step::Run(span) => add(&mut all, span.min, at),
            Step::RunForever => add(&mut all, Nanos::MAX, at),
            _ => {}
        }
    }
    let rest = all.pop().unwrap_or_default();
    if let Some(first) = all.first_mut() {
        first.needs += rest.needs;
        first.longest = first.longest.max(rest.longest);
    }
    all
}

fn add(all: &mut [Stretch], length: Nanos, at: usize) {
    if let Some(stretch) = all.last_mut() {
        stretch.needs += length;
        if length > stretch.longest.0 {
            stretch.longest = (length, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_workload::parse;

    fn found(program: &str) -> Vec<(Nanos, Option<usize>)> {
        let text = format!(
            "[[context]]\nname = \"c\"\nbudget = \"2ms\"\nperiod = \"10ms\"\n[[thread]]\nname = \"t\"\ncontext = \"c\"\n\
             program = [\n{program}\n]\n"
        );
        let workload = parse("w.toml", &text).expect("a workload");
        excessive(&workload).into_iter().map(|excess| (excess.needs, excess.line)).collect()
    }

    #[test]
    fn the_least_that_a_program_runs_is_held_against_its_budget() {
        let ms = Nanos::from_millis;
        assert_eq!(found("\"run 2ms\",\n\"every 10ms\""), []);
        assert_eq!(found("\"run 1ms..9ms\",\n\"every 10ms\""), [], "it may stay within");
        assert_eq!(
            found("\"run 1ms\",\n\"run 1500us\",\n\"every 10ms\""),
            [(Nanos::from_micros(2_500), Some(10))]
        );
        assert_eq!(found("\"run 4ms\",\n\"every 20ms\""), [], "two budgets");
        assert_eq!(found("\"run 5ms\",\n\"every 20ms\""), [(ms(5), Some(9))]);
        assert_eq!(
            found("\"run 1500us\",\n\"every 5ms\""),
            [(Nanos::from_micros(1_500), Some(9))],
            "in the long run"
        );
        assert_eq!(found("\"run 1ms\",\n\"every 10ms\",\n\"run 3ms\",\n\"every 10ms\""), [(ms(3), Some(11))]);
        assert_eq!(found("\"run 5ms\",\n\"sleep 1ms\""), [], "it has no deadline of its own");
        assert_eq!(found("\"unbind\",\n\"run 5ms\",\n\"every 10ms\""), [], "on best effort");
        assert_eq!(found("\"run forever\""), []);
        assert_eq!(found("\"either 1%\",\n\"run 5ms\",\n\"end\",\n\"every 10ms\""), [], "hardly ever");
    }
}
