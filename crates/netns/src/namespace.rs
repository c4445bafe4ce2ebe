//! Namespaces, and work inside of them.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Error, run};

/// Returns the path of a namespace's file.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// Returns true if there is a namespace of that name.
#[must_use]
pub fn exists(name: &str) -> bool {
    path(name).exists()
}

/// Returns the identity of a namespace, equal to that of `/proc/PID/ns/net` of the processes in it.
#[must_use]
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Runs `work` on a thread inside of the namespace of that name. Descriptors that `work` opens keep
/// belonging to it. A panic of `work` goes on in the caller.
///
/// # Errors
/// The namespace cannot be opened or entered; then `work` is not run.
pub fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let path = path(name);
    let file = File::open(&path).map_err(|source| Error::Open { path: path.clone(), source })?;
    let enter = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| Error::Enter { path: path.clone(), source: io::Error::from(errno) })?;
        Ok(work())
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(enter);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Switches IPv6 off in the calling thread's namespace, so that the kernel sends nothing unasked. A
/// kernel without IPv6 needs nothing.
///
/// # Errors
/// The settings cannot be written.
pub fn disable_ipv6() -> Result<(), Error> {
    let settings = Path::new("/proc/sys/net/ipv6/conf");
    if !settings.exists() {
        return Ok(());
    }
    for scope in ["all", "default"] {
        let path = settings.join(scope).join("disable_ipv6");
        let failed = |path: &Path, source| {
            Err(Error::Setting { path: path.to_owned(), value: "1".to_owned(), source })
        };
        fs::write(&path, "1").or_else(|source| failed(&path, source))?;
    }
    Ok(())
}

/// A namespace by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netns(String);

impl Netns {
    /// Makes a namespace without IPv6, its loopback device up.
    ///
    /// # Errors
    /// The kernel refuses, or there is a namespace of that name. One that cannot be set up is
    /// deleted.
    pub fn create(name: &str) -> Result<Self, Error> {
        run(&format!("ip netns add {name}"))?;
        let netns = Self(name.to_owned());
        let set_up = netns.ip("link set lo up").and_then(|_| inside(name, disable_ipv6)?);
        match set_up {
            Ok(()) => Ok(netns),
            Err(error) => {
                // The first error is the one to tell.
                let _ = netns.delete();
                Err(error)
            }
        }
    }

    /// Gives the namespace of this process a name, which [`Self::delete`] takes away.
    ///
    /// # Errors
    /// The kernel refuses, or there is a namespace of that name.
    pub fn attach(name: &str) -> Result<Self, Error> {
        run(&format!("ip netns attach {name} {}", std::process::id()))?;
        Ok(Self(name.to_owned()))
    }

    /// Deletes it; a process in it, and a descriptor that was opened there, keep it alive.
    ///
    /// # Errors
    /// The kernel refuses, or there is none.
    pub fn delete(&self) -> Result<(), Error> {
        run(&format!("ip netns del {}", self.0)).map(|_| ())
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns the path of its file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        path(&self.0)
    }

    /// Runs `ip` in it and returns the output.
    ///
    /// # Errors
    /// As [`run`].
    pub fn ip(&self, line: &str) -> Result<String, Error> {
        run(&format!("ip -n {} {line}", self.0))
    }

    /// Runs a command line in it and returns the output.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(&self, line: &str) -> Result<String, Error> {
        run(&format!("ip netns exec {} {line}", self.0))
    }

    /// Returns the command for a program in it. `ip` becomes the program: they are one process.
    /// Its standard input is empty.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs `work` on a thread in it, as [`inside`] does.
    ///
    /// # Errors
    /// As [`inside`].
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        inside(&self.0, work)
    }
}
