//! An HTTP/1.1 service for several tenants, on hyper and the runtime's own sockets: no other executor.
//!
//! Each tenant has a task with a listener of its own. The tenant's budget is that task's pool: all that it will ever use. Its quota is
//! the pool of the nursery that its connections are in, filled up once per period, so that a tenant that uses up its quota waits for the
//! next one. Under the fair discipline a tenant's tasks share what its weight says of the workers.
//!
//! A connection is a task with a stack, which awaits hyper's connection. So a handler is ordinary code: it checks, waits and
//! locks where it likes, and what it does is charged to its tenant.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use mainspring::io::{Async, TcpListener, TcpStream};
use mainspring::sync::CancelToken;
use mainspring::{Budget, Component, Cx, Exhaustion, Nursery, NurseryOptions, Pool};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often quotas are filled up.
pub const PERIOD: Duration = Duration::from_millis(20);
/// Connections of a tenant at a time.
const CONNECTIONS: u64 = 64;
/// How long a client may take to send a request's head.
const HEAD: Duration = Duration::from_secs(5);

/// A tenant, and what it has used.
#[derive(Debug)]
pub struct Tenant {
    pub name: &'static str,
    /// All that it will ever use.
    pub budget: Pool,
    /// What it may use in each period.
    pub quota: Pool,
    pub requests: AtomicU64,
    /// Iterations of its handlers.
    pub work: AtomicU64,
    /// Connections that were closed at once, since it had too many or no quota for another.
    pub turned_away: AtomicU64,
}

impl Tenant {
    pub fn new(name: &'static str, budget: Pool, quota: Pool) -> Self {
        let [requests, work, turned_away] = [(); 3].map(|()| AtomicU64::new(0));
        Self { name, budget, quota, requests, work, turned_away }
    }
}

/// What is lacking of the quota.
fn lacking(quota: &Pool, left: &Pool) -> Pool {
    let mut lacking = Pool::ZERO;
    for component in Component::ALL {
        let more = quota.get(component).saturating_sub(left.get(component));
        lacking.put(&Pool::only(component, more));
    }
    lacking
}

/// Serves a tenant until the token is cancelled, or until its budget cannot pay for another quota. Its task was spawned with
/// the budget as its pool.
pub fn serve(cx: &Cx, tenant: &Tenant, listener: &TcpListener, stop: &CancelToken) {
    // A connection takes as much at a time, and waits while there is none.
    let piece = Budget { ops: 10_000, memory: 1 << 16, syscalls: 64, channel_ops: 0, spawn_count: 0 };
    let options = NurseryOptions::new().pool(tenant.quota).on_exhausted(Exhaustion::Refill(piece)).isolate();
    let ended = cx.nursery_with(options, |n| {
        let _ = cx.until(stop, |cx| accept(cx, tenant, listener, n));
        n.cancel();
    });
    if let Err(error) = ended
        && !error.error.is_cancelled()
    {
        eprintln!("{}: {error}", tenant.name);
    }
}

fn accept<'scope>(cx: &Cx, tenant: &'scope Tenant, listener: &TcpListener, n: &Nursery<'scope, '_>) {
    let mut next = cx.now() + PERIOD;
    loop {
        let Some(left) = next.checked_sub(cx.now()).filter(|left| !left.is_zero()) else {
            next += PERIOD;
            // What the last period left is not added up.
            if n.top_up(lacking(&tenant.quota, &n.pool())).is_err() {
                return;
            }
            continue;
        };
        match listener.accept_timeout(cx, left) {
            Ok((stream, _)) => {
                let budget = Budget { ops: 1000, memory: 1 << 16, syscalls: 16, ..Budget::ZERO };
                let builder = n.builder().name(tenant.name).budget(budget);
                let spawned =
                    n.live() < CONNECTIONS && builder.start(move |cx| connection(cx, tenant, stream)).is_ok();
                tenant.turned_away.fetch_add(u64::from(!spawned), Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(_) => cx.sleep(Duration::from_millis(1)),
        }
    }
}

/// One connection, with any number of requests.
fn connection(cx: &Cx, tenant: &Tenant, stream: TcpStream) {
    let Ok(socket) = stream.into_std().and_then(|socket| Async::new(cx, socket)) else { return };
    let service = service_fn(|request| {
        let response = handle(cx, tenant, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let served =
        http1::Builder::new().timer(cx.timer()).header_read_timeout(HEAD).serve_connection(socket, service);
    // A client that hangs up, or talks nonsense, has ended its own connection.
    let _ = cx.await_future(served);
}

/// `/` greets; `/work/N` iterates N times, each of which costs an op.
fn handle(cx: &Cx, tenant: &Tenant, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    tenant.requests.fetch_add(1, Ordering::Relaxed);
    let path = request.uri().path();
    let (status, text) = match path.strip_prefix("/work/").map(str::parse::<u64>) {
        None if path == "/" => (StatusCode::OK, format!("hello from {}\n", tenant.name)),
        None => (StatusCode::NOT_FOUND, "try / or /work/N\n".to_owned()),
        Some(Err(_)) => (StatusCode::BAD_REQUEST, "/work/ is followed by a number\n".to_owned()),
        Some(Ok(iterations)) => (StatusCode::OK, format!("{:x}\n", work(cx, tenant, iterations))),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}

/// Something that takes time: a generator of pseudo-random numbers.
fn work(cx: &Cx, tenant: &Tenant, iterations: u64) -> u64 {
    let mut state = iterations ^ 0x9e37_79b9_7f4a_7c15;
    let mut left = iterations;
    while left > 0 {
        let piece = left.min(100);
        cx.check_iterations(piece as u32);
        for _ in 0..piece {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        left -= piece;
        tenant.work.fetch_add(piece, Ordering::Relaxed);
    }
    state
}
