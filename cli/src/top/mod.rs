//! `mainspring top`: what a machine does at each moment, live or from a record.
//!
//! On a terminal it is a screen with keys; into a pipe, or with `--form`, it is one frame and no escape codes.

mod lines;
mod screen;
mod source;

use crate::args::{TopArgs, TopForm};
use crate::failure::Failure;
use crate::output::Output;
use lines::{Shown, lines};
use mainspring_report::prometheus;
use source::Source;
use std::io::{self, IsTerminal};

/// How wide one frame as text is, if there is no terminal to ask.
const PLAIN_WIDTH: usize = 120;

/// Shows what a machine does.
pub fn top(args: &TopArgs, output: Output) -> Result<(), Failure> {
    let mut source = Source::open(&args.source, output)?;
    let form = match args.form {
        None if io::stdout().is_terminal() && io::stdin().is_terminal() => {
            return screen::show(args, source);
        }
        form => form.unwrap_or(TopForm::Text),
    };
    let frame = source.frame_at(args.at)?;
    match form {
        TopForm::Prometheus => output.write(|out| out.write_all(prometheus(&frame).as_bytes())),
        TopForm::Json => {
            let text = serde_json::to_string(&frame).map_err(io::Error::other);
            output.write(|out| writeln!(out, "{}", text?))
        }
        TopForm::Text => {
            let shown =
                Shown { frame: &frame, before: None, note: "", width: PLAIN_WIDTH, height: usize::MAX };
            output.write(|out| {
                lines(&shown).iter().try_for_each(|line| writeln!(out, "{}", line.to_string().trim_end()))
            })
        }
    }
}
