//! The host's side of a machine with a network card: ports of the loopback interface that lead to ports of the machine, and the
//! questions of the network proof.
//!
//! QEMU's user network is restricted: the machine reaches nothing, and is reached at these ports alone.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The address that the machine has, as its network process is told.
pub const GUEST: &str = "10.0.2.15/24";

/// A port of this host that leads to a port of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forward {
    /// Whether it is of UDP.
    pub udp: bool,
    /// On the loopback interface.
    pub host: u16,
    /// Of the machine.
    pub guest: u16,
}

/// The network of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Network {
    /// What leads there.
    pub forwards: Vec<Forward>,
}

/// Ports of this host that are free now.
fn free_port(udp: bool) -> io::Result<u16> {
    let any = (Ipv4Addr::LOCALHOST, 0);
    let address = if udp { UdpSocket::bind(any)?.local_addr() } else { TcpListener::bind(any)?.local_addr() };
    address.map(|address| address.port())
}

impl Network {
    /// A network in which some free port of this host leads to each of these ports of the machine, of TCP and of UDP.
    pub fn to(tcp: &[u16], udp: &[u16]) -> io::Result<Self> {
        let guests = tcp.iter().map(|port| (false, *port)).chain(udp.iter().map(|port| (true, *port)));
        let forward = |(udp, guest)| Ok(Forward { udp, guest, host: free_port(udp)? });
        Ok(Self { forwards: guests.map(forward).collect::<io::Result<_>>()? })
    }

    /// What QEMU is told of it.
    #[must_use]
    pub fn arguments(&self) -> [String; 6] {
        let mut user = "user,id=net0,restrict=on".to_owned();
        for Forward { udp, host, guest } in &self.forwards {
            let kind = if *udp { "udp" } else { "tcp" };
            user.push_str(&format!(",hostfwd={kind}:127.0.0.1:{host}-:{guest}"));
        }
        // Only a function behind a port can be reset alone, which the kernel insists on.
        let port = "pcie-root-port,id=port0".to_owned();
        let card = "virtio-net-pci,netdev=net0,bus=port0,disable-legacy=on".to_owned();
        ["-netdev".to_owned(), user, "-device".to_owned(), port, "-device".to_owned(), card]
    }

    /// The port of this host that leads to port `guest` of the machine.
    #[must_use]
    pub fn host_port(&self, udp: bool, guest: u16) -> Option<u16> {
        self.forwards
            .iter()
            .find(|forward| forward.udp == udp && forward.guest == guest)
            .map(|found| found.host)
    }
}

/// What did not hold.
#[derive(Debug)]
pub struct Complaint(String);

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Complaint {
    /// This did not hold.
    #[must_use]
    pub fn new(what: &str) -> Self {
        Self(what.to_owned())
    }
}

fn complain<T>(what: impl Into<String>) -> Result<T, Complaint> {
    Err(Complaint(what.into()))
}

/// How long the host waits for the machine at a time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections at once.
const CONNECTIONS: usize = 64;
/// What each of them sends.
const BYTES: usize = 3000;
/// Datagrams of the proof's flood.
const FLOOD: usize = 20_000;
/// Packets beside which the calls of the benchmark are of a flooded machine, and how often it is flooded to have as many.
const FLOODED: u64 = 20_000;
const TRIES: u32 = 5;
/// Seconds in one of which no tick comes.
const IDLE_SECONDS: u32 = 10;
/// Round trips that are timed with and without a flood.
const ROUND_TRIPS: usize = 200;
/// How often the driver is killed.
const RESTARTS: usize = 3;

/// Datagrams on their way.
struct Flood {
    over: Arc<AtomicBool>,
    sending: JoinHandle<usize>,
}

impl Flood {
    /// Ends it; how many were sent.
    fn end(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        self.sending.join().unwrap_or(0)
    }
}

/// The proof from the host's side. What it found out, a line each.
#[derive(Debug)]
pub struct Exercise {
    network: Network,
    ready: Receiver<()>,
}

