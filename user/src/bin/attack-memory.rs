//! Attacks on the kernel's memory, one per run. Each exits with 0 if the kernel held, else with the number of the check that
//! did not.
#![no_std]
#![no_main]

extern crate alloc;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mainspring_abi::kernel::{EXIT_THREAD, MAPPINGS};
use mainspring_abi::ring::{CapSqe, CapSqeV2, op};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::schema::Access;
use mainspring_user::{CapError, arch, client};

mainspring_user::program!(main);

const PAGE: u64 = 4096;
/// The largest request.
const MOST: u32 = 8192;
/// Frames that a process may have in all: its own pages, page tables, rings and objects.
const FRAMES: u64 = 16_384;
/// Pages that a process may have mapped.
const MAPPED: u64 = 32_768;
/// Far from anything that the kernel chooses by itself.
const FAR: u64 = MAPPINGS + (1 << 40);

fn main() -> i64 {
    match caps::arguments() {
        "map-halfway" => map_halfway(),
        "map-occupied" => map_occupied(),
        "remap" => remap(),
        "page-tables" => page_tables(),
        "object-flood" => object_flood(),
        "wx-object" => wx_object(),
        "wx-shared" => wx_shared(),
        "wx-execute" => wx_execute(),
        "wx-race" => wx_race(),
        "kernel-writes" => kernel_writes(),
        "map-until-killed" => map_until_killed(),
        "wx-pages" => wx_pages(),
        "protect-halfway" => protect_halfway(),
        "unmap-halfway" => unmap_halfway(),
        "stale" => stale(),
        "hog" => hog(),
        "abandon" => abandon(),
        "leave-slowly" => leave_slowly(),
        "spin" => loop {
            arch::spin(1 << 20);
        },
        "exit-full" => {
            hog_pages();
            0
        }
        how => match how.strip_prefix("heirs ") {
            Some(left) => heirs(left.parse().unwrap_or(0)),
            None => match how.strip_prefix("touch-halfway ") {
                Some(delay) => touch_halfway(delay.parse().unwrap_or(0)),
                None => 99,
            },
        },
    }
}

/// Whether the kernel would read a word there for this process: it goes by the page tables.
fn is_mapped(address: u64) -> bool {
    caps::park(address, 1, 1) != Err(CapError::BadAddress)
}

/// Whether the kernel would write there for this process.
fn is_writable(address: u64) -> bool {
    let now = CapSqe {
        cap_id: caps::need("timer"),
        op: op::CALL,
        result_addr: address,
        result_len: 64,
        ..CapSqe::default()
    };
    client::submit(CapSqeV2::from_v1(now)).and_then(client::wait).is_ok()
}

/// A large mapping is refused for its last page, again and again, while a sibling looks at the first one. A page of a
/// mapping that is refused must never have been there: a translation that another CPU got of it would outlive it.
//= OWN:kernel.refuse-first
fn map_halfway() -> i64 {
    static STOP: AtomicBool = AtomicBool::new(false);
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let last = FAR + u64::from(MOST - 1) * PAGE;
    if caps::map_at(last, 1, Access::Write) != Ok(last) {
        return 1;
    }
    let sibling = caps::spawn(ThreadOptions::default(), || {
        while !STOP.load(Ordering::Relaxed) {
            SEEN.fetch_add(u64::from(is_mapped(FAR)), Ordering::Relaxed);
            LOOKS.fetch_add(1, Ordering::Relaxed);
        }
        0
    });
    let Ok(sibling) = sibling else { return 2 };
    for _ in 0..20 {
        if caps::map_at(FAR, MOST, Access::Write) != Err(CapError::BadAddress) {
            return 3;
        }
        let looks = LOOKS.load(Ordering::Relaxed);
        while LOOKS.load(Ordering::Relaxed) < looks + 2 {
            caps::yield_now();
        }
    }
    STOP.store(true, Ordering::Relaxed);
    if sibling.join() != Ok(0) {
        return 4;
    }
    if SEEN.load(Ordering::Relaxed) == 0 { 0 } else { 5 }
}

