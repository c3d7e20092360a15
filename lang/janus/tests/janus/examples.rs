//! Every example of the CBC-MN documents, as it is written there.

use super::{Lines, program, run_on, runtime};
use mainspring_janus::compile;

/// Names that the examples use and do not define.
const AROUND: &str = "{.profile: service.}
fn compute(x: i64) -> i64 { print(x * x)
    return x * x }
fn work_a() { print(\"a\") }
fn work_b() { print(\"b\") }
";

/// What an example prints, in order of the lines.
fn prints(example: &str) -> Vec<String> {
    let source = format!("{AROUND}fn main() {{\n    let x = 3\n    let y = 4\n{example}\n}}\n");
    let (program, lines) = (program(&source), Lines::default());
    run_on(&runtime(2), &program, &[], &lines).unwrap_or_else(|fault| panic!("{fault}\n{source}"));
    lines.sorted()
}

const LOWERING: &str = "// Janus source
nursery {
    spawn compute(x)
    spawn compute(y)
}
// Implicit await here
";

const SAFE: &str = "// Safe: Nursery owns all spawned tasks
nursery {
    spawn compute(x)  // Child of nursery
    spawn compute(y)  // Child of nursery
}  // <- Can't exit until ALL children complete
";

const NESTED: &str = "nursery {           // Level 1
    spawn {
        nursery {   // Level 2 - owned by Level 1 task
            spawn work_a()
            spawn work_b()
        }
    }
}
";

#[test]
fn the_example_of_lowering_runs() {
    assert_eq!(prints(LOWERING), ["16", "9"]);
}

//= NURS:no-orphans
#[test]
fn the_safe_example_runs() {
    assert_eq!(prints(SAFE), ["16", "9"]);
}

//= NURS:nested-syntax
#[test]
fn the_example_of_nested_nurseries_runs() {
    assert_eq!(prints(NESTED), ["a", "b"]);
}

//= NURS:no-orphans
#[test]
fn the_dangerous_example_does_not_compile() {
    let source =
        format!("{AROUND}fn main() {{\n    let x = 3\n    go compute(x)  // Fire and forget - orphan!\n}}");
    assert!(compile(&source).is_err());
}
