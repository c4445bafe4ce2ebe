//! Certificates over time: reloading while the host runs, and the days that they have left.
//!
//! ```text
//!   files differ, and stay the same between two checks ──┐
//!   SIGHUP ──────────────────────────────────────────────┴──> load
//!                             usable: new connections use it; open ones continue
//!                             not usable: shown in the log and `fabric status`; the old one stays
//! ```
//!
//! An expired certificate stops nothing on this host: other members refuse the next connection, and
//! data forwards with its present entries.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::pki_types::CertificateDer;
use sluice_api::envelope::civil;
use sluice_api::fabric::{CertificateKind, CertificateRow, CertificateState, Certificates};
use sluice_base::Nanos;

use super::Fabric;
use super::identity::{AUTHORITY, CERTIFICATE, Identity, KEY, Validity, Wall, seconds};
use super::member::MemberRequest;
use crate::config::FabricPlan;
use crate::enroll::profile::serial;
use crate::enroll::{AUTHORITY_KEY, Files};
use crate::sys::clock;
use crate::sys::log::say;

/// Time between two checks of the files.
const EVERY: Nanos = Nanos::from_millis(2_000);
const DAY: i64 = 86_400;
/// Days before its end from which on a certificate is warned of.
const WARN_DAYS: i64 = 30;

/// Certificates of this host, and those seen of other members.
#[derive(Debug)]
pub(super) struct Trust {
    folder: PathBuf,
    own: String,
    wall: Wall,
    known: Mutex<Known>,
    /// Files with which the host started.
    began: Stamp,
    /// Held while files are loaded, so that the last ones read count.
    loading: Mutex<()>,
}

#[derive(Debug)]
struct Known {
    own: Validity,
    anchor: Validity,
    /// Reason why the present files were not accepted.
    refused: Option<String>,
    /// Validity and serial number of the certificate by name of the member.
    members: BTreeMap<String, (Validity, String)>,
}

