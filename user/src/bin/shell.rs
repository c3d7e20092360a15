//! The console: looks at the machine and runs programs.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use mainspring_abi::kernel::MAX_THREADS;
use mainspring_user::caps;
use mainspring_user::schema::ThreadState;
use mainspring_user::{CapError, say};

mainspring_user::program!(main);

const GRANTS: &[&str] =
    &["console", "timer", "threads", "control", "processes", "park", "memory", "policy", "info"];

const HELP: &str = "  cpus            what each CPU has done
  memory          frames, heap, and allocations where none may be
  objects         how many processes, threads and timed waits there are
  processes       each with its threads and pages
  threads         each with its CPU, state, weight and CPU time
  run NAME [ARG]  runs a program of the boot image and waits for it
  time            since boot
  help, exit";

fn main() -> i64 {
    say!("mainspring console; `help` lists the commands");
    loop {
        caps::print(b"> ");
        let line = read_line();
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let done = match word {
            "" => Ok(()),
            "help" => {
                caps::print(HELP.as_bytes());
                caps::print(b"\n");
                Ok(())
            }
            "cpus" => cpus(),
            "memory" => memory(),
            "objects" => objects(),
            "processes" => {
                processes();
                Ok(())
            }
            "threads" => {
                threads();
                Ok(())
            }
            "time" => {
                say!("{} ms", caps::now() / 1_000_000);
                Ok(())
            }
            "run" => run(rest),
            "exit" => return 0,
            _ => {
                say!("no such command; `help` lists them");
                Ok(())
            }
        };
        if let Err(code) = done {
            say!("{word}: {code}");
        }
    }
}

/// A line as typed. There is no interrupt for the serial line: it is looked at a hundred times a second.
fn read_line() -> String {
    let mut line = String::new();
    loop {
        let mut typed = [0; 32];
        let len = caps::read_typed(&mut typed).unwrap_or(0);
        for byte in &typed[..len] {
            match byte {
                b'\r' | b'\n' => {
                    caps::print(b"\n");
                    return line;
                }
                8 | 127 if line.pop().is_some() => caps::print(b"\x08 \x08"),
                32..=126 if line.len() < 200 => {
                    line.push(char::from(*byte));
                    caps::print(&[*byte]);
                }
                _ => {}
            }
        }
        if len == 0 {
            let _ = caps::sleep(10_000_000);
        }
    }
}

fn cpus() -> Result<(), CapError> {
    for cpu in 0..caps::usage()?.cpus {
        let of = caps::cpu_counters(cpu)?;
        say!(
            "cpu {cpu}: queued {}, busy {} ms, idle {} ms, timer interrupts {}, ticks {} (suppressed {}), reschedules {}, steals {}, handoffs {}",
            of.queued,
            of.busy_ns / 1_000_000,
            of.idle_ns / 1_000_000,
            of.timer_interrupts,
            of.ticks,
            of.ticks_suppressed,
            of.reschedules_received,
            of.steals,
            of.handoffs
        );
    }
    Ok(())
}

fn memory() -> Result<(), CapError> {
    let usage = caps::usage()?;
    say!(
        "{} frames of 4 KiB free; heap {} bytes; {} allocations on hard paths",
        usage.free_frames,
        usage.heap_used,
        usage.hard_path_allocations
    );
    Ok(())
}

fn objects() -> Result<(), CapError> {
    let usage = caps::usage()?;
    say!("{} processes, {} threads, {} timed waits", usage.processes, usage.threads, usage.pending_waits);
    Ok(())
}

/// Slots without a process are refused, and left out.
fn processes() {
    for slot in 0..64 {
        let _ = caps::process_info(slot, |process| {
            let name = process.get_name().ok().and_then(|name| name.to_str().ok()).unwrap_or("?");
            (String::from(name), process.get_threads(), process.get_pages())
        })
        .map(|(name, threads, pages)| say!("process {slot}: {name}, {threads} threads, {pages} pages"));
    }
}

fn threads() {
    for slot in 0..MAX_THREADS as u32 {
        let _ = caps::thread_info(slot, |thread| {
            let state = match thread.get_state() {
                Ok(ThreadState::Running) => "running",
                Ok(ThreadState::Ready) => "ready",
                Ok(ThreadState::Asleep) => "asleep",
                _ => "moving",
            };
            (thread.get_process(), thread.get_cpu(), state, thread.get_weight(), thread.get_runtime_ns())
        })
        .map(|(process, cpu, state, weight, ran)| {
            say!(
                "thread {slot}: process {process}, cpu {cpu}, {state}, weight {weight}, ran {} us",
                ran / 1000
            );
        });
    }
}

fn run(text: &str) -> Result<(), CapError> {
    let (program, arguments) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let child = caps::start(program, arguments, GRANTS)?;
    let code = child.wait()?;
    child.detach()?;
    say!("{program} ended with {code}");
    Ok(())
}
