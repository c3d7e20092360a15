//! A virtio network card: its registers, the memory that it reaches, and packets.
//!
//! Conserved: a buffer is with the card or with the driver. The card gets only addresses of the memory that was made for it.

use crate::caps::{self, Device, Interrupt, Registers};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ptr::NonNull;
use mainspring_abi::ring::CapError;
use mainspring_schema::Access;
use spin::{Mutex, Once};
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction, PciRoot};
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use virtio_drivers::{BufferDirection, Hal, PhysAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const PAGE: usize = 4096;
/// Buffers for packets on their way in, and as many for those on their way out.
const BUFFERS: usize = 32;
/// A packet of Ethernet, and what virtio puts before it.
const BUFFER: usize = 2048;
/// One for each buffer, and a few for the queues.
const DMA_PAGES: usize = 2 * BUFFERS + 16;
/// The queue whose progress is worth an interrupt.
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
/// No message.
const NONE: u16 = 0xffff;

/// The memory that the card reaches.
struct Pool {
    base: usize,
    /// Where the card has each page.
    addresses: Vec<u64>,
    taken: Mutex<[bool; DMA_PAGES]>,
}

static POOL: Once<Pool> = Once::new();
static REGISTERS: Once<Vec<Registers>> = Once::new();

impl Pool {
    fn open(device: Device) -> Result<Self, CapError> {
        let memory = device.create_dma(DMA_PAGES as u32)?;
        let base = caps::map_object(memory.0, Access::Write)? as usize;
        let addresses = (0..DMA_PAGES as u32).map(|page| memory.address(page)).collect::<Result<_, _>>()?;
        Ok(Self { base, addresses, taken: Mutex::new([false; DMA_PAGES]) })
    }

    /// So many pages that are neighbours for the card too.
    fn take(&self, pages: usize) -> Option<(u64, NonNull<u8>)> {
        let mut taken = self.taken.lock();
        let first = (0..=DMA_PAGES.checked_sub(pages)?).find(|first| {
            let range = *first..first + pages;
            let apart = |page: usize| (page - first) as u64 * PAGE as u64;
            range.clone().all(|page| !taken[page])
                && range.clone().all(|page| self.addresses[page] == self.addresses[*first] + apart(page))
        })?;
        taken[first..first + pages].fill(true);
        let pointer = NonNull::new((self.base + first * PAGE) as *mut u8)?;
        Some((self.addresses[first], pointer))
    }

    fn give_back(&self, pointer: NonNull<u8>, pages: usize) {
        let first = (pointer.as_ptr() as usize - self.base) / PAGE;
        self.taken.lock()[first..first + pages].fill(false);
    }

    /// Where the card has what is at `pointer`.
    fn translate(&self, pointer: usize) -> Option<u64> {
        let offset = pointer.checked_sub(self.base)?;
        Some(self.addresses.get(offset / PAGE)? + (offset % PAGE) as u64)
    }
}

struct Memory;

// SAFETY: pages come from the pool, whole, cleared, and to one owner each; buffers are within a page of the pool.
unsafe impl Hal for Memory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let taken = POOL.get().and_then(|pool| pool.take(pages));
        // An address of 0 says that there is none.
        let (address, pointer) = taken.unwrap_or((0, NonNull::dangling()));
        if address != 0 {
            // SAFETY: the pages were taken just now, and no other code has them.
            unsafe { pointer.write_bytes(0, pages * PAGE) };
        }
        (address, pointer)
    }

    unsafe fn dma_dealloc(_: PhysAddr, pointer: NonNull<u8>, pages: usize) -> i32 {
        if let Some(pool) = POOL.get() {
            pool.give_back(pointer, pages);
        }
        0
    }

    unsafe fn mmio_phys_to_virt(address: PhysAddr, size: usize) -> NonNull<u8> {
        let within = |registers: &&Registers| {
            let end = address.checked_add(size as u64);
            registers.device_address <= address
                && end.is_some_and(|end| end <= registers.device_address + registers.bytes)
        };
        let registers = REGISTERS.get().and_then(|all| all.iter().find(within));
        let registers = registers.expect("the card names registers that it has");
        let at = registers.address + (address - registers.device_address);
        NonNull::new(at as *mut u8).expect("a mapping is not at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        let pointer = buffer.cast::<u8>().as_ptr() as usize;
        let address = POOL.get().and_then(|pool| pool.translate(pointer));
        address.expect("only buffers of the pool are shared with the card")
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// The card's configuration space, as this process may see it. What a driver writes to learn how large a base address is, is
/// answered here; the kernel lets programs write none of it.
struct Config {
    words: [u32; 64],
    /// The sizes of base addresses, as the card would tell them.
    masks: [u32; 6],
}

const BAR_0: u8 = 0x10;
const COMMAND: u8 = 0x04;

impl Config {
    fn read(device: Device, registers: &[Registers]) -> Result<Self, CapError> {
        let mut words = [0; 64];
        for (register, word) in (0..).step_by(4).zip(&mut words) {
            *word = device.config(register)?;
        }
        let mut masks = [0; 6];
        for bar in 0..masks.len() {
            let word = words[usize::from(BAR_0) / 4 + bar];
            let known =
                registers.iter().find(|known| known.device_address as u32 == word & !15 && word & !15 != 0);
            if let Some(known) = known {
                masks[bar] = (known.bytes.wrapping_neg() as u32) & !15 | word & 15;
                if word & 7 == 4 && bar + 1 < masks.len() {
                    masks[bar + 1] = u32::MAX;
                }
            }
        }
        Ok(Self { words, masks })
    }
}

impl ConfigurationAccess for Config {
    fn read_word(&self, _: DeviceFunction, register: u8) -> u32 {
        self.words[usize::from(register) / 4]
    }

    fn write_word(&mut self, _: DeviceFunction, register: u8, word: u32) {
        let bar = usize::from(register.wrapping_sub(BAR_0)) / 4;
        let word = match self.masks.get(bar) {
            Some(mask) if word == u32::MAX => *mask,
            Some(_) => word,
            None if register == COMMAND => word,
            None => return,
        };
        self.words[usize::from(register) / 4] = word;
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self { words: self.words, masks: self.masks }
    }
}

/// Where the card is told that a queue has new buffers. Each word leaves the machine, if it is a virtual one, so many buffers are told
/// of at once. It is told whether it asks for that or not: `virtio-drivers` compares two indices that wrap, and could take one that
/// has just begun again for the smaller one.
#[derive(Default)]
struct Doorbell {
    at: Cell<u64>,
    due: Cell<bool>,
}

/// Those of the two queues.
type Doorbells = Rc<[Doorbell; 2]>;

/// The transport, with messages: a queue that comes to be is told which one it sends.
struct WithMessages {
    inner: PciTransport,
    doorbells: Doorbells,
    /// Where `queue_select`, `queue_msix_vector` and `queue_notify_off` are.
    select: *mut u16,
    vector: *mut u16,
    notify_offset: *const u16,
    /// Where the first doorbell is, and how far the next one is from it.
    notify: (u64, u64),
}

/// Kinds of the structures that capabilities name.
const COMMON: u32 = 1;
const NOTIFY: u32 = 2;
/// Offsets in the common configuration.
const QUEUE_SELECT: u64 = 0x16;
const QUEUE_VECTOR: u64 = 0x1a;
const QUEUE_NOTIFY_OFFSET: u64 = 0x1e;
/// Where the capability of the doorbells says how far they are from each other.
const NOTIFY_DISTANCE: u8 = 16;

impl Transport for WithMessages {
    fn device_type(&self) -> DeviceType {
        self.inner.device_type()
    }
    fn read_device_features(&mut self) -> u64 {
        self.inner.read_device_features()
    }
    fn write_driver_features(&mut self, features: u64) {
        self.inner.write_driver_features(features);
    }
    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.inner.max_queue_size(queue)
    }
    fn notify(&mut self, _: u16) {
        // The card is told of every buffer by `NetworkCard::tell`.
    }
    fn get_status(&self) -> DeviceStatus {
        self.inner.get_status()
    }
    fn set_status(&mut self, status: DeviceStatus) {
        self.inner.set_status(status);
    }
    fn set_guest_page_size(&mut self, size: u32) {
        self.inner.set_guest_page_size(size);
    }
    fn requires_legacy_layout(&self) -> bool {
        self.inner.requires_legacy_layout()
    }
    fn queue_set(&mut self, queue: u16, size: u32, table: PhysAddr, driver: PhysAddr, device: PhysAddr) {
        // SAFETY: all are registers of the card's common configuration, mapped for the life of the process, and no other
        // thread drives the card.
        let number = unsafe {
            self.select.write_volatile(queue);
            self.vector.write_volatile(if queue == RECEIVE { 0 } else { NONE });
            self.notify_offset.read_volatile()
        };
        if let Some(doorbell) = self.doorbells.get(usize::from(queue)) {
            doorbell.at.set(self.notify.0 + u64::from(number) * self.notify.1);
        }
        self.inner.queue_set(queue, size, table, driver, device);
    }
    fn queue_unset(&mut self, queue: u16) {
        self.inner.queue_unset(queue);
    }
    fn queue_used(&mut self, queue: u16) -> bool {
        self.inner.queue_used(queue)
    }
    fn ack_interrupt(&mut self) -> InterruptStatus {
        self.inner.ack_interrupt()
    }
    fn read_config_generation(&self) -> u32 {
        self.inner.read_config_generation()
    }
    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> virtio_drivers::Result<T> {
        self.inner.read_config_space(offset)
    }
    fn write_config_space<T: IntoBytes + Immutable>(
        &mut self,
        offset: usize,
        value: T,
    ) -> virtio_drivers::Result<()> {
        self.inner.write_config_space(offset, value)
    }
}

/// Why a card cannot be used.
#[derive(Debug)]
pub enum NoCard {
    /// The kernel refuses something.
    Refused(CapError),
    /// It is no virtio card, or one that says nonsense.
    NotVirtio,
}

impl From<CapError> for NoCard {
    fn from(code: CapError) -> Self {
        Self::Refused(code)
    }
}

struct Buffer {
    pointer: NonNull<u8>,
    /// The card's name for it, while the card has it.
    token: Option<u16>,
    len: usize,
}

impl Buffer {
    fn new() -> Option<Self> {
        let (_, page) = POOL.get()?.take(1)?;
        Some(Self { pointer: page, token: None, len: BUFFER })
    }

    /// # Safety
    ///
    /// The card does not have it.
    unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the page is this buffer's alone; the caller vouches for the card.
        unsafe { core::slice::from_raw_parts_mut(self.pointer.as_ptr(), BUFFER) }
    }
}

