//! A real NATS server on loopback, and processes that end with the test.
#![allow(dead_code)]

pub mod actors;
pub mod members;
pub mod model;
pub mod namespaces;

use mainspring_cluster::Identity;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long anything in a test may take before it counts as hanging. Far beyond what it takes on a busy host.
pub const HANGS: Duration = Duration::from_secs(240);

/// A folder that goes away with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cluster-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when it is dropped.
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a process");
        // One that has ended by itself is ours until it is waited for.
        kill_process(pid, signal).expect("it is ours");
        if signal == Signal::STOP {
            // One thread takes the signal and stops the others. Where CPUs are busy they go on until that one has run.
            while !self.has_stopped() {
                std::thread::yield_now();
            }
        }
    }

    /// Whether no thread of it runs any more.
    fn has_stopped(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.0.id())) else { return true };
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The name is in parentheses, and may have any others in it. A thread that has ended has no state.
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
            state.is_none_or(|state| "TtZX".contains(state))
        })
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server that stores in a folder, so that it can be killed and started again.
pub struct Server {
    process: Option<Process>,
    pub folder: Folder,
    pub port: u16,
    address: String,
    config: Option<String>,
    more: Vec<String>,
    /// The size of the disk that it alone sees, where it stores.
    disk: Option<String>,
}

/// Runs a program on a disk of its own: `SIZE FOLDER PROGRAM WORDS...`.
const ON_DISK: &str =
    r#"size="$1"; folder="$2"; shift 2; mount -t tmpfs -o "size=$size" tmpfs "$folder" && exec "$@""#;

fn on_disk(size: &str, folder: &Path, program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", ON_DISK, "sh", size]).arg(folder).arg(program);
    command
}

impl Server {
    pub fn start() -> Self {
        Self::with(None, &["--jetstream"])
    }

    /// With a text of configuration, and other words.
    pub fn with(config: Option<&str>, more: &[&str]) -> Self {
        Self::at("127.0.0.1", config, more)
    }

    /// At another address, which only namespaces of the test have.
    pub fn listening(address: &str) -> Self {
        Self::at(address, None, &["--jetstream"])
    }

    /// On a disk of this size, as `mount` takes it; or says why this process may not make one.
    pub fn on_disk(size: &str) -> Result<Self, String> {
        let tried = on_disk(size, &Folder::new().0, "true").output();
        let tried = tried.map_err(|error| format!("unshare: {error}"))?;
        if !tried.status.success() {
            return Err(text(&tried.stderr));
        }
        let mut server = Self::start();
        server.kill();
        server.disk = Some(size.to_owned());
        server.restart();
        Ok(server)
    }

    fn at(address: &str, config: Option<&str>, more: &[&str]) -> Self {
        let mut server = Self {
            process: None,
            folder: Folder::new(),
            port: free_port(),
            address: address.to_owned(),
            config: config.map(str::to_owned),
            more: more.iter().map(|word| (*word).to_owned()).collect(),
            disk: None,
        };
        server.restart();
        server
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn restart(&mut self) {
        let mut command = match &self.disk {
            None => Command::new("nats-server"),
            Some(size) => on_disk(size, &self.folder.0, "nats-server"),
        };
        command.args(["--addr", &self.address, "--port", &self.port.to_string()]);
        command.arg("--store_dir").arg(&self.folder.0).args(&self.more);
        if let Some(config) = &self.config {
            let path = self.folder.0.join("server.conf");
            std::fs::write(&path, config).expect("its configuration");
            command.arg("--config").arg(path);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(Process::start(&mut command));
        until("the server listens", || TcpStream::connect((self.address.as_str(), self.port)).is_ok());
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
    listener.local_addr().expect("its address").port()
}

/// Waits for something that comes about elsewhere.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANGS, "it hangs: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The program that `make test-cluster` builds first.
pub fn mainspring() -> Command {
    let path = std::env::var_os("MAINSPRING").map_or_else(
        || Path::new(env!("CARGO_BIN_EXE_mainspring-cluster")).with_file_name("mainspring"),
        PathBuf::from,
    );
    assert!(path.is_file(), "{} is not there: `make test-cluster` builds it", path.display());
    let mut command = Command::new(path);
    command.env("PATH", with_cluster_on_path()).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    command
}

fn with_cluster_on_path() -> std::ffi::OsString {
    let beside = Path::new(env!("CARGO_BIN_EXE_mainspring-cluster")).parent().expect("its folder").to_owned();
    let before = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([beside].into_iter().chain(std::env::split_paths(&before))).expect("a PATH")
}

/// Runs to the end, or fails when it hangs.
pub fn run(command: &mut Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(Process::start(command))
}

/// As [`run`], for one that was started with pipes.
pub fn finish(mut process: Process) -> Output {
    use std::io::Read;
    let (out, err) = (process.0.stdout.take(), process.0.stderr.take());
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            bytes
        })
    };
    let out = read(out.map(|pipe| Box::new(pipe) as _));
    let err = read(err.map(|pipe| Box::new(pipe) as _));
    let mut status = None;
    until("a program ends", || {
        status = process.0.try_wait().expect("its status");
        status.is_some()
    });
    Output {
        status: status.expect("it has ended"),
        stdout: out.join().expect("its output"),
        stderr: err.join().expect("its errors"),
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The secret of a node of this name.
pub fn secret(name: &str) -> [u8; 32] {
    let mut secret = [0; 32];
    secret[..name.len()].copy_from_slice(name.as_bytes());
    secret
}

pub fn identity(name: &str) -> Identity {
    Identity::new(name, &secret(name))
}
