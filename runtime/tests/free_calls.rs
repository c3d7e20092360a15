//! No loop of calls keeps a worker from its other tasks: each public operation, repeated on one worker beside a task that
//! must get on, under every discipline. What counts is the number of calls, never a clock. Nor does a loop of calls hold more
//! the longer it goes on.
#![allow(unsafe_code)]

use mainspring::endpoint::EndpointOptions;
use mainspring::io::{
    Async, File, Ready, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, read_file,
    wait_child, write_file,
};
use mainspring::policy::{Epoch, Manifest};
use mainspring::signal::Signal;
use mainspring::supervisor::{Child, Restart, Strategy, Supervisor};
use mainspring::sync::{Barrier, CancelToken, Condvar, Mutex, Notify, Once, RwLock, Semaphore};
use mainspring::{
    Budget, Capacity, Caps, Component, Config, CpuSet, Cx, Endpoint, FairTaskSettings, JoinSet, LeaseRequest,
    NurseryOptions, Parker, Pool, Priority, Profile, Rate, Reservation, Runtime, SchedulingContext, Select,
    Weight,
};
use mainspring_abi::ThreadRef;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock as StdRwLock, RwLockReadGuard};
use std::time::Duration;

/// Counts the bytes that are allocated.
struct Counting;

static HELD: AtomicU64 = AtomicU64::new(0);

// SAFETY: it passes everything on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Taken by all tests; by the one that counts bytes alone.
static BYTES: StdRwLock<()> = StdRwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    BYTES.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Repeats a call until the other task has got on, or to see what it holds.
struct Spin<'a> {
    runtime: &'a Runtime,
    done: &'a AtomicBool,
    calls: AtomicU64,
    most: u64,
    /// How much more is held after many calls than after a few.
    growth: Option<&'a AtomicU64>,
}

impl Spin<'_> {
    fn run(&self, mut call: impl FnMut()) {
        if let Some(growth) = self.growth {
            let mut held_after = |calls| {
                (0..calls).for_each(|_| call());
                HELD.load(Ordering::Relaxed)
            };
            let (few, many) = (held_after(self.most), held_after(4 * self.most));
            growth.store(many.saturating_sub(few), Ordering::Relaxed);
            return;
        }
        while !self.done.load(Ordering::Relaxed) {
            call();
            if self.calls.fetch_add(1, Ordering::Relaxed) > self.most {
                std::panic::resume_unwind(Box::new("the other task does not get on"));
            }
        }
    }
}

