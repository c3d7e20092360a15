//! Device, DeviceMemory, DmaMemory and Interrupt.

use super::{call_for, map_object, with_params};
use crate::client;
use mainspring_abi::ring::{CapError, CapSqeV2};
use mainspring_schema as schema;
use mainspring_schema::{DeviceMethod, DmaMemoryMethod, InterruptMethod};

/// A device that this process has a capability of. The first method but for [`Device::info`] and [`Device::config`] makes
/// this process its driver, or is refused because another one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device(pub u32);

/// What a device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct DeviceInfo {
    pub vendor: u16,
    pub kind: u16,
    pub interrupts: u16,
}

/// Registers of a device. [`map_object`] maps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceMemory {
    /// Their capability.
    pub cap: u32,
    /// Where the device has them.
    pub device_address: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// Registers of a device, mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// Where the device has them.
    pub device_address: u64,
    /// Where this process has them.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
}

fn with_number<T>(number: u32, work: impl FnOnce(&[u8]) -> T) -> Result<T, CapError> {
    with_params::<schema::device_number::Owned, _>(|mut params| params.set_number(number), work)
}

impl Device {
    /// What it is.
    pub fn info(self) -> Result<DeviceInfo, CapError> {
        call_for::<schema::device_info::Owned, _>(self.0, DeviceMethod::Info as u16, &[], |info| DeviceInfo {
            vendor: info.get_vendor(),
            kind: info.get_kind(),
            interrupts: info.get_interrupts(),
        })
    }

    /// A word of its configuration space.
    pub fn config(self, register: u8) -> Result<u32, CapError> {
        with_number(register.into(), |bytes| {
            client::call(self.0, DeviceMethod::Config as u16, bytes, &mut [])
        })?
    }

    /// The registers at base address `bar`, not mapped.
    pub fn registers(self, bar: u32) -> Result<DeviceMemory, CapError> {
        with_number(bar, |bytes| {
            let method = DeviceMethod::Memory as u16;
            call_for::<schema::device_registers::Owned, _>(self.0, method, bytes, |registers| DeviceMemory {
                cap: registers.get_cap(),
                device_address: registers.get_address(),
                bytes: registers.get_bytes(),
            })
        })?
    }

    /// Maps the registers at base address `bar`.
    pub fn map_registers(self, bar: u32) -> Result<Registers, CapError> {
        let DeviceMemory { cap, device_address, bytes } = self.registers(bar)?;
        let address = map_object(cap, schema::Access::Write)?;
        Ok(Registers { device_address, address, bytes })
    }

    /// Makes memory that the device can reach.
    pub fn create_dma(self, pages: u32) -> Result<DmaMemory, CapError> {
        let method = DeviceMethod::CreateDma as u16;
        with_params::<schema::memory_range::Owned, _>(
            |mut params| params.set_pages(pages),
            |bytes| {
                call_for::<schema::handle::Owned, _>(self.0, method, bytes, |made| DmaMemory(made.get_cap()))
            },
        )?
    }

    /// The messages with number `message`.
    pub fn interrupt(self, message: u32) -> Result<Interrupt, CapError> {
        with_number(message, |bytes| {
            let method = DeviceMethod::Interrupt as u16;
            call_for::<schema::handle::Owned, _>(self.0, method, bytes, |made| Interrupt(made.get_cap()))
        })?
    }
}

/// Memory that a device can reach. [`map_object`] maps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaMemory(pub u32);

impl DmaMemory {
    /// Where the device has page `page`.
    pub fn address(self, page: u32) -> Result<u64, CapError> {
        with_number(page, |bytes| {
            let method = DmaMemoryMethod::Address as u16;
            call_for::<schema::dma_address::Owned, _>(self.0, method, bytes, |told| told.get_address())
        })?
    }
}

/// Messages of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupt(pub u32);

impl Interrupt {
    /// The request to wait for one, without a deadline.
    #[must_use]
    pub fn wait_request(self) -> CapSqeV2 {
        client::request(self.0, InterruptMethod::Wait as u16, &[], &mut [])
    }

    /// Waits for one until `deadline_ns`.
    pub fn wait_until(self, deadline_ns: u64) -> Result<(), CapError> {
        let waited = with_params::<schema::deadline::Owned, _>(
            |mut params| params.set_deadline_ns(deadline_ns),
            |bytes| client::call(self.0, InterruptMethod::Wait as u16, bytes, &mut []),
        )?;
        waited.map(|_| ())
    }
}
