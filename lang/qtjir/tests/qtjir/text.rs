//! The text form round-trips, and says where it is wrong.

use mainspring_qtjir::text::{ParseFault, parse, print};
use mainspring_qtjir::{Op, Pos, Tenancy, verify};

/// Every operation once.
pub const EVERYTHING: &str = r#"profile cluster
error NotFound
error Busy
struct Point { x: i64, y: f64 }
struct Line { from: Point, to: Point, name: slice<i64> }

fn @work(%0: i64) -> i64 fails {
b0:
  %1: i64 = Int 0
  %2: bool = Lt %0, %1
  Branch %2, b1, b2
b1:
  %3: i64 = Int 6
  Fail %3
b2:
  %4: i64 = Add_Wrap %0, %0
  Return %4
}

fn @quiet(%0: chan<i64>) -> unit {
b0:
  Close %0
  Return
}

fn @main(%0: bool) -> i64 {
b0:
  %1: i64 = Int -5
  %2: f64 = Float 1.5e-7
  %3: f64 = Float bits 9221120237041090560
  %4: bool = Bool true
  %5: f64 = Mul %2, %3
  %6: i64 = To_Int %5
  %7: f64 = To_Float %6
  %8: bool = Not %4
  %9: slice<i64> = Slice_New i64, %6
  %10: i64 = Len %9
  %11: Point = Struct_New Point(%1, %2)
  Set_Field %11, 1, %7
  %12: f64 = Field %11, 1
  %13: Line = Struct_New Line(%11, %11, %9)
  %14: nursery = Nursery_Begin
  %15: task<i64> = Spawn [CPU_Parallel] @work(%1)
  %16: task<i64> = Task_Create [CPU_Parallel] @work(%1), budget(%1, %1, %1, %1, %1)
  %17: future!<i64> = Async_Call [CPU_Parallel] @work(%1)
  Recharge %15, %1
  %18: i64 = Task_Join %16
  %19: i64 = Await %15
  %20: i64, %21: i64 = Await %17
  %22: chan<i64> = Channel_New i64, %1
  %23: i64 = Send %22, %1
  %24: i64, %25: i64 = Recv %22
  %26: task<unit> = Spawn [CPU_Parallel] @quiet(%22)
  Await %26
  Nursery_Cancel %14
  %27: i64 = Nursery_End %14
  Yield
  Budget_Decrement %1
  Budget_Check
  Recharge_Self %1
  Print %1
  Print_Text "a \"text\" with \\ and \n and \u{7}"
  %28: i64, %29: i64 = Call @work(%1)
  Branch %0, b1(%28), b2
b1(%30: i64):
  Return %30
b2:
  Raise %29
}
"#;

//= SCHED:11.1.1
#[test]
fn every_operation_is_read_as_it_was_written() {
    let module = parse(EVERYTHING).unwrap();
    verify(&module).unwrap();
    let text = print(&module);
    assert_eq!(text, EVERYTHING);
    for name in ["Budget_Check", "Budget_Decrement", "Yield", "Task_Create", "Task_Join"] {
        let ops =
            module.functions.iter().flat_map(|function| &function.blocks).flat_map(|block| &block.instrs);
        let found = ops.map(|instr| &instr.op).find(|op| op.name() == name).unwrap();
        let operands = found.operands().len();
        let wanted = match name {
            "Budget_Decrement" | "Task_Join" => 1,
            "Task_Create" => 6,
            _ => 0,
        };
        assert_eq!(operands, wanted, "{name}");
    }
}

//= SCHED:11.2.1
#[test]
fn what_the_scheduler_runs_carries_its_tenancy() {
    let module = parse(EVERYTHING).unwrap();
    let ops = module.functions.iter().flat_map(|function| &function.blocks).flat_map(|block| &block.instrs);
    let tenancies: Vec<Tenancy> = ops
        .filter_map(|instr| match instr.op {
            Op::Spawn(tenancy, ..) | Op::TaskCreate(tenancy, ..) | Op::AsyncCall(tenancy, ..) => {
                Some(tenancy)
            }
            _ => None,
        })
        .collect();
    assert_eq!(tenancies, [Tenancy::CpuParallel; 4]);
    assert_eq!(EVERYTHING.matches("[CPU_Parallel]").count(), 4);
    let serial = EVERYTHING.replacen("[CPU_Parallel]", "[CPU_Serial]", 1);
    let error = verify(&parse(&serial).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "43:3: a task of the scheduler has the tenancy CPU_Parallel (in @main)");
}

