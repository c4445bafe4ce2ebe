//! State of receivers over several workers: a port belongs to one worker, and frames of other
//! workers for the port wait there.

use std::collections::{BTreeMap, BTreeSet};

use sluice_base::{PortId, PriorityMask, ReceiverState, TunnelId};

/// State of a receiver, and the tunnels that frames for it come from.
pub(super) type Said = (ReceiverState, BTreeSet<TunnelId>);

/// Last report of each worker on each port. It goes with the connections to the workers.
#[derive(Debug, Default)]
pub(super) struct Receivers(BTreeMap<PortId, BTreeMap<usize, Said>>);

impl Receivers {
    /// Notes a worker's report on a port. Returns the state over all of them.
    pub(super) fn told(
        &mut self,
        worker: usize,
        port: PortId,
        receiver: ReceiverState,
        senders: impl Iterator<Item = TunnelId>,
    ) -> Said {
        let words = self.0.entry(port).or_default();
        words.insert(worker, (receiver, senders.collect()));
        words.retain(|_, (receiver, _)| !receiver.is_fine());
        let all = merge(words);
        if words.is_empty() {
            self.0.remove(&port);
        }
        all
    }

    /// Iterates over the ports that do not keep up, each with the state over all workers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PortId, Said)> + '_ {
        self.0.iter().map(|(port, words)| (*port, merge(words)))
    }
}

fn merge(words: &BTreeMap<usize, Said>) -> Said {
    let mut all = Said::default();
    for (receiver, senders) in words.values() {
        let sum = &mut all.0;
        sum.isolated = union(sum.isolated, receiver.isolated);
        sum.held = union(sum.held, receiver.held);
        sum.stuck = union(sum.stuck, receiver.stuck);
        all.1.extend(senders);
    }
    all
}

const fn union(one: PriorityMask, other: PriorityMask) -> PriorityMask {
    PriorityMask(one.0 | other.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortId = PortId(3);

    const fn receiver(held: u8, stuck: u8) -> ReceiverState {
        let held = PriorityMask(held);
        ReceiverState { isolated: held, held, stuck: PriorityMask(stuck) }
    }

    #[test]
    fn port_is_held_while_any_worker_says_so() {
        let mut receivers = Receivers::default();
        let senders = |ids: &[u16]| ids.iter().copied().map(TunnelId).collect::<Vec<_>>();
        let mut told = |worker, receiver, ids: &[u16]| {
            let all = receivers.told(worker, PORT, receiver, senders(ids).into_iter());
            (all.0, all.1.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(told(0, receiver(1, 0), &[5]), (receiver(1, 0), senders(&[5])));
        assert_eq!(told(1, receiver(2, 2), &[4, 5]), (receiver(3, 2), senders(&[4, 5])));
        assert_eq!(told(0, receiver(0, 0), &[]), (receiver(2, 2), senders(&[4, 5])));
        assert_eq!(told(1, receiver(0, 0), &[]), (receiver(0, 0), senders(&[])));
        assert!(receivers.0.is_empty(), "nothing is kept of what is fine");
    }
}
