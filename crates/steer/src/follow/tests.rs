use std::fs;

use sluice_api::placement::{Mode, Policy, PolicyVersion, Stamped};

use super::*;

fn kept(version: u64) -> PolicyFile {
    let policy = Policy { mode: Some(Mode::Rss), ..Policy::default() };
    let stamped = Stamped { stamp: PolicyVersion { version, by: 1, at_ms: 0 }, policy };
    PolicyFile { host: "a".into(), stamped, held: None }
}

struct Folder(PathBuf);

impl Folder {
    fn new(word: &str) -> Self {
        let root = std::env::temp_dir().join(format!("sluice-{word}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    /// Replaces the file atomically, as its owner does.
    fn put(&self, text: &str) {
        fs::write(self.0.join("new"), text).unwrap();
        fs::rename(self.0.join("new"), self.0.join(NAME)).unwrap();
    }

    fn keep(&self, version: u64) {
        self.put(&serde_json::to_string(&kept(version)).unwrap());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn says(found: &Found, words: &[&str]) {
    let Found::Nothing(text) = found else { panic!("{found:?}") };
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn a_policy_comes_changes_breaks_and_goes() {
    let folder = Folder::new("follow");
    let mut follow = Follow::new(&folder.0);
    says(&follow.look(), &["no policy was set yet", "the arguments hold"]);
    assert_eq!(follow.look(), Found::Same, "said once");
    folder.keep(1);
    assert_eq!(follow.look(), Found::New(Box::new(kept(1))));
    assert_eq!(follow.look(), Found::Same);
    folder.keep(2);
    assert_eq!(follow.look(), Found::New(Box::new(kept(2))));
    for broken in ["", "{", "{\"host\": \"a\"}", "[]"] {
        folder.put(broken);
        says(&follow.look(), &["no placement policy", "what held before goes on"]);
        assert_eq!(follow.look(), Found::Same, "{broken}");
    }
    folder.keep(2);
    assert_eq!(follow.look(), Found::New(Box::new(kept(2))));
    fs::remove_file(folder.0.join(NAME)).unwrap();
    says(&follow.look(), &["what held before goes on"]);
    assert_eq!(follow.look(), Found::Same);
    folder.keep(3);
    assert_eq!(follow.look(), Found::New(Box::new(kept(3))));
}

#[test]
fn what_is_out_of_bounds_does_not_hold() {
    let folder = Folder::new("bounds");
    let mut follow = Follow::new(&folder.0.join(NAME));
    assert_eq!(follow.folder(), folder.0);
    let mut wrong = kept(1);
    wrong.stamped.policy.excluded_cpus = [5000].into();
    folder.put(&serde_json::to_string(&wrong).unwrap());
    says(&follow.look(), &["CPU 5000", "the arguments hold"]);
    folder.put(&" ".repeat(SIZE_MAX + 1));
    says(&follow.look(), &["more than"]);
    folder.put(&serde_json::to_string(&kept(1)).unwrap().replace("rss", "best"));
    says(&follow.look(), &["best"]);
}
