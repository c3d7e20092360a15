//! Another event loop on the thread of the first worker.

use mainspring::event_loop::{AttachError, EventLoop};
use mainspring::io::{IoDriver, TcpListener, TcpStream};
use mainspring::{Capacity, Config, Pool, Profile, Runtime};
use std::collections::VecDeque;
use std::fmt;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Far beyond what anything here takes on a busy host.
const HANGS: Duration = Duration::from_secs(20);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Inside {
    jobs: VecDeque<Job>,
    rung: bool,
}

/// A loop that runs what it is given.
#[derive(Default)]
struct Jobs {
    inside: Mutex<Inside>,
    changed: Condvar,
    waits: AtomicUsize,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jobs")
    }
}

impl Jobs {
    fn add(&self, job: impl FnOnce() + Send + 'static) {
        self.inside.lock().expect("no job holds it").jobs.push_back(Box::new(job));
        self.changed.notify_one();
    }
}

impl EventLoop for Jobs {
    fn wait(&self, timeout: Option<Duration>) {
        self.waits.fetch_add(1, Ordering::SeqCst);
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut inside = self.inside.lock().expect("no job holds it");
        loop {
            if let Some(job) = inside.jobs.pop_front() {
                drop(inside);
                job();
                inside = self.inside.lock().expect("no job holds it");
                continue;
            }
            let left = until.map_or(HANGS, |until| until.saturating_duration_since(Instant::now()));
            if std::mem::take(&mut inside.rung) || left.is_zero() {
                return;
            }
            inside = self.changed.wait_timeout(inside, left).expect("no job holds it").0;
        }
    }

    fn wake(&self) {
        self.inside.lock().expect("no job holds it").rung = true;
        self.changed.notify_one();
    }
}

fn runtime(workers: usize) -> (Arc<Runtime>, Arc<Jobs>) {
    let jobs = Arc::new(Jobs::default());
    let config = Config::new(Profile::Cluster).workers(workers).event_loop(jobs.clone());
    (Arc::new(config.build().expect("a runtime")), jobs)
}

fn here() -> ThreadId {
    std::thread::current().id()
}

#[test]
fn what_the_loop_sends_an_actor_handles_and_answers_on_its_thread() {
    let (runtime, jobs) = runtime(1);
    let (tx, addresses) = mpsc::channel();
    let serving = std::thread::spawn({
        let runtime = runtime.clone();
        move || {
            runtime.run(|cx| {
                let (address, mailbox) = cx.mailbox(4, Pool::ZERO).expect("a mailbox");
                tx.send(address).expect("the test waits");
                mailbox.serve(cx, &mut (), |(), _, (): ()| here()).expect("it serves");
            })
        }
    });
    let address = addresses.recv().expect("an address");
    let (said, replies) = mpsc::channel();
    for _ in 0..100 {
        let (runtime, address, said) = (runtime.clone(), address.clone(), said.clone());
        jobs.add(move || {
            let sent_by = here();
            let grant = Pool { ops: 10, spawn_count: 1, ..Pool::ZERO };
            let never = Arc::new(AtomicBool::new(false));
            let reply = move |handled: Result<ThreadId, _>, _| {
                said.send((sent_by, handled.expect("it is handled"), here())).expect("the test waits");
            };
            runtime.send_from_outside(&address, (), grant, never, reply).expect("there is room");
        });
        let (sent_by, handled_by, answered_by) = replies.recv_timeout(HANGS).expect("a reply");
        assert_eq!((handled_by, answered_by), (sent_by, sent_by));
    }
    address.close();
    serving.join().expect("no panic").expect("it ends");
}

/// Adds a job that says when it has run, and has a task of the only worker do `step` until then.
fn runs_beside(workers: usize, step: impl Fn(&mainspring::Cx) + Sync) {
    let (runtime, jobs) = runtime(workers);
    let has_run = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let beside = runtime.run(|cx| {
        let told = has_run.clone();
        jobs.add(move || told.store(true, Ordering::SeqCst));
        while !has_run.load(Ordering::SeqCst) && began.elapsed() < HANGS {
            step(cx);
        }
        // Afterwards the worker has nothing to do.
        has_run.load(Ordering::SeqCst)
    });
    assert!(beside.expect("it runs"), "the loop never had a turn");
}

