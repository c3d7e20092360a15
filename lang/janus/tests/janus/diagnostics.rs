//! What is said about what does not compile: where, what, and what to write instead.

use mainspring_janus::{Code, compile};

/// The first mistake: its kind, its place and its text, and the help after `; `.
fn says(source: &str) -> (Code, String) {
    let mistakes = compile(source).expect_err(source);
    (mistakes.0[0].code, mistakes.0[0].to_string())
}

//= SCHED:14.1.1b
//= NURS:nested-syntax
//= NURS:no-orphans
#[test]
fn a_spawn_outside_of_a_nursery_is_a_compile_error() {
    let f = "fn f() { }\n";
    let outside = format!("{f}fn main() {{\n    spawn f()\n}}");
    let says_so = "3:5: NurseryNotActive: `spawn` outside of a nursery; put it into `nursery { … }`, which waits for its tasks";
    assert_eq!(says(&outside), (Code::NurseryNotActive, says_so.to_owned()));
    // The block of a task is not inside the nursery of its parent.
    let in_task = format!("{f}fn main() {{ nursery {{\n    spawn {{ spawn f() }}\n}} }}");
    assert_eq!(says(&in_task).0, Code::NurseryNotActive);
    let after = format!("{f}fn main() {{ nursery {{ }}\n    spawn f()\n}}");
    assert_eq!(says(&after).0, Code::NurseryNotActive);
    let in_callee = format!("{f}fn g() {{ spawn f() }}\nfn main() {{ nursery {{ g() }} }}");
    assert_eq!(says(&in_callee).0, Code::NurseryNotActive);
    assert_eq!(says("fn main() { cancel }").0, Code::NurseryNotActive);
}

//= NURS:no-orphans
#[test]
fn nothing_leaves_a_nursery_before_its_end() {
    for body in ["return", "fail Bad", "try f()"] {
        let source =
            format!("error Bad\nfn f() -> ! {{ fail Bad }}\nfn main() -> ! {{ nursery {{ {body} }} }}");
        assert_eq!(says(&source).0, Code::LeavesNursery, "{body}");
    }
    for body in ["break", "continue"] {
        let source = format!("fn main() {{ while true {{ nursery {{ {body} }} }} }}");
        assert_eq!(says(&source).0, Code::LeavesNursery, "{body}");
    }
}

#[test]
fn names_that_almost_exist_are_suggested() {
    let cases = [
        (
            "fn main() { let count = 1\n print(cuont) }",
            "2:8: there is no variable `cuont`; did you mean `count`?",
        ),
        (
            "fn compute() { }\nfn main() { comptue() }",
            "2:13: there is no function `comptue`; did you mean `compute`?",
        ),
        ("fn main(x: itn) { }", "1:12: there is no type `itn`; did you mean `int`?"),
        (
            "struct P { width: i64 }\nfn f(p: P) -> i64 { return p.widht }",
            "2:30: `P` has no field `widht`; did you mean `width`?",
        ),
        (
            "error NotFound\nfn f() -> ! { fail NotFuond }",
            "2:20: there is no error `NotFuond`; did you mean `NotFound`?",
        ),
        (
            "fn f() -> ! { fail Elsewhere }",
            "1:20: there is no error `Elsewhere`; declare it: `error Elsewhere`",
        ),
        ("fn f(c: chan i64) { c.clsoe() }", "1:23: a channel has no method `clsoe`; did you mean `close`?"),
        (
            "fn f() { }\nfn main() { nursery { spawn f() with { opps: 1 } } }",
            "2:40: a budget has no `opps`; did you mean `ops`?",
        ),
    ];
    for (source, text) in cases {
        assert_eq!(says(source), (Code::UnknownName, text.to_owned()), "{source}");
    }
}

