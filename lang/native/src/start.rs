//! How a linked program starts: its object hands over a table, and its source becomes the same program again.
//!
//! Conserved: code is called for the program that it was compiled from, or not at all. A hash of the program, as it runs, is in the
//! table; a library that would make another program of the source refuses.
#![allow(unsafe_code)]

use crate::code::{Code, Site};
use crate::context::{self, Context, Entry};
use crate::stop::Polling;
use mainspring::Profile;
use mainspring_qtjir::launch::{self, Grants, Launch};
use mainspring_qtjir::{Output, Pos, Program, text};
use std::env::VarError;
use std::ffi::CStr;
use std::io::Write;
use std::time::Duration;

/// What the library's entry is called.
pub(crate) const START: &str = "mainspring_jan_main";
/// Words of a table.
pub(crate) const FIELDS: usize = 14;

/// What an object hands over. [`object`](crate::object()) writes it.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    fingerprint: u64,
    stack_bytes: u64,
    functions: u64,
    /// How many pieces of code poll; none if ops are the meter.
    polling: u64,
    /// Of the name, the source, the sites and the texts.
    lengths: [u64; 4],
    entries: *const Option<Entry>,
    /// Where the pieces of code are that poll, and how long they are.
    polls: *const [usize; 2],
    parts: [*const u8; 4],
}

const _: () = assert!(size_of::<Table>() == FIELDS * 8);

/// A hash of a program as it runs.
pub(crate) fn fingerprint(program: &Program) -> u64 {
    let words = text::print(program.module());
    words
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Sites and texts as bytes.
pub(crate) fn pack(sites: &[Site], texts: &[String]) -> (Vec<u8>, Vec<u8>) {
    let mut packed = (Vec::new(), Vec::new());
    for site in sites {
        let (pos, function) = site.place();
        packed.0.extend(pos.line.to_le_bytes().into_iter().chain(pos.column.to_le_bytes()));
        put(&mut packed.0, &function);
    }
    texts.iter().for_each(|text| put(&mut packed.1, text));
    packed
}

fn put(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u32).to_le_bytes());
    to.extend(text.as_bytes());
}

/// Reads what [`pack`] wrote.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(bytes.to_vec()).ok()
    }

    fn site(&mut self) -> Option<Site> {
        let pos = Pos { line: self.number()?, column: self.number()? };
        Some(Site::new(pos, self.text()?))
    }
}

/// Prints lines to the standard output. A reader who stops reading is no error of the program's.
struct Stdout;

impl Output for Stdout {
    fn line(&self, text: &str) {
        let _ = writeln!(std::io::stdout(), "{text}");
    }
}

/// What the environment says that the program may use: `JAN_OPS`, `JAN_MEMORY`, `JAN_SPAWNS`, `JAN_TIME_MS`, `JAN_WORKERS`, `JAN_SEED` and
/// `JAN_GRANT`, as the options of `mainspring jan run`.
fn launch() -> Result<Launch, String> {
    fn number<T: std::str::FromStr>(name: &str) -> Result<Option<T>, String> {
        match std::env::var(name) {
            Ok(value) => {
                value.parse().map(Some).map_err(|_| format!("{name}={value} is no number of this kind"))
            }
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(format!("{name} is no number")),
        }
    }
    let usual = Launch::default();
    let granted = match std::env::var("JAN_GRANT") {
        Ok(granted) => granted,
        Err(VarError::NotPresent) => String::new(),
        Err(VarError::NotUnicode(_)) => return Err("JAN_GRANT names no capabilities".to_owned()),
    };
    let named = || granted.split(',').filter(|grant| !grant.is_empty());
    if let Some(unknown) = named().find(|grant| !["spawn", "budget", "channel"].contains(grant)) {
        return Err(format!(
            "JAN_GRANT={granted}: there is no `{unknown}`; there are spawn, budget and channel"
        ));
    }
    let grants = |name: &str| named().any(|grant| grant == name);
    Ok(Launch {
        ops: number("JAN_OPS")?.unwrap_or(usual.ops),
        memory: number("JAN_MEMORY")?.unwrap_or(usual.memory),
        spawns: number("JAN_SPAWNS")?.unwrap_or(usual.spawns),
        time: number("JAN_TIME_MS")?.map(Duration::from_millis),
        workers: number("JAN_WORKERS")?,
        seed: number("JAN_SEED")?,
        // As deep as the interpreter goes, and what the host needs below.
        stack_bytes: Some(2 << 20),
        grants: Grants { spawn: grants("spawn"), budget: grants("budget"), channel: grants("channel") },
    })
}

