//! Functions of the PCI buses: what they are, where their registers are, and their message-signalled interrupts.
//!
//! Configuration space is reached through the two old ports, which every PC has. The kernel alone writes it, and the kernel alone
//! writes the table of a function's messages (MSI-X), wherever that is: a message is a write to any address.
//!
//! Conserved:
//! * A function that was [stopped](Function::stop) writes no memory until it is [started](Function::start), and remembers nothing
//!   of what it was told before.
//! * Registers of a virtio function stay where they are while other CPUs run. A function-level reset takes them away for a moment;
//!   QEMU before 8.2 renumbers its regions then, and lets a CPU with an old number write to the wrong one, or to none. The write that
//!   goes astray is mostly one to the CPU's own timer.

use super::{DEVICES_START, DIRECT_MAP, DIRECT_MAP_SIZE, PAGE, apic, cpu};
use crate::object::device::Registers;
use core::ops::Range;
use heapless::Vec;
use mainspring_abi::CpuId;
use spin::Mutex;
use x86_64::instructions::port::Port;

/// Functions that are kept.
pub const MAX_FUNCTIONS: usize = 8;

const ADDRESS_PORT: u16 = 0xcf8;
const DATA_PORT: u16 = 0xcfc;
/// The two ports are one register.
static PORTS: Mutex<()> = Mutex::new(());

const COMMAND: u8 = 0x04;
/// The upper half of the word has the kind of header.
const HEADER: u8 = 0x0c;
const BAR_0: u8 = 0x10;
const CAPABILITIES: u8 = 0x34;
/// Answers at its memory addresses.
const MEMORY_SPACE: u32 = 1 << 1;
/// May write memory, which messages are too.
const BUS_MASTER: u32 = 1 << 2;
/// Has no interrupt line.
const NO_LINE: u32 = 1 << 10;
const HAS_CAPABILITIES: u32 = 1 << 20;
const BARS: usize = 6;

const VIRTIO: u16 = 0x1af4;
/// Of a vendor: virtio names its structures in it, each with its kind in the upper byte.
const CAP_VENDOR: u8 = 0x09;
const VIRTIO_COMMON: u32 = 1;
/// In the common structure: writing 0 resets the function, which then reads as 0.
const VIRTIO_STATUS: u64 = 0x14;
/// How often a function that resets is asked whether it has. Virtio functions of QEMU have at once.
const RESET_LOOKS: u32 = 1000;

const CAP_PCIE: u8 = 0x10;
const CAP_MSIX: u8 = 0x11;
/// In the PCI Express capability: the function can be reset alone.
const PCIE_DEVICE: u8 = 4;
const CAN_RESET: u32 = 1 << 28;
const PCIE_CONTROL: u8 = 8;
const RESET: u32 = 1 << 15;
const MSIX_ENABLE: u32 = 1 << 31;

/// Words of a message in the table: address, upper half, data, control.
const MESSAGE_WORDS: u64 = 4;
const MASKED: u32 = 1;

impl Registers {
    fn range(self) -> Range<u64> {
        self.address..self.address + self.bytes
    }

    /// How many pages.
    #[must_use]
    pub fn pages(self) -> u64 {
        self.bytes.div_ceil(PAGE as u64)
    }
}

/// The table of a function's messages.
#[derive(Clone, Copy, Debug)]
struct Msix {
    capability: u8,
    /// Where its first word is.
    table: u64,
    /// Where a function says which messages it holds back: registers that no program gets, too.
    pending: Range64,
    messages: u16,
}

#[derive(Clone, Copy, Debug)]
struct Range64 {
    start: u64,
    end: u64,
}

/// A function of the bus that can be given to a program.
#[derive(Clone, Debug)]
pub struct Function {
    number: u16,
    /// Vendor and device.
    pub id: (u16, u16),
    bars: [Registers; BARS],
    /// The base addresses as the firmware set them. A reset forgets them.
    words: [u32; BARS],
    msix: Msix,
    pcie: u8,
    /// Where its own reset is, if it is of virtio.
    status: Option<u64>,
}

fn select(function: u16, register: u8) -> u32 {
    1 << 31 | u32::from(function) << 8 | u32::from(register & 0xfc)
}

fn read(function: u16, register: u8) -> u32 {
    let _one_at_a_time = PORTS.lock();
    // SAFETY: the two ports of configuration space; reading a register of it changes nothing.
    unsafe {
        Port::<u32>::new(ADDRESS_PORT).write(select(function, register));
        Port::<u32>::new(DATA_PORT).read()
    }
}

