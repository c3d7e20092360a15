//! The example's HTTP service, over loopback: a hostile tenant gets its budget and no more, and the other one its answers.

#[path = "../examples/http/client.rs"]
mod client;
#[path = "../examples/http/service.rs"]
mod service;

use client::get;
use mainspring::io::{IoDriver, TcpListener};
use mainspring::sync::CancelToken;
use mainspring::{Config, Pool, Profile, Weight};
use service::Tenant;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// Serves the tenants while `f` sends requests to their addresses.
fn serving(driver: IoDriver, tenants: &[Tenant], f: impl FnOnce(&[SocketAddr])) {
    let weights = vec![Weight::new(64).unwrap(); tenants.len() + 1];
    let runtime = Config::new(Profile::Service).workers(2).io(driver).fair(&weights).build().unwrap();
    let stop = CancelToken::new();
    let (announce, addresses) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let announce = announce;
            runtime
                .run(|cx| {
                    cx.nursery(|n| {
                        for (index, tenant) in tenants.iter().enumerate() {
                            let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
                            announce.send(listener.local_addr().unwrap()).unwrap();
                            let stop = &stop;
                            n.builder()
                                .tenant(index + 1)
                                .pool(tenant.budget)
                                .start(move |cx| service::serve(cx, tenant, &listener, stop))
                                .unwrap();
                        }
                    })
                    .unwrap();
                })
                .unwrap();
        });
        let addresses: Vec<_> = tenants.iter().map(|_| addresses.recv().unwrap()).collect();
        /// Also if `f` panics.
        struct Stops<'a>(&'a CancelToken);
        impl Drop for Stops<'_> {
            fn drop(&mut self) {
                self.0.cancel();
            }
        }
        let _stops = Stops(&stop);
        f(&addresses);
    });
}

const ROOM: Pool =
    Pool { ops: 1 << 30, memory: 1 << 30, spawn_count: 10_000, syscalls: 1 << 20, channel_ops: 0 };
const QUOTA: Pool =
    Pool { ops: 200_000, memory: 1 << 24, spawn_count: 100, syscalls: 10_000, channel_ops: 0 };

fn drivers() -> impl Iterator<Item = IoDriver> {
    // Where the kernel has no io_uring there is one.
    let uring = Config::new(Profile::Service).workers(1).io(IoDriver::Uring).build().is_ok();
    [IoDriver::Epoll].into_iter().chain(uring.then_some(IoDriver::Uring))
}

#[test]
fn requests_are_answered_in_turn_and_on_one_connection() {
    for driver in drivers() {
        let tenants = [Tenant::new("shop", ROOM, QUOTA)];
        serving(driver, &tenants, |addresses| {
            assert_eq!(get(addresses[0], "/").unwrap(), "hello from shop\n");
            let sums: Vec<_> = (0..20).map(|_| get(addresses[0], "/work/1000").unwrap()).collect();
            assert!(sums.iter().all(|sum| *sum == sums[0]));
            assert!(get(addresses[0], "/nowhere").unwrap_err().to_string().contains("404"));
            assert!(get(addresses[0], "/work/much").unwrap_err().to_string().contains("400"));
            // Two requests on one connection, the second sent before the first is answered.
            let mut stream = std::net::TcpStream::connect(addresses[0]).unwrap();
            let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
            let last = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            stream.write_all(format!("{request}{last}").as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert_eq!(text.matches("hello from shop").count(), 2, "{text}");
            // Nonsense ends its own connection only.
            let mut stream = std::net::TcpStream::connect(addresses[0]).unwrap();
            stream.write_all(b"\x16\x03\x01 nonsense\r\n\r\n").unwrap();
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            assert!(!text.contains("200 OK"), "{text}");
            assert_eq!(get(addresses[0], "/").unwrap(), "hello from shop\n");
        });
        assert_eq!(tenants[0].work.load(Ordering::Relaxed), 20 * 1000);
    }
}

#[test]
fn a_hostile_tenant_gets_its_budget_and_the_other_one_its_answers() {
    for driver in drivers() {
        // Five quotas in all, and each of its requests wants more than that.
        let budget = Pool { ops: 5 * QUOTA.ops, ..ROOM };
        let tenants = [Tenant::new("shop", ROOM, QUOTA), Tenant::new("hostile", budget, QUOTA)];
        serving(driver, &tenants, |addresses| {
            let (shop, hostile) = (addresses[0], addresses[1]);
            std::thread::scope(|threads| {
                let floods: Vec<_> = (0..4)
                    .map(|_| threads.spawn(move || get(hostile, "/work/18446744073709551615").is_ok()))
                    .collect();
                for _ in 0..100 {
                    assert!(get(shop, "/work/1000").is_ok());
                }
                // A tenant that has used up its budget is shut, and its clients are told by the end of their connections.
                for flood in floods {
                    assert!(!flood.join().unwrap(), "answered beyond its budget");
                }
            });
        });
        let [shop, hostile] = [0, 1].map(|tenant: usize| tenants[tenant].work.load(Ordering::Relaxed));
        assert_eq!(shop, 100 * 1000);
        assert!(hostile <= budget.ops, "{hostile} of {}", budget.ops);
        assert!(hostile > budget.ops / 2, "it got its quotas: {hostile} of {}", budget.ops);
    }
}
