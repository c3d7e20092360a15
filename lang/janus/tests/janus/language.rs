//! The language without tasks.

use super::alone;
use mainspring_qtjir::{FaultKind, Trap};

/// What `main` gives that must end well.
fn gives(body: &str) -> i64 {
    alone(body).unwrap_or_else(|fault| panic!("{fault}\n{body}"))
}

#[test]
fn numbers() {
    assert_eq!(gives("fn main() -> i64 { return 2 + 3 * 4 - 10 / 3 % 2 }"), 13);
    assert_eq!(gives("fn main() -> i64 { return (1 << 10 | 3) ^ 1 & 0xff }"), 1026);
    assert_eq!(gives("fn main() -> i64 { return -9223372036854775807 - 1 }"), i64::MIN);
    assert_eq!(gives("fn main() -> i64 { return 9223372036854775807 +% 1 }"), i64::MIN);
    assert_eq!(gives("fn main() -> i64 { return int(1.5e3 / 2.0) + int(float(7) * 0.5) }"), 753);
    assert_eq!(gives("fn main() -> i64 { return 1_000_000 }"), 1_000_000);
    assert_eq!(gives("fn main() -> i64 { return -7 >> 1 }"), -4);
}

#[test]
fn the_least_integer_is_written_with_its_sign_and_has_no_opposite() {
    assert_eq!(gives("fn main() -> i64 { return -9223372036854775808 }"), i64::MIN);
    assert_eq!(gives("fn main() -> i64 { return 0x8000000000000000 }"), i64::MIN);
    for opposite in ["- -9223372036854775808", "-(-9223372036854775808)", "-0x8000000000000000"] {
        let fault = alone(&format!("fn main() -> i64 {{ return {opposite} }}")).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Trap(Trap::Overflow), "{opposite}");
    }
    for (bad, says) in [
        ("9223372036854775808", "found `9223372036854775808`; integers have 64 bits"),
        ("1 - 9223372036854775808", "found `9223372036854775808`"),
        ("-9223372036854775809", "`9223372036854775809` is no number"),
    ] {
        let mistakes = mainspring_janus::compile(&format!("fn f() -> i64 {{ return {bad} }}")).unwrap_err();
        assert!(mistakes.to_string().contains(says), "{mistakes}");
    }
}

#[test]
fn conditions() {
    let f = "fn f(x: i64) -> i64 { if x < 0 { return -1 } else if x == 0 { return 0 } else { return 1 } }\n";
    assert_eq!(gives(&format!("{f}fn main() -> i64 {{ return f(-5) * 100 + f(0) * 10 + f(9) }}")), -99);
    // The second operand is evaluated only if it decides.
    let g = "fn g() -> bool { return 1 / 0 == 0 }\n";
    assert_eq!(
        gives(&format!(
            "{g}fn main() -> i64 {{ if false and g() or not (true or g()) {{ return 1 }}\n return 2 }}"
        )),
        2
    );
}

#[test]
fn loops() {
    assert_eq!(gives("fn main() -> i64 { var s = 0\n for i in 0..5 { s += i }\n return s }"), 10);
    assert_eq!(gives("fn main() -> i64 { var s = 0\n for i in 5..0 { s += 1 }\n return s }"), 0);
    let with_jumps = "fn main() -> i64 { var s = 0\n for i in 0..100 { if i % 2 == 0 { continue }\n if i > 10 { break }\n s += i }\n return s }";
    assert_eq!(gives(with_jumps), 1 + 3 + 5 + 7 + 9);
    let nested = "fn main() -> i64 { var s = 0\n var i = 0\n while i < 10 { var j = 0\n while true { if j >= i { break }\n s += 1\n j += 1 }\n i += 1 }\n return s }";
    assert_eq!(gives(nested), 45);
    assert_eq!(
        gives("fn main() -> i64 { var s = 0\n for x in [3, 4, 5] { s = s * 10 + x }\n return s }"),
        345
    );
    assert_eq!(gives("fn main() -> i64 { while true { return 3 } }"), 3);
}

#[test]
fn slices_and_structs() {
    let source = "struct Point { x: i64, y: f64 }
struct Line { from: Point, to: Point }
fn main() -> i64 {
    let s = make([]i64, 10)
    for i in 0..s.len { s[i] = i * i }
    s[3] += 1
    let line = Line { from: Point { x: 1, y: 0.5 }, to: Point { y: 2.0, x: s[3] } }
    line.to.x *= 2
    let lines = [line, line]
    lines[1].from.x = 7
    return line.to.x * 100 + line.from.x * 10 + len(lines)
}";
    assert_eq!(gives(source), 2072);
}

#[test]
fn errors() {
    let source = "error Negative, Big
fn root(x: i64) -> !i64 {
    if x < 0 { fail Negative }
    if x > 100 { fail error.Big }
    var r = 0
    while r * r <= x { r += 1 }
    return r - 1
}
fn twice(x: i64) -> !i64 { return 2 * try root(x) }
fn check(x: i64) -> ! { let ignored = try root(x) }
fn main() -> i64 {
    return (twice(50) catch 0) * 10000 + (root(-1) catch 7) * 100 + (twice(101) catch 3)
}";
    assert_eq!(gives(source), 140_703);
}

#[test]
fn recursion() {
    let fib = "fn fib(n: i64) -> i64 { if n < 2 { return n }\n return fib(n - 1) + fib(n - 2) }\nfn main() -> i64 { return fib(20) }";
    assert_eq!(gives(fib), 6765);
}

#[test]
fn traps() {
    let trap = |body: &str| match alone(body).unwrap_err().kind {
        FaultKind::Trap(trap) => trap,
        other => panic!("{other:?}"),
    };
    assert_eq!(trap("fn main() -> i64 { return 9223372036854775807 + 1 }"), Trap::Overflow);
    assert_eq!(trap("fn main() -> i64 { let zero = 0\n return 1 / zero }"), Trap::DivideByZero);
    assert_eq!(trap("fn main() -> i64 { return [1, 2][2] }"), Trap::OutOfBounds { index: 2, len: 2 });
    assert_eq!(trap("fn main() -> i64 { return make([]i64, -1).len }"), Trap::BadSize(-1));
    assert_eq!(trap("struct P { x: i64 }\nfn main() -> i64 { return make([]P, 1)[0].x }"), Trap::Empty);
    assert_eq!(
        trap("fn f(n: i64) -> i64 { return f(n + 1) }\nfn main() -> i64 { return f(0) }"),
        Trap::StackOverflow
    );
}

#[test]
fn a_new_line_ends_a_statement_unless_a_parenthesis_is_open() {
    assert_eq!(gives("fn main() -> i64 { let a = 1\n let b = (a\n - 3)\n return b }"), -2);
    assert_eq!(gives("fn main() -> i64 { let a = 1; let b = 2; return a + b }"), 3);
}
