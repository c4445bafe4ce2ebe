//! Doing something inside a network namespace.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::OpenError;

/// Runs `work` on a thread of its own inside the network namespace at `path`; where the caller is
/// if there is none. Descriptors that `work` opens keep belonging to that namespace.
pub(crate) fn within<T: Send>(
    path: Option<&Path>,
    work: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<T, OpenError> {
    let Some(path) = path else { return work() };
    let failed = |what| move |source| OpenError::Netns { path: path.to_owned(), what, source };
    let namespace = File::open(path).map_err(failed("open it"))?;
    std::thread::scope(|scope| {
        let inside = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|errno| failed("enter it")(io::Error::from(errno)))?;
            work()
        };
        let thread = std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, inside)
            .map_err(failed("start a thread for it"))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
