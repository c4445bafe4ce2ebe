//! Receivers that do not take frames, in words.

use sluice_api::fabric::{HeldRow, Holds, IsolatedRow};
use sluice_base::{PortId, Priority, PriorityMask, ReceiverState};

use super::Answers;

/// Endpoints and hosts that a line names.
const NAMED_MAX: usize = 4;

impl Answers<'_> {
    pub(super) fn holds(&self) -> Holds {
        let isolated = self.plane.isolated().map(|(id, port)| IsolatedRow {
            port: self.port(self.plan.own, id),
            endpoints: self.endpoints(id),
            isolated: numbers(port.receiver.isolated),
            held: numbers(port.receiver.held),
            stuck: numbers(port.receiver.stuck),
            since_ns: self.plane.ago(port.since).0,
            senders: port.senders.iter().map(|&host| self.host(host)).collect(),
            cannot_hold: port
                .senders
                .iter()
                .filter(|host| self.plane.is_deaf_to_holds(**host))
                .map(|&host| self.host(host))
                .collect(),
        });
        let held = self.plane.holds().map(|(key, entry)| HeldRow {
            vnet: self.vnet(key.vni),
            mac: key.mac.to_string(),
            host: self.host(entry.host),
            held: numbers(entry.held),
            stuck: numbers(entry.stuck),
            since_ns: self.plane.ago(entry.since).0,
            in_use: entry.is_held,
        });
        Holds { isolated: isolated.collect(), held: held.collect() }
    }

    fn endpoints(&self, port: PortId) -> Vec<String> {
        let keys = self.plane.endpoints_at(port).into_iter();
        keys.map(|key| format!("{} {}", self.vnet(key.vni), key.mac)).collect()
    }

    /// Formats an isolated port as a line.
    pub(super) fn isolated(&self, id: PortId, receiver: &ReceiverState) -> String {
        let endpoints = few(&self.endpoints(id));
        let port = self.plane.isolated().find(|(at, _)| *at == id).map(|(_, port)| port);
        let senders = port.into_iter().flat_map(|port| port.senders.iter());
        let senders: Vec<String> = senders.map(|&host| self.host(host)).collect();
        let mut line = format!(
            "port {} ({endpoints}) does not take priority {}",
            self.port(self.plan.own, id),
            words(receiver.isolated),
        );
        if !receiver.held.is_empty() && !senders.is_empty() {
            line += &format!("; {} told to hold {}", few(&senders), words(receiver.held));
        }
        if !receiver.stuck.is_empty() {
            line += &format!("; beyond its hold in {}", words(receiver.stuck));
        }
        line
    }
}

fn numbers(mask: PriorityMask) -> Vec<u8> {
    Priority::all().filter(|priority| mask.contains(*priority)).map(Priority::get).collect()
}

/// Formats a list of priorities.
pub(in crate::fabric) fn words(mask: PriorityMask) -> String {
    let all: Vec<String> = numbers(mask).iter().map(u8::to_string).collect();
    all.join(", ")
}

fn few(names: &[String]) -> String {
    let first = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len() {
        0 => "no endpoint".to_owned(),
        count if count > NAMED_MAX => format!("{first} and {} more", count - NAMED_MAX),
        _ => first,
    }
}
