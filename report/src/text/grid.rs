//! A table that fits: columns aligned to their widest cell, and dropped by rank when the terminal is narrow.
//!
//! A row never wraps. The names of dropped columns are returned, so that the reader can be told.

use super::style::{TextStyle, Tone};

const GAP: usize = 2;

/// A column's title, and how much it matters.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// A heading shared with neighbours of the same group; empty for none.
    pub(super) group: &'static str,
    pub(super) left: bool,
    /// 0 is never dropped; of the others the greatest goes first.
    pub(super) rank: u8,
}

/// A right-aligned column of numbers.
pub(super) const fn number(title: &'static str, rank: u8) -> Column {
    Column { title, group: "", left: false, rank }
}

/// A left-aligned column.
pub(super) const fn label(title: &'static str, rank: u8) -> Column {
    Column { title, group: "", left: true, rank }
}

/// A cell: pieces of text, each with its tone.
pub(super) struct Cell(pub(super) Vec<(Tone, String)>);

impl Cell {
    pub(super) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self(vec![(tone, text.into())])
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::new(Tone::Plain, text)
    }

    /// A number whose zero is of no interest.
    pub(super) fn count(n: u64) -> Self {
        Self::new(if n == 0 { Tone::Dim } else { Tone::Plain }, crate::units::count(n))
    }

    /// A duration, aligned with others below it.
    pub(super) fn duration(ns: u64) -> Self {
        Self::new(if ns == 0 { Tone::Dim } else { Tone::Plain }, crate::units::aligned_duration(ns))
    }

    /// Nothing to say.
    pub(super) fn none() -> Self {
        Self::new(Tone::Dim, "- ")
    }

    fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }
}

/// A table to be printed.
pub(super) struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    pub(super) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one cell per column.
    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Appends the table to `out` and returns the titles of the columns that did not fit.
    pub(super) fn render(&self, style: TextStyle, out: &mut String) -> Vec<&'static str> {
        let widths: Vec<usize> = (0..self.columns.len()).map(|i| self.width(i)).collect();
        let limit = if style.whole { usize::MAX } else { style.columns };
        let shown = self.choose(&widths, limit);
        self.groups(style, &shown, &widths, out);
        let titles: Vec<Cell> = self.columns.iter().map(|c| Cell::new(Tone::Strong, c.title)).collect();
        self.line(style, &shown, &widths, &titles, out);
        for row in &self.rows {
            self.line(style, &shown, &widths, row, out);
        }
        (0..self.columns.len()).filter(|i| !shown.contains(i)).map(|i| self.columns[i].title).collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
        cells.max(self.columns[column].title.chars().count())
    }

    fn choose(&self, widths: &[usize], limit: usize) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..widths.len()).collect();
        let total =
            |shown: &[usize]| shown.iter().map(|&i| widths[i] + GAP).sum::<usize>().saturating_sub(GAP);
        while total(&shown) > limit {
            let Some(&worst) =
                shown.iter().filter(|&&i| self.columns[i].rank > 0).max_by_key(|&&i| self.columns[i].rank)
            else {
                break;
            };
            shown.retain(|&i| i != worst);
        }
        shown
    }

    /// The line of shared headings, each over the right end of its columns; none if no shown column has one.
    fn groups(&self, style: TextStyle, shown: &[usize], widths: &[usize], out: &mut String) {
        if shown.iter().all(|&i| self.columns[i].group.is_empty()) {
            return;
        }
        let mut line = String::new();
        for run in shown.chunk_by(|&a, &b| self.columns[a].group == self.columns[b].group) {
            let width = run.iter().map(|&i| widths[i] + GAP).sum::<usize>();
            let group = self.columns[run[0]].group;
            let room = width - GAP;
            let mark = if group.chars().count() <= room { group } else { "" };
            line.push_str(&format!("{mark:>room$}"));
            line.push_str(&" ".repeat(GAP));
        }
        style.paint(out, Tone::Dim, line.trim_end());
        out.push('\n');
    }

    fn line(&self, style: TextStyle, shown: &[usize], widths: &[usize], cells: &[Cell], out: &mut String) {
        let mut blanks = 0;
        for &i in shown {
            let padding = widths[i] - cells[i].width();
            let (before, after) = if self.columns[i].left { (0, padding) } else { (padding, 0) };
            out.push_str(&" ".repeat(blanks + before));
            for (tone, text) in &cells[i].0 {
                style.paint(out, *tone, text);
            }
            blanks = after + GAP;
        }
        // Blanks are only written before something, so that no line ends in them, save a unit's own padding.
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
}
