//! A runtime to look at with `tokio-console`: tasks that tick, yield, wait for each other, await futures and end.
//!
//! `cargo run --example shop`, and `tokio-console` in another terminal. It ends after a minute, or after as many seconds as it is told.

use mainspring::{Capacity, Config, Cx, NurseryError, Parker, Profile, SpawnError, Weight};
use std::error::Error;
use std::time::Duration;

/// Customers and kitchen are tenants with equal shares of each worker.
const HOST: usize = 0;
const KITCHEN: usize = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u32 = std::env::args().nth(1).map_or(Ok(60), |argument| argument.parse())?;
    let weight = Weight::new(64)?;
    let config = Config::new(Profile::Service).workers(2).fair(&[weight, weight]);
    let (runtime, console) = mainspring_console::build(config)?;
    println!("tokio-console http://{}", console.address());
    // It is over when the shop is closed, by a cancelled nursery.
    match runtime.run(|cx| open(cx, seconds))? {
        Ok(refused) => Ok(refused?),
        Err(closed) => {
            println!("closed: {closed}");
            Ok(())
        }
    }
}

fn open(cx: &Cx, seconds: u32) -> Result<Result<(), SpawnError>, NurseryError> {
    let (orders, taken) = cx.channel(Capacity::Bounded(4)).expect("it may make channels");
    let (bell, timer) = (&Parker::default(), cx.timer());
    cx.nursery(|n| {
        n.builder().name("oven").tenant(KITCHEN).start(move |cx| {
            while let Ok(order) = taken.recv(cx) {
                bake(cx, order);
                bell.unpark();
            }
        })?;
        n.builder().name("waiter").tenant(HOST).start(move |cx| while bell.park(cx, None) {})?;
        n.builder().name("clock").spawn_future(async move {
            loop {
                timer.sleep(Duration::from_millis(250)).await;
            }
        })?;
        for order in 0..seconds * 10 {
            cx.sleep(Duration::from_millis(100));
            if orders.send(cx, order).is_err() {
                break;
            }
            if order % 10 == 0 {
                n.builder().name("guest").start(|cx| cx.sleep(Duration::from_millis(1_500)))?;
            }
        }
        n.cancel();
        Ok(())
    })
}

/// Some five milliseconds of work, which gives way to others now and then.
fn bake(cx: &Cx, order: u32) {
    let mut dough = u64::from(order);
    for _ in 0..50 {
        for _ in 0..50_000 {
            dough = std::hint::black_box(dough.wrapping_mul(31).wrapping_add(7));
        }
        cx.yield_now();
    }
}
