//! Rings in a mapped file, with sides that sleep.

use mainspring_abi::ring::{CapCqe, CapError, CapSqeV2, RingAbi, word};
use mainspring_ring::linux::{Client, OpenError, Served, Server, SharedRing, Waited, create, open};
use mainspring_ring::sync::Ordering;
use mainspring_ring::{Completer, CqPlace, Geometry, Push, Reap, Region};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::AsFd;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

fn geometry() -> Geometry {
    Geometry::new(RingAbi::V2, 4, 4).expect("powers of two")
}

fn echo(request: CapSqeV2, place: CqPlace, cq: &mut Completer<SharedRing>) {
    cq.complete(place, &CapCqe::completed(request.v1.user_data, 0));
}

/// Both sides sleep whenever they can: every answer needs two wakes.
//= ARCH:sqpoll.cycle
#[test]
fn two_sides_that_always_sleep_still_finish() {
    let requests = 2_000;
    let (mut client, file) = Client::create(geometry()).expect("a memfd");
    let server = std::thread::spawn(move || {
        let mut server = Server::open(file.as_fd(), Duration::ZERO).expect("a ring");
        let mut handled = 0;
        while handled < requests {
            match server.serve(2, &mut echo) {
                Served::Requests(count) => handled += u64::from(count),
                Served::Fault(fault) => panic!("{fault}"),
                Served::Nothing | Served::HeldBack => assert_eq!(server.idle(PATIENCE), Waited::LookAgain),
            }
        }
        server.sleeps()
    });
    let (mut sent, mut answered) = (0, 0);
    while answered < requests {
        while sent < requests && client.push(&CapSqeV2::nop(sent)) == Push::Queued {
            sent += 1;
        }
        client.publish();
        let cqe = client.wait(PATIENCE).expect("an honest server").expect("an answer in time");
        assert_eq!(cqe.user_data, answered);
        answered += 1;
        while let Reap::Completion(cqe) = client.reap() {
            assert_eq!(cqe.user_data, answered);
            answered += 1;
        }
        client.give_back();
    }
    assert!(server.join().expect("the server does not panic") > 0, "it slept");
}

#[test]
fn a_server_that_waits_for_room_is_woken_by_the_reader() {
    let (mut client, file) = Client::create(geometry()).expect("a memfd");
    for id in 0..4 {
        assert_eq!(client.push(&CapSqeV2::nop(id)), Push::Queued);
    }
    client.publish();
    let mut server = Server::open(file.as_fd(), Duration::ZERO).expect("a ring");
    assert_eq!(server.serve(8, &mut echo), Served::Requests(4));
    assert_eq!(client.push(&CapSqeV2::nop(4)), Push::Queued);
    client.publish();
    assert_eq!(server.serve(8, &mut echo), Served::HeldBack);
    let thread = std::thread::spawn(move || {
        while server.serve(8, &mut echo) != Served::Requests(1) {
            assert_eq!(server.idle(PATIENCE), Waited::LookAgain);
        }
    });
    std::thread::sleep(Duration::from_millis(20));
    for id in 0..4 {
        assert!(matches!(client.reap(), Reap::Completion(cqe) if cqe.user_data == id));
    }
    client.give_back();
    let last = client.wait(PATIENCE).expect("an honest server").expect("an answer in time");
    assert_eq!(last.user_data, 4);
    thread.join().expect("the server does not panic");
}

#[test]
fn nobody_waits_longer_than_asked() {
    let (mut client, file) = Client::create(geometry()).expect("a memfd");
    assert_eq!(client.wait(Duration::from_millis(5)), Ok(None), "there is no server");
    let mut server = Server::open(file.as_fd(), Duration::ZERO).expect("a ring");
    assert_eq!(server.idle(Duration::from_millis(5)), Waited::TimedOut, "there is no request");
}

#[test]
fn a_file_that_could_shrink_or_is_no_ring_is_refused() {
    let unsealed = memfd_create(c"ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&unsealed, 4096).expect("it grows");
    assert!(matches!(open(&unsealed), Err(OpenError::NotSealed)));
    let (ring, file) = create(&geometry()).expect("a memfd");
    ring.word(word::ABI_VERSION).store(9, Ordering::Relaxed);
    match open(&file) {
        Err(OpenError::Geometry(error)) => assert_eq!(error.code(), CapError::UnsupportedRingAbi),
        other => panic!("{other:?}"),
    }
    ring.word(word::ABI_VERSION).store(2, Ordering::Relaxed);
    assert!(open(&file).is_ok());
}