impl Exercise {
    /// Ports that the proof's programs serve: echo, questions, the status page, and one at which nobody listens.
    pub const TCP: &'static [u16] = &[7, 9, 80];
    /// Where the flood goes.
    pub const UDP: &'static [u16] = &[1];

    /// Through `network`. `ready` tells of each network process that the machine says has come up.
    #[must_use]
    pub fn new(network: Network, ready: Receiver<()>) -> Self {
        Self { network, ready }
    }

    fn connect(&self, guest: u16) -> Result<TcpStream, Complaint> {
        let Some(port) = self.network.host_port(false, guest) else { return complain("no such port") };
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        connected.or_else(|error| complain(format!("port {guest}: {error}")))
    }

    /// A connection to the echo that the machine has accepted. QEMU takes few connections at a time that it has not passed on: one
    /// more waits for a second or longer.
    fn connect_through(&self) -> Result<TcpStream, Complaint> {
        let mut stream = self.connect(7)?;
        let mut byte = [1];
        match stream.write_all(&byte).and_then(|()| stream.read_exact(&mut byte)) {
            Ok(()) => Ok(stream),
            Err(error) => complain(format!("a connection is not served: {error}")),
        }
    }

    /// Sends `bytes`, and reads what comes back until the other side ends or as much has come.
    fn exchange(&self, guest: u16, bytes: &[u8], most: usize) -> Result<Vec<u8>, Complaint> {
        let mut stream = self.connect(guest)?;
        let mut answer = Vec::new();
        let exchanged = stream
            .write_all(bytes)
            .and_then(|()| Read::by_ref(&mut stream).take(most as u64).read_to_end(&mut answer).map(|_| ()));
        match exchanged {
            Ok(()) => Ok(answer),
            Err(error) => complain(format!("port {guest}: {error}, after {} bytes", answer.len())),
        }
    }

    fn ask(&self, question: &str) -> Result<String, Complaint> {
        let answer = self.exchange(9, question.as_bytes(), 256)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// A number of an answer of the machine's.
    fn number(answer: &str, name: &str) -> Result<u64, Complaint> {
        let found = answer.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        match found.and_then(|number| number.parse().ok()) {
            Some(number) => Ok(number),
            None => complain(format!("the machine answers `{answer}`, in which there is no {name}")),
        }
    }

    /// All of it. The machine is told to end, whatever comes out.
    pub fn run(&self) -> Result<Vec<String>, Complaint> {
        let found = self.questions();
        let ended = self.ask("end");
        let found = found?;
        if ended? != "bye" {
            return complain("the machine does not end");
        }
        Ok(found)
    }

    fn questions(&self) -> Result<Vec<String>, Complaint> {
        self.wait_until_up()?;
        self.crowd()?;
        self.pages()?;
        self.leave_early()?;
        let idle = self.idle()?;
        let flood = self.flood()?;
        for _ in 0..RESTARTS {
            if self.ask("restart")? != "restarting" {
                return complain("the driver is not replaced");
            }
            self.wait_until_up()?;
        }
        self.crowd()?;
        Ok(vec![
            format!("network: echo connections={CONNECTIONS} at once"),
            "network: status page, and wrong requests refused".to_owned(),
            idle,
            flood,
            "network: a driver that was killed is replaced".to_owned(),
        ])
    }

    /// Many connections at once, each with bytes of its own, come back whole.
    fn crowd(&self) -> Result<(), Complaint> {
        let streams = (0..CONNECTIONS).map(|_| self.connect_through()).collect::<Result<Vec<_>, _>>()?;
        let echo = |(number, mut stream): (usize, TcpStream)| {
            let sent: Vec<u8> = (0..BYTES).map(|at| (at * 31 + number * 7) as u8).collect();
            let mut came = vec![0; BYTES];
            let (mut writer, bytes) = (stream.try_clone()?, sent.clone());
            let writing = thread::spawn(move || writer.write_all(&bytes));
            stream.read_exact(&mut came)?;
            writing.join().map_err(|_| io::Error::other("the writer panicked"))??;
            Ok::<_, io::Error>(came == sent)
        };
        let all: Vec<_> =
            streams.into_iter().enumerate().map(|one| thread::spawn(move || echo(one))).collect();
        for (number, one) in all.into_iter().enumerate() {
            match one.join() {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return complain(format!("connection {number} got other bytes back")),
                Ok(Err(error)) => return complain(format!("connection {number}: {error}")),
                Err(_) => return complain(format!("connection {number} panicked")),
            }
        }
        Ok(())
    }

    fn pages(&self) -> Result<(), Complaint> {
        let cases = [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 ", "Mainspring kernel"),
            ("GET /other HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ", ""),
            ("POST / HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ", ""),
            (&"x".repeat(2000), "HTTP/1.1 431 ", ""),
        ];
        for (request, begins, holds) in cases {
            let answer = self.exchange(80, request.as_bytes(), 1 << 16)?;
            let answer = String::from_utf8_lossy(&answer);
            if !answer.starts_with(begins) || !answer.contains(holds) {
                let asked = &request[..request.len().min(40)];
                return complain(format!("`{asked}` is answered `{}`", &answer[..answer.len().min(80)]));
            }
        }
        Ok(())
    }

    /// Clients that go away in the middle leave nothing behind that is in the way of others.
    fn leave_early(&self) -> Result<(), Complaint> {
        for _ in 0..3 * CONNECTIONS {
            let Ok(mut stream) = self.connect_through() else { continue };
            // Whether it arrives does not matter.
            let _ = stream.write_all(&[0; 100]);
        }
        // Their sockets are free as soon as both sides have closed.
        let began = Instant::now();
        loop {
            match self.crowd() {
                Err(_) if began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(500)),
                outcome => return outcome,
            }
        }
    }

