//! What a program is using, while it runs: a line on standard error every second.
//!
//! The line is drawn over itself where standard error is a terminal that the program's standard output is not: a program
//! that writes to the same terminal would write into the line. There, it is shown only when asked for, as whole lines.

use crate::output::Output;
use mainspring_abi::Nanos;
use mainspring_host::bytes;
use mainspring_host::run::Sample;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// The line.
#[derive(Debug)]
pub struct Live {
    /// Whether it is drawn over itself.
    terminal: bool,
    drawn: bool,
    before: Option<Sample>,
}

impl Live {
    /// How often it is drawn.
    pub const EVERY: Duration = Duration::from_secs(1);

    pub fn new() -> Self {
        let terminal = io::stderr().is_terminal() && !io::stdout().is_terminal();
        Self { terminal, drawn: false, before: None }
    }

    /// Whether it is to be shown: if asked for, or if standard error is a terminal that shows progress.
    pub fn is_wanted(&self, stats: bool, output: Output) -> bool {
        stats || self.terminal && output.bar_style().is_some()
    }

    pub fn show(&mut self, sample: &Sample) {
        let line = line(sample, self.before.as_ref());
        let mut stderr = io::stderr().lock();
        // If standard error is gone, the line is not needed.
        let _ = if self.terminal { write!(stderr, "\r\x1b[K{line}") } else { writeln!(stderr, "{line}") };
        let _ = stderr.flush();
        self.drawn = self.terminal;
        self.before = Some(*sample);
    }

    /// Takes the line off the terminal.
    pub fn clear(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
            self.drawn = false;
        }
    }
}

fn line(sample: &Sample, before: Option<&Sample>) -> String {
    let mut facts = vec![format!("{} s", sample.elapsed.as_secs())];
    let usage = &sample.usage;
    if let Some(used) = usage.used_ns {
        let earlier = before.and_then(|before| before.usage.used_ns).unwrap_or_default();
        let since = before.map_or(sample.elapsed, |before| sample.elapsed - before.elapsed);
        let per_mille = u128::from(used.saturating_sub(earlier)) * 1_000 / since.as_nanos().max(1);
        facts.push(format!("used {} ({}.{} % now)", Nanos::new(used), per_mille / 10, per_mille % 10));
    }
    if let (Some(periods), Some(throttled)) = (usage.periods, usage.throttled_periods) {
        facts.push(format!("held back in {throttled} of {periods} periods"));
    }
    facts.extend(usage.memory_bytes.map(|memory| format!("memory {}", bytes(memory))));
    facts.extend(
        usage.processes.map(|n| if n == 1 { "1 process".to_owned() } else { format!("{n} processes") }),
    );
    facts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_host::cgroup::Usage;

    #[test]
    fn the_line_tells_the_use_since_the_line_before() {
        let at = |s: u64, used_ms: u64| Sample {
            elapsed: Duration::from_secs(s),
            usage: Usage {
                used_ns: Some(used_ms * 1_000_000),
                periods: Some(s * 10),
                throttled_periods: Some(s * 9),
                processes: Some(2),
                ..Usage::default()
            },
        };
        let line = line(&at(2, 600), Some(&at(1, 400)));
        assert_eq!(line, "2 s, used 600ms (20.0 % now), held back in 18 of 20 periods, 2 processes");
    }
}
