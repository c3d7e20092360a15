//! Network namespaces of one test: a hub with a bridge, and one for each node. They are linked with each other and with nothing else.

use std::process::Command;

/// The hub's address, which the nodes reach. It exists in the namespaces only.
pub const HUB: &str = "10.231.77.1";

/// Namespaces that go with this.
pub struct Namespaces {
    prefix: String,
    nodes: Vec<String>,
}

fn ip(words: &[&str]) -> Result<(), String> {
    let told = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
    if told.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&told.stderr).trim()))
}

impl Namespaces {
    /// Makes them, or says why this process may not.
    pub fn make(nodes: &[&str]) -> Result<Self, String> {
        let prefix = format!("ms{}", std::process::id());
        let made = Self { prefix, nodes: nodes.iter().map(|node| (*node).to_owned()).collect() };
        let hub = made.hub();
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "set", "lo", "up"]).expect("who makes one may set it up");
        ip(&["-n", &hub, "link", "add", "hub", "type", "bridge"]).expect("who makes one may set it up");
        ip(&["-n", &hub, "addr", "add", &format!("{HUB}/24"), "dev", "hub"])
            .expect("who makes one may set it up");
        ip(&["-n", &hub, "link", "set", "hub", "up"]).expect("who makes one may set it up");
        for (n, node) in nodes.iter().enumerate() {
            let space = made.of(node);
            ip(&["netns", "add", &space]).expect("who makes one may set it up");
            ip(&["-n", &space, "link", "set", "lo", "up"]).expect("who makes one may set it up");
            let port = &port_of(node);
            ip(&["-n", &hub, "link", "add", port, "type", "veth", "peer", "name", "net0", "netns", &space])
                .expect("who makes one may set it up");
            ip(&["-n", &hub, "link", "set", port, "master", "hub", "up"])
                .expect("who makes one may set it up");
            ip(&["-n", &space, "addr", "add", &format!("10.231.77.{}/24", n + 2), "dev", "net0"])
                .expect("who makes one may set it up");
            ip(&["-n", &space, "link", "set", "net0", "up"]).expect("who makes one may set it up");
        }
        Ok(made)
    }

    /// The hub's name.
    pub fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    /// The name of a node's.
    pub fn of(&self, node: &str) -> String {
        of(&self.prefix, node)
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for space in self.nodes.iter().map(|node| self.of(node)).chain([self.hub()]) {
            // One that was not made is not there.
            let _ = ip(&["netns", "del", &space]);
        }
    }
}

/// The name of a node's namespace.
pub fn of(prefix: &str, node: &str) -> String {
    format!("{prefix}-{node}")
}

/// The hub's end of a node's link.
fn port_of(node: &str) -> String {
    format!("to-{node}")
}

/// Cuts a node off, or links it again.
pub fn set_linked(prefix: &str, node: &str, linked: bool) {
    let state = if linked { "up" } else { "down" };
    ip(&["-n", &format!("{prefix}-hub"), "link", "set", &port_of(node), state]).expect("the link is ours");
}
