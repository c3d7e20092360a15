use super::{Phases, Step, ThreadSpec};
use mainspring_abi::Nanos;

impl ThreadSpec {
    /// Whether its program has an `every` step, so that what it does is jobs.
    #[must_use]
    pub fn is_periodic(&self) -> bool {
        self.program.iter().any(|step| matches!(step, Step::Every(_)))
    }

    /// The period of the `every` step that a thread before step `at` comes to next: see [`Phases::next_period`].
    #[must_use]
    pub fn next_period(&self, at: usize, phases: &Phases, now: Nanos) -> Option<Nanos> {
        phases.next_period(&self.program, at, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use mainspring_random::{Random, Stream};

    fn table(program: &str) -> ThreadSpec {
        let text = format!("[[thread]]\nname = \"t\"\nprogram = [{program}]\n");
        parse("w.toml", &text).expect("a workload").threads.remove(0)
    }

    /// The steps of one round, as they are taken at the times that `clock` tells.
    fn taken(table: &ThreadSpec, seed: u64, mut clock: impl FnMut(&Step) -> Nanos) -> Vec<String> {
        let (mut phases, mut random, mut at) = (Phases::new(), Random::new(seed, Stream::Thread(0)), 0);
        let mut taken = Vec::new();
        while let Some(step) = table.program.get(at) {
            at = match step {
                Step::Repeat { .. }
                | Step::For { .. }
                | Step::Either { .. }
                | Step::Or { .. }
                | Step::End { .. } => phases.next(&table.program, at, clock(step), &mut random),
                Step::Run(span) => {
                    taken.push(span.min.to_string());
                    let _ = clock(step);
                    at + 1
                }
                _ => at + 1,
            };
        }
        assert_eq!(phases, Phases::new(), "every phase that began has ended");
        taken
    }

    #[test]
    fn phases_are_repeated_and_nested() {
        let table =
            table("\"repeat 2\", \"run 1us\", \"repeat 3\", \"run 2us\", \"end\", \"end\", \"run 3us\"");
        let taken = taken(&table, 1, |_| Nanos::ZERO);
        assert_eq!(taken, ["1us", "2us", "2us", "2us", "1us", "2us", "2us", "2us", "3us"]);
    }

    #[test]
    fn a_phase_for_a_time_ends_after_the_round_in_which_it_has_passed() {
        let table = table("\"for 10us\", \"run 4us\", \"end\", \"run 1us\"");
        let mut now = Nanos::ZERO;
        let clock = |step: &Step| {
            if let Step::Run(span) = step {
                now += span.min;
            }
            now
        };
        assert_eq!(taken(&table, 1, clock), ["4us", "4us", "4us", "1us"]);
    }

    #[test]
    fn ways_are_taken_as_often_as_they_say() {
        let table =
            table("\"either 20%\", \"run 1us\", \"or 30%\", \"run 2us\", \"or\", \"run 3us\", \"end\"");
        let some = super::tests::table("\"either 25%\", \"run 1us\", \"end\", \"run 9us\"");
        let mut counts = [0u32; 3];
        let mut skipped = 0;
        for seed in 0..10_000 {
            let way = taken(&table, seed, |_| Nanos::ZERO);
            assert_eq!(way.len(), 1, "{way:?}");
            counts[["1us", "2us", "3us"].iter().position(|name| *name == way[0]).expect("a way")] += 1;
            skipped += u32::from(taken(&some, seed, |_| Nanos::ZERO) == ["9us"]);
        }
        // Five standard deviations of ten thousand draws are below 250.
        for (count, expected) in counts.into_iter().chain([skipped]).zip([2_000, 3_000, 5_000, 7_500]) {
            assert!(count.abs_diff(expected) < 250, "{counts:?}, {skipped}");
        }
    }

    #[test]
    fn the_next_period_is_that_of_the_phase() {
        let table = table(
            "\"repeat 2\", \"run 1us\", \"every 1ms\", \"end\", \"repeat 2\", \"run 1us\", \"every 5ms\", \"end\"",
        );
        let (mut phases, mut random, mut at) = (Phases::new(), Random::new(1, Stream::Thread(0)), 0);
        let mut seen = Vec::new();
        for _ in 0..4 {
            while !matches!(table.program[at], Step::Every(_)) {
                at = match table.program[at] {
                    Step::Run(_) => at + 1,
                    _ => phases.next(&table.program, at, Nanos::ZERO, &mut random),
                };
            }
            at += 1;
            seen.push(table.next_period(at, &phases, Nanos::ZERO).expect("there is one").to_string());
        }
        assert_eq!(seen, ["1ms", "5ms", "5ms", "1ms"], "after the first, second, third and fourth");
        assert_eq!(
            super::tests::table("\"repeat 3\", \"run 1us\", \"end\"").next_period(
                0,
                &Phases::new(),
                Nanos::ZERO
            ),
            None
        );

        let chosen = super::tests::table(
            "\"either 50%\", \"run 1us\", \"or\", \"run 1us\", \"every 3ms\", \"end\", \"sleep 1us\"",
        );
        assert!(chosen.is_periodic());
        let next = chosen.next_period(0, &Phases::new(), Nanos::ZERO);
        assert_eq!(next, Some(Nanos::from_millis(3)), "on the other way");
    }
}
