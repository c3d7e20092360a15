//! The verifier refuses what does not mean anything, and says where.

use mainspring_qtjir::text::parse;
use mainspring_qtjir::verify;

fn complaint(text: &str) -> String {
    verify(&parse(text).unwrap()).unwrap_err().to_string()
}

#[test]
fn a_use_needs_a_definition_on_every_way() {
    let text = "fn @f(%0: bool) -> i64 {\nb0:\n  Branch %0, b1, b2\nb1:\n  %1: i64 = Int 1\n  Jump b2\nb2:\n  Return %1\n}";
    assert_eq!(complaint(text), "8:3: %1 is not defined on every way to here (in @f)");
    let text = "fn @f() -> i64 {\nb0:\n  %1: i64 = Add %2, %2\n  %2: i64 = Int 1\n  Return %1\n}";
    assert_eq!(complaint(text), "3:3: %2 is not defined on every way to here (in @f)");
    let text = "fn @f() -> i64 {\nb0:\n  Return %7\n}";
    assert_eq!(complaint(text), "3:3: %7 is not defined on every way to here (in @f)");
}

#[test]
fn types_must_fit() {
    let text = "fn @f(%0: i64) -> f64 {\nb0:\n  Return %0\n}";
    assert_eq!(complaint(text), "3:3: expected f64, found i64 (in @f)");
    let text = "fn @f(%0: i64, %1: f64) -> i64 {\nb0:\n  %2: i64 = Add %0, %1\n  Return %2\n}";
    assert_eq!(complaint(text), "3:3: expected i64, found f64 (in @f)");
    let text = "fn @f(%0: i64) -> i64 {\nb0:\n  %2: f64 = Add %0, %0\n  Return %0\n}";
    assert_eq!(
        complaint(text),
        "3:3: expected f64, found i64 (in @f)".replace("f64, found i64", "i64, found f64")
    );
    let text = "fn @f(%0: i64) -> i64 {\nb0:\n  Jump b1\nb1(%1: i64):\n  Return %1\n}";
    assert_eq!(complaint(text), "3:3: expected 1 of them, found 0 (in @f)");
    let text = "fn @f(%0: i64) -> i64 {\nb0:\n  %1: i64 = Call @g(%0)\n  Return %1\n}";
    assert_eq!(complaint(text), "3:3: there is no function @g (in @f)");
    let text = "struct A { b: i64 }\nfn @f(%0: A) -> i64 {\nb0:\n  %1: i64 = Field %0, 1\n  Return %1\n}";
    assert_eq!(complaint(text), "4:3: there is no field 1 (in @f)");
    let text = "fn @f(%0: i64) -> i64 {\nb0:\n  Fail %0\n}";
    assert_eq!(complaint(text), "3:3: this function cannot fail; declare it with `fails` (in @f)");
}

#[test]
fn blocks_must_exist_and_be_reached() {
    let text = "fn @f() -> unit {\nb0:\n  Jump b7\n}";
    assert_eq!(complaint(text), "3:3: there is no block b7 (in @f)");
    let text = "fn @f() -> unit {\nb0:\n  Return\nb1:\n  Return\n}";
    assert_eq!(complaint(text), "5:3: nothing leads to b1; remove it (in @f)");
    let text = "fn @f() -> unit {\nb0:\n  Jump b0\n}";
    assert_eq!(complaint(text), "3:3: nothing may jump to the first block (in @f)");
    assert_eq!(complaint("fn @f() -> unit {\n}"), "1:4: a function needs a block (in @f)");
}