fn run(name: &str, source: &str, code: Code, fingerprinted: u64, args: &[String]) -> Result<String, String> {
    let launch = launch()?;
    let counts_nothing = code.polling.is_some();
    let module = mainspring_janus::compile(source).map_err(|mistakes| mistakes.render(name, source))?;
    let program = Program::compile(module).map_err(|error| format!("{name}:{error}"))?;
    if fingerprint(&program) != fingerprinted || code.entries.len() != program.module().functions.len() {
        return Err(format!("{name}: built with another version of this library; build it again"));
    }
    let program = code.attach(program);
    if counts_nothing && launch.seed.is_some() {
        return Err(format!(
            "{name}: it counts no ops, so that a seeded run would not end; leave JAN_SEED out"
        ));
    }
    if counts_nothing && launch.time.is_none() && program.module().profile == Profile::Core {
        return Err(format!(
            "{name}: nothing would stop it, since it counts no ops and has no tasks; set JAN_TIME_MS"
        ));
    }
    let ended = launch.run(&program, args, &Stdout).map_err(|error| format!("{name}:{error}"))?;
    Ok(format!("{name}: {}", launch::summary(&program, &ended)))
}

/// Runs the program of a table. Its status is 0 if `main` returned, or else 1, with the reason on the standard error.
///
/// # Safety
///
/// `argc` and `argv` are those of a C program's `main`, and `table` is one that [`object`](crate::object()) wrote.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mainspring_jan_main(argc: i32, argv: *const *const i8, table: *const Table) -> i32 {
    // SAFETY: the caller's promise. The table and what it points to are constants of the executable.
    let (table, [name, source, sites, texts], entries, polls) = unsafe {
        let table = &*table;
        let part = |at: usize| std::slice::from_raw_parts(table.parts[at], table.lengths[at] as usize);
        let entries = std::slice::from_raw_parts(table.entries, table.functions as usize);
        let polls = std::slice::from_raw_parts(table.polls, table.polling as usize);
        (table, [0, 1, 2, 3].map(part), entries, polls)
    };
    // SAFETY: as above: `argc` texts that end with a zero.
    let args =
        (1..usize::try_from(argc).unwrap_or(0)).map(|at| unsafe { CStr::from_ptr((*argv.add(at)).cast()) });
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let (mut sites, mut texts) = (Reader(sites), Reader(texts));
    let code = Code {
        entries: entries.to_vec(),
        sites: std::iter::from_fn(|| sites.site()).collect(),
        texts: std::iter::from_fn(|| texts.text()).collect(),
        stack_bytes: table.stack_bytes as usize,
        polling: (!polls.is_empty())
            .then(|| Polling::register(polls.iter().map(|[from, len]| (*from, from + len)).collect())),
        _memory: None,
    };
    let [name, source] = [name, source].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    match run(&name, &source, code, table.fingerprint, &args) {
        Ok(said) => {
            eprintln!("{said}");
            0
        }
        Err(why) => {
            eprintln!("{}", why.trim_end());
            1
        }
    }
}

/// See `context::pay`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn mainspring_jan_pay(context: *mut Context) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { context::pay(context) }
}

/// See `context::allocate`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn mainspring_jan_allocate(context: *mut Context, len: i64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { context::allocate(context, len) }
}

/// See `context::print`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn mainspring_jan_print(context: *mut Context, word: u64, kind: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { context::print(context, word, kind) }
}

/// See `context::act`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn mainspring_jan_act(
    context: *mut Context,
    function: u64,
    place: u64,
    words: *mut u64,
) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { context::act(context, function, place, words) }
}

/// See `context::nursery`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn mainspring_jan_nursery(
    context: *mut Context,
    inside: Entry,
    frame: *mut u64,
    escaping: u64,
    function: u64,
    place: u64,
) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { context::nursery(context, inside, frame, escaping, function, place) }
}