impl Trust {
    /// Loads the certificates of a host.
    ///
    /// # Errors
    /// See [`Identity::load`].
    pub(super) fn open(plan: &FabricPlan, wall: Wall) -> anyhow::Result<(Self, Identity)> {
        let began = stamp(&plan.certificates);
        let identity = Identity::load(&plan.certificates, &plan.name, &wall)?;
        let (own, anchor) = (identity.own, identity.anchor);
        let known = Known { own, anchor, refused: None, members: BTreeMap::new() };
        let trust = Self {
            folder: plan.certificates.clone(),
            own: plan.name.clone(),
            wall,
            known: Mutex::new(known),
            began,
            loading: Mutex::new(()),
        };
        Ok((trust, identity))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the files anew and passes the result to `take`; unusable files change nothing.
    ///
    /// # Errors
    /// Reason why they are unusable.
    pub(super) fn reload(&self, take: impl FnOnce(Identity)) -> Result<(), String> {
        let _one_at_a_time = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        match Identity::load(&self.folder, &self.own, &self.wall) {
            Ok(identity) => {
                let mut known = self.known();
                known.refused = None;
                (known.own, known.anchor) = (identity.own, identity.anchor);
                // Released before the call: `take` may ask for the certificates.
                drop(known);
                let until = date(identity.own.until);
                let folder = self.folder.display();
                take(identity);
                say!(
                    "the certificates in {folder} are taken up, valid until {until}; connections \
                     of certificates that are trusted go on"
                );
                Ok(())
            }
            Err(error) => {
                let error = format!("{error:#}");
                say!(error: "certificates are not taken up, and those from before stay: {error}");
                self.known().refused = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Shows the reason why the certificates are not those of the fabric's configuration; `None` if
    /// they are.
    pub(super) fn complain(&self, why: Option<&str>) {
        self.known().refused = why.map(str::to_owned);
    }

    /// Notes the certificate that a member has shown.
    pub(super) fn shown(&self, member: &str, certificate: &CertificateDer<'_>) {
        if let (Some(validity), Some(serial)) = (Validity::of(certificate), serial(certificate)) {
            self.known().members.insert(member.to_owned(), (validity, serial));
        }
    }

    /// Returns the serial number of the certificate that a member has shown last.
    pub(super) fn serial_of(&self, member: &str) -> Option<String> {
        self.known().members.get(member).map(|(_, serial)| serial.clone())
    }

    /// Forgets the certificate of a host, which is no member any more.
    pub(super) fn forget(&self, member: &str) {
        self.known().members.remove(member);
    }

    /// Returns the validity of every known certificate.
    pub(super) fn certificates(&self) -> Certificates {
        let (now, known) = (seconds(&self.wall), self.known());
        let row = |kind, host: &str, validity| self.row(now, (kind, host), validity);
        let own = row(CertificateKind::Own, &self.own, known.own);
        let anchor = row(CertificateKind::Anchor, "", known.anchor);
        let members = known.members.iter();
        let members =
            members.map(|(host, (validity, _))| row(CertificateKind::Member, host, *validity));
        let rows = [own, anchor].into_iter().chain(members).collect();
        Certificates { rows, refused: known.refused.clone() }
    }

    fn row(
        &self,
        now: i64,
        (kind, host): (CertificateKind, &str),
        validity: Validity,
    ) -> CertificateRow {
        let days_left = (validity.until - now).div_euclid(DAY);
        let state = match () {
            () if now < validity.from => CertificateState::NotYet,
            () if now > validity.until => CertificateState::Expired,
            () if days_left < WARN_DAYS => CertificateState::Ending,
            () => CertificateState::Valid,
        };
        CertificateRow {
            kind,
            host: host.to_owned(),
            from: date(validity.from),
            until: date(validity.until),
            days_left,
            state,
            remedy: remedy(kind, state, host, &self.folder),
        }
    }

    /// Renews the certificate of this host if few days are left and it can: its files change, and
    /// are loaded as any others.
    fn renew(&self) {
        let Some(files) = Files::at(&self.folder) else { return };
        match files.renew_if_due(seconds(&self.wall)) {
            Ok(true) => say!("the certificate of {} is renewed", self.own),
            Ok(false) => {}
            Err(error) => say!(error: "the certificate of {} is not renewed: {error}", self.own),
        }
    }

    /// Logs the certificates that need attention.
    fn warn(&self) {
        for row in self.certificates().rows {
            let Some(remedy) = &row.remedy else { continue };
            match row.state {
                CertificateState::Expired | CertificateState::NotYet => {
                    say!(error: "{row}. {remedy}");
                }
                _ => say!(warn: "{row}. {remedy}"),
            }
        }
    }
}

/// Returns the remedy for a certificate; `None` if it needs none.
fn remedy(
    kind: CertificateKind,
    state: CertificateState,
    host: &str,
    folder: &Path,
) -> Option<String> {
    let is_made_by_command = folder.join(AUTHORITY_KEY).exists();
    let folder = folder.display();
    match (state, kind) {
        (CertificateState::Valid, _) => None,
        (CertificateState::NotYet, _) => Some("Is the clock of this host right?".to_owned()),
        (_, CertificateKind::Own) => {
            let over = match state {
                CertificateState::Expired => {
                    "Other members refuse this host, and its ports forward with what is known. "
                }
                _ => "",
            };
            Some(if is_made_by_command {
                format!(
                    "{over}This host renews it by itself, and its log says why it could not; \
                     `sluice fabric rotate-key` makes another one now."
                )
            } else {
                format!(
                    "{over}Make another with `sluice fabric cert --replace --out DIR {host}` and \
                     copy DIR/{host} to {folder}: it is taken up while the host runs."
                )
            })
        }
        (_, CertificateKind::Member) if is_made_by_command => {
            Some(format!("{host} renews it by itself while it runs; is it up?"))
        }
        (_, CertificateKind::Anchor) if is_made_by_command => {
            Some("`sluice fabric rotate-ca` makes another authority, without a break.".to_owned())
        }
        (_, CertificateKind::Member) => Some(format!("Make another one for {host}.")),
        (_, CertificateKind::Anchor) => Some(
            "Make another authority in a new folder with `sluice fabric cert`, append its ca.pem \
             to that of every host, then replace the hosts' certificates."
                .to_owned(),
        ),
    }
}

/// Formats year, month and day, in UTC.
fn date(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    format!("{year:04}-{month:02}-{day:02}")
}

/// Stamp of the files: device, inode, size and time of the last change of each.
type Stamp = [Option<(u64, u64, u64, i64, i64)>; 3];

fn stamp(folder: &Path) -> Stamp {
    [AUTHORITY, CERTIFICATE, KEY].map(|name| {
        let seen = std::fs::metadata(folder.join(name)).ok()?;
        Some((seen.dev(), seen.ino(), seen.size(), seen.mtime(), seen.mtime_nsec()))
    })
}

/// Detects new files: they differ from those loaded, and are the same at two checks, so that files
/// which are written one after the other are loaded together.
#[derive(Debug)]
struct Settled {
    loaded: Stamp,
    last: Stamp,
}

impl Settled {
    fn look(&mut self, now: Stamp) -> bool {
        let is_new = now != self.loaded && now == self.last;
        self.last = now;
        if is_new {
            self.loaded = now;
        }
        is_new
    }
}

/// Time of the last warning, by the wall clock.
#[derive(Debug, Default)]
struct Daily(Option<i64>);

impl Daily {
    /// Returns true if a warning is due: at first, once a day, and after the clock was set back.
    fn is_due(&mut self, now: i64) -> bool {
        let is_due = self.0.is_none_or(|last| now - last >= DAY || now < last);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// Checks the files for as long as the process lives.
pub(super) fn watch(fabric: &Fabric) {
    let trust = &fabric.trust;
    let mut settled = Settled { loaded: trust.began, last: trust.began };
    let mut daily = Daily::default();
    loop {
        if daily.is_due(seconds(&trust.wall)) {
            trust.renew();
            trust.warn();
        }
        clock::sleep(EVERY);
        if settled.look(stamp(&trust.folder)) {
            // The reason is in the log.
            _ = fabric.reload_certificates();
        }
    }
}

impl Fabric {
    /// Loads the certificates again, for new connections. Those of authorities that are not trusted
    /// any more end.
    ///
    /// # Errors
    /// Reason why the files are unusable; those from before stay.
    pub(crate) fn reload_certificates(&self) -> Result<(), String> {
        self.trust.reload(|identity| self.ask(MemberRequest::Identity(Box::new(identity))))
    }

    /// Believes the certificates with these serial numbers no more. Their connections end.
    pub(crate) fn revoke(&self, serials: BTreeSet<String>) {
        self.ask(MemberRequest::Revoked(serials));
    }

    /// Returns the serial number of the certificate that a member has shown last.
    pub(crate) fn serial_of(&self, member: &str) -> Option<String> {
        self.trust.serial_of(member)
    }

    /// Shows the reason why the certificates are not those of the fabric's configuration; `None` if
    /// they are.
    pub(crate) fn complain_of_trust(&self, why: Option<&str>) {
        self.trust.complain(why);
    }
}

#[cfg(test)]
mod tests;
