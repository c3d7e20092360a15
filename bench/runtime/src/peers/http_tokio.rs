//! Tokio's HTTP server: a task for each connection, as hyper's own example has it.

use crate::bench::Figures;
use crate::http::{WORKERS, answer};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// Serves while `measure` runs.
pub fn serve(measure: impl FnOnce(SocketAddr) -> Figures) -> Figures {
    let runtime =
        Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().expect("a runtime starts");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("bound");
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                // A client that hangs up has ended its own connection.
                let _ =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    });
    let figures = measure(address);
    runtime.shutdown_background();
    figures
}
