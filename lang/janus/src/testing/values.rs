//! Random programs of values at their limits: the ends of integers, shifts of any length, floats that are no numbers, many parameters.

use super::Dice;
use std::fmt::Write;

/// What the programs share.
const AROUND: &str = "{.profile: core.}
error Odd, Big
struct Inner { a: i64, f: f64, b: bool }
struct Outer { i: Inner, s: []f64, t: [][]i64, u: []bool, c: []Inner }
fn bit(b: bool) -> i64 { if b { return 1 }\n return 0 }
fn mix(h: i64, v: i64) -> i64 { return (h ^ v) *% 0x100000001b3 }
fn made(n: i64) -> Outer {
    let rows = make([][]i64, 3)
    for i in 0..3 { rows[i] = make([]i64, i + 2) }
    let cells = make([]Inner, 4)
    for i in 0..3 { cells[i] = Inner { a: n +% i, f: float(i) * 0.5, b: i == 1 } }
    return Outer { i: Inner { a: n, f: 1.0, b: true }, s: [0.5, -0.0, 2.5], t: rows, u: make([]bool, 3), c: cells }
}
";

/// A program without tasks whose integers and floats are often the last ones of their kind. Its `main` takes and gives an `i64`, and prints. Some
/// programs trap.
pub fn random_values(seed: u64) -> String {
    let dice = Dice::new(seed);
    let mut writer = Values {
        dice,
        out: AROUND.to_owned(),
        functions: Vec::new(),
        next: 0,
        traps: seed.is_multiple_of(3),
        vars: Vec::new(),
    };
    for number in 0..3 {
        writer.function(number);
    }
    writer.main();
    writer.out
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Int,
    Float,
    Bool,
}

const KINDS: [(Kind, &str); 3] = [(Kind::Int, "i64"), (Kind::Float, "f64"), (Kind::Bool, "bool")];

struct Values {
    dice: Dice,
    out: String,
    /// The parameters of the functions so far. Each can fail.
    functions: Vec<Vec<Kind>>,
    next: usize,
    traps: bool,
    vars: Vec<(String, Kind)>,
}

