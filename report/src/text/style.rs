//! How text looks: width, colour and characters. The only module that knows ANSI sequences.

/// How the text report is to look. The caller knows the terminal; this crate asks nothing of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Width of the terminal in characters.
    pub columns: usize,
    /// Whether tables keep all their columns, however wide they are: a file or a pipe has no width.
    pub whole: bool,
    /// Whether to use ANSI colours.
    pub colour: bool,
    /// Whether to draw with block characters rather than with ASCII.
    pub unicode: bool,
    /// Whether to show every instance and every CPU, however many there are.
    pub expand: bool,
}

impl Default for TextStyle {
    /// 120 columns, no colour, block characters, folded.
    fn default() -> Self {
        Self { columns: 120, whole: false, colour: false, unicode: true, expand: false }
    }
}

/// What a piece of text means; the style decides how that looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    /// Of no interest: a zero, a unit, a separator.
    Dim,
    /// A title.
    Strong,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Something was not met.
    Bad,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Dim => "2",
            Tone::Strong => "1",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "1;31",
        }
    }
}

impl TextStyle {
    /// Appends `text` in a tone.
    pub(super) fn paint(self, out: &mut String, tone: Tone, text: &str) {
        if self.colour && tone != Tone::Plain && !text.is_empty() {
            out.push_str("\x1b[");
            out.push_str(tone.code());
            out.push('m');
            out.push_str(text);
            out.push_str("\x1b[0m");
        } else {
            out.push_str(text);
        }
    }

    /// The separator between facts on a line.
    pub(super) fn dot(self) -> &'static str {
        if self.unicode { " · " } else { " - " }
    }

    fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }

    /// `text` without control characters and in at most `width` characters. The middle goes first: the end of
    /// a thread's name is its instance, the end of a path its file.
    pub(super) fn fit(self, text: &str, width: usize) -> String {
        let clean: Vec<char> = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        if clean.len() <= width {
            return clean.into_iter().collect();
        }
        let kept = width.saturating_sub(1);
        let tail = kept / 2;
        let head = kept - tail;
        let mut fitted: String = clean[..head].iter().collect();
        fitted.push_str(self.ellipsis());
        fitted.extend(&clean[clean.len() - tail..]);
        fitted
    }

    /// Appends a sentence as lines that fit the width; lines after the first are indented.
    pub(super) fn wrap(self, out: &mut String, tone: Tone, sentence: &str, indent: usize) {
        self.wrap_items(out, tone, sentence.split(' '), " ", indent);
    }

    /// Appends items as lines that fit the width, breaking only between items.
    pub(super) fn wrap_items<'a>(
        self,
        out: &mut String,
        tone: Tone,
        items: impl IntoIterator<Item = &'a str>,
        separator: &str,
        indent: usize,
    ) {
        let mut line = String::new();
        for item in items {
            let length = line.chars().count() + separator.chars().count() + item.chars().count();
            if line.trim_start().is_empty() {
                // The first item of a line stands on it, even if it is too long.
            } else if length > self.columns {
                self.paint(out, tone, &line);
                out.push('\n');
                line = " ".repeat(indent);
            } else {
                line.push_str(separator);
            }
            line.push_str(item);
        }
        self.paint(out, tone, &line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_too_long_keeps_its_beginning_and_its_instance() {
        let style = TextStyle::default();
        assert_eq!(style.fit("a-very-long-thread-name.17", 13), "a-very…ame.17");
        assert_eq!(style.fit("short", 13), "short");
        assert_eq!(style.fit("abc", 0), "…");
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(TextStyle::default().fit("a\x1b[31mb\nc", 20), "a?[31mb?c");
    }

    #[test]
    fn wrapped_lines_fit_and_lose_no_word() {
        let style = TextStyle { columns: 12, ..TextStyle::default() };
        let mut out = String::new();
        style.wrap(&mut out, Tone::Plain, "one two three four five", 2);
        assert_eq!(out, "one two\n  three four\n  five\n");
    }
}
