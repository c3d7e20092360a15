//! The program as its users meet it: arguments and files in; output, files and an exit code out.

mod admit;
mod docs;
mod doctor;
mod exec;
mod expect;
mod explain;
mod files;
mod hostile;
mod import;
mod invalid;
mod jan;
mod linux;
mod linux_grants;
mod live;
mod manners;
mod questions;
mod records;
mod reports;
mod support;
mod top;
mod usage;
