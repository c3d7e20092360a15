//! One machine: QEMU with the kernel, from start to end or to a deadline.

use crate::image::{self, Build, BuildError};
use crate::network::Network;
use mainspring_abi::frame::{Frame, FrameError, Frames, Trailer};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

/// What QEMU ends with when the kernel says that all is well.
pub const SUCCESS: i32 = 0x10 << 1 | 1;

/// What to start.
#[derive(Clone, Debug)]
pub struct Machine {
    /// How many CPUs.
    pub cpus: u32,
    /// Mebibytes of memory.
    pub memory_mb: u32,
    /// Whether time counts instructions, one nanosecond each: exact, repeatable and slow.
    pub icount: bool,
    /// Whether the CPUs take turns on one thread of the host.
    pub one_thread: bool,
    /// Which kernel.
    pub build: Build,
    /// A plugin of QEMU's, with its arguments.
    pub plugin: Option<String>,
    /// Its network, if it has a card.
    pub network: Option<Network>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory_mb: 512,
            icount: false,
            one_thread: false,
            build: Build::Plain,
            plugin: None,
            network: None,
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Run {
    /// What came over the serial line.
    pub serial: Vec<String>,
    /// What each of QEMU's threads had used of the host's CPUs when each line came, in nanoseconds, by thread; empty where
    /// the host does not tell.
    pub used_ns: Vec<BTreeMap<String, u64>>,
    /// QEMU's exit code, or the negative number of the signal that ended it; `None` if the deadline passed first.
    pub code: Option<i32>,
    /// How long it took.
    pub took: Duration,
    /// What came over the debug console.
    pub console: Vec<u8>,
}

impl Run {
    /// The frames that the kernel wrote, in their order; the last is the end.
    pub fn frames(&self) -> Result<Vec<Frame<'_>>, FrameError> {
        Frames::new(&self.console).collect()
    }

    /// What the kernel says at its end.
    pub fn trailer(&self) -> Result<Trailer, FrameError> {
        self.frames()?
            .into_iter()
            .find_map(|frame| match frame {
                Frame::End(trailer) => Some(trailer),
                _ => None,
            })
            .ok_or(FrameError::NoEnd)
    }
}

