//! Guests do what they may, wait without holding a worker, and pay for what they use.

mod support;

use mainspring::{Budget, Capacity, Caps, Config, FairTaskSettings, Profile, Reservation};
use mainspring_wasm::{Guest, GuestError, Imports, Limits, Meter, Rate};
use std::time::Duration;
use support::{ENDLESS, FIB, plugin, runtime};

#[test]
fn a_guest_computes_under_either_meter() {
    for meter in [Meter::Ops, Meter::Time] {
        let (plugin, imports) = (plugin(meter, FIB), Imports::new());
        let fib = runtime(1).run(|cx| {
            let mut guest = Guest::new(cx, &plugin, &imports, Limits::default(), None).unwrap();
            (guest.call(cx, "fib", &[20]).unwrap(), guest.used())
        });
        let (fib, used) = fib.unwrap();
        assert_eq!(fib, [6765]);
        assert_eq!(used.ops > 100_000, meter == Meter::Ops, "{used:?}");
    }
}

#[test]
fn counted_ops_are_the_same_on_every_run_and_are_the_tasks() {
    let (plugin, imports) = (plugin(Meter::Ops, FIB), Imports::new());
    let run = |workers| {
        let ran = runtime(workers).run(|cx| {
            let before = cx.ops_used();
            let mut guest = Guest::new(cx, &plugin, &imports, Limits::default(), None).unwrap();
            guest.call(cx, "fib", &[18]).unwrap();
            (guest.used().ops, cx.ops_used() - before)
        });
        ran.unwrap()
    };
    let (counted, charged) = run(1);
    assert!(charged >= counted && counted > 40_000, "{counted} counted, {charged} charged");
    for workers in 1..=4 {
        assert_eq!(run(workers).0, counted, "{workers} workers");
    }
}

/// Asks its host for numbers until there are none, and adds them up.
const ADDER: &str = r#"(module (import "host" "next" (func $next (result i64)))
  (func (export "sum") (result i64) (local $sum i64) (local $n i64)
    (loop $more
      (local.set $n (call $next))
      (if (i64.ge_s (local.get $n) (i64.const 0)) (then
        (local.set $sum (i64.add (local.get $sum) (local.get $n)))
        (br $more))))
    (local.get $sum)))"#;

#[test]
fn an_import_that_waits_keeps_no_worker() {
    // On one worker: two guests wait for what a third task sends, between each other's calls.
    let plugin = plugin(Meter::Time, ADDER);
    let sums = runtime(1).run(|cx| {
        let channels: Vec<_> = (0..2).map(|_| cx.channel::<i64>(Capacity::Rendezvous).unwrap()).collect();
        cx.nursery(|nursery| {
            let guests: Vec<_> = channels
                .iter()
                .map(|(_, from)| {
                    let (from, plugin) = (from.clone(), plugin.clone());
                    let guest = nursery.spawn(move |cx| {
                        let imports = Imports::new()
                            .grant("host", "next", 0, move |cx, _| Ok(from.recv(cx).unwrap_or(-1)));
                        let mut guest = Guest::new(cx, &plugin, &imports, Limits::default(), None).unwrap();
                        (guest.call(cx, "sum", &[]).unwrap()[0], guest.used().imports)
                    });
                    guest.unwrap()
                })
                .collect();
            for number in 1..=100 {
                channels.iter().for_each(|(to, _)| to.send(cx, number).unwrap());
            }
            channels.iter().for_each(|(to, _)| to.close());
            guests.into_iter().map(|guest| guest.join(cx).unwrap()).collect::<Vec<_>>()
        })
        .unwrap()
    });
    assert_eq!(sums.unwrap(), [(5050, 101), (5050, 101)]);
}

#[test]
fn a_guest_calls_only_what_it_was_granted() {
    let plugin = plugin(Meter::Ops, ADDER);
    let error = runtime(1).run(|cx| {
        let imports = Imports::new().grant("host", "other", 0, |_, _| Ok(1));
        Guest::new(cx, &plugin, &imports, Limits::default(), None).unwrap_err()
    });
    let error = error.unwrap();
    assert!(matches!(&error, GuestError::NotGranted(why) if why.contains("host::next")), "{error}");
}

