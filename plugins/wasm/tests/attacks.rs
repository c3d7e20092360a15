//! Guests that mean harm: each ends at its bound, with a reason, and its neighbour does not notice.

mod support;

use mainspring::{Budget, Exhaustion, NurseryOptions, TaskError};
use mainspring_wasm::{Guest, Imports, Limits, Meter, PluginError, Plugins};
use support::{ENDLESS, FIB, plugin, runtime};

const BUDGET: Budget =
    Budget { ops: 2_000_000, memory: 1 << 20, spawn_count: 0, channel_ops: 0, syscalls: 200 };

/// How an attacker ends that has a budget of its own, beside a neighbour on the same worker.
fn attack(meter: Meter, text: &str) -> Result<String, TaskError> {
    let (hostile, neighbour, none) = (plugin(meter, text), plugin(Meter::Ops, FIB), Imports::new());
    let imports = Imports::new().grant("host", "poke", 0, |_, _| Ok(1));
    let limits = Limits { memory_bytes: 64 << 20, ..Limits::default() };
    let ended = runtime(1).nursery(NurseryOptions::new().on_exhausted(Exhaustion::Cancel), |nursery| {
        let attacker = nursery.builder().budget(BUDGET).spawn(|cx| {
            let ran = Guest::new(cx, &hostile, &imports, limits, None)
                .and_then(|mut guest| guest.call(cx, "run", &[]).map(|values| format!("{values:?}")));
            ran.unwrap_or_else(|error| error.to_string())
        });
        let beside = nursery.spawn(|cx| {
            let mut guest = Guest::new(cx, &neighbour, &none, Limits::default(), None).unwrap();
            guest.call(cx, "fib", &[15]).unwrap()[0]
        });
        assert_eq!(beside.unwrap().wait().unwrap(), 610, "the neighbour noticed");
        attacker.unwrap().wait()
    });
    ended.unwrap()
}

#[test]
fn an_endless_loop_ends_at_its_ops() {
    let error = attack(Meter::Ops, ENDLESS).unwrap_err();
    assert!(matches!(error, TaskError::BudgetCut(mainspring::Component::Ops)), "{error}");
}

#[test]
fn an_endless_start_function_ends_at_its_ops() {
    let text = "(module (func $spin (loop $more (br $more))) (start $spin))";
    let error = attack(Meter::Ops, text).unwrap_err();
    assert!(matches!(error, TaskError::BudgetCut(mainspring::Component::Ops)), "{error}");
}

#[test]
fn endless_recursion_traps_on_the_guests_own_stack() {
    let text = r#"(module (func $down (export "run") (result i64) (i64.add (call $down) (i64.const 1))))"#;
    for meter in [Meter::Ops, Meter::Time] {
        assert_eq!(attack(meter, text).unwrap(), "calls nest too deep", "{meter:?}");
    }
    let wide = format!(
        r#"(module (func $down (export "run") (result i64) (local {}) (i64.add (call $down) (i64.const 1))))"#,
        "i64 ".repeat(2000)
    );
    assert_eq!(attack(Meter::Time, &wide).unwrap(), "calls nest too deep");
}

#[test]
fn a_trap_at_the_start_and_every_other_trap_has_a_reason() {
    let cases = [
        ("(module (func $boom unreachable) (start $boom))", "unreachable"),
        (r#"(module (func (export "run") unreachable))"#, "unreachable"),
        (
            r#"(module (memory 1) (func (export "run") (result i32) (i32.load (i32.const 100000))))"#,
            "out of bounds",
        ),
        (
            r#"(module (memory 1) (func (export "run") (result i32) (i32.load offset=4294967295 (i32.const -1))))"#,
            "out of bounds",
        ),
        (
            r#"(module (func (export "run") (result i32) (i32.div_s (i32.const 1) (i32.const 0))))"#,
            "divide by zero",
        ),
        (
            r#"(module (func (export "run") (result i32) (i32.div_s (i32.const -2147483648) (i32.const -1))))"#,
            "overflow",
        ),
        (
            r#"(module (table 1 funcref) (func (export "run") (call_indirect (i32.const 0))))"#,
            "uninitialized",
        ),
        (
            r#"(module (table 1 funcref) (func (export "run") (call_indirect (i32.const 9))))"#,
            "out of bounds",
        ),
        (r#"(module (memory 1) (data (i32.const 65536) "x"))"#, "out of bounds"),
    ];
    for meter in [Meter::Ops, Meter::Time] {
        for (text, says) in cases {
            let said = attack(meter, text).unwrap();
            assert!(said.contains(says), "{text}: {said}");
        }
    }
}

/// Grows until it is told that there is no more, and says how far it came.
const GROWER: &str = r#"(module (memory 0) (func (export "run") (result i32) (local $n i32)
  (block $full (loop $more
    (br_if $full (i32.eq (memory.grow (i32.const 1)) (i32.const -1)))
    (local.set $n (i32.add (local.get $n) (i32.const 1)))
    (br $more)))
  (local.get $n)))"#;

