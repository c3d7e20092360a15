//! Random programs and random damage, for tests: the same seed gives the same text.

mod loops;
mod tasks;
mod values;

pub use loops::random_loops;
pub use tasks::random_tasks;
pub use values::random_values;

/// All words that mean something to the language.
pub fn words() -> Vec<&'static str> {
    let mut words = vec!["chan"];
    words.extend(crate::parser::KEYWORDS);
    words.extend(crate::lower::words());
    words
}

/// A source of numbers. The same seed gives the same ones.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Begins at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.roll() >> 33) as usize % bound.max(1)
    }

    fn choose<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// A program that compiles and ends: functions that call only earlier ones, and loops of a few turns. Its `main` takes and gives an
/// `i64`. `tasks`: functions are spawned and awaited too, and programs of even seeds do not trap.
pub fn random_program(seed: u64, tasks: bool) -> String {
    let mut writer = Writer {
        dice: Dice::new(seed),
        out: String::new(),
        vars: Vec::new(),
        functions: 0,
        depth: 0,
        loops: 0,
        traps: !tasks || seed % 2 == 1,
        next: 0,
    };
    if !tasks {
        writer.out.push_str("{.profile: core.}\n");
    }
    writer.out.push_str("struct Pair { a: i64, b: f64, c: []i64 }\nerror Odd, Big\n");
    let count = 1 + writer.dice.below(4);
    for function in 0..count {
        writer.function(&format!("f{function}"), tasks);
        writer.functions += 1;
    }
    writer.function("main", tasks);
    writer.out
}

struct Writer {
    dice: Dice,
    out: String,
    /// Names of variables that can be assigned, and whether they are floats.
    vars: Vec<(String, bool)>,
    functions: usize,
    depth: usize,
    /// Loops around the statement.
    loops: usize,
    traps: bool,
    next: usize,
}

