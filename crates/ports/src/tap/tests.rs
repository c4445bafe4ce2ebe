use std::path::PathBuf;

use super::*;
use crate::OpenError;

#[test]
fn a_namespace_that_is_not_there_is_named() {
    let netns = Some(PathBuf::from("/run/netns/nobody"));
    let error = TapPort::open(&TapConfig { netns, ..TapConfig::new("t0", 1500) }).unwrap_err();
    assert!(matches!(&error, OpenError::Netns { .. }));
    assert!(error.to_string().starts_with("network namespace /run/netns/nobody: cannot open it"));
}

#[test]
fn a_file_that_is_no_namespace_is_refused() {
    let netns = Some(PathBuf::from("/proc/self/stat"));
    let error = TapPort::open(&TapConfig { netns, ..TapConfig::new("t0", 1500) }).unwrap_err();
    assert!(error.to_string().contains("cannot enter it"), "{error}");
}

#[test]
fn impossible_names_are_refused() {
    for name in ["", "a b", "a/b", "sixteen-bytes-xx"] {
        // The name is checked first, also if TAPs may not be opened.
        let error = TapPort::open(&TapConfig::new(name, 1500)).unwrap_err();
        assert!(matches!(error, OpenError::BadName { .. }), "{name:?}: {error}");
    }
}
