//! Receive packet steering: the kernel spreads packets by a hash over the cores of a mask. It sees
//! outer headers only, which suffices if the sender puts the inner flow's hash into the outer
//! source port (RFC 7348 section 4).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::list;

/// Masks of a device's receive queues, restored when this is dropped.
#[derive(Debug)]
pub(crate) struct Rps {
    queues: Vec<(PathBuf, String)>,
    /// Mask in force; empty if not all queues have it, `None` if none was written.
    set: Option<String>,
}

impl Rps {
    pub(crate) fn new(device: &str) -> anyhow::Result<Self> {
        Self::in_folder(&Path::new("/sys/class/net").join(device).join("queues"))
    }

    fn in_folder(folder: &Path) -> anyhow::Result<Self> {
        let mut queues = Vec::new();
        let entries = fs::read_dir(folder)
            .with_context(|| format!("{}: is there such a device?", folder.display()))?;
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with("rx-") {
                let path = entry.path().join("rps_cpus");
                let before = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                queues.push((path, before.trim().to_owned()));
            }
        }
        ensure!(!queues.is_empty(), "{}: no receive queues", folder.display());
        Ok(Self { queues, set: None })
    }

    /// Sets the cores of the mask.
    pub(crate) fn set(&mut self, cores: &[u16]) -> anyhow::Result<()> {
        let mask = list::mask(cores);
        if self.set.as_ref() == Some(&mask) {
            return Ok(());
        }
        // Masks that were written are restored, also if another one cannot be written.
        self.set = Some(String::new());
        for (path, _) in &self.queues {
            fs::write(path, &mask).with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.set = Some(mask);
        Ok(())
    }
}

impl Drop for Rps {
    fn drop(&mut self) {
        for (path, before) in self.queues.iter().filter(|_| self.set.is_some()) {
            // The device may be gone, and its masks with it.
            let _ = fs::write(path, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device's folder with two receive queues.
    fn queues(word: &str) -> PathBuf {
        let name = format!("sluice-{word}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        for (queue, before) in [("rx-0", "00000000\n"), ("rx-1", "00000004\n"), ("tx-0", "1\n")] {
            fs::create_dir_all(root.join(queue)).unwrap();
            fs::write(root.join(queue).join("rps_cpus"), before).unwrap();
        }
        root
    }

    #[test]
    fn masks_are_put_back() {
        let root = queues("rps");
        let file = |queue: &str| root.join(queue).join("rps_cpus");
        let mut rps = Rps::in_folder(&root).unwrap();
        rps.set(&[0, 3]).unwrap();
        assert_eq!(fs::read_to_string(file("rx-1")).unwrap(), "00000009");
        drop(rps);
        let after = ["rx-0", "rx-1", "tx-0"].map(|q| fs::read_to_string(file(q)).unwrap());
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(after.each_ref().map(|text| text.trim()), ["00000000", "00000004", "1"]);
    }
    #[test]
    fn rps_masks_restored_after_failed_write() {
        let root = queues("rps-fails");
        let mut rps = Rps::in_folder(&root).unwrap();
        // The queue that is written last.
        let last = rps.queues[1].0.clone();
        fs::remove_file(&last).unwrap();
        fs::create_dir(&last).unwrap();
        let (first, before) = rps.queues[0].clone();
        assert!(rps.set(&[0, 3]).is_err() && rps.set(&[0, 3]).is_err());
        assert_eq!(fs::read_to_string(&first).unwrap(), "00000009");
        drop(rps);
        let after = fs::read_to_string(first).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(after, before);
    }
}
