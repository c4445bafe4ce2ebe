//! Authorities at this member: its files follow the fabric's configuration, and it has a say before
//! each step in the replacement of an authority.
//!
//! ```text
//!   operation           before it, each member has     after it, each member
//!   add_authority       the key of the new one         believes both
//!   sign_by             believed both                  has a certificate of the new one
//!   remove_authority    a certificate of the new one   believes the new one alone
//!   abandon_authority   nothing                        has no key of the new one
//! ```
//!
//! The files follow what is committed: at each change, at the start, and again before each vote, so
//! that a host which was killed between two steps catches up, and a vote says what is on the disk.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use sluice_api::fabric_config::{AuthorityEntry, Trust, short};

use super::setup::now_s;
use crate::enroll::{
    Authority, AuthorityPem, Credentials, CredentialsError, Files, Fingerprint, JoinListener, split,
};
use crate::fabric::{Fabric, Wall};
use crate::sys::log::say;

/// Authorities of this member.
#[derive(Debug)]
pub(super) struct Keeper {
    files: Files,
    wall: Wall,
    /// Users of the credentials, once they run.
    users: OnceLock<(Fabric, JoinListener)>,
    /// Held while files change.
    settled: Mutex<Settled>,
}

/// Result of the last time that the files followed the configuration.
#[derive(Debug, Default)]
struct Settled {
    trust: Trust,
    has_failed: bool,
    /// Fingerprint of an authority that was given up, until its key is deleted.
    abandoned: Option<String>,
}

/// The authority that is to follow, as members give it to each other.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Handed {
    /// The certificate in PEM.
    certificate: String,
    /// The key in PEM: secret.
    key: String,
}

impl Handed {
    pub(super) fn new(authority: &Authority) -> Self {
        let AuthorityPem { certificate, key } = authority.pem().clone();
        Self { certificate, key }
    }
}

/// Returns an authority as the configuration has it.
pub(super) fn entry(authority: &Authority) -> AuthorityEntry {
    AuthorityEntry {
        fingerprint: authority.fingerprint().to_string(),
        certificate: authority.pem().certificate.clone(),
    }
}

impl Keeper {
    pub(super) fn new(files: Files, wall: Wall) -> Self {
        Self { files, wall, users: OnceLock::new(), settled: Mutex::default() }
    }

    /// Notes the users of the credentials: they learn of changes from now on.
    pub(super) fn serve(&self, fabric: Fabric, joins: JoinListener) {
        _ = self.users.set((fabric, joins));
    }

    fn lock(&self) -> MutexGuard<'_, Settled> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the files follow the configuration.
    ///
    /// # Errors
    /// Reason why they do not. The host believes all that the configuration names, if its disk can
    /// be written.
    pub(super) fn settle(&self, trust: &Trust) -> Result<(), String> {
        let mut settled = self.lock();
        settled.trust.clone_from(trust);
        if let Some((fabric, _)) = self.users.get() {
            fabric.revoke(trust.revoked.keys().cloned().collect());
        }
        let result = self.follow(trust).and_then(|()| self.forget_abandoned(&mut settled));
        let has_failed = std::mem::replace(&mut settled.has_failed, result.is_err());
        if let Err(why) = &result {
            say!(error: "the authorities of the fabric are not in force here: {why}");
        }
        if let Some((fabric, _)) = self.users.get().filter(|_| has_failed || result.is_err()) {
            fabric.complain_of_trust(result.as_ref().err().map(String::as_str));
        }
        result
    }

    /// Has the files follow the configuration if it names other certificates than the last time, or
    /// if the files did not follow then: most changes name the same ones.
    pub(super) fn settle_changed(&self, trust: &Trust) {
        let is_settled = {
            let settled = self.lock();
            settled.trust == *trust && !settled.has_failed && settled.abandoned.is_none()
        };
        if !is_settled {
            // Its failure is shown, and keeps nothing else from being in force.
            _ = self.settle(trust);
        }
    }

