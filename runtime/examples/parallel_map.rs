//! A parallel map by fork and join: halves run at the same time when a worker is idle, and in place when none is.
//!
//! `cargo run --release -p mainspring-runtime --example parallel_map`

use mainspring::{Config, Cx, Profile};

fn map<T: Send, R: Send>(cx: &Cx, items: Vec<T>, f: &(impl Fn(&Cx, T) -> R + Sync)) -> Vec<R> {
    if items.len() <= 64 {
        return items.into_iter().map(|item| f(cx, item)).collect();
    }
    let mut left = items;
    let right = left.split_off(left.len() / 2);
    let (mut left, right) = cx.join(|cx| map(cx, left, f), |cx| map(cx, right, f));
    left.extend(right);
    left
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Config::new(Profile::Service).build()?;
    let lengths = runtime.run(|cx| {
        map(cx, (1..=10_000u64).collect(), &|cx, mut n| {
            // The Collatz sequence: how long until 1?
            let mut steps = 0u32;
            while n != 1 {
                cx.check();
                n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
                steps += 1;
            }
            steps
        })
    })?;
    let (start, steps) = lengths.iter().enumerate().max_by_key(|(_, steps)| **steps).expect("there are some");
    println!("below 10,000, {} takes longest: {steps} steps", start + 1);
    Ok(())
}