fn write(function: u16, register: u8, value: u32) {
    let _one_at_a_time = PORTS.lock();
    // SAFETY: as above; what is written is decided in this file alone, and lets a function write only memory that its driver was
    // given, as far as the driver is honest.
    unsafe {
        Port::<u32>::new(ADDRESS_PORT).write(select(function, register));
        Port::<u32>::new(DATA_PORT).write(value);
    }
}

/// Buses that are looked at. The firmware numbers them from 0, and a machine has few.
const BUSES: u16 = 16;
const BRIDGE: u32 = 1;

/// The functions that a program can drive: they have messages, can be reset, and their registers are where the kernel sees
/// them.
#[must_use]
pub fn scan() -> Vec<Function, MAX_FUNCTIONS> {
    (0..BUSES << 8).filter_map(Function::find).take(MAX_FUNCTIONS).collect()
}

impl Function {
    fn find(number: u16) -> Option<Self> {
        let id = read(number, 0);
        if id & 0xffff == 0xffff {
            return None;
        }
        let (header, command) = (read(number, HEADER) >> 16 & 0x7f, read(number, COMMAND));
        if header == BRIDGE {
            // What functions behind it write goes through it.
            write(number, COMMAND, command & 0xffff | MEMORY_SPACE | BUS_MASTER);
        }
        if header != 0 || command & HAS_CAPABILITIES == 0 {
            return None;
        }
        let (mut msix, mut pcie, mut common) = (None, None, None);
        let mut at = read(number, CAPABILITIES) as u8;
        // A list that goes round ends all the same.
        for _ in 0..48 {
            if at < 0x40 {
                break;
            }
            let word = read(number, at);
            match word as u8 {
                CAP_MSIX => msix = Some(at),
                CAP_PCIE if read(number, at + PCIE_DEVICE) & CAN_RESET != 0 => pcie = Some(at),
                CAP_VENDOR if id as u16 == VIRTIO && word >> 24 == VIRTIO_COMMON => common = Some(at),
                _ => {}
            }
            at = (word >> 8) as u8;
        }
        let (capability, pcie) = (msix?, pcie?);
        let words = core::array::from_fn(|bar| read(number, BAR_0 + 4 * bar as u8));
        let bars = sizes(number, &words);
        let part = |offset: u8| {
            let word = read(number, capability + offset);
            let bar = bars.get((word & 7) as usize).filter(|bar| bar.bytes != 0)?;
            Some(bar.address + u64::from(word & !7))
        };
        let messages = (read(number, capability) >> 16 & 0x7ff) as u16 + 1;
        let (table, pending) = (part(4)?, part(8)?);
        let visible = |bar: &Registers| {
            bar.bytes == 0 || bar.address >= DEVICES_START && bar.range().end <= DIRECT_MAP_SIZE
        };
        let pending = Range64 { start: pending, end: pending + u64::from(messages.div_ceil(64)) * 8 };
        let status = common.and_then(|at| {
            let bar = bars.get((read(number, at + 4) & 0xff) as usize)?;
            let offset = u64::from(read(number, at + 8)) + VIRTIO_STATUS;
            (offset < bar.bytes).then_some(bar.address + offset)
        });
        let function = Self {
            number,
            id: (id as u16, (id >> 16) as u16),
            bars,
            words,
            msix: Msix { capability, table, pending, messages },
            pcie,
            status,
        };
        bars.iter().all(visible).then_some(function)
    }

    /// A word of its configuration space.
    #[must_use]
    pub fn config(&self, register: u8) -> u32 {
        read(self.number, register)
    }

    /// How many messages it has.
    #[must_use]
    pub fn messages(&self) -> u16 {
        self.msix.messages
    }

    /// Registers that a program may have: none where messages are.
    #[must_use]
    pub fn bar(&self, number: usize) -> Option<Registers> {
        let bar = *self.bars.get(number).filter(|bar| bar.bytes != 0)?;
        let table = self.msix.table..self.msix.table + u64::from(self.msix.messages) * 4 * MESSAGE_WORDS;
        let pending = self.msix.pending.start..self.msix.pending.end;
        let pages = bar.address / PAGE as u64 * PAGE as u64..bar.range().end.next_multiple_of(PAGE as u64);
        let apart = |kept: &Range<u64>| kept.end <= pages.start || pages.end <= kept.start;
        // A page that it does not fill may have registers of another device.
        let whole = (bar.address | bar.bytes).is_multiple_of(PAGE as u64);
        (whole && apart(&table) && apart(&pending)).then_some(bar)
    }