    fn follow(&self, trust: &Trust) -> Result<(), String> {
        let now = now_s(&self.wall);
        let Some(signs) = trust.authorities.first() else { return Ok(()) };
        let signs = Fingerprint::of_pem(signs).ok_or("the authority that signs is unusable")?;
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let next = self.files.next_authority().map_err(|error| words(&error))?;
        let next = next.filter(|next| next.fingerprint() == signs);
        let present = self.files.load(now).map_err(|error| words(&error))?;
        let change = |present: &Credentials| followed(present, trust, next.as_ref(), now);
        let wanted = change(&present).map_err(|error| words(&error))?;
        if wanted != present {
            self.files.update(now, change).map_err(|error| words(&error))?;
            self.show()?;
        }
        let own = wanted.authority().map_err(|error| words(&error))?;
        if own.fingerprint() != signs {
            return Err(format!(
                "this host has no key of authority {}, which signs now; `sluice fabric rotate-ca` \
                 at another member gives it",
                short(&signs.to_string())
            ));
        }
        if next.is_some() {
            self.files.forget_next().map_err(|error| words(&error))?;
        }
        Ok(())
    }

    /// Notes an authority that was about to follow and was given up: its key is deleted the next
    /// time that the files follow the configuration.
    pub(super) fn abandon(&self, fingerprint: String) {
        self.lock().abandoned = Some(fingerprint);
    }

    /// Deletes the key of an authority that was about to follow and was given up, so that no later
    /// replacement begins with it.
    fn forget_abandoned(&self, settled: &mut Settled) -> Result<(), String> {
        let Some(gone) = &settled.abandoned else { return Ok(()) };
        let kept = self.files.next_authority().map_err(|error| error.to_string())?;
        if kept.is_some_and(|kept| kept.fingerprint().to_string() == *gone) {
            self.files.forget_next().map_err(|error| error.to_string())?;
        }
        settled.abandoned = None;
        Ok(())
    }

    /// Has the users of the credentials take those on the disk.
    fn show(&self) -> Result<(), String> {
        let Some((fabric, _)) = self.users.get() else { return Ok(()) };
        fabric.reload_certificates()?;
        self.show_joins()
    }

    /// Shows hosts that join the certificate on the disk.
    pub(super) fn show_joins(&self) -> Result<(), String> {
        let Some((_, joins)) = self.users.get() else { return Ok(()) };
        let present = self.files.load(now_s(&self.wall)).map_err(|error| error.to_string())?;
        joins.set_credentials(&present).map_err(|error| error.to_string())
    }

    /// Gives this host another key, and a certificate for it.
    pub(super) fn rotate_key(&self) -> Result<(), String> {
        let _settled = self.lock();
        let now = now_s(&self.wall);
        let rekeyed = self.files.update(now, |present| present.rekeyed(now));
        rekeyed.map_err(|error| error.to_string())?;
        self.show()
    }

    /// Checks a step from one set of authorities to the next one.
    ///
    /// # Errors
    /// Reason of this host against it, with the remedy.
    pub(super) fn check(&self, from: &Trust, to: &Trust) -> Result<(), String> {
        // What was committed before may have met a full disk.
        self.settle(from)?;
        let _settled = self.lock();
        if let Some(next) = to.next.as_ref().filter(|_| from.next != to.next) {
            self.holds(next)?;
        }
        let signs = |trust: &Trust| trust.authorities.first().cloned();
        if let Some(certificate) = signs(to).filter(|_| signs(from) != signs(to)) {
            let fingerprint = Fingerprint::of_pem(&certificate).map(|print| print.to_string());
            let fingerprint = fingerprint.ok_or("the authority that would sign is unusable")?;
            self.holds(&AuthorityEntry { fingerprint, certificate })?;
        }
        let goes = |authority: &String| !to.trusted().contains(authority);
        if from.trusted().iter().any(goes) {
            let now = now_s(&self.wall);
            let present = self.files.load(now).map_err(|error| error.to_string())?;
            present.trusting(to.trusted(), now).map_err(|_| {
                "its certificate, or the key with which it signs, is still of the authority that \
                 would not be believed any more; run `sluice fabric rotate-ca` again"
            })?;
        }
        Ok(())
    }