/// As [`map_halfway`], but the sibling touches the page itself, some time after the request has begun. That is a fault: a
/// touch that comes back has left a translation on its CPU.
//= OWN:kernel.refuse-first
fn touch_halfway(delay: u64) -> i64 {
    static GO: AtomicBool = AtomicBool::new(false);
    let last = FAR + u64::from(MOST - 1) * PAGE;
    if caps::map_at(last, 1, Access::Write) != Ok(last) {
        return 1;
    }
    let sibling = caps::spawn(ThreadOptions::default(), move || {
        while !GO.load(Ordering::Acquire) {
            core::hint::spin_loop();
        }
        arch::spin(delay);
        arch::word(FAR).store(0x5555_5555_5555_5555, Ordering::Relaxed);
        arch::exit(mainspring_abi::kernel::EXIT_PROCESS, 77)
    });
    let Ok(sibling) = sibling else { return 2 };
    // Until it runs, on a CPU of its own if there is one.
    let _ = caps::sleep(2_000_000);
    GO.store(true, Ordering::Release);
    if caps::map_at(FAR, MOST, Access::Write) != Err(CapError::BadAddress) {
        return 3;
    }
    let _ = sibling.join();
    4
}

/// A refused mapping leaves nothing behind: what was there stays, and what was not is free.
//= OWN:kernel.refuse-first
fn map_occupied() -> i64 {
    if caps::map_at(FAR + 8 * PAGE, 1, Access::Write) != Ok(FAR + 8 * PAGE) {
        return 1;
    }
    arch::word(FAR + 8 * PAGE).store(7, Ordering::Relaxed);
    let before = frames_free();
    for from in 0..9 {
        if caps::map_at(FAR + from * PAGE, 64, Access::Write) != Err(CapError::BadAddress) {
            return 2;
        }
    }
    if frames_free() != before {
        return 3;
    }
    if arch::word(FAR + 8 * PAGE).load(Ordering::Relaxed) != 7 {
        return 4;
    }
    if caps::map_at(FAR, 8, Access::Write) != Ok(FAR) || is_mapped(FAR + 9 * PAGE) {
        return 5;
    }
    0
}

fn frames_free() -> u64 {
    caps::usage().map_or(0, |usage| usage.free_frames)
}

/// One page of an object, mapped again and again: refused at the process's own limit, and the heap has not grown.
//= OWN:kernel.charge-all
fn remap() -> i64 {
    let Ok(object) = caps::create_object(1) else { return 1 };
    let Ok(first) = caps::map_object(object, Access::Write) else { return 2 };
    let Ok(before) = caps::usage() else { return 3 };
    let mut mapped = 1;
    let refused = loop {
        match caps::map_object(object, Access::Read) {
            Ok(_) => mapped += 1,
            Err(code) => break code,
        }
        if mapped > MAPPED {
            return 4;
        }
    };
    if refused != CapError::QuotaExceeded {
        return 5;
    }
    let Ok(after) = caps::usage() else { return 6 };
    if after.heap_used > before.heap_used {
        return 7;
    }
    // What was refused can be had again once something has been given back.
    if caps::unmap_object(first).is_err() || caps::map_object(object, Access::Read).is_err() {
        return 8;
    }
    0
}

/// Single pages far apart: each needs page tables, which are charged like the pages.
//= OWN:kernel.charge-all
fn page_tables() -> i64 {
    let before = frames_free();
    let mut made = 0_u64;
    loop {
        match caps::map_at(FAR + made * (2 << 20), 1, Access::Write) {
            Ok(_) => made += 1,
            Err(CapError::QuotaExceeded) => break,
            Err(_) => return 1,
        }
        if made > FRAMES {
            return 2;
        }
    }
    let taken = before.saturating_sub(frames_free());
    if taken > FRAMES { 3 } else { 0 }
}

/// Objects, as many as can be had: refused in the end, and the heap is as before.
//= OWN:kernel.charge-all
fn object_flood() -> i64 {
    let Ok(before) = caps::usage() else { return 1 };
    let mut made = 0_u64;
    while caps::create_object(1).is_ok() {
        made += 1;
        if made > 1000 {
            return 2;
        }
    }
    let Ok(after) = caps::usage() else { return 3 };
    if after.heap_used > before.heap_used { 4 } else { 0 }
}

/// An object that has been mapped writable cannot be mapped executable.
//= OWN:kernel.wx
fn wx_object() -> i64 {
    let Ok(object) = caps::create_object(1) else { return 1 };
    let Ok(at) = caps::map_object(object, Access::Write) else { return 2 };
    if caps::map_object(object, Access::Execute).is_ok() {
        return 3;
    }
    // Nor once it is not writable any more: a program may have put code there.
    if caps::unmap_object(at).is_err() || caps::map_object(object, Access::Execute).is_ok() {
        return 4;
    }
    i64::from(caps::map_object(object, Access::Read).is_err()) * 5
}

