//! A server whose process also runs a hostile tenant: tasks that spin, spawn, allocate, flood, panic, hold locks and never read.

use super::growth::Holds;
use super::server::{echo, visit};
use mainspring::io::{IoDriver, TcpListener, TcpStream, UdpSocket};
use mainspring::{
    Budget, Capacity, Config, Cx, Exhaustion, NurseryOptions, Profile, Runtime, Weight, budgeted,
};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

const PER_CONNECTION: Budget =
    Budget { ops: 10_000, memory: 0, spawn_count: 0, channel_ops: 0, syscalls: 100 };
/// What each of the hostile tenant's tasks gets.
const HOSTILE: Budget =
    Budget { ops: 1_000_000, memory: 1 << 20, spawn_count: 100, channel_ops: 5000, syscalls: 500 };

/// Serves for so long, with each driver for an equal part of it.
pub fn soak(time: Duration, drivers: &[IoDriver]) -> Result<(), String> {
    for &driver in drivers {
        let weights = [Weight::new(64).expect("a weight"), Weight::new(64).expect("a weight")];
        match Config::new(Profile::Cluster).workers(2).io(driver).fair(&weights).build() {
            Ok(runtime) => serve_for(&runtime, time / drivers.len() as u32)?,
            Err(error) => println!("{driver:?}: not here: {error}"),
        }
    }
    Ok(())
}

fn serve_for(runtime: &Runtime, time: Duration) -> Result<(), String> {
    let (stop, visits, rounds) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (tell_address, address) = channel();
    std::thread::scope(|threads| {
        let server = threads.spawn(|| runtime.run(|cx| serve(cx, &stop, &rounds, &tell_address)));
        let Ok(address) = address.recv_timeout(Duration::from_secs(60)) else {
            return Err(format!("the server did not start: {:?}", server.join()));
        };
        let (stop, visits) = (&stop, &visits);
        let client = threads.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match visit(address) {
                    Ok(()) => _ = visits.fetch_add(1, Ordering::Relaxed),
                    // The server may be gone by now.
                    Err(_) if stop.load(Ordering::Relaxed) => break,
                    Err(error) => return Err(error),
                }
            }
            // The acceptor looks at the flag once more.
            let _ = visit(address);
            Ok(())
        });
        let (began, mut warm, mut said) = (Instant::now(), None, 0);
        let mut stalled = None;
        let (mut last_visits, mut last_change) = (0, Instant::now());
        while began.elapsed() < time && !server.is_finished() && !client.is_finished() && stalled.is_none() {
            std::thread::sleep(Duration::from_millis(20));
            let now = visits.load(Ordering::Relaxed);
            if now != last_visits {
                (last_visits, last_change) = (now, Instant::now());
            } else if last_change.elapsed() > Duration::from_secs(60) {
                stalled = Some(format!("no visit for a minute, after {now}"));
            }
            if warm.is_none() && began.elapsed() > time / 4 {
                warm = Some(Holds::now(runtime));
            }
            if began.elapsed().as_secs() / 30 != said {
                said = began.elapsed().as_secs() / 30;
                println!("{:?}: {now} visits; {}", runtime.io_driver(), Holds::now(runtime));
            }
        }
        let last = Holds::now(runtime);
        stop.store(true, Ordering::Relaxed);
        if let Some(stalled) = stalled {
            // Nothing else would end the threads.
            println!("verdict: FAILED: {stalled}");
            std::process::exit(1);
        }
        let client = client.join().map_err(|_| "the client panicked".to_owned())?;
        let ended = server.join().map_err(|_| "the host thread panicked".to_owned())?;
        let rounds = rounds.load(Ordering::Relaxed);
        println!(
            "{:?}: {} visits beside {rounds} hostile rounds; {last}",
            runtime.io_driver(),
            visits.load(Ordering::Relaxed)
        );
        ended
            .map_err(|error| format!("the root ended: {error}"))?
            .map_err(|error| format!("the server: {error}"))?;
        client.map_err(|error| format!("the client: {error}"))?;
        if rounds == 0 || visits.load(Ordering::Relaxed) == 0 {
            return Err("one of the two did nothing".to_owned());
        }
        warm.map_or(Ok(()), |warm| warm.grown(&last))
    })
}

