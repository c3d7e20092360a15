//! Random programs of nested loops over slices, whose indices come near the ends of the slices.

use super::Dice;
use std::fmt::Write;

/// A program without tasks that reads and writes slices in nested loops, at indices that are mostly inside. Its `main` takes and
/// gives an `i64`. Some programs trap.
pub fn random_loops(seed: u64) -> String {
    let mut writer = Loops {
        dice: Dice::new(seed),
        out: String::from("{.profile: core.}\n"),
        indices: Vec::new(),
        next: 0,
    };
    let lengths: Vec<usize> = (0..2).map(|_| 1 + writer.dice.below(40)).collect();
    // One slice as an argument: its length is not known where it is used.
    writer.line("fn work(s: []i64, n: i64) -> i64 {", 0);
    writer.line(&format!("let t = make([]f64, {})", lengths[1]), 1);
    writer.line("var sum = 0", 1);
    for _ in 0..1 + writer.dice.below(3) {
        writer.a_loop(1, lengths[0], lengths[1]);
    }
    writer.line("for x in s { sum = sum +% x }", 1);
    writer.line("for x in t { sum = sum +% int(x) }", 1);
    writer.line("return sum\n}", 1);
    writer.line("fn main(n: i64) -> i64 {", 0);
    writer.line(&format!("return work(make([]i64, {}), n % 7)\n}}", lengths[0]), 1);
    writer.out
}

struct Loops {
    dice: Dice,
    out: String,
    indices: Vec<String>,
    next: usize,
}

impl Loops {
    fn line(&mut self, text: &str, depth: usize) {
        let _ = writeln!(self.out, "{}{text}", "    ".repeat(depth));
    }

    fn name(&mut self) -> String {
        self.next += 1;
        format!("i{}", self.next)
    }

    /// A bound that is often the right one, and seldom one too many.
    fn bound(&mut self, s: usize, t: usize) -> String {
        let most = s.min(t);
        match self.dice.below(12) {
            0..3 => "s.len".to_owned(),
            3..5 => "t.len".to_owned(),
            5..9 => most.to_string(),
            9 => "n".to_owned(),
            10 => (most + 1).to_string(),
            _ => (1 + self.dice.below(most)).to_string(),
        }
    }

    fn a_loop(&mut self, depth: usize, s: usize, t: usize) {
        let (name, bound) = (self.name(), self.bound(s, t));
        let from = match (self.dice.below(4), self.indices.last()) {
            (0, Some(outer)) => format!("{outer} + 1"),
            (1, _) => self.dice.below(3).to_string(),
            _ => "0".to_owned(),
        };
        let step = 1 + self.dice.below(3);
        match self.dice.below(4) {
            0 => {
                self.line(&format!("var {name} = {from}"), depth);
                self.line(&format!("while {name} < {bound} {{"), depth);
                self.inside(&name, depth, s, t);
                self.line(&format!("{name} = {name} + {step}"), depth + 1);
            }
            1 => {
                self.line(&format!("var {name} = {bound}"), depth);
                self.line(&format!("while {name} > {} {{", step - 1), depth);
                self.line(&format!("{name} = {name} - {step}"), depth + 1);
                self.inside(&name, depth, s, t);
            }
            _ => {
                self.line(&format!("for {name} in {from}..{bound} {{"), depth);
                self.inside(&name, depth, s, t);
            }
        }
        self.line("}", depth);
    }

    fn inside(&mut self, name: &str, depth: usize, s: usize, t: usize) {
        self.indices.push(name.to_owned());
        for _ in 0..1 + self.dice.below(3) {
            match self.dice.below(6) {
                0 if depth < 4 => self.a_loop(depth + 1, s, t),
                1 => {
                    let (index, limit) = (self.index(), self.bound(s, t));
                    self.line(&format!("if {index} < {limit} {{ sum = sum +% s[{index}] }}"), depth + 1);
                }
                2 => {
                    let (index, value) = (self.index(), self.index());
                    self.line(&format!("t[{index}] = t[{index}] + float({value})"), depth + 1);
                }
                3 => {
                    let value = self.index();
                    self.line(&format!("if sum % 5 == {value} % 5 {{ break }}"), depth + 1);
                }
                _ => {
                    let (to, from) = (self.index(), self.index());
                    self.line(&format!("s[{to}] = s[{from}] +% {to} + sum % 3"), depth + 1);
                }
            }
        }
        self.indices.pop();
    }

    /// An index out of those of the loops around.
    fn index(&mut self) -> String {
        let at = self.dice.below(self.indices.len());
        let one = self.indices[at].clone();
        match self.dice.below(9) {
            0 => format!("{one} + {}", self.dice.below(2)),
            1 => format!("{one} - {}", self.dice.below(2)),
            2 => format!("{one} * {} / 3", 1 + self.dice.below(3)),
            3 => format!("({one} * 2 + {}) % {}", self.dice.below(5), 1 + self.dice.below(6)),
            4 => format!("({one} & {})", self.dice.below(8)),
            5 => format!("({one} >> {})", self.dice.below(3)),
            _ => one,
        }
    }
}
