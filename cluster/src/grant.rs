//! Grants that travel: what a sender gives up with a message, signed by its node.
//!
//! Conserved: a grant names one amount for one actor, and its id is spent once ([`crate::spent`]). Nobody without the sender's key makes
//! one, and nobody changes one: the signature is over the bytes that travel.

use crate::error::Error;
use crate::session::Within;
use crate::text::Text;
use ed25519_dalek::{Signature, Signer as _, SigningKey, Verifier as _, VerifyingKey};
use mainspring::Pool;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest that a grant is valid. The record that it was spent is kept for much longer.
pub const LONGEST_VALIDITY: Duration = Duration::from_secs(60 * 60);

/// An amount of each component, as it travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Abstract operations.
    pub ops: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Tasks.
    pub spawn_count: u64,
    /// Channel operations.
    pub channel_ops: u64,
    /// File and network operations.
    pub syscalls: u64,
}

impl From<Pool> for Amount {
    fn from(pool: Pool) -> Self {
        let Pool { ops, memory, spawn_count, channel_ops, syscalls } = pool;
        Self { ops, memory, spawn_count, channel_ops, syscalls }
    }
}

impl From<Amount> for Pool {
    fn from(amount: Amount) -> Self {
        let Amount { ops, memory, spawn_count, channel_ops, syscalls } = amount;
        Self { ops, memory, spawn_count, channel_ops, syscalls }
    }
}

/// What a message carries for the one that handles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Unique among all grants.
    pub id: String,
    /// The node that gave it up, and signed it.
    pub from: String,
    /// The actor that may spend it.
    pub to: String,
    /// How much.
    pub amount: Amount,
    /// Until when, in milliseconds since 1970.
    pub expires_ms: u64,
    /// The two lives that it is between, if they know each other.
    pub within: Option<Within>,
}

/// What is left of a grant, said by the node that spent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The grant.
    pub id: String,
    /// Who spent it, as its record says: the node, its life and the attempt.
    pub by: String,
    /// What is left.
    pub rest: Amount,
}

/// Bytes and the signature over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// What is signed ([`Text`]).
    pub text: String,
    /// In hexadecimal digits.
    pub signature: String,
}

impl Signed {
    /// Both as they travel, in one header: each header costs a call more than its bytes.
    pub fn line(&self) -> String {
        [&self.signature, " ", &self.text].concat()
    }

    /// What travelled as this. Without a space there is no text, and then it is worth nothing.
    pub fn of_line(line: &str) -> Self {
        let (signature, text) = line.split_once(' ').unwrap_or((line, ""));
        Self { text: text.to_owned(), signature: signature.to_owned() }
    }
}

/// Why a grant or a receipt is worth nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Worthless {
    /// It is no grant or receipt at all.
    Malformed,
    /// Its signer is not known here.
    UnknownSigner,
    /// Its signature is not its signer's.
    Forged,
    /// It is for another actor, or about another grant.
    NotForThis,
    /// Its time is over, or is longer than any grant's.
    Expired,
    /// It was spent or taken back before.
    Spent,
    /// Its signer has more with this node than it may.
    OverLimit,
    /// It gives back more than was granted.
    TooMuch,
}

impl fmt::Display for Worthless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it cannot be read",
            Self::UnknownSigner => "its signer is not known here; add its key to the node's configuration",
            Self::Forged => "its signature is wrong",
            Self::NotForThis => "it is for something else",
            Self::Expired => "its time is over",
            Self::Spent => "it was spent before",
            Self::OverLimit => "its sender has as much with this node as it may",
            Self::TooMuch => "it gives back more than was granted",
        })
    }
}

impl std::error::Error for Worthless {}

/// A node's name and key.
#[derive(Debug)]
pub struct Identity {
    /// The node's name.
    pub name: String,
    key: SigningKey,
}

impl Identity {
    /// A node with this key. The secret is 32 random bytes.
    pub fn new(name: impl Into<String>, secret: &[u8; 32]) -> Self {
        Self { name: name.into(), key: SigningKey::from_bytes(secret) }
    }