#[test]
fn a_text_that_is_no_module_gets_its_place() {
    let cases = [
        ("profile cluster\nfn @f() -> i64 {\nb0:\n  Rturn\n}", 4, 3, "there is no operation `Rturn`"),
        ("profile nothing", 1, 9, "expected core, service, cluster or sovereign, found `nothing`"),
        ("fn @f(%0: i64, %0: i64) -> i64 {", 1, 23, "%0 is defined twice; give it a number of its own"),
        ("fn @f() -> i64 {\nb1:\n Return\n}", 2, 1, "blocks are numbered b0, b1, … in order"),
        (
            "fn @f() -> slice<slice<slice<slice<slice<slice<slice<slice<i64>>>>>>>> {",
            1,
            63,
            "`i64` is no type",
        ),
        ("fn @f() -> i64 {\nb0:\n  %99999999: i64 = Int 1", 3, 18, "a function has at most 65536 values"),
        ("error \"text", 1, 7, "this text is not closed"),
        ("fn @f() -> i64 {\nb0:\n  %1: i64 = Int 99999999999999999999", 3, 17, "is no number that fits here"),
        ("fn @f() -> i64 {\nb0:\n  Return %1", 3, 12, "found the end of the text"),
    ];
    for (text, line, column, says) in cases {
        let error = parse(text).unwrap_err();
        assert_eq!(error.pos, Pos { line, column }, "{text}: {error}");
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
    let long = " ".repeat(mainspring_qtjir::text::MAX_TEXT_BYTES + 1);
    assert_eq!(parse(&long).unwrap_err().fault, ParseFault::TooLong);
}

/// As much of something as a text has room for.
fn full(part: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0.. {
        let part = part(number);
        if text.len() + part.len() > mainspring_qtjir::text::MAX_TEXT_BYTES {
            break;
        }
        text.push_str(&part);
    }
    text
}

/// The largest texts of one thing: each would take minutes, or more memory than a host has, if what is looked at for one of them grew with their
/// number, or with a number that stands in it.
#[test]
fn the_largest_texts_are_read_or_refused() {
    let text = full(|number| format!("fn @f{number}(%65535: i64) -> unit {{\nb0:\nReturn\n}}\n"));
    assert_eq!(parse(&text).unwrap_err().fault, ParseFault::TooManyInAll);
    let long = "x".repeat(1 << 20);
    assert_eq!(parse(&format!("fn @{long}() -> unit {{")).unwrap_err().fault, ParseFault::LongName);
    assert_eq!(parse(&format!("error {long}")).unwrap_err().fault, ParseFault::LongName);
    // Each field looks for its struct among all that are there.
    let text = full(|number| match number {
        0..100_000 => format!("struct s{number} {{}}\n"),
        _ => format!("struct s{number} {{a: s99999}}\n"),
    });
    assert!(
        verify(&parse(&text).unwrap()).unwrap_err().to_string().contains("too many functions or structs")
    );
    // A value that is used far below, by way of all the blocks between.
    let chain: String = (0..16_000).map(|at| format!("b{at}:\nJump b{}\n", at + 1)).collect();
    let chain = chain.replacen("b0:\n", "b0:\n%0: i64 = Int 1\n", 1);
    let uses = "Print %0\n".repeat(300_000);
    let text = format!("fn @f() -> unit {{\n{chain}b16000:\n{uses}Return\n}}");
    verify(&parse(&text).unwrap()).unwrap();
    // Nurseries inside of each other.
    for open in [64, 65, 16_000] {
        let begins: String = (0..open).map(|at| format!("%{at}: nursery = Nursery_Begin\n")).collect();
        let ends = (0..open).rev().map(|at| format!("%{}: i64 = Nursery_End %{at}\n", open + at));
        let text = format!("fn @f() -> unit {{\nb0:\n{begins}{}Return\n}}", ends.collect::<String>());
        let verified = verify(&parse(&text).unwrap()).map_err(|error| error.to_string());
        assert_eq!(verified.is_ok(), open <= 64, "{open}: {verified:?}");
        assert!(open <= 64 || verified.unwrap_err().contains("nurseries inside of each other"));
    }
}