/// A network card that this process drives.
pub struct NetworkCard {
    raw: VirtIONetRaw<Memory, WithMessages, BUFFERS>,
    doorbells: Doorbells,
    incoming: Vec<Buffer>,
    outgoing: Vec<Buffer>,
    /// Ends a wait when packets have come.
    pub interrupt: Interrupt,
}

impl NetworkCard {
    /// Drives `device`, which nobody else drives. Once in the life of a process.
    pub fn open(device: Device) -> Result<Self, NoCard> {
        let info = device.info()?;
        if info.vendor != 0x1af4 {
            return Err(NoCard::NotVirtio);
        }
        // Base addresses that are not there, or that have messages, are refused; the card does not need them.
        let registers: Vec<_> = (0..6).filter_map(|bar| device.map_registers(bar).ok()).collect();
        let interrupt = device.interrupt(0)?;
        let pool = Pool::open(device)?;
        let config = Config::read(device, &registers)?;
        REGISTERS.call_once(|| registers);
        POOL.call_once(|| pool);
        let (_, common) = structure(&config, COMMON).ok_or(NoCard::NotVirtio)?;
        let (capability, notify) = structure(&config, NOTIFY).ok_or(NoCard::NotVirtio)?;
        let distance = config.words[usize::from(capability + NOTIFY_DISTANCE) / 4];
        let mut root = PciRoot::new(config);
        let at = DeviceFunction { bus: 0, device: 0, function: 0 };
        let inner = PciTransport::new::<Memory, _>(&mut root, at).map_err(|_| NoCard::NotVirtio)?;
        let doorbells = Doorbells::default();
        let transport = WithMessages {
            inner,
            doorbells: Rc::clone(&doorbells),
            select: (common + QUEUE_SELECT) as *mut u16,
            vector: (common + QUEUE_VECTOR) as *mut u16,
            notify_offset: (common + QUEUE_NOTIFY_OFFSET) as *const u16,
            notify: (notify, distance.into()),
        };
        let raw = VirtIONetRaw::new(transport).map_err(|_| NoCard::NotVirtio)?;
        let buffers = || (0..BUFFERS).map(|_| Buffer::new()).collect::<Option<Vec<_>>>();
        let (incoming, outgoing) = (buffers(), buffers());
        let no_memory = NoCard::Refused(CapError::NoMemory);
        let (Some(incoming), Some(outgoing)) = (incoming, outgoing) else { return Err(no_memory) };
        let mut card = Self { raw, doorbells, incoming, outgoing, interrupt };
        for index in 0..BUFFERS {
            card.offer(index);
        }
        card.tell();
        Ok(card)
    }