    /// A node with a new key.
    pub fn generate(name: impl Into<String>) -> Result<Self, Error> {
        let mut secret = [0; 32];
        let random = std::fs::File::open("/dev/urandom");
        let read = random.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut secret));
        read.map_err(|cause| Error::Peer { who: "/dev/urandom", cause })?;
        Ok(Self::new(name, &secret))
    }

    /// What others check its signatures with.
    pub fn public(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    /// Signs.
    pub fn sign(&self, value: &impl Text) -> Signed {
        let text = value.write();
        let signature = hex(&self.key.sign(text.as_bytes()).to_bytes());
        Signed { text, signature }
    }
}

/// Whom a node believes, and how much each may have with it at once.
#[derive(Clone, Debug, Default)]
pub struct Trusted(HashMap<String, (VerifyingKey, Pool)>);

impl Trusted {
    /// Nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Believes `name`, whose public key this is, up to `limit` of what is not settled. Bytes that are no key are refused, and so are keys
    /// for which anybody can sign.
    pub fn believe(
        mut self,
        name: impl Into<String>,
        public: &[u8; 32],
        limit: Pool,
    ) -> Result<Self, Worthless> {
        let key = VerifyingKey::from_bytes(public).map_err(|_| Worthless::Malformed)?;
        if key.is_weak() {
            return Err(Worthless::Malformed);
        }
        self.0.insert(name.into(), (key, limit));
        Ok(self)
    }

    /// How much this node may have here at once.
    pub fn limit(&self, name: &str) -> Pool {
        self.0.get(name).map_or(Pool::ZERO, |(_, limit)| *limit)
    }

    fn verify(&self, name: &str, signed: &Signed) -> Result<(), Worthless> {
        let (key, _) = self.0.get(name).ok_or(Worthless::UnknownSigner)?;
        let bytes = unhex(&signed.signature).ok_or(Worthless::Malformed)?;
        let signature = Signature::from_slice(&bytes).map_err(|_| Worthless::Malformed)?;
        key.verify(signed.text.as_bytes(), &signature).map_err(|_| Worthless::Forged)
    }

    /// The grant, if it is worth something to `to` now. Whether it was spent before is not looked at.
    pub fn grant(&self, signed: &Signed, to: &str) -> Result<Grant, Worthless> {
        let grant: Grant = Text::read(&signed.text)?;
        if !is_id(&grant.id) {
            return Err(Worthless::Malformed);
        }
        self.verify(&grant.from, signed)?;
        Self::is_for(&grant, to)?;
        Ok(grant)
    }

    /// Whether a grant is for `to`, and its time is not over.
    pub(crate) fn is_for(grant: &Grant, to: &str) -> Result<(), Worthless> {
        if grant.to != to || !is_id(&grant.id) {
            return Err(Worthless::NotForThis);
        }
        let (now, longest) = (now_ms(), LONGEST_VALIDITY.as_millis() as u64);
        if grant.expires_ms <= now || grant.expires_ms > now + longest {
            return Err(Worthless::Expired);
        }
        Ok(())
    }

    /// What this node and `other` can compute, and nobody else.
    pub(crate) fn agree(&self, me: &Identity, other: &str) -> Result<[u8; 32], Worthless> {
        let (key, _) = self.0.get(other).ok_or(Worthless::UnknownSigner)?;
        let shared = (key.to_montgomery() * me.key.to_scalar()).to_bytes();
        // A key of small order agrees with everybody.
        if shared == [0; 32] { Err(Worthless::Malformed) } else { Ok(shared) }
    }

    /// What is left of `grant`, if this is a receipt for it.
    pub fn receipt(&self, signed: &Signed, grant: &Grant) -> Result<Receipt, Worthless> {
        let receipt: Receipt = Text::read(&signed.text)?;
        self.verify(receipt.by.split('#').next().unwrap_or_default(), signed)?;
        Self::is_about(&receipt, grant)?;
        Ok(receipt)
    }

