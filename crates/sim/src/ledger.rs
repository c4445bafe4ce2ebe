//! Ledger of sent and received packets, kept at the ends: checks their order, and that none arrives
//! too early.
//!
//! Packets of a sender are numbered. At the receiver the numbers rise: a packet that comes after a
//! later one, or for a second time, is found at once. A packet that never comes was dropped, or is
//! missing in the balance. (One connection has one priority, so that its packets may not overtake
//! each other anywhere.) A place among the endpoints that is used again has another generation.
//! Between VMs it may be used again only when the last packet of the earlier connection is gone.
//!
//! Two bounds hold for times. Frames of any senders arrive at a host no closer to each other than
//! the time of the later one on its link. A message takes at least as long as its bytes take on the
//! slowest link of its path and the delays on the way.

mod streams;
mod violation;

use std::collections::{BTreeMap, VecDeque};

use sluice_base::Nanos;

use crate::ids::EndpointId;
use crate::packets::{Body, Packet};
pub(crate) use streams::Stream;
pub use violation::Violation;

/// Account of a receiving endpoint.
#[derive(Debug, Default)]
struct Account {
    generation: u32,
    /// Number of the packet that arrived last.
    last: u32,
    /// End of the bytes of the stream that were sent.
    sent_end: u64,
    /// End of the bytes that arrived without a gap; further pieces, end by begin.
    brought: u64,
    pieces: BTreeMap<u64, u64>,
    /// Messages on their way: the time of their begin, and their bytes.
    messages: VecDeque<(Nanos, u64)>,
}

/// The account of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    virtual_networks: bool,
    sent: u64,
    delivered: u64,
    dropped: u64,
    messages: u64,
    accounts: Vec<Account>,
    /// Per host: time at which its last frame arrived.
    arrivals: Vec<Nanos>,
    violation: Option<Violation>,
    digest: u64,
}

impl Ledger {
    pub(crate) fn new(hosts: usize, virtual_networks: bool) -> Self {
        Self {
            virtual_networks,
            sent: 0,
            delivered: 0,
            dropped: 0,
            messages: 0,
            accounts: Vec::new(),
            arrivals: vec![Nanos::ZERO; hosts],
            violation: None,
            digest: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Keeps the first violation.
    pub(crate) fn found(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    fn fail(&mut self, what: String) {
        self.found(Violation::new("ledger", what));
    }

    pub(crate) const fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    /// Numbers of packets sent, delivered, and dropped by physical switches.
    pub(crate) const fn totals(&self) -> (u64, u64, u64) {
        (self.sent, self.delivered, self.dropped)
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Number of messages that have arrived whole.
    pub(crate) const fn messages(&self) -> u64 {
        self.messages
    }

    pub(crate) fn messages_missing(&self) -> usize {
        self.accounts.iter().map(|account| account.messages.len()).sum()
    }

    /// Number of bytes that were brought to an endpoint without a gap.
    pub(crate) fn brought(&self, to: EndpointId) -> u64 {
        self.accounts.get(to.0 as usize).map_or(0, |account| account.brought)
    }

    /// Returns the account of an endpoint; a new connection begins a new one.
    fn account(&mut self, (to, generation): (EndpointId, u32)) -> &mut Account {
        let at = to.0 as usize;
        if at >= self.accounts.len() {
            self.accounts.resize_with(at + 1, Account::default);
        }
        let account = &mut self.accounts[at];
        if account.generation != generation {
            *account = Account { generation, ..Account::default() };
        }
        account
    }

    /// Adds words of eight bytes to the digest (FNV-1a).
    fn digest_of(&mut self, words: [u64; 3]) {
        for word in words {
            self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
    }

    /// Notes that a packet begins its way.
    #[cold]
    pub(crate) fn sent(&mut self, packet: &Packet) {
        self.sent += 1;
        let account = self.account(packet.connection());
        if let Body::Tcp(segment) = &packet.body {
            account.sent_end = account.sent_end.max(segment.end());
        }
    }

    /// Notes that a packet has reached its endpoint.
    #[cold]
    pub(crate) fn delivered(&mut self, now: Nanos, packet: &Packet) {
        self.delivered += 1;
        let (to, number) = (packet.to.0, packet.number);
        self.digest_of([now.0, u64::from(to), u64::from(number)]);
        let known = self.accounts.get(to as usize).map_or(0, |account| account.generation);
        if known != packet.generation {
            if self.virtual_networks {
                self.fail(format!(
                    "packet {number} to endpoint {to} is of connection {}, but its place is that \
                     of connection {known} by now",
                    packet.generation
                ));
            }
            return;
        }
        let account = self.account(packet.connection());
        let last = std::mem::replace(&mut account.last, number);
        if number <= last {
            self.fail(format!("packet {number} to endpoint {to} has come after packet {last}"));
            return;
        }
        if let Body::Tcp(segment) = &packet.body {
            if segment.end() > account.sent_end {
                let (end, sent) = (segment.end(), account.sent_end);
                self.fail(format!("byte {end} came to endpoint {to}; {sent} were sent"));
            } else if segment.len > 0 {
                account.bring(segment.seq, segment.end());
            }
        }
    }

    /// Notes that a physical switch had no room for a packet.
    #[cold]
    pub(crate) fn dropped(&mut self, packet: &Packet) {
        self.dropped += 1;
        self.digest_of([u64::MAX, u64::from(packet.to.0), u64::from(packet.number)]);
    }

    /// Notes that a frame that takes `span` on the link has come in at a host.
    #[cold]
    pub(crate) fn arrived(&mut self, now: Nanos, host: u32, span: Nanos) {
        let last = std::mem::replace(&mut self.arrivals[host as usize], now);
        if now.since(last).0 < span.0 {
            self.fail(format!(
                "a frame that takes {span} has arrived at host {host} {} after the one before it",
                now.since(last)
            ));
        }
    }

    /// Notes that a message of so many bytes begins its way to an endpoint.
    #[cold]
    pub(crate) fn message_sent(&mut self, now: Nanos, to: (EndpointId, u32), bytes: u64) {
        self.account(to).messages.push_back((now, bytes));
    }

    /// Notes that the oldest message to an endpoint, which ends at byte `end` of its stream, has
    /// arrived.
    #[cold]
    pub(crate) fn message_arrived(
        &mut self,
        now: Nanos,
        to: (EndpointId, u32),
        end: u64,
        time_min: impl FnOnce(u64) -> Nanos,
    ) {
        self.messages += 1;
        let account = self.account(to);
        let brought = account.brought;
        let (since, bytes) = account.messages.pop_front().expect("written down when it was sent");
        let (took, least) = (now.since(since), time_min(bytes));
        if brought < end {
            self.fail(format!("a message ends at byte {end}, but {brought} bytes were brought"));
        }
        if took.0 < least.0 {
            self.fail(format!("a message of {bytes} bytes took {took}; the links take {least}"));
        }
    }
}

impl Account {
    /// Notes that bytes of the stream have come.
    fn bring(&mut self, begin: u64, end: u64) {
        let piece = self.pieces.entry(begin).or_default();
        *piece = end.max(*piece);
        while let Some(first) = self.pieces.first_entry() {
            if *first.key() > self.brought {
                break;
            }
            self.brought = self.brought.max(first.remove());
        }
    }
}
