//! Runs this program under callgrind and reads the count.

use std::fmt;
use std::process::Command;

/// Why there is no count.
#[derive(Debug)]
pub enum Error {
    /// Valgrind could not be started.
    Start(std::io::Error),
    /// Valgrind ended without success.
    Failed(String),
    /// Its output has no total.
    NoTotal,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => {
                write!(f, "cannot start valgrind ({error}); `make setup-valgrind` installs it")
            }
            Self::Failed(output) => write!(f, "valgrind failed:\n{output}"),
            Self::NoTotal => f.write_str("valgrind's output has no total"),
        }
    }
}

/// Instructions of `counted`, a function of this program, when it is run with `measure` and `args`.
pub fn instructions(counted: &str, args: &[&str]) -> Result<u64, Error> {
    let program = std::env::current_exe().map_err(Error::Start)?;
    let out =
        std::env::temp_dir().join(format!("mainspring-bench-{}-{}", std::process::id(), args.join("-")));
    let result = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={counted}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .arg("measure")
        .args(args)
        .output()
        .map_err(Error::Start)?;
    if !result.status.success() {
        return Err(Error::Failed(String::from_utf8_lossy(&result.stderr).into_owned()));
    }
    let text = std::fs::read_to_string(&out).map_err(Error::Start)?;
    let _ = std::fs::remove_file(&out);
    text.lines()
        .find_map(|line| line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: ")))
        .and_then(|total| total.trim().parse().ok())
        .ok_or(Error::NoTotal)
}
