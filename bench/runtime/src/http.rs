//! An HTTP/1.1 server on hyper, one connection to a client, and the clients: the same load for each peer.
//!
//! The clients are threads of this process with a connection each, which send a request and wait for its answer. In the second half of
//! `http-overstay` one more client asks for a page whose handler keeps its thread for 20 ms and neither checks nor awaits.

use crate::bench::Figures;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients at a time.
pub const CLIENTS: usize = 16;
/// Threads of the server.
pub const WORKERS: usize = 2;
/// How long a hostile handler keeps its thread.
const STALL: Duration = Duration::from_millis(20);

/// What every server answers.
pub async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/stall" {
        let began = Instant::now();
        while began.elapsed() < STALL {
            std::hint::spin_loop();
        }
    }
    Ok(Response::new(Full::new(Bytes::from_static(b"hello\n"))))
}

/// Requests of one path over one connection until `stop`; how long each took, in microseconds.
fn client(address: SocketAddr, path: &str, stop: &AtomicBool) -> Vec<f64> {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_nodelay(true).expect("a socket of TCP");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut took = Vec::new();
    let mut read = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        stream.write_all(request.as_bytes()).expect("the server reads");
        read.clear();
        while !read.ends_with(b"\r\n\r\nhello\n") {
            let mut piece = [0; 512];
            let length = stream.read(&mut piece).expect("the server answers");
            assert_ne!(length, 0, "the server hung up");
            read.extend_from_slice(&piece[..length]);
        }
        took.push(began.elapsed().as_secs_f64() * 1e6);
    }
    took
}

/// What the clients saw in `window`: how many requests in which time, and the time that one in a hundred exceeds.
struct Seen {
    requests: usize,
    wall: Duration,
    p99_us: f64,
}

fn load(address: SocketAddr, window: Duration, hostile: bool) -> Seen {
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let mut took: Vec<f64> = std::thread::scope(|scope| {
        if hostile {
            scope.spawn(|| client(address, "/stall", &stop));
        }
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| client(address, "/", &stop))).collect();
        std::thread::sleep(window);
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().expect("it does not panic")).collect()
    });
    let wall = began.elapsed();
    took.sort_unstable_by(f64::total_cmp);
    let rank = (took.len() * 99).div_ceil(100);
    Seen { requests: took.len(), wall, p99_us: took[rank.max(1) - 1] }
}

/// The figures of `http`: time per request, and the p99.
pub fn quiet(address: SocketAddr, window: Duration) -> Figures {
    let seen = load(address, window, false);
    vec![("", seen.wall.as_secs_f64() * 1e9 / seen.requests as f64), ("p99", seen.p99_us)]
}

/// The figures of `http-overstay`: the p99 beside a hostile handler, in times of the p99 without one.
pub fn beside_stalls(address: SocketAddr, window: Duration) -> Figures {
    let (quiet, beside) = (load(address, window, false), load(address, window, true));
    let times = beside.p99_us / quiet.p99_us;
    vec![("", times), ("p99", beside.p99_us), ("quiet-p99", quiet.p99_us)]
}
