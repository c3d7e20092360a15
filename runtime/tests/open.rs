//! Nurseries that no closure encloses, and stops that no frame can be unwound by.
#![allow(unsafe_code)]

use mainspring::{
    Budget, Capacity, Config, NurseryOptions, Pool, Profile, Runtime, SpawnError, Stop, TaskError,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn runtime() -> Runtime {
    Config::new(Profile::Service).workers(2).build().unwrap()
}

#[test]
fn an_open_nursery_waits_for_its_children_and_gives_its_pool_back() {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    runtime()
        .run(|cx| {
            let before = cx.budget();
            // SAFETY: it ends below.
            let open = unsafe { cx.open_nursery(NurseryOptions::new()) }.unwrap();
            for _ in 0..5 {
                open.nursery()
                    .start(|cx| {
                        cx.sleep(Duration::from_millis(2));
                        ENDED.fetch_add(1, Ordering::Relaxed);
                    })
                    .unwrap();
            }
            open.end(Some(cx), None).unwrap().unwrap();
            assert_eq!(ENDED.load(Ordering::Relaxed), 5);
            assert_eq!(cx.budget().memory, before.memory);
        })
        .unwrap();
}

#[test]
fn an_open_nursery_of_a_thread_gives_the_root_pool_back() {
    let runtime = runtime();
    let before = runtime.root_pool();
    let one_spawn = Pool { spawn_count: before.spawn_count - 1, ..before };
    // SAFETY: it ends below.
    let open = unsafe { runtime.open_nursery(NurseryOptions::new()) }.unwrap();
    assert_ne!(runtime.root_pool(), before);
    let child = open.nursery().spawn(|_| 7).unwrap();
    assert_eq!(child.wait().unwrap(), 7);
    open.end(None, None).unwrap().unwrap();
    assert_eq!(runtime.root_pool(), one_spawn);
}

#[test]
fn a_canceller_outlives_its_nursery() {
    let runtime = runtime();
    // SAFETY: it ends below.
    let open = unsafe { runtime.open_nursery(NurseryOptions::new()) }.unwrap();
    let canceller = open.canceller();
    let child = open.nursery().spawn(|cx| cx.sleep(Duration::from_secs(3600))).unwrap();
    let elsewhere = canceller.clone();
    assert!(std::thread::spawn(move || elsewhere.cancel()).join().unwrap());
    assert!(matches!(child.wait(), Err(TaskError::Cancelled)));
    assert!(matches!(open.nursery().spawn(|_| ()), Err(SpawnError::NurseryNotActive)));
    assert!(open.end(None, None).unwrap().unwrap_err().error.is_cancelled());
    drop(runtime);
    assert!(!canceller.cancel());
}

/// What stops a task is kept until the nursery that stopped it is over.
#[test]
fn a_stop_by_a_failed_nursery_is_over_with_it() {
    runtime()
        .run(|cx| {
            // SAFETY: it ends below.
            let open = unsafe { cx.open_nursery(NurseryOptions::new()) }.unwrap();
            open.nursery().spawn_try(|_| Err::<(), _>("broken")).unwrap();
            let stop = Stop::catch(|| cx.sleep(Duration::from_secs(3600))).unwrap_err();
            assert!(matches!(stop.error(), Some(TaskError::Cancelled)));
            // Again and again, until the nursery has ended.
            assert!(Stop::catch(|| cx.yield_now()).is_err());
            let error = open.end(Some(cx), Some(stop)).unwrap().unwrap_err();
            assert_eq!(error.error.to_string(), "broken");
            cx.sleep(Duration::from_millis(1));
        })
        .unwrap();
}

#[test]
fn a_stop_that_a_nursery_is_not_the_reason_of_goes_on() {
    let runtime = runtime();
    let (started, has_started) = runtime.channel(Capacity::Bounded(1));
    // SAFETY: it ends below.
    let around = unsafe { runtime.open_nursery(NurseryOptions::new()) }.unwrap();
    let child = around
        .nursery()
        .builder()
        .budget(Budget { ops: 10_000, memory: 1000, spawn_count: 4, channel_ops: 4, ..Budget::ZERO })
        .spawn(move |cx| {
            // SAFETY: it ends below.
            let open = unsafe { cx.open_nursery(NurseryOptions::new().pool(Pool::ZERO)) }.unwrap();
            started.send(cx, ()).unwrap();
            let stop = Stop::catch(|| cx.sleep(Duration::from_secs(3600))).unwrap_err();
            let stop = open.end(Some(cx), Some(stop)).unwrap_err();
            stop.resume();
        })
        .unwrap();
    has_started.recv_blocking().unwrap();
    assert!(around.canceller().cancel());
    let ended: Result<(), _> = child.wait();
    assert!(matches!(ended, Err(TaskError::Cancelled)));
    assert!(around.end(None, None).unwrap().is_err());
}

#[test]
fn a_thread_waits_on_a_channel_for_so_long_and_no_longer() {
    let runtime = runtime();
    let (tx, rx) = runtime.channel(Capacity::Bounded(1));
    assert_eq!(rx.recv_blocking_timeout(Duration::ZERO), Err(mainspring::Refusal::TimedOut));
    tx.send_blocking_timeout(1, Duration::ZERO).unwrap();
    assert_eq!(tx.send_blocking_timeout(2, Duration::from_millis(1)).unwrap_err().value, 2);
    assert_eq!(rx.recv_blocking_timeout(Duration::from_millis(1)), Ok(1));
}
