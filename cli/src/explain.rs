//! `mainspring explain`.
//!
//! A miss or the worst job is looked up first, in the summary at the end of the record; then it is a question about
//! a thread and a time like any other.

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use mainspring_abi::Nanos;
use mainspring_record::explain::{self, ExplainError};
use mainspring_record::file::RecordError;
use mainspring_record::replay::ReplayError;
use mainspring_report::{Miss, Report, instant};
use std::fmt::Write;
use std::io::Read;

/// Says why a thread ran or did not, or what it did with its time.
pub fn explain(args: &ExplainArgs, output: Output) -> Result<(), Failure> {
    let mut record = input::record(&args.record, "replaying", output)?;
    let bad = |error| Failure::Explain { name: input::name(&args.record), error };
    let mut bytes = Vec::new();
    let read = record.read_to_end(&mut bytes);
    read.map_err(|cause| bad(ExplainError::Replay(ReplayError::Record(RecordError::Io(cause)))))?;
    output.line(answer(args, &bytes).map_err(bad)?)
}

fn answer(args: &ExplainArgs, record: &[u8]) -> Result<String, ExplainError> {
    let summary = || explain::summary(record);
    if let Some(number) = args.miss {
        return of_miss(record, &summary()?, number);
    }
    if let Some(thread) = &args.worst {
        let (from, to) = explain::worst(&summary()?, thread)?;
        let spent = explain::spent(record, thread, from, to)?;
        return Ok(format!("the longest job of {thread} took {}\n{spent}", instant((to - from).get())));
    }
    // One of the two is there: the command line is refused otherwise.
    let thread = args.thread.as_deref().unwrap_or_default();
    match (args.between.as_slice(), args.at) {
        (&[from, to], _) => {
            explain::spent(record, thread, from.min(to), from.max(to)).map(|spent| spent.to_string())
        }
        (_, at) => explain::explain(record, thread, at.unwrap_or_default())
            .map(|explanation| explanation.to_string()),
    }
}

/// A miss: whose, what became of it, what its thread did from the release to the deadline, and why it was not done then.
fn of_miss(record: &[u8], summary: &Report, number: u64) -> Result<String, ExplainError> {
    let miss = explain::miss(summary, number)?;
    let Miss { thread, context, release_ns, time_ns, .. } = miss;
    let name = thread.as_deref().unwrap_or_default();
    let whose = context
        .as_ref()
        .map_or_else(|| name.to_owned(), |context| format!("context {context}, held by {name}"));
    let (release, due) = (instant(*release_ns), instant(*time_ns));
    let mut text = format!(
        "miss {number} of {}: {whose}, released at {release}, due at {due}: {}",
        summary.misses_total,
        miss.kind.name()
    );
    if let Some(finish) = miss.finish_ns {
        let _ = write!(text, ", it ended {} after its deadline", instant(finish.saturating_sub(*time_ns)));
    }
    let spent = explain::spent(record, name, Nanos::new(*release_ns), Nanos::new(*time_ns))?;
    let then = explain::explain(record, name, Nanos::new(*time_ns))?;
    Ok(format!("{text}\n\n{spent}\n{then}"))
}