    /// Tells the card of buffers that it was given since the last time: packets to send, and room for others. Before that it may not
    /// have seen them.
    pub fn tell(&self) {
        for (queue, doorbell) in (0..).zip(&*self.doorbells) {
            if doorbell.due.take() {
                let at = doorbell.at.get() as *mut u16;
                // SAFETY: the queue's doorbell, in registers of the card that are mapped for the life of the process. The card's own
                // capability says where it is, as it does of all that `virtio-drivers` writes to.
                unsafe { at.write_volatile(queue) };
            }
        }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> [u8; 6] {
        self.raw.mac_address()
    }

    /// Gives the card a buffer for a packet that comes in.
    fn offer(&mut self, index: usize) {
        let buffer = &mut self.incoming[index];
        // SAFETY: the card does not have it, and nobody looks at it before the card has given it back.
        buffer.token = unsafe { self.raw.receive_begin(buffer.bytes()) }.ok();
        self.doorbells[usize::from(RECEIVE)].due.set(true);
    }

    /// Copies the next packet that has come in to the beginning of `to`; its length.
    pub fn receive(&mut self, to: &mut [u8]) -> Option<usize> {
        let token = self.raw.poll_receive()?;
        let index = self.incoming.iter().position(|buffer| buffer.token == Some(token))?;
        let buffer = &mut self.incoming[index];
        buffer.token = None;
        // SAFETY: the card gives the buffer back that it was given under this token.
        let received = unsafe { self.raw.receive_complete(token, buffer.bytes()) };
        // SAFETY: it has been given back.
        let bytes = unsafe { buffer.bytes() };
        let packet = received.ok().and_then(|(head, len)| bytes.get(head..head.checked_add(len)?));
        let copied = packet.and_then(|packet| {
            to.get_mut(..packet.len())?.copy_from_slice(packet);
            Some(packet.len())
        });
        self.offer(index);
        // A packet that makes no sense is an empty one.
        Some(copied.unwrap_or(0))
    }

    /// Takes back what the card has sent.
    fn reclaim(&mut self) {
        while let Some(token) = self.raw.poll_transmit() {
            let Some(buffer) = self.outgoing.iter_mut().find(|buffer| buffer.token == Some(token)) else {
                return;
            };
            let len = buffer.len;
            buffer.token = None;
            // SAFETY: as in `receive`; it was given with this length.
            let _ = unsafe { self.raw.transmit_complete(token, &buffer.bytes()[..len]) };
        }
    }

    /// Whether a packet can be sent.
    pub fn can_send(&mut self) -> bool {
        self.reclaim();
        self.outgoing.iter().any(|buffer| buffer.token.is_none())
    }

    /// Sends a packet of `len` bytes that `fill` writes. It is lost if the card has no room, as on any wire.
    pub fn send<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.reclaim();
        let free = self.outgoing.iter_mut().find(|buffer| buffer.token.is_none());
        let room = len.min(BUFFER - PACKET_HEAD);
        let Some(buffer) = free else { return fill(&mut [0; BUFFER][..room]) };
        // SAFETY: the card does not have it, and nobody touches it before the card has given it back.
        let bytes = unsafe { buffer.bytes() };
        let head = self.raw.fill_buffer_header(bytes).unwrap_or(0);
        let result = fill(&mut bytes[head..head + room]);
        // SAFETY: as above.
        let token = unsafe { self.raw.transmit_begin(&bytes[..head + room]) };
        (buffer.token, buffer.len) = (token.ok(), head + room);
        self.doorbells[usize::from(TRANSMIT)].due.set(true);
        result
    }
}

