//! The policy that a host holds: in a file, so that it outlives this process and others may read
//! it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_api::placement::{Policy, PolicyFile, PolicyVersion, Stamped, VERSION_MAX};
use sluice_base::HostId;

use super::refused::Refused;
use super::told::Turns;
use crate::config::Plan;
use crate::sys::log::say;
use crate::sys::run_dir;

/// The policy that holds here.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) host: String,
    own: u16,
    pub(super) run_dir: PathBuf,
    stamped: Mutex<Stamped>,
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
        let (stamped, lost) = match read(&path) {
            Ok(stamped) => (stamped, None),
            Err(why) => (Stamped::default(), Some(put_aside(&path, &why))),
        };
        Self {
            host: host.to_owned(),
            own,
            run_dir: run_dir.to_owned(),
            stamped: Mutex::new(stamped),
            lost: Mutex::new(lost),
            refused: Mutex::default(),
            turns: Turns::default(),
            hint: Mutex::new(None),
            hinted: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stamped> {
        self.stamped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the policy that holds.
    pub(crate) fn now(&self) -> Stamped {
        self.lock().clone()
    }

    /// Sets another policy, with a version above the one known here.
    pub(super) fn set(&self, policy: Policy) -> Result<PolicyVersion, String> {
        policy.check()?;
        let mut stamped = self.lock();
        let version = stamped.stamp.version + 1;
        if version > VERSION_MAX {
            return Err(format!("there is no version above the one that holds, {VERSION_MAX}"));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let stamp = PolicyVersion { version, by: self.own, at_ms };
        self.keep(&mut stamped, Stamped { stamp, policy })?;
        Ok(stamp)
    }

    /// Offers another host's policy. Returns true if it holds here from now on, being above the
    /// present one.
    pub(super) fn offer(&self, stamp: PolicyVersion, policy: Policy) -> Result<bool, String> {
        let mut stamped = self.lock();
        if stamp <= stamped.stamp {
            return Ok(false);
        }
        check(stamp)?;
        policy.check()?;
        self.keep(&mut stamped, Stamped { stamp, policy })?;
        Ok(true)
    }

    /// Keeps a policy. The file comes first: an acknowledged policy must survive a crash.
    fn keep(&self, stamped: &mut Stamped, next: Stamped) -> Result<(), String> {
        let path = self.run_dir.join(run_dir::PLACEMENT_FILE);
        let kept = PolicyFile { host: self.host.clone(), stamped: next.clone() };
        let text = serde_json::to_string(&kept).map_err(|error| error.to_string())?;
        run_dir::replace_for_good(&path, &text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        *stamped = next;
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.forget_up_to(stamped.stamp);
        self.hinted.notify_all();
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

/// Reads the policy of a file, or returns the default one if there is no file.
fn read(path: &Path) -> Result<Stamped, String> {
    match fs::read(path) {
        Ok(bytes) => {
            let kept: PolicyFile =
                serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            check(kept.stamped.stamp)?;
            Ok(kept.stamped)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Stamped::default()),
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
