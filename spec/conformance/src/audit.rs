//! Rows, citations and exceptions joined: what is covered, what is excused, what is wrong.
//!
//! A row is in exactly one [`State`] with each part that owes it.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;

use crate::citations::Citation;
use crate::exceptions::Exception;
use crate::requirements::{Group, Requirements, Row};
use crate::trees::{self, Speaks};

/// How a row stands with one part that owes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// A test in the part's own tree cites it.
    Own,
    /// Tests of other parts only cite it.
    Elsewhere,
    /// No test of the part cites it, for this reason.
    Excused(&'a str),
    /// No test cites it, and no exception says why.
    Open,
}

/// What makes the audit fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A test cites an id that no row has.
    UnknownCitation(Citation),
    /// An exception names an id that no row has.
    UnknownException { at: String, id: String },
    /// An exception names a row that the tests of all its parts cite.
    CitedException { at: String, id: String, cited_at: String },
    /// An exception names a part that does not owe the row.
    ForeignPart { at: String, id: String, part: String },
    /// Two exceptions name one row.
    RepeatedException { at: String, id: String },
    /// An exception gives no reason.
    EmptyReason { at: String, id: String },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownCitation(Citation { id, file, line }) => {
                write!(f, "{file}:{line}: unknown id {id}")
            }
            Problem::UnknownException { at, id } => write!(f, "{at}: unknown id {id}"),
            Problem::CitedException { at, id, cited_at } => {
                write!(f, "{at}: {id} is cited by {cited_at}; remove the exception")
            }
            Problem::ForeignPart { at, id, part } => write!(f, "{at}: {id} is not owed by {part}"),
            Problem::RepeatedException { at, id } => write!(f, "{at}: {id} has an exception already"),
            Problem::EmptyReason { at, id } => write!(f, "{at}: the exception for {id} gives no reason"),
        }
    }
}

/// The joined view that reports are made from.
#[derive(Debug)]
pub struct Audit {
    /// All headings, in file order.
    pub groups: Vec<Group>,
    /// All rows, in file order.
    pub rows: Vec<Row>,
    /// What must be mended; empty when all is well.
    pub problems: Vec<Problem>,
    cited: BTreeMap<String, Vec<(Speaks, String)>>,
    /// By row and part.
    reasons: BTreeMap<(String, String), String>,
}

impl Audit {
    /// Joins the three inputs; `exceptions_file` is for messages.
    pub fn new(
        requirements: Requirements,
        exceptions: Vec<Exception>,
        citations: Vec<Citation>,
        exceptions_file: &str,
    ) -> Audit {
        let Requirements { groups, rows } = requirements;
        let mut audit =
            Audit { groups, rows, problems: Vec::new(), cited: BTreeMap::new(), reasons: BTreeMap::new() };
        audit.take_citations(citations);
        for exception in exceptions {
            let at = format!("{exceptions_file}:{}", exception.line);
            audit.take_exception(exception, at);
        }
        audit
    }

