//! What an endpoint round trip spends its instructions on: every one of them, written down by a plugin of QEMU's, and
//! counted by the folder of the source line that it comes from.

use crate::image;
use crate::proof::{BENCH, BENCH_DONATION, Proof};
use crate::qemu::{Machine, SUCCESS};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, process};

/// The window: one round trip, two entries, when everything that is done once has been done.
const FROM: u64 = 201;
const TO: u64 = 203;
/// Where the kernel's half of every address space begins.
const KERNEL_HALF: u64 = 1 << 63;

/// Where an instruction comes from, as the first of these that its source lines name, the innermost line first.
const PARTS: &[(&str, &str)] = &[
    ("core/sched/", "core/sched: the decision, charging, the tick"),
    ("core/ring/", "core/ring: submission and completion queues, their lease"),
    ("kernel/src/arch/space", "kernel/src/arch/space: user memory"),
    ("kernel/src/arch/clock", "kernel/src/arch/clock: the time"),
    ("kernel/src/arch/timeline", "kernel/src/arch/clock: the time"),
    ("kernel/src/arch/", "kernel/src/arch: contexts, page tables, entry"),
    ("kernel/src/object/", "kernel/src/object: threads, inboxes, endpoints, capabilities"),
    ("kernel/src/method/", "kernel/src/method: what the requests are, and do"),
    ("kernel/src/sched/", "kernel/src/sched: the driver of the core"),
    ("kernel/src/entry", "kernel/src/entry: cap_enter"),
];
const ASSEMBLY: &str = "entry and exit, in assembly";
const OTHER: &str = "other";
const USER: &str = "user library and programs, both sides";

/// The ways of a round trip, which benchmark goes it, and what that is told to do nothing but that.
pub const WAYS: [(&str, Proof, &str); 4] = [
    ("through the rings", BENCH, "calls"),
    ("in registers", BENCH, "direct"),
    ("through the rings, on the caller's context", BENCH_DONATION, "calls"),
    ("in registers, on the caller's context", BENCH_DONATION, "direct"),
];

/// Instructions of one round trip, by where they come from.
pub fn run(bench: &Proof, argument: &str) -> Result<Vec<(String, u64)>, String> {
    let folder = Folder::new()?;
    let plugin = folder.0.join("trace.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("trace/plugin.c");
    tool(Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&plugin).arg(source))?;
    let kernel = image::kernel(image::Build::Plain).map_err(|error| error.to_string())?;
    let mark = symbol(&tool(Command::new("nm").arg(&kernel))?, "syscall_entry")
        .ok_or("the kernel has no syscall_entry")?;
    let out = folder.0.join("trace");
    // The program that is started last is the benchmark.
    let manifest = format!("{} -- {argument}\n", bench.manifest().trim_end());
    let image = image::build(&manifest, bench.programs, &[]).map_err(|error| error.to_string())?;
    let plugin = format!("{},mark={mark:x},from={FROM},to={TO},out={}", plugin.display(), out.display());
    let machine = Machine { cpus: 1, icount: true, plugin: Some(plugin), ..Machine::default() };
    let run = machine.run(&image, Duration::from_secs(120), |_| {}).map_err(|error| error.to_string())?;
    if run.code != Some(SUCCESS) {
        return Err(format!("the machine ended badly:\n{}", run.serial.join("\n")));
    }
    let text = fs::read_to_string(&out).map_err(|error| error.to_string())?;
    let addresses: Vec<u64> = text.lines().filter_map(|line| u64::from_str_radix(line, 16).ok()).collect();
    let lines = source_lines(&kernel, &addresses)?;
    Ok(count(&addresses, &lines))
}

/// Runs a tool; what it printed.
fn tool(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}; is it installed?"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

fn symbol(symbols: &str, name: &str) -> Option<u64> {
    let line = symbols.lines().find(|line| line.split_whitespace().last() == Some(name))?;
    u64::from_str_radix(line.split_whitespace().next()?, 16).ok()
}

