//! Registry of ports: the one list that each side has of the ports that it serves, by number.
//!
//! ```text
//!   wanted:  host.toml, and the file of added ports (control/ports.rs)
//!               │ Add, Del, Tidy                     │ add_port, del_port
//!               ▼                                    ▼
//!   there:   data, what is attached ── number ──▶ fabric, what is claimed
//! ```
//!
//! Control makes both sides agree with what is wanted: at each start of data it adds every port
//! again, which changes nothing at a side that has it, and then data deletes the rest
//! ([`Registry::unwanted`]). A port keeps its name; data gives it its number, which may be another
//! one when the port comes again.
//!
//! The list of what is wanted is not a registry: its ports have no numbers while they wait, and it
//! is locked for as long as data takes to open a device, which the fabric's thread may not wait
//! for.

use std::collections::BTreeMap;

use sluice_base::PortId;

/// A port in a registry.
pub(crate) trait Entry {
    /// Its name.
    fn name(&self) -> &str;

    /// False if it is gone, and only its number is still in use.
    fn is_there(&self) -> bool {
        true
    }
}

/// The ports of one side.
#[derive(Clone, Debug)]
pub(crate) struct Registry<E>(BTreeMap<PortId, E>);

impl<E> Default for Registry<E> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<E> FromIterator<(PortId, E)> for Registry<E> {
    fn from_iter<I: IntoIterator<Item = (PortId, E)>>(ports: I) -> Self {
        Self(ports.into_iter().collect())
    }
}

impl<E: Entry> Registry<E> {
    /// Returns the port that has a number, also one that is gone.
    pub(crate) fn get(&self, id: PortId) -> Option<&E> {
        self.0.get(&id)
    }

    /// Returns the port that has a number, to change it.
    pub(crate) fn get_mut(&mut self, id: PortId) -> Option<&mut E> {
        self.0.get_mut(&id)
    }

    /// Returns the port of a name.
    pub(crate) fn named(&self, name: &str) -> Option<(PortId, &E)> {
        self.there().find(|(_, port)| port.name() == name)
    }

    /// Returns the ports that are there, in the order of their numbers.
    pub(crate) fn there(&self) -> impl Iterator<Item = (PortId, &E)> {
        self.0.iter().filter(|(_, port)| port.is_there()).map(|(id, port)| (*id, port))
    }

    /// Returns all numbers in use.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PortId> {
        self.0.keys().copied()
    }

    /// Gives a number to a port. Returns the port that had it.
    pub(crate) fn insert(&mut self, id: PortId, port: E) -> Option<E> {
        self.0.insert(id, port)
    }

    /// Takes the number back from a port.
    pub(crate) fn remove(&mut self, id: PortId) -> Option<E> {
        self.0.remove(&id)
    }

    /// Returns the names of ports that `may_go` and that are not among the wanted ones.
    pub(crate) fn unwanted(&self, wanted: &[String], may_go: impl Fn(&E) -> bool) -> Vec<String> {
        let others = self.there().map(|(_, port)| port).filter(|port| may_go(port));
        let names = others.map(|port| port.name().to_owned());
        names.filter(|name| !wanted.contains(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, and whether the port is there.
    #[derive(Debug, PartialEq, Eq)]
    struct Port(&'static str, bool);

    impl Entry for Port {
        fn name(&self) -> &str {
            self.0
        }

        fn is_there(&self) -> bool {
            self.1
        }
    }

    #[test]
    fn gone_port_keeps_number_but_not_name() {
        let all = [(PortId(1), Port("web", false)), (PortId(2), Port("web", true))];
        let ports: Registry<Port> = all.into_iter().collect();
        assert_eq!(ports.named("web").map(|(id, _)| id), Some(PortId(2)));
        assert_eq!(ports.get(PortId(1)), Some(&Port("web", false)));
        assert_eq!(ports.ids().count(), 2);
    }

    #[test]
    fn unwanted_ports_are_there_and_may_go() {
        let all = [("a", true), ("b", true), ("c", true), ("d", false)].map(|(n, is)| Port(n, is));
        let ports: Registry<Port> = (0..).map(PortId).zip(all).collect();
        let unwanted = ports.unwanted(&["b".to_owned()], |port| port.0 != "c");
        assert_eq!(unwanted, ["a"], "b is wanted, c may not go, and d is gone");
    }
}
