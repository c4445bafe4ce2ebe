//! One-time tokens: permission for one host to join.
//!
//! ```text
//!   sluice1-xxxxxxxx-xxxxxxxx-xxxxxxxx-xxxxxxxx-xxxxxxxx-xxxxxxxx-xxxxxxxx
//!           ^ 56 digits of base 32 (Crockford's): 35 bytes
//!             secret [u8; 16]       random; the permission itself
//!             authority [u8; 16]    first bytes of the fingerprint of the fabric's authority
//!             check [u8; 3]         first bytes of the SHA-256 of the rest
//! ```
//!
//! The check tells a mistyped token from a wrong one, before anything is sent. The fingerprint lets
//! the new host authenticate the member that it speaks to, without a file. Members keep the keyed
//! hash of the secret only ([`TokenRecord`]), which gives nobody the permission.
//!
//! A token is bound to the key of the host that used it first: a host whose answer was lost asks
//! again with the same key and token, and gets the same answer. Any other host is refused.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

use super::fingerprint::{Fingerprint, PREFIX_SIZE, hex};

/// Validity of a token unless another is asked for: an hour.
pub const VALID_MS: u64 = 3_600_000;
/// Longest validity of a token: a week.
pub const VALID_MS_MAX: u64 = 7 * 24 * 3_600_000;

const SECRET_SIZE: usize = 16;
const CHECK_SIZE: usize = 3;
const SIZE: usize = SECRET_SIZE + PREFIX_SIZE + CHECK_SIZE;
/// Digits of a token: each stands for five bits.
const DIGITS: usize = SIZE * 8 / 5;
const _: () = assert!(SIZE * 8 == DIGITS * 5, "no digit is partly used");
/// Digits of a group, for the eye.
const GROUP: usize = 8;
/// Bytes of a hash that name its token.
const ID_SIZE: usize = 4;
/// Longest text that is looked at.
const TEXT_SIZE_MAX: usize = 256;

const PREFIX: &str = "sluice1-";
/// Crockford's alphabet, without `i`, `l`, `o` and `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Key of the hash, so that it has no meaning elsewhere.
const HASH_KEY: &[u8] = b"sluice join token 1";

/// Reason why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFormatError {
    /// It does not begin as a token.
    #[error("it is no token; copy all that `sluice fabric token` printed, from `sluice1-` on")]
    Prefix,
    /// A character stands for nothing.
    #[error("the token has `{0}` in it, which no token has; copy it again")]
    Character(char),
    /// It has another length.
    #[error("the token has {0} digits, and {DIGITS} belong to it; copy it again")]
    Length(usize),
    /// The check does not fit.
    #[error("the token is mistyped: its check does not fit; copy it again")]
    Check,
}

/// Reason why a token does not let a host join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No record fits it.
    #[error("the fabric does not know this token")]
    Wrong,
    /// Another host has used it.
    #[error("the token was used already, and lets one host join")]
    Used,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
}

/// Secret of a token: the permission to join.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSecret([u8; SECRET_SIZE]);

impl TokenSecret {
    /// Returns the keyed hash, which may be stored.
    fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(hmac::sign(&hash_key(), &self.0).as_ref());
        hash
    }

    /// Returns the identifier of the token, which is not secret.
    #[must_use]
    pub fn id(&self) -> TokenId {
        let mut id = [0; ID_SIZE];
        id.copy_from_slice(&self.hash()[..ID_SIZE]);
        TokenId(u32::from_be_bytes(id))
    }

    /// Returns its hexadecimal digits, for the exchange alone.
    pub(super) fn digits(&self) -> String {
        digits(&self.0)
    }

    /// Reads hexadecimal digits.
    pub(super) fn from_digits(text: &str) -> Option<Self> {
        let mut all = [0; SECRET_SIZE];
        hex(text, &mut all)?;
        Some(Self(all))
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TokenSecret({})", self.id())
    }
}

/// Identifier of a token in records and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenId(u32);

impl fmt::Display for TokenId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:08x}", self.0)
    }
}

/// A token, as one host hands it to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    secret: TokenSecret,
    authority: [u8; PREFIX_SIZE],
}

impl Token {
    /// Makes a token for the fabric with this authority, and the record that members keep. `now_ms`
    /// and the end of its time are in milliseconds since 1970.
    ///
    /// # Errors
    /// If the kernel has no random bytes.
    pub fn new(
        authority: Fingerprint,
        now_ms: u64,
        valid_ms: u64,
    ) -> Result<(Self, TokenRecord), ring::error::Unspecified> {
        let mut secret = [0; SECRET_SIZE];
        SystemRandom::new().fill(&mut secret)?;
        let secret = TokenSecret(secret);
        let record = TokenRecord {
            id: secret.id(),
            hash: secret.hash(),
            expires_ms: now_ms.saturating_add(valid_ms.min(VALID_MS_MAX)),
            used: None,
        };
        Ok((Self { secret, authority: authority.prefix() }, record))
    }

    /// Returns its secret.
    #[must_use]
    pub const fn secret(&self) -> &TokenSecret {
        &self.secret
    }

    /// Returns true if it is of the fabric with this authority.
    #[must_use]
    pub fn is_of(&self, authority: &Fingerprint) -> bool {
        authority.prefix() == self.authority
    }

