//! The conformance tool: which requirements have a citing test, and which licences we depend on.
//!
//! Each module is one step: [`args`] reads the command line, [`requirements`] and [`exceptions`] the two
//! TOML files, [`sources`] lists the tree, [`citations`] finds what tests cite, [`trees`] says for
//! which part, [`audit`] joins them and [`report`] prints. [`licences`] stands alone. Only this file prints and exits.

mod args;
mod audit;
mod citations;
mod error;
mod exceptions;
mod licences;
mod report;
mod requirements;
mod sources;
mod trees;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use args::{Command, Invocation};
use audit::Audit;
use error::Error;

const REQUIREMENTS: &str = "spec/requirements.toml";
const EXCEPTIONS: &str = "spec/exceptions.toml";

fn main() -> ExitCode {
    match run().and_then(|text| print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conformance: {error}");
            error.exit_code()
        }
    }
}

fn run() -> Result<String, Error> {
    let Invocation { root, command } = args::parse(std::env::args().skip(1)).map_err(Error::Usage)?;
    match command {
        Command::Help => Ok(args::USAGE.to_owned()),
        Command::Licences => licences::check(&project_root(root)?),
        Command::Report(options) => {
            let audit = audit_project(&project_root(root)?)?;
            let text = report::render(&audit, &options).map_err(Error::Usage)?;
            if audit.problems.is_empty() {
                return Ok(text);
            }
            // The numbers are of use even when a citation is wrong; the problems come last, to be seen.
            print(&text)?;
            Err(Error::Problems(audit.problems))
        }
    }
}

fn audit_project(root: &Path) -> Result<Audit, Error> {
    let requirements = requirements::load(root, REQUIREMENTS)?;
    let exceptions = exceptions::load(root, EXCEPTIONS)?;
    let mut found = Vec::new();
    for name in sources::list(root)? {
        if !citations::is_searched(&name) {
            continue;
        }
        if let Some(text) = sources::read(root, &name)? {
            citations::find(&name, &text, &mut found);
        }
    }
    Ok(Audit::new(requirements, exceptions, found, EXCEPTIONS))
}

/// The directory given, or the nearest one upwards that holds the requirements.
fn project_root(given: Option<PathBuf>) -> Result<PathBuf, Error> {
    if let Some(root) = given {
        return Ok(root);
    }
    let here = std::env::current_dir().map_err(|source| Error::Io { path: PathBuf::from("."), source })?;
    let root = here.ancestors().find(|dir| dir.join(REQUIREMENTS).is_file());
    root.map(Path::to_path_buf).ok_or(Error::NoProject { from: here })
}

/// Writes to stdout; a reader that has seen enough (`| head`) is not an error.
fn print(text: &str) -> Result<(), Error> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(source) if source.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Io { path: PathBuf::from("<stdout>"), source })
        }
        _ => Ok(()),
    }
}
