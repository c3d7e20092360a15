//! What the project says of itself.

use std::fs;
use std::path::{Path, PathBuf};

const PHRASES: [&str; 4] = ["hard realtime", "hard real-time", "hard real time", "hard-realtime"];
const DENIALS: [&str; 5] = ["no ", "not ", "none ", "non-", "never "];

/// Whether `sentence` says that something is hard realtime, rather than that nothing is.
fn claims(sentence: &str) -> bool {
    let sentence = format!(" {} ", sentence.to_lowercase());
    let denied = DENIALS.iter().any(|denial| sentence.contains(&format!(" {denial}")));
    PHRASES.iter().any(|phrase| sentence.contains(phrase)) && !denied
}

/// The sentences of a text, with line breaks and comment marks taken out.
fn sentences(text: &str) -> Vec<String> {
    let marks = |c: char| c.is_whitespace() || "/!#*>-|`".contains(c);
    let joined: Vec<&str> = text.lines().map(|line| line.trim_start_matches(marks).trim_end()).collect();
    joined.join(" ").split(['.', ';', '|']).map(str::to_owned).collect()
}

fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the checkout can be read") {
        let path = entry.expect("the checkout can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            texts(&path, found);
        } else if ["md", "rs", "toml", "txt", "html"]
            .iter()
            .any(|kind| path.extension().is_some_and(|e| e == *kind))
        {
            found.push(path);
        }
    }
}

//= TICK:nongoal.hard-rt
#[test]
fn nothing_here_claims_hard_realtime() {
    let root = mainspring_conformance::project();
    let mut files = Vec::new();
    texts(&root, &mut files);
    assert!(files.len() > 50, "the search found the sources");
    let states_the_rule =
        ["spec/conformance/tests/claims.rs", "cli/tests/cli/docs.rs", "spec/requirements.toml"];
    for file in files.iter().filter(|file| !states_the_rule.iter().any(|rule| file.ends_with(rule))) {
        let Ok(text) = fs::read_to_string(file) else { continue };
        for sentence in sentences(&text) {
            assert!(!claims(&sentence), "{} claims it: {sentence}", file.display());
        }
    }
}

#[test]
fn a_claim_is_told_from_a_denial() {
    assert!(claims("This kernel is hard realtime"));
    assert!(claims("Mainspring offers hard real-time guarantees"));
    assert!(!claims("There is no hard realtime"));
    assert!(!claims("None of it is a claim of hard realtime: evidence is missing"));
    assert_eq!(sentences("/// It is hard\n/// realtime. Or not.")[0], "It is hard realtime");
}
