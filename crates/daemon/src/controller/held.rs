//! The policy that a host holds: in a file, so that it outlives this process and others may read
//! it, and in its data process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use sluice_api::placement::{Followed, Kept, PlaceStatus, Policy, Stamp, Stamped, Status, Steered};
use sluice_base::HostId;

use crate::config::Plan;
use crate::control::connect;
use crate::protocol::{self, Request};
use crate::run_dir;

/// How long data may take to answer.
const DATA_MAX: Duration = Duration::from_secs(1);
/// What `sluice steer` last said counts for so long; it says something each second.
const FRESH: Duration = Duration::from_secs(5);

/// What holds here.
#[derive(Debug)]
pub(crate) struct Held {
    host: String,
    own: u16,
    run_dir: PathBuf,
    stamped: Mutex<Stamped>,
    /// Who has a newer one.
    hint: Mutex<Option<HostId>>,
    hinted: Condvar,
}

impl Held {
    /// That of the host of a plan, as an earlier process left it.
    ///
    /// # Errors
    /// If the file is not what this program wrote.
    pub(crate) fn load(plan: &Plan) -> anyhow::Result<Self> {
        let own = plan.fabric.as_ref().map_or(0, |fabric| fabric.own.0);
        Self::open(&plan.config.host.name, own, &plan.run_dir)
    }

    /// That of the host of this name and number, in its directory.
    pub(crate) fn open(host: &str, own: u16, run_dir: &Path) -> anyhow::Result<Self> {
        let path = run_dir.join(run_dir::PLACEMENT_FILE);
        let stamped = match fs::read(&path) {
            Ok(bytes) => {
                let kept: Kept = serde_json::from_slice(&bytes).with_context(|| {
                    format!(
                        "{} is not what this program wrote; remove it to go on with what other \
                         hosts hold",
                        path.display()
                    )
                })?;
                kept.stamped
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Stamped::default(),
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        };
        Ok(Self {
            host: host.to_owned(),
            own,
            run_dir: run_dir.to_owned(),
            stamped: Mutex::new(stamped),
            hint: Mutex::new(None),
            hinted: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Stamped> {
        self.stamped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What holds.
    pub(crate) fn now(&self) -> Stamped {
        self.lock().clone()
    }

    /// Another policy is to hold, above the one that is known here.
    pub(super) fn set(&self, policy: Policy) -> Result<Stamp, String> {
        policy.check()?;
        let mut stamped = self.lock();
        let version = stamped.stamp.version.checked_add(1);
        let version = version.ok_or("there is no policy above the one that holds")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let stamp = Stamp { version, by: self.own, at_ms };
        self.keep(&mut stamped, Stamped { stamp, policy })?;
        Ok(stamp)
    }

    /// Another host holds this one. Whether it holds here from now on: if it is above what does.
    pub(super) fn offer(&self, stamp: Stamp, policy: Policy) -> Result<bool, String> {
        let mut stamped = self.lock();
        if stamp <= stamped.stamp {
            return Ok(false);
        }
        policy.check().map_err(|error| format!("its placement policy is refused: {error}"))?;
        self.keep(&mut stamped, Stamped { stamp, policy })?;
        Ok(true)
    }

    /// The file comes first: what was answered for is there after a crash.
    fn keep(&self, stamped: &mut Stamped, next: Stamped) -> Result<(), String> {
        let path = self.run_dir.join(run_dir::PLACEMENT_FILE);
        let kept = Kept { host: self.host.clone(), stamped: next.clone() };
        let text = serde_json::to_string(&kept).map_err(|error| error.to_string())?;
        run_dir::replace(&path, &text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        *stamped = next;
        self.hinted.notify_all();
        Ok(())
    }

    /// Somebody has a newer policy than this host.
    pub(super) fn hint(&self, who: HostId) {
        let mut hint = self.hint.lock().unwrap_or_else(PoisonError::into_inner);
        *hint = Some(who);
        self.hinted.notify_all();
    }

    /// Waits for a hint, or until there is another policy here, and not longer than this.
    pub(super) fn wait(&self, most: Duration) -> Option<HostId> {
        let mut hint = self.hint.lock().unwrap_or_else(PoisonError::into_inner);
        if hint.is_none() {
            let waited = self.hinted.wait_timeout(hint, most);
            hint = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        hint.take()
    }

    /// Tells data what holds, and what it has made of it.
    pub(super) fn tell_data(&self) -> Result<Followed, String> {
        let silent = |error: std::io::Error| format!("the data process does not answer: {error}");
        let data = connect(&self.run_dir).map_err(silent)?;
        data.set_read_timeout(Some(DATA_MAX)).map_err(silent)?;
        let line = protocol::ask(data, &Request::Follow(Box::new(self.now()))).map_err(silent)?;
        protocol::expect(&line).map_err(|error| error.to_string())
    }

    /// What this host has made of it.
    pub(super) fn status(&self) -> Status {
        let stamp = Some(self.now().stamp);
        let (mut places, mut notes) = match self.tell_data() {
            Ok(Followed { places, notes }) => (places, notes),
            Err(error) => (Vec::new(), vec![error]),
        };
        places.extend(self.steered(&mut notes));
        Status { host: self.host.clone(), stamp, places, notes }
    }

    /// What each `sluice steer` that follows has written.
    fn steered(&self, notes: &mut Vec<String>) -> Vec<PlaceStatus> {
        let mut all = Vec::new();
        for file in fs::read_dir(&self.run_dir).into_iter().flatten().flatten() {
            let name = file.file_name();
            let Some(name) = name.to_str() else { continue };
            let device = name.strip_prefix("steer-").and_then(|name| name.strip_suffix(".json"));
            let Some(device) = device else { continue };
            let written = file.metadata().and_then(|data| data.modified());
            let age = written.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            if age.is_some_and(|age| age > FRESH) {
                notes.push(format!("{device} is not steered any more: {name} is old"));
                continue;
            }
            match fs::read(file.path()).map(|bytes| serde_json::from_slice(&bytes)) {
                Ok(Ok(Steered { place, notes: its })) => {
                    notes.extend(its.iter().map(|note| format!("{device}: {note}")));
                    all.push(place);
                }
                Ok(Err(error)) => notes.push(format!("{name} cannot be read: {error}")),
                // It has just ended.
                Err(_) => {}
            }
        }
        all.sort_by(|a: &PlaceStatus, b| a.name.cmp(&b.name));
        all
    }
}