#[test]
fn types_that_do_not_fit_are_explained() {
    let cases = [
        ("fn f() -> f64 { return 1 }", "1:24: expected f64, found i64; write `1.0`"),
        ("fn f(x: i64) -> f64 { return x * 2 }", "1:32: expected f64, found i64; convert it with `float(…)`"),
        ("fn f() -> bool { return 1 }", "1:25: expected bool, found i64"),
        ("fn f(x: []i64) -> i64 { return x }", "1:32: expected i64, found []i64"),
        (
            "fn g() -> i64 { return 1 }\nfn f() -> i64 { var x = 0\n nursery { x = spawn g() }\n return x }",
            "3:16: expected i64, found a task that gives i64; get its result with `await`",
        ),
        ("fn f(a: i64) { }\nfn g() { f(1, 2) }", "2:10: `f` takes 1 arguments, not 2"),
        (
            "struct P { x: i64, y: i64 }\nfn f() -> P { return P { x: 1 } }",
            "2:22: the field `y` of `P` is missing; add `y: …`",
        ),
    ];
    for (source, text) in cases {
        assert_eq!(says(source), (Code::Mismatch, text.to_owned()), "{source}");
    }
}

#[test]
fn other_mistakes_have_their_kind_and_help() {
    let cases = [
        (
            Code::NotMutable,
            "fn f() { let x = 1\n x = 2 }",
            "2:2: `x` does not change; declare it with `var x`",
        ),
        (
            Code::NotMutable,
            "fn f() { var x = 1\n nursery { spawn { x = 2 } } }",
            "2:20: `x` does not change; a task has a copy of `x`; send the new value through a channel, or return it",
        ),
        (
            Code::Unhandled,
            "error E\nfn f() -> !i64 { fail E }\nfn g() { f() }",
            "3:10: this can fail, and nobody handles its error; put `try` before it, or `catch` and another value after it",
        ),
        (Code::Unhandled, "fn f() { try g() }\nfn g() { }", "1:14: `try` for what cannot fail; remove `try`"),
        (
            Code::Unhandled,
            "error E\nfn f() { fail E }",
            "2:10: `fail` in a function that cannot fail; declare its result with `!`, as `-> !i64`",
        ),
        (
            Code::Flow,
            "fn f(x: i64) -> i64 { if x > 0 { return 1 } }",
            "1:45: `f` ends without returning i64; add a `return` before this brace",
        ),
        (
            Code::Flow,
            "fn f() { return\n print(1) }",
            "2:2: nothing leads to this statement; remove it, or what ends the block before it",
        ),
        (Code::TwiceNamed, "fn f() { }\nfn f() { }", "2:4: `f` has a meaning already; choose another name"),
        (
            Code::Syntax,
            "fn f() { let let = 1 }",
            "1:14: expected a name, found `let`; this word is the language's; choose another name",
        ),
        (
            Code::Syntax,
            "fn f() { let a = 1 let b = 2 }",
            "1:20: expected the end of the statement, found `let`; begin a new line, or write `;`",
        ),
        (Code::Syntax, "fn f() { print(\"abc }", "1:16: this text is not closed; end it with `\"`"),
        (
            Code::Syntax,
            "nursery { }",
            "1:1: expected `fn`, `async fn`, `struct` or `error`, found `nursery`; statements belong into a function",
        ),
        (
            Code::UnknownName,
            "{.profile: sevrice.}",
            "1:12: there is no profile `sevrice`; there are core, service, cluster and sovereign",
        ),
    ];
    for (code, source, text) in cases {
        assert_eq!(says(source), (code, text.to_owned()), "{source}");
    }
}

#[test]
fn each_function_has_its_own_mistake() {
    let source = "fn f() { x = 1 }\nfn g() { }\nfn h() { y = 1 }";
    let mistakes = compile(source).unwrap_err();
    assert_eq!(mistakes.0.len(), 2);
    let shown = "a.jan:1:10: error: there is no variable `x`\n    fn f() { x = 1 }\n             ^\n\
                 a.jan:3:10: error: there is no variable `y`\n    fn h() { y = 1 }\n             ^\n";
    assert_eq!(mistakes.render("a.jan", source), shown);
}

#[test]
fn a_budget_says_what_it_has() {
    let with = |amount: &str| {
        format!("fn f() {{ }}\nfn main() {{ nursery {{ spawn f() with {{ {amount}: 1 }} }} }}")
    };
    assert!(says(&with("opps")).1.ends_with("; did you mean `ops`?"));
    let all = "a budget has no `spawns`; it has ops, memory, spawn_count, channel_ops, syscalls";
    assert!(says(&with("spawns")).1.ends_with(all), "{}", says(&with("spawns")).1);
}
