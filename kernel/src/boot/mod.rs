//! What happens once: reading the boot image, starting the CPUs and the first processes, and ending the machine.

mod acpi;
mod manifest;

use crate::arch::smp::{self, Started};
use crate::arch::{self, BootInfo, ExitCode, TickSource, cpu, exit};
use crate::devices;
use crate::method::{InSession, PlannedProcess, Program, Share, finish_spaces};
use crate::object::process::{self, Process};
use crate::object::{memory, thread};
use crate::sched::{
    check, contexts, dispatch, idle, islands, leases, notify, per_cpu, policy, record, wakeup,
};
use crate::{frames, measure};
use core::fmt::Display;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mainspring_abi::Nanos;
use mainspring_abi::boot::{Image, MANIFEST};
use mainspring_abi::frame::{Frame, Trailer};
use mainspring_authority::boundary::Treatment;
use manifest::{Line, Start};
use spin::Once;

static IMAGE: Once<Image<'static>> = Once::new();
/// Processes that the machine waits for.
static AWAITED: AtomicU32 = AtomicU32::new(0);
/// What was free, and in use of the heap, before the first process.
static FREE_FRAMES: AtomicU64 = AtomicU64::new(0);
static HEAP_USED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicBool = AtomicBool::new(false);

/// The file of a program in the boot image.
#[must_use]
pub fn program(name: &str) -> Option<&'static [u8]> {
    IMAGE.get()?.find(name)
}

fn refuse(what: &str, why: impl Display) -> ! {
    crate::say!("boot: {what}: {why}");
    exit(ExitCode::BadBoot)
}

/// Everything from the loader's word to the first decision of the boot CPU.
pub fn run(info: &BootInfo) -> ! {
    crate::say!("boot: memory frames={} free={}", arch::total_frames(), arch::free_frames());
    if !arch::clock_is_running() {
        refuse("clock", "the PIT does not count, and there is nothing else to measure time by");
    }
    let bytes = info.image.unwrap_or_else(|| refuse("no boot image", "start with -initrd"));
    let image = Image::new(bytes).unwrap_or_else(|error| refuse("boot image", error));
    IMAGE.call_once(|| image);
    let text = image.find(MANIFEST).and_then(|bytes| core::str::from_utf8(bytes).ok());
    let text = text.unwrap_or_else(|| refuse("boot image", "no manifest in it"));
    devices::init();
    let mut settings = per_cpu::Settings::default();
    for line in manifest::lines(text) {
        match line {
            Ok(Line::Set(set)) => set(&mut settings),
            Ok(Line::Start(_)) => {}
            Err(error) => refuse("manifest", error),
        }
    }
    start_timer(settings.pit);
    if settings.say_idle {
        idle::say();
    }
    notify::lose_messages(settings.one_message_of);
    if settings.say_switches {
        measure::say_switches();
    }
    process::init();
    thread::init();
    let cpus = acpi::apic_ids(info.rsdp);
    per_cpu::init(cpus.len().clamp(1, cpu::MAX_CPUS), &settings);
    per_cpu::install();
    wakeup::init_quota(thread::MAX_THREADS as u32, process::THREADS, process::MAX_PROCESSES);
    for id in &cpus {
        match smp::start(*id) {
            Started::Online => crate::say!("smp: cpu={} apic={id} online", cpu::online() - 1),
            Started::NotWanted => {}
            Started::Late => refuse("smp", format_args!("the CPU with APIC id {id} did not come up")),
        }
    }
    crate::say!("boot: cpus={} of {}", cpu::online(), cpus.len().max(1));
    leases::init();
    open_others();
    let starts = || {
        manifest::lines(text)
            .filter_map(|line| if let Ok(Line::Start(start)) = line { Some(start) } else { None })
    };
    process::open_pools(arch::free_frames(), starts().count() as u64);
    FREE_FRAMES.store(arch::free_frames(), Ordering::Relaxed);
    HEAP_USED.store(arch::allocations().used, Ordering::Relaxed);
    contexts::init(settings.floor);
    islands::init(settings.floor, contexts::OVERHEAD);
    let mut recovery = None;
    for (start, family) in starts().zip(0..) {
        let started = begin(&image, &start, family);
        recovery = recovery.or_else(|| started.threads().next().filter(|_| start.recovery));
    }
    policy::init(
        cpu::online(),
        settings.policy_slow_after,
        recovery.map(|(_, thread)| (thread, Treatment::default())),
    );
    arch::close_heap();
    dispatch::start()
}

/// Lets the other CPUs schedule, and waits until they have idled: how soon one comes decides nothing of what runs then.
fn open_others() {
    OPEN.store(true, Ordering::Release);
    let mut others = 0;
    for per_cpu in per_cpu::per_cpus() {
        if per_cpu.id() != per_cpu::mine().id() {
            others += 1;
            // It does not schedule yet; the interrupt alone lets it look.
            let _it_is_online = arch::send_reschedule(per_cpu.id());
        }
    }
    while idle::KERNEL_IDLE_HLT_ENTRIES.load(Ordering::Relaxed) < others {
        core::hint::spin_loop();
    }
}