fn serve(cx: &Cx, stop: &AtomicBool, rounds: &AtomicU64, tell: &Sender<SocketAddr>) -> io::Result<()> {
    let listener = TcpListener::bind_with_backlog(cx, "127.0.0.1:0", 1024)?;
    let address = listener.local_addr()?;
    cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Cancel), |n| {
        let pool = n.pool().part(2);
        // The tenant has its own share of the workers, its own pool, and nothing else.
        n.builder()
            .tenant(1)
            .pool(pool)
            .budget(HOSTILE)
            .start(move |cx| attack(cx, stop, rounds, address))
            .map_err(io::Error::other)?;
        tell.send(address).map_err(io::Error::other)?;
        while !stop.load(Ordering::Relaxed) {
            let (stream, _) = listener.accept(cx)?;
            // A connection that its client does not use is cut off: it must not hold a place for ever.
            n.builder()
                .budget(PER_CONNECTION)
                .start(move |cx| {
                    let impatient = NurseryOptions::new().deadline(Duration::from_millis(500));
                    let _ = cx.nursery_with(impatient, |_| echo(cx, &stream));
                })
                .map_err(io::Error::other)?;
        }
        n.cancel();
        Ok(())
    })
    .unwrap_or(Ok(()))
}

/// Round after round of whatever might hurt, each bounded by a deadline and by what the tenant was given.
fn attack(cx: &Cx, stop: &AtomicBool, rounds: &AtomicU64, address: SocketAddr) {
    while !stop.load(Ordering::Relaxed) {
        let options = NurseryOptions::new()
            .deadline(Duration::from_millis(30))
            .on_exhausted(Exhaustion::Cancel)
            .pool(cx_pool());
        let _ = cx.nursery_with(options, |n| {
            let attacks: [fn(&Cx, SocketAddr); 8] =
                [spin, spawn_bomb, flood, allocate, storm, fail, free_calls, sit_on_connections];
            for attack in attacks {
                let _ = n.builder().budget(HOSTILE).start(move |cx| attack(cx, address));
            }
        });
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a round may use.
fn cx_pool() -> mainspring::Pool {
    mainspring::Pool {
        ops: 40_000_000,
        memory: 64 << 20,
        spawn_count: 5000,
        channel_ops: 100_000,
        syscalls: 10_000,
    }
}

#[budgeted]
fn spin(cx: &Cx, _: SocketAddr) {
    loop {
        std::hint::spin_loop();
    }
}

fn spawn_bomb(cx: &Cx, _: SocketAddr) {
    bomb(cx);
}

fn bomb(cx: &Cx) {
    let budget = Budget { spawn_count: 1, ops: 1000, ..Budget::ZERO };
    let _ = cx.nursery(|n| while n.builder().budget(budget).start(bomb).is_ok() {});
}

fn flood(cx: &Cx, _: SocketAddr) {
    let Ok((tx, _rx)) = cx.channel(Capacity::Bounded(64)) else { return };
    while tx.try_send(cx, [0u8; 256]).is_ok() {}
    // No task receives: it waits until its time is over.
    let _ = tx.send(cx, [0; 256]);
}

fn allocate(cx: &Cx, _: SocketAddr) {
    let mut kept = Vec::new();
    while let Ok(block) = cx.try_vec::<u8>(4096) {
        kept.push(block);
    }
}

fn storm(cx: &Cx, _: SocketAddr) {
    while let Ok(socket) = UdpSocket::bind(cx, "127.0.0.1:0") {
        let _ = socket.recv_from_timeout(cx, &mut [0; 8], Duration::from_micros(50));
    }
}

fn fail(cx: &Cx, _: SocketAddr) {
    cx.sleep(Duration::from_millis(10));
    std::panic::resume_unwind(Box::new("on purpose"));
}

fn free_calls(cx: &Cx, _: SocketAddr) {
    loop {
        cx.sleep(Duration::ZERO);
    }
}

/// Connections that are opened and never used, as far as the system calls go.
fn sit_on_connections(cx: &Cx, address: SocketAddr) {
    let mut kept = Vec::new();
    while kept.len() < 8 {
        match TcpStream::connect_timeout(cx, address, Duration::from_millis(5)) {
            Ok(stream) => kept.push(stream),
            Err(_) => return,
        }
    }
    cx.sleep(Duration::from_secs(1));
}
