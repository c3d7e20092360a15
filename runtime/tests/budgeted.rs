//! `#[budgeted]` code is metered exactly.

use mainspring::{Config, Cx, Exhaustion, NurseryOptions, Pool, Profile, TaskError, budgeted};

#[budgeted]
fn spin(cx: &Cx, times: u32) -> u32 {
    let mut sum = 0u32;
    for i in 0..times {
        sum = sum.wrapping_add(i);
    }
    sum
}

#[budgeted]
#[allow(clippy::never_loop)]
fn mixed(cx: &Cx, n: u32) -> Option<u32> {
    let mut found = None;
    let mut i = 0;
    // 10 iterations, and 3 in the inner loop of each: 40 in all.
    while i < n {
        i += 1;
        for j in 0..3 {
            if i == n && j == 2 {
                found = Some(double(j));
            }
        }
    }
    let answer = loop {
        break found?;
    };
    Some(answer)
}

fn double(n: u32) -> u32 {
    n * 2
}

#[budgeted]
fn fib(cx: &Cx, n: u32) -> u32 {
    if n < 2 { n } else { fib(cx, n - 1) + fib(cx, n - 2) }
}

#[budgeted]
fn endless(cx: &Cx) {
    loop {
        std::hint::spin_loop();
    }
}

fn ops_of<T: Send>(f: impl FnOnce(&Cx) -> T + Send) -> (T, u64) {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    runtime
        .run(|cx| {
            let before = cx.ops_used();
            let value = f(cx);
            (value, cx.ops_used() - before)
        })
        .unwrap()
}

//= SCHED:4.1.1b SCHED:4.1.2
#[test]
fn iterations_and_calls_cost_one_op_each() {
    for times in [0, 1, 7, 1023, 1024, 1025, 5000] {
        assert_eq!(ops_of(|cx| spin(cx, times)).1, u64::from(times), "{times} iterations");
    }
    // 40 iterations, 1 of the last loop, 1 call.
    assert_eq!(ops_of(|cx| mixed(cx, 10)), (Some(4), 42));
    // One op per call; the first call is not made by budgeted code.
    let calls = 177 - 1;
    assert_eq!(ops_of(|cx| fib(cx, 10)), (55, calls));
}

//= SCHED:15.1.1
#[test]
fn an_endless_loop_stops_at_its_budget() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let error = runtime
        .run(|cx| {
            let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail);
            cx.nursery_with(options, |n| drop(n.spawn(endless))).unwrap_err()
        })
        .unwrap();
    assert!(matches!(error.error, TaskError::BudgetExhausted(mainspring::Component::Ops)), "{error}");
}

//= SCHED:4.3.1
#[test]
fn the_interval_is_configurable() {
    let runtime =
        Config::new(Profile::Sovereign).yield_interval(10).workers(1).root_pool(Pool::AMPLE).build().unwrap();
    let used = runtime.run(|cx| (cx.yield_interval(), spin(cx, 25), cx.ops_used())).unwrap();
    assert_eq!((used.0, used.2), (10, 25));
}
