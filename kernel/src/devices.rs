//! Devices that programs drive, and the lines on which their messages come.
//!
//! A device has one driver at a time: the first process that asks for any of its registers, memory or messages, until that
//! process ends. There is no IOMMU: a driver can make its device write any memory, and is trusted with that
//! (docs/security.md). What the kernel keeps from it are the messages, which could be any interrupt of any CPU.
//!
//! Conserved:
//! * A device writes no memory unless it has a driver. Memory that was made for a device stays until the device has been reset.
//! * A line interrupts once for each wait of its driver: it is masked when it comes, and let through by the next wait. So a
//!   device cannot interrupt more often than its driver asks for.
//! * A message that comes while nobody waits is not lost: the next wait ends at once.

use crate::arch::pci::{self, Function, MAX_FUNCTIONS};
use crate::arch::{DEVICE_LINES, DEVICE_VECTOR};
use crate::object::device::{DeviceId, LineId, Registers};
use crate::object::inbox::Awaits;
use crate::object::memory::MemoryObject;
use crate::object::process::Process;
use crate::object::{ProcessRef, thread};
use crate::sched::wakeup;
use core::sync::atomic::{AtomicU64, Ordering};
use heapless::Vec;
use mainspring_abi::ring::CapError;
use mainspring_abi::{CpuId, ThreadRef};
use spin::{Mutex, MutexGuard, Once};

/// Pieces of memory that one device may have.
const MEMORIES: usize = 4;
/// Pages that all of those may have together.
pub const MEMORY_PAGES: usize = 256;
/// Where the messages of devices arrive.
const ROUTED_TO: CpuId = CpuId::BOOT;

#[derive(Debug, Default)]
struct Driver {
    process: Option<ProcessRef>,
    /// On the account of the driver, whose capabilities are given up after these.
    memory: Vec<MemoryObject, MEMORIES>,
}

impl Driver {
    fn has_room(&self, pages: usize) -> bool {
        let has: usize = self.memory.iter().map(MemoryObject::len).sum();
        !self.memory.is_full() && has + pages <= MEMORY_PAGES
    }
}

struct Device {
    function: Function,
    driver: Mutex<Driver>,
}

static DEVICES: Once<Vec<Device, MAX_FUNCTIONS>> = Once::new();

#[derive(Debug)]
struct Line {
    generation: u32,
    /// Whose messages come here, and which of them.
    from: Option<(DeviceId, u16)>,
    /// One has come that no wait has ended with.
    pending: bool,
    waiter: Option<ThreadRef>,
}

static LINES: [Mutex<Line>; DEVICE_LINES] =
    [const { Mutex::new(Line { generation: 0, from: None, pending: false, waiter: None }) }; DEVICE_LINES];

/// Held while a line is chosen.
static OPENING: Mutex<()> = Mutex::new(());

/// Messages that have come.
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

/// Finds the devices of the machine, before there are programs.
pub fn init() {
    let devices = DEVICES.call_once(|| {
        let device = |function| Device { function, driver: Mutex::default() };
        pci::scan().into_iter().map(device).collect()
    });
    for Device { function, .. } in devices {
        function.init();
        let (vendor, kind) = function.id;
        crate::say!("boot: device={vendor:04x}.{kind:04x} messages={}", function.messages());
    }
}

/// The first device of this vendor and kind.
#[must_use]
pub fn find(id: (u16, u16)) -> Option<DeviceId> {
    let at = DEVICES.get()?.iter().position(|device| device.function.id == id)?;
    Some(DeviceId(at as u8))
}

/// Messages that have come since boot.
#[must_use]
pub fn interrupts() -> u64 {
    INTERRUPTS.load(Ordering::Relaxed)
}

/// Whether messages of devices arrive at `cpu`.
#[must_use]
pub fn routed_to(cpu: CpuId) -> bool {
    cpu == ROUTED_TO && LINES.iter().any(|line| line.lock().from.is_some())
}

fn device(id: DeviceId) -> Result<&'static Device, CapError> {
    DEVICES.get().and_then(|devices| devices.get(usize::from(id.0))).ok_or(CapError::NotFound)
}

/// What the device is: vendor and kind, and how many messages it has.
pub fn info(id: DeviceId) -> Result<((u16, u16), u16), CapError> {
    let function = &device(id)?.function;
    Ok((function.id, function.messages()))
}

/// A word of the device's configuration space.
pub fn config(id: DeviceId, register: u8) -> Result<u32, CapError> {
    Ok(device(id)?.function.config(register))
}

/// Registers of the device that its driver may map.
pub fn registers(id: DeviceId, bar: usize) -> Result<Registers, CapError> {
    device(id)?.function.bar(bar).ok_or(CapError::NotFound)
}

impl Device {
    /// Its driver, if that is `process` or nobody.
    fn driver(&self, process: &Process) -> Result<MutexGuard<'_, Driver>, CapError> {
        let driver = self.driver.lock();
        if driver.process.is_some_and(|other| other != process.name()) {
            return Err(CapError::Busy);
        }
        Ok(driver)
    }

    /// `process`, which nobody else is in the way of, drives it from now on.
    fn begin(&self, driver: &mut Driver, process: &Process) {
        if driver.process.is_none() {
            driver.process = Some(process.name());
            self.function.start();
        }
    }
}

