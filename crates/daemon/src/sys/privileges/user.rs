//! An own user for the two processes (`host.user`): a process that starts as root continues as that
//! user, with the capabilities that it keeps and no others.
//!
//! ```text
//!   root ── dirs become the user's ── groups, gid, uid ── capabilities, also for executed programs
//!   that user already (started so by a supervisor, or became a newer program): unchanged
//! ```
//!
//! Capabilities that are kept are *ambient*: the data process that control starts, and the program
//! that control becomes, have them as well (capabilities(7)).

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, lchown};
use std::path::Path;

use anyhow::{Context as _, bail};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, capabilities, set_keep_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::sys::log::say;
use crate::sys::run_dir;

/// A user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
}

/// Finds the user of a name or number in the text of `/etc/passwd`.
fn find(name: &str, passwd: &str) -> Option<User> {
    let mut users = passwd.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(':').collect();
        let (uid, gid) = (words.get(2)?.parse().ok()?, words.get(3)?.parse().ok()?);
        Some((words[0], User { uid, gid }))
    });
    match name.parse::<u32>() {
        Ok(uid) => {
            let known = users.find(|(_, user)| user.uid == uid).map(|(_, user)| user);
            Some(known.unwrap_or(User { uid, gid: uid }))
        }
        Err(_) => users.find(|(known, _)| *known == name).map(|(_, user)| user),
    }
}

/// Continues as user `name`, who becomes the owner of `dirs` as far as these are Sluice's own
/// places. Members of `group` may read, so it is one of the process's groups.
///
/// # Errors
/// If there is no such user, or it may not be taken on.
pub(super) fn become_user(name: &str, group: Option<&str>, dirs: &[&Path]) -> anyhow::Result<()> {
    let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let user = find(name, &passwd).with_context(|| {
        format!("`user`: /etc/passwd has no `{name}`; make it (`useradd --system {name}`)")
    })?;
    if user.uid == 0 || geteuid().as_raw() == user.uid {
        return Ok(());
    }
    if !geteuid().is_root() {
        let own = geteuid().as_raw();
        bail!("`user`: this is user {own}, and only root can go on as `{name}`; start it as root");
    }
    if !capabilities(None)?.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        // The process became this program, and its predecessor dropped the capabilities.
        say!(warn: "`user`: still root, for that was given up at the start; start control anew");
        return Ok(());
    }
    for dir in dirs {
        give(dir, user).with_context(|| format!("cannot give {} to {name}", dir.display()))?;
    }
    let mut groups = vec![Gid::from_raw(user.gid)];
    if let Some(group) = group {
        groups.push(Gid::from_raw(run_dir::group_id(group)?));
    }
    let (uid, gid) = (Uid::from_raw(user.uid), groups[0]);
    set_keep_capabilities(true)?;
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_keep_capabilities(false)?;
    Ok(())
}

/// Makes the user the owner of a directory and its contents. Directories in other places keep their
/// owner.
fn give(dir: &Path, user: User) -> std::io::Result<()> {
    if !run_dir::is_own_place(dir) {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    give_all(dir, user)
}

/// Changes owners without following links: another user may have chosen a link's target.
fn give_all(path: &Path, user: User) -> std::io::Result<()> {
    lchown(path, Some(user.uid), Some(user.gid))?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_all(&entry?.path(), user)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\nbroken\nsluice:x:990:991::/:/bin/false\n";
        let sluice = Some(User { uid: 990, gid: 991 });
        assert_eq!(find("sluice", passwd), sluice);
        assert_eq!(find("990", passwd), sluice);
        assert_eq!(find("4242", passwd), Some(User { uid: 4242, gid: 4242 }));
        assert_eq!(find("sluic", passwd), None);
        assert_eq!(find("broken", passwd), None);
    }

    /// A directory of another user is not given away, whatever the configuration says.
    #[test]
    fn other_places_stay_their_owners() {
        assert!(run_dir::is_own_place(Path::new("/run/sluice/h1")));
        assert!(run_dir::is_own_place(Path::new("/var/lib/sluice/h1")));
        for other in ["/", "/run", "/run/sluice", "/var/lib", "/run/sluice/../../etc", "/tmp/h1"] {
            assert!(!run_dir::is_own_place(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn directory_ownership_changed_recursively_without_following_symlinks() {
        let folder = std::env::temp_dir().join(format!("sluice-user-{}", std::process::id()));
        fs::create_dir_all(folder.join("h1/taps")).unwrap();
        fs::write(folder.join("h1/taps/web.json"), "{}").unwrap();
        fs::write(folder.join("others"), "").unwrap();
        std::os::unix::fs::symlink(folder.join("others"), folder.join("h1/link")).unwrap();
        let own = geteuid().as_raw();
        // Only root can give files away.
        let uid = if own == 0 { 65_534 } else { own };
        let gid = rustix::process::getegid().as_raw();
        give_all(&folder.join("h1"), User { uid, gid }).unwrap();
        let owner = |path: &str| fs::symlink_metadata(folder.join(path)).unwrap().uid();
        for path in ["h1", "h1/taps", "h1/taps/web.json", "h1/link"] {
            assert_eq!(owner(path), uid, "{path}");
        }
        assert_eq!(owner("others"), own);
        fs::remove_dir_all(folder).unwrap();
    }
}
