//! No loop of calls keeps a worker from its other tasks: each public operation, repeated on one worker beside a task that
//! must get on, under every discipline. What counts is the number of calls, never a clock.
#![allow(unsafe_code)]

use mainspring::io::{TcpListener, TcpStream, UdpSocket, read_file, write_file};
use mainspring::sync::{Mutex, Once, Semaphore};
use mainspring::{
    Budget, Capacity, Caps, Component, Config, Cx, Endpoint, FairTaskSettings, NurseryOptions, Parker, Pool,
    Profile, Reservation, Runtime, SchedulingContext, Select, Weight,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Repeats a call until the other task has got on.
struct Spin<'a> {
    runtime: &'a Runtime,
    done: &'a AtomicBool,
    calls: AtomicU64,
    most: u64,
}

impl Spin<'_> {
    fn run(&self, mut call: impl FnMut()) {
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
    ("Cx::endpoint", |cx, spin| spin.run(|| drop(cx.endpoint::<(), ()>().unwrap()))),
    ("Cx::endpoint_without_donation", |cx, spin| {
        spin.run(|| drop(cx.endpoint_without_donation::<(), ()>().unwrap()));
    }),
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
    ("TcpStream::from_std", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        let stream = stream.into_std().unwrap();
        spin.run(|| drop(TcpStream::from_std(cx, stream.try_clone().unwrap()).unwrap()));
    }),
    ("TcpStream::read_timeout", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| drop(stream.read_timeout(cx, &mut [0; 4], ZERO).unwrap_err()));
    }),
    ("TcpStream::write_timeout", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| drop(stream.write_timeout(cx, b"x", ZERO)));
    }),
    ("TcpStream::read", |cx, spin| {
        let (_listener, stream, peer) = connected(cx);
        drop(peer);
        spin.run(|| assert_eq!(stream.read(cx, &mut [0; 4]).unwrap(), 0));
    }),
    ("TcpStream::read_exact", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| stream.read_exact(cx, &mut []).unwrap());
    }),
    ("TcpStream::write", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| assert_eq!(stream.write(cx, &[]).unwrap(), 0));
    }),
    ("TcpStream::write_all", |cx, spin| {
        let (_listener, stream, _peer) = connected(cx);
        spin.run(|| stream.write_all(cx, &[]).unwrap());
    }),
    ("TcpStream::shutdown", |cx, spin| {
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
    ("read_file", |cx, spin| spin.run(|| drop(read_file(cx, "/nowhere").unwrap_err()))),
    ("write_file", |cx, spin| spin.run(|| drop(write_file(cx, "/nowhere/x", b"").unwrap_err()))),
];

/// A context of which a task that spins uses little.
fn small_context(cx: &Cx) -> SchedulingContext {
    cx.create_context(Reservation::new(Duration::from_millis(1), Duration::from_millis(10))).unwrap()
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
    ("SchedulingContext::revoke", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.revoke());
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
    ("SpawnBuilder::priority", "sets a value"),
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
    ("Semaphore::new", "makes a value that no other task knows"),
    ("Mutex::new", "makes a value that no other task knows"),
    ("Mutex::into_inner", "ends a value"),
    ("Once::new", "makes a value that no other task knows"),
    ("TcpListener::into_std", "ends a value"),
    ("TcpStream::into_std", "ends a value"),
    ("UdpSocket::into_std", "ends a value"),
    ("Runtime::run", "for ordinary threads, blocks"),
    ("Runtime::nursery", "for ordinary threads, blocks"),
];

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
        let spin = Spin { runtime: &runtime, done: &done, calls: AtomicU64::new(0), most };
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
    let starved: Vec<_> = calls
        .iter()
        .copied()
        .flatten()
        .filter_map(|&(name, call)| {
            println!("{name}");
            repeat(config(), most, call).err().map(|error| format!("{name}: {error}"))
        })
        .collect();
    assert!(starved.is_empty(), "{starved:#?}");
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
    let settings = FairTaskSettings { contexts: 8, ..FairTaskSettings::default() };
    let caps = Caps::root(10_000, Budget::MAX, Budget::MAX, u32::MAX, u32::MAX).with_contexts(8, 1_000_000);
    every_call_gives_way(
        || config().root_caps(caps).fair_by_task(settings.clone()),
        MOST_BY_TIME,
        &[ON_CONTEXTS],
    );
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
        "Parker",
        "Interval",
        "TcpListener",
        "TcpStream",
        "UdpSocket",
        "Runtime",
        "SchedulingContext",
        "Endpoint",
        "Reply",
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
                let is_io = entry.ends_with("io/mod.rs");
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
        let rest = rest.trim_start_matches("const ").trim_start_matches("unsafe ");
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
    let clones = ["Sender::clone", "Receiver::clone"];
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
