//! Our HTTP server: a task with a stack for each connection, on the runtime's own sockets.

use super::mainspring::{CHILD, Started, build_whose, config};
use crate::bench::Figures;
use crate::http::{WORKERS, answer};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use mainspring::io::{Async, TcpListener};
use mainspring::{Cx, Exhaustion, NurseryOptions, Watchdog};
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Serves while `measure` runs.
pub fn serve(measure: impl FnOnce(SocketAddr) -> Figures) -> Figures {
    let watchdog = Watchdog { overstay: Duration::from_millis(1), spare_workers: 1, cancels: false };
    let runtime = build_whose(config(WORKERS).watchdog(Some(watchdog)), Started::Move);
    let (announce, announced) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let served = runtime.run(move |cx| {
                let listener = TcpListener::bind(cx, "127.0.0.1:0").expect("a free port");
                announce.send(listener.local_addr().expect("bound")).expect("it is waited for");
                // A budget has no more than 65,535 system calls.
                let options = NurseryOptions::new().on_exhausted(Exhaustion::Refill(CHILD));
                cx.nursery_with(options, |n| {
                    while let Ok((stream, _)) = listener.accept(cx) {
                        n.start(move |cx| connection(cx, stream)).expect("the pool pays");
                    }
                })
            });
            drop(served);
        });
        let figures = measure(announced.recv().expect("the server listens"));
        // The process ends with the measurement: the server is not waited for.
        crate::print_and_exit(figures)
    })
}

fn connection(cx: &Cx, stream: mainspring::io::TcpStream) {
    let Ok(socket) = stream.into_std() else { return };
    let _ = socket.set_nodelay(true);
    let Ok(socket) = Async::new(cx, socket) else { return };
    // A client that hangs up has ended its own connection.
    let _ = cx.await_future(http1::Builder::new().serve_connection(socket, service_fn(answer)));
}
