//! Short versions of `make soak-server` and `make soak-hostile`.

#[path = "../examples/soak/growth.rs"]
mod growth;
#[path = "../examples/soak/hostile.rs"]
mod hostile;
#[path = "../examples/soak/server.rs"]
mod server;

use mainspring::io::IoDriver;
use std::time::Duration;

const DRIVERS: &[IoDriver] = &[IoDriver::Epoll, IoDriver::Uring];

#[test]
fn a_server_neither_stops_nor_grows_over_many_connections() {
    server::soak(3000, DRIVERS).unwrap();
}

#[test]
fn a_server_beside_a_hostile_tenant_neither_stops_nor_grows() {
    hostile::soak(Duration::from_secs(2), DRIVERS).unwrap();
}
