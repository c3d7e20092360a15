//! The report as a table for a terminal.
//!
//! Plain text unless the style asks for colour; no line is longer than the style's columns as long as those are
//! at least 40. What a narrow terminal hides, what is folded and what deserves attention is said in a line of
//! its own. Control characters from outside (a file name, a thread name) never reach the terminal.

mod admission;
mod authority;
mod bar;
mod cpus;
mod fold;
mod grid;
mod header;
mod jobs;
mod notes;
mod style;
mod telemetry;
mod threads;

pub use admission::admission_text;
pub use cpus::SUMMARISE_ABOVE;
pub use fold::FOLD_ABOVE;
pub use style::TextStyle;

use crate::Report;

/// The report as text, every line ended by a newline.
#[must_use]
pub fn text(report: &Report, style: TextStyle) -> String {
    let mut out = header::render(report, style);
    for section in [
        threads::render(report, style),
        jobs::jobs(report, style),
        jobs::endpoints(report, style),
        cpus::render(report, style),
        authority::contexts(report, style),
        authority::islands(report, style),
        authority::leases(report, style),
        authority::rings(report, style),
        authority::sync(report, style),
        telemetry::render(report, style),
        jobs::expectations(report, style),
        notes::render(report, style),
    ] {
        if !section.is_empty() {
            out.push('\n');
            out.push_str(&section);
        }
    }
    out
}
