//! TCP echo, at the port that its argument names: what a connection sends comes back. One thread serves all connections: it waits
//! for whichever has something, so a connection whose other side does not read is in nobody's way.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use mainspring_user::caps;
use mainspring_user::net::{NetError, Network, Ready, TcpListener, TcpStream};
use mainspring_user::{CapError, say};

mainspring_user::program!(main);

/// Bytes of a connection that wait for room.
const HELD: usize = 512;

fn main() -> i64 {
    let network = Network::new(caps::need("call:net0"));
    let Ok(port) = caps::arguments().parse() else {
        say!("net-echo: the argument is no port: {}", caps::arguments());
        return 1;
    };
    loop {
        let listener = match network.listen_when_up(port, 64) {
            Ok(listener) => listener,
            Err(why) => {
                say!("net-echo: cannot listen: {why:?}");
                return 1;
            }
        };
        say!("net-echo: listening port={port}");
        match serve(network, listener) {
            // The network process has ended. Another one may come.
            NetError::Call(CapError::PeerGone) => {}
            why => {
                say!("net-echo: cannot serve: {why:?}");
                return 1;
            }
        }
    }
}

/// A connection, and what was read and not yet written.
struct Connection {
    stream: TcpStream,
    held: heapless::Vec<u8, HELD>,
}

/// Serves until the network process cannot be asked.
fn serve(network: Network, listener: TcpListener) -> NetError {
    let mut connections: Vec<Connection> = Vec::new();
    let mut wants_room: Vec<u32> = Vec::new();
    loop {
        wants_room.clear();
        let full = connections.iter().filter(|connection| !connection.held.is_empty());
        wants_room.extend(full.map(|connection| connection.stream.number()));
        let events = match network.wait(&wants_room) {
            Ok(events) => events,
            Err(why) => return why,
        };
        for event in events {
            if event.ready == Ready::Connection && event.number == listener.number() {
                match listener.accept_now() {
                    Ok(Some(stream)) => connections.push(Connection { stream, held: heapless::Vec::new() }),
                    Ok(None) => {}
                    Err(why) => return why,
                }
                continue;
            }
            let own = |connection: &Connection| connection.stream.number() == event.number;
            let Some(index) = connections.iter().position(own) else { continue };
            match connections[index].step(event.ready) {
                Ok(true) => {}
                Ok(false) | Err(NetError::Refused(_)) => {
                    let _over = connections.swap_remove(index).stream.close();
                }
                Err(why) => return why,
            }
        }
    }
}

impl Connection {
    /// Reads if nothing is held, or writes what is; whether the connection goes on.
    fn step(&mut self, ready: Ready) -> Result<bool, NetError> {
        match ready {
            Ready::Bytes if self.held.is_empty() => {
                let mut buffer = [0; HELD];
                let len = self.stream.read(&mut buffer)?;
                // As much as fits was read.
                let _fits = self.held.extend_from_slice(&buffer[..len]);
                Ok(len > 0)
            }
            Ready::Room => {
                let written = self.stream.write(&self.held)?;
                let rest = heapless::Vec::from_slice(&self.held[written.min(self.held.len())..]);
                self.held = rest.unwrap_or_default();
                Ok(true)
            }
            _ => Ok(true),
        }
    }
}