#[test]
fn a_memory_bomb_gets_what_its_budget_has_and_no_more() {
    // A mebibyte is 16 pages.
    match attack(Meter::Time, GROWER) {
        Ok(said) => assert_eq!(said, "[16]"),
        Err(error) => {
            assert!(matches!(error, TaskError::BudgetCut(mainspring::Component::Memory)), "{error}");
        }
    }
    let large = r#"(module (memory 60000) (func (export "run")))"#;
    let said = attack(Meter::Time, large).unwrap();
    assert!(said.contains("memory"), "{said}");
}

#[test]
fn a_memory_bomb_stops_at_its_limit_too() {
    let (hostile, imports) = (plugin(Meter::Time, GROWER), Imports::new());
    let pages = runtime(1).run(|cx| {
        let limits = Limits { memory_bytes: 5 << 16, ..Limits::default() };
        let mut guest = Guest::new(cx, &hostile, &imports, limits, None).unwrap();
        (guest.call(cx, "run", &[]).unwrap()[0], guest.used().memory_bytes)
    });
    assert_eq!(pages.unwrap(), (5, 5 << 16));
}

#[test]
fn a_table_bomb_is_refused() {
    let text = "(module (table 4000000 funcref))";
    let said = attack(Meter::Time, text).unwrap();
    assert!(said.contains("table"), "{said}");
}

#[test]
fn a_flood_of_imports_ends_at_its_system_calls() {
    let text = r#"(module (import "host" "poke" (func $poke (result i64)))
      (func (export "run") (loop $more (drop (call $poke)) (br $more))))"#;
    for meter in [Meter::Ops, Meter::Time] {
        match attack(meter, text) {
            Ok(said) => assert!(said.contains("syscalls"), "{said}"),
            Err(error) => {
                assert!(matches!(error, TaskError::BudgetCut(mainspring::Component::Syscalls)), "{error}");
            }
        }
    }
}

#[test]
fn what_is_no_module_is_refused_and_nothing_panics() {
    let plugins = Plugins::new(Meter::Ops).unwrap();
    let whole = wat::parse_str(FIB).unwrap();
    assert!(matches!(plugins.compile(b"nonsense"), Err(PluginError::Malformed(_))));
    assert!(matches!(plugins.compile(&[]), Err(PluginError::Malformed(_))));
    assert!(matches!(plugins.compile(&vec![0; 5 << 20]), Err(PluginError::TooLarge { .. })));
    // Every cut and every changed byte is refused or runs within its bounds.
    let runtime = runtime(1);
    for at in 0..whole.len() {
        let _ = plugins.compile(&whole[..at]);
        for bits in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= bits;
            let Ok(plugin) = plugins.compile(&damaged) else { continue };
            let none = Imports::new();
            let _ = runtime.nursery(NurseryOptions::new().on_exhausted(Exhaustion::Cancel), |nursery| {
                let task = nursery.builder().budget(BUDGET).spawn(|cx| {
                    if let Ok(mut guest) = Guest::new(cx, &plugin, &none, Limits::default(), None) {
                        let _ = guest.call(cx, "fib", &[5]);
                    }
                });
                task.unwrap().wait()
            });
        }
    }
}

#[test]
fn a_guest_that_is_cancelled_in_an_import_leaves_its_worker() {
    let text = r#"(module (import "host" "wait" (func $wait (result i64))) (func (export "run") (drop (call $wait))))"#;
    let plugin = plugin(Meter::Time, text);
    let ended = runtime(1).run(|cx| {
        let imports = Imports::new().grant("host", "wait", 0, |cx, _| {
            cx.sleep(std::time::Duration::from_secs(3600));
            Ok(0)
        });
        cx.nursery(|nursery| {
            nursery
                .start(|cx| {
                    let guest = Guest::new(cx, &plugin, &imports, Limits::default(), None);
                    guest.unwrap().call(cx, "run", &[]).unwrap_err();
                })
                .unwrap();
            cx.yield_now();
            nursery.cancel();
        })
    });
    assert!(ended.unwrap().unwrap_err().error.is_cancelled());
}
