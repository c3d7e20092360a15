//! What the fuzzer calls: every method of every interface, and every operation of an endpoint. A test of the host compares this
//! table with the schema and with what the kernel takes (`kernel/host/tests/fuzz_methods.rs`).

/// What a capability is of, as far as a process knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Console,
    Timer,
    Threads,
    Control,
    Processes,
    Park,
    Memory,
    Policy,
    Info,
    Call,
    Serve,
    Thread,
    Process,
    Object,
    Context,
    Session,
    Leases,
    Lease,
    Islands,
    Island,
    PolicyService,
    Device,
    DeviceMemory,
    Dma,
    Interrupt,
    /// The serving side of an endpoint, for its methods.
    Endpoint,
}

/// How many kinds there are.
pub const KINDS: usize = Kind::Endpoint as usize + 1;

/// Methods of one interface.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    /// What they are called on.
    pub kind: Kind,
    /// The schema's name of the enum of its methods, without `Method`; empty for the operations of an endpoint.
    #[allow(dead_code, reason = "the test of the host reads it")]
    pub name: &'static str,
    /// The name of each, in the order of their numbers, and how often it is asked for beside the others.
    pub methods: &'static [(&'static str, u64)],
}

const fn interface(kind: Kind, name: &'static str, methods: &'static [(&'static str, u64)]) -> Interface {
    Interface { kind, name, methods }
}

/// All interfaces.
pub const INTERFACES: &[Interface] = &[
    interface(Kind::Console, "Console", &[("write", 1), ("read", 1), ("note", 1)]),
    interface(Kind::Timer, "Timer", &[("now", 2), ("sleep", 5)]),
    interface(Kind::Threads, "ThreadSpawner", &[("create", 8)]),
    interface(Kind::Control, "ThreadControl", &[("setFsBase", 1), ("yield", 2)]),
    interface(Kind::Thread, "ThreadHandle", &[("join", 3), ("detach", 3), ("kill", 1)]),
    interface(Kind::Park, "ParkSpace", &[("wait", 5), ("wake", 3)]),
    interface(Kind::Processes, "ProcessSpawner", &[("spawn", 2)]),
    interface(Kind::Process, "ProcessHandle", &[("wait", 2), ("kill", 1), ("detach", 3)]),
    interface(
        Kind::Memory,
        "VirtualMemory",
        &[
            ("map", 9),
            ("unmap", 6),
            ("protect", 5),
            ("createObject", 3),
            ("mapObject", 4),
            ("unmapObject", 3),
        ],
    ),
    interface(
        Kind::Policy,
        "SchedulingPolicy",
        &[("setWeight", 1), ("setLatencyClass", 1), ("snapshot", 1), ("setWeightOf", 2)],
    ),
    interface(
        Kind::Info,
        "SystemInfo",
        &[
            ("ringVersions", 1),
            ("memory", 1),
            ("objects", 1),
            ("cpu", 1),
            ("thread", 1),
            ("process", 1),
            ("beginCase", 1),
            ("telemetry", 1),
        ],
    ),
    interface(
        Kind::Context,
        "SchedulingContext",
        &[
            ("create", 3),
            ("info", 2),
            ("bindCallerThread", 4),
            ("unbind", 1),
            ("revoke", 2),
            ("drainNotifications", 1),
            ("wait", 1),
            ("release", 1),
            ("adjust", 2),
        ],
    ),
    // A session ends once: most of the time it is only asked about, see `generate`.
    interface(Kind::Session, "UserSession", &[("info", 1), ("logout", 1), ("enter", 1)]),
    interface(Kind::Leases, "CpuIsolation", &[("grant", 2)]),
    interface(
        Kind::Lease,
        "CpuIsolationLease",
        &[("info", 1), ("preflight", 1), ("revoke", 1), ("release", 1), ("activate", 1)],
    ),
    interface(Kind::Islands, "RealtimeIslands", &[("admit", 3)]),
    interface(
        Kind::Island,
        "RealtimeIsland",
        &[("info", 1), ("bindCallerThread", 3), ("adjust", 2), ("leave", 1), ("serve", 2)],
    ),
    interface(
        Kind::PolicyService,
        "PolicyService",
        &[("start", 1), ("heartbeat", 1), ("submit", 4), ("status", 2), ("stop", 1), ("recover", 1)],
    ),
    interface(
        Kind::Device,
        "Device",
        &[("info", 1), ("config", 1), ("memory", 1), ("createDma", 2), ("interrupt", 2)],
    ),
    interface(Kind::Dma, "DmaMemory", &[("address", 1)]),
    interface(Kind::Interrupt, "Interrupt", &[("wait", 2)]),
    // More is opened than closed, so that there is something to call.
    interface(Kind::Endpoint, "Endpoint", &[("close", 1), ("open", 3)]),
    interface(Kind::Call, "", &[("CALL", 5)]),
    interface(Kind::Serve, "", &[("RECV", 3), ("RETURN", 1), ("RETURN_RECV", 1), ("THROW", 1)]),
];

/// A method, by the place of its interface in [`INTERFACES`] and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Method {
    interface: u8,
    number: u8,
}

impl Method {
    /// How many methods there are.
    pub const COUNT: usize = {
        let (mut count, mut at) = (0, 0);
        while at < INTERFACES.len() {
            count += INTERFACES[at].methods.len();
            at += 1;
        }
        count
    };

    /// All of them, in the order of their [indices](Self::index).
    pub fn all() -> impl Iterator<Item = Self> {
        INTERFACES.iter().enumerate().flat_map(|(interface, known)| {
            (0..known.methods.len())
                .map(move |number| Self { interface: interface as u8, number: number as u8 })
        })
    }

    /// The method of this kind with this number.
    pub fn find(kind: Kind, number: u16) -> Option<Self> {
        Self::all().find(|method| method.kind() == kind && method.number() == number)
    }

    /// The method that comes `at` draws into one draw for each time that each is asked for.
    pub fn drawn(at: u64) -> Self {
        let mut left = at % Self::draws();
        let found = Self::all().find(|method| {
            let share = method.share();
            let here = left < share;
            left = left.saturating_sub(share);
            here
        });
        found.unwrap_or(Self { interface: 0, number: 0 })
    }

    /// How many draws there are in all.
    pub fn draws() -> u64 {
        Self::all().map(Self::share).sum()
    }

    /// Its place among all methods.
    pub fn index(self) -> usize {
        let before = &INTERFACES[..usize::from(self.interface)];
        before.iter().map(|known| known.methods.len()).sum::<usize>() + usize::from(self.number)
    }

    fn interface(self) -> &'static Interface {
        &INTERFACES[usize::from(self.interface)]
    }

    /// What it is called on.
    pub fn kind(self) -> Kind {
        self.interface().kind
    }

    /// Its number in the schema; for an operation, its place in the table.
    pub fn number(self) -> u16 {
        self.number.into()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.interface().methods[usize::from(self.number)].0
    }

    fn share(self) -> u64 {
        self.interface().methods[usize::from(self.number)].1
    }
}