/// What a task repeats.
type Loop = fn(&Cx, &Spin<'_>);

const ZERO: Duration = Duration::ZERO;
const SMALL: Budget = Budget { ops: 1, ..Budget::ZERO };

/// A connection of a task with itself.
fn connected(cx: &Cx) -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(cx, listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept(cx).unwrap();
    (listener, stream, peer)
}

/// The same, one side of it for futures.
fn for_futures(cx: &Cx) -> (Async<std::net::TcpStream>, TcpStream) {
    let (_listener, stream, peer) = connected(cx);
    (Async::new(cx, stream.into_std().unwrap()).unwrap(), peer)
}

/// Every public operation that a task can repeat.
const CALLS: &[(&str, Loop)] = &[
    ("Cx::check", |cx, spin| spin.run(|| cx.check())),
    ("Cx::check_iterations", |cx, spin| spin.run(|| cx.check_iterations(1))),
    ("Cx::pay", |cx, spin| spin.run(|| _ = cx.pay(Component::Ops))),
    ("Cx::charge_alloc", |cx, spin| spin.run(|| _ = cx.charge_alloc(0))),
    ("Cx::charge_alloc", |cx, spin| {
        // Refused each time, and free.
        spin.run(|| assert!(cx.charge_alloc(usize::MAX).is_err()));
    }),
    ("Cx::try_box", |cx, spin| spin.run(|| drop(cx.try_box(()).unwrap()))),
    ("Cx::try_vec", |cx, spin| spin.run(|| drop(cx.try_vec::<u8>(0).unwrap()))),
    ("Cx::open_nursery", |cx, spin| {
        spin.run(|| {
            // SAFETY: it ends at once.
            let open = unsafe { cx.open_nursery(NurseryOptions::new()) }.unwrap();
            open.end(Some(cx), None).unwrap().unwrap();
        });
    }),
    ("Cx::look_up", |cx, spin| spin.run(|| cx.look_up())),
    ("Cx::yield_now", |cx, spin| spin.run(|| cx.yield_now())),
    ("Cx::budget", |cx, spin| spin.run(|| _ = cx.budget())),
    ("Cx::ops_used", |cx, spin| spin.run(|| _ = cx.ops_used())),
    ("Cx::is_cancelled", |cx, spin| spin.run(|| _ = cx.is_cancelled())),
    ("Cx::now", |cx, spin| spin.run(|| _ = cx.now())),
    ("Cx::recharge", |cx, spin| spin.run(|| _ = cx.recharge(Budget::MAX))),
    ("Cx::recharge", |cx, spin| spin.run(|| _ = cx.recharge(Budget::ZERO))),
    ("Cx::cpu_time", |cx, spin| spin.run(|| _ = cx.cpu_time())),
    ("Cx::set_weight", |cx, spin| spin.run(|| _ = cx.set_weight(Weight::new(64).unwrap()))),
    ("Cx::sleep", |cx, spin| spin.run(|| cx.sleep(ZERO))),
    ("Cx::interval", |cx, spin| spin.run(|| _ = cx.interval(ZERO))),
    ("Interval::tick", |cx, spin| spin.run(|| _ = cx.interval(ZERO).tick(cx))),
    ("Cx::nursery", |cx, spin| spin.run(|| cx.nursery(|_| ()).unwrap())),
    ("Cx::nursery_with", |cx, spin| {
        spin.run(|| cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |_| ()).unwrap());
    }),
    ("Cx::with_cleanup", |cx, spin| spin.run(|| cx.with_cleanup(|_| (), |_| ()))),
    ("Cx::join", |cx, spin| spin.run(|| _ = cx.join(|_| (), |_| ()))),
    ("Cx::blocking", |cx, spin| spin.run(|| cx.blocking(|| ()).unwrap())),
    ("Cx::blocking", |cx, spin| {
        without_authority(cx, |cx| spin.run(|| assert!(cx.blocking(|| ()).is_err())));
    }),
    ("Cx::await_future", |cx, spin| spin.run(|| cx.await_future(async {}).unwrap())),
    ("Cx::await_future", |cx, spin| {
        without_authority(cx, |cx| spin.run(|| assert!(cx.await_future(async {}).is_err())));
    }),
    ("Cx::channel", |cx, spin| spin.run(|| drop(cx.channel::<()>(Capacity::Rendezvous).unwrap()))),
    ("Cx::channel", |cx, spin| {
        without_authority(cx, |cx| spin.run(|| assert!(cx.channel::<()>(Capacity::Rendezvous).is_err())));
    }),
    ("Nursery::spawn", |cx, spin| {
        cx.nursery(|n| spin.run(|| drop(n.spawn(|_| ()).map(|child| child.join(cx))))).unwrap();
    }),
    ("Nursery::spawn", |cx, spin| {
        // Refused each time.
        let poor = NurseryOptions::new().pool(Pool::ZERO);
        cx.nursery_with(poor, |n| spin.run(|| assert!(n.spawn(|_| ()).is_err()))).unwrap();
    }),
    ("Nursery::start", |cx, spin| {
        cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |n| {
            spin.run(|| assert!(n.start(|_| ()).is_err()));
        })
        .unwrap();
    }),
    ("Nursery::spawn_try", |cx, spin| {
        cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |n| {
            spin.run(|| assert!(n.spawn_try(|_| Ok::<_, String>(())).is_err()));
        })
        .unwrap();
    }),
    ("Nursery::spawn_future", |cx, spin| {
        cx.nursery(|n| spin.run(|| drop(n.spawn_future(async {}).map(|child| child.join(cx))))).unwrap();
    }),
    ("Nursery::spawn_future", |cx, spin| {
        let caps = NurseryOptions::new().caps(cx.caps().without_executor());
        cx.nursery_with(caps, |n| spin.run(|| assert!(n.spawn_future(async {}).is_err()))).unwrap();
    }),
    ("SpawnBuilder::spawn", |cx, spin| {
        cx.nursery(|n| spin.run(|| assert!(n.builder().stack_size(1).spawn(|_| ()).is_err()))).unwrap();
    }),
    ("SpawnBuilder::start", |cx, spin| {
        cx.nursery(|n| spin.run(|| assert!(n.builder().tenant(999).start(|_| ()).is_err()))).unwrap();
    }),
    ("SpawnBuilder::spawn_try", |cx, spin| {
        cx.nursery(|n| {
            spin.run(|| assert!(n.builder().stack_size(1).spawn_try(|_| Ok::<_, String>(())).is_err()));
        })
        .unwrap();
    }),
    ("SpawnBuilder::spawn", |cx, spin| {
        // With all that a builder can note for a child.
        cx.nursery(|n| {
            spin.run(|| {
                let child = n.builder().name("named").budget(SMALL).pool(Pool::ZERO).caps(Caps::none());
                let child = child.priority(Priority::High).stack_size(1 << 16);
                child.spawn(|_| ()).unwrap().join(cx).unwrap();
            });
        })
        .unwrap();
    }),
    ("Nursery::cancel", |cx, spin| drop(cx.nursery(|n| spin.run(|| _ = n.cancel())))),
    ("Nursery::state", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.state())).unwrap()),
    ("Nursery::live", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.live())).unwrap()),
    ("Nursery::pool", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.pool())).unwrap()),
    ("Nursery::recharge", |cx, spin| with_child(cx, |_, n, child| spin.run(|| _ = n.recharge(child, SMALL)))),
    ("Nursery::supervise", |cx, spin| {
        with_child(cx, |cx, n, child| spin.run(|| _ = n.supervise(cx, child, SMALL)));
    }),
    ("Nursery::top_up", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.top_up(SMALL.into()))).unwrap()),
    ("Nursery::await_all", |cx, spin| cx.nursery(|n| spin.run(|| n.await_all(cx))).unwrap()),
    ("Handle::state", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.state()))),
    ("Handle::ops_used", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.ops_used()))),
    ("Handle::budget", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.budget()))),
    ("Handle::is_finished", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.is_finished()))),
    ("Handle::cancel", |cx, spin| with_child(cx, |_, _, child| spin.run(|| _ = child.cancel()))),
    ("Handle::join", |cx, spin| {
        cx.nursery(|n| spin.run(|| drop(n.spawn(|_| ()).map(|child| child.join(cx))))).unwrap();
    }),
    ("Runtime::channel", |_, spin| spin.run(|| drop(spin.runtime.channel::<()>(Capacity::Rendezvous)))),
    ("Sender::send", |cx, spin| {
        let (tx, rx) = cx.channel(Capacity::Bounded(1)).unwrap();
        drop(rx);
        spin.run(|| assert!(tx.send(cx, ()).is_err()));
    }),
    ("Sender::send_timeout", |cx, spin| {
        let (tx, _rx) = cx.channel(Capacity::Rendezvous).unwrap();
        spin.run(|| assert!(tx.send_timeout(cx, (), ZERO).is_err()));
    }),
    ("Sender::try_send", |cx, spin| {
        let (tx, _rx) = cx.channel(Capacity::Rendezvous).unwrap();
        spin.run(|| assert!(tx.try_send(cx, ()).is_err()));
    }),
    ("Sender::close", |cx, spin| {
        let (tx, _rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| tx.close());
    }),
    ("Sender::clone", |cx, spin| {
        let (tx, _rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| drop(tx.clone()));
    }),
    ("Receiver::recv", |cx, spin| {
        let (tx, rx) = cx.channel::<()>(Capacity::Bounded(1)).unwrap();
        drop(tx);
        spin.run(|| assert!(rx.recv(cx).is_err()));
    }),
    ("Receiver::recv_timeout", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| assert!(rx.recv_timeout(cx, ZERO).is_err()));
    }),
    ("Receiver::try_recv", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| assert!(rx.try_recv(cx).is_err()));
    }),
    ("Receiver::iter", |cx, spin| {
        let (tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        drop(tx);
        spin.run(|| assert_eq!(rx.iter(cx).count(), 0));
    }),
    ("Receiver::len", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| _ = rx.len());
    }),
    ("Receiver::is_empty", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| _ = rx.is_empty());
    }),
    ("Receiver::clone", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| drop(rx.clone()));
    }),
    ("Select::run", |cx, spin| {
        let (tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        drop(tx);
        spin.run(|| assert!(Select::new().recv(&rx, |got| got.is_err()).run(cx).unwrap()));
    }),
    ("Select::run_timeout", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| Select::new().recv(&rx, |_| ()).run_timeout(cx, ZERO, || ()).unwrap());
    }),
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
    ("Nursery::failures", |cx, spin| cx.nursery(|n| spin.run(|| _ = n.failures())).unwrap()),
    ("JoinSet::spawn", |cx, spin| {
        let poor = NurseryOptions::new().pool(Pool::ZERO);
        cx.nursery_with(poor, |n| {
            let mut set = JoinSet::new(n);
            spin.run(|| assert!(set.spawn(|_| ()).is_err()));
        })
        .unwrap();
    }),
    ("JoinSet::spawn_with", |cx, spin| {
        cx.nursery(|n| {
            let mut set = JoinSet::new(n);
            spin.run(|| assert!(set.spawn_with(n.builder().stack_size(1), |_| ()).is_err()));
        })
        .unwrap();
    }),
    ("JoinSet::join_next", |cx, spin| {
        cx.nursery(|n| {
            let mut set = JoinSet::<()>::new(n);
            spin.run(|| assert!(set.join_next(cx).is_none()));
        })
        .unwrap();
    }),
    ("JoinSet::join_next", |cx, spin| {
        cx.nursery(|n| {
            let mut set = JoinSet::new(n);
            spin.run(|| {
                set.spawn(|_| ()).unwrap();
                set.join_next(cx).unwrap().1.unwrap();
            });
        })
        .unwrap();
    }),
    ("JoinSet::join_next_timeout", |cx, spin| {
        cx.nursery(|n| {
            let mut set = JoinSet::<()>::new(n);
            spin.run(|| assert!(set.join_next_timeout(cx, ZERO).unwrap().is_none()));
        })
        .unwrap();
    }),
    ("JoinSet::cancel_all", |cx, spin| {
        cx.nursery(|n| {
            let set = JoinSet::<()>::new(n);
            spin.run(|| set.cancel_all());
        })
        .unwrap();
    }),
    ("JoinSet::len", |cx, spin| {
        cx.nursery(|n| {
            let set = JoinSet::<()>::new(n);
            spin.run(|| assert_eq!(set.len(), 0));
        })
        .unwrap();
    }),
    ("JoinSet::is_empty", |cx, spin| {
        cx.nursery(|n| {
            let set = JoinSet::<()>::new(n);
            spin.run(|| assert!(set.is_empty()));
        })
        .unwrap();
    }),
    ("Supervisor::run", |cx, spin| {
        let supervisor = Supervisor::new(Strategy::OneForOne);
        spin.run(|| _ = supervisor.run(cx).unwrap());
    }),
    ("Supervisor::run", |cx, spin| {
        let fails = AtomicBool::new(false);
        // Every other life fails.
        let body = |_: &Cx| if fails.fetch_xor(true, Ordering::Relaxed) { Ok(()) } else { Err("a failure") };
        let child = Child::new("fails", body).restart(Restart::Transient);
        let supervisor = Supervisor::new(Strategy::OneForAll).child(child);
        spin.run(|| assert_eq!(supervisor.run(cx).unwrap(), 1));
    }),
    ("Supervisor::run_until", |cx, spin| {
        let (supervisor, token) = (Supervisor::new(Strategy::OneForOne), CancelToken::new());
        spin.run(|| _ = supervisor.run_until(cx, &token).unwrap());
    }),
    ("Cx::mailbox", |cx, spin| spin.run(|| drop(cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap()))),
    ("Address::tell", |cx, spin| {
        let (address, _mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| assert!(address.tell(cx, (), Pool::ZERO).is_err()));
    }),
    ("Address::try_tell", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        drop(mailbox);
        let grant = Pool { ops: 1, spawn_count: 1, ..Pool::ZERO };
        spin.run(|| assert!(address.try_tell(cx, (), grant).is_err()));
    }),
    ("Address::ask", |cx, spin| {
        let (address, _mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| assert!(address.ask(cx, (), Pool::ZERO).is_err()));
    }),
    ("Address::ask", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        let grant = Pool { ops: 10, spawn_count: 1, ..Pool::ZERO };
        cx.nursery(|n| {
            n.start(move |cx| mailbox.serve(cx, &mut (), |(), _, ()| ()).unwrap()).unwrap();
            spin.run(|| address.ask(cx, (), grant).unwrap());
            drop(address);
        })
        .unwrap();
    }),
    ("Address::ask_timeout", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        drop(mailbox);
        let grant = Pool { ops: 1, spawn_count: 1, ..Pool::ZERO };
        spin.run(|| assert!(address.ask_timeout(cx, (), grant, ZERO).is_err()));
    }),
    ("Address::close", |cx, spin| {
        let (address, _mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| address.close());
    }),
    ("Address::clone", |cx, spin| {
        let (address, _mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| drop(address.clone()));
    }),
    ("Cx::send_abroad", |cx, spin| {
        spin.run(|| cx.send_abroad(Pool::ZERO, |_| ()).unwrap());
    }),
    ("Abroad::out", |cx, spin| {
        cx.send_abroad(Pool::ZERO, |abroad| spin.run(|| _ = abroad.out())).unwrap();
    }),
    ("Abroad::bring_back", |cx, spin| {
        cx.send_abroad(Pool::ZERO, |abroad| spin.run(|| abroad.bring_back(&Pool::ZERO).unwrap())).unwrap();
    }),
    ("Runtime::withdraw", |_, spin| spin.run(|| spin.runtime.withdraw(&Pool::ZERO).unwrap())),
    ("Runtime::deposit", |_, spin| spin.run(|| spin.runtime.deposit(&Pool::ZERO))),
    ("Runtime::send_from_outside", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        drop(mailbox);
        let grant = Pool { ops: 1, spawn_count: 1, ..Pool::ZERO };
        let send = || spin.runtime.send_from_outside(&address, (), grant, Arc::default(), |_, _| ());
        spin.run(|| assert!(send().is_err()));
    }),
    ("Mailbox::serve", |cx, spin| {
        let (address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        drop(address);
        spin.run(|| mailbox.serve(cx, &mut (), |(), _, ()| ()).unwrap());
    }),
    ("Mailbox::len", |cx, spin| {
        let (_address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| assert_eq!(mailbox.len(), 0));
    }),
    ("Mailbox::is_empty", |cx, spin| {
        let (_address, mailbox) = cx.mailbox::<(), ()>(1, Pool::ZERO).unwrap();
        spin.run(|| assert!(mailbox.is_empty()));
    }),
    ("Runtime::take_overstays", |_, spin| spin.run(|| _ = spin.runtime.take_overstays())),
    ("Runtime::quota", |_, spin| spin.run(|| drop(spin.runtime.quota(a_rate()).unwrap()))),
    ("Quota::share", |_, spin| {
        let quota = spin.runtime.quota(a_rate()).unwrap();
        spin.run(|| drop(quota.share(a_rate()).unwrap()));
    }),
    ("Quota::left", |_, spin| {
        let quota = spin.runtime.quota(a_rate()).unwrap();
        spin.run(|| _ = quota.left());
    }),
    ("Quota::throttled", |_, spin| {
        let quota = spin.runtime.quota(a_rate()).unwrap();
        spin.run(|| _ = quota.throttled());
    }),
    ("Cx::quota", |cx, spin| spin.run(|| _ = cx.quota())),
    ("Nursery::bind_quota", |cx, spin| {
        let quota = spin.runtime.quota(a_rate()).unwrap();
        cx.nursery(|n| spin.run(|| n.bind_quota(&quota).unwrap())).unwrap();
    }),
    ("Spawner::start", |cx, spin| {
        cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |n| {
            let spawner = n.spawner();
            spin.run(|| assert!(spawner.start(cx, |_| ()).is_err()));
        })
        .unwrap();
    }),
    ("Spawner::start", |cx, spin| {
        cx.nursery(|n| {
            let spawner = n.spawner();
            spin.run(|| {
                spawner.start(cx, |_| ()).unwrap();
                n.await_all(cx);
            });
        })
        .unwrap();
    }),
    ("Spawner::start", |cx, spin| {
        without_authority(cx, |cx| {
            cx.nursery(|n| {
                let spawner = n.spawner();
                spin.run(|| assert!(spawner.start(cx, |_| ()).is_err()));
            })
            .unwrap();
        });
    }),
    ("Spawner::start_with", |cx, spin| {
        cx.nursery(|n| {
            let spawner = n.spawner();
            spin.run(|| assert!(spawner.start_with(cx, |builder| builder.stack_size(1), |_| ()).is_err()));
        })
        .unwrap();
    }),
    ("ThreadSpawner::start", |cx, spin| {
        cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |n| {
            let spawner = n.thread_spawner();
            spin.run(|| assert!(spawner.start(|_| ()).is_err()));
        })
        .unwrap();
    }),
    ("ThreadSpawner::start", |cx, spin| {
        cx.nursery(|n| {
            let spawner = n.thread_spawner();
            spin.run(|| {
                spawner.start(|_| ()).unwrap();
                n.await_all(cx);
            });
        })
        .unwrap();
    }),
    ("Runtime::signals", |_, spin| {
        spin.run(|| drop(spin.runtime.signals(&[Signal::WINDOW]).unwrap()));
    }),
    ("Runtime::stop_on", |_, spin| {
        spin.run(|| drop(spin.runtime.stop_on(&[Signal::WINDOW]).unwrap()));
    }),
    ("Runtime::serve_live", |_, spin| {
        // There is no such folder.
        spin.run(|| assert!(spin.runtime.serve_live("/nowhere/live", 0o600).is_err()));
    }),
    ("Runtime::metrics", |_, spin| spin.run(|| drop(spin.runtime.metrics()))),
    ("Signals::recv", |cx, spin| {
        // Nothing comes: cut short each time.
        let signals = spin.runtime.signals(&[Signal::WINDOW]).unwrap();
        spin.run(|| assert!(cx.timeout(ZERO, |cx| signals.recv(cx).is_ok()).is_err()));
    }),
    ("Signals::recv_timeout", |cx, spin| {
        let signals = spin.runtime.signals(&[Signal::WINDOW]).unwrap();
        spin.run(|| assert!(signals.recv_timeout(cx, ZERO).is_err()));
    }),
    ("Cx::timer", |cx, spin| spin.run(|| drop(cx.timer()))),
    ("Timer::sleep", |cx, spin| {
        let timer = cx.timer();
        spin.run(|| drop(timer.sleep(ZERO)));
    }),
    ("Timer::now", |cx, spin| {
        let timer = cx.timer();
        spin.run(|| _ = timer.now());
    }),
    ("SpawnBuilder::spawn_future", |cx, spin| {
        cx.nursery(|n| spin.run(|| assert!(n.builder().stack_size(1).spawn_future(async {}).is_err())))
            .unwrap();
    }),
    ("Cx::endpoint", |cx, spin| spin.run(|| drop(cx.endpoint::<(), ()>().unwrap()))),
    ("Cx::endpoint_without_donation", |cx, spin| {
        spin.run(|| drop(cx.endpoint_without_donation::<(), ()>().unwrap()));
    }),
    ("Runtime::host_standing", |_, spin| spin.run(|| _ = spin.runtime.host_standing())),
    ("Runtime::endpoint_with", |_, spin| {
        spin.run(|| drop(spin.runtime.endpoint_with::<(), ()>(EndpointOptions::default())));
    }),
    ("Runtime::open_session", |_, spin| spin.run(|| assert!(spin.runtime.open_session().is_err()))),
    ("Runtime::end_process", |_, spin| spin.run(|| spin.runtime.end_process(0))),
    ("Runtime::lease", |_, spin| {
        spin.run(|| assert!(spin.runtime.lease(LeaseRequest::new(0, CpuSet::EMPTY)).is_err()));
    }),
    ("Cx::thread_number", |cx, spin| spin.run(|| _ = cx.thread_number())),
    ("Runtime::endpoint", |_, spin| spin.run(|| drop(spin.runtime.endpoint::<(), ()>(true)))),
    ("Endpoint::call", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        endpoint.close();
        spin.run(|| assert!(endpoint.call(cx, ()).is_err()));
    }),
    ("Endpoint::call_timeout", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        spin.run(|| assert!(endpoint.call_timeout(cx, (), ZERO).is_err()));
    }),
    ("Endpoint::receive", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        endpoint.close();
        spin.run(|| assert!(endpoint.receive(cx).is_err()));
    }),
    ("Endpoint::receive_timeout", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        spin.run(|| assert!(endpoint.receive_timeout(cx, ZERO).is_err()));
    }),
    ("Endpoint::interrupt", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        spin.run(|| assert!(!endpoint.interrupt()));
    }),
    ("Endpoint::close", |cx, spin| {
        let endpoint = cx.endpoint::<(), ()>().unwrap();
        spin.run(|| endpoint.close());
    }),
    ("Reply::send", |cx, spin| with_server(cx, |cx, endpoint| spin.run(|| endpoint.call(cx, ()).unwrap()))),
    ("Parker::park", |cx, spin| {
        let parker = Parker::default();
        spin.run(|| assert!(!parker.park(cx, Some(ZERO))));
    }),
    ("Parker::wait", |cx, spin| {
        let parker = Parker::default();
        spin.run(|| {
            parker.unpark();
            assert!(parker.wait(cx, mainspring::WaitReason::Park, None));
        });
    }),
    ("Parker::hand_over", |cx, spin| {
        let parker = Parker::default();
        spin.run(|| parker.hand_over(cx));
    }),
    ("Parker::unpark", |_, spin| {
        let parker = Parker::default();
        spin.run(|| parker.unpark());
    }),
    ("Runtime::workers", |_, spin| spin.run(|| _ = spin.runtime.workers())),
    ("Runtime::worker_stats", |_, spin| spin.run(|| drop(spin.runtime.worker_stats()))),
    ("Runtime::set_steal_enabled", |_, spin| spin.run(|| _ = spin.runtime.set_steal_enabled(0, true))),
    ("Runtime::close_record", |_, spin| spin.run(|| drop(spin.runtime.close_record()))),
    ("Runtime::record_part", |_, spin| spin.run(|| drop(spin.runtime.record_part(0, 0)))),
    ("Runtime::record_time", |_, spin| spin.run(|| _ = spin.runtime.record_time())),
    ("Runtime::io_driver", |_, spin| spin.run(|| _ = spin.runtime.io_driver())),
    ("Runtime::guards", |_, spin| spin.run(|| _ = spin.runtime.guards())),
    ("Runtime::root_pool", |_, spin| spin.run(|| _ = spin.runtime.root_pool())),
    ("Runtime::trace", |_, spin| spin.run(|| _ = spin.runtime.trace())),
    ("Runtime::snapshot", |_, spin| spin.run(|| drop(spin.runtime.snapshot()))),
];

