//! TCP through the network process: sockets are numbers, and each operation is a call.
//!
//! The network process serves one endpoint for each of its clients. A number means something at the endpoint that it was given
//! at and nowhere else, so a client reaches no socket of another. A call waits at the network process until it can be answered,
//! and a client that does not want to wait calls with a timeout.

use crate::caps;
use heapless::Vec;
use mainspring_abi::kernel::MAX_MESSAGE;
use mainspring_abi::ring::CapError;

/// Bytes of data that one call carries.
pub const DATA: usize = MAX_MESSAGE - HEAD;
/// What stands before the data of a call: the operation, and a number.
pub const HEAD: usize = 5;

/// What a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Operation {
    /// Listens at the port that the number is, for as many connections at the same moment as the data say; the answer is the
    /// listener's number.
    Listen = 0,
    /// Waits for a connection at a listener; the answer is the connection's number. With a byte of data it does not wait: the number
    /// is 0 if there is no connection.
    Accept = 1,
    /// Waits for bytes of a connection; the answer is the bytes, and none if there will be none any more.
    Read = 2,
    /// Waits for room and writes some of the bytes behind the head; the answer is how many.
    Write = 3,
    /// The socket is given up: a connection after what was written has been sent.
    Close = 4,
    /// What the network process has used; the answer is a [`NetUsage`].
    Usage = 5,
    /// Waits until one of the client's sockets has something; the answer is [events](Event). The data are the numbers of
    /// connections of which room is wanted, too.
    Wait = 6,
}

/// What a socket has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ready {
    /// A listener has a connection, which may be broken off before it is [accepted](TcpListener::accept_now).
    Connection = 0,
    /// A connection has bytes, or its end: [`TcpStream::read`] does not wait.
    Bytes = 1,
    /// A connection has room, or is broken off: [`TcpStream::write`] does not wait.
    Room = 2,
}

/// A socket that has something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The socket's number.
    pub number: u32,
    /// What it has.
    pub ready: Ready,
}

impl Event {
    /// Bytes of one.
    pub const BYTES: usize = 5;
    /// Events of one answer.
    pub const MOST: usize = (MAX_MESSAGE - 1) / Self::BYTES;

    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.number.to_le_bytes();
        [a, b, c, d, self.ready as u8]
    }

    fn from_bytes([a, b, c, d, ready]: [u8; Self::BYTES]) -> Option<Self> {
        let ready = match ready {
            0 => Ready::Connection,
            1 => Ready::Bytes,
            2 => Ready::Room,
            _ => return None,
        };
        Some(Self { number: u32::from_le_bytes([a, b, c, d]), ready })
    }
}

/// What the network process has used of its context since it was bound to it, and the packets that it has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetUsage {
    /// Packets taken from the card.
    pub packets: u64,
    /// CPU time on the context; 0 without one, as all that follows.
    pub used_ns: u64,
    /// What the context grants in each period.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// The most by which a budget was overrun at once.
    pub overshoot_max_ns: u64,
}

