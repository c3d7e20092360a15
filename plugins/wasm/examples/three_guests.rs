//! A host with three guests, one of them hostile, on one worker.
//!
//! `mill` computes and `clerk` answers requests; both belong to one tenant and share 40 % of a CPU. `spinner` never returns; its tenant has
//! 10 %. Nobody is killed: who has used the share up waits for the next period. After a second the host closes and reports.

use mainspring::{Capacity, Config, Cx, Profile};
use mainspring_wasm::{Guest, Imports, Limits, Meter, Plugin, Plugins, Rate, Used};
use std::error::Error;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Counts primes below 20,000, again and again, and tells its host each time.
const MILL: &str = r#"(module (import "host" "found" (func $found (param i64) (result i64)))
  (func (export "run") (local $n i64) (local $d i64) (local $count i64)
    (loop $again
      (local.set $count (i64.const 0)) (local.set $n (i64.const 2))
      (loop $numbers
        (local.set $d (i64.const 2))
        (block $composite
          (loop $divisors
            (if (i64.le_u (i64.mul (local.get $d) (local.get $d)) (local.get $n)) (then
              (br_if $composite (i64.eqz (i64.rem_u (local.get $n) (local.get $d))))
              (local.set $d (i64.add (local.get $d) (i64.const 1)))
              (br $divisors))))
          (local.set $count (i64.add (local.get $count) (i64.const 1))))
        (local.set $n (i64.add (local.get $n) (i64.const 1)))
        (br_if $numbers (i64.lt_u (local.get $n) (i64.const 20000))))
      (br_if $again (i64.ne (call $found (local.get $count)) (i64.const 0))))))"#;

/// Answers each request with its square, until there are none.
const CLERK: &str = r#"(module (import "host" "request" (func $request (result i64)))
  (import "host" "answer" (func $answer (param i64) (result i64)))
  (func (export "run") (local $n i64)
    (loop $more
      (local.set $n (call $request))
      (if (i64.ge_s (local.get $n) (i64.const 0)) (then
        (drop (call $answer (i64.mul (local.get $n) (local.get $n))))
        (br $more))))))"#;

const SPINNER: &str = r#"(module (func (export "run") (loop $more (br $more))))"#;

struct Line {
    name: &'static str,
    used: Used,
    ended: String,
}

/// Runs a guest to its end, and reports. A guest that is cancelled is unwound with its task and reports nothing.
fn serve(
    report: &Mutex<Vec<Line>>,
    name: &'static str,
    plugin: &Plugin,
    rate: &Rate,
    imports: &Imports<'_>,
    cx: &Cx,
) {
    let mut used = Used::default();
    let ended = match Guest::new(cx, plugin, imports, Limits::default(), Some(rate.clone())) {
        Ok(mut guest) => {
            let ran = guest.call(cx, "run", &[]);
            used = guest.used();
            ran.map_or_else(|error| error.to_string(), |_| "returned".to_owned())
        }
        Err(error) => error.to_string(),
    };
    report.lock().unwrap().push(Line { name, used, ended });
}

fn main() -> Result<(), Box<dyn Error>> {
    let plugins = Plugins::new(Meter::Time)?;
    let compile =
        |text: &str| -> Result<Plugin, Box<dyn Error>> { Ok(plugins.compile(&wat::parse_str(text)?)?) };
    let (mill, clerk, spinner) = (compile(MILL)?, compile(CLERK)?, compile(SPINNER)?);
    let ms = Duration::from_millis;
    let (ours, theirs) = (Rate::new(ms(8), ms(20)), Rate::new(ms(2), ms(20)));
    let runtime = Config::new(Profile::Service).workers(1).stack_size(512 << 10).build()?;
    let (report, found, answers) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()), Mutex::new(0u64));
    let began = Instant::now();
    let closed = runtime.run(|cx| {
        let (to_clerk, requests) = cx.channel::<i64>(Capacity::Bounded(8)).unwrap();
        let (stop, stopped) = cx.channel::<()>(Capacity::Bounded(1)).unwrap();
        let (report, found, answers) = (&report, &found, &answers);
        cx.nursery(|nursery| {
            nursery
                .start(|cx| {
                    let imports = Imports::new().grant("host", "found", 1, |cx, call| {
                        found.lock().unwrap().push(call.args[0]);
                        let over = stopped.try_recv(cx).is_ok();
                        Ok(i64::from(!over))
                    });
                    serve(report, "mill", &mill, &ours, &imports, cx);
                })
                .unwrap();
            nursery
                .start(|cx| {
                    let imports = Imports::new()
                        .grant("host", "request", 0, |cx, _| Ok(requests.recv(cx).unwrap_or(-1)))
                        .grant("host", "answer", 1, |_, _| {
                            *answers.lock().unwrap() += 1;
                            Ok(0)
                        });
                    serve(report, "clerk", &clerk, &ours, &imports, cx);
                })
                .unwrap();
            let spinner =
                nursery.spawn(|cx| serve(report, "spinner", &spinner, &theirs, &Imports::new(), cx)).unwrap();
            for number in 0..100 {
                to_clerk.send(cx, number).unwrap();
                cx.sleep(ms(10));
            }
            to_clerk.close();
            stop.send(cx, ()).unwrap();
            spinner.cancel();
            spinner.join(cx).is_err()
        })
    })?;
    let wall = began.elapsed();
    println!("{:8} {:>9} {:>8} {:>8}  ended", "guest", "CPU", "imports", "looks");
    for Line { name, used, ended } in report.into_inner()? {
        println!("{name:8} {:>7}ms {:>8} {:>8}  {ended}", used.time.as_millis(), used.imports, used.looks);
    }
    println!("{:8} {:>9} {:>8} {:>8}  cancelled by its host: {}", "spinner", "", "", "", closed?);
    for (name, rate) in [("mill and clerk, 40 %", &ours), ("spinner, 10 %", &theirs)] {
        let share = rate.used().as_secs_f64() / wall.as_secs_f64() * 100.0;
        println!(
            "{name}: used {}ms, {share:.1} % of a CPU, waited {} times",
            rate.used().as_millis(),
            rate.waits()
        );
    }
    let found = found.into_inner()?;
    println!(
        "mill found {:?} primes, {} times; clerk answered {}",
        found.first(),
        found.len(),
        answers.into_inner()?
    );
    Ok(())
}
