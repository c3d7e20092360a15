//! Random programs of nurseries, tasks, channels and errors.

use super::Dice;
use std::fmt::Write;

/// What the programs are put together from.
const AROUND: &str = "struct Pair { a: i64, b: f64, c: []i64 }
error Odd, Big
fn leaf(n: i64) -> i64 { var sum = 0\n for i in 0..n & 63 { sum = sum +% i * n }\n return sum }
fn turn(n: i64) -> i64 { var left = n & 255\n while left > 0 { left = left - 1 }\n return n }
fn odd(n: i64) -> !i64 { let m = leaf(n)\n if n & 1 == 1 { fail Odd }\n return m +% n }
fn feed(c: chan i64, n: i64) -> ! { for i in 0..n & 15 { try c.send(i) }\n c.close() }
fn drain(c: chan i64) -> i64 { var sum = 0\n var more = true
    while more { let got = c.recv() catch -1\n if got < 0 { more = false } else { sum = sum +% got } }\n return sum }
fn swap(p: Pair) -> Pair { let s = make([]i64, 4)\n for i in 0..4 { s[i] = p.c[3 - i] +% p.a }\n return Pair { a: int(p.b), b: float(p.a & 1023), c: s } }
fn spin() -> i64 { while true { } }
fn bomb(n: i64) -> i64 { nursery { for i in 0..n { spawn bomb(n) } } catch { }\n return n }
fn tree(n: i64) -> i64 { if n <= 0 { return 1 }\n var sum = 0
    nursery { let a = spawn tree(n - 1)\n let b = spawn tree(n - 2)\n sum = await a + await b }\n return sum }
async fn later(n: i64) -> !i64 { if n & 3 == 3 { fail Big }\n return leaf(n) }
";

/// A program with tasks that ends: children that return, fail, run out of their budget, wait for a channel or are cancelled, in nurseries
/// inside of nurseries and of loops. Its `main` takes and gives an `i64`. Programs of even seeds fail nowhere and make the same ops on any
/// number of workers.
pub fn random_tasks(seed: u64) -> String {
    let mut scenes = Scenes { dice: Dice::new(seed), out: AROUND.to_owned(), next: 0, fails: seed % 2 == 1 };
    scenes.function("part");
    scenes.function("main");
    scenes.out
}

struct Scenes {
    dice: Dice,
    out: String,
    next: usize,
    fails: bool,
}

impl Scenes {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "    {text}");
    }

    fn name(&mut self) -> String {
        self.next += 1;
        format!("v{}", self.next)
    }

    fn function(&mut self, name: &str) {
        let _ = writeln!(self.out, "fn {name}(n: i64) -> i64 {{");
        for text in ["var x = n", "var y = 0.5", "var s = make([]i64, 8)", "let never = make(chan i64, 0)"] {
            self.line(text);
        }
        for _ in 0..2 + self.dice.below(3) {
            match self.dice.below(8) {
                0 => {
                    let turns = 1 + self.dice.below(4);
                    let index = self.name();
                    self.line(&format!("for {index} in 0..{turns} {{"));
                    self.nursery(0);
                    self.line(&format!("s[{index}] = x"));
                    self.line("}");
                }
                1 => {
                    self.line(&format!("if x & 1 == {} {{", self.dice.clone().below(2)));
                    self.nursery(0);
                    self.line("} else { x = x +% 3 }");
                }
                2 if name == "main" => {
                    let arg = self.dice.below(9);
                    self.line(&format!("x = x +% part({arg})"));
                }
                _ => self.nursery(0),
            }
        }
        self.line("for v in s { x = x +% v }");
        self.line("return x +% int(y)\n}");
    }

    fn number(&mut self) -> String {
        match self.dice.below(4) {
            0 => "n".to_owned(),
            1 => "x".to_owned(),
            2 => "s[x & 7]".to_owned(),
            _ => self.dice.below(64).to_string(),
        }
    }

    fn nursery(&mut self, depth: usize) {
        self.line("nursery {");
        for _ in 0..1 + self.dice.below(3) {
            self.scene(depth);
        }
        let handler = match self.dice.below(4) {
            0 if self.fails && depth == 0 => "}",
            1 => {
                "} catch |e| { x = x +% 1\n if e == error.Odd { x = x +% 10 }\n if e == error.BudgetExhausted { x = x +% 100 } }"
            }
            2 => "} catch { x = x +% 1000 }",
            _ => "} catch |e| { if e == error.Cancelled { x = -1 }\n y = y + 1.0 }",
        };
        // What a nursery without a handler fails with would leave the one around it.
        self.line(if handler == "}" && depth > 0 { "} catch { }" } else { handler });
    }

    fn scene(&mut self, depth: usize) {
        let (a, b) = (self.number(), self.number());
        let (one, two) = (self.name(), self.name());
        match self.dice.below(if self.fails { 17 } else { 10 }) {
            0 => {
                self.line(&format!("let {one} = spawn leaf({a})\n let {two} = spawn turn({b})"));
                self.line(&format!("x = x +% await {two} +% await {one}"));
            }
            1 => {
                let room = self.dice.below(4);
                self.line(&format!("let {one} = make(chan i64, {room})\n spawn feed({one}, {a})"));
                self.line(&format!("x = x +% drain({one})"));
            }
            2 => {
                let room = self.dice.below(3);
                self.line(&format!("let {one} = make(chan i64, {room})\n spawn feed({one}, {a})"));
                self.line(&format!("let {two} = spawn drain({one})\n x = x +% await {two}"));
            }
            3 => {
                self.line(&format!("let {one} = later({a} & 1)\n x = x +% (await {one} catch 7)"));
            }
            4 => {
                self.line(&format!("let {one} = spawn swap(Pair {{ a: {a}, b: y, c: s }})"));
                self.line(&format!(
                    "let {two} = await {one}\n x = x +% {two}.a\n y = {two}.b\n s[1] = {two}.c[2]"
                ));
            }
            5 => {
                let height = self.dice.below(4);
                self.line(&format!("let {one} = spawn tree({height})\n x = x +% await {one}"));
            }
            6 => self.line(&format!("yield\n x = x +% turn({a})")),
            7 if depth < 3 => self.nursery(depth + 1),
            8 if depth < 3 => {
                self.line(&format!("spawn {{ var x = {a}\n var y = 1.5\n let s = make([]i64, 8)\n let never = make(chan i64, 1)"));
                self.nursery(depth + 1);
                self.line("}");
            }
            7..10 => {
                let turns = 1 + self.dice.below(20);
                self.line(&format!("for {one} in 0..{turns} {{ spawn turn({one}) }}"));
            }
            10 => self.line(&format!("spawn odd({a})\n x = x +% turn({b})\n x = x +% leaf({a})")),
            11 => self.line(&format!("let {one} = spawn odd({a})\n x = 7\n x = await {one}")),
            12 => self.line("spawn spin() with { ops: 3000 }\n x = x +% 1"),
            13 => self.line("spawn drain(never)\n cancel\n x = x +% 1"),
            14 => self.line(&format!(
                "spawn odd(1)\n for {one} in 0..2000 {{ x = x +% {one} }}\n x = x +% turn({a})"
            )),
            15 => self.line("spawn bomb(3) with { ops: 2000, memory: 100000, spawn_count: 6 }"),
            _ => self.line(&format!("let {one} = later({a})\n s[{b} & 7] = (await {one} catch 3) / (x & 3)")),
        }
    }
}
