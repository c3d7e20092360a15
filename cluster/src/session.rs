//! Grants between two lives that know each other: authenticated by a key of both, and spent once without a record beforehand.
//!
//! The first grant to an actor is signed, and its receipt says which life of which node handled it. Later grants to it name that life, carry a
//! number, and are authenticated by a code under a key that only the two nodes can compute from their ed25519 keys and their lives.
//!
//! Conserved: a grant that names a life is worth nothing to any other, and that life takes each number once, by memory. So it is spent once,
//! and a record is needed only afterwards. Its sender takes it back only if the receiver says that it will never take it, or the server says
//! that nobody got it. If neither is known when its time is over, it is lost.

use crate::grant::{Amount, Grant, Identity, LONGEST_VALIDITY, Signed, Trusted, Worthless, hex, unhex};
use crate::text::Text;
use crate::wire::is_name;
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many numbers below the highest may still be taken; and how many receipts wait for their record.
const WINDOW: u64 = 4_096;

/// How many lives of one node are known at once.
const MOST_LIVES: usize = 1_024;

/// How long a life is known after it has sent something: as long as the record of a grant is kept. By the host's monotonic clock, so
/// that a step of the time of day makes no old grant new.
const KNOWN_FOR: Duration = LONGEST_VALIDITY.saturating_mul(24);

/// How long a receiver leaves the record to the sender.
const RECORDS_AFTER: Duration = Duration::from_secs(2);

/// Between which lives a grant is good, and which number it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// The sender's life.
    pub from: String,
    /// The receiver's life.
    pub to: String,
    /// Each is taken once.
    pub number: u64,
    /// All below this have their record.
    pub recorded: u64,
}

/// The part of a life that can stand in a subject.
pub(crate) fn token(life: &str) -> &str {
    life.rsplit('#').next().unwrap_or_default()
}

pub(crate) fn node_of(life: &str) -> &str {
    life.split('#').next().unwrap_or_default()
}

/// Whether it is the name of a node and a token: both become parts of subjects.
fn is_life(life: &str) -> bool {
    life.split_once('#').is_some_and(|(node, token)| is_name(node) && is_name(token))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What both lives can compute, and nobody else.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// What a code is over: one kind cannot be taken for another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Grant,
    Receipt,
    Void,
    Voided,
}

impl Key {
    fn agree(me: &Identity, with: &Trusted, other: &str, from: &str, to: &str) -> Result<Self, Worthless> {
        let shared = with.agree(me, other)?;
        // Neither fails: a code takes keys of any length.
        let root = Hmac::<Sha256>::new_from_slice(&shared).map_err(|_| Worthless::Malformed)?;
        let label = format!("mainspring session\0{from}\0{to}");
        let key = root.chain_update(label.as_bytes()).finalize().into_bytes();
        Hmac::new_from_slice(&key).map(Self).map_err(|_| Worthless::Malformed)
    }

    fn code(&self, kind: Kind, text: &str) -> Hmac<Sha256> {
        self.0.clone().chain_update([kind as u8]).chain_update(text.as_bytes())
    }

    pub(crate) fn sign(&self, kind: Kind, value: &impl Text) -> Signed {
        let text = value.write();
        let signature = hex(&self.code(kind, &text).finalize().into_bytes());
        Signed { text, signature }
    }

    pub(crate) fn verify(&self, kind: Kind, signed: &Signed) -> Result<(), Worthless> {
        let bytes = unhex(&signed.signature).filter(|bytes| bytes.len() == 32).ok_or(Worthless::Malformed)?;
        self.code(kind, &signed.text).verify_truncated_left(&bytes).map_err(|_| Worthless::Forged)
    }
}

/// The way to a life that has handled a message of this one.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) life: String,
    pub(crate) key: Key,
    next: AtomicU64,
    /// Numbers whose record is not there yet.
    open: Mutex<BTreeSet<u64>>,
}

impl Outgoing {
    /// The next number.
    pub(crate) fn within(&self, from: &str) -> Within {
        let mut open = locked(&self.open);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.insert(number);
        let recorded = open.first().copied().unwrap_or(number);
        Within { from: from.to_owned(), to: self.life.clone(), number, recorded }
    }

    /// Its record is there.
    pub(crate) fn recorded(&self, number: u64) {
        locked(&self.open).remove(&number);
    }
}