/// Those that need what the deterministic mode does not have.
const OUTSIDE: &[(&str, Loop)] = &[
    ("TcpListener::bind", |cx, spin| spin.run(|| drop(TcpListener::bind(cx, "127.0.0.1:0").unwrap()))),
    ("TcpListener::accept", |cx, spin| {
        let (listener, ..) = connected(cx);
        spin.run(|| {
            let stream = TcpStream::connect(cx, listener.local_addr().unwrap()).unwrap();
            drop((listener.accept(cx).unwrap(), stream));
        });
    }),
    ("TcpListener::accept_timeout", |cx, spin| {
        let (listener, ..) = connected(cx);
        spin.run(|| drop(listener.accept_timeout(cx, ZERO).unwrap_err()));
    }),
    ("TcpListener::bind_with_backlog", |cx, spin| {
        spin.run(|| drop(TcpListener::bind_with_backlog(cx, "127.0.0.1:0", 1).unwrap()));
    }),
    ("TcpListener::from_std", |cx, spin| {
        let (listener, ..) = connected(cx);
        let listener = listener.into_std().unwrap();
        spin.run(|| drop(TcpListener::from_std(cx, listener.try_clone().unwrap()).unwrap()));
    }),
    ("TcpListener::local_addr", |cx, spin| {
        let (listener, ..) = connected(cx);
        spin.run(|| _ = listener.local_addr().unwrap());
    }),
    ("TcpStream::connect", |cx, spin| {
        spin.run(|| drop(TcpStream::connect(cx, "127.0.0.1:1").unwrap_err()));
    }),
    ("TcpStream::connect_timeout", |cx, spin| {
        spin.run(|| drop(TcpStream::connect_timeout(cx, "127.0.0.1:1", ZERO).unwrap_err()));
    }),
    ("Stream::from_std", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        let stream = stream.into_std().unwrap();
        spin.run(|| drop(TcpStream::from_std(cx, stream.try_clone().unwrap()).unwrap()));
    }),
    ("Stream::read_timeout", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| drop(stream.read_timeout(cx, &mut [0; 4], ZERO).unwrap_err()));
    }),
    ("Stream::write_timeout", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| drop(stream.write_timeout(cx, b"x", ZERO)));
    }),
    ("Stream::read", |cx, spin| {
        let (_listener, stream, peer) = connected(cx);
        drop(peer);
        spin.run(|| assert_eq!(stream.read(cx, &mut [0; 4]).unwrap(), 0));
    }),
    ("Stream::read_exact", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| stream.read_exact(cx, &mut []).unwrap());
    }),
    ("Stream::write", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| assert_eq!(stream.write(cx, &[]).unwrap(), 0));
    }),
    ("Stream::write_all", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| stream.write_all(cx, &[]).unwrap());
    }),
    ("Stream::shutdown", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| drop(stream.shutdown(cx, std::net::Shutdown::Write)));
    }),
    ("UdpSocket::bind", |cx, spin| spin.run(|| drop(UdpSocket::bind(cx, "127.0.0.1:0").unwrap()))),
    ("UdpSocket::send_to", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        spin.run(|| _ = socket.send_to(cx, b"x", to).unwrap());
    }),
    ("UdpSocket::recv_from", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        spin.run(|| {
            socket.send_to(cx, b"x", to).unwrap();
            socket.recv_from(cx, &mut [0; 4]).unwrap();
        });
    }),
    ("UdpSocket::send_to_timeout", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        spin.run(|| drop(socket.send_to_timeout(cx, b"x", to, ZERO)));
    }),
    ("UdpSocket::recv_from_timeout", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        spin.run(|| drop(socket.recv_from_timeout(cx, &mut [0; 4], ZERO).unwrap_err()));
    }),
    ("UdpSocket::from_std", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap().into_std().unwrap();
        spin.run(|| drop(UdpSocket::from_std(cx, socket.try_clone().unwrap()).unwrap()));
    }),
    ("UdpSocket::local_addr", |cx, spin| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        spin.run(|| _ = socket.local_addr().unwrap());
    }),
    ("Async::new", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        let stream = stream.into_std().unwrap();
        spin.run(|| drop(Async::new(cx, stream.try_clone().unwrap()).unwrap()));
    }),
    ("Async::read", |cx, spin| {
        let (stream, peer) = for_futures(cx);
        drop(peer);
        spin.run(|| assert_eq!(cx.await_future(stream.read(&mut [0; 4])).unwrap().unwrap(), 0));
    }),
    ("Async::write", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        spin.run(|| assert_eq!(cx.await_future(stream.write(&[])).unwrap().unwrap(), 0));
    }),
    ("Async::write_all", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        spin.run(|| cx.await_future(stream.write_all(&[])).unwrap().unwrap());
    }),
    ("Async::poll_read", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        spin.run(|| assert!(stream.poll_read(&mut context, &mut [0; 4]).is_pending()));
    }),
    ("Async::poll_write", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        spin.run(|| assert!(stream.poll_write(&mut context, &[]).is_ready()));
    }),
    ("Async::shutdown", |cx, spin| {
        let (stream, _peer) = for_futures(cx);
        spin.run(|| drop(stream.shutdown(std::net::Shutdown::Write)));
    }),
    ("Async::accept", |cx, spin| {
        let (listener, ..) = connected(cx);
        let address = listener.local_addr().unwrap();
        let listener = Async::new(cx, listener.into_std().unwrap()).unwrap();
        spin.run(|| {
            let stream = TcpStream::connect(cx, address).unwrap();
            drop((cx.await_future(listener.accept()).unwrap().unwrap(), stream));
        });
    }),
    ("Stream::write_vectored", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| assert_eq!(stream.write_vectored(cx, &[]).unwrap(), 0));
    }),
    ("UnixStream::connect", |cx, spin| spin.run(|| drop(UnixStream::connect(cx, "/nowhere/x").unwrap_err()))),
    ("UnixStream::pair", |cx, spin| spin.run(|| drop(UnixStream::pair(cx).unwrap()))),
    ("UnixListener::bind", |cx, spin| spin.run(|| drop(UnixListener::bind(cx, "/nowhere/x").unwrap_err()))),
    ("UnixListener::from_std", |cx, spin| {
        let (_path, listener) = unix_listener();
        spin.run(|| drop(UnixListener::from_std(cx, listener.try_clone().unwrap()).unwrap()));
    }),
    ("UnixListener::accept", |cx, spin| {
        let (path, listener) = unix_listener();
        let listener = UnixListener::from_std(cx, listener).unwrap();
        spin.run(|| {
            let client = UnixStream::connect(cx, path.join("socket")).unwrap();
            drop((listener.accept(cx).unwrap(), client));
        });
    }),
    ("UnixListener::accept_timeout", |cx, spin| {
        let (_path, listener) = unix_listener();
        let listener = UnixListener::from_std(cx, listener).unwrap();
        spin.run(|| drop(listener.accept_timeout(cx, ZERO).unwrap_err()));
    }),
    ("UnixDatagram::bind", |cx, spin| spin.run(|| drop(UnixDatagram::bind(cx, "/nowhere/x").unwrap_err()))),
    ("UnixDatagram::pair", |cx, spin| spin.run(|| drop(UnixDatagram::pair(cx).unwrap()))),
    ("UnixDatagram::from_std", |cx, spin| {
        let (one, _two) = std::os::unix::net::UnixDatagram::pair().unwrap();
        spin.run(|| drop(UnixDatagram::from_std(cx, one.try_clone().unwrap()).unwrap()));
    }),
    ("UnixDatagram::send_to", |cx, spin| {
        let (one, _two) = UnixDatagram::pair(cx).unwrap();
        spin.run(|| drop(one.send_to(cx, b"x", "/nowhere/x").unwrap_err()));
    }),
    ("UnixDatagram::send", |cx, spin| {
        let (one, two) = UnixDatagram::pair(cx).unwrap();
        drop(two);
        spin.run(|| drop(one.send(cx, b"x").unwrap_err()));
    }),
    ("UnixDatagram::recv_from", |cx, spin| {
        let (one, two) = UnixDatagram::pair(cx).unwrap();
        spin.run(|| {
            one.send(cx, b"x").unwrap();
            two.recv_from(cx, &mut [0; 4]).unwrap();
        });
    }),
    ("UnixDatagram::recv_from_timeout", |cx, spin| {
        let (one, _two) = UnixDatagram::pair(cx).unwrap();
        spin.run(|| drop(one.recv_from_timeout(cx, &mut [0; 4], ZERO).unwrap_err()));
    }),
    ("Ready::new", |cx, spin| {
        let (one, _two) = std::os::unix::net::UnixDatagram::pair().unwrap();
        spin.run(|| drop(Ready::new(cx, one.try_clone().unwrap()).unwrap()));
    }),
    ("Ready::read_with", |cx, spin| {
        with_ready(cx, |ready| spin.run(|| ready.read_with(cx, |_| Ok(())).unwrap()));
    }),
    ("Ready::write_with", |cx, spin| {
        with_ready(cx, |ready| spin.run(|| ready.write_with(cx, |_| Ok(())).unwrap()));
    }),
    ("Ready::read_with_timeout", |cx, spin| {
        with_ready(cx, |ready| {
            let never = || std::io::Error::from(std::io::ErrorKind::WouldBlock);
            spin.run(|| drop(ready.read_with_timeout(cx, ZERO, |_| Err::<(), _>(never())).unwrap_err()));
        });
    }),
    ("File::open", |cx, spin| spin.run(|| drop(File::open(cx, "/nowhere").unwrap_err()))),
    ("File::open_with", |cx, spin| {
        spin.run(|| drop(File::open_with(cx, &std::fs::OpenOptions::new(), "/nowhere").unwrap_err()));
    }),
    ("File::read_at", |cx, spin| {
        let file = File::open(cx, "/dev/null").unwrap();
        spin.run(|| assert_eq!(file.read_at(cx, &mut [0; 4], 0).unwrap(), 0));
    }),
    ("File::write_at", |cx, spin| {
        let file = File::open(cx, "/dev/null").unwrap();
        spin.run(|| drop(file.write_at(cx, b"x", 0).unwrap_err()));
    }),
    ("File::write_all_at", |cx, spin| {
        let file = File::open(cx, "/dev/null").unwrap();
        spin.run(|| file.write_all_at(cx, &[], 0).unwrap());
    }),
    ("File::sync_all", |cx, spin| {
        let file = File::open(cx, "/dev/null").unwrap();
        spin.run(|| drop(file.sync_all(cx)));
    }),
    ("wait_child", |cx, spin| {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        wait_child(cx, &mut child).unwrap();
        // It has been waited for: there is no such process any more.
        spin.run(|| drop(wait_child(cx, &mut child)));
    }),
    ("read_file", |cx, spin| spin.run(|| drop(read_file(cx, "/nowhere").unwrap_err()))),
    ("write_file", |cx, spin| spin.run(|| drop(write_file(cx, "/nowhere/x", b"").unwrap_err()))),
];

