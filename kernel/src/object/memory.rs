//! Memory that several processes can map.

use super::process::{Process, refusal};
use crate::arch::SharedPages;
use alloc::sync::Arc;
use mainspring_abi::ring::CapError;
use mainspring_kernel_core::ledger::{Charge, Kind};

/// Pages, charged to the process that made them until nobody has them any more.
#[derive(Debug)]
pub struct MemoryObject {
    /// The pages.
    pub pages: Arc<SharedPages>,
    _charge: Charge<'static>,
}

impl MemoryObject {
    /// Cleared pages on `maker`'s account.
    pub fn new(maker: &'static Process, pages: u32) -> Result<Self, CapError> {
        let charge = maker.ledger.charge(Kind::Frames, u64::from(pages)).map_err(refusal)?;
        let shared = SharedPages::new(pages as usize).ok_or(CapError::NoMemory)?;
        Ok(Self { pages: Arc::new(shared), _charge: charge })
    }
}
