//! Which driver a runtime's sockets and files go through: io_uring where the kernel has it, epoll elsewhere.

use super::readiness;
use super::uring::{self, Uring};
use std::io;
use std::sync::{Mutex, OnceLock};

/// How a runtime talks to sockets and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoDriver {
    /// io_uring if the kernel allows it, else epoll.
    #[default]
    Auto,
    /// io_uring: operations are handed to the kernel, which completes them.
    Uring,
    /// epoll: operations are tried until they do not block; files and connections go to the pool of threads.
    Epoll,
}

/// The driver of a runtime. What it needs is made with the first socket or file.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) readiness: readiness::Driver,
    wants_uring: bool,
    uring: OnceLock<Uring>,
    making: Mutex<()>,
}

impl Driver {
    /// Asks the kernel once per process what it allows. An error only if io_uring was asked for by name.
    /// `by_workers`: workers and the monitor ask epoll.
    pub(crate) fn new(choice: IoDriver, by_workers: bool) -> io::Result<Self> {
        let wants_uring = match choice {
            IoDriver::Auto => uring::probe().is_ok(),
            IoDriver::Uring => uring::probe().map(|()| true)?,
            IoDriver::Epoll => false,
        };
        Ok(Self {
            readiness: readiness::Driver::new(by_workers),
            wants_uring,
            uring: OnceLock::new(),
            making: Mutex::default(),
        })
    }

    /// Which one it is: never `Auto`.
    pub(crate) fn kind(&self) -> IoDriver {
        if self.wants_uring { IoDriver::Uring } else { IoDriver::Epoll }
    }

    /// The ring, if this is a driver with one.
    pub(crate) fn uring(&self) -> io::Result<Option<&Uring>> {
        if !self.wants_uring {
            return Ok(None);
        }
        if self.uring.get().is_none() {
            let _making = self.making.lock().expect("no panic while it is held");
            if self.uring.get().is_none() {
                let made = Uring::new()?;
                assert!(self.uring.set(made).is_ok(), "made under the lock");
            }
        }
        Ok(self.uring.get())
    }

    /// Ends what the driver has started. No task is left that could wait for it.
    pub(crate) fn close(&self) {
        self.readiness.close();
        if let Some(uring) = self.uring.get() {
            uring.close();
        }
    }
}