    /// Lets it write memory and send messages, all of which are masked.
    pub fn start(&self) {
        write(self.number, COMMAND, MEMORY_SPACE | BUS_MASTER | NO_LINE);
        self.mask_all();
        let control = read(self.number, self.msix.capability);
        write(self.number, self.msix.capability, control | MSIX_ENABLE);
    }

    /// Resets it, whatever the firmware did with it, and lets it answer. No other CPU runs yet.
    pub fn init(&self) {
        self.reset_function();
        write(self.number, COMMAND, MEMORY_SPACE | NO_LINE);
        self.mask_all();
    }

    /// Resets it: it writes no memory from now on, and has forgotten its queues.
    pub fn stop(&self) {
        // First of all, and whatever a reset does.
        write(self.number, COMMAND, MEMORY_SPACE | NO_LINE);
        self.mask_all();
        if !self.reset_virtio() {
            self.reset_function();
            write(self.number, COMMAND, MEMORY_SPACE | NO_LINE);
        }
    }

    /// The reset that virtio functions have; whether this is one, and is reset.
    fn reset_virtio(&self) -> bool {
        let Some(status) = self.status else { return false };
        let status = (DIRECT_MAP + status) as *mut u8;
        // SAFETY: the register is within a base address of the function, which the direct map has, uncached. The driver that had it
        // mapped does not run any more.
        unsafe {
            status.write_volatile(0);
            (0..RESET_LOOKS).any(|_| status.read_volatile() == 0)
        }
    }

    /// The reset of PCI Express, which forgets where the registers are.
    fn reset_function(&self) {
        write(self.number, COMMAND, NO_LINE);
        let control = read(self.number, self.pcie + PCIE_CONTROL);
        write(self.number, self.pcie + PCIE_CONTROL, control | RESET);
        for (bar, word) in (0..).zip(self.words) {
            write(self.number, BAR_0 + 4 * bar, word);
        }
    }

    fn mask_all(&self) {
        for message in 0..self.msix.messages {
            self.mask(message, true);
        }
    }

    /// Message `message` goes to `cpu` as interrupt `vector`. It stays masked.
    pub fn route(&self, message: u16, vector: u8, cpu: CpuId) {
        let target = cpu::apic_id(cpu.index()).unwrap_or(0);
        self.set_word(message, 0, apic::BASE as u32 | u32::from(target) << 12);
        self.set_word(message, 1, 0);
        self.set_word(message, 2, u32::from(vector));
    }

    /// Holds message `message` back, or lets it through: one that was held back meanwhile comes at once.
    pub fn mask(&self, message: u16, masked: bool) {
        self.set_word(message, 3, if masked { MASKED } else { 0 });
    }

    fn set_word(&self, message: u16, word: u64, value: u32) {
        if message >= self.msix.messages {
            return;
        }
        let at = self.msix.table + 4 * (u64::from(message) * MESSAGE_WORDS + word);
        // SAFETY: the table is within a base address that the direct map has, uncached, and no program has it mapped. Each word
        // is aligned, and there are as many messages as the function says.
        unsafe { ((DIRECT_MAP + at) as *mut u32).write_volatile(value) };
    }
}

/// The base addresses of a function, and how much is at each. It does not answer meanwhile.
fn sizes(number: u16, words: &[u32; BARS]) -> [Registers; BARS] {
    let command = read(number, COMMAND) & 0xffff;
    write(number, COMMAND, command & !(MEMORY_SPACE | 1));
    let mut bars = [Registers::default(); BARS];
    let mut index = 0;
    while index < BARS {
        let register = BAR_0 + 4 * index as u8;
        let size_of = |register: u8, word: u32| {
            write(number, register, u32::MAX);
            let size = read(number, register);
            write(number, register, word);
            size
        };
        let (word, wide) = (words[index], words[index] & 7 == 4);
        let low = size_of(register, word);
        let high = if wide && index + 1 < BARS { size_of(register + 4, words[index + 1]) } else { u32::MAX };
        let top = if wide && index + 1 < BARS { words[index + 1] } else { 0 };
        // One in I/O space, or none.
        if word & 1 == 0 && low & !15 != 0 {
            let mask = u64::from(high) << 32 | u64::from(low & !15);
            let address = u64::from(top) << 32 | u64::from(word & !15);
            bars[index] = Registers { address, bytes: mask.wrapping_neg() };
        }
        index += 1 + usize::from(wide);
    }
    write(number, COMMAND, command);
    bars
}
