//! Status of the steering for the control process: a file beside the policy's.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_api::placement::{PlaceStatus, Steered};

use crate::report::warn;

/// The file, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct StatusFile {
    path: PathBuf,
    /// True if it could not be written, which was reported.
    is_lost: bool,
}

impl StatusFile {
    pub(crate) fn new(folder: &Path, device: &str) -> Self {
        Self { path: folder.join(format!("steer-{device}.json")), is_lost: false }
    }

    /// Replaces the file atomically.
    pub(crate) fn write(&mut self, place: &PlaceStatus, notes: &[String]) {
        let steered = Steered { place: place.clone(), notes: notes.to_vec() };
        let content = serde_json::to_vec(&steered).unwrap_or_default();
        let new = self.path.with_extension("json.new");
        let written = fs::write(&new, content).and_then(|()| fs::rename(&new, &self.path));
        if let Err(error) = &written
            && !self.is_lost
        {
            let path = self.path.display();
            warn(&format!("{path}: {error}: nobody else sees what is done here"));
        }
        self.is_lost = written.is_err();
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steer_status_file_roundtrips_removed_on_drop() {
        let root = std::env::temp_dir().join(format!("sluice-status-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let place =
            PlaceStatus { name: "eth0.5".into(), kind: "xdp".into(), ..PlaceStatus::default() };
        let mut file = StatusFile::new(&root, "eth0.5");
        for notes in [vec![], vec!["one".to_owned()]] {
            file.write(&place, &notes);
            let text = fs::read_to_string(root.join("steer-eth0.5.json")).unwrap();
            let steered = Steered { place: place.clone(), notes };
            assert_eq!(serde_json::from_str::<Steered>(&text).unwrap(), steered);
        }
        drop(file);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        fs::remove_dir_all(&root).unwrap();
        let mut file = StatusFile::new(&root, "eth0");
        file.write(&place, &[]);
        assert!(file.is_lost);
    }
}
