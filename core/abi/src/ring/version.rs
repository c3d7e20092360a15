use super::codes::CapError;
use super::entry::{CapCqe, CapSqe, CapSqeV2};
use core::mem::{offset_of, size_of};

/// The oldest ring ABI that this build speaks.
pub const ABI_VERSION_MIN: u32 = 1;
/// The newest ring ABI that this build speaks.
pub const ABI_VERSION_MAX: u32 = 2;

/// A ring ABI that both sides speak. There is no way to one but [`negotiate`] and naming it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RingAbi {
    /// Entries are [`CapSqe`].
    V1,
    /// Entries are [`CapSqeV2`].
    V2,
}

impl RingAbi {
    /// The version number.
    #[must_use]
    pub const fn version(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// The size of a submission entry, in bytes.
    #[must_use]
    pub const fn sqe_size(self) -> u16 {
        match self {
            Self::V1 => size_of::<CapSqe>() as u16,
            Self::V2 => size_of::<CapSqeV2>() as u16,
        }
    }

    /// The size of a completion entry, in bytes.
    #[must_use]
    pub const fn cqe_size(self) -> u16 {
        size_of::<CapCqe>() as u16
    }
}

/// The ABI that `version` and the two entry sizes name.
///
/// Nothing is guessed: a version that is not spoken is refused whatever its sizes, and sizes that differ from
/// the version's in any way are refused too, since a slot would begin somewhere else.
pub const fn negotiate(version: u32, sqe_size: u16, cqe_size: u16) -> Result<RingAbi, CapError> {
    let abi = match version {
        1 => RingAbi::V1,
        2 => RingAbi::V2,
        _ => return Err(CapError::UnsupportedRingAbi),
    };
    if sqe_size == abi.sqe_size() && cqe_size == abi.cqe_size() {
        Ok(abi)
    } else {
        Err(CapError::UnsupportedSqeVersion)
    }
}

/// What a new process is told about its ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct RuntimeBootInfo {
    /// Where the ring is mapped.
    pub ring_addr: u64,
    /// The ring's ABI version.
    pub ring_abi_version: u32,
    /// The size of a submission entry, in bytes.
    pub sqe_size: u16,
    /// The size of a completion entry, in bytes.
    pub cqe_size: u16,
}

const _: () = {
    assert!(size_of::<RuntimeBootInfo>() == 16 && align_of::<RuntimeBootInfo>() == 8);
    assert!(
        offset_of!(RuntimeBootInfo, ring_addr) == 0 && offset_of!(RuntimeBootInfo, ring_abi_version) == 8
    );
    assert!(offset_of!(RuntimeBootInfo, sqe_size) == 12 && offset_of!(RuntimeBootInfo, cqe_size) == 14);
};

impl RuntimeBootInfo {
    /// What to tell a process whose ring of `abi` is mapped at `ring_addr`.
    #[must_use]
    pub const fn new(ring_addr: u64, abi: RingAbi) -> Self {
        Self {
            ring_addr,
            ring_abi_version: abi.version(),
            sqe_size: abi.sqe_size(),
            cqe_size: abi.cqe_size(),
        }
    }

    /// The ABI to use, before anything at `ring_addr` is touched.
    pub const fn abi(&self) -> Result<RingAbi, CapError> {
        negotiate(self.ring_abi_version, self.sqe_size, self.cqe_size)
    }

    /// As bytes, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        bytes[0..8].copy_from_slice(&self.ring_addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.ring_abi_version.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.sqe_size.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.cqe_size.to_le_bytes());
        bytes
    }

    /// From bytes, little-endian. Call [`RuntimeBootInfo::abi`] before believing it.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        let [a, b, c, d, e, f, g, h, v0, v1, v2, v3, s0, s1, c0, c1] = *bytes;
        Self {
            ring_addr: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            ring_abi_version: u32::from_le_bytes([v0, v1, v2, v3]),
            sqe_size: u16::from_le_bytes([s0, s1]),
            cqe_size: u16::from_le_bytes([c0, c1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_named_by_its_number_and_both_sizes() {
        assert_eq!(negotiate(1, 48, 16), Ok(RingAbi::V1));
        assert_eq!(negotiate(2, 64, 16), Ok(RingAbi::V2));
        for abi in [RingAbi::V1, RingAbi::V2] {
            assert_eq!(negotiate(abi.version(), abi.sqe_size(), abi.cqe_size()), Ok(abi));
        }
    }

    #[test]
    fn nothing_else_is_accepted() {
        for version in [0, 3, u32::MAX] {
            assert_eq!(negotiate(version, 64, 16), Err(CapError::UnsupportedRingAbi));
        }
        let near_misses = [(1, 64, 16), (2, 48, 16), (2, 64, 32), (2, 64, 0), (1, 0, 16), (2, 65, 16)];
        for (version, sqe_size, cqe_size) in near_misses {
            assert_eq!(negotiate(version, sqe_size, cqe_size), Err(CapError::UnsupportedSqeVersion));
        }
    }

    //= TICK:L4.bootinfo
    #[test]
    fn boot_info_carries_address_version_and_sizes() {
        let info = RuntimeBootInfo::new(0x7000_0000_1000, RingAbi::V2);
        assert_eq!(RuntimeBootInfo::from_bytes(&info.to_bytes()), info);
        assert_eq!(info.abi(), Ok(RingAbi::V2));
        assert_eq!((info.ring_abi_version, info.sqe_size, info.cqe_size), (2, 64, 16));
        let future = RuntimeBootInfo { ring_abi_version: 3, ..info };
        assert_eq!(future.abi(), Err(CapError::UnsupportedRingAbi));
    }
}
