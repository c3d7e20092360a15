//! What tests ask about the project as a whole: where it is, and what its Makefile would run. The conformance tool is the binary.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the project.
#[must_use]
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What `make TARGET` would run, as `make -n` tells it.
///
/// # Panics
///
/// If make cannot be run, or refuses the target.
#[must_use]
pub fn make_runs(target: &str) -> String {
    let mut make = Command::new("make");
    // What an outer make says is not for this one.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    let output = make.args(["-n", target]).current_dir(project()).output().expect("make can be run");
    assert!(output.status.success(), "make -n {target}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The words of a variable of the Makefile.
///
/// # Panics
///
/// If the Makefile does not set the variable.
#[must_use]
pub fn make_variable(variable: &str) -> Vec<String> {
    let makefile = std::fs::read_to_string(project().join("Makefile")).expect("the Makefile is there");
    let begin = format!("{variable} := ");
    let value = makefile.lines().find_map(|line| line.strip_prefix(&begin)).expect("the variable is set");
    value.split_whitespace().map(str::to_owned).collect()
}
