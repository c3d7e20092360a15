//! A frame as lines, for a screen of any size and for a pipe.
//!
//! What matters most comes first, and what does not fit is counted: no row vanishes without a word.

use mainspring_report::{ContextFrame, CpuFrame, Frame, ThreadFrame, instant};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// What is shown, and how much room there is.
pub struct Shown<'a> {
    pub frame: &'a Frame,
    /// An earlier frame, from which to tell what is used at present; from the start if there is none.
    pub before: Option<&'a Frame>,
    /// What the source does: playing, paused, ended.
    pub note: &'a str,
    pub width: usize,
    pub height: usize,
}

const BAR: usize = 20;

/// The lines of a frame: at most `height`, each at most `width` wide.
pub fn lines(shown: &Shown<'_>) -> Vec<Line<'static>> {
    let Shown { frame, height, .. } = *shown;
    let mut lines = vec![head(shown)];
    let short = height < 40;
    section(&mut lines, cpus(shown), if short { 6 } else { 32 }, "CPUs");
    section(&mut lines, contexts(shown), if short { 6 } else { 24 }, "contexts");
    let others: Vec<Line<'static>> = queues(frame).chain(leases(frame)).collect();
    section(&mut lines, others, if short { 3 } else { 12 }, "queues and leases");
    let room = height.saturating_sub(lines.len());
    let mut threads = threads(shown);
    let listed = threads.len().saturating_sub(1) as u64;
    let beyond = frame.threads_total.saturating_sub(listed);
    if threads.len() > room || beyond > 0 {
        let kept = threads.len().min(room.saturating_sub(1)).max(1);
        let hidden = beyond + (threads.len() - kept) as u64;
        threads.truncate(kept);
        threads.push(quiet(format!("and {hidden} more threads")));
    }
    lines.extend(threads);
    lines.truncate(height);
    lines.into_iter().map(|line| cut(line, shown.width)).collect()
}

/// Adds at most `most` lines, and a word about the others.
fn section(lines: &mut Vec<Line<'static>>, mut rows: Vec<Line<'static>>, most: usize, what: &str) {
    if rows.len() > most {
        let hidden = rows.len() - (most - 1);
        rows.truncate(most - 1);
        rows.push(quiet(format!("and {hidden} more {what}")));
    }
    lines.append(&mut rows);
}

fn head(shown: &Shown<'_>) -> Line<'static> {
    let frame = shown.frame;
    let time = match frame.end_ns {
        Some(end) => format!("{} of {}", instant(frame.time_ns), instant(end)),
        None => instant(frame.time_ns),
    };
    let threads = if frame.threads_total == 1 { "thread" } else { "threads" };
    let misses = match frame.misses {
        0 => Span::raw(""),
        1 => Span::styled("  1 miss", bad()),
        n => Span::styled(format!("  {n} misses"), bad()),
    };
    Line::from(vec![
        Span::styled(format!("{} on {}", harmless(&frame.workload), harmless(&frame.machine)), strong()),
        Span::raw(format!("  {time}  {} {threads}", frame.threads_total)),
        misses,
        Span::styled(format!("  {}", shown.note), dim()),
    ])
}

fn cpus(shown: &Shown<'_>) -> Vec<Line<'static>> {
    let elapsed = elapsed(shown);
    let row = |cpu: &CpuFrame| {
        let before = shown.before.and_then(|before| before.cpus.iter().find(|other| other.id == cpu.id));
        let since = before.and_then(|before| before.busy_ns).unwrap_or(0);
        let load = cpu.busy_ns.map(|busy| part(busy.saturating_sub(since), elapsed));
        let running =
            cpu.running.as_ref().map_or("idle".to_owned(), |name| format!("runs {}", harmless(name)));
        Line::from(vec![
            Span::raw(format!("CPU {:<4} ", cpu.id)),
            bar(load.unwrap_or(0), good()),
            Span::raw(load.map_or("     - ".to_owned(), |load| format!(" {:>4}% ", load / 10))),
            Span::raw(format!("{:>3} ready  {running}", cpu.ready)),
        ])
    };
    shown.frame.cpus.iter().map(row).collect()
}

fn contexts(shown: &Shown<'_>) -> Vec<Line<'static>> {
    let row = |context: &ContextFrame| {
        let left = part(context.left_ns, context.budget_ns);
        let style = if context.throttled { bad() } else { good() };
        Line::from(vec![
            Span::raw(format!("{} ", column(&context.name, 16))),
            bar(left, style),
            Span::raw(format!(
                " {:>9} left of {} per {}",
                instant(context.left_ns),
                instant(context.budget_ns),
                instant(context.period_ns)
            )),
            if context.throttled { Span::styled("  throttled", bad()) } else { Span::raw("") },
            Span::raw(format!("  held by {}", harmless(&context.holder))),
        ])
    };
    let mut rows: Vec<Line<'static>> = shown.frame.contexts.iter().map(row).collect();
    if !rows.is_empty() {
        rows.insert(0, title("context          budget left"));
    }
    rows
}

fn queues(frame: &Frame) -> impl Iterator<Item = Line<'static>> + '_ {
    frame.queues.iter().map(|queue| {
        Line::from(format!(
            "queue {}: {} waiting, {} server{} idle",
            harmless(&queue.name),
            queue.waiting,
            queue.servers_idle,
            if queue.servers_idle == 1 { "" } else { "s" }
        ))
    })
}

fn leases(frame: &Frame) -> impl Iterator<Item = Line<'static>> + '_ {
    frame.leases.iter().map(|lease| {
        let cpus: Vec<String> = lease.cpus.iter().map(u32::to_string).collect();
        let (name, thread, state) = (harmless(&lease.name), harmless(&lease.thread), harmless(&lease.state));
        Line::from(format!("lease {name}: CPU {} for {thread}, {state}", cpus.join(", ")))
    })
}

fn threads(shown: &Shown<'_>) -> Vec<Line<'static>> {
    let name_width = shown.width.saturating_sub(58).clamp(14, 40);
    let elapsed = elapsed(shown);
    let mut rows: Vec<(u64, &ThreadFrame)> = shown
        .frame
        .threads
        .iter()
        .map(|thread| {
            let before =
                shown.before.and_then(|before| before.threads.iter().find(|other| other.name == thread.name));
            let since = before.and_then(|before| before.runtime_ns).unwrap_or(0);
            (thread.runtime_ns.map_or(0, |ran| part(ran.saturating_sub(since), elapsed)), thread)
        })
        .collect();
    rows.sort_by_key(|(used, thread)| std::cmp::Reverse((*used, thread.runtime_ns, thread.ops)));
    let row = |(used, thread): &(u64, &ThreadFrame)| {
        let state = format!("{:<9} ", harmless(&thread.state));
        let style = match thread.state.as_str() {
            "runs" | "running" => good(),
            "ready" | "runnable" => Style::new().fg(Color::Yellow),
            "throttled" => bad(),
            _ => dim(),
        };
        let time = |ns: Option<u64>| ns.map_or("-".to_owned(), instant_short);
        let used = if thread.runtime_ns.is_some() {
            format!("{:>3}.{}", used / 10, used % 10)
        } else {
            "-".to_owned()
        };
        Line::from(vec![
            Span::raw(format!("{} ", column(&thread.name, name_width))),
            Span::styled(state, style),
            Span::raw(format!(
                "{:>4} {used:>6} {:>9} {:>9} {:>10}",
                thread.cpu.map_or("-".to_owned(), |cpu| cpu.to_string()),
                time(thread.runtime_ns),
                time(thread.wake_max_ns),
                thread.ops.map_or("-".to_owned(), |ops| ops.to_string()),
            )),
        ])
    };
    let head = format!(
        "{} {:<9} {:>4} {:>6} {:>9} {:>9} {:>10}",
        column("thread", name_width),
        "state",
        "cpu",
        "cpu%",
        "time",
        "wake max",
        "ops"
    );
    std::iter::once(title(&head)).chain(rows.iter().map(row)).collect()
}

/// The time between the two frames.
fn elapsed(shown: &Shown<'_>) -> u64 {
    shown.frame.time_ns.saturating_sub(shown.before.map_or(0, |before| before.time_ns))
}

/// A part of a whole, in thousandths.
fn part(of: u64, whole: u64) -> u64 {
    (u128::from(of) * 1_000 / u128::from(whole.max(1))).min(1_000) as u64
}

fn bar(thousandths: u64, style: Style) -> Span<'static> {
    let full = (thousandths as usize * BAR).div_ceil(1_000);
    Span::styled(format!("[{}{}]", "|".repeat(full), " ".repeat(BAR - full)), style)
}

/// Four digits are enough here.
fn instant_short(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}.{}us", ns / 1_000, ns / 100 % 10),
        1_000_000..1_000_000_000 => format!("{}.{}ms", ns / 1_000_000, ns / 100_000 % 10),
        _ => format!("{}.{:02}s", ns / 1_000_000_000, ns / 10_000_000 % 100),
    }
}

/// A name in a column; one that is too long keeps its end, by which names differ.
fn column(name: &str, width: usize) -> String {
    let name = harmless(name);
    let length = name.chars().count();
    if length <= width {
        return format!("{name:<width$}");
    }
    let end: String = name.chars().skip(length - (width - 1)).collect();
    format!("…{end}")
}

/// Control characters never reach the terminal.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A line that is too wide loses its end.
fn cut(line: Line<'static>, width: usize) -> Line<'static> {
    let mut room = width;
    let mut spans = Vec::new();
    for span in line.spans {
        let text: String = span.content.chars().take(room).collect();
        room -= text.chars().count();
        spans.push(Span::styled(text, span.style));
    }
    Line::from(spans)
}

fn title(text: &str) -> Line<'static> {
    Line::from(Span::styled(text.to_owned(), strong()))
}

fn quiet(text: String) -> Line<'static> {
    Line::from(Span::styled(text, dim()))
}

fn strong() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn good() -> Style {
    Style::new().fg(Color::Green)
}

fn bad() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(threads: usize) -> Frame {
        let thread = |n: usize| ThreadFrame {
            name: format!("a-name-that-is-far-too-long-for-any-column-of-a-table.{n}\x1b[31m"),
            state: "ready".to_owned(),
            runtime_ns: Some(1_000 * n as u64),
            ..ThreadFrame::default()
        };
        Frame {
            workload: "w\x1b.toml".to_owned(),
            time_ns: 1_000_000,
            end_ns: Some(2_000_000),
            cpus: (0..20).map(|id| CpuFrame { id, busy_ns: Some(500_000), ..CpuFrame::default() }).collect(),
            threads: (0..threads).map(thread).collect(),
            threads_total: threads as u64 + 5,
            contexts: vec![ContextFrame {
                name: "camera".to_owned(),
                budget_ns: 10_000_000,
                left_ns: 2_500_000,
                ..ContextFrame::default()
            }],
            ..Frame::default()
        }
    }

    #[test]
    fn a_frame_fits_any_screen_and_counts_what_it_hides() {
        let frame = frame(300);
        for (width, height) in [(80, 24), (200, 60), (20, 5), (1, 1), (120, usize::MAX)] {
            let shown = Shown { frame: &frame, before: None, note: "", width, height };
            let lines = lines(&shown);
            assert!(lines.len() <= height, "{width}x{height}: {}", lines.len());
            for line in &lines {
                let text = line.to_string();
                assert!(text.chars().count() <= width, "{width}: {text}");
                assert!(!text.contains('\x1b'), "{text:?}");
            }
        }
        let shown = Shown { frame: &frame, before: None, note: "", width: 80, height: 24 };
        let text: Vec<String> = lines(&shown).iter().map(Line::to_string).collect();
        assert!(text.contains(&"and 15 more CPUs".to_owned()), "{text:#?}");
        let listed = text.iter().filter(|line| line.contains("column-of") || line.contains("table.")).count();
        assert_eq!(
            text.last().map(String::as_str),
            Some(format!("and {} more threads", 305 - listed).as_str())
        );
        assert!(
            text.iter().any(|line| line.contains("[|||||               ]     2.5ms left of 10ms")),
            "{text:#?}"
        );
        assert!(
            text.iter().any(|line| line.starts_with("CPU 0    [||||||||||          ]   50%")),
            "{text:#?}"
        );
    }

    #[test]
    fn use_is_told_since_the_frame_before() {
        let (before, mut now) = (frame(2), frame(2));
        now.time_ns += 1_000_000;
        now.threads[1].runtime_ns = Some(751_000);
        now.cpus[0].busy_ns = Some(1_500_000);
        let shown = Shown { frame: &now, before: Some(&before), note: "", width: 200, height: 60 };
        let text: Vec<String> = lines(&shown).iter().map(Line::to_string).collect();
        assert!(
            text.iter().any(|line| line.contains("table.1?[31m") && line.contains(" 75.0 ")),
            "{text:#?}"
        );
        assert!(text.iter().any(|line| line.starts_with("CPU 0 ") && line.contains(" 100% ")), "{text:#?}");
    }
}
