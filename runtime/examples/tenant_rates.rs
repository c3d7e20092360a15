//! Two tenants with a rate of system calls each. One asks for far more than it has, and is throttled; the other does not notice.
//!
//! `cargo run -p mainspring-runtime --example tenant_rates`

use mainspring::{Budget, Caps, Component, Config, Cx, Profile, Rate, TaskError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const TIME: Duration = Duration::from_millis(500);

/// One request: a system call, as far as the quota is concerned.
fn request(cx: &Cx, served: &AtomicU64) {
    cx.pay(Component::Syscalls).expect("it was granted some");
    served.fetch_add(1, Ordering::Relaxed);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let caps = Caps::root(100, Budget::MAX, Budget::ZERO, 10, 10);
    let runtime = Config::new(Profile::Service).root_caps(caps).build()?;
    // 1,000 a second, and 20 at once.
    let rate =
        Rate::per(Duration::from_secs(1)).limit(Component::Syscalls, 1000).burst(Component::Syscalls, 20);
    let (greedy, modest) = (runtime.quota(rate)?, runtime.quota(rate)?);
    let served = [AtomicU64::new(0), AtomicU64::new(0)];
    let elapsed = runtime.run(|cx| {
        let (began, end) = (cx.now(), cx.now() + TIME);
        let budget = Budget { ops: u32::MAX, syscalls: u16::MAX, ..Budget::ZERO };
        let ended = cx.nursery(|n| {
            for _ in 0..8 {
                let served = &served[0];
                let flood = move |cx: &Cx| loop {
                    request(cx, served);
                };
                n.builder().budget(Budget { ops: 1 << 24, ..budget }).quota(&greedy).start(flood).unwrap();
            }
            let served = &served[1];
            n.builder()
                .budget(budget)
                .quota(&modest)
                .start(move |cx| {
                    while cx.now() < end {
                        request(cx, served);
                        cx.sleep(Duration::from_millis(5));
                    }
                })
                .unwrap();
            cx.sleep(TIME);
            n.cancel();
        });
        assert!(matches!(ended.map_err(|error| error.error), Err(TaskError::Cancelled)));
        cx.now() - began
    })?;
    let [flooded, asked] = served.map(AtomicU64::into_inner);
    let most = 20 + elapsed.as_millis() as u64 + 1;
    assert!(flooded <= most, "{flooded} of at most {most}");
    println!("a tenant that floods: held to its rate, throttled: {}", greedy.throttled() > 0);
    println!("a tenant that asks every 5 ms: {}", if asked > 0 { "served" } else { "starved" });
    println!("throttled: {}", modest.throttled() > 0);
    Ok(())
}
