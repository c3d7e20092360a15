//! An echo server whose root task accepts connections one after the other, far more than a task can hold system calls.

use super::growth::Holds;
use mainspring::io::{IoDriver, TcpListener, TcpStream};
use mainspring::{Budget, Config, Cx, Exhaustion, NurseryOptions, Profile, Runtime};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const CLIENTS: u64 = 2;
const PER_CONNECTION: Budget =
    Budget { ops: 10_000, memory: 0, spawn_count: 0, channel_ops: 0, syscalls: 100 };

/// Serves `count` connections with each driver.
pub fn soak(count: u64, drivers: &[IoDriver]) -> Result<(), String> {
    for &driver in drivers {
        match Config::new(Profile::Cluster).workers(2).io(driver).build() {
            Ok(runtime) => serve_all(&runtime, count)?,
            Err(error) => println!("{driver:?}: not here: {error}"),
        }
    }
    Ok(())
}

fn serve_all(runtime: &Runtime, count: u64) -> Result<(), String> {
    let served = AtomicU64::new(0);
    let (tell_address, address) = channel();
    std::thread::scope(|threads| {
        let server = threads.spawn(|| runtime.run(|cx| serve(cx, count, &served, &tell_address)));
        let Ok(address) = address.recv_timeout(Duration::from_secs(60)) else {
            return Err(format!("the server did not start: {:?}", server.join()));
        };
        let clients: Vec<_> = (0..CLIENTS)
            .map(|i| {
                threads.spawn(move || {
                    (0..count / CLIENTS + u64::from(i < count % CLIENTS)).try_for_each(|_| visit(address))
                })
            })
            .collect();
        let mut warm = None;
        let mut before = 0;
        while !server.is_finished() {
            std::thread::sleep(Duration::from_millis(if count > 100_000 { 1000 } else { 20 }));
            let now = served.load(Ordering::Relaxed);
            if warm.is_none() && now >= count / 10 {
                warm = Some(Holds::now(runtime));
            }
            if now / 100_000 != before / 100_000 {
                println!("{:?}: {now} served; {}", runtime.io_driver(), Holds::now(runtime));
            }
            before = now;
        }
        let ended = server.join().map_err(|_| "the host thread panicked".to_owned())?;
        ended
            .map_err(|error| format!("the root ended: {error}"))?
            .map_err(|error| format!("the server: {error}"))?;
        for client in clients {
            let ended = client.join().map_err(|_| "a client panicked".to_owned())?;
            ended.map_err(|error| format!("a client: {error}"))?;
        }
        let last = Holds::now(runtime);
        println!("{:?}: all {count} served; {last}", runtime.io_driver());
        warm.map_or(Ok(()), |warm| warm.grown(&last))
    })
}

fn serve(cx: &Cx, count: u64, served: &AtomicU64, tell: &Sender<SocketAddr>) -> io::Result<()> {
    let listener = TcpListener::bind_with_backlog(cx, "127.0.0.1:0", 1024)?;
    tell.send(listener.local_addr()?).map_err(io::Error::other)?;
    let options = NurseryOptions::new().on_exhausted(Exhaustion::Cancel);
    cx.nursery_with(options, |n| {
        for _ in 0..count {
            let (stream, _) = listener.accept(cx)?;
            n.builder()
                .budget(PER_CONNECTION)
                .start(move |cx| echo(cx, &stream))
                .map_err(io::Error::other)?;
            served.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })
    .map_err(io::Error::other)?
}

pub fn echo(cx: &Cx, stream: &TcpStream) {
    let mut buffer = [0; 64];
    while let Ok(n @ 1..) = stream.read(cx, &mut buffer) {
        if stream.write_all(cx, &buffer[..n]).is_err() {
            return;
        }
    }
}

/// One connection: a message, and its echo.
pub fn visit(address: SocketAddr) -> io::Result<()> {
    let mut stream = loop {
        match std::net::TcpStream::connect(address) {
            // All ports belong to connections that have just ended: they come back within a second.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => break result?,
        }
    };
    let mut answer = [0; 8];
    stream.write_all(b"message!")?;
    stream.read_exact(&mut answer)?;
    if answer == *b"message!" { Ok(()) } else { Err(io::Error::other("another answer")) }
}
