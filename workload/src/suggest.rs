//! "Did you mean": the known word nearest to a mistyped one.

/// Longer words are not worth guessing at.
const LONGEST: usize = 48;
/// A hostile file may define names without end and mistype each: the search over them is bounded.
const CANDIDATES: usize = 2_000;

/// The candidate that `word` was most likely meant to be, if one is near enough: at most one slip (a missing,
/// extra, wrong or swapped character) in short words, one in three characters in longer ones.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let typed = folded(word)?;
    let allowed = (typed.len() / 3).max(1);
    candidates
        .into_iter()
        .take(CANDIDATES)
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= 4 * allowed)
        .filter_map(|candidate| Some((distance(&typed, &folded(candidate)?), candidate)))
        .filter(|(slips, candidate)| *slips <= allowed && *slips < candidate.len())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// The characters without case, since a wrong case is the smallest of slips; `None` for the empty and the endless.
fn folded(word: &str) -> Option<Vec<char>> {
    let chars: Vec<char> = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    (1..=LONGEST).contains(&chars.len()).then_some(chars)
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_is_forgiven_in_short_words_and_more_in_long_ones() {
        let verbs = ["run", "sleep", "yield", "park", "unpark", "late_reschedule"];
        for (typed, meant) in [
            ("slep", Some("sleep")),
            ("Run", Some("run")),
            ("rnu", Some("run")),
            ("yeild", Some("yield")),
            ("late_rescedul", Some("late_reschedule")),
            ("ru", Some("run")),
            ("snooze", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, verbs), meant, "{typed}");
        }
    }

    #[test]
    fn the_nearest_wins() {
        assert_eq!(nearest("unpar", ["park", "unpark"]), Some("unpark"));
    }
}