impl NetUsage {
    /// Bytes of one.
    pub const BYTES: usize = 40;

    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let words = [self.packets, self.used_ns, self.budget_ns, self.period_ns, self.overshoot_max_ns];
        let mut bytes = [0; Self::BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From [`NetUsage::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| bytes[8 * at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        Self {
            packets: word(0),
            used_ns: word(1),
            budget_ns: word(2),
            period_ns: word(3),
            overshoot_max_ns: word(4),
        }
    }
}

/// What an answer begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// It is done.
    Done = 0,
    /// There is no socket with this number.
    NoSocket = 1,
    /// The client has as many sockets as it may, or as many calls wait as can.
    Full = 2,
    /// The other side has broken the connection off.
    Reset = 3,
    /// The call makes no sense.
    Malformed = 4,
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetError {
    /// The network process cannot be called.
    Call(CapError),
    /// It refuses.
    Refused(Status),
}

impl From<CapError> for NetError {
    fn from(code: CapError) -> Self {
        Self::Call(code)
    }
}

/// The network process, as one of its clients has it.
#[derive(Clone, Copy, Debug)]
pub struct Network(u32);

impl Network {
    /// At the endpoint of that capability.
    #[must_use]
    pub fn new(endpoint: u32) -> Self {
        Self(endpoint)
    }

    fn call(
        self,
        operation: Operation,
        number: u32,
        data: &[u8],
        answer: &mut [u8],
    ) -> Result<usize, NetError> {
        let mut message: Vec<u8, MAX_MESSAGE> = Vec::new();
        let whole = message.push(operation as u8).is_ok()
            && message.extend_from_slice(&number.to_le_bytes()).is_ok()
            && message.extend_from_slice(data).is_ok();
        if !whole {
            return Err(NetError::Refused(Status::Malformed));
        }
        let mut buffer = [0; MAX_MESSAGE];
        let len = caps::call_endpoint(self.0, &message, &mut buffer)? as usize;
        let (status, rest) = buffer[..len].split_first().ok_or(NetError::Refused(Status::Malformed))?;
        match *status {
            0 => {}
            1 => return Err(NetError::Refused(Status::NoSocket)),
            2 => return Err(NetError::Refused(Status::Full)),
            3 => return Err(NetError::Refused(Status::Reset)),
            _ => return Err(NetError::Refused(Status::Malformed)),
        }
        answer.get_mut(..rest.len()).ok_or(NetError::Refused(Status::Malformed))?.copy_from_slice(rest);
        Ok(rest.len())
    }

    fn number(self, operation: Operation, number: u32, data: &[u8]) -> Result<u32, NetError> {
        let mut answer = [0; 4];
        match self.call(operation, number, data, &mut answer)? {
            4 => Ok(u32::from_le_bytes(answer)),
            _ => Err(NetError::Refused(Status::Malformed)),
        }
    }

    /// Listens at `port`. At most `backlog` connections, and 64, can come in at the same moment; others are refused.
    pub fn listen(self, port: u16, backlog: u32) -> Result<TcpListener, NetError> {
        let number = self.number(Operation::Listen, port.into(), &backlog.to_le_bytes())?;
        Ok(TcpListener { network: self, number })
    }
}

impl Network {
    /// What the network process has used.
    pub fn usage(self) -> Result<NetUsage, NetError> {
        let mut answer = [0; NetUsage::BYTES];
        match self.call(Operation::Usage, 0, &[], &mut answer)? {
            NetUsage::BYTES => Ok(NetUsage::from_bytes(&answer)),
            _ => Err(NetError::Refused(Status::Malformed)),
        }
    }

    /// Waits until one of this client's sockets has something. What has room is told of the connections in `wants_room` alone.
    /// What is not taken is told again.
    pub fn wait(self, wants_room: &[u32]) -> Result<Vec<Event, { Event::MOST }>, NetError> {
        let mut wanted: Vec<u8, DATA> = Vec::new();
        for number in wants_room.iter().take(DATA / 4) {
            // As many as fit were taken.
            let _fits = wanted.extend_from_slice(&number.to_le_bytes());
        }
        let mut answer = [0; MAX_MESSAGE];
        let len = self.call(Operation::Wait, 0, &wanted, &mut answer)?;
        Ok(answer[..len].as_chunks().0.iter().filter_map(|bytes| Event::from_bytes(*bytes)).collect())
    }

    /// As [`Network::listen`], again and again while there is no network process to ask.
    pub fn listen_when_up(self, port: u16, backlog: u32) -> Result<TcpListener, NetError> {
        loop {
            match self.listen(port, backlog) {
                Err(NetError::Call(CapError::PeerGone)) => caps::sleep(RETRY_NS)?,
                outcome => return outcome,
            }
        }
    }
}

/// How long to wait for a network process that is not there.
const RETRY_NS: u64 = 50_000_000;

/// Where connections come in.
#[derive(Clone, Copy, Debug)]
pub struct TcpListener {
    network: Network,
    number: u32,
}

impl TcpListener {
    /// Its number, as events have it.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// Waits for a connection.
    pub fn accept(self) -> Result<TcpStream, NetError> {
        let number = self.network.number(Operation::Accept, self.number, &[])?;
        Ok(TcpStream { network: self.network, number })
    }

    /// A connection, if there is one.
    pub fn accept_now(self) -> Result<Option<TcpStream>, NetError> {
        let number = self.network.number(Operation::Accept, self.number, &[0])?;
        Ok((number != 0).then_some(TcpStream { network: self.network, number }))
    }
}

/// A connection.
#[derive(Clone, Copy, Debug)]
pub struct TcpStream {
    network: Network,
    number: u32,
}

impl TcpStream {
    /// Its number, as events have it.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// Waits for room, and writes some of `bytes`; how many.
    pub fn write(self, bytes: &[u8]) -> Result<usize, NetError> {
        let piece = &bytes[..bytes.len().min(DATA)];
        Ok(self.network.number(Operation::Write, self.number, piece)? as usize)
    }

    /// Waits for bytes; how many, and none at the end.
    pub fn read(self, buffer: &mut [u8]) -> Result<usize, NetError> {
        let most = buffer.len().min(DATA) as u32;
        self.network.call(Operation::Read, self.number, &most.to_le_bytes(), buffer)
    }

    /// Writes all of `bytes`.
    pub fn write_all(self, mut bytes: &[u8]) -> Result<(), NetError> {
        while !bytes.is_empty() {
            let written = self.write(bytes)?;
            bytes = bytes.get(written..).ok_or(NetError::Refused(Status::Malformed))?;
        }
        Ok(())
    }

    /// Gives it up, once all that was written has been sent.
    pub fn close(self) -> Result<(), NetError> {
        self.network.call(Operation::Close, self.number, &[], &mut []).map(|_| ())
    }
}