    /// Returns the text that is shown once.
    #[must_use]
    pub fn text(&self) -> String {
        let mut bytes = [0; SIZE];
        bytes[..SECRET_SIZE].copy_from_slice(&self.secret.0);
        bytes[SECRET_SIZE..SIZE - CHECK_SIZE].copy_from_slice(&self.authority);
        let check = check(&bytes[..SIZE - CHECK_SIZE]);
        bytes[SIZE - CHECK_SIZE..].copy_from_slice(&check);
        let mut text = PREFIX.to_owned();
        for (at, digit) in encode(&bytes).enumerate() {
            if at > 0 && at % GROUP == 0 {
                text.push('-');
            }
            text.push(char::from(digit));
        }
        text
    }
}

impl FromStr for Token {
    type Err = TokenFormatError;

    /// Reads a token, in letters of either case. Groups may be cut differently; `o` counts as `0`,
    /// `i` and `l` as `1`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let is_ours =
            text.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
        if !is_ours || text.len() > TEXT_SIZE_MAX {
            return Err(TokenFormatError::Prefix);
        }
        let digits = text[PREFIX.len()..].chars().filter(|c| *c != '-' && !c.is_whitespace());
        let values: Vec<u8> = digits.map(value).collect::<Result<_, _>>()?;
        if values.len() != DIGITS {
            return Err(TokenFormatError::Length(values.len()));
        }
        let bytes = decode(&values);
        let (rest, end) = bytes.split_at(SIZE - CHECK_SIZE);
        if end != check(rest) {
            return Err(TokenFormatError::Check);
        }
        let (mut secret, mut authority) = ([0; SECRET_SIZE], [0; PREFIX_SIZE]);
        secret.copy_from_slice(&rest[..SECRET_SIZE]);
        authority.copy_from_slice(&rest[SECRET_SIZE..]);
        Ok(Self { secret: TokenSecret(secret), authority })
    }
}

/// What the members of a fabric know of a token. It may be stored and replicated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Identifier of the token.
    pub id: TokenId,
    /// Keyed hash of its secret.
    #[serde(with = "hash_digits")]
    pub hash: [u8; 32],
    /// End of its time, in milliseconds since 1970.
    pub expires_ms: u64,
    /// Its use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<TokenUse>,
}

/// Use of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    /// Host that joined with it.
    pub host: String,
    /// Key of that host.
    pub key: Fingerprint,
}

/// Meaning of a token that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redemption {
    /// It was never used: the host is to be added, and the use recorded, in one transaction.
    First,
    /// The same host has used it, and asks again: its answer was lost.
    Again,
}

impl TokenRecord {
    /// Returns true if this is the record of the token; in constant time.
    #[must_use]
    pub fn matches(&self, secret: &TokenSecret) -> bool {
        hmac::verify(&hash_key(), &secret.0, &self.hash).is_ok()
    }

    /// Judges a token in the hands of the host `host` with key `key`.
    ///
    /// # Errors
    /// If the token is another, was used by another host, or its time is over. A host that has used
    /// it in time may ask again later.
    pub fn redeem(
        &self,
        secret: &TokenSecret,
        (host, key): (&str, Fingerprint),
        now_ms: u64,
    ) -> Result<Redemption, TokenError> {
        if !self.matches(secret) {
            return Err(TokenError::Wrong);
        }
        match &self.used {
            Some(used) if used.host == host && used.key == key => Ok(Redemption::Again),
            Some(_) => Err(TokenError::Used),
            None if self.is_over(now_ms) => Err(TokenError::Expired),
            None => Ok(Redemption::First),
        }
    }

    /// Returns true if its time is over.
    #[must_use]
    pub const fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.expires_ms
    }
}

/// Judges a token by all records.
///
/// # Errors
/// See [`TokenRecord::redeem`].
pub fn redeem<'a>(
    records: impl IntoIterator<Item = &'a TokenRecord>,
    secret: &TokenSecret,
    who: (&str, Fingerprint),
    now_ms: u64,
) -> Result<(TokenId, Redemption), TokenError> {
    let found = records.into_iter().find(|record| record.matches(secret));
    let record = found.ok_or(TokenError::Wrong)?;
    record.redeem(secret, who, now_ms).map(|redemption| (record.id, redemption))
}

fn hash_key() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, HASH_KEY)
}

fn check(rest: &[u8]) -> [u8; CHECK_SIZE] {
    let mut check = [0; CHECK_SIZE];
    check.copy_from_slice(&digest(&SHA256, rest).as_ref()[..CHECK_SIZE]);
    check
}

/// Returns the value of a digit.
fn value(digit: char) -> Result<u8, TokenFormatError> {
    let plain = match digit.to_ascii_lowercase() {
        'o' => '0',
        'i' | 'l' => '1',
        other => other,
    };
    let at = ALPHABET.iter().position(|letter| char::from(*letter) == plain);
    at.and_then(|at| u8::try_from(at).ok()).ok_or(TokenFormatError::Character(digit))
}

/// Returns the digits of bytes, eight for every five.
fn encode(bytes: &[u8; SIZE]) -> impl Iterator<Item = u8> {
    bytes.chunks_exact(5).flat_map(|five| {
        let bits = five.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        (0..8).rev().map(move |digit| ALPHABET[(bits >> (5 * digit) & 31) as usize])
    })
}

fn decode(values: &[u8]) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    for (eight, five) in values.chunks_exact(8).zip(bytes.chunks_exact_mut(5)) {
        let bits = eight.iter().fold(0_u64, |bits, value| bits << 5 | u64::from(*value));
        five.copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    bytes
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn digits(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}

/// A hash as hexadecimal digits.
mod hash_digits {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(hash: &[u8; 32], out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&super::digits(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let mut hash = [0; 32];
        super::hex(&text, &mut hash).ok_or_else(|| D::Error::custom("a hash is 64 digits"))?;
        Ok(hash)
    }
}

#[cfg(test)]
mod tests;
