//! Typed capabilities: each method of the kernel's interfaces as a function.

use crate::arch;
use crate::client::{self, Ticket};
use alloc::boxed::Box;
use capnp::Word;
use capnp::message::{Builder, Reader, ReaderOptions, SegmentArray, SingleSegmentAllocator};
use capnp::traits::Owned;
use mainspring_abi::kernel::{ReceivedCall, cap_name};
use mainspring_abi::ring::{CapError, CapSqe, CapSqeV2, op};
use mainspring_schema as schema;

const WORDS: usize = 96;
const ZERO: Word = capnp::word(0, 0, 0, 0, 0, 0, 0, 0);

/// Builds the parameters of kind `P`, and works with their bytes.
fn with_params<P: Owned, T>(
    fill: impl FnOnce(P::Builder<'_>),
    work: impl FnOnce(&[u8]) -> T,
) -> Result<T, CapError> {
    let mut words = [const { ZERO }; WORDS];
    let mut message = Builder::new(SingleSegmentAllocator::new(Word::words_to_bytes_mut(&mut words)));
    fill(message.init_root::<P::Builder<'_>>());
    let segments = message.get_segments_for_output();
    let [bytes] = segments[..] else { return Err(CapError::InvalidParameter) };
    Ok(work(bytes))
}

fn call_with<P: Owned>(cap: u32, method: u16, fill: impl FnOnce(P::Builder<'_>)) -> Result<u32, CapError> {
    with_params::<P, _>(fill, |bytes| client::call(cap, method, bytes, &mut []))?
}

fn call_for<R: Owned, T>(
    cap: u32,
    method: u16,
    params: &[u8],
    read: impl FnOnce(R::Reader<'_>) -> T,
) -> Result<T, CapError> {
    let mut words = [const { ZERO }; WORDS];
    let bytes = Word::words_to_bytes_mut(&mut words);
    let len = client::call(cap, method, params, bytes)? as usize;
    let segments: [&[u8]; 1] = [bytes.get(..len).ok_or(CapError::InvalidParameter)?];
    let reader = Reader::new(SegmentArray::new(&segments), ReaderOptions::new());
    Ok(read(reader.get_root().map_err(|_| CapError::InvalidParameter)?))
}

/// The capability that the process was started with under `name`.
#[must_use]
pub fn find(name: &str) -> Option<u32> {
    let startup = arch::startup();
    let wanted = cap_name(name)?;
    startup.caps[..startup.cap_count as usize].iter().find(|cap| cap.name == wanted).map(|cap| cap.cap)
}

/// The capability under `name`, which the manifest promised.
///
/// # Panics
///
/// If it did not.
#[must_use]
pub fn need(name: &str) -> u32 {
    find(name).unwrap_or_else(|| panic!("the manifest grants no {name}"))
}

/// The text that the process was started with.
#[must_use]
pub fn arguments() -> &'static str {
    let startup = arch::startup();
    core::str::from_utf8(&startup.arguments[..startup.arguments_len as usize]).unwrap_or("")
}

/// Prints bytes.
pub fn print(bytes: &[u8]) {
    if let Some(console) = find("console") {
        for piece in bytes.chunks(256) {
            let _ = client::call(console, schema::ConsoleMethod::Write as u16, piece, &mut []);
        }
    }
}

/// What was typed, as much as fits.
pub fn read_typed(buffer: &mut [u8]) -> Result<usize, CapError> {
    client::call(need("console"), schema::ConsoleMethod::Read as u16, &[], buffer).map(|len| len as usize)
}

/// Monotonic time in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    let method = schema::TimerMethod::Now as u16;
    call_for::<schema::timer_now::Owned, _>(need("timer"), method, &[], |time| time.get_time_ns())
        .unwrap_or(0)
}

/// Asks to be told at `deadline_ns`.
pub fn begin_sleep(deadline_ns: u64) -> Result<Ticket, CapError> {
    let method = schema::TimerMethod::Sleep as u16;
    with_params::<schema::timer_sleep::Owned, _>(
        |mut params| params.set_deadline_ns(deadline_ns),
        |bytes| {
            let ticket = client::submit(client::request(need("timer"), method, bytes, &mut []))?;
            // The parameters are on this stack: the kernel has read them when this returns.
            client::enter(0, 0)?;
            Ok(ticket)
        },
    )?
}

/// Sleeps until `deadline_ns`.
pub fn sleep_until(deadline_ns: u64) -> Result<(), CapError> {
    let method = schema::TimerMethod::Sleep as u16;
    call_with::<schema::timer_sleep::Owned>(need("timer"), method, |mut params| {
        params.set_deadline_ns(deadline_ns);
    })?;
    Ok(())
}

/// Sleeps for `ns`.
pub fn sleep(ns: u64) -> Result<(), CapError> {
    sleep_until(now() + ns)
}

/// Looks every `step_ns` whether `holds`, for at most `limit_ns`; whether it did. What must come true in the long run is
/// waited for this way: how long that takes is the host's business, on which a virtual CPU may stand still at any time.
pub fn comes_true(limit_ns: u64, step_ns: u64, mut holds: impl FnMut() -> bool) -> bool {
    let end = now() + limit_ns;
    loop {
        if holds() {
            return true;
        }
        if now() >= end || sleep(step_ns).is_err() {
            return false;
        }
    }
}

/// Lets others go first, once.
pub fn yield_now() {
    let _ = client::call(need("control"), schema::ThreadControlMethod::Yield as u16, &[], &mut []);
}

/// Sets the FS base of the calling thread.
pub fn set_fs_base(base: u64) -> Result<u32, CapError> {
    let method = schema::ThreadControlMethod::SetFsBase as u16;
    call_with::<schema::set_fs_base::Owned>(need("control"), method, |mut params| params.set_base(base))
}

/// What a new thread is to be.
#[derive(Clone, Copy, Debug)]
pub struct ThreadOptions {
    /// Its share.
    pub weight: u32,
    /// How soon it wants service.
    pub class: schema::LatencyClass,
    /// Service asked for at a time; 0 leaves that to the class.
    pub request_ns: u64,
    /// Bit n for CPU n; 0 for all.
    pub cpus: u64,
}

impl Default for ThreadOptions {
    fn default() -> Self {
        Self { weight: 64, class: schema::LatencyClass::Normal, request_ns: 0, cpus: 0 }
    }
}

/// A thread that was made.
#[derive(Debug)]
pub struct Thread {
    cap: u32,
    slot: u32,
}

/// Makes a thread of this process.
pub fn spawn(options: ThreadOptions, job: impl FnOnce() -> i64 + Send + 'static) -> Result<Thread, CapError> {
    let (entry, argument) = arch::job_to_argument(Box::new(job));
    let made = spawn_raw(options, entry, argument);
    if made.is_err() {
        arch::drop_job(argument);
    }
    made
}

/// Makes a thread that begins at any address at all.
pub fn spawn_raw(options: ThreadOptions, entry: u64, argument: u64) -> Result<Thread, CapError> {
    let method = schema::ThreadSpawnerMethod::Create as u16;
    with_params::<schema::thread_create::Owned, _>(
        |mut params| {
            params.set_entry(entry);
            params.set_argument(argument);
            params.set_weight(options.weight);
            params.set_latency_class(options.class);
            params.set_request_ns(options.request_ns);
            params.set_cpus(options.cpus);
        },
        |bytes| {
            call_for::<schema::handle::Owned, _>(need("threads"), method, bytes, |made| Thread {
                cap: made.get_cap(),
                slot: made.get_slot(),
            })
        },
    )?
}

impl Thread {
    /// Waits for its end; its exit code.
    pub fn join(&self) -> Result<i32, CapError> {
        client::call(self.cap, schema::ThreadHandleMethod::Join as u16, &[], &mut []).map(|code| code as i32)
    }

    /// Waits for its end until `deadline_ns`.
    pub fn join_until(&self, deadline_ns: u64) -> Result<i32, CapError> {
        let method = schema::ThreadHandleMethod::Join as u16;
        call_with::<schema::deadline::Owned>(self.cap, method, |mut params| {
            params.set_deadline_ns(deadline_ns);
        })
        .map(|code| code as i32)
    }

    /// Forgets it; it goes on.
    pub fn detach(self) -> Result<(), CapError> {
        client::call(self.cap, schema::ThreadHandleMethod::Detach as u16, &[], &mut []).map(|_| ())
    }

    /// Its place in the kernel's table, which is what the flight record calls it.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Its number, which after `detach` is stale.
    #[must_use]
    pub fn cap(&self) -> u32 {
        self.cap
    }
}

/// Waits while the word at `address` is `expected`, until `deadline_ns` (0 for no end). Whether it was woken, rather
/// than the word being another already.
pub fn park(address: u64, expected: u32, deadline_ns: u64) -> Result<bool, CapError> {
    let method = schema::ParkSpaceMethod::Wait as u16;
    call_with::<schema::park_wait::Owned>(need("park"), method, |mut params| {
        params.set_address(address);
        params.set_expected(expected);
        params.set_deadline_ns(deadline_ns);
    })
    .map(|changed| changed == 0)
}

/// Wakes at most `count` that wait at `address`; how many.
pub fn unpark(address: u64, count: u32) -> Result<u32, CapError> {
    let method = schema::ParkSpaceMethod::Wake as u16;
    call_with::<schema::park_wake::Owned>(need("park"), method, |mut params| {
        params.set_address(address);
        params.set_count(count);
    })
}

/// A process that was made.
#[derive(Debug)]
pub struct Process(u32);

/// Starts a program with the capabilities named, each a name that this process has it under.
pub fn start(program: &str, arguments: &str, grants: &[&str]) -> Result<Process, CapError> {
    start_with(program, arguments, grants, &[])
}

/// Starts a program with capabilities by the names that this process has them under, and others by number.
pub fn start_with(
    program: &str,
    arguments: &str,
    grants: &[&str],
    others: &[(&str, u32)],
) -> Result<Process, CapError> {
    let method = schema::ProcessSpawnerMethod::Spawn as u16;
    let named = grants.iter().map(|name| (*name, find(name).unwrap_or(0)));
    let all = named.chain(others.iter().copied());
    with_params::<schema::process_spawn::Owned, _>(
        |mut params| {
            params.set_program(program);
            params.set_arguments(arguments);
            let mut list = params.init_grants((grants.len() + others.len()) as u32);
            for (number, (name, cap)) in (0..).zip(all) {
                let mut grant = list.reborrow().get(number);
                grant.set_name(name);
                grant.set_cap(cap);
            }
        },
        |bytes| {
            call_for::<schema::handle::Owned, _>(need("processes"), method, bytes, |made| {
                Process(made.get_cap())
            })
        },
    )?
}

impl Process {
    /// Waits for its end; its exit code, negative if it was killed.
    pub fn wait(&self) -> Result<i32, CapError> {
        client::call(self.0, schema::ProcessHandleMethod::Wait as u16, &[], &mut []).map(|code| code as i32)
    }

    /// Forgets it; it goes on.
    pub fn detach(self) -> Result<(), CapError> {
        client::call(self.0, schema::ProcessHandleMethod::Detach as u16, &[], &mut []).map(|_| ())
    }

    /// Ends it.
    pub fn kill(&self) -> Result<(), CapError> {
        client::call(self.0, schema::ProcessHandleMethod::Kill as u16, &[], &mut []).map(|_| ())
    }
}

fn memory(
    method: schema::VirtualMemoryMethod,
    address: u64,
    pages: u32,
    access: schema::Access,
) -> Result<u64, CapError> {
    let mapping = method == schema::VirtualMemoryMethod::Map;
    with_params::<schema::memory_range::Owned, _>(
        |mut params| {
            params.set_address(address);
            params.set_pages(pages);
            params.set_access(access);
        },
        |bytes| {
            if mapping {
                call_for::<schema::memory_range::Owned, _>(need("memory"), method as u16, bytes, |made| {
                    made.get_address()
                })
            } else {
                client::call(need("memory"), method as u16, bytes, &mut []).map(|_| address)
            }
        },
    )?
}

/// Maps pages somewhere; where.
pub fn map(pages: u32, access: schema::Access) -> Result<u64, CapError> {
    memory(schema::VirtualMemoryMethod::Map, 0, pages, access)
}

/// Unmaps pages.
pub fn unmap(address: u64, pages: u32) -> Result<(), CapError> {
    memory(schema::VirtualMemoryMethod::Unmap, address, pages, schema::Access::Read).map(|_| ())
}

/// Changes what pages may be used for.
pub fn protect(address: u64, pages: u32, access: schema::Access) -> Result<(), CapError> {
    memory(schema::VirtualMemoryMethod::Protect, address, pages, access).map(|_| ())
}

/// Makes memory that can be granted to others.
pub fn create_object(pages: u32) -> Result<u32, CapError> {
    let method = schema::VirtualMemoryMethod::CreateObject as u16;
    with_params::<schema::memory_range::Owned, _>(
        |mut params| params.set_pages(pages),
        |bytes| call_for::<schema::handle::Owned, _>(need("memory"), method, bytes, |made| made.get_cap()),
    )?
}

/// Maps a memory object; where.
pub fn map_object(cap: u32, access: schema::Access) -> Result<u64, CapError> {
    let method = schema::VirtualMemoryMethod::MapObject as u16;
    with_params::<schema::map_object::Owned, _>(
        |mut params| {
            params.set_cap(cap);
            params.set_access(access);
        },
        |bytes| {
            call_for::<schema::memory_range::Owned, _>(need("memory"), method, bytes, |made| {
                made.get_address()
            })
        },
    )?
}

/// Unmaps the memory object that is mapped at `address`.
pub fn unmap_object(address: u64) -> Result<(), CapError> {
    memory(schema::VirtualMemoryMethod::UnmapObject, address, 0, schema::Access::Read).map(|_| ())
}

/// Sets the calling thread's weight.
pub fn set_weight(weight: u64) -> Result<u32, CapError> {
    let method = schema::SchedulingPolicyMethod::SetWeight as u16;
    call_with::<schema::set_weight::Owned>(need("policy"), method, |mut params| params.set_weight(weight))
}

/// The calling thread's account.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct Account {
    pub weight: u16,
    pub runtime_ns: u64,
    pub virtual_runtime_ns: u64,
    pub voluntary_blocks: u64,
    pub preemptions: u64,
    pub runnable_ns: u64,
    pub last_started_ns: u64,
}

/// Reads the calling thread's account.
pub fn account() -> Result<Account, CapError> {
    let method = schema::SchedulingPolicyMethod::Snapshot as u16;
    call_for::<schema::snapshot::Owned, _>(need("policy"), method, &[], |account| Account {
        weight: account.get_weight(),
        runtime_ns: account.get_runtime_ns(),
        virtual_runtime_ns: account.get_virtual_runtime_ns(),
        voluntary_blocks: account.get_voluntary_blocks(),
        preemptions: account.get_preemptions(),
        runnable_ns: account.get_runnable_accumulated_ns(),
        last_started_ns: account.get_last_started_ns(),
    })
}

/// What the machine has in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct Usage {
    pub free_frames: u64,
    pub heap_used: u64,
    pub hard_path_allocations: u64,
    pub cpus: u32,
    pub threads: u32,
    pub processes: u32,
    pub pending_waits: u32,
}