    /// Nothing but TCP's own timers is pending: no tick comes.
    fn idle(&self) -> Result<String, Complaint> {
        // A connection stays open meanwhile, and those that were closed just now linger.
        let _open = self.connect(7)?;
        // A busy host may hold the machine up in the middle of something, which is a tick then. If TCP's timers needed ticks,
        // there would be a hundred in every second.
        let mut fewest = u64::MAX;
        for _ in 0..IDLE_SECONDS {
            fewest = fewest.min(Self::number(&self.ask("idle")?, "ticks")?);
            if fewest == 0 {
                return Ok("network: idle second ticks=0".to_owned());
            }
        }
        complain(format!("{fewest} ticks or more came in each of {IDLE_SECONDS} idle seconds"))
    }

    fn round_trips(&self, count: usize, when: &str) -> Result<Vec<u128>, Complaint> {
        let mut stream = self.connect(7)?;
        let mut took = Vec::new();
        for number in 0..count {
            let (began, mut byte) = (Instant::now(), [number as u8]);
            let came = stream.write_all(&byte).and_then(|()| stream.read_exact(&mut byte));
            if let Err(error) = came {
                return complain(format!("round trip {number} {when}: {error}"));
            }
            took.push(began.elapsed().as_micros());
        }
        took.sort_unstable();
        Ok(took)
    }

    /// Sends datagrams beside what follows: `most` of them, `pause` between 64 and the next 64, and not for longer than [`PATIENCE`].
    fn begin_flood(&self, most: usize, pause: Duration) -> Result<Flood, Complaint> {
        let port = self.network.host_port(true, Self::UDP[0]);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let (Some(port), Ok(socket)) = (port, socket) else { return complain("no port for the flood") };
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let sending = thread::spawn(move || {
            let began = Instant::now();
            let mut sent = 0;
            while sent < most && began.elapsed() < PATIENCE && !told.load(Ordering::Relaxed) {
                // What the host does not take is lost, as on any wire.
                let _ = socket.send_to(&[0; 64], (Ipv4Addr::LOCALHOST, port));
                sent += 1;
                if sent % 64 == 0 {
                    thread::sleep(pause);
                }
            }
            sent
        });
        Ok(Flood { over, sending })
    }

