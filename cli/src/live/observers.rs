//! The socket's side: each observer is sent a frame as a line of JSON, several times a second.

use super::Shown;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How often an observer is sent a frame.
const EVERY: Duration = Duration::from_millis(200);
/// How long one may take to read what it is sent.
const PATIENCE: Duration = Duration::from_millis(500);

/// Sends one observer the frames of a run until that is over, or it reads no more.
pub fn send_frames(shown: &Shown, mut stream: UnixStream) {
    if stream.set_nonblocking(false).is_err() || stream.set_write_timeout(Some(PATIENCE)).is_err() {
        return;
    }
    loop {
        // Asked before the frame is taken, so that the last frame is sent.
        let is_over = shown.is_over();
        let Ok(mut line) = serde_json::to_vec(&*shown.frame()) else { return };
        line.push(b'\n');
        if stream.write_all(&line).is_err() || is_over {
            return;
        }
        std::thread::sleep(EVERY);
    }
}