#[test]
fn bytes_go_to_an_import_and_come_back() {
    let plugin = plugin(
        Meter::Ops,
        r#"(module (import "host" "upper" (func $upper (param i32 i32 i32 i32) (result i64)))
          (memory (export "memory") 1) (data (i32.const 16) "hello")
          (func (export "run") (param $at i32) (param $len i32) (result i64)
            (drop (call $upper (local.get $at) (local.get $len) (i32.const 64) (i32.const 4)))
            (i64.load (i32.const 64))))"#,
    );
    let came = runtime(1).run(|cx| {
        let imports = Imports::new().grant_bytes("host", "upper", |_, call| {
            call.reply = call.bytes.to_ascii_uppercase();
            Ok(call.reply.len() as i64)
        });
        let mut guest = Guest::new(cx, &plugin, &imports, Limits::default(), None).unwrap();
        let hello = guest.call(cx, "run", &[16, 5]).unwrap()[0];
        // What is not its memory is not read, and what does not fit its room is not written.
        let outside = guest.call(cx, "run", &[65_530, 100]).unwrap_err();
        (hello, outside.to_string(), guest.call(cx, "run", &[16, 5]).unwrap_err().to_string())
    });
    let (hello, outside, after) = came.unwrap();
    assert_eq!(hello.to_le_bytes(), *b"HELL\0\0\0\0");
    assert!(outside.contains("out of bounds"), "{outside}");
    assert!(after.contains("ended before"), "{after}");
}

#[test]
fn an_import_that_refuses_ends_the_guest_with_its_reason() {
    let plugin = plugin(Meter::Time, ADDER);
    let error = runtime(1).run(|cx| {
        let imports = Imports::new()
            .grant("host", "next", 0, |_, _| Err(mainspring_wasm::ImportError("no more for you".to_owned())));
        let mut guest = Guest::new(cx, &plugin, &imports, Limits::default(), None).unwrap();
        guest.call(cx, "sum", &[]).unwrap_err().to_string()
    });
    assert_eq!(error.unwrap(), "an import refused: no more for you");
}

#[test]
fn a_guest_that_never_ends_is_throttled_by_its_scheduling_context() {
    let (plugin, imports) = (plugin(Meter::Time, ENDLESS), Imports::new());
    let ms = Duration::from_millis;
    let settings = FairTaskSettings { contexts: 4, ..FairTaskSettings::default() };
    let caps = Caps::root(100, Budget::MAX, Budget::MAX, 10, 64).with_contexts(4, 500_000);
    let config = Config::new(Profile::Service).workers(1).stack_size(512 << 10).root_caps(caps);
    let runtime = config.fair_by_task(settings).build().unwrap();
    runtime
        .run(|cx| {
            let tenant = cx.create_context(Reservation::new(ms(2), ms(10))).unwrap();
            let ended = cx.nursery(|nursery| {
                let spin = nursery.builder().context(&tenant);
                let _spin = spin.spawn(|cx| {
                    Guest::new(cx, &plugin, &imports, Limits::default(), None)
                        .unwrap()
                        .call(cx, "run", &[])
                        .unwrap_err();
                });
                while tenant.info().unwrap().depletions < 3 {
                    cx.sleep(ms(1));
                }
                nursery.cancel();
            });
            assert!(ended.unwrap_err().error.is_cancelled());
        })
        .unwrap();
}

#[test]
fn two_guests_share_a_rate_and_wait_when_it_is_used_up() {
    let (plugin, imports) = (plugin(Meter::Time, ENDLESS), Imports::new());
    let rate = Rate::new(Duration::from_millis(2), Duration::from_millis(10));
    runtime(2)
        .run(|cx| {
            let ended = cx.nursery(|nursery| {
                for _ in 0..2 {
                    nursery
                        .start(|cx| {
                            let guest =
                                Guest::new(cx, &plugin, &imports, Limits::default(), Some(rate.clone()));
                            guest.unwrap().call(cx, "run", &[]).unwrap_err();
                        })
                        .unwrap();
                }
                // Ten periods of work for both together.
                while rate.used() < Duration::from_millis(20) {
                    cx.sleep(Duration::from_millis(1));
                }
                nursery.cancel();
            });
            assert!(ended.unwrap_err().error.is_cancelled());
        })
        .unwrap();
    assert!(rate.waits() >= 8, "{} waits", rate.waits());
}
