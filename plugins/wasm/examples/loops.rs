//! What Wasmtime's own meters cost three of the loops of `make bench-lang`: the product of two matrices, a hash, and primes.
//!
//! `loops LOOP TIMES ROUNDS` prints, for code without a meter, with fuel and with epochs: the result, and the least seconds of a round.

use std::time::{Duration, Instant};
use wasmtime::{Config, Engine, Instance, Module, Store};

/// The loops as text: `run` takes how often, and gives what the loop comes to.
const MATRIX: &str = r#"(module (memory 4) (func (export "run") (param $times i64) (result i64)
  (local $i i32) (local $j i32) (local $k i32) (local $factor f64) (local $to i32) (local $from i32)
  (loop $fill
    (f64.store (i32.mul (local.get $i) (i32.const 8)) (f64.mul (f64.convert_i32_s (local.get $i)) (f64.const 0.5)))
    (f64.store offset=73728 (i32.mul (local.get $i) (i32.const 8)) (f64.mul (f64.convert_i32_s (local.get $i)) (f64.const 0.25)))
    (br_if $fill (i32.lt_s (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 9216))))
  (loop $again
    (local.set $i (i32.const 0))
    (loop $rows
      (local.set $j (i32.const 0))
      (loop $clear
        (f64.store offset=147456 (i32.mul (i32.add (i32.mul (local.get $i) (i32.const 96)) (local.get $j)) (i32.const 8)) (f64.const 0))
        (br_if $clear (i32.lt_s (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 96))))
      (local.set $k (i32.const 0))
      (loop $inner
        (local.set $factor (f64.load (i32.mul (i32.add (i32.mul (local.get $i) (i32.const 96)) (local.get $k)) (i32.const 8))))
        (local.set $to (i32.mul (local.get $i) (i32.const 768)))
        (local.set $from (i32.mul (local.get $k) (i32.const 768)))
        (local.set $j (i32.const 0))
        (loop $columns
          (f64.store offset=147456 (local.get $to) (f64.add (f64.load offset=147456 (local.get $to))
            (f64.mul (local.get $factor) (f64.load offset=73728 (local.get $from)))))
          (local.set $to (i32.add (local.get $to) (i32.const 8)))
          (local.set $from (i32.add (local.get $from) (i32.const 8)))
          (br_if $columns (i32.lt_s (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 96))))
        (br_if $inner (i32.lt_s (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 96))))
      (br_if $rows (i32.lt_s (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 96))))
    (br_if $again (i64.gt_s (local.tee $times (i64.sub (local.get $times) (i64.const 1))) (i64.const 0))))
  (i64.trunc_f64_s (f64.load offset=147456 (i32.const 73720)))))"#;

const HASH: &str = r#"(module (memory 37) (func (export "run") (param $times i64) (result i64)
  (local $i i32) (local $hash i64)
  (loop $fill
    (i64.store (i32.mul (local.get $i) (i32.const 8)) (i64.extend_i32_s (i32.and (local.get $i) (i32.const 255))))
    (br_if $fill (i32.lt_s (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 300000))))
  (local.set $hash (i64.const -3750763034362895579))
  (loop $again
    (local.set $i (i32.const 0))
    (loop $each
      (local.set $hash (i64.mul (i64.xor (local.get $hash) (i64.load (i32.mul (local.get $i) (i32.const 8)))) (i64.const 0x100000001b3)))
      (br_if $each (i32.lt_s (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 300000))))
    (br_if $again (i64.gt_s (local.tee $times (i64.sub (local.get $times) (i64.const 1))) (i64.const 0))))
  (local.get $hash)))"#;

const SIEVE: &str = r#"(module (memory 25) (func (export "run") (param $times i64) (result i64)
  (local $i i32) (local $multiple i32) (local $primes i64)
  (loop $again
    (local.set $primes (i64.const 0))
    (local.set $i (i32.const 0))
    (loop $clear
      (i64.store (i32.mul (local.get $i) (i32.const 8)) (i64.const 0))
      (br_if $clear (i32.lt_s (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 200000))))
    (local.set $i (i32.const 2))
    (loop $each
      (if (i64.eqz (i64.load (i32.mul (local.get $i) (i32.const 8)))) (then
        (local.set $primes (i64.add (local.get $primes) (i64.const 1)))
        (if (i32.lt_s (local.get $i) (i32.const 448)) (then
          (local.set $multiple (i32.mul (local.get $i) (local.get $i)))
          (block $done (loop $strike
            (br_if $done (i32.ge_s (local.get $multiple) (i32.const 200000)))
            (i64.store (i32.mul (local.get $multiple) (i32.const 8)) (i64.const 1))
            (local.set $multiple (i32.add (local.get $multiple) (local.get $i)))
            (br $strike)))))))
      (br_if $each (i32.lt_s (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 200000))))
    (br_if $again (i64.gt_s (local.tee $times (i64.sub (local.get $times) (i64.const 1))) (i64.const 0))))
  (local.get $primes)))"#;

/// The least time of so many calls, and what they come to.
fn least(
    source: &str,
    times: i64,
    rounds: usize,
    fuel: bool,
    epochs: bool,
) -> wasmtime::Result<(i64, Duration)> {
    let mut config = Config::new();
    config.consume_fuel(fuel).epoch_interruption(epochs);
    let engine = Engine::new(&config)?;
    let module = Module::new(&engine, wat::parse_str(source).expect("the text is a module"))?;
    let mut store = Store::new(&engine, ());
    if fuel {
        store.set_fuel(u64::MAX)?;
    }
    store.set_epoch_deadline(u64::MAX / 2);
    let run = Instance::new(&mut store, &module, &[])?.get_typed_func::<i64, i64>(&mut store, "run")?;
    let mut best = (0, Duration::MAX);
    for _ in 0..rounds {
        let began = Instant::now();
        let value = run.call(&mut store, times)?;
        best = (value, best.1.min(began.elapsed()));
    }
    Ok(best)
}

fn main() -> wasmtime::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let source = match args.first().map(String::as_str) {
        Some("matrix") => MATRIX,
        Some("hash") => HASH,
        Some("sieve") => SIEVE,
        // The others are no loops of WebAssembly here.
        _ => return Ok(()),
    };
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<i64>().ok()).unwrap_or(1);
    for (name, fuel, epochs) in [("wasm", false, false), ("fuel", true, false), ("epochs", false, true)] {
        let (value, time) = least(source, number(1), number(2) as usize, fuel, epochs)?;
        println!("{name} {value} {}", time.as_secs_f64());
    }
    Ok(())
}