/// Numbers that were taken.
#[derive(Debug)]
struct Window {
    highest: u64,
    bits: Box<[u64]>,
}

impl Default for Window {
    fn default() -> Self {
        Self { highest: 0, bits: vec![0; (WINDOW / 64) as usize].into() }
    }
}

impl Window {
    /// Takes a number. False if it was taken before, or is so old that nobody knows.
    fn take(&mut self, number: u64) -> bool {
        if number.saturating_add(WINDOW) <= self.highest {
            return false;
        }
        if number > self.highest {
            // What the window leaves behind is free for what it comes to.
            for passed in (self.highest + 1..=number).take(WINDOW as usize) {
                self.set(passed, false);
            }
            if number - self.highest >= WINDOW {
                self.bits.fill(0);
            }
            self.highest = number;
        } else if self.is_set(number) {
            return false;
        }
        self.set(number, true);
        true
    }

    fn is_set(&self, number: u64) -> bool {
        self.bits[(number % WINDOW / 64) as usize] >> (number % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, taken: bool) {
        let word = &mut self.bits[(number % WINDOW / 64) as usize];
        *word = *word & !(1 << (number % 64)) | u64::from(taken) << (number % 64);
    }
}

/// A receipt whose record the sender may not have written.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) id: String,
    pub(crate) amount: Amount,
    pub(crate) by: String,
    pub(crate) rest: Amount,
    since: Instant,
}

/// Whether a number was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Took {
    Number,
    /// It was not, and may be later: so many receipts wait for their record, as behind a message that takes long.
    NothingYet,
}

/// What is known of one life that sends.
#[derive(Debug)]
struct Incoming {
    key: Key,
    window: Window,
    voided: BTreeSet<u64>,
    pending: BTreeMap<u64, Pending>,
    /// When it last took or voided a number. Until then it may be anybody's.
    last: Option<Instant>,
}

impl Incoming {
    /// Whether a number of it may still be asked for or sent again.
    fn must_be_known(&self) -> bool {
        self.last.is_some_and(|last| last.elapsed() < KNOWN_FOR) || !self.pending.is_empty()
    }

    /// The sender has recorded all below this.
    fn forget_recorded(&mut self, recorded: u64) {
        while let Some(first) = self.pending.first_entry().filter(|first| *first.key() < recorded) {
            first.remove();
        }
    }

    /// What the window has left behind is never taken anyway.
    fn forget_voided(&mut self) {
        let passed = self.window.highest.saturating_sub(WINDOW);
        while self.voided.first().is_some_and(|first| *first < passed) {
            self.voided.pop_first();
        }
    }
}

/// What a receiver says of a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Standing {
    /// It was not taken, and never will be.
    Void,
    /// It is handled, or nobody knows.
    Taken,
    /// It was handled.
    Settled { by: String, rest: Amount },
}

/// A question what has become of a number, and the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) within: Within,
    pub(crate) standing: Option<Standing>,
}

/// Rare, so it is no text of words.
impl Text for Asked {
    fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn read(text: &str) -> Result<Self, Worthless> {
        serde_json::from_str(text).map_err(|_| Worthless::Malformed)
    }
}

/// The lives that this one sends to.
#[derive(Debug, Default)]
struct Known {
    by_actor: HashMap<String, Arc<Outgoing>>,
    /// Each stays: numbers between two lives never begin anew.
    by_life: HashMap<String, Arc<Outgoing>>,
}

/// How many lives this one sends to with numbers. Grants to any more are signed, and recorded before they are spent.
const MOST_KNOWN: usize = 4_096;

/// All lives that this one sends to, and that send to it.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    outgoing: Mutex<Known>,
    incoming: Mutex<HashMap<String, Incoming>>,
}

impl Sessions {
    /// The life that handled the last message to this actor.
    pub(crate) fn to(&self, actor: &str) -> Option<Arc<Outgoing>> {
        locked(&self.outgoing).by_actor.get(actor).cloned()
    }

