//! SystemInfo.

use super::{call_for, call_for_long, need, with_params};
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;

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
    pub device_interrupts: u64,
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
                device_interrupts: 0,
            }
        })?;
    call_for::<schema::objects::Owned, _>(info, schema::SystemInfoMethod::Objects as u16, &[], |objects| {
        usage.cpus = objects.get_cpus();
        usage.threads = objects.get_threads();
        usage.processes = objects.get_processes();
        usage.pending_waits = objects.get_pending_waits();
        usage.device_interrupts = objects.get_device_interrupts();
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

/// Begins a case of a measurement: what was counted in the one that ends. Refused but by a kernel that measures.
pub fn begin_case(name: &str) -> Result<Counted, CapError> {
    let method = schema::SystemInfoMethod::BeginCase as u16;
    with_params::<schema::case_name::Owned, _>(
        |mut params| params.set_name(name),
        |bytes| {
            call_for_long::<schema::counts::Owned, _>(need("info"), method, bytes, |counts| {
                let counts = counts.get_counts().map_err(|_| CapError::InvalidParameter)?;
                Ok(Counted(counts.iter().collect()))
            })
        },
    )??
}

/// What was counted in a case.
#[derive(Clone, Debug)]
pub struct Counted(heapless::Vec<u64, 64>);

impl Counted {
    /// How often `what` was.
    #[must_use]
    pub fn of(&self, what: schema::Counter) -> u64 {
        self.0.get(what as usize).copied().unwrap_or(0)
    }
}

/// The counters of one CPU, by the names that reports have.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct Telemetry {
    pub scheduler_tick_count: u64,
    pub ticks_suppressed_idle: u64,
    pub ticks_suppressed_lease: u64,
    pub nohz_enter_idle: u64,
    pub nohz_enter_lease: heapless::Vec<u64, 16>,
    pub nohz_exit: heapless::Vec<u64, 32>,
    pub oneshot_deadline_miss_count: u64,
    pub deadline_expired_count: u64,
    pub budget_exhausted_count: u64,
    pub realtime_overrun_count: u64,
    pub donation_depth_max: u64,
    pub sqpoll_busy_ns: u64,
    pub sqpoll_sleep_count: u64,
    pub housekeeping_offload_count: u64,
}

/// Reads the counters of CPU `cpu`.
pub fn telemetry(cpu: u32) -> Result<Telemetry, CapError> {
    let method = schema::SystemInfoMethod::Telemetry as u16;
    let refused = |_| CapError::InvalidParameter;
    with_params::<schema::cpu_number::Owned, _>(
        |mut params| params.set_cpu(cpu),
        |bytes| {
            call_for_long::<schema::cpu_telemetry::Owned, _>(need("info"), method, bytes, |told| {
                Ok(Telemetry {
                    scheduler_tick_count: told.get_scheduler_tick_count(),
                    ticks_suppressed_idle: told.get_ticks_suppressed_idle(),
                    ticks_suppressed_lease: told.get_ticks_suppressed_lease(),
                    nohz_enter_idle: told.get_nohz_enter_idle(),
                    nohz_enter_lease: told.get_nohz_enter_lease().map_err(refused)?.iter().collect(),
                    nohz_exit: told.get_nohz_exit().map_err(refused)?.iter().collect(),
                    oneshot_deadline_miss_count: told.get_oneshot_deadline_miss_count(),
                    deadline_expired_count: told.get_deadline_expired_count(),
                    budget_exhausted_count: told.get_budget_exhausted_count(),
                    realtime_overrun_count: told.get_realtime_overrun_count(),
                    donation_depth_max: told.get_donation_depth_max(),
                    sqpoll_busy_ns: told.get_sqpoll_busy_ns(),
                    sqpoll_sleep_count: told.get_sqpoll_sleep_count(),
                    housekeeping_offload_count: told.get_housekeeping_offload_count(),
                })
            })
        },
    )??
}
