//! The text of a file, and how a byte range of it becomes a place that a person finds: line, column, excerpt.
//!
//! Excerpts are cut to a window around the place, so that a file of one endless line with thousands of errors
//! costs no more memory than one of many short lines.

use std::fmt;
use std::ops::Range;

/// The longest excerpt, in characters.
const WINDOW: usize = 120;

/// A value and the bytes of the file that it came from.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub value: T,
    pub at: Range<usize>,
}

/// A file's name and text.
pub(crate) struct Source<'s> {
    pub name: &'s str,
    text: &'s str,
    line_starts: Vec<usize>,
}

/// Where something is, and what the line around it looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    shown: String,
    indent: usize,
    width: usize,
}

impl<'s> Source<'s> {
    pub fn new(name: &'s str, text: &'s str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(n, _)| n + 1);
        Self { name, text, line_starts: std::iter::once(0).chain(starts).collect() }
    }

    /// The text at `at`; empty if that is no part of the file.
    pub fn slice(&self, at: &Range<usize>) -> &'s str {
        self.text.get(at.clone()).unwrap_or("")
    }

    /// The place of `part` of the string `text`: exact when the file spells the string as it reads, else (escapes,
    /// several lines) the whole string.
    pub fn within(&self, text: &At<&str>, part: Range<usize>) -> Range<usize> {
        let raw = self.slice(&text.at);
        let verbatim = raw.len() == text.value.len() + 2 && raw.get(1..raw.len() - 1) == Some(text.value);
        if !verbatim {
            return text.at.clone();
        }
        let start = text.at.start + 1;
        start + part.start..start + part.end
    }

    /// The number of the line that `offset` is on, from 1.
    pub fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// Makes a byte range readable.
    pub fn locate(&self, at: &Range<usize>) -> Position {
        let line = self.line_of(at.start);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let end = self.line_starts.get(line).copied().unwrap_or(self.text.len());
        let content = self.text.get(start..end).unwrap_or("").trim_end_matches(['\r', '\n']);
        let chars_before = |end: usize| {
            content.char_indices().take_while(|(offset, _)| start + offset < end.max(start)).count()
        };
        let (from, to) = (chars_before(at.start), chars_before(at.end));
        let skipped = if content.chars().nth(WINDOW).is_none() { 0 } else { from.saturating_sub(WINDOW / 2) };
        let shown: String = content.chars().skip(skipped).take(WINDOW).map(printable).collect();
        let width = to.saturating_sub(from).min((skipped + WINDOW).saturating_sub(from)).max(1);
        Position { line, column: from + 1, shown, indent: from - skipped, width }
    }
}

/// Tabs and control characters would move the underline away from what it marks.
fn printable(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gutter = self.line.to_string().len();
        writeln!(f, "{:gutter$} |", "")?;
        writeln!(f, "{} | {}", self.line, self.shown.trim_end())?;
        write!(f, "{:gutter$} | {:indent$}{}", "", "", "^".repeat(self.width), indent = self.indent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let source = Source::new("f", "a = 1\r\n\u{b5}s = 2\n");
        let place = source.locate(&(10..11));
        assert_eq!((place.line, place.column), (2, 3));
        assert_eq!(place.to_string(), "  |\n2 | \u{b5}s = 2\n  |   ^");
    }

    #[test]
    fn a_place_beyond_the_text_or_inside_a_character_is_still_a_place() {
        let source = Source::new("f", "\u{b5}");
        for at in [0..1, 1..2, 2..2, 7..9, 0..99] {
            assert_eq!(source.locate(&at).line, 1);
        }
        assert_eq!(source.slice(&(0..1)), "");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}!{}", "x".repeat(500), "y".repeat(500));
        let shown = Source::new("f", &text).locate(&(500..900)).to_string();
        assert!(shown.lines().all(|line| line.len() < WINDOW + 10), "{shown}");
        assert!(shown.contains('!'));
    }
}
