//! The requirement rows, in file order, each under the heading that stands above it.
//!
//! The file is TOML; its headings are comments of the form `# === 14. CPU accounting ===`, which a TOML
//! parser drops. Rows are therefore placed by the position of their id in the text.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use crate::error::Error;

/// How binding a row is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Required.
    Must,
    /// Expected, unless there is a reason.
    Should,
    /// Forbidden.
    MustNot,
    /// Not asked for yet; may be cited, is not counted.
    Later,
}

impl Level {
    /// The word used in the file.
    pub fn name(self) -> &'static str {
        match self {
            Level::Must => "must",
            Level::Should => "should",
            Level::MustNot => "must-not",
            Level::Later => "later",
        }
    }
}

/// A heading of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number, unique in the file.
    pub number: u32,
    /// Its words.
    pub title: String,
}

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What tests cite.
    pub id: String,
    /// The parts of the system that owe it.
    pub parts: Vec<String>,
    /// How binding it is.
    pub level: Level,
    /// What it asks.
    pub text: String,
    /// The number of its group.
    pub group: u32,
}

impl Row {
    /// Whether a citing test is owed.
    pub fn counts(&self) -> bool {
        self.level != Level::Later
    }

    /// Whether the part owes this row.
    pub fn is_of(&self, part: &str) -> bool {
        self.parts.iter().any(|p| p == part)
    }
}

/// All rows and headings. Ids are unique, and each row's group exists.
#[derive(Debug)]
pub struct Requirements {
    /// In file order.
    pub groups: Vec<Group>,
    /// In file order.
    pub rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    req: Vec<RawRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    id: Spanned<String>,
    part: String,
    level: Level,
    text: String,
}

/// Reads the project's requirements.
pub fn load(root: &Path, name: &str) -> Result<Requirements, Error> {
    let path = root.join(name);
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Io { path, source })?;
    parse(&text, Path::new(name))
}

/// Reads requirements from text; `path` is for messages.
pub fn parse(text: &str, path: &Path) -> Result<Requirements, Error> {
    let refuse = |line, what| Error::Requirement { path: path.to_owned(), line, what };
    let file: File = toml::from_str(text).map_err(|source| Error::Toml { path: path.to_owned(), source })?;

    let mut groups = Vec::new();
    let mut group_by_line = BTreeMap::new();
    for (line, group) in headings(text) {
        if groups.iter().any(|g: &Group| g.number == group.number) {
            return Err(refuse(line, format!("a second group has number {}", group.number)));
        }
        group_by_line.insert(line, group.number);
        groups.push(group);
    }

    let mut rows = Vec::with_capacity(file.req.len());
    let mut line_by_id = BTreeMap::new();
    for raw in file.req {
        let line = line_of(text, raw.id.span().start);
        let id = raw.id.into_inner();
        if id.is_empty() || id.contains(char::is_whitespace) {
            return Err(refuse(line, format!("id `{id}` cannot be cited: it is empty or holds a space")));
        }
        if let Some(first) = line_by_id.insert(id.clone(), line) {
            return Err(refuse(line, format!("id {id} was given to line {first} already")));
        }
        let Some((_, &group)) = group_by_line.range(..line).next_back() else {
            return Err(refuse(line, format!("row {id} stands above the first `# === N. Title ===`")));
        };
        let parts = raw.part.split('+').map(str::to_owned).collect();
        rows.push(Row { id, parts, level: raw.level, text: raw.text, group });
    }
    Ok(Requirements { groups, rows })
}

/// The line, counted from 1, that holds the byte at `offset`.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

fn headings(text: &str) -> impl Iterator<Item = (usize, Group)> {
    (1..).zip(text.lines()).filter_map(|(line, words)| Some((line, heading(words)?)))
}

fn heading(line: &str) -> Option<Group> {
    let inner = line.trim().strip_prefix("# ===")?.strip_suffix("===")?;
    let (number, title) = inner.split_once('.')?;
    Some(Group { number: number.trim().parse().ok()?, title: title.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str) -> String {
        format!("[[req]]\nid = \"{id}\"\npart = \"core+sim\"\nlevel = \"must-not\"\ntext = \"No.\"\n")
    }

    fn parse_text(text: &str) -> Result<Requirements, String> {
        parse(text, Path::new("r.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_belong_to_the_heading_above_them() {
        let text = format!(
            "# about\n# === 1. First ===\n{}{}# === 7. The 7. one ===\n{}",
            row("A:1"),
            row("A:2"),
            row("B:1")
        );
        let found = parse_text(&text).unwrap();
        let groups: Vec<_> = found.groups.iter().map(|g| (g.number, g.title.as_str())).collect();
        assert_eq!(groups, [(1, "First"), (7, "The 7. one")]);
        let rows: Vec<_> = found.rows.iter().map(|r| (r.id.as_str(), r.group)).collect();
        assert_eq!(rows, [("A:1", 1), ("A:2", 1), ("B:1", 7)]);
        assert_eq!(found.rows[0].level, Level::MustNot);
        assert!(found.rows[0].is_of("sim") && !found.rows[0].is_of("si"));
    }

    #[test]
    fn a_repeated_id_is_refused_with_both_lines() {
        let text = format!("# === 1. First ===\n{}{}", row("A:1"), row("A:1"));
        assert_eq!(parse_text(&text).unwrap_err(), "r.toml:8: id A:1 was given to line 3 already");
    }

    #[test]
    fn a_row_above_all_headings_is_refused() {
        assert!(parse_text(&row("A:1")).unwrap_err().starts_with("r.toml:2: row A:1 stands above"));
    }

    #[test]
    fn an_id_that_no_comment_could_cite_is_refused() {
        let text = format!("# === 1. First ===\n{}", row("A 1"));
        assert!(parse_text(&text).unwrap_err().contains("cannot be cited"));
    }

    #[test]
    fn a_repeated_group_number_is_refused() {
        let text = format!("# === 1. First ===\n# === 1. Again ===\n{}", row("A:1"));
        assert_eq!(parse_text(&text).unwrap_err(), "r.toml:2: a second group has number 1");
    }

    #[test]
    fn an_unknown_level_or_field_is_refused() {
        let text = format!("# === 1. First ===\n{}", row("A:1"));
        assert!(parse_text(&text.replace("must-not", "perhaps")).unwrap_err().contains("perhaps"));
        assert!(parse_text(&text.replace("text =", "words =")).unwrap_err().contains("words"));
    }
}