/// A Unix socket that listens, in a folder of its own.
fn unix_listener() -> (std::path::PathBuf, std::os::unix::net::UnixListener) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("mainspring-free-calls-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
    (folder, listener)
}

/// With something that can be waited for.
fn with_ready(cx: &Cx, f: impl FnOnce(&Ready<std::os::unix::net::UnixDatagram>)) {
    let (one, _two) = std::os::unix::net::UnixDatagram::pair().unwrap();
    f(&Ready::new(cx, one).unwrap());
}

/// A context of which a task that spins uses little.
fn small_context(cx: &Cx) -> SchedulingContext {
    cx.create_context(Reservation::new(Duration::from_millis(1), Duration::from_millis(10))).unwrap()
}

fn a_rate() -> Rate {
    Rate::per(Duration::from_secs(1)).limit(Component::Ops, 1000)
}

/// An endpoint with a task that serves it.
fn with_server(cx: &Cx, f: impl FnOnce(&Cx, &Endpoint<(), ()>)) {
    let endpoint = cx.endpoint().unwrap();
    cx.nursery(|n| {
        let served = endpoint.clone();
        let budget = Budget { ops: u32::MAX / 2, channel_ops: u16::MAX, ..Budget::ZERO };
        let serve = move |cx: &Cx| {
            while let Ok(((), reply)) = served.receive(cx) {
                assert!(!reply.is_on_loan() && !reply.is_over());
                reply.send(cx, ());
            }
        };
        n.builder().budget(budget).start(serve).unwrap();
        f(cx, &endpoint);
        endpoint.close();
    })
    .unwrap();
}

