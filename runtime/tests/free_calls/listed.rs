//! No public operation is missing: the tables beside the sources.

use crate::WITH_IO;
use crate::contexts::CONTEXTS;
use std::collections::BTreeSet;
use std::path::Path;

/// Public functions that are in no loop of a task's, and why.
const NOT_REPEATED: &[(&str, &str)] = &[
    ("Cx::id", "a constant of the task: a loop of it is an empty loop"),
    ("Cx::caps", "a constant of the task"),
    ("Cx::worker", "constant between two yield points"),
    ("Cx::yield_interval", "a constant of the runtime"),
    ("Cx::meter", "makes a value; its methods charge ops"),
    ("Cx::kill_worker", "ends the task"),
    ("Runtime::attach_event_loop", "succeeds once for a runtime"),
    ("Handle::id", "a constant of the task"),
    ("Handle::wait", "for ordinary threads, blocks"),
    ("Nursery::builder", "makes a value; what it spawns counts"),
    ("SpawnBuilder::budget", "sets a value"),
    ("SpawnBuilder::pool", "sets a value"),
    ("SpawnBuilder::caps", "sets a value"),
    ("SpawnBuilder::stack_size", "sets a value"),
    ("SpawnBuilder::name", "sets a value"),
    ("SpawnBuilder::tenant", "sets a value"),
    ("SpawnBuilder::schedule", "sets a value"),
    ("SpawnBuilder::context", "sets a value"),
    ("SpawnBuilder::quota", "sets a value"),
    ("SpawnBuilder::priority", "sets a value"),
    ("SchedulingContext::number", "a constant of the context"),
    ("Session::name", "a constant of the session"),
    ("PolicyService::boundary", "a look at a value of the caller's own"),
    ("Select::new", "makes a value"),
    ("Select::recv", "sets a value"),
    ("Select::send", "sets a value"),
    ("Select::in_order", "sets a value"),
    ("Select::run_blocking", "for ordinary threads, blocks"),
    ("Sender::send_blocking", "for ordinary threads, blocks"),
    ("Sender::send_blocking_timeout", "for ordinary threads, blocks"),
    ("Receiver::recv_blocking", "for ordinary threads, blocks"),
    ("Receiver::recv_blocking_timeout", "for ordinary threads, blocks"),
    ("Runtime::open_nursery", "for ordinary threads, ends by blocking"),
    ("Runtime::open_run", "for ordinary threads, ends by blocking"),
    ("Runtime::spawn_root", "a spawn"),
    ("Reply::is_on_loan", "a constant of the reply"),
    ("Reply::is_over", "a constant once it is true, and a poll that counts before"),
    ("Parker::park_blocking", "for ordinary threads, blocks"),
    ("Nursery::spawner", "makes a value; what it spawns counts"),
    ("Nursery::thread_spawner", "makes a value; what it spawns counts"),
    ("Signals::recv_blocking", "for ordinary threads, blocks"),
    ("Async::get_ref", "a constant of the socket"),
    ("Stream::get_ref", "a constant of the socket"),
    ("Stream::with", "makes a value"),
    ("UnixListener::get_ref", "a constant of the socket"),
    ("UnixDatagram::get_ref", "a constant of the socket"),
    ("Ready::get_ref", "a constant of the socket"),
    ("File::get_ref", "a constant of the file"),
    ("JoinSet::new", "makes a value"),
    ("Supervisor::new", "makes a value"),
    ("Supervisor::intensity", "sets a value"),
    ("Supervisor::nursery", "sets a value"),
    ("Supervisor::child", "sets a value"),
    ("Select::notified", "sets a value"),
    ("Select::acquire", "sets a value"),
    ("Select::cancelled", "sets a value"),
    ("Select::changed", "sets a value"),
    ("Select::ended", "sets a value"),
    ("Select::readable", "sets a value"),
    ("Select::writable", "sets a value"),
    ("Semaphore::acquire_blocking", "for ordinary threads, blocks"),
    ("Mutex::lock_blocking", "for ordinary threads, blocks"),
    ("RwLock::new", "makes a value that no other task knows"),
    ("RwLock::into_inner", "ends a value"),
    ("RwLock::read_blocking", "for ordinary threads, blocks"),
    ("RwLock::write_blocking", "for ordinary threads, blocks"),
    ("Notify::new", "makes a value that no other task knows"),
    ("Notify::notified_blocking", "for ordinary threads, blocks"),
    ("Condvar::new", "makes a value that no other task knows"),
    ("Condvar::wait_blocking", "for ordinary threads, blocks"),
    ("Barrier::new", "makes a value that no other task knows"),
    ("Barrier::wait_blocking", "for ordinary threads, blocks"),
    ("CancelToken::new", "makes a value that no other task knows"),
    ("CancelToken::cancelled_blocking", "for ordinary threads, blocks"),
    ("OneshotSender::send_blocking", "ends a value"),
    ("OneshotReceiver::recv_blocking", "for ordinary threads, blocks"),
    ("OneshotReceiver::receiver", "a constant of the channel"),
    ("WatchReceiver::changed_blocking", "for ordinary threads, blocks"),
    ("BroadcastReceiver::recv_blocking", "for ordinary threads, blocks"),
    ("Semaphore::new", "makes a value that no other task knows"),
    ("Mutex::new", "makes a value that no other task knows"),
    ("Mutex::into_inner", "ends a value"),
    ("Once::new", "makes a value that no other task knows"),
    ("TcpListener::into_std", "ends a value"),
    ("Stream::into_std", "ends a value"),
    ("UdpSocket::into_std", "ends a value"),
    ("Runtime::run", "for ordinary threads, blocks"),
    ("Runtime::nursery", "for ordinary threads, blocks"),
];