/// `process` drives the device from now on, if no other does.
pub fn drive(id: DeviceId, process: &Process) -> Result<(), CapError> {
    let device = device(id)?;
    let mut driver = device.driver(process)?;
    device.begin(&mut driver, process);
    Ok(())
}

/// As [`drive`], if the device may have so much more memory.
pub fn drive_with_memory(id: DeviceId, process: &Process, pages: usize) -> Result<(), CapError> {
    let device = device(id)?;
    let mut driver = device.driver(process)?;
    if !driver.has_room(pages) {
        return Err(CapError::QuotaExceeded);
    }
    device.begin(&mut driver, process);
    Ok(())
}

/// Keeps `memory`, for which `process` has a capability, for the device until it has been reset. Whether there is room for it.
pub fn keep(id: DeviceId, process: &Process, memory: MemoryObject) -> bool {
    let Ok(device) = device(id) else { return false };
    let mut driver = device.driver.lock();
    driver.process == Some(process.name())
        && driver.has_room(memory.len())
        && driver.memory.push(memory).is_ok()
}

/// `process` drives the device from now on, if no other does, and waits for its message `message` on a line: the same one
/// whenever it asks.
pub fn open_line(id: DeviceId, process: &Process, message: u16) -> Result<LineId, CapError> {
    let device = device(id)?;
    if message >= device.function.messages() {
        return Err(CapError::InvalidParameter);
    }
    let mut driver = device.driver(process)?;
    let _one_at_a_time = OPENING.lock();
    let of = |from: Option<(DeviceId, u16)>| LINES.iter().position(|line| line.lock().from == from);
    let known = of(Some((id, message)));
    let number = known.or_else(|| of(None)).ok_or(CapError::QuotaExceeded)?;
    device.begin(&mut driver, process);
    let mut line = LINES[number].lock();
    if known.is_none() {
        line.from = Some((id, message));
        device.function.route(message, DEVICE_VECTOR + number as u8, ROUTED_TO);
    }
    Ok(LineId { number: number as u8, generation: line.generation })
}

/// What a wait for a line begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a wait that is over has to be taken out of flight"]
pub enum Waits {
    /// A message has come already.
    Over,
    /// The next message ends it.
    Armed,
}

/// `thread`, whose request is in flight, waits for a message. Messages are let through from now on.
pub fn wait(id: LineId, waiter: ThreadRef) -> Result<Waits, CapError> {
    let mut line = LINES[usize::from(id.number)].lock();
    let (from, message) = line.from.filter(|_| line.generation == id.generation).ok_or(CapError::PeerGone)?;
    if line.waiter.is_some_and(|other| other != waiter) {
        return Err(CapError::Busy);
    }
    if core::mem::take(&mut line.pending) {
        return Ok(Waits::Over);
    }
    line.waiter = Some(waiter);
    device(from)?.function.mask(message, false);
    Ok(Waits::Armed)
}

/// `waiter` does not wait any more.
pub fn stop_waiting(id: LineId, waiter: ThreadRef) {
    let mut line = LINES[usize::from(id.number)].lock();
    if line.generation == id.generation && line.waiter == Some(waiter) {
        line.waiter = None;
    }
}

/// A message has come on line `number`.
pub fn interrupted(number: u8) {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    let mut line = LINES[usize::from(number) % DEVICE_LINES].lock();
    let Some((from, message)) = line.from else { return };
    if let Ok(device) = device(from) {
        device.function.mask(message, true);
    }
    let Some(waiter) = line.waiter.take() else {
        line.pending = true;
        return;
    };
    let id = LineId { number, generation: line.generation };
    drop(line);
    if let Some(thread) = thread::find(waiter) {
        let finished = thread.inbox.lock().finish_awaiting(waiter, Awaits::Interrupt(id));
        if let Some((waiter, posted)) = finished {
            wakeup::posted(waiter, posted);
        }
    }
}

/// All messages of `lines`, a bit for each, that came while the CPU was not in user mode.
pub fn interrupted_all(lines: u8) {
    (0..DEVICE_LINES as u8).filter(|line| lines & 1 << line != 0).for_each(interrupted);
}

/// `process` ends: the devices that it drives stop before anything of it is given back.
pub fn driver_ends(process: &Process) {
    for (number, device) in (0..).zip(DEVICES.get().into_iter().flatten()) {
        let mut driver = device.driver.lock();
        if driver.process != Some(process.name()) {
            continue;
        }
        device.function.stop();
        for line in &LINES {
            let mut line = line.lock();
            if line.from.is_some_and(|(from, _)| from == DeviceId(number)) {
                *line = Line { generation: line.generation + 1, from: None, pending: false, waiter: None };
            }
        }
        driver.process = None;
        driver.memory.clear();
    }
}
