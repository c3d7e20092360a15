//! The grammar for editors knows the words of the language.

use mainspring_janus::testing::words;
use std::collections::BTreeSet;

const GRAMMAR: &str = include_str!("../../editors/janus.tmLanguage.json");

#[test]
fn the_grammar_has_the_words_of_the_language_and_no_others() {
    // What stands between word boundaries, as `\\b(if|else)\\b` in the file.
    let groups = GRAMMAR.split(r"\\b(").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let of_headers = ["profile", "interval", "core", "service", "cluster", "sovereign"];
    let colored: BTreeSet<&str> =
        groups.flat_map(|group| group.split('|')).filter(|word| !of_headers.contains(word)).collect();
    assert_eq!(colored, words().into_iter().collect());
}