/// Those that need a runtime with contexts.
const ON_CONTEXTS: &[(&str, Loop)] = &[
    ("Cx::create_context", |cx, spin| spin.run(|| drop(small_context(cx)))),
    ("Cx::create_context", |cx, spin| {
        without_authority(cx, |cx| {
            let wish = Reservation::new(ZERO, ZERO);
            spin.run(|| assert!(cx.create_context(wish).is_err()));
        });
    }),
    ("Runtime::create_context", |_, spin| {
        let wish = Reservation::new(ZERO, ZERO);
        spin.run(|| assert!(spin.runtime.create_context(wish).is_err()));
    }),
    ("Cx::context", |cx, spin| spin.run(|| _ = cx.context())),
    ("SchedulingContext::bind", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.bind(cx));
    }),
    ("SchedulingContext::unbind", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| {
            context.bind(cx).unwrap();
            assert!(context.unbind(cx).unwrap());
        });
    }),
    ("SchedulingContext::info", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.info().unwrap());
    }),
    ("Runtime::policy_service", |_, spin| spin.run(|| _ = spin.runtime.policy_service(a_manifest()))),
    ("Runtime::now", |_, spin| spin.run(|| _ = spin.runtime.now())),
    ("Runtime::set_weight_of", |_, spin| {
        spin.run(|| assert!(!spin.runtime.set_weight_of(usize::MAX, Weight::DEFAULT)));
    }),
    ("PolicyService::start", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| _ = service.start());
    }),
    ("PolicyService::heard", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        service.start().unwrap();
        spin.run(|| service.heard().unwrap());
    }),
    ("PolicyService::treat", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        service.start().unwrap();
        let mut epoch = 0;
        spin.run(|| {
            epoch += 1;
            let _taken = service.treat(Epoch(epoch), &[]);
        });
    }),
    ("PolicyService::treatment", |_, spin| {
        let service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| assert!(service.treatment(0).is_none()));
    }),
    ("PolicyService::poll", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| service.poll());
    }),
    ("PolicyService::poll_in", |_, spin| {
        let service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| _ = service.poll_in());
    }),
    ("PolicyService::exited", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| service.exited());
    }),
    ("PolicyService::thread_ended", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| service.thread_ended(0));
    }),
    ("Session::logout", |_, spin| {
        let session = spin.runtime.open_session().unwrap();
        spin.run(|| _ = session.logout());
    }),
    ("SchedulingContext::last_known", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.last_known().unwrap());
    }),
    ("SchedulingContext::adjust", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.adjust(spin.runtime, ZERO, ZERO));
    }),
    ("SchedulingContext::on_fault", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| context.on_fault(|_| {}));
    }),
    ("SchedulingContext::revoke", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.revoke());
    }),
    ("SchedulingContext::bind_to_tenant", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.bind_to_tenant(spin.runtime, 1));
    }),
    ("SchedulingContext::unbind_group", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.unbind_group().unwrap());
    }),
    ("Nursery::bind_context", |cx, spin| {
        let context = small_context(cx);
        cx.nursery(|n| spin.run(|| _ = n.bind_context(&context))).unwrap();
    }),
    ("SchedulingContext::notices", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.notices().unwrap());
    }),
    ("SchedulingContext::wait_notices", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.wait_notices(cx, Some(ZERO)).unwrap());
    }),
];