impl Writer {
    fn line(&mut self, text: &str) {
        self.out.push_str(&"    ".repeat(self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn name(&mut self) -> String {
        self.next += 1;
        format!("v{}", self.next)
    }

    fn function(&mut self, name: &str, tasks: bool) {
        self.vars.clear();
        self.depth = 0;
        self.line(&format!("fn {name}(n: i64) -> i64 {{"));
        self.depth = 1;
        self.line("var x = n");
        self.line("var y = 1.5");
        self.line("var s = make([]i64, 8)");
        self.line("var p = Pair { a: n, b: 0.5, c: s }");
        self.vars = vec![("x".to_owned(), false), ("y".to_owned(), true)];
        let statements = 2 + self.dice.below(5);
        for _ in 0..statements {
            self.statement(3, tasks);
        }
        self.line("return x +% int(y) +% p.a +% s[3]");
        self.depth = 0;
        self.line("}");
    }

    fn int_var(&mut self) -> String {
        let ints: Vec<String> =
            self.vars.iter().filter(|(_, float)| !float).map(|(name, _)| name.clone()).collect();
        ints[self.dice.below(ints.len())].clone()
    }

    fn int(&mut self, height: usize) -> String {
        match if height == 0 { self.dice.below(3) } else { self.dice.below(9) } {
            0 => (self.dice.roll() % 100).to_string(),
            1 => self.int_var(),
            2 => "n".to_owned(),
            3 => {
                let op = self.dice.choose(&["+%", "-%", "*%", "&", "|", "^"]);
                format!("({} {op} {})", self.int(height - 1), self.int(height - 1))
            }
            4 if self.traps => {
                let op = self.dice.choose(&["+", "-", "*", "/", "%"]);
                format!("({} {op} {})", self.int(height - 1), self.int(height - 1))
            }
            5 => format!("({} >> {})", self.int(height - 1), self.dice.below(70)),
            6 => format!("s[{} & 7]", self.int(height - 1)),
            4 | 7 => format!("int({})", self.float(height - 1)),
            _ => "p.a".to_owned(),
        }
    }

    fn float(&mut self, height: usize) -> String {
        match if height == 0 { self.dice.below(2) } else { self.dice.below(5) } {
            0 => format!("{}.25", self.dice.below(1000)),
            1 => "y".to_owned(),
            2 => {
                let op = self.dice.choose(&["+", "-", "*", "/"]);
                format!("({} {op} {})", self.float(height - 1), self.float(height - 1))
            }
            3 => format!("float({})", self.int(height - 1)),
            _ => "p.b".to_owned(),
        }
    }

    fn condition(&mut self) -> String {
        let op = self.dice.choose(&["<", "<=", ">", ">=", "==", "!="]);
        let simple = if self.dice.below(4) == 0 {
            format!("{} {op} {}", self.float(1), self.float(1))
        } else {
            format!("{} {op} {}", self.int(1), self.int(1))
        };
        match self.dice.below(5) {
            0 => format!("({simple}) and not ({} == 3)", self.int(1)),
            1 => format!("({simple}) or {} > 50", self.int(1)),
            _ => simple,
        }
    }

    fn block(&mut self, height: usize, tasks: bool) {
        self.depth += 1;
        let (outside, statements) = (self.vars.len(), 1 + self.dice.below(3));
        for _ in 0..statements {
            self.statement(height, tasks);
        }
        self.vars.truncate(outside);
        self.depth -= 1;
    }

    fn statement(&mut self, height: usize, tasks: bool) {
        let most = if height == 0 {
            6
        } else if tasks {
            12
        } else {
            11
        };
        match self.dice.below(most) {
            0 => {
                let (to, value) = (self.int_var(), self.int(3));
                self.line(&format!("{to} = {value}"));
            }
            1 => {
                let value = self.float(3);
                self.line(&format!("y = {value}"));
            }
            2 => {
                let (index, value) = (self.int(1), self.int(2));
                self.line(&format!("s[{index} & 7] = {value}"));
            }
            3 => {
                let value = self.int(2);
                self.line(&format!("p.a = {value}"));
            }
            4 => {
                let (name, value) = (self.name(), self.int(2));
                self.line(&format!("var {name} = {value}"));
                self.vars.push((name, false));
            }
            // Tasks in loops of tasks would run for ever.
            5 if self.functions > 0 && !(tasks && self.loops > 0) => {
                let (to, callee, arg) = (self.int_var(), self.dice.below(self.functions), self.int(1));
                self.line(&format!("{to} = f{callee}({arg})"));
            }
            5 => self.line("s = make([]i64, 8)"),
            6 | 7 => {
                let condition = self.condition();
                self.line(&format!("if {condition} {{"));
                self.block(height - 1, tasks);
                if self.dice.below(2) == 0 {
                    self.line("} else {");
                    self.block(height - 1, tasks);
                }
                self.line("}");
            }
            8 => {
                let (name, turns) = (self.name(), self.dice.below(if tasks { 8 } else { 40 }));
                self.line(&format!("for {name} in 0..{turns} {{"));
                self.loops += 1;
                self.block(height - 1, tasks);
                self.loops -= 1;
                self.leave();
                self.line("}");
            }
            9 => {
                let (name, step) = (self.name(), 1 + self.dice.below(3));
                self.line(&format!("var {name} = 0"));
                self.line(&format!(
                    "while {name} < {} {{",
                    self.dice.clone().below(if tasks { 8 } else { 60 })
                ));
                self.line(&format!("    {name} = {name} + {step}"));
                self.loops += 1;
                self.block(height - 1, tasks);
                self.loops -= 1;
                self.leave();
                self.line("}");
            }
            10 => {
                let name = self.name();
                self.line(&format!("for {name} in s {{"));
                self.line(&format!("    x = x +% {name}"));
                self.line("}");
            }
            _ => self.nursery(),
        }
    }

    fn leave(&mut self) {
        let word = match self.dice.below(4) {
            0 => "break",
            1 => "continue",
            _ => return,
        };
        let condition = self.condition();
        self.line(&format!("    if {condition} {{ {word} }}"));
    }

    fn nursery(&mut self) {
        if self.functions == 0 || self.loops > 0 {
            return self.line("yield");
        }
        let (one, other) = (self.dice.below(self.functions), self.dice.below(self.functions));
        let (a, b) = (self.int(1), self.int(1));
        let (first, second) = (self.name(), self.name());
        self.line("nursery {");
        self.line(&format!("    let {first} = spawn f{one}({a})"));
        self.line(&format!("    let {second} = spawn f{other}({b})"));
        self.line(&format!("    x = await {first} +% await {second}"));
        self.line("} catch { x = x +% 1 }");
    }
}

/// A text with some of its words and letters changed, removed, doubled or moved.
pub fn damage(dice: &mut Dice, text: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut word = String::new();
    for character in text.chars() {
        if character.is_alphanumeric() || character == '_' {
            word.push(character);
        } else {
            parts.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            parts.push(character.to_string());
        }
    }
    parts.extend((!word.is_empty()).then_some(word));
    const INSERTED: [&str; 40] = [
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "nursery",
        "spawn",
        "await",
        "try",
        "catch",
        "fn",
        "async",
        "let",
        "var",
        "if",
        "else",
        "while",
        "for",
        "in",
        "return",
        "fail",
        "yield",
        "cancel",
        "|",
        "!",
        "-",
        "+%",
        "..",
        "{.",
        ".}",
        "0x",
        "9223372036854775807",
        "1e999",
        "\"",
        "\\",
        "\u{0}",
        "é",
        "error",
        "make",
    ];
    for _ in 0..1 + dice.below(6) {
        if parts.is_empty() {
            parts.push(" ".to_owned());
        }
        let at = dice.below(parts.len());
        match dice.below(7) {
            0 => drop(parts.remove(at)),
            1 => parts.insert(at, INSERTED[dice.below(INSERTED.len())].to_owned()),
            2 => parts[at] = INSERTED[dice.below(INSERTED.len())].to_owned(),
            3 => {
                let other = dice.below(parts.len());
                parts.swap(at, other);
            }
            4 => {
                // A part once more, elsewhere.
                let end = (at + 1 + dice.below(20)).min(parts.len());
                let copy = parts[at..end].to_vec();
                let to = dice.below(parts.len());
                parts.splice(to..to, copy);
            }
            5 => {
                let deep = INSERTED[dice.below(6)].repeat(1 + dice.below(200));
                parts.insert(at, deep);
            }
            _ => parts.truncate(at),
        }
    }
    parts.concat()
}
