//! The policy that a host follows: in a file, so that it outlives this process and others may read
//! it. One that the configuration of the fabric has comes before the one that members hold among
//! themselves, which is kept for the time when the configuration has none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_api::placement::{Policy, PolicyFile, PolicyVersion, Stamped, VERSION_MAX};
use sluice_base::HostId;

use super::refused::Refused;
use super::told::Turns;
use crate::config::Plan;
use crate::sys::clock::wall_ms;
use crate::sys::log::say;
use crate::sys::run_dir;

/// Policies of this host.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// Policy that members hold among themselves: the newest.
    held: Stamped,
    /// Policy of the fabric's configuration.
    committed: Option<Stamped>,
    /// True if the file does not have the committed policy yet.
    is_unwritten: bool,
}

impl Policies {
    fn in_force(&self) -> &Stamped {
        self.committed.as_ref().unwrap_or(&self.held)
    }

    fn version(&self) -> u64 {
        self.in_force().stamp.version.max(self.held.stamp.version)
    }

    fn file(&self, host: &str) -> PolicyFile {
        let held = self.committed.is_some().then(|| self.held.clone());
        PolicyFile { host: host.to_owned(), stamped: self.in_force().clone(), held }
    }
}

/// The policy that holds here.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) host: String,
    own: u16,
    pub(super) run_dir: PathBuf,
    policies: Mutex<Policies>,
    /// Highest version that was known. It is read beside a write of the file, which may take long.
    highest: AtomicU64,
    /// Reason why an earlier process's policy could not be read. Shown until there is another
    /// policy.
    pub(super) lost: Mutex<Option<String>>,
    /// Policies of members that this host cannot apply.
    pub(super) refused: Mutex<BTreeMap<HostId, Refused>>,
    /// Turns of the threads that tell data.
    pub(super) turns: Turns,
    /// Member that has a newer policy.
    hint: Mutex<Option<HostId>>,
    hinted: Condvar,
}

impl Held {
    /// Loads the policy of a plan's host, as an earlier process left it.
    pub(crate) fn load(plan: &Plan) -> Self {
        let own = plan.fabric.as_ref().map_or(0, |fabric| fabric.own.0);
        Self::open(&plan.config.host.name, own, &plan.run_dir)
    }

