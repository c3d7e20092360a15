//! Names of devices, of the lines on which their messages come, and of their registers. [`crate::devices`] has the devices.

/// A device, as the kernel numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceId(pub u8);

/// A line, as the kernel numbers it, for one driver: a number that is used again has another generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineId {
    /// Which line.
    pub number: u8,
    /// For which of its drivers.
    pub generation: u32,
}

/// Registers of a device, at physical addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registers {
    /// The first.
    pub address: u64,
    /// How many bytes; 0 if there are none in memory.
    pub bytes: u64,
}
