//! A pipeline with back-pressure: bounded channels make a fast producer wait for a slow consumer.
//!
//! `cargo run -p mainspring-runtime --example pipeline`

use mainspring::{Budget, Capacity, Config, Profile, Refusal};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Config::new(Profile::Service).build()?;
    let total = runtime.run(|cx| -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        let (numbers, to_square) = cx.channel::<u64>(Capacity::Bounded(4))?;
        let (squares, to_sum) = cx.channel::<u64>(Capacity::Bounded(4))?;
        let budget = Budget { ops: 10_000, channel_ops: 500, ..Budget::ZERO };
        cx.nursery(|n| {
            n.builder().budget(budget).spawn_try(move |cx| {
                for i in 1..=100 {
                    numbers.send(cx, i)?; // waits while four are queued
                }
                Ok::<_, mainspring::SendError<u64>>(())
            })?;
            n.builder().budget(budget).spawn_try(move |cx| {
                for number in to_square.iter(cx) {
                    let number = number?;
                    squares.send(cx, number * number).map_err(|refused| refused.why)?;
                }
                Ok::<_, Refusal>(())
            })?;
            let sum = n.builder().budget(budget).spawn_try(move |cx| {
                let mut sum = 0;
                for square in to_sum.iter(cx) {
                    let square = square?;
                    if square % 10 == 0 {
                        cx.sleep(Duration::from_millis(1)); // the others wait meanwhile
                    }
                    sum += square;
                }
                Ok::<_, Refusal>(sum)
            })?;
            sum.join(cx).map_err(Box::<dyn std::error::Error + Send + Sync>::from)
        })?
    })?;
    println!("the sum of the first hundred squares is {}", total.map_err(|error| error.to_string())?);
    Ok(())
}