    /// A signed receipt says who handled a message to this actor.
    pub(crate) fn learn(&self, me: &Identity, trusted: &Trusted, from: &str, actor: &str, by: &str) {
        let life = by.split('/').next().unwrap_or_default();
        if !is_life(life) {
            return;
        }
        let mut known = locked(&self.outgoing);
        let session = match known.by_life.get(life) {
            Some(session) => session.clone(),
            None if known.by_life.len() >= MOST_KNOWN => return,
            None => {
                let Ok(key) = Key::agree(me, trusted, node_of(life), from, life) else { return };
                let next = AtomicU64::new(1);
                Arc::new(Outgoing { life: life.to_owned(), key, next, open: Mutex::default() })
            }
        };
        known.by_life.insert(life.to_owned(), session.clone());
        if known.by_actor.len() >= MOST_KNOWN {
            // It is only a way that is known: it is learnt again.
            known.by_actor.clear();
        }
        known.by_actor.insert(actor.to_owned(), session);
    }

    /// How many numbers have no record yet.
    pub(crate) fn unrecorded(&self) -> usize {
        locked(&self.outgoing).by_life.values().map(|session| locked(&session.open).len()).sum()
    }

    /// Nobody is there any more.
    pub(crate) fn forget(&self, actor: &str, session: &Arc<Outgoing>) {
        let mut known = locked(&self.outgoing);
        if known.by_actor.get(actor).is_some_and(|there| Arc::ptr_eq(there, session)) {
            known.by_actor.remove(actor);
        }
    }

    /// Runs `f` with what is known of a life that sends, which may be nothing yet.
    fn incoming<T>(
        &self,
        me: (&Identity, &str),
        trusted: &Trusted,
        within: &Within,
        f: impl FnOnce(&mut Incoming) -> Result<T, Worthless>,
    ) -> Result<T, Worthless> {
        if within.to != me.1 {
            return Err(Worthless::NotForThis);
        }
        let mut incoming = locked(&self.incoming);
        if !incoming.contains_key(&within.from) {
            let node = node_of(&within.from);
            let key = Key::agree(me.0, trusted, node, &within.from, &within.to)?;
            incoming.retain(|_, life| life.must_be_known());
            if incoming.keys().filter(|life| node_of(life) == node).count() >= MOST_LIVES {
                return Err(Worthless::OverLimit);
            }
            // Until its first grant is believed, it may be anybody's: it is forgotten with the next.
            let (voided, pending) = (BTreeSet::new(), BTreeMap::new());
            let life = Incoming { key, window: Window::default(), voided, pending, last: None };
            incoming.insert(within.from.clone(), life);
        }
        let life = incoming.get_mut(&within.from).ok_or(Worthless::Malformed)?;
        f(life)
    }

    /// Whether a grant's code is right. It is not taken.
    pub(crate) fn verify(
        &self,
        me: (&Identity, &str),
        trusted: &Trusted,
        signed: &Signed,
        grant: &Grant,
    ) -> Result<(), Worthless> {
        let within = grant.within.as_ref().ok_or(Worthless::Malformed)?;
        if node_of(&within.from) != grant.from {
            return Err(Worthless::NotForThis);
        }
        self.incoming(me, trusted, within, |life| life.key.verify(Kind::Grant, signed))
    }

    /// Takes the number of a grant that was verified.
    pub(crate) fn take(
        &self,
        me: (&Identity, &str),
        trusted: &Trusted,
        grant: &Grant,
    ) -> Result<Took, Worthless> {
        let within = grant.within.as_ref().ok_or(Worthless::Malformed)?;
        self.incoming(me, trusted, within, |life| {
            life.forget_recorded(within.recorded);
            life.forget_voided();
            if life.pending.len() as u64 >= WINDOW {
                return Ok(Took::NothingYet);
            }
            if !life.window.take(within.number) {
                return Err(Worthless::Spent);
            }
            life.last = Some(Instant::now());
            Ok(Took::Number)
        })
    }

    /// A message was handled. Signs what is left.
    pub(crate) fn settle(
        &self,
        me: (&Identity, &str),
        trusted: &Trusted,
        grant: &Grant,
        by: &str,
        rest: Amount,
    ) -> Option<Signed> {
        let within = grant.within.as_ref()?;
        let receipt = crate::grant::Receipt { id: grant.id.clone(), by: by.to_owned(), rest };
        let signed = self.incoming(me, trusted, within, |life| {
            let pending = Pending {
                id: grant.id.clone(),
                amount: grant.amount,
                by: by.to_owned(),
                rest,
                since: Instant::now(),
            };
            life.pending.insert(within.number, pending);
            Ok(life.key.sign(Kind::Receipt, &receipt))
        });
        signed.ok()
    }

