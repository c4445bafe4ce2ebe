//! The archive: a tar by gzip, for its owner alone. A file is there whole or not at all: it is
//! written beside its place, and then renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;

/// The mode of the archive, and of what is in it.
const MODE: u32 = 0o600;

/// Place of the archive.
#[derive(Debug)]
pub(super) enum Target {
    File(PathBuf),
    /// The standard output.
    Out,
}

/// Writes the files below a folder of the archive; returns its size.
///
/// # Errors
/// If it cannot be written. Then there is nothing.
pub(super) fn write(
    target: &Target,
    folder: &str,
    at_s: u64,
    entries: &[(String, Vec<u8>)],
) -> anyhow::Result<u64> {
    match target {
        Target::Out => {
            let out = Counted { to: io::stdout().lock(), size: 0 };
            let packed = pack(out, folder, at_s, entries).and_then(|mut out| {
                out.flush()?;
                Ok(out.size)
            });
            packed.context("cannot write the archive to the standard output")
        }
        Target::File(file) => {
            let next = beside(file);
            let written = write_file(&next, folder, at_s, entries)
                .and_then(|size| fs::rename(&next, file).map(|()| size));
            if written.is_err() {
                // Another process may have made it.
                _ = fs::remove_file(&next);
            }
            written.with_context(|| {
                format!("cannot write {}; name a place with room by `--out`", file.display())
            })
        }
    }
}

/// Returns the path of a file before it is whole.
fn beside(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

fn write_file(
    path: &Path,
    folder: &str,
    at_s: u64,
    entries: &[(String, Vec<u8>)],
) -> io::Result<u64> {
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    let file: File = pack(file, folder, at_s, entries)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

fn pack<W: Write>(to: W, folder: &str, at_s: u64, entries: &[(String, Vec<u8>)]) -> io::Result<W> {
    let mut archive = tar::Builder::new(GzEncoder::new(to, Compression::default()));
    for (path, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(MODE);
        header.set_mtime(at_s);
        archive.append_data(&mut header, format!("{folder}/{path}"), &bytes[..])?;
    }
    archive.into_inner()?.finish()
}

/// Counts what is written.
struct Counted<W> {
    to: W,
    size: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests;