/// What the machine has in use.
pub fn usage() -> Result<Usage, CapError> {
    let info = need("info");
    let mut usage =
        call_for::<schema::memory::Owned, _>(info, schema::SystemInfoMethod::Memory as u16, &[], |memory| {
            Usage {
                free_frames: memory.get_free_frames(),
                heap_used: memory.get_heap_used(),
                hard_path_allocations: memory.get_hard_path_allocations(),
                cpus: 0,
                threads: 0,
                processes: 0,
                pending_waits: 0,
            }
        })?;
    call_for::<schema::objects::Owned, _>(info, schema::SystemInfoMethod::Objects as u16, &[], |objects| {
        usage.cpus = objects.get_cpus();
        usage.threads = objects.get_threads();
        usage.processes = objects.get_processes();
        usage.pending_waits = objects.get_pending_waits();
    })?;
    Ok(usage)
}

/// The range of ring versions that the kernel speaks.
pub fn ring_versions() -> Result<(u32, u32), CapError> {
    let method = schema::SystemInfoMethod::RingVersions as u16;
    call_for::<schema::ring_versions::Owned, _>(need("info"), method, &[], |range| {
        (range.get_oldest(), range.get_newest())
    })
}

/// A CPU's counters.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct CpuCounters {
    pub timer_interrupts: u64,
    pub ticks: u64,
    pub ticks_suppressed: u64,
    pub reschedules_received: u64,
    pub reschedules_sent: u64,
    pub steals: u64,
    pub handoffs: u64,
    pub handoffs_queued: u64,
    pub idle_ns: u64,
    pub busy_ns: u64,
    pub timeouts: u64,
    pub nohz_enter_idle: u64,
    pub shootdowns: u64,
    pub queued: u64,
}

