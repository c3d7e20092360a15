//! Memory that several processes can map.

use super::ProcessRef;
use super::process::{self, PAGES};
use crate::arch::SharedPages;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use mainspring_abi::ring::CapError;

/// Pages, counted against the process that made them until nobody has them any more.
#[derive(Debug)]
pub struct MemoryObject {
    /// The pages.
    pub pages: Arc<SharedPages>,
    maker: ProcessRef,
}

impl MemoryObject {
    /// Cleared pages on `maker`'s account.
    pub fn new(maker: ProcessRef, pages: u32) -> Result<Self, CapError> {
        let charged = &process::slot(maker.index).object_pages;
        let fits = |used: u64| (used + u64::from(pages) <= PAGES).then_some(used + u64::from(pages));
        if charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return Err(CapError::QuotaExceeded);
        }
        match SharedPages::new(pages as usize) {
            Some(shared) => Ok(Self { pages: Arc::new(shared), maker }),
            None => {
                charged.fetch_sub(u64::from(pages), Ordering::Relaxed);
                Err(CapError::NoMemory)
            }
        }
    }
}

impl Drop for MemoryObject {
    fn drop(&mut self) {
        let maker = process::slot(self.maker.index);
        if maker.name() == self.maker {
            maker.object_pages.fetch_sub(self.pages.len() as u64, Ordering::Relaxed);
        }
    }
}
