//! Trust of a fabric that is made by commands: its authority, one-time tokens, and the exchange by
//! which a host becomes a member.
//!
//! ```text
//!   new host                                        member, port [join_port]
//!      │ TCP, TLS 1.3 ────────────────────────────────> │
//!      │ <─────────── certificate of the member, authorities │
//!      │ one of them has the fingerprint in the token,  │
//!      │ and has signed the certificate: go on          │
//!      │ {name, VTEP, address, secret of the token,     │
//!      │  request for a certificate} ─────────────────> │ parse, check: [Joiner::parse]
//!      │                                                │ token, name, VTEP: [Enroll::admit],
//!      │                                                │   which makes it a member
//!      │                                                │ sign: [Authority::sign]
//!      │ <── {certificate, authorities, authority's key,│
//!      │      fabric, number, members}  or  {refused}   │
//!      │ check, write: [Files::install]                 │
//! ```
//!
//! | file | content |
//! |---|---|
//! | `token` | one-time permissions, and the records of them that members keep |
//! | `request` | requests for certificates, and what they may ask for |
//! | `profile`, `authority`, `fingerprint` | form of certificates; who signs them |
//! | `credentials`, `files` | what a host has to have, and its place on the disk |
//! | `messages`, `refusal` | the exchange on the wire |
//! | `client`, `pin` | the new host, and how it knows the member |
//! | `server`, `slots`, `timed` | the member, and its limits |
//! | `standing`, `inquiry` | a member that is alone asks how it stands: messages, and its side |
//!
//! *The member first.* The secret of a token is sent only after the member has shown a certificate
//! of the authority in the token, and goes to nobody in between. *A lost answer.* A host that asks
//! again with the same key and token gets its answer again. *The key of the authority* is part of
//! the answer, so that every member can let hosts in: a member's root is the fabric's root.
//!
//! *A host that was away* when it was evicted finds nobody who speaks to it. It asks members at the
//! same port how it stands, and shows its certificate: in TLS, so that a stranger, who has none of
//! this fabric's authorities, gets no answer. A revoked one counts: it proves who asks, no more.
//!
//! A port of its own keeps sessions between members strictly authenticated in both directions: on
//! the fabric's port nobody speaks who has no certificate.
//!
//! Time and the credentials' clock are arguments; keys and secrets are random bytes of the kernel.

mod authority;
mod client;
mod credentials;
mod files;
mod fingerprint;
mod inquiry;
mod messages;
mod pin;
pub(crate) mod profile;
mod refusal;
mod request;
mod server;
mod slots;
mod standing;
mod timed;
mod token;

use std::sync::Arc;

use rustls::time_provider::TimeProvider;

pub use self::authority::{Authority, AuthorityError, AuthorityPem};
pub use self::client::{Applicant, JoinError, Joined, join};
pub(crate) use self::credentials::split;
pub use self::credentials::{
    AUTHORITIES_MAX, Credentials, CredentialsError, HOST_DAYS, JoinKey, RENEWAL_DAYS,
};
pub(crate) use self::files::{AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY};
pub use self::files::{Files, FilesError};
pub use self::fingerprint::Fingerprint;
pub(crate) use self::inquiry::{Inquirer, InquiryError, Known};
pub use self::messages::{FORMAT, Joiner, MemberAddress, fuzz};
pub(crate) use self::profile::Validity;
pub use self::refusal::{Refused, RefusedKind};
pub use self::request::{RequestError, SigningRequest};
pub use self::server::{Admitted, Enroll, JoinListener, ListenError};
pub use self::standing::{Asker, Eviction, Standing, StandingAnswer};
pub(crate) use self::token::digits;
pub use self::token::{
    Redemption, Token, TokenError, TokenFormatError, TokenId, TokenRecord, TokenSecret, TokenUse,
    VALID_MS, VALID_MS_MAX, redeem,
};

/// Wall clock, which decides when certificates begin and end.
pub type Wall = Arc<dyn TimeProvider>;

/// Protocol in TLS (ALPN, RFC 7301), so that a listener of another kind refuses.
const PROTOCOL: &[u8] = b"sluice-join";

/// Protocol of a member that asks how it stands. A member without it ends the handshake, and
/// logs nothing.
const STANDING: &[u8] = b"sluice-standing";

/// Returns the port at which a member lets hosts in, next to that of the fabric's sessions; `None`
/// above the last port.
#[must_use]
pub const fn join_port(fabric_port: u16) -> Option<u16> {
    fabric_port.checked_add(1)
}

#[cfg(test)]
mod tests;
