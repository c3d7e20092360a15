//! What the syntax of tasks becomes.

use mainspring_janus::{Code, compile};
use mainspring_qtjir::text::print;

/// The text of one function of a module.
fn lowered(source: &str, function: &str) -> String {
    let text =
        print(&compile(source).unwrap_or_else(|mistakes| panic!("{}", mistakes.render("test.jan", source))));
    let start = text.find(&format!("fn @{function}(")).unwrap();
    let end = text[start..].find("\n}").unwrap();
    text[start..start + end + 2].to_owned()
}

const COMPUTE: &str = "fn compute(x: i64) -> i64 { return x }\n";

//= NURS:lowering.nursery
#[test]
fn a_nursery_is_a_begin_its_spawns_and_an_end() {
    let source = format!(
        "{COMPUTE}fn main(x: i64, y: i64) {{\n  nursery {{\n    spawn compute(x)\n    spawn compute(y)\n  }}\n}}"
    );
    let golden = "fn @main(%0: i64, %1: i64) -> unit {
b0:
  %2: nursery = Nursery_Begin
  %3: task<i64> = Spawn [CPU_Parallel] @compute(%0)
  %4: task<i64> = Spawn [CPU_Parallel] @compute(%1)
  %5: i64 = Nursery_End %2
  %6: i64 = Int 0
  %7: bool = Eq %5, %6
  Branch %7, b1, b2
b1:
  Return
b2:
  Raise %5
}";
    assert_eq!(lowered(&source, "main"), golden);
}

//= NURS:lowering.spawn
#[test]
fn a_spawn_names_its_function_and_argument_or_is_a_block() {
    let source = format!(
        "{COMPUTE}fn main(x: i64) {{\n  nursery {{\n    spawn compute(x)\n    spawn {{ compute(x + 1) }}\n  }}\n}}"
    );
    let main = lowered(&source, "main");
    assert!(main.contains("%2: task<i64> = Spawn [CPU_Parallel] @compute(%0)\n"), "{main}");
    assert!(main.contains("= Spawn [CPU_Parallel] @main$5_5(%0)\n"), "{main}");
    // The block is a function with copies of what it uses.
    let block = lowered(&source, "main$5_5");
    assert!(block.starts_with("fn @main$5_5(%0: i64) -> unit {"), "{block}");
    assert!(block.contains("Call @compute("), "{block}");
}

//= NURS:lowering.await
#[test]
fn an_await_is_an_await() {
    let source = format!(
        "{COMPUTE}fn main(x: i64) -> i64 {{\n  var sum = 0\n  nursery {{\n    let h = spawn compute(x)\n    sum = await h\n  }}\n  return sum\n}}"
    );
    let main = lowered(&source, "main");
    let spawn = main.lines().find(|line| line.contains("Spawn")).unwrap().trim();
    let handle = spawn.split(':').next().unwrap();
    assert!(main.contains(&format!("= Await {handle}\n")), "{main}");
    assert_eq!(
        super::result(&source.replace("main(x: i64)", "main()").replace("compute(x)", "compute(7)")),
        7
    );
}

//= NURS:lowering.async
#[test]
fn a_call_of_an_async_function_is_an_async_call() {
    let source = "async fn half(x: i64) -> !i64 { return x / 2 }\n\
                  fn main(x: i64) -> i64 {\n  var got = 0\n  nursery {\n    got = await half(x) catch 0\n  }\n  return got\n}";
    let main = lowered(source, "main");
    assert!(main.contains(": future!<i64> = Async_Call [CPU_Parallel] @half(%0)\n"), "{main}");
    assert!(!main.contains("Spawn"), "{main}");
    // Outside of a nursery no task would own it.
    let outside = "async fn half(x: i64) -> i64 { return x / 2 }\nfn main() { half(3) }";
    assert_eq!(compile(outside).unwrap_err().0[0].code, Code::NurseryNotActive);
}

#[test]
fn a_budget_makes_a_task_create() {
    let source =
        format!("{COMPUTE}fn main() {{\n  nursery {{\n    spawn compute(1) with {{ ops: 500 }}\n  }}\n}}");
    let main = lowered(&source, "main");
    assert!(main.contains("= Task_Create [CPU_Parallel] @compute("), "{main}");
    assert!(main.contains("Int 500"), "{main}");
}

#[test]
fn a_yield_is_a_yield() {
    assert!(lowered("fn main() { yield }", "main").contains("  Yield\n"));
}
