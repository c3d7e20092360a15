//! What is charged, and where the checks are.

use super::support::{program, summing};
use mainspring::{Budget, Component};
use mainspring_qtjir::text::{parse, print};
use mainspring_qtjir::{FaultKind, Limits, Program, Quiet, Trap};

/// Halves a number until it is 0: a loop that does not know its length.
const UNCOUNTED: &str = "profile core
fn @down(%0: i64) -> i64 {
b0:
  Jump b1(%0)
b1(%1: i64):
  %2: i64 = Int 0
  %3: bool = Gt %1, %2
  Branch %3, b2, b3
b2:
  %4: i64 = Int 1
  %5: i64 = Sub %1, %4
  Jump b1(%5)
b3:
  Return %1
}
";

fn run(program: &Program, name: &str, arg: i64) -> mainspring_qtjir::Ended {
    program.run_alone(name, &[arg as u64], Limits::MAX, &Quiet).unwrap()
}

//= SCHED:4.1.1a
//= SCHED:3.3.1
#[test]
fn a_loop_pays_for_each_turn_and_looks_up_once_per_interval() {
    let plain = Program::compile_plainly(parse(UNCOUNTED).unwrap()).unwrap();
    let text = print(plain.module());
    assert!(text.contains("Int 1\n  Budget_Decrement %6\n  Budget_Check\n  Jump b1(%5)"), "{text}");
    // Eight turns are charged at once, and on a way out those that were made.
    let program = program(UNCOUNTED);
    let text = print(program.module());
    assert_eq!(
        (text.matches("Budget_Check").count(), text.matches("Budget_Decrement").count()),
        (1, 8),
        "{text}"
    );
    for (turns, looks) in [(0, 0), (1, 1), (1023, 1), (1024, 1), (1025, 2), (10_240, 10), (10_241, 11)] {
        let ended = run(&program, "down", turns);
        assert_eq!((ended.ops, ended.looks), (turns as u64, looks), "{turns} turns");
    }
}

//= SCHED:4.1.1a
#[test]
fn a_loop_that_knows_its_length_pays_in_strips() {
    let module = parse(&format!("profile core\n{}", summing("sum"))).unwrap();
    let plain = Program::compile_plainly(module.clone()).unwrap();
    let simple = Program::compile(module).unwrap();
    let text = print(simple.module());
    // The loop itself has no check: only the strip around it has one.
    assert_eq!(text.matches("Budget_Check").count(), 1, "{text}");
    assert!(text.contains("Min_Unsigned"), "{text}");
    for turns in [-5, 0, 1, 1023, 1024, 1025, 5000] {
        let (one, other) = (run(&plain, "sum", turns), run(&simple, "sum", turns));
        let expected: i64 = (0..turns).sum();
        assert_eq!(one.value, Some(expected as u64));
        assert_eq!((one.value, one.ops), (other.value, other.ops), "{turns} turns");
        assert_eq!(other.looks, (turns.max(0) as u64).div_ceil(1024), "{turns} turns");
    }
}

/// For each of `n` turns: the pairs of five.
const PAIRS: &str = "profile core
fn @pairs(%0: i64) -> i64 {
b0:
  %1: i64 = Int 0
  Jump b1(%0, %1)
b1(%2: i64, %3: i64):
  %4: i64 = Int 0
  %5: bool = Gt %2, %4
  Branch %5, b2, b9
b2:
  Jump b3(%4, %3)
b3(%7: i64, %8: i64):
  %9: i64 = Int FIVE
  %10: bool = Lt %7, %9
  Branch %10, b4, b8
b4:
  %11: i64 = Int 1
  %12: i64 = Add %7, %11
  Jump b5(%12, %8)
b5(%13: i64, %14: i64):
  %15: i64 = Int FIVE
  %16: bool = Lt %13, %15
  Branch %16, b6, b7
b6:
  %17: i64 = Int 1
  %18: i64 = Add %14, %17
  %19: i64 = Add_Wrap %13, %17
  Jump b5(%19, %18)
b7:
  %20: i64 = Int 1
  %21: i64 = Add_Wrap %7, %20
  Jump b3(%21, %14)
b8:
  %22: i64 = Int 1
  %23: i64 = Sub %2, %22
  Jump b1(%23, %8)
b9:
  Return %3
}
";

