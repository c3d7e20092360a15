//! What the tests share.
#![allow(dead_code)]

use mainspring::{Config, Profile, Runtime};
use mainspring_wasm::{Meter, Plugin, Plugins};

pub const FIB: &str = r#"(module (func $fib (export "fib") (param $n i64) (result i64)
  (if (result i64) (i64.lt_s (local.get $n) (i64.const 2)) (then (local.get $n))
    (else (i64.add (call $fib (i64.sub (local.get $n) (i64.const 1)))
                   (call $fib (i64.sub (local.get $n) (i64.const 2))))))))"#;

pub const ENDLESS: &str = r#"(module (func (export "run") (loop $more (br $more))))"#;

pub fn plugin(meter: Meter, text: &str) -> Plugin {
    Plugins::new(meter).unwrap().compile(&wat::parse_str(text).unwrap()).unwrap()
}

/// Tasks with room for what Wasmtime does before it changes to the guest's stack.
pub fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Service).workers(workers).stack_size(512 << 10).build().unwrap()
}
