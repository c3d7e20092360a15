//! Clients that do not behave, and addresses that are not to be had.

use crate::client::{PATIENCE, Watch, client, connect, observed, settings};
use console_api::instrument::{InstrumentRequest, StateRequest};
use mainspring::{Config, NurseryOptions, Profile};
use mainspring_console::{Error, Settings};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Watchers of each kind at most.
const WATCHERS: usize = 8;
/// Updates that are kept for one that does not read, beside the first.
const KEPT: usize = 8;
/// Connections at most.
const CONNECTIONS: usize = 16;

#[test]
fn those_who_never_read_lose_their_streams_and_the_program_goes_on() {
    let (runtime, console) = observed();
    let over = AtomicBool::new(false);
    let _cancelled = runtime.nursery(NurseryOptions::new(), |n| {
        // Each update tells of all of them.
        for _ in 0..1_000 {
            n.builder()
                .name(
                    "a task with a name that is long enough to fill what a client lets come before it reads",
                )
                .start(|cx| {
                    while !over.load(Ordering::Relaxed) {
                        cx.sleep(Duration::from_millis(20));
                    }
                })
                .expect("a task");
        }
        client(async {
            let mut hostile = connect(console.address()).await;
            let mut reader = connect(console.address()).await;
            let mut watch = Watch::begin(&mut reader).await;
            let mut unread = Vec::new();
            for _ in 1..WATCHERS {
                unread.push(hostile.watch_updates(InstrumentRequest {}).await.expect("it may watch"));
            }
            // One that reads goes on to be told; on a host that is busy it may lose its stream, too, and begins again.
            let mut ticks = 0;
            while ticks < 10 * KEPT {
                match watch.next().await {
                    Ok(()) => ticks += 1,
                    Err(_) => watch = Watch::begin(&mut reader).await,
                }
            }
            // Another finds what was kept for it, and then the end of its stream.
            let mut late = unread.pop().expect("one of them").into_inner();
            drop(unread);
            let mut kept = 0;
            while late.message().await.expect("an orderly end").is_some() {
                kept += 1;
                assert!(kept <= 2 * KEPT, "more is kept for it than it may have");
            }
            assert!(kept > 0, "what was told before is not lost");
        });
        over.store(true, Ordering::Relaxed);
        n.cancel();
    });
}

#[test]
fn there_are_never_more_watchers_than_a_few_and_those_who_go_make_room() {
    let (_runtime, console) = observed();
    client(async {
        let mut clients = Vec::new();
        for _ in 0..2 {
            clients.push(connect(console.address()).await);
        }
        let mut states = Vec::new();
        for at in 0..WATCHERS {
            states.push(clients[at % 2].watch_state(StateRequest {}).await.expect("it may watch"));
        }
        let refused = clients[0].watch_state(StateRequest {}).await.expect_err("one too many");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.message().contains("close one"), "{refused}");
        drop(states);
        while clients[1].watch_state(StateRequest {}).await.is_err() {}
    });
}

#[test]
fn silent_connections_are_closed_and_beyond_the_limit_at_once() {
    let (_runtime, console) = observed();
    let connected = || {
        let stream = TcpStream::connect(console.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    };
    let mut silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connected()).collect();
    let mut too_many = connected();
    assert_eq!(too_many.read(&mut [0]).expect("an end"), 0, "it has no place");
    for stream in &mut silent {
        let mut told = Vec::new();
        // Perhaps the server's settings, and then the end.
        stream.read_to_end(&mut told).expect("an end");
    }
    // Something else than HTTP/2.
    let mut other = connected();
    other.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").expect("it is taken");
    let mut told = Vec::new();
    let _reset = other.read_to_end(&mut told);
    client(async {
        Watch::begin(&mut connect(console.address()).await).await.next().await.expect("an update");
    });
}

#[test]
fn a_port_in_use_is_an_error_that_says_what_to_do() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address");
    let config = Config::new(Profile::Service).workers(1);
    let refused = settings().address(address).build(config).expect_err("it is in use");
    assert!(matches!(refused, Error::InUse(taken) if taken == address));
    let said = refused.to_string();
    assert!(said.contains(&address.to_string()) && said.contains("Settings::address"), "{said}");
}

#[test]
fn a_runtime_that_is_not_observed_and_an_address_of_others_are_refused() {
    let runtime = Config::new(Profile::Service).workers(1).build().expect("a runtime");
    let refused = Settings::new().serve(&runtime).expect_err("it keeps no records");
    assert!(matches!(refused, Error::NotObserved));
    assert!(refused.to_string().contains("observe_tasks"));
    let runtime = Config::new(Profile::Service).workers(1).observe_tasks(1).build().expect("a runtime");
    let anywhere = Settings::new().address(([0, 0, 0, 0], 0).into());
    let refused = anywhere.serve(&runtime).expect_err("others could connect");
    assert!(matches!(refused, Error::NotLoopback(_)));
    let console = anywhere.beyond_loopback().serve(&runtime).expect("it was asked for");
    assert_ne!(console.address().port(), 0);
}

#[test]
fn the_port_is_free_again_when_the_console_is_dropped_while_somebody_watches() {
    let (_runtime, console) = observed();
    let address = console.address();
    client(async {
        let mut watch = Watch::begin(&mut connect(address).await).await;
        watch.next().await.expect("an update");
        drop(console);
        while watch.next().await.is_ok() {}
    });
    TcpStream::connect(address).expect_err("nobody listens");
}

#[test]
fn tasks_beyond_those_that_are_observed_are_counted() {
    let config = Config::new(Profile::Service).workers(1);
    let (runtime, console) = settings().tasks(2).build(config).expect("a runtime and its console");
    let _cancelled = runtime.nursery(NurseryOptions::new(), |n| {
        for _ in 0..5 {
            n.builder().name("one").start(|cx| cx.sleep(Duration::from_secs(600))).expect("a task");
        }
        client(async {
            let mut watch = Watch::begin(&mut connect(console.address()).await).await;
            watch.next().await.expect("an update");
            assert_eq!((watch.tasks.len(), watch.dropped_events), (2, 3));
        });
        n.cancel();
    });
}
