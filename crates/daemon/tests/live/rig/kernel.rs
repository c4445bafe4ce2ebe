//! The kernel's own reports of losses, beside Sluice's.

use std::collections::BTreeMap;

use sluice_dropwatch::{Dropped, Drops};

use super::{Daemon, Net, say};

/// An observer of all namespaces of a test.
pub(crate) struct Kernel(Drops);

impl Kernel {
    /// Watches the kernel's drops in all namespaces of the test, or prints the reason why that is
    /// not possible.
    pub(crate) fn watch(test: &str, net: &Net) -> Option<Self> {
        match Drops::watch(net.namespaces.iter().map(super::Netns::name)) {
            Ok(drops) => Some(Self(drops)),
            Err(error) => {
                say(&format!("SKIPPED part of {test}: {error}"));
                None
            }
        }
    }

    /// Returns the number of packets that the kernel dropped at a device.
    pub(crate) fn frames(&self, netns: &super::Netns, device: &str, reason: &str) -> u64 {
        self.0.frames(netns.name(), device, reason)
    }

    /// Returns the kernel's losses in a namespace, a line each; without its refusals on the way out
    /// (`ENOBUFS`), since Sluice sends those frames again.
    pub(crate) fn lost_in(&self, netns: &super::Netns) -> Vec<String> {
        let is_again = |row: &Dropped| {
            ["QDISC_DROP", "FULL_RING", "CPU_BACKLOG", "DEV_HDR"].contains(&&*row.reason)
        };
        self.rows_in(netns, |row| !is_again(row))
    }

    /// Returns all drops in a namespace that the kernel calls losses, a line each.
    pub(crate) fn dropped_in(&self, netns: &super::Netns) -> Vec<String> {
        self.rows_in(netns, |_| true)
    }

    /// Prints every drop in the namespaces of the test, including those that the kernel does not
    /// call losses.
    pub(crate) fn say_all(&self) {
        self.0.since().iter().for_each(|row| say(&format!("the kernel dropped: {row}")));
    }

    fn rows_in(&self, netns: &super::Netns, is: impl Fn(&Dropped) -> bool) -> Vec<String> {
        let rows = self.0.losses().into_iter();
        let rows = rows.filter(|row| row.namespace == netns.name() && is(row));
        rows.map(|row| row.to_string()).collect()
    }

    /// Panics if the kernel lost a packet that was not sent again. `senders` have a port and its
    /// device on which a full queue refuses a frame (`ENOBUFS`) and Sluice sends it again: those
    /// are listed, and must be in Sluice's own rows.
    pub(crate) fn assert_no_loss(&self, senders: &[(&Daemon, &str, &str)]) {
        assert_eq!(self.0.missed(), 0, "more kinds of drops than the observer has room for");
        let mut again: BTreeMap<(String, String), u64> = BTreeMap::new();
        let is_again = |row: &Dropped| {
            let at = senders.iter().any(|(daemon, _, device)| {
                (daemon.netns.name(), *device) == (&*row.namespace, &*row.device)
            });
            at && ["QDISC_DROP", "FULL_RING", "CPU_BACKLOG", "DEV_HDR"].contains(&&*row.reason)
        };
        let (retried, lost): (Vec<_>, Vec<_>) = self.0.losses().into_iter().partition(is_again);
        for row in retried {
            say(&format!("sent again after ENOBUFS: {row}"));
            *again.entry((row.namespace, row.device)).or_default() += row.frames;
        }
        assert_eq!(lost, [], "the kernel lost what Sluice says nothing of");
        for (daemon, port, device) in senders {
            let counted = daemon.row("ports", "port", port)["kernel"].clone();
            let sum = |name: &str| counted[name].as_u64().unwrap_or(0);
            let counted = sum("device.tx_dropped") + sum("qdisc.dropped");
            let place = (daemon.netns.name().to_owned(), (*device).to_owned());
            let seen = again.get(&place).copied().unwrap_or(0);
            assert!(counted >= seen, "refused {seen} times by the kernel, {counted} by Sluice");
        }
    }
}