    /// How a row stands with `part`.
    pub fn state(&self, row: &Row, part: &str) -> State<'_> {
        let cited = self.cited.get(&row.id);
        if cited.is_some_and(|cited| cited.iter().any(|(speaks, _)| speaks.is_for(part))) {
            State::Own
        } else if let Some(reason) = self.reasons.get(&(row.id.clone(), part.to_owned())) {
            State::Excused(reason)
        } else if cited.is_some() {
            State::Elsewhere
        } else {
            State::Open
        }
    }

    fn take_citations(&mut self, citations: Vec<Citation>) {
        let known: BTreeSet<&str> = self.rows.iter().map(|row| row.id.as_str()).collect();
        for citation in citations {
            if known.contains(citation.id.as_str()) {
                let at = format!("{}:{}", citation.file, citation.line);
                let speaks = trees::parts_of(&citation.file);
                self.cited.entry(citation.id).or_default().push((speaks, at));
            } else {
                self.problems.push(Problem::UnknownCitation(citation));
            }
        }
    }

    fn take_exception(&mut self, exception: Exception, at: String) {
        let Exception { id, part, reason, .. } = exception;
        let Some(row) = self.rows.iter().find(|row| row.id == id) else {
            return self.problems.push(Problem::UnknownException { at, id });
        };
        if reason.is_empty() {
            return self.problems.push(Problem::EmptyReason { at, id });
        }
        let parts = match part {
            Some(part) if !row.is_of(&part) => {
                return self.problems.push(Problem::ForeignPart { at, id, part });
            }
            Some(part) => vec![part],
            None => row.parts.clone(),
        };
        let cited = self.cited.get(&id).map_or(&[][..], Vec::as_slice);
        let lacking = |part: &&String| !cited.iter().any(|(speaks, _)| speaks.is_for(part));
        let lacking: Vec<String> = parts.iter().filter(lacking).cloned().collect();
        if lacking.is_empty() {
            let cited_at = cited.first().map_or(String::new(), |(_, at)| at.clone());
            return self.problems.push(Problem::CitedException { at, id, cited_at });
        }
        for part in lacking {
            match self.reasons.entry((id.clone(), part)) {
                Entry::Vacant(entry) => {
                    entry.insert(reason.clone());
                }
                Entry::Occupied(_) => {
                    return self.problems.push(Problem::RepeatedException { at, id });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::Level;

    fn audit(exceptions: &[(&str, &str)], citations: &[&str]) -> Audit {
        let rows = ["A:1", "A:2", "A:3"].map(|id| Row {
            id: id.into(),
            parts: vec!["core".into()],
            level: Level::Must,
            text: "Yes.".into(),
            group: 1,
        });
        let requirements = Requirements { groups: Vec::new(), rows: rows.into() };
        let exception = |&(id, reason): &(&str, &str)| Exception {
            id: id.into(),
            part: None,
            reason: reason.into(),
            line: 4,
        };
        let citation = |&id: &&str| Citation { id: id.into(), file: "core/tests/a.rs".into(), line: 9 };
        let exceptions = exceptions.iter().map(exception).collect();
        Audit::new(requirements, exceptions, citations.iter().map(citation).collect(), "e.toml")
    }

    fn problems(audit: &Audit) -> Vec<String> {
        audit.problems.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn each_row_is_cited_excused_or_open() {
        let audit = audit(&[("A:2", "no board")], &["A:1", "A:1"]);
        let states: Vec<_> = audit.rows.iter().map(|row| audit.state(row, "core")).collect();
        assert_eq!(states, [State::Own, State::Excused("no board"), State::Open]);
        assert_eq!(audit.problems, []);
    }

    #[test]
    fn a_citation_counts_for_the_part_of_its_tree_alone() {
        let row = Row {
            id: "A:1".into(),
            parts: vec!["core".into(), "kernel".into(), "sim".into()],
            level: Level::Must,
            text: "Yes.".into(),
            group: 1,
        };
        let requirements = Requirements { groups: Vec::new(), rows: vec![row] };
        let citation = Citation { id: "A:1".into(), file: "core/tests/a.rs".into(), line: 9 };
        let excused = |part: &str| Exception {
            id: "A:1".into(),
            part: Some(part.into()),
            reason: "no board".into(),
            line: 4,
        };
        let exceptions = vec![excused("sim"), excused("cli")];
        let audit = Audit::new(requirements, exceptions, vec![citation], "e.toml");
        let states: Vec<_> =
            audit.rows[0].parts.iter().map(|part| audit.state(&audit.rows[0], part)).collect();
        assert_eq!(states, [State::Own, State::Elsewhere, State::Excused("no board")]);
        assert_eq!(problems(&audit), ["e.toml:4: A:1 is not owed by cli"]);
    }

    #[test]
    fn an_unknown_citation_is_named_with_its_place() {
        assert_eq!(problems(&audit(&[], &["A:9"])), ["core/tests/a.rs:9: unknown id A:9"]);
    }

    #[test]
    fn exceptions_must_be_known_uncited_unique_and_reasoned() {
        let audit = audit(&[("A:9", "x"), ("A:1", "x"), ("A:2", ""), ("A:3", "x"), ("A:3", "y")], &["A:1"]);
        let expected = [
            "e.toml:4: unknown id A:9",
            "e.toml:4: A:1 is cited by core/tests/a.rs:9; remove the exception",
            "e.toml:4: the exception for A:2 gives no reason",
            "e.toml:4: A:3 has an exception already",
        ];
        assert_eq!(problems(&audit), expected);
    }
}
