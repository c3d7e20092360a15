//! A fuzzer of the whole public API of the Linux runtime.
//!
//! A seed is a setting (discipline, workers, driver, authority) and a program: trees of tasks that do what tasks can do.
//! A model that knows only what was granted and promised says what may come of each act. Runs are in processes of their
//! own, so that a crash is one seed's; a failure prints the seed, the setting, and the command that replays it.

mod acts;
mod driver;
mod ledger;
mod line;
mod model;
mod options;
mod rng;
mod run;
mod setting;
mod verdict;
mod world;

use options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    if options.child {
        run::seeds(&options);
        return ExitCode::SUCCESS;
    }
    driver::drive(&options)
}