/// One process has it writable, and another wants it executable.
//= OWN:kernel.wx
fn wx_shared() -> i64 {
    let Ok(object) = caps::create_object(1) else { return 1 };
    let Ok(_) = caps::map_object(object, Access::Write) else { return 2 };
    let child = caps::start_with("attack-memory", "wx-execute", &["memory"], &[("pages", object)]);
    let Ok(child) = child else { return 3 };
    match child.wait() {
        Ok(0) => 0,
        _ => 4,
    }
}

/// The child of [`wx_shared`].
fn wx_execute() -> i64 {
    let object = caps::need("pages");
    i64::from(caps::map_object(object, Access::Execute).is_ok())
        + 2 * i64::from(caps::map_object(object, Access::Read).is_err())
}

/// Two threads at once want new objects writable and executable: one of the two gets each object, and only that one.
//= OWN:kernel.wx
fn wx_race() -> i64 {
    static OBJECT: AtomicU64 = AtomicU64::new(0);
    static EXECUTABLE: AtomicU64 = AtomicU64::new(0);
    static DONE: AtomicU64 = AtomicU64::new(0);
    const ROUNDS: u64 = 100;
    let sibling = caps::spawn(ThreadOptions::default(), || {
        for round in 1..=ROUNDS {
            while OBJECT.load(Ordering::Acquire) >> 32 != round {
                core::hint::spin_loop();
            }
            let mapped = caps::map_object(OBJECT.load(Ordering::Acquire) as u32, Access::Execute);
            EXECUTABLE.store(u64::from(mapped.is_ok()), Ordering::Release);
            DONE.store(round, Ordering::Release);
        }
        0
    });
    let Ok(sibling) = sibling else { return 1 };
    for round in 1..=ROUNDS {
        let Ok(object) = caps::create_object(2) else { return 2 };
        OBJECT.store(round << 32 | u64::from(object), Ordering::Release);
        arch::spin(round * 97 % 4000);
        let writable = caps::map_object(object, Access::Write).is_ok();
        while DONE.load(Ordering::Acquire) != round {
            caps::yield_now();
        }
        // Refused as busy or denied, either of them may have come first.
        if writable && EXECUTABLE.load(Ordering::Acquire) == 1 {
            return 3;
        }
        if !writable && EXECUTABLE.load(Ordering::Acquire) == 0 {
            return 4;
        }
    }
    i64::from(sibling.join() != Ok(0)) * 5
}

/// A sibling has the kernel write to a page all the time, also while it is being unmapped: what was its frame, and is another
/// page's by then, is not written to. The kernel goes by what the page tables say, and not by what it remembers of them.
//= ARCH:inv.user-copy
fn kernel_writes() -> i64 {
    static STOP: AtomicBool = AtomicBool::new(false);
    static REFUSED: AtomicU64 = AtomicU64::new(0);
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let Ok(target) = caps::map_at(FAR, 1, Access::Write) else { return 1 };
    let sibling = caps::spawn(ThreadOptions::default(), move || {
        while !STOP.load(Ordering::Relaxed) {
            let count = if is_writable(target) { &WRITTEN } else { &REFUSED };
            count.fetch_add(1, Ordering::Relaxed);
        }
        0
    });
    let Ok(sibling) = sibling else { return 2 };
    for _ in 0..60 {
        let written = WRITTEN.load(Ordering::Relaxed);
        while WRITTEN.load(Ordering::Relaxed) < written + 3 {
            caps::yield_now();
        }
        if caps::unmap(target, 1).is_err() {
            return 3;
        }
        // One of these has the frame again.
        let Ok(fresh) = caps::map(4, Access::Write) else { return 4 };
        let refused = REFUSED.load(Ordering::Relaxed);
        while REFUSED.load(Ordering::Relaxed) < refused + 3 {
            caps::yield_now();
        }
        if (0..4 * PAGE / 8).any(|word| arch::word(fresh + 8 * word).load(Ordering::Relaxed) != 0) {
            return 5;
        }
        if caps::unmap(fresh, 4).is_err() || caps::map_at(target, 1, Access::Write).is_err() {
            return 6;
        }
    }
    STOP.store(true, Ordering::Relaxed);
    i64::from(sibling.join() != Ok(0)) * 7
}

