//! Nodes whose actors and NATS client share one thread.

mod common;

use common::{HANGS, Server, identity};
use mainspring::{Pool, Profile, Runtime};
use mainspring_cluster::{CallError, Config, Exported, Message, Node, OneThread, Terms, Trusted, connect};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const GRANT: Pool = Pool { ops: 1_000, spawn_count: 1, ..Pool::ZERO };

fn start() -> OneThread {
    OneThread::start(mainspring::Config::new(Profile::Cluster).workers(1)).expect("it starts")
}

/// A node that joins on the thread of its runtime.
fn join(name: &str, server: &Server, on: &OneThread) -> Node {
    let trusted = ["anna", "bert"].iter().fold(Trusted::new(), |trusted, name| {
        trusted.believe(*name, &identity(name).public(), Pool::AMPLE).expect("a key")
    });
    let terms = Terms { trusted, grace: Duration::from_secs(1), ..Terms::default() };
    on.tokio().block_on(async {
        let server = connect(&Config::new(server.url())).await.expect("the server");
        Node::join(identity(name), on.runtime().clone(), terms, server).await.expect("a node")
    })
}

/// Exports an actor that says which thread it is on.
fn export(node: &Node, on: &OneThread) -> (Exported, mpsc::Receiver<ThreadId>) {
    let (tx, addresses) = mpsc::channel();
    let (said, threads) = mpsc::channel();
    let runtime = on.runtime().clone();
    std::thread::spawn(move || {
        runtime.run(|cx| {
            let (address, mailbox) = cx.mailbox(4, Pool::ZERO).expect("a mailbox");
            tx.send(address).expect("the test waits");
            let handler = |(): &mut (), _: &mainspring::Cx, message: Message| {
                let _ = said.send(std::thread::current().id());
                message.payload
            };
            mailbox.serve(cx, &mut (), handler).expect("it serves");
        })
    });
    let address = addresses.recv().expect("an address");
    (on.tokio().block_on(node.export("echo", address, 4)).expect("it is exported"), threads)
}

#[test]
fn an_actor_is_asked_on_the_thread_of_the_client_and_every_grant_comes_back() {
    let server = Server::start();
    let (here, there) = (start(), start());
    let (anna, bert) = (join("anna", &server, &here), join("bert", &server, &there));
    let (_exported, threads) = export(&bert, &there);
    let client = there.tokio().block_on(async { tokio::spawn(async { std::thread::current().id() }).await });
    let asked = here.runtime().run(|cx| {
        for n in 0..50_u8 {
            let reply = anna.actor("echo").ask(cx, vec![n], GRANT, HANGS);
            assert_eq!(reply, Ok(vec![n]));
        }
    });
    asked.expect("it runs");
    let threads: Vec<ThreadId> = threads.try_iter().collect();
    assert_eq!(threads, [client.expect("it runs"); 50]);
    let began = Instant::now();
    while (anna.balance().grants_in_flight > 0 || anna.unrecorded() > 0) && began.elapsed() < HANGS {
        std::thread::sleep(Duration::from_millis(20));
    }
    let balance = anna.balance();
    assert_eq!((balance.grants_in_flight, anna.unrecorded()), (0, 0));
    assert!(balance.is_conserved() && balance.lost.is_empty(), "{balance:?}");
}

#[test]
fn a_node_answers_while_its_only_worker_is_busy() {
    let server = Server::start();
    let (here, there) = (start(), start());
    let (anna, bert) = (join("anna", &server, &here), join("bert", &server, &there));
    let (_exported, _threads) = export(&bert, &there);
    let done = Arc::new(AtomicBool::new(false));
    let busy = std::thread::spawn({
        let (runtime, done) = (there.runtime().clone(), done.clone());
        move || {
            runtime.run(|cx| {
                while !done.load(Ordering::Relaxed) {
                    cx.check();
                }
            })
        }
    });
    let asked = here.runtime().run(|cx| anna.actor("echo").ask(cx, b"x".to_vec(), GRANT, HANGS));
    done.store(true, Ordering::Relaxed);
    assert_eq!(asked.expect("it runs"), Ok(b"x".to_vec()));
    busy.join().expect("no panic").expect("it runs");
}

