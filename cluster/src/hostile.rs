//! What comes over the wire, changed at random: nothing of it ends the process, and nothing is believed that was not sent.

use crate::grant::{Amount, Grant, Identity, Receipt, Signed, Trusted, now_ms};
use crate::session::{Asked, Kind, Sessions, Took};
use crate::text::Text as _;
use crate::wire::{self, Status};
use async_nats::HeaderMap;
use mainspring::Pool;

/// A generator whose seed replays everything: `MAINSPRING_SEED=n`.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        let seed = std::env::var("MAINSPRING_SEED").map_or(1, |text| text.parse().expect("a number"));
        println!("seed {seed}: MAINSPRING_SEED sets it");
        Self(seed)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }

    /// Changes a text in one to four places, by what is likely to matter to a decoder.
    fn change(&mut self, text: &str) -> String {
        const PIECES: [&str; 16] = [
            "\"",
            "\\",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "null",
            "-1",
            "1e99",
            "18446744073709551616",
            "\u{0}",
            "\u{10FFFF}",
            "\"within\":{}",
            "[[[[[[[[",
        ];
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(4) {
            let at = self.below(chars.len() + 1);
            match self.below(5) {
                0 => chars.truncate(at),
                1 if at < chars.len() => drop(chars.remove(at)),
                2 if at < chars.len() => chars[at] = char::from(self.below(128) as u8),
                3 => {
                    let end = (at + self.below(40)).min(chars.len());
                    let part: Vec<char> = chars[at.min(end)..end].to_vec();
                    chars.splice(at..at, part);
                }
                _ => drop(chars.splice(at..at, PIECES[self.below(PIECES.len())].chars())),
            }
        }
        chars.into_iter().collect()
    }
}

/// What a hostile client can put on the wire: a client checks no values, and a server passes on what it gets.
fn headers(signed: &Signed, what: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // A value that no header can have does not get through.
    if signed.line().parse::<async_nats::HeaderValue>().is_ok() {
        wire::write_signed(&mut headers, what, signed);
    }
    headers
}

fn grant(within: Option<crate::session::Within>) -> Grant {
    Grant {
        id: "grant0001".into(),
        from: "anna".into(),
        to: "sum".into(),
        amount: Amount { ops: 100, memory: 7, spawn_count: 1, channel_ops: 3, syscalls: 2 },
        expires_ms: now_ms() + 600_000,
        within,
    }
}

fn pair() -> (Identity, Identity, Trusted) {
    let (anna, bert) = (Identity::new("anna", &[7; 32]), Identity::new("bert", &[8; 32]));
    let trusted = Trusted::new().believe("anna", &anna.public(), Pool::AMPLE).expect("a key");
    let trusted = trusted.believe("bert", &bert.public(), Pool::AMPLE).expect("a key");
    (anna, bert, trusted)
}

#[test]
fn nothing_that_was_changed_on_its_way_is_believed() {
    let (anna, bert, trusted) = pair();
    let mut chance = Chance::new();
    let (sends, takes) = (Sessions::default(), Sessions::default());
    sends.learn(&anna, &trusted, "anna#1", "sum", "bert#2/0");
    let session = sends.to("sum").expect("it was learnt");
    let me = (&bert, "bert#2");
    let plain = grant(None);
    let numbered = grant(Some(session.within("anna#1")));
    let receipt = Receipt { id: plain.id.clone(), by: "bert#2/0".into(), rest: Amount::default() };
    let asked = Asked { id: plain.id.clone(), within: session.within("anna#1"), standing: None };
    let originals = [
        (wire::GRANT, anna.sign(&plain)),
        (wire::GRANT, session.key.sign(Kind::Grant, &numbered)),
        (wire::RECEIPT, bert.sign(&receipt)),
        (wire::GRANT, session.key.sign(Kind::Void, &asked)),
    ];
    // They are good as they are: what follows is refused because it was changed.
    assert_eq!(trusted.grant(&originals[0].1, "sum"), Ok(plain.clone()));
    assert_eq!(takes.verify(me, &trusted, &originals[1].1, &numbered), Ok(()));
    assert_eq!(trusted.receipt(&originals[2].1, &plain), Ok(receipt));
    let mut refused = 0;
    for turn in 0..4_000 {
        let (what, original) = &originals[turn % originals.len()];
        let mut changed = original.clone();
        match chance.below(3) {
            0 => changed.signature = chance.change(&changed.signature),
            1 => changed.text = chance.change(&changed.text),
            // What one kind of text is signed with says nothing of another.
            _ => changed.signature = originals[(turn + 1) % originals.len()].1.signature.clone(),
        }
        let headers = headers(&changed, what);
        let Some(got) = wire::signed(&headers, what) else { continue };
        // Digits may be written in two ways.
        if got.text == original.text && got.signature.eq_ignore_ascii_case(&original.signature) {
            continue;
        }
        refused += 1;
        assert!(trusted.grant(&got, "sum").is_err(), "{got:?}");
        assert!(trusted.receipt(&got, &plain).is_err(), "{got:?}");
        assert!(takes.standing(me, &trusted, &got).is_err(), "{got:?}");
        if let Ok(read) = Grant::read(&got.text) {
            assert!(takes.verify(me, &trusted, &got, &read).is_err(), "{got:?}");
        }
    }
    assert!(refused > 2_000, "it changed too little: {refused}");
    assert_eq!(takes.take(me, &trusted, &numbered), Ok(Took::Number), "nothing of it was taken");
}

#[test]
fn headers_of_any_text_are_read_without_harm() {
    let mut chance = Chance::new();
    let seeds = [
        ("Mainspring-Status", "exhausted ops"),
        ("Mainspring-Status", "worthless spent"),
        ("Mainspring-Waits", "1000"),
        ("Mainspring-Waits", "18446744073709551615"),
        ("Mainspring-Generation", "7"),
        ("Mainspring-From", "group/child 3"),
    ];
    for turn in 0..20_000 {
        let (name, value) = seeds[turn % seeds.len()];
        let value = chance.change(value);
        let mut headers = HeaderMap::new();
        if value.parse::<async_nats::HeaderValue>().is_err() {
            continue;
        }
        headers.insert(name, value.as_str());
        let status = Status::read(Some(&headers));
        if name != "Mainspring-Status" {
            assert_eq!(status, Status::Failed, "{value:?}");
        }
        // No wait is so long that a clock cannot tell its end.
        if let Some(waits) = wire::deadline(&headers) {
            let _ = tokio::time::Instant::now().checked_add(waits);
        }
        let _ = (wire::generation(Some(&headers)), wire::from(&headers));
    }
}
