//! What the boss and its descendants share: words of one page. A fuzzer may map the page once more and write nonsense into it.

use crate::methods::Method;
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_user::arch;
use mainspring_user::caps;
use mainspring_user::schema::Access;

/// Calls made so far.
pub const CALLS: u64 = 0;
/// Not zero when every process is to end.
pub const STOP: u64 = 8;
/// Processes started by others than the boss.
pub const STARTED: u64 = 16;
/// Requests that were carried out, and those that were refused.
pub const DONE: u64 = 24;
/// See [`DONE`].
pub const REFUSED: u64 = 32;
/// Entries that were refused as a whole.
pub const BAD_RING: u64 = 40;
/// How often each method was asked for and how often that was carried out: two words for each, by [`Method::index`].
const METHODS: u64 = 64;

const _: () = assert!(METHODS + 16 * (Method::COUNT as u64) <= 4096);

/// Where the page is mapped, or 0.
static PAGE: AtomicU64 = AtomicU64::new(0);

/// Maps the page that this process was granted.
pub fn attach() {
    if let (Some(pages), true) = (caps::find("pages"), caps::find("memory").is_some())
        && let Ok(at) = caps::map_object(pages, Access::Write)
    {
        use_page(at);
    }
}

/// The page is mapped at `address`.
pub fn use_page(address: u64) {
    PAGE.store(address, Ordering::Relaxed);
}

fn at(offset: u64) -> Option<&'static AtomicU64> {
    let page = PAGE.load(Ordering::Relaxed);
    (page != 0).then(|| arch::word(page + offset))
}

/// Counts something.
pub fn count(what: u64, more: u64) {
    if let Some(word) = at(what) {
        word.fetch_add(more, Ordering::Relaxed);
    }
}

/// What a word says; 0 without the page.
pub fn read(what: u64) -> u64 {
    at(what).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// Every process is to end.
pub fn stop() {
    if let Some(word) = at(STOP) {
        word.store(1, Ordering::Relaxed);
    }
}

/// A method was asked for.
pub fn asked(method: Method) {
    count(METHODS + 16 * method.index() as u64, 1);
}

/// What was asked for was carried out.
pub fn done(method: Method) {
    count(METHODS + 16 * method.index() as u64 + 8, 1);
}

/// How often a method was asked for, and carried out.
pub fn tally(method: Method) -> (u64, u64) {
    let word = METHODS + 16 * method.index() as u64;
    (read(word), read(word + 8))
}