/// Public functions that are in no loop of a task's, and why.
const NOT_REPEATED: &[(&str, &str)] = &[
    ("Cx::id", "a constant of the task: a loop of it is an empty loop"),
    ("Cx::caps", "a constant of the task"),
    ("Cx::worker", "constant between two yield points"),
    ("Cx::yield_interval", "a constant of the runtime"),
    ("Cx::meter", "makes a value; its methods charge ops"),
    ("Cx::kill_worker", "ends the task"),
    ("Handle::id", "a constant of the task"),
    ("Handle::wait", "for ordinary threads, blocks"),
    ("Nursery::builder", "makes a value; what it spawns counts"),
    ("SpawnBuilder::budget", "sets a value"),
    ("SpawnBuilder::pool", "sets a value"),
    ("SpawnBuilder::caps", "sets a value"),
    ("SpawnBuilder::stack_size", "sets a value"),
    ("SpawnBuilder::name", "sets a value"),
    ("SpawnBuilder::tenant", "sets a value"),
    ("SpawnBuilder::schedule", "sets a value"),
    ("SpawnBuilder::context", "sets a value"),
    ("SpawnBuilder::quota", "sets a value"),
    ("SpawnBuilder::priority", "sets a value"),
    ("SchedulingContext::number", "a constant of the context"),
    ("Session::name", "a constant of the session"),
    ("PolicyService::boundary", "a look at a value of the caller's own"),
    ("Select::new", "makes a value"),
    ("Select::recv", "sets a value"),
    ("Select::send", "sets a value"),
    ("Select::in_order", "sets a value"),
    ("Select::run_blocking", "for ordinary threads, blocks"),
    ("Sender::send_blocking", "for ordinary threads, blocks"),
    ("Sender::send_blocking_timeout", "for ordinary threads, blocks"),
    ("Receiver::recv_blocking", "for ordinary threads, blocks"),
    ("Receiver::recv_blocking_timeout", "for ordinary threads, blocks"),
    ("Runtime::open_nursery", "for ordinary threads, ends by blocking"),
    ("Runtime::open_run", "for ordinary threads, ends by blocking"),
    ("Runtime::spawn_root", "a spawn"),
    ("Reply::is_on_loan", "a constant of the reply"),
    ("Reply::is_over", "a constant once it is true, and a poll that counts before"),
    ("Parker::park_blocking", "for ordinary threads, blocks"),
    ("Nursery::spawner", "makes a value; what it spawns counts"),
    ("Nursery::thread_spawner", "makes a value; what it spawns counts"),
    ("Signals::recv_blocking", "for ordinary threads, blocks"),
    ("Async::get_ref", "a constant of the socket"),
    ("Stream::get_ref", "a constant of the socket"),
    ("Stream::with", "makes a value"),
    ("UnixListener::get_ref", "a constant of the socket"),
    ("UnixDatagram::get_ref", "a constant of the socket"),
    ("Ready::get_ref", "a constant of the socket"),
    ("File::get_ref", "a constant of the file"),
    ("JoinSet::new", "makes a value"),
    ("Supervisor::new", "makes a value"),
    ("Supervisor::intensity", "sets a value"),
    ("Supervisor::pool", "sets a value"),
    ("Supervisor::on_exhausted", "sets a value"),
    ("Supervisor::child", "sets a value"),
    ("Select::notified", "sets a value"),
    ("Select::acquire", "sets a value"),
    ("Select::cancelled", "sets a value"),
    ("Select::changed", "sets a value"),
    ("Select::ended", "sets a value"),
    ("Select::readable", "sets a value"),
    ("Select::writable", "sets a value"),
    ("Semaphore::acquire_blocking", "for ordinary threads, blocks"),
    ("Mutex::lock_blocking", "for ordinary threads, blocks"),
    ("RwLock::new", "makes a value that no other task knows"),
    ("RwLock::into_inner", "ends a value"),
    ("RwLock::read_blocking", "for ordinary threads, blocks"),
    ("RwLock::write_blocking", "for ordinary threads, blocks"),
    ("Notify::new", "makes a value that no other task knows"),
    ("Notify::notified_blocking", "for ordinary threads, blocks"),
    ("Condvar::new", "makes a value that no other task knows"),
    ("Condvar::wait_blocking", "for ordinary threads, blocks"),
    ("Barrier::new", "makes a value that no other task knows"),
    ("Barrier::wait_blocking", "for ordinary threads, blocks"),
    ("CancelToken::new", "makes a value that no other task knows"),
    ("CancelToken::cancelled_blocking", "for ordinary threads, blocks"),
    ("OneshotSender::send_blocking", "ends a value"),
    ("OneshotReceiver::recv_blocking", "for ordinary threads, blocks"),
    ("OneshotReceiver::receiver", "a constant of the channel"),
    ("WatchReceiver::changed_blocking", "for ordinary threads, blocks"),
    ("BroadcastReceiver::recv_blocking", "for ordinary threads, blocks"),
    ("Semaphore::new", "makes a value that no other task knows"),
    ("Mutex::new", "makes a value that no other task knows"),
    ("Mutex::into_inner", "ends a value"),
    ("Once::new", "makes a value that no other task knows"),
    ("TcpListener::into_std", "ends a value"),
    ("Stream::into_std", "ends a value"),
    ("UdpSocket::into_std", "ends a value"),
    ("Runtime::run", "for ordinary threads, blocks"),
    ("Runtime::nursery", "for ordinary threads, blocks"),
];