#[test]
fn a_task_that_only_checks_lets_the_loop_have_its_turn() {
    runs_beside(1, mainspring::Cx::check);
}

#[test]
fn a_task_that_yields_lets_the_loop_have_its_turn() {
    runs_beside(1, mainspring::Cx::yield_now);
}

#[test]
fn tasks_that_wait_for_each_other_all_the_time_let_the_loop_have_its_turn() {
    let (runtime, jobs) = runtime(1);
    let has_run = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let ended = runtime.run(|cx| {
        cx.nursery(|n| {
            let (to, asks) = cx.channel::<u32>(Capacity::Bounded(1)).expect("a channel");
            let (back, replies) = cx.channel::<u32>(Capacity::Bounded(1)).expect("a channel");
            n.start(move |cx| {
                asks.iter(cx).map_while(Result::ok).for_each(|ask| back.send(cx, ask).expect("it listens"));
            })
            .expect("it starts");
            let told = has_run.clone();
            jobs.add(move || told.store(true, Ordering::SeqCst));
            while !has_run.load(Ordering::SeqCst) && began.elapsed() < HANGS {
                to.send(cx, 1).expect("it listens");
                replies.recv(cx).expect("a reply");
            }
            // Afterwards the worker has nothing to do.
            has_run.load(Ordering::SeqCst)
        })
    });
    assert!(ended.expect("it runs").expect("it ends"), "the loop never had a turn");
}

#[test]
fn a_worker_with_nothing_to_do_waits_in_the_loop_and_nowhere_else() {
    let (runtime, jobs) = runtime(1);
    let (said, heard) = mpsc::channel();
    jobs.add(move || said.send(()).expect("the test waits"));
    heard.recv_timeout(HANGS).expect("the loop runs though there is no task");
    // A wait ends by a ring, or by a timer that is set: there is none.
    let before = jobs.waits.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(50));
    assert!(jobs.waits.load(Ordering::SeqCst) <= before + 1);
    drop(runtime);
}

#[test]
fn timers_sockets_and_other_workers_go_on_beside_a_loop() {
    let (runtime, _) = runtime(2);
    let ended = runtime.run(|cx| {
        cx.sleep(Duration::from_millis(5));
        let listener = TcpListener::bind(cx, "127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        cx.nursery(|n| {
            let answers = move |cx: &mainspring::Cx| {
                let (stream, _) = listener.accept(cx).expect("a connection");
                let mut byte = [0];
                stream.read_exact(cx, &mut byte).expect("a byte");
                stream.write_all(cx, &byte).expect("it listens");
            };
            n.start(answers).expect("it starts");
            let stream = TcpStream::connect(cx, address).expect("it listens");
            stream.write_all(cx, &[7]).expect("it listens");
            let mut byte = [0];
            stream.read_exact(cx, &mut byte).expect("an answer");
            assert_eq!(byte, [7]);
        })
    });
    ended.expect("it runs").expect("it ends");
}

#[test]
fn a_job_that_panics_ends_neither_the_worker_nor_the_loop() {
    let (runtime, jobs) = runtime(1);
    jobs.add(|| panic!("a panic on purpose"));
    for n in 0..3 {
        assert_eq!(runtime.run(move |_| n).expect("it runs"), n);
    }
    let (said, heard) = mpsc::channel();
    jobs.add(move || said.send(()).expect("the test waits"));
    heard.recv_timeout(HANGS).expect("the loop goes on");
}