    /// Checks that this host has the key of an authority.
    fn holds(&self, authority: &AuthorityEntry) -> Result<(), String> {
        let is_own = Fingerprint::of_pem(&authority.certificate)
            .is_some_and(|print| print.to_string() == authority.fingerprint);
        if !is_own {
            return Err("the fingerprint is not that of the authority's certificate".to_owned());
        }
        match self.held(&authority.fingerprint) {
            Ok(held) if held.pem().certificate == authority.certificate => Ok(()),
            Ok(_) => Err("it has another certificate of that authority".to_owned()),
            Err(why) => Err(why),
        }
    }

    /// Returns an authority whose key this host has.
    ///
    /// # Errors
    /// If it does not have it, with the remedy.
    pub(super) fn held(&self, fingerprint: &str) -> Result<Authority, String> {
        let next = self.files.next_authority().map_err(|error| error.to_string())?;
        let own = self.files.load(now_s(&self.wall)).map_err(|error| error.to_string())?;
        let all = next.into_iter().chain(own.authority().ok());
        let mut held = all.filter(|authority| authority.fingerprint().to_string() == fingerprint);
        held.next().ok_or_else(|| {
            format!(
                "it does not have the key of authority {}; run `sluice fabric rotate-ca` at \
                 another member, which gives it",
                short(fingerprint)
            )
        })
    }

    /// Returns the authority that is to follow: one that was made before and is not in use yet, or
    /// a new one, which is on the disk then.
    ///
    /// # Errors
    /// If it cannot be made or written.
    pub(super) fn next(&self) -> Result<Authority, String> {
        let _settled = self.lock();
        if let Some(next) = self.files.next_authority().map_err(|error| error.to_string())? {
            return Ok(next);
        }
        let made = Authority::create(now_s(&self.wall)).map_err(|error| error.to_string())?;
        self.files.keep_next(made.pem()).map_err(|error| error.to_string())?;
        Ok(made)
    }

    /// Takes the authority that is to follow, from a member.
    ///
    /// # Errors
    /// Reason why it is not kept.
    pub(super) fn take(&self, body: &[u8]) -> Result<(), String> {
        let handed: Handed = serde_json::from_slice(body).map_err(|_| "it is no authority")?;
        let pem = AuthorityPem { certificate: handed.certificate, key: handed.key };
        let authority = Authority::read(&pem).map_err(|error| error.to_string())?;
        let settled = self.lock();
        let fingerprint = authority.fingerprint().to_string();
        let other = settled.trust.next.as_ref().filter(|next| next.fingerprint != fingerprint);
        if let Some(other) = other {
            return Err(format!(
                "authority {} is about to follow already; run `sluice fabric rotate-ca` again",
                other.short()
            ));
        }
        if self.held(&fingerprint).is_ok() {
            return Ok(());
        }
        self.files.keep_next(&pem).map_err(|error| error.to_string())
    }
}

/// Returns credentials that follow a configuration as far as they can: `next` is the authority that
/// signs, if the host has its key.
fn followed(
    present: &Credentials,
    trust: &Trust,
    next: Option<&Authority>,
    now: i64,
) -> Result<Credentials, CredentialsError> {
    let wanted = split(&trust.trusted().concat());
    let mut all = wanted.clone();
    let others = present.authorities().iter().filter(|known| !wanted.contains(known));
    all.extend(others.cloned());
    let mut credentials = present.trusting(all, now)?;
    if let Some(next) = next
        && credentials.authority().ok().map(|own| own.fingerprint()) != Some(next.fingerprint())
    {
        credentials = credentials.reissued_by(next.pem(), now)?;
    }
    // Without the new key the host keeps the old authority: it would not believe itself.
    Ok(credentials.trusting(wanted, now).unwrap_or(credentials))
}

#[cfg(test)]
mod tests;