/// Maps, changes, unmaps and makes objects from several threads, until it is killed in the middle of that.
fn map_until_killed() -> i64 {
    let work = |first: u64| {
        move || {
            loop {
                let at = FAR + (first << 32);
                let _ = caps::map_at(at, 700, Access::Write);
                let _ = caps::protect(at, 300, Access::Execute);
                let _ = caps::unmap(at + 100 * PAGE, 600);
                let _ = caps::unmap(at, 100);
                if let Ok(object) = caps::create_object(200)
                    && let Ok(at) = caps::map_object(object, Access::Write)
                {
                    let _ = caps::unmap_object(at);
                }
            }
        }
    };
    for number in 1..4 {
        let _ = caps::spawn(ThreadOptions::default(), work(number));
    }
    work(0)()
}

/// A page of its own is writable or executable, never both: a sibling that writes all the time faults at the latest when the
/// page has become executable.
//= OWN:kernel.wx
fn wx_pages() -> i64 {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let Ok(page) = caps::map(2, Access::Write) else { return 1 };
    if caps::protect(page, 2, Access::Execute).is_err() || is_writable(page) {
        return 2;
    }
    if caps::protect(page, 2, Access::Write).is_err() || !is_writable(page) {
        return 3;
    }
    let sibling = caps::spawn(ThreadOptions::default(), move || {
        loop {
            arch::word(page).store(1, Ordering::Relaxed);
            WRITES.fetch_add(1, Ordering::Relaxed);
        }
    });
    if sibling.is_err() || !caps::comes_true(100_000, || WRITES.load(Ordering::Relaxed) > 1000) {
        return 4;
    }
    let protected = caps::protect(page, 2, Access::Execute);
    // The sibling's next write ends the process.
    let _ = caps::sleep(2_000_000_000);
    5 + i64::from(protected.is_err())
}

/// A change of several pages that one of them refuses changes none.
//= OWN:kernel.refuse-first OWN:kernel.wx
fn protect_halfway() -> i64 {
    let Ok(object) = caps::create_object(1) else { return 1 };
    // There is room for a page before the object's.
    if caps::map(1, Access::Read).is_err() {
        return 9;
    }
    let Ok(at) = caps::map_object(object, Access::Write) else { return 2 };
    let own = at - PAGE;
    if caps::map_at(own, 1, Access::Write) != Ok(own) {
        return 3;
    }
    if caps::protect(own, 2, Access::Read).is_ok() || !is_writable(own) {
        return 4;
    }
    let Ok(pages) = caps::map(2, Access::Execute) else { return 5 };
    // The third page is not there.
    if caps::protect(pages, 3, Access::Write).is_ok() || is_writable(pages) {
        return 6;
    }
    // Nor has the refusal left a mark.
    if caps::protect(pages, 2, Access::Write).is_err() || !is_writable(pages + PAGE) { 7 } else { 0 }
}

/// The same for pages that are taken away: an object's, or none.
//= OWN:kernel.refuse-first
fn unmap_halfway() -> i64 {
    let Ok(object) = caps::create_object(1) else { return 1 };
    if caps::map(1, Access::Read).is_err() {
        return 9;
    }
    let Ok(at) = caps::map_object(object, Access::Write) else { return 2 };
    let own = at - PAGE;
    if caps::map_at(own, 1, Access::Write) != Ok(own) {
        return 3;
    }
    if caps::unmap(own, 2).is_ok() || !is_writable(own) || !is_writable(at) {
        return 4;
    }
    let Ok(pages) = caps::map(4, Access::Write) else { return 5 };
    if caps::unmap(pages, 5).is_ok() || !is_writable(pages) {
        return 6;
    }
    if caps::unmap_object(own).is_ok() || caps::unmap(at, 1).is_ok() {
        return 7;
    }
    i64::from(caps::unmap(pages, 4).is_err()) * 8
}

