//! `mainspring explain`.

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;

/// Says why a thread ran or did not.
pub fn explain(args: &ExplainArgs, output: Output) -> Result<(), Failure> {
    let record = input::record(&args.record, "replaying", output)?;
    match mainspring_record::explain::explain(record, &args.thread, args.at) {
        Ok(explanation) => output.line(explanation),
        Err(error) => Err(Failure::Explain { name: input::name(&args.record), error }),
    }
}
