//! The progress bar of what takes long.

use crate::output::{BarStyle, Output};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// What is over sooner than this shows no bar: it would only flicker.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar on standard error, once it has taken long enough and only if a person would see it. Gone when dropped.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    end: u64,
    began: Instant,
    style: Option<BarStyle>,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins `what`, which is done at `end`.
    pub fn new(what: &'static str, end: u64, output: Output) -> Self {
        Self { what, end, began: Instant::now(), style: output.bar_style(), bar: None }
    }

    /// It has come to `at`; `shown` says so in words.
    pub fn at(&mut self, at: u64, shown: impl FnOnce() -> String) {
        let Some(style) = self.style else { return };
        if self.bar.is_none() && self.began.elapsed() >= PATIENCE {
            self.bar = Some(bar(self.what, self.end, self.began, style));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(shown());
            bar.set_position(at);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &'static str, end: u64, began: Instant, style: BarStyle) -> ProgressBar {
    let template = if style.colour {
        "{prefix:.bold} {bar:40.cyan/dim} {percent:>3}%  {msg}, {eta} left"
    } else {
        "{prefix} {bar:40} {percent:>3}%  {msg}, {eta} left"
    };
    let chars = if style.unicode { "━╸─" } else { "=> " };
    // The template is ours and correct; were it not, the bar would look plainer.
    let look = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(end), ProgressDrawTarget::stderr())
        .with_style(look.progress_chars(chars))
        .with_prefix(what)
        .with_elapsed(began.elapsed())
}