/// The most that virtio puts before a packet.
const PACKET_HEAD: usize = 16;

/// The capability that names a structure of this kind, and where this process has the structure.
fn structure(config: &Config, kind: u32) -> Option<(u8, u64)> {
    let word = |at: u8| config.words[usize::from(at) / 4];
    let mut at = word(0x34) as u8;
    for _ in 0..48 {
        if at < 0x40 {
            return None;
        }
        let head = word(at);
        if head as u8 == 9 && head >> 24 == kind {
            let bar = usize::from(word(at + 4) as u8);
            let base = word(BAR_0 + 4 * bar as u8) & !15;
            let registers = REGISTERS.get()?.iter().find(|known| known.device_address as u32 == base)?;
            return Some((at, registers.address + u64::from(word(at + 8))));
        }
        at = (head >> 8) as u8;
    }
    None
}

/// Memory for as long as the process lives, for buffers that are too large for the heap.
pub fn pages_for_ever(pages: u32) -> Result<&'static mut [u8], CapError> {
    let address = caps::map(pages, Access::Write)?;
    // SAFETY: the kernel has mapped the pages just now, for this process alone, and nobody unmaps them.
    Ok(unsafe { core::slice::from_raw_parts_mut(address as *mut u8, pages as usize * PAGE) })
}
