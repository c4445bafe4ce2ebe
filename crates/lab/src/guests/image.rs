//! The image of a virtual machine: the kernel and file system of `scripts/guest.sh`, followed by
//! this program and its libraries.
//!
//! The kernel unpacks several archives that stand one after the other (Documentation, "initramfs
//! buffer format"): the first is compressed, the second is plain `newc`, which has to begin at a
//! multiple of four.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::scenario::Vnic;

/// File types and modes in `st_mode`: an executable regular file, and a folder.
const FILE: u32 = 0o100_755;
const FOLDER: u32 = 0o040_755;
/// Start script of a machine, run after the boot. The number in the serial port's name is that of
/// its device among all of virtio; only one process may open the port.
const LAB: &str = "\
#!/bin/busybox sh
export PATH=/opt:/bin
port() { set -- /dev/vport*p1; echo \"$1\"; }
until [ -c \"$(port)\" ]; do usleep 10000; done
case \" $(cat /proc/cmdline) \" in
*' agent '*) /opt/sluice guest eth0 --count-file /run/sluice-guest & ;;
esac
/opt/sluice lab __aggregator 0<>\"$(port)\" 1>&0
poweroff -f
";

/// Files that QEMU boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
}

impl Image {
    /// Appends a program to the file system, in a new file of this folder.
    pub(super) fn pack(program: &Path, vnic: Vnic, folder: &Path) -> anyhow::Result<Self> {
        let program = program.canonicalize().context("the path of the program")?;
        let (name, script) = match vnic {
            Vnic::Virtio => ("guest", "scripts/guest.sh"),
            Vnic::E1000 => ("guest-full", "scripts/guest.sh full"),
        };
        let base = find(&program, name).with_context(|| {
            format!(
                "there is nothing that a virtual machine could boot: run {script}, whose folder \
                 `{name}` is looked for beside this program and above"
            )
        })?;
        let read = |path: &Path| {
            std::fs::read(path).with_context(|| format!("reading {}", path.display()))
        };
        let mut bytes = read(&base.join("initrd.gz"))?;
        let mut archive = Archive::new(&mut bytes);
        archive.file("lab", LAB.as_bytes());
        archive.file("opt/sluice", &read(&stripped(&program, folder))?);
        for library in libraries(&program)? {
            let name = library.to_string_lossy().trim_start_matches('/').to_owned();
            archive.file(&name, &read(&library)?);
        }
        archive.end();
        let initrd = folder.join("initrd");
        std::fs::write(&initrd, bytes).with_context(|| format!("writing {}", initrd.display()))?;
        Ok(Self { kernel: base.join("vmlinuz"), initrd })
    }
}

/// Finds a file of the kernel or file system in the folder beside cargo's output.
fn find(program: &Path, name: &str) -> Option<PathBuf> {
    let whole =
        |folder: &PathBuf| ["vmlinuz", "initrd.gz"].iter().all(|name| folder.join(name).is_file());
    program.ancestors().map(|folder| folder.join(name)).find(whole)
}

/// Returns the program without its debug information, which is most of it; the program itself if
/// there is no `strip`.
fn stripped(program: &Path, folder: &Path) -> PathBuf {
    let small = folder.join("sluice-stripped");
    let done = Command::new("strip").arg("-o").arg(&small).arg(program).output();
    if done.is_ok_and(|output| output.status.success()) { small } else { program.to_owned() }
}

/// Returns the shared libraries of a program, the loader among them; none if it is linked
/// statically.
fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("starting ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths =
        text.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
    Ok(paths.map(PathBuf::from).collect())
}

/// A cpio archive in the format `newc`, appended to existing bytes.
struct Archive<'a> {
    bytes: &'a mut Vec<u8>,
    folders: Vec<String>,
    number: u32,
}

impl<'a> Archive<'a> {
    fn new(bytes: &'a mut Vec<u8>) -> Self {
        let mut archive = Self { bytes, folders: Vec::new(), number: 0 };
        archive.align();
        archive
    }

    /// A file, and the folders above it.
    fn file(&mut self, name: &str, content: &[u8]) {
        for (at, _) in name.match_indices('/') {
            let folder = &name[..at];
            if !self.folders.iter().any(|known| known == folder) {
                self.folders.push(folder.to_owned());
                self.entry(folder, FOLDER, &[]);
            }
        }
        self.entry(name, FILE, content);
    }

    fn end(&mut self) {
        self.entry("TRAILER!!!", 0, &[]);
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.number += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        // inode, mode, user, group, links, time, size, four numbers of devices, name, checksum
        let fields = [self.number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        let size = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(size, 0);
    }
}

#[cfg(test)]
mod tests;