/// The public functions of the types through which a task reaches the runtime, by their sources.
fn public_functions() -> BTreeSet<String> {
    const TYPES: &[&str] = &[
        "Cx",
        "Nursery",
        "SpawnBuilder",
        "Handle",
        "Sender",
        "Receiver",
        "Select",
        "Semaphore",
        "Mutex",
        "Once",
        "RwLock",
        "Notify",
        "Condvar",
        "Barrier",
        "CancelToken",
        "OneshotSender",
        "OneshotReceiver",
        "WatchSender",
        "WatchReceiver",
        "BroadcastSender",
        "BroadcastReceiver",
        "Async",
        "Timer",
        "Spawner",
        "ThreadSpawner",
        "Signals",
        "JoinSet",
        "Supervisor",
        "Address",
        "Mailbox",
        "Abroad",
        "Parker",
        "Interval",
        "TcpListener",
        "TcpStream",
        "UdpSocket",
        "Stream",
        "UnixStream",
        "UnixListener",
        "UnixDatagram",
        "Ready",
        "File",
        "Runtime",
        "SchedulingContext",
        "Endpoint",
        "Reply",
        "Quota",
        "Session",
        "PolicyService",
    ];
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let text = std::fs::read_to_string(&entry).unwrap();
                // A loose function counts if it is one of the module of sockets and files.
                let is_io = entry.ends_with("io/mod.rs") || entry.ends_with("io/ready.rs");
                functions_of(&text, TYPES, is_io, &mut found);
            }
        }
    }
    found
}

fn functions_of(text: &str, types: &[&str], loose: bool, found: &mut BTreeSet<String>) {
    let mut of = None;
    for line in text.lines() {
        if line.starts_with("impl") {
            // `impl<'a, T: X> Type<..> {`, or `impl<..> Trait for Type<..> {`.
            let mut depth = 0;
            let bare: String = line
                .chars()
                .filter(|&c| {
                    depth += i32::from(c == '<');
                    let keep = depth == 0;
                    depth -= i32::from(c == '>');
                    keep
                })
                .collect();
            let name = bare.trim_start_matches("impl").split('{').next().unwrap().trim();
            let is_trait = name.contains(" for ");
            of = types.iter().find(|&&known| known == name && !is_trait);
        } else if line.starts_with('}') {
            of = None;
        }
        let (indent, rest) = (line.len() - line.trim_start().len(), line.trim_start());
        let Some(rest) = rest.strip_prefix("pub ") else { continue };
        let rest =
            rest.trim_start_matches("const ").trim_start_matches("unsafe ").trim_start_matches("async ");
        let Some(name) = rest.strip_prefix("fn ") else { continue };
        let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        match (indent, of) {
            (4, Some(of)) => _ = found.insert(format!("{of}::{name}")),
            (0, _) if loose => _ = found.insert(name),
            _ => {}
        }
    }
}

#[test]
fn no_public_operation_is_missing_from_the_table() {
    let public = public_functions();
    assert!(public.contains("Cx::sleep") && public.contains("Select::run") && public.contains("read_file"));
    let clones = [
        "Sender::clone",
        "Receiver::clone",
        "WatchReceiver::clone",
        "BroadcastSender::clone",
        "BroadcastReceiver::clone",
        "Address::clone",
    ];
    let known: BTreeSet<&str> = WITH_IO
        .iter()
        .chain(&[CONTEXTS])
        .copied()
        .flatten()
        .map(|(name, _)| *name)
        .chain(NOT_REPEATED.iter().map(|(name, _)| *name))
        .collect();
    let missing: Vec<_> = public.iter().filter(|name| !known.contains(name.as_str())).collect();
    let gone: Vec<_> =
        known.iter().filter(|name| !public.contains(**name) && !clones.contains(name)).collect();
    assert!(missing.is_empty(), "add these to the table, and count them: {missing:?}");
    assert!(gone.is_empty(), "there are no such functions: {gone:?}");
}
