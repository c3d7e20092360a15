//! Phases and choices of a program: where each way begins, and which `end` belongs to what.
//!
//! Conserved: afterwards every index of a step names a step of the same program, or the place behind its last.

use crate::error::{Report, Reported};
use crate::livelock::passes;
use crate::program::ProgramError;
use crate::source::At;
use crate::step::RawStep;
use crate::{Step, Way};

/// How deep phases and choices may stand within each other.
pub(crate) const DEEPEST: usize = 8;

/// One that has begun and not ended.
struct Open {
    at: usize,
    /// The ways of a choice so far, and where their `or` steps are.
    ways: Vec<Way>,
    ors: Vec<usize>,
}

/// Links the beginnings and ends of `steps`, which were read from `raw`.
pub(crate) fn link(
    steps: &mut [At<Step>],
    raw: &[Result<At<RawStep<'_>>, Reported>],
    report: &mut Report<'_>,
) -> Result<(), Reported> {
    let mut open: Vec<Open> = Vec::new();
    for at in 0..steps.len() {
        let refuse = |error, report: &mut Report<'_>| Err(report.push(&steps[at].at, error));
        match &steps[at].value {
            Step::Repeat { .. } | Step::For { .. } => {
                open.push(Open { at, ways: Vec::new(), ors: Vec::new() });
            }
            Step::Either { ways, .. } => {
                let first = Way { first: at + 1, ..ways[0] };
                open.push(Open { at, ways: vec![first], ors: Vec::new() });
            }
            Step::Or { .. } => {
                let choice = open.last_mut().filter(|open| !open.ways.is_empty());
                let Some(Open { ways, ors, .. }) = choice else {
                    return refuse(ProgramError::NothingOpen { verb: "or" }, report);
                };
                let so_far = ways.last().map_or(0, |way| way.below_ppm);
                let below_ppm = match raw.get(at) {
                    Some(Ok(At { value: RawStep::Or(Some(chance)), .. })) => so_far + chance,
                    _ => ALL_PPM,
                };
                if below_ppm > ALL_PPM || so_far == ALL_PPM {
                    return refuse(ProgramError::BeyondAll, report);
                }
                ways.push(Way { below_ppm, first: at + 1 });
                ors.push(at);
            }
            Step::End { .. } => {
                let Some(Open { at: begin, ways, ors }) = open.pop() else {
                    return refuse(ProgramError::NothingOpen { verb: "end" }, report);
                };
                let inside = &steps[begin + 1..at];
                if matches!(steps[begin].value, Step::For { .. })
                    && !inside.iter().any(|step| passes(&step.value))
                {
                    return Err(report.push(&steps[begin].at, ProgramError::TimelessPhase));
                }
                close(steps, begin, at, ways, &ors);
            }
            _ => {}
        }
        if open.len() > DEEPEST {
            return Err(report.push(&steps[at].at, ProgramError::TooDeep));
        }
    }
    match open.first() {
        Some(Open { at, .. }) => {
            let verb = steps[*at].value.verb();
            Err(report.push(&steps[*at].at, ProgramError::NoEnd { verb }))
        }
        None => Ok(()),
    }
}

const ALL_PPM: u32 = 1_000_000;

/// What began at `begin` ends at `last`.
fn close(steps: &mut [At<Step>], begin: usize, last: usize, taken: Vec<Way>, ors: &[usize]) {
    let is_choice = matches!(steps[begin].value, Step::Either { .. });
    match &mut steps[begin].value {
        Step::Repeat { end, .. } | Step::For { end, .. } => *end = last,
        Step::Either { ways, end } => (*ways, *end) = (taken, last),
        _ => {}
    }
    for or in ors {
        steps[*or].value = Step::Or { end: last };
    }
    steps[last].value = Step::End { first: (!is_choice).then_some(begin + 1) };
}
