//! What the tests share: programs from text, and where they print.

use mainspring_qtjir::text::parse;
use mainspring_qtjir::{Output, Program};
use std::sync::Mutex;

/// A program with its checks.
pub fn program(text: &str) -> Program {
    Program::compile(parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A function that adds up `0..n`, in a loop that knows its length.
pub fn summing(name: &str) -> String {
    format!(
        "fn @{name}(%0: i64) -> i64 {{
b0:
  %1: i64 = Int 0
  Jump b1(%1, %1)
b1(%2: i64, %3: i64):
  %4: bool = Lt %2, %0
  Branch %4, b2, b3
b2:
  %5: i64 = Add_Wrap %3, %2
  %6: i64 = Int 1
  %7: i64 = Add %2, %6
  Jump b1(%7, %5)
b3:
  Return %3
}}
"
    )
}

/// Keeps what was printed.
#[derive(Default)]
pub struct Lines(Mutex<Vec<String>>);

impl Output for Lines {
    fn line(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

impl Lines {
    pub fn lines(self) -> Vec<String> {
        self.0.into_inner().unwrap()
    }
}
