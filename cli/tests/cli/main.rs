//! The program as its users meet it: arguments and files in; output, files and an exit code out.

mod admit;
mod docs;
mod doctor;
mod exec;
mod expect;
mod explain;
mod files;
mod hostile;
mod invalid;
mod jan;
mod linux;
mod records;
mod reports;
mod support;
mod usage;
