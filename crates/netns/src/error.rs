//! Errors.

use std::io;
use std::path::PathBuf;

/// Failure of the kernel or of a program that sets up namespaces.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such namespace, or the caller may not see it.
    #[error("opening the network namespace {}: {source}", .path.display())]
    Open {
        /// Its file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses to move a thread: the caller is not root.
    #[error("entering the network namespace {}: {source}", .path.display())]
    Enter {
        /// Its file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file of the kernel's settings takes no value.
    #[error("writing {value} to {}: {source}", .path.display())]
    Setting {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A program is not installed, or cannot run.
    #[error("starting {program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("{command} failed: {said}")]
    Failed {
        /// The program, or its whole command line.
        command: String,
        /// Its error output.
        said: String,
    },
}
