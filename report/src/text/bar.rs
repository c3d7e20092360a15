//! Bars of a few characters: what was received against what was owed, and how busy a CPU was.

use super::grid::Cell;
use super::style::{TextStyle, Tone};

/// How wide a bar may be on this terminal.
pub(super) fn width(style: TextStyle) -> usize {
    match style.columns {
        130.. => 14,
        100.. => 10,
        _ => 8,
    }
}

/// A bar for a share against an entitlement, both as fractions of `scale`.
///
/// Received and owed is solid, owed but not received is light, received beyond what was owed is medium. Where
/// the two differ by less than a character, the bar is the share alone, drawn to an eighth of a character.
pub(super) fn entitlement(style: TextStyle, share: f64, entitled: f64, scale: f64, width: usize) -> Cell {
    let [solid, light, over] = glyphs(style);
    let had = cells(share, scale, width);
    let owed = cells(entitled, scale, width);
    if had == owed {
        return Cell::new(Tone::Good, fine(style, share, scale, width));
    }
    let both = had.min(owed);
    Cell(vec![
        (Tone::Good, solid.repeat(both)),
        (Tone::Dim, light.repeat(owed - both)),
        (Tone::Warn, over.repeat(had - both)),
    ])
}

/// A bar for a fraction of one.
pub(super) fn filled(style: TextStyle, fraction: f64, width: usize) -> Cell {
    let [solid, light, _] = glyphs(style);
    let full = cells(fraction, 1.0, width);
    Cell(vec![(Tone::Good, solid.repeat(full)), (Tone::Dim, light.repeat(width - full))])
}

/// A bar that ends in a part of a character.
fn fine(style: TextStyle, value: f64, scale: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let [solid, ..] = glyphs(style);
    if !style.unicode {
        return solid.repeat(cells(value, scale, width));
    }
    let eighths = cells(value, scale, width * 8);
    // Something is never drawn as nothing: a thread that ran at all shows.
    let eighths = if value > 0.0 { eighths.max(1) } else { eighths };
    solid.repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// What the three parts of [`entitlement`] mean.
pub(super) fn legend(style: TextStyle) -> String {
    let [solid, light, over] = glyphs(style);
    format!("{solid} received  {light} owed, not received  {over} received beyond its due")
}

fn glyphs(style: TextStyle) -> [&'static str; 3] {
    if style.unicode { ["█", "░", "▒"] } else { ["#", ".", "+"] }
}

fn cells(value: f64, scale: f64, width: usize) -> usize {
    if scale <= 0.0 || value <= 0.0 {
        return 0;
    }
    ((value / scale * width as f64).round() as usize).min(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(share: f64, entitled: f64) -> String {
        let cell = entitlement(TextStyle::default(), share, entitled, 1.0, 10);
        cell.0.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn a_bar_tells_a_debt_from_a_surplus() {
        assert_eq!(drawn(0.5, 0.5), "█████");
        assert_eq!(drawn(0.3, 0.5), "███░░");
        assert_eq!(drawn(0.5, 0.3), "███▒▒");
        assert_eq!(drawn(0.0, 0.0), "");
        assert_eq!(drawn(0.2, 0.0), "▒▒");
        assert_eq!(drawn(0.0, 0.2), "░░");
        assert_eq!(drawn(7.0, 1.0), "██████████");
    }

    #[test]
    fn a_small_share_is_drawn_small_but_never_as_nothing() {
        assert_eq!(drawn(0.04, 0.04), "▍");
        assert_eq!(drawn(0.0001, 0.0001), "▏");
    }
}