/// Why a machine could not be run.
#[derive(Debug)]
pub enum RunError {
    /// It could not be put together.
    Build(BuildError),
    /// No port of this host leads to the machine.
    Network(io::Error),
    /// QEMU could not be started.
    Qemu(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(f),
            Self::Network(error) => write!(f, "no free port for the machine's network: {error}"),
            Self::Qemu(error) => write!(f, "qemu-system-x86_64: {error}; `make setup-qemu` installs it"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<BuildError> for RunError {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

impl Machine {
    /// The command that starts it with the boot image in `initrd`; its serial line is standard input and output.
    pub fn command(&self, initrd: &std::path::Path) -> Result<Command, BuildError> {
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-M",
            "q35",
            "-cpu",
            "max",
            "-display",
            "none",
            "-no-reboot",
            "-nodefaults",
            "-serial",
            "stdio",
        ]);
        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        qemu.args(["-smp", &self.cpus.to_string(), "-m", &format!("{}M", self.memory_mb)]);
        if self.icount {
            qemu.args(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]);
        } else {
            qemu.args(["-accel", if self.one_thread { "tcg,thread=single" } else { "tcg,thread=multi" }]);
        }
        if let Some(plugin) = &self.plugin {
            qemu.args(["-plugin", plugin]);
        }
        if let Some(network) = &self.network {
            qemu.args(network.arguments());
        }
        qemu.arg("-kernel").arg(image::kernel(self.build)?).arg("-initrd").arg(initrd);
        Ok(qemu)
    }

    /// Runs it with this boot image and standard input and output as its serial line; its exit code. Input that is no terminal is
    /// given to the console line by line, each when it asks for one, and then the console is left.
    pub fn interactive(&self, image: &[u8]) -> Result<i32, RunError> {
        let initrd = Scratch::new(image)?;
        let mut command = self.command(&initrd.0)?;
        if io::stdin().is_terminal() {
            let mut child = Running::start(&mut command)?;
            let status = child.0.wait().map_err(RunError::Qemu)?;
            return Ok(code_of(status));
        }
        let mut child = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        if let (Some(input), Some(output)) = (child.0.stdin.take(), child.0.stdout.take()) {
            converse(input, output).map_err(RunError::Qemu)?;
        }
        let status = child.0.wait().map_err(RunError::Qemu)?;
        Ok(code_of(status))
    }

    /// Runs it with this boot image until it ends or `deadline` has passed, showing each line to `watch`.
    pub fn run(
        &self,
        image: &[u8],
        deadline: Duration,
        mut watch: impl FnMut(&str),
    ) -> Result<Run, RunError> {
        let (initrd, console) = (Scratch::new(image)?, Scratch::new(&[])?);
        let began = Instant::now();
        let mut command = self.command(&initrd.0)?;
        command
            .arg("-debugcon")
            .arg(format!("file:{}", console.0.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut running = Running::start(&mut command)?;
        let child = &mut running.0;
        let lines = serial_lines(child);
        let (mut serial, mut used_ns) = (Vec::new(), Vec::new());
        loop {
            match lines.recv_timeout(deadline.saturating_sub(began.elapsed())) {
                Ok(line) => {
                    watch(&line);
                    serial.push(line);
                    used_ns.push(threads_used_ns(child.id()));
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    child.kill().and_then(|()| child.wait()).map_err(RunError::Qemu)?;
                    let console = console.read()?;
                    return Ok(Run { serial, used_ns, code: None, took: began.elapsed(), console });
                }
            }
        }
        let status = child.wait().map_err(RunError::Qemu)?;
        let (took, console) = (began.elapsed(), console.read()?);
        Ok(Run { serial, used_ns, code: Some(code_of(status)), took, console })
    }
}

/// The exit code, or the negative number of the signal that ended it.
fn code_of(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| -signal)).unwrap_or(-1)
}

/// What the console prints when it waits for a line.
const PROMPT: &[u8] = b"> ";

/// Shows what the console prints, and answers each prompt with the next line of standard input. A byte that is sent before the
/// console asks for it may be lost.
fn converse(mut input: impl Write, mut output: impl Read) -> io::Result<()> {
    let mut lines = io::stdin().lock().split(b'\n');
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = output.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        io::stdout().write_all(&buffer[..count])?;
        io::stdout().flush()?;
        shown.extend_from_slice(&buffer[..count]);
        let start = shown.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        shown.drain(..start);
        if shown.ends_with(PROMPT) && shown.len() == PROMPT.len() {
            shown.clear();
            let mut line = lines.next().transpose()?.unwrap_or_else(|| b"exit".to_vec());
            line.push(b'\n');
            // A console that has gone is seen when it is read.
            let _ = input.write_all(&line).and_then(|()| input.flush());
        }
    }
}

/// The machines that run, and the files they need, for a signal that ends the program.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static SCRATCH: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn locked<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The processes of the machines that run.
#[must_use]
pub fn running() -> Vec<u32> {
    locked(&RUNNING).clone()
}

/// The temporary files that there are.
#[must_use]
pub fn scratch_files() -> Vec<PathBuf> {
    locked(&SCRATCH).clone()
}

/// A machine that runs; it is stopped when the value is gone.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self, RunError> {
        let child = command.spawn().map_err(RunError::Qemu)?;
        locked(&RUNNING).push(child.id());
        Ok(Self(child))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
        locked(&RUNNING).retain(|process| *process != self.0.id());
    }
}

/// What the threads of a process have used of the CPUs, from Linux's own books.
fn threads_used_ns(process: u32) -> BTreeMap<String, u64> {
    let used = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let name = task.file_name().to_string_lossy().into_owned();
        Some((name, text.split_whitespace().next()?.parse().ok()?))
    };
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    tasks.into_iter().flatten().filter_map(Result::ok).filter_map(used).collect()
}

fn serial_lines(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

/// A file that is gone when the value is.
struct Scratch(PathBuf);

impl Scratch {
    fn new(bytes: &[u8]) -> Result<Self, BuildError> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mainspring-{}-{number}.img", std::process::id()));
        locked(&SCRATCH).push(path.clone());
        match fs::write(&path, bytes) {
            Ok(()) => Ok(Self(path)),
            Err(error) => Err(BuildError::Io { path, error }),
        }
    }

    fn read(&self) -> Result<Vec<u8>, BuildError> {
        fs::read(&self.0).map_err(|error| BuildError::Io { path: self.0.clone(), error })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        locked(&SCRATCH).retain(|path| *path != self.0);
    }
}