/// Reads a CPU's counters.
pub fn cpu_counters(cpu: u32) -> Result<CpuCounters, CapError> {
    let method = schema::SystemInfoMethod::Cpu as u16;
    with_params::<schema::cpu_number::Owned, _>(
        |mut params| params.set_cpu(cpu),
        |bytes| {
            call_for::<schema::cpu::Owned, _>(need("info"), method, bytes, |counters| CpuCounters {
                timer_interrupts: counters.get_timer_interrupts(),
                ticks: counters.get_ticks(),
                ticks_suppressed: counters.get_ticks_suppressed(),
                reschedules_received: counters.get_reschedules_received(),
                reschedules_sent: counters.get_reschedules_sent(),
                steals: counters.get_steals(),
                handoffs: counters.get_handoffs(),
                handoffs_queued: counters.get_handoffs_queued(),
                idle_ns: counters.get_idle_ns(),
                busy_ns: counters.get_busy_ns(),
                timeouts: counters.get_timeouts(),
                nohz_enter_idle: counters.get_nohz_enter_idle(),
                shootdowns: counters.get_shootdowns(),
                queued: counters.get_queued(),
            })
        },
    )?
}

/// Tells about a thread: its process, its CPU, its state, its weight and what it has used.
pub fn thread_info<T>(
    slot: u32,
    look: impl FnOnce(schema::thread_info::Reader<'_>) -> T,
) -> Result<T, CapError> {
    let method = schema::SystemInfoMethod::Thread as u16;
    with_params::<schema::slot_number::Owned, _>(
        |mut params| params.set_slot(slot),
        |bytes| call_for::<schema::thread_info::Owned, _>(need("info"), method, bytes, look),
    )?
}

/// Tells about a process: its name, its threads, its pages.
pub fn process_info<T>(
    slot: u32,
    look: impl FnOnce(schema::process_info::Reader<'_>) -> T,
) -> Result<T, CapError> {
    let method = schema::SystemInfoMethod::Process as u16;
    with_params::<schema::slot_number::Owned, _>(
        |mut params| params.set_slot(slot),
        |bytes| call_for::<schema::process_info::Owned, _>(need("info"), method, bytes, look),
    )?
}

/// Calls an endpoint and waits for the answer; its length.
pub fn call_endpoint(cap: u32, message: &[u8], answer: &mut [u8]) -> Result<u32, CapError> {
    client::call(cap, 0, message, answer)
}

/// The request to receive a call.
#[must_use]
pub fn receive_request(cap: u32, buffer: &mut [u8]) -> CapSqeV2 {
    CapSqeV2::from_v1(CapSqe {
        cap_id: cap,
        op: op::RECV,
        result_addr: buffer.as_mut_ptr() as u64,
        result_len: buffer.len() as u32,
        ..CapSqe::default()
    })
}

/// The request to answer a call.
#[must_use]
pub fn return_request(cap: u32, call_id: u32, answer: &[u8]) -> CapSqeV2 {
    CapSqeV2::from_v1(CapSqe {
        cap_id: cap,
        op: op::RETURN,
        call_id,
        params_addr: answer.as_ptr() as u64,
        params_len: answer.len() as u32,
        ..CapSqe::default()
    })
}

/// Waits for a call; what stands before its message in `buffer`.
pub fn receive(cap: u32, buffer: &mut [u8]) -> Result<ReceivedCall, CapError> {
    let _len = client::wait(client::submit(receive_request(cap, buffer))?)?;
    head(buffer)
}

/// Answers a call and waits for the next one, with one entry into the kernel.
pub fn answer_and_receive(
    cap: u32,
    call_id: u32,
    answer: &[u8],
    buffer: &mut [u8],
) -> Result<ReceivedCall, CapError> {
    let answered = client::submit(return_request(cap, call_id, answer))?;
    let received = client::submit(receive_request(cap, buffer))?;
    client::enter(2, mainspring_abi::kernel::FOREVER)?;
    client::wait(answered)?;
    client::wait(received)?;
    head(buffer)
}

fn head(buffer: &[u8]) -> Result<ReceivedCall, CapError> {
    Ok(ReceivedCall::from_bytes(buffer.first_chunk().ok_or(CapError::BadAddress)?))
}
