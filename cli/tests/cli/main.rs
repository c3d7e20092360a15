//! The program as its users meet it: arguments and files in; output, files and an exit code out.

mod files;
mod invalid;
mod records;
mod reports;
mod support;
mod usage;
