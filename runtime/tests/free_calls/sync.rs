//! What tasks wait for each other with.

use crate::spin::{Table, ZERO};
use mainspring::sync::{Barrier, CancelToken, Condvar, Mutex, Notify, Once, RwLock, Semaphore};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a task does with locks, notices, tokens, and values for others.
pub(crate) const SYNC: Table = &[
    ("Semaphore::acquire", |cx, spin| {
        let semaphore = Semaphore::new(1);
        spin.run(|| drop(semaphore.acquire(cx, 1).unwrap()));
    }),
    ("Semaphore::acquire", |cx, spin| {
        let semaphore = Semaphore::new(1);
        spin.run(|| assert!(semaphore.acquire(cx, 2).is_err()));
    }),
    ("Semaphore::acquire_timeout", |cx, spin| {
        let semaphore = Semaphore::new(0);
        spin.run(|| assert!(semaphore.acquire_timeout(cx, 0, ZERO).is_ok()));
    }),
    ("Semaphore::try_acquire", |_, spin| {
        let semaphore = Semaphore::new(0);
        spin.run(|| assert!(semaphore.try_acquire(1).is_none()));
    }),
    ("Semaphore::try_acquire", |_, spin| {
        let semaphore = Semaphore::new(1);
        spin.run(|| drop(semaphore.try_acquire(1).unwrap()));
    }),
    ("Semaphore::free", |_, spin| {
        let semaphore = Semaphore::new(0);
        spin.run(|| _ = semaphore.free());
    }),
    ("Mutex::lock", |cx, spin| {
        let mutex = Mutex::new(());
        spin.run(|| drop(mutex.lock(cx).unwrap()));
    }),
    ("Mutex::try_lock", |cx, spin| {
        let mutex = Mutex::new(());
        let _held = mutex.lock(cx).unwrap();
        spin.run(|| assert!(mutex.try_lock().is_none()));
    }),
    ("Once::get_or_make", |cx, spin| {
        let once = Once::new();
        spin.run(|| once.get_or_make(cx, || ()).unwrap());
    }),
    ("Mutex::lock_timeout", |cx, spin| {
        let mutex = Mutex::new(());
        let _held = mutex.lock(cx).unwrap();
        spin.run(|| assert!(mutex.lock_timeout(cx, ZERO).is_err()));
    }),
    ("RwLock::read", |cx, spin| {
        let lock = RwLock::new(());
        spin.run(|| drop(lock.read(cx).unwrap()));
    }),
    ("RwLock::write", |cx, spin| {
        let lock = RwLock::new(());
        spin.run(|| drop(lock.write(cx).unwrap().downgrade()));
    }),
    ("RwLock::read_timeout", |cx, spin| {
        let lock = RwLock::new(());
        let _held = lock.write(cx).unwrap();
        spin.run(|| assert!(lock.read_timeout(cx, ZERO).is_err()));
    }),
    ("RwLock::write_timeout", |cx, spin| {
        let lock = RwLock::new(());
        let _held = lock.read(cx).unwrap();
        spin.run(|| assert!(lock.write_timeout(cx, ZERO).is_err()));
    }),
    ("RwLock::try_read", |_, spin| {
        let lock = RwLock::new(());
        spin.run(|| drop(lock.try_read().unwrap()));
    }),
    ("RwLock::try_write", |cx, spin| {
        let lock = RwLock::new(());
        let _held = lock.read(cx).unwrap();
        spin.run(|| assert!(lock.try_write().is_none()));
    }),
    ("Notify::notified", |cx, spin| {
        let notify = Notify::new();
        spin.run(|| {
            notify.notify_one();
            notify.notified(cx).unwrap();
        });
    }),
    ("Notify::notified_timeout", |cx, spin| {
        let notify = Notify::new();
        spin.run(|| assert!(notify.notified_timeout(cx, ZERO).is_err()));
    }),
    ("Notify::notify_one", |_, spin| {
        let notify = Notify::new();
        spin.run(|| notify.notify_one());
    }),
    ("Notify::notify_waiters", |_, spin| {
        let notify = Notify::new();
        spin.run(|| notify.notify_waiters());
    }),
    ("Condvar::wait", |cx, spin| {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        cx.nursery(|n| {
            let over = AtomicBool::new(false);
            let over = &*Box::leak(Box::new(over));
            let condvar = &*Box::leak(Box::new(condvar));
            n.start(move |cx| {
                while !over.load(Ordering::Relaxed) {
                    condvar.notify_one();
                    cx.yield_now();
                }
            })
            .unwrap();
            spin.run(|| drop(condvar.wait(cx, mutex.lock(cx).unwrap()).unwrap()));
            over.store(true, Ordering::Relaxed);
        })
        .unwrap();
    }),
    ("Condvar::wait_timeout", |cx, spin| {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        spin.run(|| assert!(!condvar.wait_timeout(cx, mutex.lock(cx).unwrap(), ZERO).unwrap().1));
    }),
    ("Condvar::wait_while", |cx, spin| {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let mut guard = Some(mutex.lock(cx).unwrap());
        spin.run(|| guard = Some(condvar.wait_while(cx, guard.take().unwrap(), |()| false).unwrap()));
    }),
    ("Condvar::notify_one", |_, spin| {
        let condvar = Condvar::new();
        spin.run(|| condvar.notify_one());
    }),
    ("Condvar::notify_all", |_, spin| {
        let condvar = Condvar::new();
        spin.run(|| condvar.notify_all());
    }),
    ("Barrier::wait", |cx, spin| {
        let barrier = Barrier::new(1);
        spin.run(|| assert!(barrier.wait(cx).unwrap()));
    }),
    ("Barrier::wait_timeout", |cx, spin| {
        let barrier = Barrier::new(2);
        spin.run(|| assert!(barrier.wait_timeout(cx, ZERO).is_err()));
    }),
    ("CancelToken::child", |_, spin| {
        let token = CancelToken::new();
        spin.run(|| drop(token.child()));
    }),
    ("CancelToken::cancel", |_, spin| {
        let token = CancelToken::new();
        spin.run(|| _ = token.cancel());
    }),
    ("CancelToken::is_cancelled", |_, spin| {
        let token = CancelToken::new();
        spin.run(|| assert!(!token.is_cancelled()));
    }),
    ("CancelToken::cancelled", |cx, spin| {
        let token = CancelToken::new();
        token.cancel();
        spin.run(|| token.cancelled(cx).unwrap());
    }),
    ("CancelToken::cancelled_timeout", |cx, spin| {
        let token = CancelToken::new();
        spin.run(|| assert!(token.cancelled_timeout(cx, ZERO).is_err()));
    }),
    ("Cx::timeout", |cx, spin| spin.run(|| cx.timeout(Duration::MAX, |_| ()).unwrap())),
    ("Cx::until", |cx, spin| {
        let token = CancelToken::new();
        spin.run(|| cx.until(&token, |_| ()).unwrap());
    }),
    ("Cx::oneshot", |cx, spin| spin.run(|| drop(cx.oneshot::<()>().unwrap()))),
    ("Runtime::oneshot", |_, spin| spin.run(|| drop(spin.runtime.oneshot::<()>()))),
    ("OneshotSender::send", |cx, spin| {
        spin.run(|| {
            let (tx, rx) = spin.runtime.oneshot();
            drop(rx);
            assert!(tx.send(cx, ()).is_err());
        });
    }),
    ("OneshotSender::is_closed", |_, spin| {
        let (tx, _rx) = spin.runtime.oneshot::<()>();
        spin.run(|| assert!(!tx.is_closed()));
    }),
    ("OneshotReceiver::recv", |cx, spin| {
        spin.run(|| {
            let (tx, rx) = spin.runtime.oneshot::<()>();
            drop(tx);
            assert!(rx.recv(cx).is_err());
        });
    }),
    ("OneshotReceiver::recv_timeout", |cx, spin| {
        let (_tx, mut rx) = spin.runtime.oneshot::<()>();
        spin.run(|| assert!(rx.recv_timeout(cx, ZERO).is_err()));
    }),
    ("OneshotReceiver::try_recv", |cx, spin| {
        let (_tx, mut rx) = spin.runtime.oneshot::<()>();
        spin.run(|| assert!(rx.try_recv(cx).is_err()));
    }),
    ("Cx::watch", |cx, spin| spin.run(|| drop(cx.watch(()).unwrap()))),
    ("Runtime::watch", |_, spin| spin.run(|| drop(spin.runtime.watch(())))),
    ("WatchSender::send", |cx, spin| {
        let (tx, _rx) = spin.runtime.watch(());
        spin.run(|| tx.send(cx, ()).unwrap());
    }),
    ("WatchSender::send_blocking", |_, spin| {
        let (tx, _rx) = spin.runtime.watch(());
        spin.run(|| tx.send_blocking(()));
    }),
    ("WatchSender::get", |_, spin| {
        let (tx, _rx) = spin.runtime.watch(());
        spin.run(|| drop(tx.get()));
    }),
    ("WatchSender::subscribe", |_, spin| {
        let (tx, _rx) = spin.runtime.watch(());
        spin.run(|| drop(tx.subscribe()));
    }),
    ("WatchReceiver::get", |_, spin| {
        let (_tx, mut rx) = spin.runtime.watch(());
        spin.run(|| drop(rx.get()));
    }),
    ("WatchReceiver::has_changed", |_, spin| {
        let (_tx, rx) = spin.runtime.watch(());
        spin.run(|| assert!(!rx.has_changed()));
    }),
    ("WatchReceiver::changed", |cx, spin| {
        let (tx, mut rx) = spin.runtime.watch(());
        drop(tx);
        spin.run(|| assert!(rx.changed(cx).is_err()));
    }),
    ("WatchReceiver::changed_timeout", |cx, spin| {
        let (_tx, mut rx) = spin.runtime.watch(());
        spin.run(|| assert!(rx.changed_timeout(cx, ZERO).is_err()));
    }),
    ("WatchReceiver::wait_for", |cx, spin| {
        let (_tx, mut rx) = spin.runtime.watch(());
        spin.run(|| drop(rx.wait_for(cx, |()| true).unwrap()));
    }),
    ("WatchReceiver::clone", |_, spin| {
        let (_tx, rx) = spin.runtime.watch(());
        spin.run(|| drop(rx.clone()));
    }),
    ("Cx::broadcast", |cx, spin| spin.run(|| drop(cx.broadcast::<()>(1).unwrap()))),
    ("Runtime::broadcast", |_, spin| spin.run(|| drop(spin.runtime.broadcast::<()>(1)))),
    ("BroadcastSender::send", |cx, spin| {
        let (tx, _rx) = spin.runtime.broadcast(1);
        spin.run(|| tx.send(cx, ()).unwrap());
    }),
    ("BroadcastSender::send_blocking", |_, spin| {
        let (tx, _rx) = spin.runtime.broadcast(1);
        spin.run(|| tx.send_blocking(()).unwrap());
    }),
    ("BroadcastSender::subscribe", |_, spin| {
        let (tx, _rx) = spin.runtime.broadcast::<()>(1);
        spin.run(|| drop(tx.subscribe()));
    }),
    ("BroadcastSender::clone", |_, spin| {
        let (tx, _rx) = spin.runtime.broadcast::<()>(1);
        spin.run(|| drop(tx.clone()));
    }),
    ("BroadcastReceiver::clone", |_, spin| {
        let (_tx, rx) = spin.runtime.broadcast::<()>(1);
        spin.run(|| drop(rx.clone()));
    }),
    ("BroadcastReceiver::recv", |cx, spin| {
        let (tx, mut rx) = spin.runtime.broadcast::<()>(1);
        drop(tx);
        spin.run(|| assert!(rx.recv(cx).is_err()));
    }),
    ("BroadcastReceiver::recv_timeout", |cx, spin| {
        let (_tx, mut rx) = spin.runtime.broadcast::<()>(1);
        spin.run(|| assert!(rx.recv_timeout(cx, ZERO).is_err()));
    }),
    ("BroadcastReceiver::try_recv", |cx, spin| {
        let (_tx, mut rx) = spin.runtime.broadcast::<()>(1);
        spin.run(|| assert!(rx.try_recv(cx).is_err()));
    }),
];
