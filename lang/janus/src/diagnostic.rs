//! What is wrong with a source file, where, and what to write instead.

use mainspring_qtjir::Pos;
use std::fmt;

/// What kind of mistake it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    /// The text is not of the language.
    Syntax,
    /// A name that is not defined.
    UnknownName,
    /// A name that was given before.
    TwiceNamed,
    /// A type other than the one that belongs there.
    Mismatch,
    /// A task is started outside of a nursery.
    NurseryNotActive,
    /// Control would leave a nursery other than by its end.
    LeavesNursery,
    /// An error that is not handled.
    Unhandled,
    /// Something that its profile forbids, or a capability that is missing.
    NotPermitted,
    /// Something that cannot be changed.
    NotMutable,
    /// A way through a function that returns nothing, or code that nothing leads to.
    Flow,
    /// The file is too large or too deep.
    TooLarge,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What kind of mistake it is.
    pub code: Code,
    /// Where.
    pub pos: Pos,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl Diagnostic {
    pub(crate) fn new(code: Code, pos: Pos, message: impl Into<String>) -> Self {
        Self { code, pos, message: message.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// As [`Diagnostic::help`], if there is a name that is almost the one that was written.
    pub(crate) fn similar<'a>(self, written: &str, names: impl Iterator<Item = &'a str>) -> Self {
        let close = names.map(|name| (distance(written, name), name)).min();
        match close {
            Some((far, name)) if far <= 1 + written.chars().count() / 4 => {
                self.help(format!("did you mean `{name}`?"))
            }
            _ => self,
        }
    }
}

/// How many letters differ, are missing, are too many or have changed places with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pos, self.message)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

/// So many letters of a line are shown, around the mistake.
const MOST_SHOWN: usize = 120;

/// The mistakes that were found, in the order of the file, up to 32. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// The mistakes with the lines that they are about.
    pub fn render(&self, file: &str, source: &str) -> String {
        let lines: Vec<&str> = source.lines().collect();
        let mut out = String::new();
        for mistake in &self.0 {
            out.push_str(&format!("{file}:{}: error: {}\n", mistake.pos, mistake.message));
            if let Some(line) = lines.get((mistake.pos.line as usize).wrapping_sub(1)) {
                let before = (mistake.pos.column as usize).saturating_sub(1);
                let hidden = before.saturating_sub(MOST_SHOWN / 2);
                let line: String = line.chars().skip(hidden).take(MOST_SHOWN).collect();
                let blank: String = line
                    .chars()
                    .take(before - hidden)
                    .map(|character| if character == '\t' { '\t' } else { ' ' })
                    .collect();
                out.push_str(&format!("    {line}\n    {blank}^\n"));
            }
            if let Some(help) = &mistake.help {
                out.push_str(&format!("    help: {help}\n"));
            }
        }
        out
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(mistake: Diagnostic) -> Self {
        Self(vec![mistake])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(Diagnostic::to_string).collect();
        f.write_str(&all.join("\n"))
    }
}

impl std::error::Error for Diagnostics {}