/// Threads map, write, and take away pages at the same addresses; no thread ever finds another's words in a page that is
/// new.
//= OWN:kernel.refuse-first
fn stale() -> i64 {
    let worker = |number: u64| {
        move || {
            let at = FAR + (number / 2) * 64 * PAGE;
            for round in 0..300_u64 {
                let pages = 1 + round % 16;
                if caps::map_at(at, pages as u32, Access::Write).is_err() {
                    caps::yield_now();
                    continue;
                }
                // The sibling cannot take it away: it unmaps what it has mapped itself.
                for page in 0..pages {
                    if arch::word(at + page * PAGE).swap(u64::MAX, Ordering::Relaxed) != 0 {
                        return 1;
                    }
                }
                if caps::unmap(at, pages as u32).is_err() {
                    return 2;
                }
            }
            0
        }
    };
    let made = [0, 1, 2, 3].map(|number| caps::spawn(ThreadOptions::default(), worker(number)));
    for (number, thread) in (1..).zip(made) {
        match thread.and_then(|thread| thread.join()) {
            Ok(0) => {}
            _ => return number,
        }
    }
    0
}

/// Takes all pages that it can get; how many.
fn hog_pages() -> u64 {
    let (mut had, mut wish) = (0, MOST);
    while wish > 0 {
        match caps::map(wish, Access::Write) {
            Ok(_) => had += u64::from(wish),
            Err(_) => wish /= 2,
        }
    }
    had
}

/// Takes all memory that it can get, and keeps it.
fn hog() -> i64 {
    let _had = hog_pages();
    loop {
        let _ = caps::sleep(1_000_000_000);
    }
}

/// Kills threads in the middle of making an object, again and again: what there is of it is paid for until it is free.
fn abandon() -> ! {
    loop {
        let free = frames_free();
        let maker = caps::spawn(ThreadOptions::default(), || {
            let _refused_or_killed = caps::create_object(MOST);
            0
        });
        let Ok(maker) = maker else { continue };
        // The more it has made, the better; one that has made it all keeps it.
        for _ in 0..20 {
            if frames_free() + 4000 < free {
                break;
            }
            let _ = caps::sleep(500_000);
        }
        let _ = maker.kill();
        let _ = maker.join();
        let _ = maker.detach();
    }
}

/// Takes all memory that it can get as objects, and maps it. Then it ends by a thread that has hardly any of the CPU: what it had is
/// paid for until it is free.
fn leave_slowly() -> i64 {
    static LEAVE: AtomicU32 = AtomicU32::new(0);
    let at = LEAVE.as_ptr() as u64;
    let last = caps::spawn(ThreadOptions { weight: 1, ..ThreadOptions::default() }, move || {
        while LEAVE.load(Ordering::Acquire) == 0 {
            let _ = caps::park(at, 0, 0);
        }
        0
    });
    if last.is_err() {
        return 1;
    }
    let mut wish = MOST;
    while wish > 0 {
        match caps::create_object(wish) {
            // Twice, which makes its end longer.
            Ok(object) => {
                for _ in 0..2 {
                    let _ = caps::map_object(object, Access::Read);
                }
            }
            Err(_) => wish /= 2,
        }
    }
    LEAVE.store(1, Ordering::Release);
    let _ = caps::unpark(at, 1);
    arch::exit(EXIT_THREAD, 0)
}

/// Makes as much memory as it may have, leaves it to a child, and ends: so do its descendants. The last one keeps it
/// for a while.
fn heirs(left: u32) -> i64 {
    let mut wish = MOST;
    let object = loop {
        match caps::create_object(wish) {
            Ok(object) => break Some(object),
            Err(_) if wish > 1 => wish /= 2,
            Err(_) => break None,
        }
    };
    if left == 0 {
        // No process has a handle of it: it ends by itself.
        let _had = hog_pages();
        let _ = caps::sleep(3_000_000_000);
        return 0;
    }
    const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let arguments = alloc::format!("heirs {}", left - 1);
    let mut grants: heapless::Vec<(&str, u32), 16> = heapless::Vec::new();
    let inherited = NAMES.iter().filter_map(|name| Some((*name, caps::find(name)?)));
    for grant in inherited.chain(object.map(|object| (NAMES[left as usize % 12], object))) {
        let _full = grants.push(grant);
    }
    // What the child cannot pay for it does not get; then it starts without.
    let with = ["memory", "processes", "timer"];
    let heir = caps::start_with("attack-memory", &arguments, &with, &grants)
        .or_else(|_| caps::start_with("attack-memory", &arguments, &with, &grants[..grants.len().min(1)]))
        .or_else(|_| caps::start_with("attack-memory", &arguments, &with, &[]));
    i64::from(heir.is_err())
}
