//! Which files make up the project: what git tracks or would offer to add, or all of them without git.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use crate::error::Error;

/// Names below `root`, with `/` between folders, sorted.
///
/// An unpacked archive has no git directory, or lies inside someone else's repository, which then lists
/// nothing: both fall back to a walk.
pub fn list(root: &Path) -> Result<Vec<String>, Error> {
    let mut names = match git_names(root) {
        Some(names) if !names.is_empty() => names,
        _ => {
            let mut names = Vec::new();
            walk(root, "", &mut names)?;
            names
        }
    };
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// A file's text, or nothing when it is gone (tracked, but deleted in the work tree) or not a file.
pub fn read(root: &Path, name: &str) -> Result<Option<String>, Error> {
    let path = root.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => Ok(None),
        Err(source) => Err(Error::Io { path, source }),
    }
}

fn git_names(root: &Path) -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    let names = String::from_utf8_lossy(&output.stdout);
    Some(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path, folder: &str, names: &mut Vec<String>) -> Result<(), Error> {
    let path = root.join(folder);
    let refuse = |source| Error::Io { path: path.clone(), source };
    for entry in std::fs::read_dir(&path).map_err(refuse)? {
        let entry = entry.map_err(refuse)?;
        let leaf = entry.file_name().to_string_lossy().into_owned();
        let name = if folder.is_empty() { leaf.clone() } else { format!("{folder}/{leaf}") };
        // `file_type` does not follow links, so that a link to a parent cannot make the walk endless.
        let kind = entry.file_type().map_err(refuse)?;
        if kind.is_file() {
            names.push(name);
        } else if kind.is_dir() && leaf != ".git" && leaf != "target" {
            walk(root, &name, names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_finds_this_file_and_no_build_output() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut names = Vec::new();
        walk(package, "", &mut names).unwrap();
        assert!(names.iter().any(|name| name == "src/sources.rs"));
        assert!(!names.iter().any(|name| name.starts_with("target/")));
    }

    #[test]
    fn a_deleted_file_reads_as_nothing() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(read(package, "src/never-written.rs").unwrap(), None);
        assert_eq!(read(package, "src").unwrap(), None);
    }
}