impl Values {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "    {text}");
    }

    fn function(&mut self, number: usize) {
        let kinds: Vec<(Kind, &str)> =
            (0..1 + self.dice.below(14)).map(|_| KINDS[self.dice.below(3)]).collect();
        let params: Vec<String> =
            kinds.iter().enumerate().map(|(at, (_, of))| format!("a{at}: {of}")).collect();
        let _ = writeln!(self.out, "fn f{number}({}) -> !i64 {{", params.join(", "));
        self.vars = kinds.iter().enumerate().map(|(at, (kind, _))| (format!("a{at}"), *kind)).collect();
        self.body(6 + self.dice.clone().below(8));
        self.out.push_str("}\n");
        self.functions.push(kinds.into_iter().map(|(kind, _)| kind).collect());
    }

    fn main(&mut self) {
        self.out
            .push_str("fn main(n: i64) -> i64 {\n    return run(n) catch -1\n}\nfn run(n: i64) -> !i64 {\n");
        self.vars = vec![("n".to_owned(), Kind::Int)];
        self.body(12);
        self.out.push_str("}\n");
    }

    fn body(&mut self, statements: usize) {
        self.line("var h = 0\n    var x = 1.5\n    let o = made(h)");
        self.vars.extend([("h".to_owned(), Kind::Int), ("x".to_owned(), Kind::Float)]);
        for _ in 0..statements {
            self.statement();
        }
        for (name, kind) in self.vars.clone() {
            let folded = match kind {
                Kind::Int => name,
                Kind::Float => format!("int({name} * 16.0)"),
                Kind::Bool => format!("bit({name})"),
            };
            self.line(&format!("h = mix(h, {folded})"));
        }
        self.line("return h");
    }

    fn statement(&mut self) {
        match self.dice.below(11) {
            0..3 => {
                let (kind, of) = KINDS[self.dice.below(3)];
                let value = self.value(kind, 3);
                self.next += 1;
                let name = format!("v{}", self.next);
                self.line(&format!("let {name}: {of} = {value}"));
                self.vars.push((name, kind));
            }
            3 => {
                let value = self.value(Kind::Float, 3);
                self.line(&format!("x = {value}\n    print(x)"));
            }
            4 => {
                let (condition, value) = (self.value(Kind::Bool, 2), self.value(Kind::Int, 2));
                self.line(&format!("if {condition} {{ h = mix(h, {value}) }} else {{ x = -x }}"));
            }
            5 if !self.functions.is_empty() => {
                let callee = self.dice.below(self.functions.len());
                let args: Vec<String> =
                    self.functions[callee].clone().into_iter().map(|kind| self.value(kind, 1)).collect();
                let (call, instead) = (format!("f{callee}({})", args.join(", ")), self.value(Kind::Int, 0));
                let handled = if self.dice.below(4) == 0 {
                    format!("try {call}")
                } else {
                    format!("({call} catch {instead})")
                };
                self.line(&format!("h = mix(h, {handled})"));
            }
            6 => {
                let condition = self.value(Kind::Bool, 1);
                let error = self.dice.choose(&["Odd", "Big"]);
                self.line(&format!("if ({condition}) and h & 7 == 3 {{ fail {error} }}"));
            }
            7 => {
                let (at, value) = (self.dice.below(3), self.value(Kind::Float, 2));
                self.line(&format!("o.s[{at}] = {value}\n    o.c[{at}].f = o.s[{at}] + o.i.f"));
            }
            8 => {
                let (value, row) = (self.value(Kind::Int, 2), self.dice.below(3));
                self.line(&format!(
                    "o.t[{row}][{row} + 1] = {value}\n    o.i.a = o.t[{row}][0] +% o.t[2][3]"
                ));
            }
            9 => {
                let (value, at) = (self.value(Kind::Bool, 2), self.dice.below(3));
                self.line(&format!("o.u[{at}] = {value}\n    o.c[{at}].b = o.u[{at}] != o.i.b"));
            }
            _ => {
                let (name, turns) = (format!("i{}", self.next), self.dice.below(12));
                self.next += 1;
                let (value, step) = (self.value(Kind::Int, 2), self.value(Kind::Float, 1));
                self.line(&format!(
                    "for {name} in 0..{turns} {{ h = mix(h, {value} +% {name})\n x = x + {step} }}"
                ));
            }
        }
    }

    fn value(&mut self, kind: Kind, height: usize) -> String {
        let here: Vec<String> =
            self.vars.iter().filter(|(_, of)| *of == kind).map(|(name, _)| name.clone()).collect();
        if height == 0 || self.dice.below(5) == 0 {
            return if here.is_empty() || self.dice.below(2) == 0 {
                self.literal(kind)
            } else {
                here[self.dice.below(here.len())].clone()
            };
        }
        let below = height - 1;
        match kind {
            Kind::Int => self.int(below),
            Kind::Float => match self.dice.below(6) {
                0 => format!("float({})", self.value(Kind::Int, below)),
                1 => format!("(-{})", self.value(Kind::Float, below)),
                2 => format!("o.s[{}]", self.dice.below(3)),
                _ => {
                    let op = self.dice.choose(&["+", "-", "*", "/"]);
                    format!("({} {op} {})", self.value(Kind::Float, below), self.value(Kind::Float, below))
                }
            },
            Kind::Bool => {
                let op = self.dice.choose(&["<", "<=", ">", ">=", "==", "!="]);
                match self.dice.below(5) {
                    0 => format!("(not {})", self.value(Kind::Bool, below)),
                    1 => format!("({} and {})", self.value(Kind::Bool, below), self.value(Kind::Bool, below)),
                    2 => format!(
                        "(({}) {op} ({}))",
                        self.value(Kind::Float, below),
                        self.value(Kind::Float, below)
                    ),
                    3 => format!("o.c[{}].b", self.dice.below(3)),
                    _ => format!(
                        "(({}) {op} ({}))",
                        self.value(Kind::Int, below),
                        self.value(Kind::Int, below)
                    ),
                }
            }
        }
    }

    fn int(&mut self, below: usize) -> String {
        let traps = self.traps && self.dice.below(6) == 0;
        match self.dice.below(9) {
            _ if traps => match self.dice.below(7) {
                0 => format!("(-{})", self.value(Kind::Int, below)),
                1 => format!("o.t[1][{}]", self.value(Kind::Int, below)),
                _ => {
                    let op = self.dice.choose(&["+", "-", "*", "/", "%"]);
                    format!("({} {op} {})", self.value(Kind::Int, below), self.value(Kind::Int, below))
                }
            },
            0..2 => {
                let op = self.dice.choose(&["<<", ">>"]);
                format!("({} {op} {})", self.value(Kind::Int, below), self.value(Kind::Int, below))
            }
            2..5 => {
                let op = self.dice.choose(&["+%", "-%", "*%", "&", "|", "^"]);
                format!("({} {op} {})", self.value(Kind::Int, below), self.value(Kind::Int, below))
            }
            5 => {
                // A divisor that is neither 0 nor -1.
                let op = self.dice.choose(&["/", "%"]);
                format!("({} {op} ({} & 7 | 1))", self.value(Kind::Int, below), self.value(Kind::Int, below))
            }
            6 => format!("int({})", self.value(Kind::Float, below)),
            7 => format!("bit({})", self.value(Kind::Bool, below)),
            _ => format!("o.c[{}].a", self.dice.below(3)),
        }
    }

    fn literal(&mut self, kind: Kind) -> String {
        let of = match kind {
            Kind::Bool => &["true", "false"][..],
            Kind::Int => &[
                "0",
                "1",
                "(-1)",
                "63",
                "64",
                "(-64)",
                "4294967295",
                "4294967296",
                "9007199254740993",
                "9223372036854775807",
                "(-9223372036854775808)",
                "0x5555555555555555",
                "2147483648",
                "(-2147483649)",
            ],
            Kind::Float => &[
                "0.0",
                "(-0.0)",
                "1.5",
                "(-2.25)",
                "1.0e308",
                "5.0e-324",
                "9223372036854775807.0",
                "(-9223372036854775808.0)",
                "9007199254740993.0",
                "(1.0e308 * 10.0)",
                "(0.0 / 0.0)",
                "0.1",
            ],
        };
        self.dice.choose(of).to_owned()
    }
}