/// The local APICs' timers, or where they cannot be used, the PIT.
fn start_timer(pit: bool) {
    let scale = arch::timer_scale();
    let counts = arch::counts_per_ms(scale);
    match TickSource::choose(pit, scale) {
        TickSource::Pit => {
            arch::fallback::start();
            crate::say!("boot: timer=pit hz={} lapic counts_per_ms={counts}", arch::fallback::TICK_HZ);
        }
        TickSource::Lapic => crate::say!("boot: timer=lapic counts_per_ms={counts}"),
    }
}

static OPEN: AtomicBool = AtomicBool::new(false);

/// A CPU other than the first waits until there is something to schedule, then does.
pub fn run_secondary() -> ! {
    while !OPEN.load(Ordering::Acquire) {
        let _ = cpu::halt();
    }
    per_cpu::install();
    dispatch::start()
}

fn begin(image: &Image<'static>, start: &Start<'_>, family: u32) -> &'static Process {
    let elf = image
        .find(start.program)
        .unwrap_or_else(|| refuse(start.program, "no such program in the boot image"));
    let data = start.data.and_then(|name| image.find(name)).unwrap_or(&[]);
    let (grants, contexts) = (&start.grants, &start.contexts);
    let session = if start.session { InSession::Begins } else { InSession::Of(None) };
    let (name, arguments, spare_percent) = (start.program, start.arguments, start.spare_percent);
    let held_sessions = &start.held_sessions;
    let program = Program {
        name,
        elf,
        arguments,
        data,
        grants,
        contexts,
        session,
        held_sessions,
        spare_percent,
        family,
    };
    match PlannedProcess::decide(&program, Share::DEFAULT) {
        Ok(planned) => {
            AWAITED.fetch_add(u32::from(start.awaited), Ordering::Relaxed);
            planned.apply(start.awaited).expect("a process that is whole starts").slot()
        }
        Err(code) => refuse(start.program, code),
    }
}

/// A process has ended. The machine ends with the last one that it waits for.
pub fn process_ended(process: &Process, code: i64) {
    let name = process.state.lock().name.clone();
    crate::say!("exit: process={name} code={code}");
    if !process.essential.load(Ordering::Relaxed) {
        return;
    }
    if code != 0 {
        FAILED.store(true, Ordering::Relaxed);
    }
    if AWAITED.fetch_sub(1, Ordering::AcqRel) == 1 {
        shut_down();
    }
}

/// Frames that nobody who lives has and that are not free, and bytes of the heap that nobody had before the first process.
fn lost() -> (i64, i64) {
    let had = FREE_FRAMES.load(Ordering::Relaxed) - process::frames() - memory::frames();
    let heap = arch::allocations().used as i64 - HEAP_USED.load(Ordering::Relaxed) as i64;
    (had as i64 - arch::free_frames() as i64, heap)
}

/// As [`lost`], once the other CPUs are not in the middle of something, and no process that is ending has its address space in its
/// hands.
fn lost_for_good() -> (i64, i64) {
    let until = arch::now() + PATIENCE;
    loop {
        finish_spaces();
        let lost = lost();
        if lost == (0, 0) || arch::now() >= until {
            return lost;
        }
        core::hint::spin_loop();
    }
}

/// How long the end looks whether everything has come back. The host may have stopped a CPU that has it.
const PATIENCE: Nanos = Nanos::from_millis(2000);

fn shut_down() -> ! {
    record::write_all(arch::now());
    let allocations = arch::allocations();
    let idle_halts = idle::HALTS.load(Ordering::Relaxed);
    crate::say!(
        "kernel: halt idle_halts={idle_halts} kernel_idle_hlt_entries={} clock_steps={} hard_path_allocations={}",
        idle::KERNEL_IDLE_HLT_ENTRIES.load(Ordering::Relaxed),
        arch::clock_steps(),
        allocations.after_boot
    );
    let (checks, longest_interrupts_off) = (check::report(), measure::report());
    policy::end();
    islands::end();
    contexts::end();
    let (frames_lost, heap_lost) = lost_for_good();
    crate::say!("kernel: memory frames_lost={frames_lost} heap_lost={heap_lost}");
    let held = allocations.after_boot == 0 && (frames_lost, heap_lost) == (0, 0);
    let failed = FAILED.load(Ordering::Relaxed) || !held;
    frames::write(&Frame::End(Trailer {
        succeeded: !failed,
        frames_lost,
        heap_lost,
        hard_path_allocations: allocations.after_boot,
        idle_halts,
        checks,
        longest_interrupts_off,
    }));
    crate::say!("kernel: status={}", if failed { "failed" } else { "ok" });
    exit(if failed { ExitCode::Failed } else { ExitCode::Success })
}