#[test]
fn a_runtime_that_sleeps_takes_to_a_loop_and_to_one_only() {
    for workers in [1, 2] {
        let runtime = Config::new(Profile::Cluster).workers(workers).build().expect("a runtime");
        assert!(runtime.event_loop().is_none());
        // So long that its workers do not doze any more.
        std::thread::sleep(Duration::from_millis(20));
        let jobs = Arc::new(Jobs::default());
        runtime.attach_event_loop(jobs.clone()).expect("the first");
        let (said, heard) = mpsc::channel();
        jobs.add(move || said.send(()).expect("the test waits"));
        heard.recv_timeout(HANGS).expect("the loop runs though there is no task");
        assert_eq!(runtime.run(|_| 7).expect("it runs"), 7);
        let second = runtime.attach_event_loop(Arc::new(Jobs::default()));
        assert!(matches!(second, Err(AttachError::Taken)), "{second:?}");
    }
    let deterministic = Config::new(Profile::Cluster).deterministic_seed(1).build().expect("a runtime");
    let attached = deterministic.attach_event_loop(Arc::new(Jobs::default()));
    assert!(matches!(attached, Err(AttachError::Deterministic)), "{attached:?}");
}

/// With epoll a worker waits for sockets itself until it has a loop to wait in.
#[test]
fn a_socket_that_a_worker_waits_for_is_told_of_when_a_loop_is_attached() {
    let config = Config::new(Profile::Cluster).workers(1).io(IoDriver::Epoll);
    let runtime = Arc::new(config.build().expect("a runtime"));
    let (said, addresses) = mpsc::channel();
    let accepting = std::thread::spawn({
        let runtime = runtime.clone();
        move || {
            runtime.run(|cx| {
                let listener = TcpListener::bind(cx, "127.0.0.1:0").expect("a socket");
                said.send(listener.local_addr().expect("an address")).expect("the test waits");
                for _ in 0..2 {
                    let (stream, _) = listener.accept(cx).expect("a connection");
                    stream.write_all(cx, &[7]).expect("it listens");
                }
            })
        }
    });
    let address = addresses.recv().expect("an address");
    let connects = || {
        let mut byte = [0];
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(HANGS)).expect("a timeout");
        stream.read_exact(&mut byte).expect("a byte");
        assert_eq!(byte, [7]);
    };
    connects();
    std::thread::sleep(Duration::from_millis(20));
    let jobs = Arc::new(Jobs::default());
    runtime.attach_event_loop(jobs.clone()).expect("the first");
    let (said, heard) = mpsc::channel();
    jobs.add(move || said.send(()).expect("the test waits"));
    heard.recv_timeout(HANGS).expect("the worker waits in the loop");
    connects();
    accepting.join().expect("no panic").expect("it runs");
}

#[test]
fn a_job_may_drop_the_runtime_that_drives_it() {
    let (runtime, jobs) = runtime(2);
    let (said, heard) = mpsc::channel();
    let (go, gone) = mpsc::channel();
    jobs.add(move || {
        let () = gone.recv().expect("the test says so");
        drop(runtime);
        said.send(()).expect("the test waits");
    });
    go.send(()).expect("the job waits");
    heard.recv_timeout(HANGS).expect("the drop does not wait for itself");
}

/// Does what it is for, and then panics.
#[derive(Debug, Default)]
struct Panics(Jobs, AtomicUsize);

impl EventLoop for Panics {
    fn wait(&self, timeout: Option<Duration>) {
        self.0.wait(timeout);
    }

    fn wake(&self) {
        self.0.wake();
        self.1.fetch_add(1, Ordering::SeqCst);
        panic!("it has woken");
    }
}

#[test]
fn a_wake_that_panics_reaches_nobody_who_makes_work_known() {
    let panics = Arc::new(Panics::default());
    let config = Config::new(Profile::Cluster).workers(2).event_loop(panics.clone());
    let runtime = config.build().expect("a runtime");
    while panics.1.load(Ordering::SeqCst) < 20 {
        let sum = runtime.run(|cx| {
            let (one, two) = cx.join(|cx| cx.sleep(Duration::from_micros(50)), |_| ());
            cx.nursery(|n| n.spawn(|_| 2).expect("a child").join(cx).expect("it returns"))
                .map(|sum| (one, two, sum))
        });
        assert_eq!(sum.expect("it returns").expect("no child fails").2, 2);
    }
}