    /// Says what has become of a number, if its sender asks. What was not taken is void from now on.
    pub(crate) fn standing(
        &self,
        me: (&Identity, &str),
        trusted: &Trusted,
        signed: &Signed,
    ) -> Result<Signed, Worthless> {
        let asked = Asked::read(&signed.text)?;
        self.incoming(me, trusted, &asked.within, |life| {
            life.key.verify(Kind::Void, signed)?;
            let number = asked.within.number;
            let pending = life.pending.get(&number).filter(|pending| pending.id == asked.id);
            let standing = if let Some(pending) = pending {
                Standing::Settled { by: pending.by.clone(), rest: pending.rest }
            } else if life.voided.contains(&number) {
                Standing::Void
            } else if life.window.take(number) {
                life.voided.insert(number);
                life.forget_voided();
                // It stays void, whoever comes next: its sender has it back by this.
                life.last = Some(Instant::now());
                Standing::Void
            } else {
                Standing::Taken
            };
            let answer = Asked { standing: Some(standing), ..asked.clone() };
            Ok(life.key.sign(Kind::Voided, &answer))
        })
    }

    /// Receipts whose record the sender should have written by now: they are written by this life, and then forgotten.
    pub(crate) fn overdue(&self) -> Vec<(String, u64, Pending)> {
        let incoming = locked(&self.incoming);
        let each = incoming.iter().flat_map(|(life, incoming)| {
            incoming.pending.iter().map(move |(number, pending)| (life.clone(), *number, pending.clone()))
        });
        each.filter(|(_, _, pending)| pending.since.elapsed() >= RECORDS_AFTER).collect()
    }

