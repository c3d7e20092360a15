//! Frames for the host, on the debug console: see [`mainspring_abi::frame`].
//!
//! Conserved: frames are written whole, whichever CPU writes them, and none follows the end of the run.

use crate::arch::record_out;
use mainspring_abi::frame::Frame;
use spin::Mutex;

/// Whether the end has been written.
static ENDED: Mutex<bool> = Mutex::new(false);

/// Writes one frame, unless the run is over.
pub fn write(frame: &Frame<'_>) {
    let mut ended = ENDED.lock();
    if !*ended {
        frame.write(record_out);
        *ended = matches!(frame, Frame::End(_));
    }
}
