//! A child that does what it is told: `exit N`, `shared`, `spin` with a thread that computes for ever on CPU 1, `restless`
//! with threads that fall asleep and wake each other all the time, `make` processes all the time, `abandon` a call, `converse` in registers all the time,
//! or `park` with another thread parked as well.
#![no_std]
#![no_main]

use core::sync::atomic::Ordering;
use mainspring_user::arch;
use mainspring_user::caps::{self, Short, ThreadOptions};
use mainspring_user::schema::Access;

mainspring_user::program!(main);

static WORD: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Adds one to the word that it shares with its parent.
fn shared() -> i64 {
    let Ok(at) = caps::map_object(caps::need("pages"), Access::Write) else { return 1 };
    arch::word(at).fetch_add(1, Ordering::Relaxed);
    i64::from(caps::unmap_object(at).is_err())
}

/// Falls asleep and wakes others, for ever.
fn restless(number: u32) -> i64 {
    let at = WORD.as_ptr() as u64;
    loop {
        let now = WORD.fetch_add(1, Ordering::AcqRel) + 1;
        let _ = caps::unpark(at, 1);
        let due = if number == 0 { caps::now() + 20_000 } else { 0 };
        let _ = caps::park(at, now, due);
    }
}

/// Receives a call and ends.
fn abandon() -> i64 {
    i64::from(caps::receive(caps::need("serve"), &mut [0; 64]).is_err())
}

/// Calls itself in registers, for ever.
fn converse() -> i64 {
    let server = caps::spawn(ThreadOptions::default(), || {
        let serve = caps::need("serve");
        let mut buffer = [0; 64];
        let Ok((mut head, _)) = caps::receive_any(serve, &mut buffer) else { return 1 };
        loop {
            match caps::answer_short(serve, head.call_id, Short::number(0), &mut buffer) {
                Ok((next, _)) => head = next,
                Err(_) => return 1,
            }
        }
    });
    if server.is_err() {
        return 1;
    }
    let call = caps::need("call");
    while caps::call_short(call, Short::number(0)).is_ok() {}
    1
}

/// Makes processes, for ever.
fn make() -> i64 {
    loop {
        if let Ok(child) = caps::start("child", "exit 0", &[]) {
            let _ = child.wait();
            let _ = child.detach();
        }
    }
}

fn main() -> i64 {
    let arguments = caps::arguments();
    match arguments {
        "abandon" => return abandon(),
        "converse" => return converse(),
        "make" => {
            let made = [0, 1].map(|_| caps::spawn(ThreadOptions::default(), make));
            return if made.iter().any(Result::is_err) { 1 } else { make() };
        }
        _ => {}
    }
    if let Some(code) = arguments.strip_prefix("exit ") {
        return code.parse().unwrap_or(-1);
    }
    if let Some(how) = arguments.strip_prefix("restless") {
        let made = [0, 1, 2].map(|number| caps::spawn(ThreadOptions::default(), move || restless(number)));
        if made.iter().any(Result::is_err) {
            return 1;
        }
        if how == " leave" {
            let _ = caps::sleep(300_000);
            return 0;
        }
        return restless(3);
    }
    if arguments == "spin" {
        let spins = || loop {
            arch::spin(1000);
        };
        let made = caps::spawn(ThreadOptions { cpus: 2, ..ThreadOptions::default() }, spins);
        let _ = caps::park(WORD.as_ptr() as u64, 0, 0);
        return i64::from(made.is_ok());
    }
    if arguments == "shared" {
        return shared();
    }
    let thread = caps::spawn(ThreadOptions::default(), || {
        let _ = caps::park(WORD.as_ptr() as u64, 0, 0);
        0
    });
    if arguments == "leave" {
        // Ends with its thread still parked.
        let _ = caps::sleep(5_000_000);
        return i64::from(thread.is_err());
    }
    let _ = caps::park(WORD.as_ptr() as u64, 0, 0);
    0
}