#[test]
fn what_runs_there_ends_with_it_and_the_runtime_goes_on() {
    let server = Server::start();
    let place = start();
    let node = join("anna", &server, &place);
    let alive = Arc::new(());
    let (held, runtime): (Weak<()>, _) = (Arc::downgrade(&alive), place.runtime().clone());
    place.tokio().spawn(async move {
        std::future::pending::<()>().await;
        drop(alive);
    });
    assert_eq!(held.strong_count(), 1);
    drop(place);
    let began = Instant::now();
    while held.strong_count() > 0 && began.elapsed() < HANGS {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(held.strong_count(), 0, "the task of the loop is gone");
    for n in 0..3 {
        assert_eq!(runtime.run(move |_| n).expect("it runs"), n);
    }
    drop((node, runtime));
}

#[test]
fn it_can_be_dropped_by_what_runs_there() {
    let place = start();
    let (tokio, runtime) = (place.tokio().clone(), place.runtime().clone());
    let (said, heard) = mpsc::channel();
    tokio.spawn(async move {
        drop(place);
        said.send(()).expect("the test waits");
    });
    heard.recv_timeout(HANGS).expect("the drop does not wait for itself");
    assert_eq!(runtime.run(|_| 7).expect("it runs"), 7);
}

/// A node of an ordinary runtime, which joins from a Tokio of its own.
fn join_ordinary(name: &str, server: &Server, tokio: &tokio::runtime::Runtime) -> (Node, Arc<Runtime>) {
    let trusted = ["anna", "bert"].iter().fold(Trusted::new(), |trusted, name| {
        trusted.believe(*name, &identity(name).public(), Pool::AMPLE).expect("a key")
    });
    let terms = Terms { trusted, grace: Duration::from_secs(1), ..Terms::default() };
    let config = mainspring::Config::new(Profile::Cluster).workers(1);
    let runtime = Arc::new(config.build().expect("a runtime"));
    let node = tokio.block_on(async {
        let server = connect(&Config::new(server.url())).await.expect("the server");
        Node::join(identity(name), runtime.clone(), terms, server).await.expect("a node")
    });
    (node, runtime)
}

#[test]
fn an_ordinary_node_goes_on_while_its_only_worker_does_not_check() {
    let server = Server::start();
    let there = start();
    let bert = join("bert", &server, &there);
    let (_exported, _threads) = export(&bert, &there);
    let tokio = tokio::runtime::Runtime::new().expect("Tokio");
    let (anna, runtime) = join_ordinary("anna", &server, &tokio);
    let ask = || tokio.block_on(anna.actor("echo").ask_outside(b"x".to_vec(), GRANT, HANGS));
    assert_eq!(ask(), Ok(b"x".to_vec()));
    for _ in 0..3 {
        let done = Arc::new(AtomicBool::new(false));
        let (began, begins) = mpsc::channel();
        let busy = std::thread::spawn({
            let (runtime, done) = (runtime.clone(), done.clone());
            move || {
                runtime.run(|_| {
                    began.send(()).expect("the test waits");
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            }
        });
        begins.recv().expect("it begins");
        let asked = ask();
        done.store(true, Ordering::Relaxed);
        assert_eq!(asked, Ok(b"x".to_vec()), "another thread runs the client meanwhile");
        busy.join().expect("no panic").expect("it runs");
        // And the worker does again.
        assert_eq!(ask(), Ok(b"x".to_vec()));
    }
}

#[test]
fn two_nodes_of_one_ordinary_runtime_share_its_loop_and_it_ends_with_the_runtime() {
    let server = Server::start();
    let tokio = tokio::runtime::Runtime::new().expect("Tokio");
    let (anna, runtime) = join_ordinary("anna", &server, &tokio);
    let event_loop = Arc::downgrade(runtime.event_loop().expect("the node's"));
    let bert = tokio.block_on(async {
        let server = connect(&Config::new(server.url())).await.expect("the server");
        let terms = Terms::default();
        Node::join(identity("bert"), runtime.clone(), terms, server).await.expect("a node")
    });
    assert_eq!(
        tokio.block_on(anna.actor("none").ask_unpaid(vec![], Duration::from_millis(20))),
        Err(CallError::NoActor)
    );
    drop((anna, bert));
    assert!(runtime.event_loop().is_some());
    let began = Instant::now();
    drop(runtime);
    while event_loop.strong_count() > 0 && began.elapsed() < HANGS {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(event_loop.strong_count(), 0, "nothing of the loop is left");
}