/// A loop that is never longer than an interval pays where it is entered, and what is in it needs no check if all of it is not longer either.
#[test]
fn short_loops_pay_as_a_whole() {
    // How long the loops are, how many checks are left, and how many loops pay in strips.
    for (five, checks, strips) in
        [(0, 2, 0), (1, 2, 0), (5, 2, 0), (40, 3, 0), (1024, 3, 0), (1025, 3, 1), (1026, 3, 2)]
    {
        let module = parse(&PAIRS.replace("FIVE", &five.to_string())).unwrap();
        let (plain, cheap) =
            (Program::compile_plainly(module.clone()).unwrap(), Program::compile(module).unwrap());
        let text = print(cheap.module());
        let count = |what: &str| text.matches(what).count();
        assert_eq!((count("Budget_Check"), count("Min_Unsigned")), (checks, strips), "{five}: {text}");
        for turns in [0, 1, 3] {
            let (one, other) = (run(&plain, "pairs", turns), run(&cheap, "pairs", turns));
            let all = turns * (1 + five + five * (five - 1).max(0) / 2);
            assert_eq!((one.value, one.ops), (other.value, other.ops), "{five}, {turns}");
            assert_eq!(other.ops, all as u64, "{five}, {turns}");
        }
    }
    // Sixteen copies make 48 turns in three times, and ask once each time, with checks and without.
    let text = PAIRS.replace("FIVE", "48").replace("%12: i64 = Add %7, %11", "%12: i64 = Int 0");
    for compile in [Program::compile, Program::compile_unmetered] {
        let program = compile(parse(&text).unwrap()).unwrap();
        let text = print(program.module());
        assert_eq!(text.matches("Lt").count(), 2 + 15, "{text}");
        assert_eq!(text.matches("Branch").count(), 3, "{text}");
        assert_eq!(run(&program, "pairs", 1).value, Some(48 * 48));
    }
    // From far below, and from a number that is not known: how long these are is not known either.
    for from in ["Int -9223372036854775808", "Add %0, %0"] {
        let text =
            PAIRS.replace("FIVE", "5").replace("%12: i64 = Add %7, %11", &format!("%12: i64 = {from}"));
        let program = Program::compile(parse(&text).unwrap()).unwrap();
        assert_eq!(print(program.module()).matches("Min_Unsigned").count(), 1, "{from}");
    }
}

/// Nothing stops code in the middle of a strip, so that it is not the program that says how long one is.
#[test]
fn a_strip_is_short_whatever_interval_the_program_chose() {
    let module = parse(&format!("profile sovereign\ninterval 65536\n{}", summing("sum"))).unwrap();
    let program = Program::compile(module).unwrap();
    let text = print(program.module());
    let strip = text.lines().position(|line| line.contains("Min_Unsigned")).unwrap();
    assert!(text.lines().nth(strip - 1).unwrap().ends_with("= Int 1024"), "{text}");
    let ended = run(&program, "sum", 100_000);
    assert_eq!((ended.ops, ended.looks), (100_000, 2));
}

#[test]
fn a_loop_with_another_way_out_keeps_its_check() {
    let text = "profile core
fn @find(%0: i64) -> i64 {
b0:
  %1: i64 = Int 0
  Jump b1(%1)
b1(%2: i64):
  %3: bool = Lt %2, %0
  Branch %3, b2, b4
b2:
  %4: i64 = Int 100
  %5: bool = Eq %2, %4
  Branch %5, b4, b3
b3:
  %6: i64 = Int 1
  %7: i64 = Add %2, %6
  Jump b1(%7)
b4:
  Return %2
}
";
    let program = program(text);
    assert!(!print(program.module()).contains("Min_Unsigned"));
    assert_eq!(run(&program, "find", 1000).ops, 100);
}

#[test]
fn a_cycle_with_two_entries_is_charged_too() {
    let text = "profile core
fn @f(%0: bool) -> i64 {
b0:
  Branch %0, b1, b2
b1:
  Jump b2
b2:
  Jump b1
}
";
    let program = program(text);
    for way in [0, 1] {
        let fault = program.run_alone("f", &[way], Limits { ops: 5000, ..Limits::ZERO }, &Quiet).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Trap(Trap::Exhausted(Component::Ops)));
    }
}

