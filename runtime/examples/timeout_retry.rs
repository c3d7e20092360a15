//! A deadline for a scope, and a retry with a pause that grows.
//!
//! `cargo run -p mainspring-runtime --example timeout_retry`

use mainspring::{Config, Cx, NurseryOptions, Profile, TaskError};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A service that is slow at first.
fn call(cx: &Cx, attempt: u32) -> &'static str {
    cx.sleep(Duration::from_millis(if attempt < 3 { 500 } else { 1 }));
    "answer"
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Config::new(Profile::Service).build()?;
    let attempts = AtomicU32::new(0);
    let answer = runtime.run(|cx| {
        let mut pause = Duration::from_millis(1);
        loop {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed) + 1;
            let options = NurseryOptions::new().deadline(Duration::from_millis(20));
            // The body is part of the scope: when the deadline passes, its wait ends too.
            let result =
                cx.nursery_with(options, |n| n.spawn(|cx| call(cx, attempt)).map(|child| child.join(cx)));
            match result {
                Ok(Ok(Ok(answer))) => return Ok(answer),
                Err(error) if matches!(error.error, TaskError::DeadlineExceeded) && attempt < 5 => {
                    println!("attempt {attempt} took too long; the next one in {pause:?}");
                    cx.sleep(pause);
                    pause *= 2;
                }
                Ok(Ok(Err(error))) => return Err(error.to_string()),
                Ok(Err(error)) => return Err(error.to_string()),
                Err(error) => return Err(error.to_string()),
            }
        }
    })??;
    println!("{answer}, after {} attempts", attempts.into_inner());
    Ok(())
}
