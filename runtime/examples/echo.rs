//! A TCP echo server with a budget per connection: a client that sends too much is cut off, the others are not.
//!
//! `cargo run -p mainspring-runtime --example echo` runs server and clients; with an address (`-- 127.0.0.1:7000`) it
//! serves until it is stopped. `--epoll` before it chooses that driver, also where io_uring is to be had.

use mainspring::io::{IoDriver, TcpListener, TcpStream};
use mainspring::{Budget, Config, Cx, Exhaustion, NurseryOptions, Profile, SpawnError};
use std::net::SocketAddr;

/// About 100 messages.
const PER_CONNECTION: Budget =
    Budget { ops: 10_000, memory: 1 << 16, spawn_count: 0, channel_ops: 0, syscalls: 200 };

fn serve(cx: &Cx, listener: &TcpListener, connections: Option<usize>) -> std::io::Result<()> {
    // A connection that runs out is cancelled by itself; the others go on.
    let options = NurseryOptions::new().on_exhausted(Exhaustion::Cancel);
    let result = cx.nursery_with(options, |n| {
        let mut served = 0;
        while connections.is_none_or(|most| served < most) {
            let (stream, peer) = listener.accept(cx)?;
            served += 1;
            match n.builder().budget(PER_CONNECTION).spawn(move |cx| echo(cx, &stream)) {
                Ok(_) => {}
                Err(SpawnError::TaskLimit(most)) => eprintln!("{peer}: refused, {most} connections are open"),
                Err(error) => eprintln!("{peer}: refused, {error}"),
            }
        }
        Ok(())
    });
    result.map_err(std::io::Error::other)?
}

fn echo(cx: &Cx, stream: &TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = stream.read(cx, &mut buffer) {
        if stream.write_all(cx, &buffer[..n]).is_err() {
            return;
        }
    }
}

fn client(cx: &Cx, address: SocketAddr, messages: u32) -> std::io::Result<u32> {
    let stream = TcpStream::connect(cx, address)?;
    let mut buffer = [0; 8];
    for i in 0..messages {
        let sent = stream.write_all(cx, b"message!").and_then(|()| stream.read_exact(cx, &mut buffer));
        if sent.is_err() {
            return Ok(i);
        }
    }
    Ok(messages)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let driver =
        arguments.next_if(|argument| argument == "--epoll").map_or(IoDriver::Auto, |_| IoDriver::Epoll);
    let runtime = Config::new(Profile::Cluster).io(driver).build()?;
    if let Some(address) = arguments.next() {
        runtime
            .run(|cx| TcpListener::bind(cx, address).and_then(|listener| serve(cx, &listener, None)))??;
        return Ok(());
    }
    let answers = runtime.run(|cx| {
        let listener = TcpListener::bind(cx, "127.0.0.1:0")?;
        let address = listener.local_addr()?;
        cx.nursery(|n| {
            // The server's own budget, and a pool that pays for its connections.
            let server = Budget { ops: 100_000, syscalls: 1000, ..Budget::ZERO };
            n.builder()
                .budget(server)
                .pool(n.pool().part(2))
                .spawn_try(move |cx| serve(cx, &listener, Some(3)))?;
            let clients = [10, 50, 1000].map(|messages| n.spawn(move |cx| client(cx, address, messages)));
            Ok(clients.map(|handle| handle.map(|handle| handle.join(cx))))
        })
        .map_err(std::io::Error::other)?
        .map_err(|error: SpawnError| std::io::Error::other(error))
    })?;
    for answer in answers? {
        println!("a client got {} echoes", answer???);
    }
    Ok(())
}