//= SCHED:4.1.1b
//= SCHED:3.3.1
#[test]
fn a_check_stands_immediately_before_each_call_send_and_receive() {
    let text = "fn @g(%0: i64) -> i64 {
b0:
  Return %0
}
fn @f(%0: chan<i64>) -> i64 {
b0:
  %1: i64 = Int 7
  %2: i64 = Call @g(%1)
  %3: i64 = Send %0, %2
  %4: i64, %5: i64 = Recv %0
  %6: i64 = Call @g(%4)
  Return %6
}
";
    let checked = program(text);
    let text = print(checked.module());
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut seen = 0;
    for pair in lines.windows(2) {
        if ["Call", "Send", "Recv"].iter().any(|op| pair[1].contains(&format!("= {op} "))) {
            assert_eq!(pair[0], "Budget_Check", "before {}", pair[1]);
            seen += 1;
        }
    }
    assert_eq!(seen, 4, "{text}");
    let core = "profile core\nfn @g(%0: i64) -> i64 {\nb0:\n  Return %0\n}\nfn @f(%0: i64) -> i64 {\nb0:\n  \
                %1: i64 = Call @g(%0)\n  %2: i64 = Call @g(%1)\n  Return %2\n}";
    let calls = program(core);
    assert_eq!(run(&calls, "f", 3).ops, 2, "an op for each call");
}

/// Allocates slices of 10 words, this many.
const ALLOCATES: &str = "profile core
fn @f(%0: i64) -> i64 {
b0:
  %1: i64 = Int 10
  %2: slice<i64> = Slice_New i64, %1
  %3: i64 = Len %2
  Return %3
}
";

//= SCHED:4.1.1c
//= SCHED:3.3.1
#[test]
fn a_check_follows_an_allocation_which_costs_an_op_and_its_size() {
    let program = program(ALLOCATES);
    let text = print(program.module());
    assert!(text.contains("Slice_New i64, %1\n  Budget_Check\n"), "{text}");
    let exactly = Budget { ops: 1, memory: 88, ..Budget::ZERO };
    assert_eq!(program.run_alone("f", &[0], exactly, &Quiet).unwrap().ops, 1);
    let too_little = Budget { ops: 1, memory: 87, ..Budget::ZERO };
    let fault = program.run_alone("f", &[0], too_little, &Quiet).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap(Trap::Exhausted(Component::Memory)));
    assert_eq!(fault.pos.to_string(), "5:3");
}

#[test]
fn traps_have_a_place() {
    let cases = [
        ("%1: i64 = Int 0\n  %2: i64 = Div %0, %1", "division by zero"),
        ("%1: i64 = Mul %0, %0\n  %2: i64 = Mul %1, %1", "does not fit into 64 bits"),
        (
            "%1: slice<i64> = Slice_New i64, %0\n  %2: i64 = Load %1, %0",
            "index 1000000 of a slice of 1000000",
        ),
        ("%1: i64 = Neg %0\n  %2: slice<i64> = Slice_New i64, %1", "a size of -1000000"),
    ];
    for (body, says) in cases {
        let text = format!("profile core\nfn @f(%0: i64) -> i64 {{\nb0:\n  {body}\n  Return %0\n}}");
        let program = program(&text);
        let fault = program.run_alone("f", &[1_000_000], Limits::MAX, &Quiet).unwrap_err();
        assert!(fault.to_string().starts_with("5:3: ") && fault.to_string().contains(says), "{fault}");
    }
}

#[test]
fn a_program_does_not_pay_itself() {
    let text = "profile core\nfn @f(%0: i64) -> i64 {\nb0:\n  %1: i64 = Int -1000\n  Budget_Decrement %1\n  Return %0\n}";
    let program = program(text);
    assert_eq!(run(&program, "f", 3).ops, 0);
}

#[test]
fn recursion_ends_in_a_trap() {
    let text = "profile core\nfn @f(%0: i64) -> i64 {\nb0:\n  %1: i64 = Call @f(%0)\n  Return %1\n}";
    let program = program(text);
    let fault = program.run_alone("f", &[0], Limits::MAX, &Quiet).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap(Trap::StackOverflow));
}
