//! The terminal: what goes to standard output and standard error, how wide, and in which colours.
//!
//! Results go to standard output, all else to standard error. The reader of standard output may stop at any time
//! (`| head`): that is not an error. Names come from files, so control characters are taken out of everything that
//! is not the report, which does so itself.

use crate::args::ColorWhen;
use crate::failure::Failure;
use clap::builder::styling::{AnsiColor, Style};
use mainspring_report::TextStyle;
use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// How to speak to the user.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    colour_stdout: bool,
    colour_stderr: bool,
    quiet: bool,
}

/// How a progress bar is to look.
#[derive(Clone, Copy, Debug)]
pub struct BarStyle {
    /// Whether to use ANSI colours.
    pub colour: bool,
    /// Whether to draw with line characters rather than with ASCII.
    pub unicode: bool,
}

impl Output {
    /// As the options, the environment and the terminal say.
    pub fn new(when: ColorWhen, quiet: bool) -> Self {
        let colour = |terminal: bool| match when {
            ColorWhen::Auto => terminal && environment_allows_colour(),
            ColorWhen::Always => true,
            ColorWhen::Never => false,
        };
        Self {
            colour_stdout: colour(io::stdout().is_terminal()),
            colour_stderr: colour(io::stderr().is_terminal()),
            quiet,
        }
    }

    /// How the text report is to look on standard output.
    pub fn text_style(self, expand: bool) -> TextStyle {
        let plain = TextStyle::default();
        let width = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        TextStyle {
            columns: width.filter(|columns| *columns > 0).unwrap_or(plain.columns),
            whole: !io::stdout().is_terminal(),
            colour: self.colour_stdout,
            unicode: locale_has_unicode(),
            expand,
        }
    }

    /// How a progress bar is to look, if it is wanted and would be seen.
    pub fn bar_style(self) -> Option<BarStyle> {
        let wanted = !self.quiet && io::stderr().is_terminal();
        wanted.then(|| BarStyle { colour: self.colour_stderr, unicode: locale_has_unicode() })
    }

    /// Writes a result to standard output.
    pub fn write(self, result: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        match result(&mut stdout).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(Failure::Print),
        }
    }

    /// Writes a result of one or more lines to standard output.
    pub fn line(self, text: impl Display) -> Result<(), Failure> {
        let text = harmless(&text.to_string());
        self.write(|stdout| writeln!(stdout, "{}", text.trim_end_matches('\n')))
    }

    /// Tells something that is not a result, unless the user wants quiet.
    pub fn note(self, text: impl Display) {
        if !self.quiet {
            to_stderr(&harmless(&text.to_string()));
        }
    }

    /// Tells something that is not a result but was asked for by name, even to a user who wants quiet.
    pub fn insist(self, text: impl Display) {
        to_stderr(&harmless(&text.to_string()));
    }

    /// Tells what went wrong.
    pub fn complain(self, failure: &Failure) {
        let text = harmless(&failure.to_string());
        to_stderr(&if self.colour_stderr { dressed(&text) } else { text });
    }
}

/// If even standard error is gone, the message cannot be shown; `eprintln!` would panic.
fn to_stderr(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `text` without control characters, so that no name from a file can play tricks on the terminal.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

/// An error message in colour: what is wrong in bold, the underline in red, the help in its own colour.
fn dressed(text: &str) -> String {
    let place = Style::new().bold();
    let underline = AnsiColor::Red.on_default().bold();
    let help = AnsiColor::Cyan.on_default().bold();
    let mut begins = true;
    let mut lines = Vec::new();
    for line in text.lines() {
        let underlines = line.trim_end().ends_with('^') && line.trim_matches([' ', '|', '^']).is_empty();
        lines.push(if let Some(rest) = line.strip_prefix("help:") {
            format!("{help}help:{help:#}{rest}")
        } else if underlines {
            format!("{underline}{line}{underline:#}")
        } else if begins {
            format!("{place}{line}{place:#}")
        } else {
            line.into()
        });
        begins = line.is_empty();
    }
    lines.join("\n")
}

/// <https://no-color.org>: set and not empty means no colour.
fn environment_allows_colour() -> bool {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    !refused && !dumb
}

/// Block characters unless the locale names another character set; containers often name none, and show them well.
fn locale_has_unicode() -> bool {
    let set = |name: &&str| env::var(name).is_ok_and(|value| !value.is_empty());
    let Some(locale) = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| set(name)).map(env::var) else {
        return true;
    };
    let locale = locale.unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(harmless("a\x1b[31mb\rc\nd"), "a?[31mb?c\nd");
    }

    #[test]
    fn an_error_message_keeps_its_text_under_the_colours() {
        let text = "f:2:1: bad\n  |\n2 | x\n  | ^\nhelp: good\n\ng: gone";
        let coloured = dressed(text);
        let codes =
            coloured.split('\x1b').skip(1).map(|part| part.split_once('m').map_or(part, |(_, rest)| rest));
        let plain: String = coloured.split('\x1b').take(1).chain(codes).collect();
        assert_eq!(plain, text);
        assert!(coloured.contains("\x1b[1mf:2:1: bad\x1b[0m") && coloured.contains("\x1b[1mg: gone\x1b[0m"));
        assert!(!coloured.contains("m2 | x"), "the quoted line stays plain");
    }
}
