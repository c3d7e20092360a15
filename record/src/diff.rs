//! Where two recorded runs part.

use crate::file::Header;
use crate::log::{Entry, Log};
use mainspring_report::instant;
use mainspring_sched::Decision;
use mainspring_sched::flight::Outcome;

/// The first decision in which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    /// So many decisions are the same.
    pub same: usize,
    /// What was decided then in each of the two; `None` where the run was over.
    pub decisions: [Option<String>; 2],
}

/// Where the two runs part; `None` if they made the same decisions.
#[must_use]
pub fn parting(a: (&Header, &Log), b: (&Header, &Log)) -> Option<Parting> {
    let same = decisions(a).zip(decisions(b)).take_while(|(a, b)| a.1 == b.1).count();
    let decided = |run: (&Header, &Log)| decisions(run).nth(same).map(|(entry, _)| told(run.0, entry));
    let decisions = [decided(a), decided(b)];
    (decisions != [None, None]).then_some(Parting { same, decisions })
}

/// When and where something was decided, and for which thread; none for idle.
type Decided<'r> = (u64, usize, Option<&'r str>);

fn decisions<'r>((header, log): (&'r Header, &'r Log)) -> impl Iterator<Item = (&'r Entry, Decided<'r>)> {
    log.entries().iter().filter_map(move |entry| {
        let Outcome::Decided(decision) = entry.outcome else { return None };
        let thread = match decision {
            Decision::Run(run) => header.threads.get(run.thread.index() as usize).map(String::as_str),
            Decision::Idle => None,
        };
        Some((entry, (entry.now.get(), entry.cpu.index(), thread)))
    })
}

/// An event for people, with threads by name.
fn told(header: &Header, entry: &Entry) -> String {
    let event = entry.event.summary().to_string();
    // The summary ends with the number of the thread, such as `t5.0`.
    let numbered = event.rsplit_once(" t").and_then(|(what, who)| {
        let index: usize = who.split_once('.')?.0.parse().ok()?;
        Some(format!("{what} {}", header.threads.get(index)?))
    });
    let event = numbered.unwrap_or(event);
    let name = |index: u32| header.threads.get(index as usize).map_or("a thread", String::as_str);
    let came = match entry.outcome {
        Outcome::Decided(Decision::Run(run)) => format!(": runs {}", name(run.thread.index())),
        Outcome::Decided(Decision::Idle) => ": idles".to_owned(),
        _ => String::new(),
    };
    format!("at {} on CPU {}: {event}{came}", instant(entry.now.get()), entry.cpu)
}
