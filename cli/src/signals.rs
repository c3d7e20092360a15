//! Ctrl-C, SIGTERM and SIGHUP: what is half done is taken back, and the machines that were started are stopped.
//!
//! The signals are blocked in every thread, and one thread waits for them. Programs that are started begin with nothing blocked, as
//! the standard library has it.

use crate::outfile;
use mainspring_machine::qemu;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::{fs, process, thread};

/// The signals that ask a program to end.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Sees to it that one of these signals leaves nothing behind. To be called before there are other threads.
pub fn watch() {
    let set: SigSet = ENDING.into_iter().collect();
    // Without it a signal ends the program as it does others.
    if set.thread_block().is_err() {
        return;
    }
    thread::spawn(move || {
        if let Ok(signal) = set.wait() {
            clean_up();
            // As shells count the end by a signal.
            process::exit(128 + signal as i32);
        }
    });
}

fn clean_up() {
    for machine in qemu::running() {
        // One that has ended meanwhile needs no signal.
        let _ = kill(Pid::from_raw(machine as i32), Signal::SIGKILL);
    }
    for file in qemu::scratch_files().into_iter().chain(outfile::temporaries()) {
        let _ = fs::remove_file(&file).or_else(|_| fs::remove_dir(&file));
    }
}
