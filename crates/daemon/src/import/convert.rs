//! A host whose file says everything becomes a member, beside its running daemon.
//!
//! ```text
//!   place, certificate and records ──> FILE.before ──> short FILE ──> `sluice upgrade` ─> member
//!     └ refused: nothing has changed                   └ from here on a restart makes it one, too
//! ```
//!
//! A host that was interrupted goes on where it was: what is done is not done again.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use sluice_api::config::{HostConfig, LocalConfig};
use sluice_api::transaction::{Answer, Place, Question};

use super::agree::{Agreed, Imported, of};
use super::{Import, next_steps, write_new};
use crate::client::show::HostSelector;
use crate::client::{transaction as client, upgrade};
use crate::config::member::{HostFile, TLS_DIR};
use crate::config::{self, KernelDevices};
use crate::configuration::setup::{self, Applying};
use crate::sys::run_dir::SHOW_SOCKET;

/// Validity of the tokens of the other hosts.
const TOKEN_S: u32 = 3_600;
/// Longest time for a member to answer as one.
const MEMBER_WITHIN: Duration = Duration::from_secs(60);
/// Time between two questions.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Way in which a host becomes a member.
#[derive(Clone, Debug)]
pub enum Way {
    /// It is the first one of a new fabric. The first file is its own.
    Create,
    /// A member lets it in.
    Join {
        /// Address of that member.
        address: String,
        /// Token that it gave.
        token: String,
    },
}

/// Makes the host of the first file a member, and prints what others have to do.
///
/// # Errors
/// Reason why it is none, or why its daemon did not follow, with the remedy.
pub fn convert(import: &Import, way: &Way) -> anyhow::Result<()> {
    let own = import.files.first().context("name the file of this host")?;
    if matches!(way, Way::Join { .. }) {
        ensure!(
            import.files.len() == 1,
            "a host that joins needs its own file alone: the others are compared by `--create`"
        );
    }
    if let HostFile::Local(local) = HostFile::open(own).map_err(anyhow::Error::msg)? {
        // An earlier attempt came as far as this.
        return go_on(own, &local);
    }
    let agreed = import.read()?;
    let host = of(&agreed, own).context("the first file is that of this host")?;
    let local = local_of(own, &host.local)?;
    become_member((&agreed, host), &local, way)?;
    replace(own, &host.local)?;
    follow(own, &local)?;
    match way {
        Way::Create => tell_others(&agreed, &local),
        Way::Join { .. } => Ok(()),
    }
}

/// Reads the text of a short file as if it lay there already.
fn local_of(file: &Path, text: &str) -> anyhow::Result<LocalConfig> {
    // Relative paths of the file are relative to its folder.
    let beside = beside(file, "short");
    fs::write(&beside, text).with_context(|| format!("cannot write {}", beside.display()))?;
    let read = HostFile::open(&beside);
    _ = fs::remove_file(&beside);
    match read.map_err(anyhow::Error::msg)? {
        HostFile::Local(local) => Ok(*local),
        HostFile::Whole => bail!("the short file of {} cannot be read", file.display()),
    }
}

/// Makes the place of the host in the fabric, with its certificate. Nothing is written if it is
/// refused.
fn become_member(
    (agreed, host): (&Agreed, &Imported),
    local: &LocalConfig,
    way: &Way,
) -> anyhow::Result<()> {
    let state_dir = config::state_dir(&local.host);
    if setup::place(&state_dir)?.is_some() {
        return Ok(());
    }
    let applying = Applying {
        local: local.clone(),
        state_dir: state_dir.clone(),
        known: agreed.change.clone(),
    };
    let place = Place { vtep: Some(host.vtep), ..Place::default() };
    let joined = match way {
        Way::Create => applying.create(&agreed.fabric, &place, check),
        Way::Join { address, token } => applying.join((address, token), &place, check),
    };
    let joined = joined.context("nothing has changed here")?;
    own_by_owner_of(&state_dir)?;
    if let Answer::Member { fabric, .. } = &joined.answer
        && *fabric != agreed.fabric
    {
        println!("note: the fabric's name is {fabric}; the file says {}", agreed.fabric);
    }
    Ok(())
}

/// Finds what is wrong with a whole configuration on this machine.
fn check(config: &HostConfig) -> Result<Vec<String>, String> {
    let plan = config::plan_of(config, None, &KernelDevices);
    plan.map(|plan| plan.notes).map_err(|report| report.to_string())
}