    /// Whether a receipt is for this grant, and for no more than it.
    pub(crate) fn is_about(receipt: &Receipt, grant: &Grant) -> Result<(), Worthless> {
        if receipt.id != grant.id {
            return Err(Worthless::NotForThis);
        }
        let mut whole = Pool::from(grant.amount);
        whole.take(&receipt.rest.into()).map_err(|_| Worthless::TooMuch)
    }
}

/// An id is a key of a bucket, so it has no dots or spaces.
fn is_id(id: &str) -> bool {
    (8..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}

/// The bytes of hexadecimal digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Identity, Trusted) {
        let anna = Identity::new("anna", &[7; 32]);
        let trusted = Trusted::new().believe("anna", &anna.public(), Pool::AMPLE).expect("a key");
        (anna, trusted)
    }

    fn grant(ops: u64) -> Grant {
        Grant {
            id: "grant0001".into(),
            from: "anna".into(),
            to: "sum".into(),
            amount: Amount { ops, ..Amount::default() },
            expires_ms: now_ms() + 10_000,
            within: None,
        }
    }

    #[test]
    fn digits_are_read_as_they_were_written() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        assert_eq!((hex(&[0x0F, 0xA0]).as_str(), unhex("0FA0")), ("0fa0", Some(vec![0x0F, 0xA0])));
        for bad in ["0", "0g", "é", "+1"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_grant_that_was_changed_is_worth_nothing() {
        let (anna, trusted) = pair();
        let signed = anna.sign(&grant(10));
        assert_eq!(trusted.grant(&signed, "sum").map(|grant| grant.amount.ops), Ok(10));
        for at in 0..signed.text.len() {
            let mut bytes = signed.text.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let changed = Signed { text, signature: signed.signature.clone() };
            assert!(trusted.grant(&changed, "sum").is_err(), "{changed:?}");
        }
        for at in 0..signed.signature.len() {
            let mut signature = signed.signature.clone().into_bytes();
            signature[at] = if signature[at] == b'0' { b'1' } else { b'0' };
            let signature = String::from_utf8(signature).expect("digits");
            assert!(trusted.grant(&Signed { text: signed.text.clone(), signature }, "sum").is_err());
        }
    }

    #[test]
    fn a_grant_is_for_one_actor_from_a_known_node_for_a_time() {
        let (anna, trusted) = pair();
        let refused = |grant: Grant| trusted.grant(&anna.sign(&grant), "sum").expect_err("it is refused");
        assert_eq!(refused(Grant { to: "other".into(), ..grant(1) }), Worthless::NotForThis);
        assert_eq!(refused(Grant { from: "otto".into(), ..grant(1) }), Worthless::UnknownSigner);
        assert_eq!(refused(Grant { expires_ms: now_ms() - 1, ..grant(1) }), Worthless::Expired);
        assert_eq!(refused(Grant { expires_ms: u64::MAX, ..grant(1) }), Worthless::Expired);
        assert_eq!(refused(Grant { id: "a.b>*".into(), ..grant(1) }), Worthless::Malformed);
        let impostor = Identity::new("anna", &[8; 32]);
        assert_eq!(trusted.grant(&impostor.sign(&grant(1)), "sum"), Err(Worthless::Forged));
    }

    #[test]
    fn a_key_for_which_anybody_can_sign_is_refused() {
        // The neutral point: a signature with it says nothing of the text.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(Trusted::new().believe("anna", &neutral, Pool::AMPLE).is_err());
    }

    #[test]
    fn a_receipt_gives_back_at_most_what_was_granted() {
        let (anna, trusted) = pair();
        let receipt = |id: &str, ops| Receipt {
            id: id.into(),
            by: "anna#1/0".into(),
            rest: Amount { ops, ..Amount::default() },
        };
        let said = |receipt: &Receipt| {
            trusted.receipt(&anna.sign(receipt), &grant(10)).map(|receipt| receipt.rest.ops)
        };
        assert_eq!(said(&receipt("grant0001", 10)), Ok(10));
        assert_eq!(said(&receipt("grant0001", 11)), Err(Worthless::TooMuch));
        assert_eq!(said(&receipt("grant0002", 1)), Err(Worthless::NotForThis));
    }
}
