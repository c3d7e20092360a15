//! The screen of `mainspring top`, and its keys.

use super::lines::{Shown, lines};
use super::source::Source;
use crate::args::TopArgs;
use crate::failure::Failure;
use mainspring_abi::Nanos;
use mainspring_report::Frame;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::Paragraph;
use std::io;
use std::time::{Duration, Instant};

/// How often the screen is drawn.
const TICK: Duration = Duration::from_millis(100);

/// What the screen shows.
struct Screen {
    source: Source,
    /// The time of a record that is shown.
    at: Nanos,
    /// How fast a record is played: its time per time.
    speed: f64,
    paused: bool,
    frame: Frame,
    before: Option<Frame>,
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    Quit,
}

/// Shows the source until a key ends it. The terminal is as before afterwards, also after a panic.
pub fn show(args: &TopArgs, mut source: Source) -> Result<(), Failure> {
    let at = args.at.unwrap_or(Nanos::ZERO);
    let frame = source.frame_at(Some(at))?;
    let paused = args.at.is_some();
    let mut screen = Screen { source, at, speed: args.speed, paused, frame, before: None };
    let lost = |cause: io::Error| Failure::Write { path: "the terminal".into(), cause };
    let mut terminal = ratatui::try_init().map_err(lost)?;
    let result = screen.run(&mut terminal);
    let restored = ratatui::try_restore();
    result?;
    restored.map_err(lost)
}

impl Screen {
    fn run(&mut self, terminal: &mut DefaultTerminal) -> Result<(), Failure> {
        let lost = |cause: io::Error| Failure::Write { path: "the terminal".into(), cause };
        let mut drawn = Instant::now();
        loop {
            terminal.draw(|frame| self.draw(frame)).map_err(lost)?;
            let left = TICK.saturating_sub(drawn.elapsed());
            if event::poll(left).map_err(lost)?
                && let Event::Key(key) = event::read().map_err(lost)?
                && key.kind != KeyEventKind::Release
                && self.press(key)? == Then::Quit
            {
                return Ok(());
            }
            if drawn.elapsed() >= TICK {
                self.tick(drawn.elapsed())?;
                drawn = Instant::now();
            }
        }
    }

    fn tick(&mut self, passed: Duration) -> Result<(), Failure> {
        if self.paused {
            return Ok(());
        }
        if let Some(end) = self.source.end() {
            let step = (passed.as_secs_f64() * self.speed * 1e9) as u64;
            self.at = Nanos::new(self.at.get().saturating_add(step)).min(end);
            self.paused = self.at == end;
        }
        self.look()
    }

    /// Takes the frame of this moment; the one before is kept to tell what is used at present.
    fn look(&mut self) -> Result<(), Failure> {
        let frame = self.source.frame_at(Some(self.at))?;
        if frame.time_ns != self.frame.time_ns {
            let before = std::mem::replace(&mut self.frame, frame);
            self.before = (before.time_ns < self.frame.time_ns).then_some(before);
        }
        Ok(())
    }

    fn press(&mut self, key: KeyEvent) -> Result<Then, Failure> {
        let step = self.source.end().map_or(0, |end| (end.get() / 100).max(1));
        let step = if key.modifiers.contains(KeyModifiers::SHIFT) { step * 10 } else { step };
        match key.code {
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Ok(Then::Quit);
            }
            KeyCode::Char('q') | KeyCode::Esc => return Ok(Then::Quit),
            KeyCode::Char(' ') => {
                // From its end, a record begins again.
                if self.source.end() == Some(self.at) {
                    self.at = Nanos::ZERO;
                }
                self.paused = !self.paused;
            }
            KeyCode::Right if self.source.is_record() => {
                let end = self.source.end().unwrap_or_default();
                self.at = Nanos::new(self.at.get().saturating_add(step)).min(end);
                self.look()?;
            }
            KeyCode::Left if self.source.is_record() => {
                self.at = Nanos::new(self.at.get().saturating_sub(step));
                self.look()?;
            }
            KeyCode::Char('+' | '=') => self.speed = (self.speed * 2.0).min(1_000.0),
            KeyCode::Char('-') => self.speed = (self.speed / 2.0).max(1e-6),
            _ => {}
        }
        Ok(Then::GoOn)
    }

    fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        let [body, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        let note = match (self.source.is_record(), self.paused, self.source.has_ended()) {
            (_, _, true) => "it has ended".to_owned(),
            (true, false, _) => format!("playing at {}x", self.speed),
            (true, true, _) | (false, true, _) => "paused".to_owned(),
            (false, false, _) => "live".to_owned(),
        };
        let (width, height) = (usize::from(body.width), usize::from(body.height));
        let shown = Shown { frame: &self.frame, before: self.before.as_ref(), note: &note, width, height };
        frame.render_widget(Paragraph::new(Text::from(lines(&shown))), body);
        let keys = if self.source.is_record() {
            "q quit  space play or pause  left right step  + - speed"
        } else {
            "q quit  space pause"
        };
        frame.render_widget(Paragraph::new(keys).style(Style::new().add_modifier(Modifier::REVERSED)), foot);
    }
}