    /// What a client on the machine waits for the network process, with and without a flood. The machine counts instructions, and
    /// the figures are its own: how fast the host is does not matter, as long as it can send faster than the machine takes.
    pub fn bench(&self) -> Result<Vec<String>, Complaint> {
        let found = self.calls();
        let ended = self.ask("end");
        let found = found?;
        if ended? != "bye" {
            return complain("the machine does not end");
        }
        Ok(found)
    }

    fn calls(&self) -> Result<Vec<String>, Complaint> {
        self.wait_until_up()?;
        let quiet = self.ask("calls")?;
        let flood = self.begin_flood(usize::MAX, Duration::ZERO)?;
        let flooded = (0..TRIES).map(|_| self.ask("calls")).find(|answer| {
            let packets = answer.as_ref().map(|answer| Self::number(answer, "packets"));
            !matches!(packets, Ok(Ok(packets)) if packets < FLOODED)
        });
        flood.end();
        let Some(flooded) = flooded else {
            return complain("the host cannot send as fast as the machine takes");
        };
        let flooded = flooded?;
        let packets = Self::number(&flooded, "packets")?;
        let (quiet, flooded) = (Self::number(&quiet, "p99_ns")?, Self::number(&flooded, "p99_ns")?);
        Ok(vec![
            format!("bench: network_call_p99={quiet}"),
            format!("bench: network_call_p99_flooded={flooded}"),
            format!("bench: network_call_p99_percent={}", flooded * 100 / quiet.max(1)),
            format!("bench: network_flood_packets={packets}"),
        ])
    }

    /// A flood of datagrams costs the network process what its context grants, and no more.
    fn flood(&self) -> Result<String, Complaint> {
        let quiet = self.round_trips(ROUND_TRIPS, "without a flood")?;
        let before = self.ask("used")?;
        let flooding = self.begin_flood(FLOOD, Duration::from_millis(2))?;
        let flooded = self.round_trips(ROUND_TRIPS, "under a flood");
        let sent = flooding.end();
        let (flooded, after) = (flooded?, self.ask("used")?);
        let delta = |name| Ok(Self::number(&after, name)?.saturating_sub(Self::number(&before, name)?));
        let (elapsed, used, packets) = (delta("now_ns")?, delta("used_ns")?, delta("packets")?);
        let (budget, period) = (Self::number(&after, "budget_ns")?, Self::number(&after, "period_ns")?);
        let overshoot = Self::number(&after, "overshoot_ns")?;
        // In a window of any length at most one period more than fits begins.
        let granted = budget * (elapsed / period.max(1) + 2) + overshoot;
        if used > granted {
            return complain(format!("the flood cost {used} ns in {elapsed} ns; {granted} ns were granted"));
        }
        // On the host's clock, so that they say little of a host that does other things too: `make bench-kernel` has the machine's.
        let p99 = |all: &[u128]| all[all.len() * 99 / 100];
        Ok(format!(
            "network: flood datagrams={sent} packets={packets} used_ns={used} granted_ns={granted} \
             echo_p99_us={} quiet_p99_us={}",
            p99(&flooded),
            p99(&quiet)
        ))
    }

    /// Waits for a network process, and until all of its clients listen. A connection that was made before would be silent: QEMU
    /// breaks one off only if the machine does.
    fn wait_until_up(&self) -> Result<(), Complaint> {
        match self.ready.recv_timeout(PATIENCE) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return complain("the network does not come up"),
            Err(RecvTimeoutError::Disconnected) => {
                return complain("the machine ended before its network came up");
            }
        }
        let began = Instant::now();
        loop {
            // QEMU takes every connection, and breaks it off if the machine does not.
            let answers = |guest, question: &[u8], most, answer: &[u8]| {
                let came = self.exchange(guest, question, most)?;
                if came.starts_with(answer) {
                    Ok(())
                } else {
                    complain(format!("port {guest} is not served"))
                }
            };
            let up = answers(9, b"used", 256, b"now_ns")
                .and_then(|()| answers(7, b"e", 1, b"e"))
                .and_then(|()| answers(80, b"GET / HTTP/1.1\r\n\r\n", 1 << 16, b"HTTP/1.1"));
            match up {
                Err(_) if began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
                outcome => return outcome,
            }
        }
    }
}