/// The source lines of each address of the kernel, the innermost first, as `addr2line` prints them.
fn source_lines(kernel: &Path, addresses: &[u64]) -> Result<BTreeMap<u64, Vec<String>>, String> {
    let mut asked: Vec<u64> = addresses.iter().copied().filter(|address| *address >= KERNEL_HALF).collect();
    asked.sort_unstable();
    asked.dedup();
    let mut child = Command::new("addr2line")
        .args(["-i", "-f", "-a", "-e"])
        .arg(kernel)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("addr2line: {error}; is binutils installed?"))?;
    let question: String = asked.iter().map(|address| format!("{address:x}\n")).collect();
    let mut input = child.stdin.take().ok_or("addr2line takes no input")?;
    // It answers while it is asked: another thread asks, so that neither waits for the other.
    let asker = std::thread::spawn(move || input.write_all(question.as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    asker.join().map_err(|_| "addr2line could not be asked")?.map_err(|error| error.to_string())?;
    let mut lines = BTreeMap::new();
    let mut current = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.strip_prefix("0x").and_then(|text| u64::from_str_radix(text, 16).ok()) {
            Some(address) => current = address,
            None => lines.entry(current).or_insert_with(Vec::new).push(line.to_owned()),
        }
    }
    Ok(lines)
}

fn part(lines: &[String]) -> &'static str {
    if lines.iter().any(|line| line == "syscall_entry" || line == "resume") {
        return ASSEMBLY;
    }
    let known = |line: &String| PARTS.iter().find(|(folder, _)| line.contains(folder)).map(|(_, part)| *part);
    lines.iter().find_map(known).unwrap_or(OTHER)
}

/// How many instructions each part has, most first.
fn count(addresses: &[u64], lines: &BTreeMap<u64, Vec<String>>) -> Vec<(String, u64)> {
    let mut counts = BTreeMap::new();
    for address in addresses {
        let part = match lines.get(address) {
            _ if *address < KERNEL_HALF => USER,
            Some(lines) => part(lines),
            None => OTHER,
        };
        *counts.entry(part).or_insert(0) += 1;
    }
    let mut counts: Vec<(String, u64)> =
        counts.into_iter().map(|(part, count)| (part.to_owned(), count)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// A folder that is gone when the value is.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = env::temp_dir().join(format!("mainspring-trace-{}", process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_counts_where_its_innermost_known_line_is() {
        let line = |text: &str| text.to_owned();
        let kernel = KERNEL_HALF + 1;
        let lines = BTreeMap::from([
            (
                kernel,
                vec![
                    line("replace"),
                    line("/rust/core/mem.rs:5"),
                    line("f"),
                    line("/x/core/sched/src/a.rs:7"),
                ],
            ),
            (kernel + 1, vec![line("f"), line("/x/kernel/src/arch/space.rs:1")]),
            (kernel + 2, vec![line("resume"), line("??:?")]),
            (kernel + 3, vec![line("memcpy"), line("??:?")]),
        ]);
        let trace = [kernel, kernel, kernel + 1, kernel + 2, kernel + 3, 0x40_0000, 0x40_0000, 0x40_0000];
        let counted = count(&trace, &lines);
        assert_eq!(counted[0], (USER.to_owned(), 3));
        assert_eq!(counted[1].1, 2);
        assert!(counted[1].0.starts_with("core/sched"));
        assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), trace.len() as u64);
        assert!(counted.contains(&(ASSEMBLY.to_owned(), 1)) && counted.contains(&(OTHER.to_owned(), 1)));
    }

    #[test]
    fn a_symbol_is_found_by_its_whole_name() {
        let symbols = "ffffffff80100000 T my_syscall_entry\nffffffff80100040 T syscall_entry\n";
        assert_eq!(symbol(symbols, "syscall_entry"), Some(0xffff_ffff_8010_0040));
        assert_eq!(symbol(symbols, "entry"), None);
    }
}
