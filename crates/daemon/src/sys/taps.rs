//! Records of the TAPs of a host, so that they are found again and no other device is ever deleted:
//! one file for each port in `taps` of the host's directory.
//!
//! The file is written before the device becomes persistent, and deleted after the device. A
//! process that is killed in between leaves a file too many, never an unknown device. Data writes
//! the files; control deletes the rest when the host is stopped, after data has ended.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use sluice_ports::tap::{KnownTap, TapConfig};

use crate::sys::descriptors::Named;
use crate::sys::log::say;
use crate::sys::run_dir;

/// Devices that are deleted at a time: each deletion waits for the kernel, which ends them
/// together.
const DELETED_AT_A_TIME: usize = 32;

/// Record of a TAP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Name of the port.
    pub(crate) port: String,
    /// Index of the device in its namespace.
    pub(crate) index: u32,
    /// True if the device is deleted with its port.
    pub(crate) is_own: bool,
    device: String,
    /// Name of the namespace, if it is not the host's.
    pub(crate) netns: Option<PathBuf>,
    mtu: u16,
    mac: Option<String>,
    addresses: Vec<(IpAddr, u8)>,
    ring_frames: u32,
    /// An earlier release gave no offloads.
    #[serde(default)]
    offload: bool,
    /// An earlier release could not.
    #[serde(default)]
    holds: bool,
}

impl Record {
    pub(crate) fn new(port: &str, config: &TapConfig, index: u32, is_own: bool) -> Self {
        Self {
            port: port.to_owned(),
            index,
            is_own,
            device: config.device.clone(),
            netns: config.netns.clone(),
            mtu: config.mtu,
            mac: config.mac.map(|mac| mac.to_string()),
            addresses: config.addresses.clone(),
            ring_frames: config.ring_frames,
            offload: config.offload,
            holds: config.holds,
        }
    }

    /// Converts the record for the driver, with a descriptor if one was kept.
    pub(crate) fn known(&self, file: Option<OwnedFd>) -> KnownTap {
        let mut given = TapConfig::new(&self.device, self.mtu);
        given.netns.clone_from(&self.netns);
        given.mac = self.mac.as_ref().and_then(|mac| mac.parse().ok());
        given.addresses.clone_from(&self.addresses);
        given.ring_frames = self.ring_frames;
        given.offload = self.offload;
        given.holds = self.holds;
        KnownTap { index: self.index, is_own: self.is_own, given, file }
    }
}

/// Returns the alias that marks the device of this port.
pub(crate) fn mark(host: &str, port: &str) -> String {
    format!("sluice {host} {port}")
}

fn dir(run_dir: &Path) -> PathBuf {
    run_dir.join(run_dir::TAPS_DIR)
}

/// Returns the path of a record. A port's name may have characters that a file's name cannot have.
fn file(run_dir: &Path, port: &str) -> PathBuf {
    let mut name = String::new();
    for byte in port.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    dir(run_dir).join(name).with_extension("json")
}

/// Writes the record of a TAP.
pub(crate) fn write(run_dir: &Path, record: &Record) -> io::Result<()> {
    fs::create_dir_all(dir(run_dir))?;
    let text = serde_json::to_string(record).expect("a record is plain data");
    run_dir::replace(&file(run_dir, &record.port), &text)
}

/// Deletes the record of a TAP.
pub(crate) fn forget(run_dir: &Path, port: &str) {
    if let Err(error) = run_dir::remove(&file(run_dir, port)) {
        say!(warn: "port {port}: cannot forget its device: {error}");
    }
}

/// Returns all records. A file that cannot be read was never complete, and is ignored.
pub(crate) fn read(run_dir: &Path) -> Vec<Record> {
    let Ok(files) = fs::read_dir(dir(run_dir)) else { return Vec::new() };
    let records =
        files.flatten().filter(|file| file.path().extension().is_some_and(|e| e == "json"));
    let read = |file: fs::DirEntry| serde_json::from_slice(&fs::read(file.path()).ok()?).ok();
    records.filter_map(read).collect()
}

/// Deletes a TAP, and forgets it if it is gone.
pub(crate) fn delete(run_dir: &Path, host: &str, record: &Record, file: Option<OwnedFd>) {
    match record.known(file).remove(&mark(host, &record.port)) {
        Ok(()) => forget(run_dir, &record.port),
        Err(error) => say!(warn: "port {}: its device stays: {error}", record.port),
    }
}

/// Deletes the TAPs of these records, many at a time.
pub(crate) fn delete_all(run_dir: &Path, host: &str, records: Vec<Record>, files: Vec<Named>) {
    let mut files: std::collections::BTreeMap<String, OwnedFd> = files.into_iter().collect();
    let work: Vec<(Record, Option<OwnedFd>)> = records
        .into_iter()
        .map(|record| {
            let file = files.remove(&record.port);
            (record, file)
        })
        .collect();
    let threads = DELETED_AT_A_TIME.min(work.len());
    let work = Mutex::new(work);
    let next = || work.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((record, file)) = next() {
                    delete(run_dir, host, &record, file);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests;