/// Gives what was written to the user of the daemon, to whom the folder belongs.
fn own_by_owner_of(folder: &Path) -> anyhow::Result<()> {
    let owner = fs::metadata(folder)?;
    let tls = folder.join(TLS_DIR);
    let inside = fs::read_dir(&tls).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in [folder.join(setup::FILE), tls.clone()].into_iter().chain(inside) {
        lchown(&path, Some(owner.uid()), Some(owner.gid()))
            .with_context(|| format!("cannot change the owner of {}", path.display()))?;
    }
    Ok(())
}

/// Keeps the file as `FILE.before`, and puts the short one into its place in one step.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let (kept, next) = (beside(file, "before"), beside(file, "short"));
    fs::hard_link(file, &kept).with_context(|| {
        format!(
            "this host is a member, but its file cannot be kept as {0}; move {0} away and repeat \
             the command",
            kept.display()
        )
    })?;
    // A file of this name is one of an attempt that was cut off.
    _ = fs::remove_file(&next);
    write_new(&next, text)?;
    fs::rename(&next, file).with_context(|| format!("cannot replace {}", file.display()))?;
    println!(
        "{} is the short file of a member now; the one before is {}",
        file.display(),
        kept.display()
    );
    Ok(())
}

fn beside(file: &Path, word: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(word);
    PathBuf::from(name)
}

/// Goes on with a host whose file is short already.
fn go_on(file: &Path, local: &LocalConfig) -> anyhow::Result<()> {
    let state_dir = config::state_dir(&local.host);
    // A member that runs has its records open: then they cannot be read here.
    let is_none = setup::place(&state_dir).is_ok_and(|place| place.is_none());
    ensure!(
        !is_none,
        "{} is the file of a member, and the host is in no fabric: `sluice fabric create` or \
         `join`",
        file.display()
    );
    follow(file, local)
}

/// Has the running daemon become the member, without a frame lost, and prints it.
fn follow(file: &Path, local: &LocalConfig) -> anyhow::Result<()> {
    let socket = config::run_dir(&local.host).join(SHOW_SOCKET);
    let whom = HostSelector::Socket(socket);
    let name = &local.host.name;
    if client::status_of(&whom).is_ok() {
        println!("{name} is a member already");
        return Ok(());
    }
    if !client::is_there(&whom) {
        println!("the daemon of {name} does not run: start it with `--config {}`", file.display());
        return Ok(());
    }
    upgrade::upgrade(&whom, false).with_context(|| {
        format!(
            "{name} is a member, and its daemon runs on from the file before; `sluice upgrade` or \
             a restart takes the short file up"
        )
    })?;
    let until = Instant::now() + MEMBER_WITHIN;
    loop {
        match client::status_of(&whom) {
            // Until the first snapshot comes it knows nobody.
            Ok(status) if status.members.iter().any(|member| member.name == *name) => {
                let members: Vec<&str> =
                    status.members.iter().map(|member| member.name.as_str()).collect();
                println!("{name} is a member of fabric {}: {}", status.fabric, members.join(", "));
                return Ok(());
            }
            Ok(_) if Instant::now() > until => bail!(
                "{name} is a member, but has not got the configuration from the others yet; \
                 `sluice fabric status` says who is connected"
            ),
            Err(error) if Instant::now() > until => {
                return Err(
                    error.context(format!("{name} does not answer as a member; see its log"))
                );
            }
            _ => std::thread::sleep(ASK_EVERY),
        }
    }
}

/// Prints the commands of the other hosts, with a token for each.
fn tell_others(agreed: &Agreed, local: &LocalConfig) -> anyhow::Result<()> {
    let whom = HostSelector::Socket(config::run_dir(&local.host).join(SHOW_SOCKET));
    let (own, others): (Vec<&Imported>, Vec<&Imported>) =
        agreed.hosts.iter().partition(|host| host.name == local.host.name);
    if others.is_empty() || !client::is_there(&whom) {
        return Ok(());
    }
    let mut tokens = Vec::new();
    for _ in &others {
        match client::quietly(&whom, Question::Token { valid_s: TOKEN_S })? {
            Answer::Token { token, .. } => tokens.push(token),
            _ => bail!("the host answered another question; compare `sluice --version` there"),
        }
    }
    let others: Vec<Imported> = others.into_iter().cloned().collect();
    let steps = own.first().map_or_else(String::new, |own| next_steps(&others, own, Some(&tokens)));
    let text = format!("next, one host after the other, within an hour:\n{steps}");
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
