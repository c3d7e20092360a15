//! QTJIR: its text, its verifier, its passes, and what programs do.

mod charges;
mod hostile;
mod support;
mod tasks;
mod text;
mod verify;
