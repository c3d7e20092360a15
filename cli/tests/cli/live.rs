//! `run --live`: a run on Linux, looked at from outside while it goes on.

use crate::support::{Folder, Ran};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const WORKLOAD: &str = r#"
[machine]
cpus = 2
duration = "600s"

[[context]]
name = "camera"
budget = "4ms"
period = "20ms"

[[endpoint]]
name = "db"

[[thread]]
name = "camera"
context = "camera"
program = ["run 2ms", "every 20ms"]

[[thread]]
name = "server"
program = ["recv db", "run 10us", "reply"]

[[thread]]
name = "client"
program = ["call db", "sleep 5ms"]
"#;

/// A run that is shown, and ended with the test.
struct Shown {
    child: Child,
    address: String,
    path: String,
    socket: PathBuf,
}

impl Shown {
    fn start(folder: &Folder) -> Self {
        folder.write("w.toml", WORKLOAD);
        let mut command = folder.command("run w.toml --on linux --live --quiet");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let mut line = |before: &str| {
            let line = lines.next().expect("a line").expect("text");
            line.strip_prefix(before).unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        let url = line("live: http://");
        let socket = PathBuf::from(line("live: mainspring top "));
        let (address, path) = url.split_once('/').expect("a path");
        Self { child, address: address.to_owned(), path: format!("/{path}"), socket }
    }

    /// What comes back for these bytes, if anything does.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        // A request that is refused early may be cut off.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    }

    fn get(&self, file: &str) -> String {
        let answer = self.ask(format!("GET {}{file} HTTP/1.1\r\nHost: x\r\n\r\n", self.path).as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        body.to_owned()
    }

    /// The first frame that has something to show.
    fn frame(&self) -> Value {
        loop {
            let frame: Value = serde_json::from_str(&self.get("frame.json")).expect("JSON");
            if frame["queues"][0]["name"] == "db" && frame["contexts"][0]["used_ns"].as_u64() > Some(0) {
                return frame;
            }
        }
    }

    fn signal(&mut self, name: &str) {
        let id = self.child.id().to_string();
        Ran::of(Command::new("kill").args([name, &id])).ok();
        self.child.wait().expect("it ends");
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove(&self.socket);
    }
}

fn remove(socket: &Path) {
    let _ = std::fs::remove_file(socket);
    let _ = socket.parent().map(std::fs::remove_dir);
}

#[test]
fn a_run_on_linux_is_shown_while_it_goes_on() {
    let folder = Folder::new("live-frames");
    let shown = Shown::start(&folder);
    let frame = shown.frame();
    assert_eq!((&frame["machine"], &frame["workload"]), (&"linux".into(), &"w.toml".into()));
    assert_eq!(frame["cpus"].as_array().map(Vec::len), Some(2));
    assert_eq!(frame["contexts"][0]["name"], "camera");
    assert_eq!(frame["contexts"][0]["budget_ns"], 4_000_000);
    let names: Vec<&str> =
        frame["threads"].as_array().expect("threads").iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(["camera", "server", "client"].iter().all(|name| names.contains(name)), "{names:?}");
    // Time goes on, and what was used does not become less.
    let later = loop {
        let later = shown.frame();
        if later["time_ns"].as_u64() > frame["time_ns"].as_u64() {
            break later;
        }
    };
    assert!(later["contexts"][0]["used_ns"].as_u64() >= frame["contexts"][0]["used_ns"].as_u64());

    let metrics = shown.get("metrics");
    assert!(
        metrics.contains("mainspring_context_budget_nanoseconds{context=\"camera\"} 4000000\n"),
        "{metrics}"
    );
    assert!(metrics.contains("mainspring_queue_waiting{queue=\"db\"} "), "{metrics}");
    assert!(shown.get("").starts_with("<!doctype html>"));

    // The same on the socket.
    let top = folder.command_with(["top", &shown.socket.to_string_lossy(), "--form", "text"]);
    let text = { top }.output().map(Ran::from).expect("it starts").ok().stdout;
    assert!(text.starts_with("w.toml on linux  "), "{text}");
    assert!(text.contains("left of 4ms per 20ms") && text.contains("queue db: "), "{text}");
}

#[test]
fn a_run_is_shown_to_its_owner_alone_and_nobody_can_stop_it() {
    let folder = Folder::new("live-guards");
    let mut shown = Shown::start(&folder);
    let of = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(of(shown.socket.parent().expect("a folder")), 0o700);
    assert!(shown.address.starts_with("127.0.0.1:"), "{}", shown.address);
    assert_eq!(shown.path.len(), 34, "128 bits: {}", shown.path);

    for (request, status) in [
        (b"GET /frame.json HTTP/1.1\r\n\r\n".to_vec(), "HTTP/1.1 404 "),
        (format!("POST {} HTTP/1.1\r\n\r\n", shown.path).into_bytes(), "HTTP/1.1 405 "),
        (b"\r\n\r\n".to_vec(), "HTTP/1.1 400 "),
        (vec![0xFF; 100], ""),
        (vec![b'a'; 100_000], ""),
        (b"GET / HTTP/1.1\r\n".to_vec(), ""),
    ] {
        let answer = shown.ask(&request);
        assert!(answer.starts_with(status) && (answer.is_empty() == status.is_empty()), "{status}: {answer}");
    }
    // Many who connect and say nothing keep others out for a while, and not for good.
    let silent: Vec<TcpStream> = (0..100).filter_map(|_| TcpStream::connect(&shown.address).ok()).collect();
    drop(silent);
    while shown.ask(format!("GET {} HTTP/1.1\r\n\r\n", shown.path).as_bytes()).is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    shown.frame();

    let (folder_of_socket, socket) =
        (shown.socket.parent().expect("a folder").to_owned(), shown.socket.clone());
    shown.signal("-TERM");
    assert!(!socket.exists() && !folder_of_socket.exists(), "a signal leaves a socket behind");
}

#[test]
fn live_is_refused_where_nothing_can_be_shown_and_beyond_this_host() {
    let folder = Folder::with_workload("live-refused");
    folder.run("run w.toml --live").refused(&[
        "--live: the simulator's time",
        "--on linux",
        "mainspring top OUT.msr",
    ]);
    folder.run("run w.toml --on qemu --live").refused(&["hands over its record when it stops"]);
    for address in ["0.0.0.0:0", "192.168.0.1:80", "localhost", "[::]:1", "70000", ""] {
        let ran = folder.run(&format!("run w.toml --on linux --live={address}"));
        ran.refused(&["this host's own address", "ssh -L"]);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let ran = folder.run(&format!("run w.toml --on linux --live={port}"));
    ran.refused(&[&format!("--live: 127.0.0.1:{port}: "), "help: give another port"]);
}
