//! The Go program: built here if there is a Go compiler, and left out if not.

use crate::bench::{Bench, Work};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The built program.
#[derive(Debug)]
pub struct Go(PathBuf);

impl Go {
    /// Builds it. None if there is no `go`.
    pub fn build() -> Result<Option<Self>, Box<dyn Error>> {
        if Command::new("go").arg("version").output().is_err() {
            return Ok(None);
        }
        let folder = crate::report::folder();
        std::fs::create_dir_all(&folder)?;
        let program = std::path::absolute(folder.join("peer-go"))?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
        let status =
            Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source).status()?;
        if status.success() { Ok(Some(Self(program))) } else { Err("`go build` failed".into()) }
    }

    /// One measurement.
    pub fn command(&self, bench: Bench, work: &Work) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(bench.name()).args(work.arguments());
        command
    }
}
