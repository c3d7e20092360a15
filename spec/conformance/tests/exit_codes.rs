//! The tool as its users see it: a project on disk, a command line, an exit code and what was printed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const ROWS: &str = "# === 1. First ===\n\
    [[req]]\nid = \"A:1\"\npart = \"core\"\nlevel = \"must\"\ntext = \"One.\"\n\
    [[req]]\nid = \"A:2\"\npart = \"core\"\nlevel = \"must\"\ntext = \"Two.\"\n";

/// A project in a directory of its own, outside of any repository's index.
struct Project(PathBuf);

impl Project {
    fn new(name: &str) -> Project {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&root);
        let project = Project(root);
        project.write("spec/requirements.toml", ROWS);
        project
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("names are below the root")).expect("folder is made");
        fs::write(path, text).expect("file is written");
    }

    /// Writes a test that cites; the comment is put together here, so that this file cites nothing.
    fn cite(&self, name: &str, id: &str) {
        self.write(name, &format!("\n{}{} {id}\n", "//", "="));
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainspring-conformance"));
        command.args(args).current_dir(&self.0).output().expect("the tool starts")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_sound_project_is_reported_with_zero() {
    let project = Project::new("sound");
    project.cite("core/tests/a.rs", "A:1");
    let output = project.run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    assert!(report.contains("core            1          0        0      1      2"), "{report}");
    assert!(report.contains("A:2") && !report.contains("A:1"), "{report}");
}

#[test]
fn an_unknown_id_fails_and_is_named_with_its_place() {
    let project = Project::new("unknown-id");
    project.cite("core/tests/a.rs", "A:9");
    let output = project.run(&["--summary"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("core/tests/a.rs:2: unknown id A:9"), "{}", text(&output.stderr));
}

#[test]
fn in_a_repository_untracked_files_count_and_ignored_ones_do_not() {
    let project = Project::new("repository");
    let git = Command::new("git").args(["init", "--quiet"]).current_dir(&project.0).status();
    assert!(git.expect("git starts").success());
    project.write(".gitignore", "out/\n");
    project.cite("core/tests/a.rs", "A:1");
    project.cite("out/core/tests/a.rs", "A:9");
    let output = project.run(&["--summary"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("core            1          0        0      1      2"));
}

#[test]
fn an_exception_for_a_cited_row_fails() {
    let project = Project::new("cited-exception");
    project.cite("core/tests/a.rs", "A:1");
    project.write("spec/exceptions.toml", "[[exception]]\nid = \"A:1\"\nreason = \"none\"\n");
    let output = project.run(&["--summary"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "spec/exceptions.toml:2: A:1 is cited by core/tests/a.rs:2; remove the exception";
    assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
}

#[test]
fn an_excused_row_is_listed_with_its_reason() {
    let project = Project::new("excused");
    project.write("spec/exceptions.toml", "[[exception]]\nid = \"A:2\"\nreason = \"needs a board\"\n");
    let output = project.run(&["--missing"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("excused: needs a board"));
}

#[test]
fn bad_usage_exits_with_two() {
    let project = Project::new("usage");
    for args in [&["--part", "cpu"][..], &["--group", "9"], &["--group"], &["audit"], &["licences", "--part"]]
    {
        let output = project.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).ends_with("try --help\n"), "{args:?}");
    }
}

#[test]
fn a_directory_without_requirements_is_refused() {
    let project = Project::new("empty");
    let output = project.run(&["--root", "nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nowhere/spec/requirements.toml"));
}