    /// Loads the policy of the host of this name and number from its directory. A file that cannot
    /// be read is moved aside: a policy only affects speed, and members have it, too.
    pub(crate) fn open(host: &str, own: u16, run_dir: &Path) -> Self {
        let path = run_dir.join(run_dir::PLACEMENT_FILE);
        let (policies, lost) = match read(&path) {
            Ok(policies) => (policies, None),
            Err(why) => (Policies::default(), Some(put_aside(&path, &why))),
        };
        Self {
            host: host.to_owned(),
            own,
            run_dir: run_dir.to_owned(),
            highest: AtomicU64::new(policies.version()),
            policies: Mutex::new(policies),
            lost: Mutex::new(lost),
            refused: Mutex::default(),
            turns: Turns::default(),
            hint: Mutex::new(None),
            hinted: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Policies> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the policy that holds.
    pub(crate) fn now(&self) -> Stamped {
        self.lock().in_force().clone()
    }

    /// Returns true if the policy that holds is that of the fabric's configuration.
    pub(super) fn is_committed(&self) -> bool {
        self.lock().committed.is_some()
    }

    /// Returns the highest version that was known here.
    pub(crate) fn version(&self) -> u64 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Takes the policy of the fabric's configuration. Without one, that of members holds. Returns
    /// true if another policy holds.
    ///
    /// # Errors
    /// If it cannot be written; it holds until the process ends.
    pub(crate) fn commit(&self, committed: Option<&Stamped>) -> Result<bool, String> {
        let mut policies = self.lock();
        let is_new = policies.committed.as_ref() != committed;
        if is_new {
            policies.committed = committed.cloned();
            policies.is_unwritten = true;
            self.highest.fetch_max(policies.version(), Ordering::Relaxed);
            // What members hold does not matter any more.
            self.forget_others(&[]);
            self.hinted.notify_all();
        }
        if policies.is_unwritten {
            self.write(&policies)?;
            policies.is_unwritten = false;
        }
        Ok(is_new)
    }

    /// Sets another policy, with a version above the one known here.
    pub(super) fn set(&self, policy: Policy) -> Result<PolicyVersion, String> {
        policy.check()?;
        let mut policies = self.lock();
        let version = policies.held.stamp.version + 1;
        if version > VERSION_MAX {
            return Err(format!("there is no version above the one that holds, {VERSION_MAX}"));
        }
        let stamp = PolicyVersion { version, by: self.own, at_ms: wall_ms() };
        self.keep(&mut policies, Stamped { stamp, policy })?;
        Ok(stamp)
    }

    /// Offers another host's policy. Returns true if it holds here from now on, being above the
    /// present one. That of the fabric's configuration comes before any.
    pub(super) fn offer(&self, stamp: PolicyVersion, policy: Policy) -> Result<bool, String> {
        let mut policies = self.lock();
        if policies.committed.is_some() {
            return Ok(false);
        }
        if stamp <= policies.held.stamp {
            return Ok(false);
        }
        check(stamp)?;
        policy.check()?;
        self.keep(&mut policies, Stamped { stamp, policy })?;
        Ok(true)
    }

    /// Keeps a policy. The file comes first: an acknowledged policy must survive a crash.
    fn keep(&self, policies: &mut Policies, next: Stamped) -> Result<(), String> {
        let stamp = next.stamp;
        let next = Policies { held: next, ..Policies::default() };
        self.write(&next)?;
        self.highest.fetch_max(next.version(), Ordering::Relaxed);
        *policies = next;
        self.forget_up_to(stamp);
        self.hinted.notify_all();
        Ok(())
    }

    fn write(&self, policies: &Policies) -> Result<(), String> {
        let path = self.run_dir.join(run_dir::PLACEMENT_FILE);
        let kept = policies.file(&self.host);
        let text = serde_json::to_string(&kept).map_err(|error| error.to_string())?;
        run_dir::replace_for_good(&path, &text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Notes that a member has a newer policy than this host.
    pub(super) fn hint(&self, who: HostId) {
        let mut hint = self.hint.lock().unwrap_or_else(PoisonError::into_inner);
        *hint = Some(who);
        self.hinted.notify_all();
    }

    /// Waits for a hint, or until there is another policy here, but no longer than `most`.
    pub(super) fn wait(&self, most: Duration) -> Option<HostId> {
        let mut hint = self.hint.lock().unwrap_or_else(PoisonError::into_inner);
        if hint.is_none() {
            let waited = self.hinted.wait_timeout(hint, most);
            hint = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        hint.take()
    }
}

/// Checks that a version may have been set by a host. A number near the end of the range would
/// leave none for the next policy, on all hosts.
fn check(stamp: PolicyVersion) -> Result<(), String> {
    let PolicyVersion { version, by, .. } = stamp;
    if version > VERSION_MAX {
        return Err(format!(
            "it has version {version}, {VERSION_MAX} is the highest; remove {} where it holds \
             (it says that it was set at host {by}), and start control there anew",
            run_dir::PLACEMENT_FILE
        ));
    }
    Ok(())
}

/// Reads the policies of a file, or returns the default ones if there is no file.
fn read(path: &Path) -> Result<Policies, String> {
    match fs::read(path) {
        Ok(bytes) => {
            let kept: PolicyFile =
                serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            check(kept.stamped.stamp)?;
            Ok(match kept.held {
                Some(held) => Policies { held, committed: Some(kept.stamped), is_unwritten: false },
                None => Policies { held: kept.stamped, ..Policies::default() },
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Policies::default()),
        Err(error) => Err(error.to_string()),
    }
}

/// Moves a file aside that cannot be read. Returns the message for the operator.
fn put_aside(path: &Path, why: &str) -> String {
    let aside = path.with_extension("json.broken");
    let where_to = match fs::rename(path, &aside) {
        Ok(()) => format!("it is kept as {}", aside.display()),
        Err(error) => format!("it cannot be renamed: {error}"),
    };
    let name = run_dir::PLACEMENT_FILE;
    let text = format!(
        "{name} cannot be read: no policy holds here until a member tells one or one is set \
         ({why}; {where_to})"
    );
    say!("{text}");
    text
}