/// Of a policy service that nobody recovers from.
fn a_manifest() -> Manifest {
    Manifest::new(CpuSet::first(1), ThreadRef::new(u32::MAX, 0))
}

fn without_authority(cx: &Cx, f: impl FnOnce(&Cx) + Send) {
    cx.nursery(|n| {
        let budget = Budget { ops: 1 << 30, ..Budget::ZERO };
        n.builder().budget(budget).caps(Caps::none()).spawn(f).unwrap().join(cx).unwrap();
    })
    .unwrap();
}

/// With a child that waits until it is cancelled.
fn with_child(
    cx: &Cx,
    f: impl for<'s> FnOnce(&Cx, &mainspring::Nursery<'s, '_>, &mainspring::Handle<'s, ()>),
) {
    let _ = cx.nursery(|n| {
        let parker = Parker::default();
        let parker = &*Box::leak(Box::new(parker));
        let child = n.spawn(move |cx| _ = parker.park(cx, None)).unwrap();
        f(cx, n, &child);
        n.cancel();
    });
}

/// Repeats one operation in the root task of a runtime with one worker; another task must get two turns.
fn repeat(config: Config, most: u64, call: Loop) -> Result<(), mainspring::TaskError> {
    let runtime = config.build().unwrap();
    let done = AtomicBool::new(false);
    runtime.run(|cx| {
        let spin = Spin { runtime: &runtime, done: &done, calls: AtomicU64::new(0), most, growth: None };
        cx.nursery(|n| {
            n.start(|cx| {
                cx.yield_now();
                done.store(true, Ordering::Relaxed);
            })
            .unwrap();
            call(cx, &spin);
        })
        .map_err(|error| error.error)
    })?
}

fn config() -> Config {
    let caps = Caps::root(10_000, Budget::MAX, Budget::MAX, u32::MAX, u32::MAX);
    Config::new(Profile::Cluster).workers(1).root_caps(caps)
}

fn every_call_gives_way(config: impl Fn() -> Config, most: u64, calls: &[&[(&str, Loop)]]) {
    let _beside = beside_others();
    let only = std::env::var("MAINSPRING_CALL").ok();
    let starved: Vec<_> = calls
        .iter()
        .copied()
        .flatten()
        .filter(|(name, _)| only.as_ref().is_none_or(|only| only == name))
        .filter_map(|&(name, call)| {
            println!("{name}");
            repeat(config(), most, call).err().map(|error| format!("{name}: {error}"))
        })
        .collect();
    assert!(starved.is_empty(), "{starved:#?}; once more, with one of them alone: MAINSPRING_CALL=name");
}

