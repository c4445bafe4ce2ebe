//! Work inside a network namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::OpenError;

/// Path of the calling thread's network namespace.
pub(crate) const OWN: &str = "/proc/thread-self/ns/net";

/// Runs `work` on a thread of its own inside the network namespace at `path`, or on the caller's
/// thread if there is none. Descriptors that `work` opens keep belonging to that namespace.
pub(crate) fn within<T: Send>(
    path: Option<&Path>,
    work: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<T, OpenError> {
    let Some(path) = path else { return work() };
    inside(open(path)?.as_fd(), path, work)
}

/// Opens the network namespace at `path`.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, OpenError> {
    let failed = |source| OpenError::Netns { path: path.to_owned(), what: "open it", source };
    File::open(path).map(OwnedFd::from).map_err(failed)
}

/// Returns true if a namespace is that of the calling thread.
pub(crate) fn is_own(namespace: BorrowedFd<'_>) -> bool {
    let Ok(own) = File::open(OWN) else { return false };
    let id = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    id(own.as_fd()).ok() == id(namespace).ok()
}

/// Runs `work` on a thread of its own inside an open namespace; `path` is its name in errors.
pub(crate) fn inside<T: Send>(
    namespace: BorrowedFd<'_>,
    path: &Path,
    work: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<T, OpenError> {
    let enter = || move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network));
    on_a_thread(path, "enter it", enter, work)
}

/// Runs `work` on a thread of its own inside a new namespace, which lasts as long as descriptors
/// that `work` opens there.
pub(crate) fn private<T: Send>(
    work: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<T, OpenError> {
    // SAFETY: descriptors stay shared; the thread alone changes its namespace.
    #[expect(unsafe_code, reason = "unshare(2) could also unshare descriptors")]
    let enter = || unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
    on_a_thread(Path::new("(a new one)"), "make it", enter, work)
}

fn on_a_thread<T: Send>(
    path: &Path,
    entering: &'static str,
    enter: impl FnOnce() -> rustix::io::Result<()> + Send,
    work: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<T, OpenError> {
    let failed = |what| move |source| OpenError::Netns { path: path.to_owned(), what, source };
    std::thread::scope(|scope| {
        let inside = || {
            enter().map_err(|errno| failed(entering)(io::Error::from(errno)))?;
            work()
        };
        let thread = std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, inside)
            .map_err(failed("start a thread for it"))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
