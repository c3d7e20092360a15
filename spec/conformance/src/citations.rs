//! The citation rule: where a comment counts as a test's claim to show a requirement.
//!
//! A citation is a comment mark (two slashes, `#`, `;` or two dashes), directly followed by an equals sign,
//! then one or more ids between spaces. It counts in test code only: in files below `tests/`, `test/`,
//! `proofs/` or `user/`, in files with `test` in their name, and from the first test-only `cfg` of a file
//! to its end (a module of tests stands last in its file). The rule reads lines, not syntax: it is simple
//! enough to predict, and works alike for every language of the tree.

/// A requirement id in test code, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation {
    /// The cited id; may be unknown.
    pub id: String,
    /// The file, relative to the project.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
}

const MARKS: [&str; 4] = ["//=", "#=", ";=", "--="];
const ENDINGS: [&str; 9] = [".rs", ".c", ".h", ".py", ".sh", ".toml", ".jan", ".mk", "Makefile"];
const TEST_FOLDERS: [&str; 4] = ["tests", "test", "proofs", "user"];
const TEST_CFGS: [&str; 3] = ["cfg(test)", "cfg(all(test", "cfg(loom)"];

/// Whether a file can hold citations at all.
pub fn is_searched(name: &str) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending)) || name.contains("/proofs/")
}

/// Adds the citations of one file to `found`.
pub fn find(name: &str, text: &str, found: &mut Vec<Citation>) {
    let mut in_test = is_test_file(name);
    for (line, words) in (1..).zip(text.split('\n')) {
        in_test |= TEST_CFGS.iter().any(|cfg| words.contains(cfg));
        if in_test {
            let ids = cited_ids(words).map(|id| Citation { id: id.to_owned(), file: name.to_owned(), line });
            found.extend(ids);
        }
    }
}

fn is_test_file(name: &str) -> bool {
    let (folders, leaf) = name.rsplit_once('/').unwrap_or(("", name));
    leaf.contains("test") || folders.split('/').any(|folder| TEST_FOLDERS.contains(&folder))
}

/// The words after the first mark that is followed by a space and a word.
fn cited_ids(line: &str) -> impl Iterator<Item = &str> {
    let starts = line.char_indices().map(|(at, _)| &line[at..]);
    let after_mark = starts.filter_map(|rest| MARKS.iter().find_map(|mark| rest.strip_prefix(mark)));
    let citation =
        after_mark.into_iter().find(|rest| rest.starts_with(char::is_whitespace) && !rest.trim().is_empty());
    citation.unwrap_or("").split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts a citation together at run time: written out, it would cite from this very file.
    fn cite(mark: &str, ids: &str) -> String {
        format!("{mark}={ids}")
    }

    fn ids_in(name: &str, text: &str) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        find(name, text, &mut found);
        found.into_iter().map(|citation| (citation.id, citation.line)).collect()
    }

    #[test]
    fn every_comment_mark_cites() {
        for mark in ["//", "#", ";", "--"] {
            let text = format!("first\n    {}\r\n", cite(mark, " A:1 B:2.x"));
            let expected = [("A:1".to_owned(), 2), ("B:2.x".to_owned(), 2)];
            assert_eq!(ids_in("tests/a.rs", &text), expected, "{mark}");
        }
    }

    #[test]
    fn a_mark_needs_a_space_and_an_id() {
        for ids in ["", "  ", "A:1", "= A:1"] {
            assert_eq!(ids_in("tests/a.rs", &cite("//", ids)), [], "{ids:?}");
        }
        assert_eq!(ids_in("tests/a.rs", "// = A:1"), []);
        assert_eq!(ids_in("tests/a.rs", "a -= 1"), []);
    }

    #[test]
    fn a_citation_may_follow_other_text() {
        let text = format!("fn é() {{}} {}", cite("//", " A:1"));
        assert_eq!(ids_in("tests/a.rs", &text), [("A:1".to_owned(), 1)]);
    }

    #[test]
    fn plain_code_does_not_cite() {
        for name in ["core/src/lib.rs", "tester/src/lib.rs", "users/a.rs", "spec/requirements.toml"] {
            assert_eq!(ids_in(name, &cite("//", " A:1")), [], "{name}");
        }
    }

    #[test]
    fn test_folders_and_test_names_cite() {
        let names = [
            "tests/a.rs",
            "sim/tests/deep/a.py",
            "core/test/a.c",
            "kernel/proofs/boot",
            "user/src/bin/hog.rs",
            "core/src/queue_tests.rs",
            "core/src/latest.rs",
        ];
        for name in names {
            assert_eq!(ids_in(name, &cite("//", " A:1")).len(), 1, "{name}");
        }
    }

    #[test]
    fn only_what_stands_below_a_test_cfg_cites() {
        for cfg in ["#[cfg(test)]", "#[cfg(all(test, loom))]", "#![cfg(loom)]"] {
            let text = format!("{}\n{cfg}\nmod tests {{\n{}\n", cite("//", " A:1"), cite("//", " B:1"));
            assert_eq!(ids_in("core/src/lib.rs", &text), [("B:1".to_owned(), 4)], "{cfg}");
        }
    }

    #[test]
    fn only_sources_are_searched() {
        for name in ["a.rs", "x/a.jan", "Makefile", "x/Makefile", "kernel/proofs/run", "a.test.toml"] {
            assert!(is_searched(name), "{name}");
        }
        for name in ["README.md", "tests/data.json", "proofs/run", "a.rsx"] {
            assert!(!is_searched(name), "{name}");
        }
    }
}