//= SCHED:14.1.1b
//= NURS:no-orphans
#[test]
fn a_task_outside_of_a_nursery_is_refused() {
    let work = "fn @w() -> unit {\nb0:\n  Return\n}\n";
    let text =
        format!("{work}fn @f() -> unit {{\nb0:\n  %1: task<unit> = Spawn [CPU_Parallel] @w()\n  Return\n}}");
    assert!(complaint(&text).starts_with("7:3: NurseryNotActive"), "{}", complaint(&text));
    let text = format!(
        "{work}fn @f() -> unit {{\nb0:\n  %1: nursery = Nursery_Begin\n  %2: i64 = Nursery_End %1\n  \
         %3: future<unit> = Async_Call [CPU_Parallel] @w()\n  Return\n}}"
    );
    assert!(complaint(&text).starts_with("9:3: NurseryNotActive"), "{}", complaint(&text));
}

//= NURS:no-orphans
#[test]
fn control_does_not_leave_an_open_nursery() {
    let text = "fn @f(%0: bool) -> unit {\nb0:\n  %1: nursery = Nursery_Begin\n  Branch %0, b1, b2\nb1:\n  Return\n\
                b2:\n  %2: i64 = Nursery_End %1\n  Return\n}";
    assert!(complaint(text).starts_with("6:3: nurseries close"), "{}", complaint(text));
    let text = "fn @f() -> unit {\nb0:\n  %1: nursery = Nursery_Begin\n  %2: nursery = Nursery_Begin\n  \
                %3: i64 = Nursery_End %1\n  %4: i64 = Nursery_End %2\n  Return\n}";
    assert!(complaint(text).starts_with("5:3: nurseries close"), "{}", complaint(text));
    let text = "fn @f(%0: bool) -> unit {\nb0:\n  Branch %0, b1, b2\nb1:\n  %1: nursery = Nursery_Begin\n  Jump b2\n\
                b2:\n  Return\n}";
    assert!(complaint(text).starts_with("5:3: a nursery has exactly one"), "{}", complaint(text));
}

//= SCHED:10.2.1
//= SCHED:10.1
#[test]
fn the_core_profile_has_no_scheduler() {
    for op in ["%1: nursery = Nursery_Begin", "Yield"] {
        let text = format!("profile core\nfn @f() -> unit {{\nb0:\n  {op}\n  Return\n}}");
        assert!(
            complaint(&text).starts_with("4:3: the core profile has no scheduler"),
            "{}",
            complaint(&text)
        );
    }
}

//= SCHED:4.3.1
#[test]
fn only_a_sovereign_program_chooses_its_interval() {
    let body = "fn @f() -> unit {\nb0:\n  Return\n}";
    assert_eq!(parse(&format!("profile service\n{body}")).unwrap().interval(), 1024);
    assert_eq!(parse(&format!("profile cluster\n{body}")).unwrap().interval(), 512);
    let own = parse(&format!("profile sovereign\ninterval 100\n{body}")).unwrap();
    verify(&own).unwrap();
    assert_eq!(own.interval(), 100);
    assert!(
        complaint(&format!("profile service\ninterval 100\n{body}")).contains("only a sovereign program")
    );
    // What it runs beyond its budget, and how long its neighbours wait, is bounded all the same.
    for interval in [0, 65_537, u32::MAX] {
        let text = format!("profile sovereign\ninterval {interval}\n{body}");
        assert!(complaint(&text).contains("at least 1 and at most 65536"), "{interval}");
    }
}

#[test]
fn a_struct_does_not_hold_itself_nor_a_task() {
    assert!(parse("struct A { a: A }").is_err());
    assert!(complaint("struct A { a: task<i64> }").contains("holds what a struct cannot"));
}

/// A slice begins with zeros. A capability that is one would be a right that nobody has granted.
#[test]
fn a_capability_is_not_made_of_a_slice() {
    for cap in ["CapSpawn", "CapBudget"] {
        let text = format!(
            "profile sovereign\nfn @f(%0: i64) -> {cap} {{\nb0:\n  %1: slice<{cap}> = Slice_New {cap}, %0\n  \
             %2: {cap} = Load %1, %0\n  Return %2\n}}"
        );
        assert!(complaint(&text).starts_with("4:3: a new slice would hold a Cap"), "{}", complaint(&text));
    }
}
