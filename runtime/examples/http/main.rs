//! An HTTP/1.1 service with a budget and a quota for each tenant, one of which is hostile.
//!
//! `cargo run -p mainspring-runtime --features hyper --example http`
//!
//! It serves two tenants, sends both of them requests, and reports what each has used. With an argument it serves for so many
//! seconds and sends none: `cargo run -p mainspring-runtime --features hyper --example http 60`.

mod client;
mod service;

use client::get;
use mainspring::io::TcpListener;
use mainspring::sync::CancelToken;
use mainspring::{Config, Pool, Profile, Weight};
use service::Tenant;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map(|text| text.parse::<u64>()).transpose()?;
    let (budget, quota) = (
        Pool { ops: 1 << 32, memory: 1 << 32, spawn_count: 1 << 20, syscalls: 1 << 24, ..Pool::ZERO },
        Pool { ops: 200_000, memory: 1 << 24, spawn_count: 200, syscalls: 20_000, ..Pool::ZERO },
    );
    let tenants = ["shop", "hostile"].map(|name| Tenant::new(name, budget, quota));
    let weight = Weight::new(64)?;
    let runtime = Config::new(Profile::Service).fair(&[weight, weight, weight]).build()?;
    let stop = CancelToken::new();
    let (announce, addresses) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        let server = threads.spawn(|| {
            runtime.run(|cx| {
                cx.nursery(|n| {
                    for (index, tenant) in tenants.iter().enumerate() {
                        let listener = TcpListener::bind(cx, "127.0.0.1:0").expect("a free port");
                        announce.send(listener.local_addr().expect("bound")).expect("main listens");
                        // The runtime's own tasks are the first tenant.
                        let task = n.builder().name(tenant.name).tenant(index + 1).pool(tenant.budget);
                        let stop = &stop;
                        task.start(move |cx| service::serve(cx, tenant, &listener, stop))
                            .expect("the root pays");
                    }
                })
            })
        });
        let [shop, hostile] = [(); 2].map(|()| addresses.recv().expect("the server announces both"));
        println!("shop    http://{shop}/\nhostile http://{hostile}/");
        match seconds {
            Some(seconds) => std::thread::sleep(Duration::from_secs(seconds)),
            None => {
                for _ in 0..4 {
                    // Each asks for more than its tenant may ever use.
                    threads.spawn(move || get(hostile, "/work/18446744073709551615"));
                }
                let answered = (0..100).filter(|_| get(shop, "/work/1000").is_ok()).count();
                println!("shop: {answered} of 100 requests answered beside a hostile tenant");
            }
        }
        stop.cancel();
        server.join().expect("the server does not panic")
    })??;
    for tenant in &tenants {
        let (requests, work) = (tenant.requests.load(Ordering::Relaxed), tenant.work.load(Ordering::Relaxed));
        println!("{}: {requests} requests, {work} iterations", tenant.name);
    }
    Ok(())
}