/// Calls without a context give way after a million at the latest, others after a thousand.
const MOST: u64 = 3 << 20;
/// Where the clock decides: far more than fit into a turn.
const MOST_BY_TIME: u64 = 500_000_000;

//= OWN:free-calls
#[test]
fn every_call_gives_way_to_the_workers_other_tasks() {
    every_call_gives_way(config, MOST, &[CALLS, OUTSIDE]);
}

//= OWN:free-calls
#[test]
fn every_call_gives_way_where_the_order_is_deterministic() {
    every_call_gives_way(|| config().deterministic_seed(1), MOST, &[CALLS]);
}

//= OWN:free-calls
#[test]
fn every_call_gives_way_where_the_order_is_deterministic_and_fair() {
    // The clock counts what the calls took.
    let tenants = [Weight::new(64).unwrap(), Weight::new(64).unwrap()];
    every_call_gives_way(|| config().fair(&tenants).deterministic_seed(1), 16 * MOST, &[CALLS]);
}

//= OWN:free-calls
#[test]
fn every_call_gives_way_under_the_fair_disciplines() {
    every_call_gives_way(|| config().fair(&[Weight::new(64).unwrap()]), MOST_BY_TIME, &[CALLS, OUTSIDE]);
    every_call_gives_way(
        || config().fair_by_task(FairTaskSettings::default()),
        MOST_BY_TIME,
        &[CALLS, OUTSIDE],
    );
    every_call_gives_way(with_contexts, MOST_BY_TIME, &[ON_CONTEXTS]);
}

fn with_contexts() -> Config {
    let settings = FairTaskSettings { contexts: 8, sessions: 1, leases: 1, ..FairTaskSettings::default() };
    let caps = Caps::root(10_000, Budget::MAX, Budget::MAX, u32::MAX, u32::MAX).with_contexts(8, 1_000_000);
    config().root_caps(caps).fair_by_task(settings)
}

/// How much more is held after five times as many calls.
fn growth(config: Config, calls: u64, call: Loop) -> u64 {
    let runtime = config.build().unwrap();
    let (done, growth) = (AtomicBool::new(true), AtomicU64::new(0));
    let ended = runtime.run(|cx| {
        let growth = Some(&growth);
        call(cx, &Spin { runtime: &runtime, done: &done, calls: AtomicU64::new(0), most: calls, growth });
    });
    ended.unwrap();
    growth.into_inner()
}

#[test]
fn what_a_repeated_call_holds_does_not_grow() {
    let _alone = BYTES.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    const CALLS_MADE: u64 = 2_000;
    /// Two bytes for each of the further calls. What is held for a call has at least a pointer to it.
    const AT_MOST: u64 = 2 * 4 * CALLS_MADE;
    type Tables = &'static [&'static [(&'static str, Loop)]];
    let plainly: (fn() -> Config, Tables) = (config, &[CALLS, OUTSIDE]);
    let on_contexts: (fn() -> Config, Tables) = (with_contexts, &[ON_CONTEXTS]);
    let mut grown = Vec::new();
    for (config, tables) in [plainly, on_contexts] {
        for &(name, call) in tables.iter().copied().flatten() {
            if growth(config(), CALLS_MADE, call) <= AT_MOST {
                continue;
            }
            // What is kept to be used again grows to its limit: a worker keeps up to 8,192 records of tasks.
            let calls = 10 * CALLS_MADE;
            let growth = growth(config(), calls, call);
            if growth > AT_MOST {
                grown.push(format!("{name}: {growth} bytes more after {} more calls", 4 * calls));
            }
        }
    }
    assert!(grown.is_empty(), "{grown:#?}");
}

/// The public functions of the types through which a task reaches the runtime, by their sources.
fn public_functions() -> BTreeSet<String> {
    const TYPES: &[&str] = &[
        "Cx",
        "Nursery",
        "SpawnBuilder",
        "Handle",
        "Sender",
        "Receiver",
        "Select",
        "Semaphore",
        "Mutex",
        "Once",
        "RwLock",
        "Notify",
        "Condvar",
        "Barrier",
        "CancelToken",
        "OneshotSender",
        "OneshotReceiver",
        "WatchSender",
        "WatchReceiver",
        "BroadcastSender",
        "BroadcastReceiver",
        "Async",
        "Timer",
        "Spawner",
        "ThreadSpawner",
        "Signals",
        "JoinSet",
        "Supervisor",
        "Address",
        "Mailbox",
        "Abroad",
        "Parker",
        "Interval",
        "TcpListener",
        "TcpStream",
        "UdpSocket",
        "Stream",
        "UnixStream",
        "UnixListener",
        "UnixDatagram",
        "Ready",
        "File",
        "Runtime",
        "SchedulingContext",
        "Endpoint",
        "Reply",
        "Quota",
        "Session",
        "PolicyService",
    ];
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let text = std::fs::read_to_string(&entry).unwrap();
                // A loose function counts if it is one of the module of sockets and files.
                let is_io = entry.ends_with("io/mod.rs") || entry.ends_with("io/ready.rs");
                functions_of(&text, TYPES, is_io, &mut found);
            }
        }
    }
    found
}

fn functions_of(text: &str, types: &[&str], loose: bool, found: &mut BTreeSet<String>) {
    let mut of = None;
    for line in text.lines() {
        if line.starts_with("impl") {
            // `impl<'a, T: X> Type<..> {`, or `impl<..> Trait for Type<..> {`.
            let mut depth = 0;
            let bare: String = line
                .chars()
                .filter(|&c| {
                    depth += i32::from(c == '<');
                    let keep = depth == 0;
                    depth -= i32::from(c == '>');
                    keep
                })
                .collect();
            let name = bare.trim_start_matches("impl").split('{').next().unwrap().trim();
            let is_trait = name.contains(" for ");
            of = types.iter().find(|&&known| known == name && !is_trait);
        } else if line.starts_with('}') {
            of = None;
        }
        let (indent, rest) = (line.len() - line.trim_start().len(), line.trim_start());
        let Some(rest) = rest.strip_prefix("pub ") else { continue };
        let rest =
            rest.trim_start_matches("const ").trim_start_matches("unsafe ").trim_start_matches("async ");
        let Some(name) = rest.strip_prefix("fn ") else { continue };
        let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        match (indent, of) {
            (4, Some(of)) => _ = found.insert(format!("{of}::{name}")),
            (0, _) if loose => _ = found.insert(name),
            _ => {}
        }
    }
}

#[test]
fn no_public_operation_is_missing_from_the_table() {
    let public = public_functions();
    assert!(public.contains("Cx::sleep") && public.contains("Select::run") && public.contains("read_file"));
    let clones = [
        "Sender::clone",
        "Receiver::clone",
        "WatchReceiver::clone",
        "BroadcastSender::clone",
        "BroadcastReceiver::clone",
        "Address::clone",
    ];
    let known: BTreeSet<&str> = CALLS
        .iter()
        .chain(OUTSIDE)
        .chain(ON_CONTEXTS)
        .map(|(name, _)| *name)
        .chain(NOT_REPEATED.iter().map(|(name, _)| *name))
        .collect();
    let missing: Vec<_> = public.iter().filter(|name| !known.contains(name.as_str())).collect();
    let gone: Vec<_> =
        known.iter().filter(|name| !public.contains(**name) && !clones.contains(name)).collect();
    assert!(missing.is_empty(), "add these to the table, and count them: {missing:?}");
    assert!(gone.is_empty(), "there are no such functions: {gone:?}");
}
