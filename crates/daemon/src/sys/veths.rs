//! Names of the descriptors of a veth pair between processes: that of the port, a tab, and that of
//! the descriptor. No port's name has a tab.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use sluice_ports::{PortHandover, veth};

use crate::sys::descriptors::Named;
use crate::sys::log::say;

const BETWEEN: char = '\t';

/// Returns true if a name is that of a descriptor of a pair.
pub(crate) fn is_of_pair(name: &str) -> bool {
    name.contains(BETWEEN)
}

/// Returns true if a name is that of a descriptor of this port's pair.
pub(crate) fn is_of(name: &str, port: &str) -> bool {
    name.strip_prefix(port).is_some_and(|rest| rest.starts_with(BETWEEN))
}

/// Returns copies of the descriptors of a port's pair, named.
pub(crate) fn named(port: &str, pair: &PortHandover) -> Vec<Named> {
    let copy = |(file, fd): (&String, &OwnedFd)| {
        Some((format!("{port}{BETWEEN}{file}"), fd.try_clone().ok()?))
    };
    pair.files.iter().filter_map(copy).collect()
}

/// Takes the pairs out of named descriptors, by port.
pub(crate) fn take(files: &mut BTreeMap<String, OwnedFd>) -> BTreeMap<String, PortHandover> {
    let mut pairs: BTreeMap<String, PortHandover> = BTreeMap::new();
    let names: Vec<String> = files.keys().filter(|name| is_of_pair(name)).cloned().collect();
    for name in names {
        if let Some(fd) = files.remove(&name)
            && let Some((port, file)) = name.split_once(BETWEEN)
        {
            pairs.entry(port.to_owned()).or_default().files.insert(file.to_owned(), fd);
        }
    }
    pairs
}

/// Deletes the pair of a port. If that fails, it goes with the last descriptor.
pub(crate) fn delete(port: &str, pair: PortHandover) {
    if let Err(error) = veth::remove(pair) {
        say!(warn: "port {port}: its device stays: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn named_descriptors_become_pairs_again() {
        let file = || OwnedFd::from(File::open("/dev/null").unwrap());
        let mut pair = PortHandover::default();
        pair.files.extend([("xsk".to_owned(), file()), ("netns".to_owned(), file())]);
        let mut files: BTreeMap<String, OwnedFd> = named("my web", &pair).into_iter().collect();
        files.insert("my web".to_owned(), file());
        assert_eq!(files.keys().filter(|name| is_of(name, "my web")).count(), 2);
        assert!(!files.keys().any(|name| is_of(name, "my")));
        let pairs = take(&mut files);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["my web"]);
        assert_eq!(pairs["my web"].files.keys().collect::<Vec<_>>(), ["netns", "xsk"]);
    }
}