    /// Its record is there.
    pub(crate) fn recorded(&self, life: &str, number: u64) {
        if let Some(incoming) = locked(&self.incoming).get_mut(life) {
            incoming.pending.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::now_ms;
    use mainspring::Pool;

    #[test]
    fn a_number_is_taken_once_and_never_when_it_is_too_old() {
        let mut window = Window::default();
        for number in [1, 2, 5, 3, 4_000, 4] {
            assert!(window.take(number), "{number}");
            assert!(!window.take(number), "{number}");
        }
        assert!(window.take(5_000));
        assert!(!window.take(904), "nobody knows any more");
        assert!(window.take(905) && !window.take(905));
        assert!(window.take(1_000_000) && window.take(999_999) && !window.take(999_999));
        assert!(!window.take(4_000));
    }

    #[test]
    fn the_window_agrees_with_a_set_that_remembers_everything() {
        let (mut window, mut all) = (Window::default(), BTreeSet::new());
        let mut chance = 1_u64;
        let mut highest = 0;
        for _ in 0..200_000 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (highest + (chance >> 33) % 6_000).saturating_sub(5_000).max(1);
            let is_recent = number + WINDOW > highest;
            assert_eq!(window.take(number), is_recent && all.insert(number), "{number} of {highest}");
            highest = highest.max(number);
        }
    }

    fn pair() -> (Identity, Identity, Trusted) {
        let (anna, bert) = (Identity::new("anna", &[7; 32]), Identity::new("bert", &[8; 32]));
        let trusted = Trusted::new().believe("anna", &anna.public(), Pool::AMPLE).expect("a key");
        let trusted = trusted.believe("bert", &bert.public(), Pool::AMPLE).expect("a key");
        (anna, bert, trusted)
    }

    fn grant(within: Within) -> Grant {
        Grant {
            id: "grant0001".into(),
            from: "anna".into(),
            to: "sum".into(),
            amount: Amount::default(),
            expires_ms: now_ms() + 10_000,
            within: Some(within),
        }
    }

    #[test]
    fn only_the_two_lives_can_make_a_grant_and_only_one_of_them_can_take_it() {
        let (anna, bert, trusted) = pair();
        let (sends, takes) = (Sessions::default(), Sessions::default());
        sends.learn(&anna, &trusted, "anna#1", "sum", "bert#2/0");
        let session = sends.to("sum").expect("it was learnt");
        let first = grant(session.within("anna#1"));
        let signed = session.key.sign(Kind::Grant, &first);
        let me = (&bert, "bert#2");
        assert_eq!(takes.verify(me, &trusted, &signed, &first), Ok(()));
        assert_eq!(takes.take(me, &trusted, &first), Ok(Took::Number));
        assert_eq!(takes.take(me, &trusted, &first), Err(Worthless::Spent));
        assert_eq!(takes.verify((&bert, "bert#3"), &trusted, &signed, &first), Err(Worthless::NotForThis));
        // A third node that both believe cannot make one.
        let otto = Identity::new("otto", &[9; 32]);
        let wide = trusted.clone().believe("otto", &otto.public(), Pool::AMPLE).expect("a key");
        let key = Key::agree(&otto, &wide, "bert", "anna#1", "bert#2").expect("a key");
        let next = grant(session.within("anna#1"));
        assert_eq!(takes.verify(me, &wide, &key.sign(Kind::Grant, &next), &next), Err(Worthless::Forged));
        // One kind of text is not taken for another, and a changed text is worth nothing.
        let other = session.key.sign(Kind::Receipt, &next);
        assert_eq!(takes.verify(me, &trusted, &other, &next), Err(Worthless::Forged));
        let mut changed = session.key.sign(Kind::Grant, &next);
        changed.text = changed.text.replace("sum", "sun");
        assert_eq!(takes.verify(me, &trusted, &changed, &next), Err(Worthless::Forged));
    }

    #[test]
    fn numbers_between_two_lives_never_begin_anew() {
        let (anna, _, trusted) = pair();
        let sends = Sessions::default();
        let learn = |actor: &str| {
            sends.learn(&anna, &trusted, "anna#1", actor, "bert#2/0");
            sends.to(actor).expect("it was learnt")
        };
        let first = learn("sum");
        assert_eq!(first.within("anna#1").number, 1);
        sends.forget("sum", &first);
        assert!(sends.to("sum").is_none());
        assert_eq!(learn("sum").within("anna#1").number, 2);
        assert_eq!(learn("other").within("anna#1").number, 3);
    }

    /// Asks what has become of a number, as its sender does.
    fn ask(
        takes: &Sessions,
        session: &Outgoing,
        trusted: &Trusted,
        bert: &Identity,
        within: &Within,
    ) -> Standing {
        let asked = Asked { id: "grant0001".into(), within: within.clone(), standing: None };
        let signed = session.key.sign(Kind::Void, &asked);
        let answer = takes.standing((bert, "bert#2"), trusted, &signed).expect("an answer");
        Asked::read(&answer.text).expect("an answer").standing.expect("a standing")
    }

    #[test]
    fn what_is_void_stays_void_whoever_comes_next() {
        let (anna, bert, trusted) = pair();
        let (sends, takes) = (Sessions::default(), Sessions::default());
        sends.learn(&anna, &trusted, "anna#1", "sum", "bert#2/0");
        let session = sends.to("sum").expect("it was learnt");
        // The first message was refused, and its sender has it back. Somebody has kept it.
        let refused = grant(session.within("anna#1"));
        let kept = session.key.sign(Kind::Grant, &refused);
        let within = refused.within.clone().expect("within");
        assert_eq!(ask(&takes, &session, &trusted, &bert, &within), Standing::Void);
        // Anybody can send something that names a life of a node that is believed.
        let me = (&bert, "bert#2");
        for token in 0..2 * MOST_LIVES {
            let from = format!("anna#{token}x");
            let forged = grant(Within { from, to: "bert#2".into(), number: 1, recorded: 1 });
            let signed = Signed { text: String::new(), signature: hex(&[0; 32]) };
            assert_eq!(takes.verify(me, &trusted, &signed, &forged), Err(Worthless::Forged));
        }
        assert_eq!(takes.verify(me, &trusted, &kept, &refused), Ok(()));
        assert_eq!(takes.take(me, &trusted, &refused), Err(Worthless::Spent), "its sender has it back");
    }

    #[test]
    fn a_sender_that_voids_for_ever_fills_nothing() {
        let (anna, bert, trusted) = pair();
        let (sends, takes) = (Sessions::default(), Sessions::default());
        sends.learn(&anna, &trusted, "anna#1", "sum", "bert#2/0");
        let session = sends.to("sum").expect("it was learnt");
        for number in 1..=3 * WINDOW {
            let within = Within { from: "anna#1".into(), to: "bert#2".into(), number, recorded: 1 };
            assert_eq!(ask(&takes, &session, &trusted, &bert, &within), Standing::Void);
        }
        let kept = locked(&takes.incoming)["anna#1"].voided.len() as u64;
        assert!(kept <= WINDOW + 1, "{kept}");
    }

    #[test]
    fn behind_a_message_that_takes_long_others_wait_for_room_and_are_not_refused() {
        let (anna, bert, trusted) = pair();
        let (sends, takes) = (Sessions::default(), Sessions::default());
        sends.learn(&anna, &trusted, "anna#1", "sum", "bert#2/0");
        let session = sends.to("sum").expect("it was learnt");
        let me = (&bert, "bert#2");
        let next = || grant(session.within("anna#1"));
        // The first has no record for long: the receiver keeps the receipts of all after it until it has recorded them itself.
        let long = next();
        assert_eq!(takes.take(me, &trusted, &long), Ok(Took::Number));
        for _ in 0..WINDOW {
            let short = next();
            assert_eq!(takes.take(me, &trusted, &short), Ok(Took::Number));
            assert!(takes.settle(me, &trusted, &short, "bert#2/s", Amount::default()).is_some());
            session.recorded(short.within.expect("within").number);
        }
        let waits = next();
        assert_eq!(takes.take(me, &trusted, &waits), Ok(Took::NothingYet));
        takes.recorded("anna#1", 2);
        assert_eq!(takes.take(me, &trusted, &waits), Ok(Took::Number), "the same number, later");
        assert_eq!(takes.take(me, &trusted, &waits), Err(Worthless::Spent));
    }

    #[test]
    fn a_life_that_cannot_stand_in_a_subject_is_not_learnt() {
        let (anna, _, trusted) = pair();
        let sends = Sessions::default();
        for by in [
            "bert",
            "bert#",
            "bert#a.b/0",
            "bert#>/0",
            "bert#*/0",
            "bert#a b/0",
            "bert#1\r\nPUB x 0/0",
            "#1/0",
        ] {
            sends.learn(&anna, &trusted, "anna#1", "sum", by);
            assert!(sends.to("sum").is_none(), "{by:?}");
        }
    }

    #[test]
    fn what_is_void_is_never_taken_and_what_is_taken_is_never_void() {
        let (anna, bert, trusted) = pair();
        let (sends, takes) = (Sessions::default(), Sessions::default());
        sends.learn(&anna, &trusted, "anna#1", "sum", "bert#2/0");
        let session = sends.to("sum").expect("it was learnt");
        let me = (&bert, "bert#2");
        let ask = |within: &Within| {
            let asked = Asked { id: "grant0001".into(), within: within.clone(), standing: None };
            let answer =
                takes.standing(me, &trusted, &session.key.sign(Kind::Void, &asked)).expect("an answer");
            session.key.verify(Kind::Voided, &answer).expect("it is the receiver's");
            Asked::read(&answer.text).expect("an answer").standing.expect("a standing")
        };
        let lost = grant(session.within("anna#1"));
        let within = lost.within.clone().expect("within");
        assert_eq!(ask(&within), Standing::Void);
        assert_eq!(takes.take(me, &trusted, &lost), Err(Worthless::Spent), "it comes too late");
        assert_eq!(ask(&within), Standing::Void, "and again");
        let taken = grant(session.within("anna#1"));
        let within = taken.within.clone().expect("within");
        assert_eq!(takes.take(me, &trusted, &taken), Ok(Took::Number));
        assert_eq!(ask(&within), Standing::Taken);
        let rest = Amount { ops: 3, ..Amount::default() };
        assert!(takes.settle(me, &trusted, &taken, "bert#2/s2", rest).is_some());
        assert_eq!(ask(&within), Standing::Settled { by: "bert#2/s2".into(), rest });
        // The sender has recorded both: nothing is kept for it any more.
        session.recorded(1);
        session.recorded(2);
        let next = grant(session.within("anna#1"));
        assert_eq!(takes.take(me, &trusted, &next), Ok(Took::Number));
        assert_eq!(ask(&within), Standing::Taken);
    }
}
