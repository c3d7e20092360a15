//! The rows that are knowingly without a test, each with its reason.

use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use crate::error::Error;
use crate::requirements::line_of;

/// A row that has no citing test, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The row.
    pub id: String,
    /// The part that has none; `None` for every part that owes the row and has none.
    pub part: Option<String>,
    /// Why it has no test.
    pub reason: String,
    /// Where it stands in the file.
    pub line: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    exception: Vec<RawException>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawException {
    id: Option<Spanned<String>>,
    #[serde(default)]
    ids: Vec<Spanned<String>>,
    part: Option<String>,
    reason: String,
}

/// Reads the project's exceptions; a project without the file has none.
pub fn load(root: &Path, name: &str) -> Result<Vec<Exception>, Error> {
    let path = root.join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&text, Path::new(name)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(Error::Io { path, source }),
    }
}

/// Reads exceptions from text; `path` is for messages.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Exception>, Error> {
    let file: File = toml::from_str(text).map_err(|source| Error::Toml { path: path.to_owned(), source })?;
    let exceptions = file.exception.into_iter().flat_map(|raw| {
        let RawException { id, ids, part, reason } = raw;
        let reason = reason.trim().to_owned();
        id.into_iter().chain(ids).map(move |id| Exception {
            line: line_of(text, id.span().start),
            id: id.into_inner(),
            part: part.clone(),
            reason: reason.clone(),
        })
    });
    Ok(exceptions.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_knows_its_line() {
        let text = "# none yet\n\n[[exception]]\nid = \"A:1\"\nreason = \" needs a board \"\n";
        let found = parse(text, Path::new("e.toml")).unwrap();
        assert_eq!(
            found,
            [Exception { id: "A:1".into(), part: None, reason: "needs a board".into(), line: 4 }]
        );
    }

    #[test]
    fn rows_that_share_a_reason_share_an_entry() {
        let text = "[[exception]]\nids = [\"A:1\",\n  \"A:2\"]\npart = \"core\"\nreason = \"one\"\n";
        let found = parse(text, Path::new("e.toml")).unwrap();
        let rows: Vec<_> = found.iter().map(|one| (one.id.as_str(), one.line, one.reason.as_str())).collect();
        assert_eq!(rows, [("A:1", 2, "one"), ("A:2", 3, "one")]);
        assert!(found.iter().all(|one| one.part.as_deref() == Some("core")));
    }

    #[test]
    fn a_file_of_comments_has_no_exceptions() {
        assert_eq!(parse("# nothing\n", Path::new("e.toml")).unwrap(), []);
    }

    #[test]
    fn an_exception_without_reason_is_refused() {
        let error = parse("[[exception]]\nid = \"A:1\"\n", Path::new("e.toml")).unwrap_err();
        assert!(error.to_string().contains("reason"));
    }
}
