//! One machine: QEMU with the kernel, from start to end or to a deadline.

use crate::image::{self, Build, BuildError};
use mainspring_abi::frame::{Frame, FrameError, Frames, Trailer};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
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
    /// Which kernel.
    pub build: Build,
    /// A plugin of QEMU's, with its arguments.
    pub plugin: Option<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { cpus: 1, memory_mb: 512, icount: false, build: Build::Plain, plugin: None }
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
    /// QEMU's exit code, or `None` if the deadline passed first.
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
    /// QEMU could not be started.
    Qemu(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(f),
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
            qemu.args(["-accel", "tcg,thread=multi"]);
        }
        if let Some(plugin) = &self.plugin {
            qemu.args(["-plugin", plugin]);
        }
        qemu.arg("-kernel").arg(image::kernel(self.build)?).arg("-initrd").arg(initrd);
        Ok(qemu)
    }

    /// Runs it with this boot image and the terminal as its serial line; its exit code.
    pub fn interactive(&self, image: &[u8]) -> Result<i32, RunError> {
        let initrd = Scratch::new(image)?;
        let status = self.command(&initrd.0)?.status().map_err(RunError::Qemu)?;
        Ok(status.code().unwrap_or(-1))
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
        let mut child = self
            .command(&initrd.0)?
            .arg("-debugcon")
            .arg(format!("file:{}", console.0.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(RunError::Qemu)?;
        let lines = serial_lines(&mut child);
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
        Ok(Run { serial, used_ns, code: Some(status.code().unwrap_or(-1)), took, console })
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
    }
}
