//! The state of the control plane in words: numbers of networks, hosts and ports become names.

mod holds;

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_api::fabric::{
    Answer, DecapRow, EncapRow, EventRow, Flows, MemberRow, MoveRow, Question, RivalRow, TunnelRow,
    VnetRow, Vport, VportRow, VportUsage,
};
use sluice_base::{HostId, Mac, Nanos, PortId, Vni};
use sluice_control::plane::{BindingConflicts, Event, Health, Kind, Location, Plane};
use sluice_control::rpc::{self, Wrong};
use sluice_control::table;
use sluice_control::vport::{Key, Origin, Precedence};

use super::ports::{Port, Ports};
use crate::config::FabricPlan;
use crate::sys::log::Level;

pub(super) use self::holds::words as priorities;

/// Rows that are read from the table at a time.
const PAGE: usize = 4096;

/// Answers questions about a plane.
pub(super) struct Answers<'a> {
    plan: &'a FabricPlan,
    ports: &'a Ports,
    plane: &'a Plane,
    now: Nanos,
}

/// Returns the level of an event in the operator's log: events of hosts and errors are logged by
/// default, daily events of endpoints only on request.
pub(super) const fn level(event: &Event) -> Level {
    match event {
        Event::Conflict { .. }
        | Event::BoundTwice { .. }
        | Event::BindingTaken { .. }
        | Event::AddressSilent { .. }
        | Event::Held(..)
        | Event::MovesOften(..)
        | Event::Outdone(..)
        | Event::LinkDown(..)
        | Event::OutOfBounds(..)
        | Event::Refused(..)
        | Event::HostSuspected(..)
        | Event::HostDown(..)
        | Event::SessionHung(..)
        | Event::ClaimsStale(..)
        | Event::ClaimsEvicted(..)
        | Event::Isolated(..)
        | Event::HoldsUnknown(..)
        | Event::WrongTalk(..)
        | Event::Full(..) => Level::Warn,
        Event::HostUp(..)
        | Event::SessionUp(..)
        | Event::SessionDown(..)
        | Event::ClaimsLive(..)
        | Event::HoldBegun(..)
        | Event::HoldEnded(..)
        | Event::Restored(..) => Level::Info,
        _ => Level::Debug,
    }
}

impl<'a> Answers<'a> {
    pub(super) const fn new(
        plan: &'a FabricPlan,
        ports: &'a Ports,
        plane: &'a Plane,
        now: Nanos,
    ) -> Self {
        Self { plan, ports, plane, now }
    }

    /// Returns the answer, or the reason why there is none.
    pub(super) fn answer(&self, question: &Question) -> Result<Answer, String> {
        Ok(match question {
            Question::Vports { vnet } => Answer::Vports(self.vports(vnet.as_deref())?),
            Question::Vport { vnet, endpoint } => {
                Answer::Vport(Box::new(self.vport(vnet.as_deref(), endpoint)?))
            }
            Question::Vnets => Answer::Vnets(self.vnets()),
            Question::Members => Answer::Members(self.members()),
            Question::Flows => Answer::Flows(self.flows()),
            Question::Holds => Answer::Holds(self.holds()),
            Question::Certificates => return Err("these are known elsewhere".to_owned()),
            Question::Rivals => Answer::Rivals(self.rivals()),
            Question::Evpn => return Err("another thread knows it".to_owned()),
            Question::Trace(_) => return Err("a trace is made elsewhere".to_owned()),
            Question::Thaw { .. } => return Err("this changes something".to_owned()),
            Question::Watch => return Err("what is watched is told by and by".to_owned()),
        })
    }

    fn vnet(&self, vni: Vni) -> String {
        let known = self.plan.vnets.iter().find(|vnet| vnet.0 == vni);
        known.map_or_else(|| format!("vni {vni}"), |vnet| vnet.1.clone())
    }

    fn host(&self, host: HostId) -> String {
        self.plan.host_name(host).map_or_else(|| format!("host {host}"), str::to_owned)
    }

    fn port(&self, host: HostId, port: PortId) -> String {
        let own = (host == self.plan.own).then(|| self.ports.get(port)).flatten();
        own.map_or_else(|| port.to_string(), |port| port.local.name.clone())
    }

    /// Returns the networks that are asked for.
    fn asked(&self, vnet: Option<&str>) -> Result<Vec<Vni>, String> {
        match vnet {
            Some(name) => Ok(vec![self.plan.vnet_named(name)?.1]),
            None => Ok(self.plane.vnets().map(|(vni, _)| vni).collect()),
        }
    }

    fn vports(&self, vnet: Option<&str>) -> Result<Vec<VportRow>, String> {
        let mut rows = Vec::new();
        for vni in self.asked(vnet)? {
            let mut after = None;
            loop {
                let page = self.plane.vports(vni, after, PAGE);
                rows.extend(page.iter().map(|vport| self.row(vport)));
                match page.last() {
                    Some(last) if page.len() == PAGE => after = Some(last.claim.key.mac),
                    _ => break,
                }
            }
        }
        Ok(rows)
    }

    fn row(&self, vport: &table::Vport) -> VportRow {
        let claim = &vport.claim;
        let state = match vport.state {
            _ if vport.owner == self.plan.own => "own",
            table::OwnerState::Live => "live",
            table::OwnerState::Stale => "stale",
        };
        let own = (vport.owner == self.plan.own).then(|| self.ports.get(claim.port)).flatten();
        VportRow {
            vnet: self.vnet(claim.key.vni),
            mac: claim.key.mac.to_string(),
            ips: claim.ips.iter().collect(),
            shared: claim.ips_of(Precedence::Shared).iter().collect(),
            host: self.host(vport.owner),
            port: self.port(vport.owner, claim.port),
            state: state.to_owned(),
            origin: match claim.origin {
                Origin::Learned => "learned",
                Origin::Sticky => "sticky",
                Origin::Bound => "bound",
            }
            .to_owned(),
            moves: claim.moves,
            there_ns: self.plane.ago(vport.since).0,
            unused_ns: self.plane.ago(vport.used).0,
            policy: own.map(|own| Box::new(own.local.policy.clone())),
            usage: own.map(|own| Box::new(self.uncounted(claim.port, own))),
        }
    }

    /// Returns the usage of a port of this host, without the counters, which the data process has.
    fn uncounted(&self, id: PortId, port: &Port) -> VportUsage {
        let endpoints = match port.local.is_bound {
            true => u32::try_from(port.bound.len()).unwrap_or(u32::MAX),
            false => self.plane.learned_at(id),
        };
        VportUsage { port: id.0, endpoints, ..VportUsage::default() }
    }

    /// Finds the endpoint that a MAC or an IP address names, in one network or in any.
    pub(super) fn find(&self, vnet: Option<&str>, endpoint: &str) -> Result<Key, String> {
        let networks = self.asked(vnet)?;
        let mut found: Vec<Key> = if let Ok(mac) = endpoint.parse::<Mac>() {
            let keys = networks.into_iter().map(|vni| Key { vni, mac });
            keys.filter(|&key| self.plane.vport(key).is_some()).collect()
        } else if let Ok(ip) = endpoint.parse::<IpAddr>() {
            let vports = networks.into_iter().filter_map(|vni| self.plane.vport_of_ip(vni, ip));
            vports.map(|vport| vport.claim.key).collect()
        } else {
            return Err(format!("`{endpoint}` is neither a MAC nor an IP address"));
        };
        match (found.pop(), found.is_empty()) {
            (Some(key), true) => Ok(key),
            (Some(_), false) => {
                Err(format!("{endpoint} is in several networks; name one with `--vnet`"))
            }
            (None, _) => Err(format!("nobody claims {endpoint}; `sluice vport list` shows all")),
        }
    }

    fn vport(&self, vnet: Option<&str>, endpoint: &str) -> Result<Vport, String> {
        let key = self.find(vnet, endpoint)?;
        let info = self.plane.vport(key).ok_or("it has just gone")?;
        Ok(Vport {
            best: self.row(&info.vport),
            fdb: info.installed.map(|(location, _)| match location {
                Location::Port(port) => self.port(self.plan.own, port),
                Location::Host(host) => self.host(host),
            }),
            frozen_ns: info.frozen_until.map(|until| self.plane.until(until).0),
            moves_often: info.moves_often,
            others: self
                .plane
                .claims(key)
                .filter(|claim| claim.owner != info.vport.owner)
                .map(|claim| self.row(&claim))
                .collect(),
            history: info
                .history
                .iter()
                .map(|step| MoveRow {
                    ago_ns: self.plane.ago(step.when).0,
                    from: self.host(step.from),
                    to: self.host(step.to),
                    why: step.why.to_string(),
                })
                .collect(),
        })
    }

    /// Returns bindings that two hosts have at the same time.
    fn rivals(&self) -> Vec<RivalRow> {
        let rivals = self.plane.rivals().into_iter();
        let rows = rivals.map(|BindingConflicts { first, second }| RivalRow {
            vnet: self.vnet(first.key.vni),
            what: first.ip.map_or_else(|| first.key.mac.to_string(), |ip| ip.to_string()),
            first: self.host(first.host),
            first_port: self.port(first.host, first.port),
            second: self.host(second.host),
            second_port: self.port(second.host, second.port),
        });
        rows.collect()
    }

    fn vnets(&self) -> Vec<VnetRow> {
        let known: BTreeMap<Vni, u32> = self.plane.vnets().collect();
        let rows = self.plan.vnets.iter().map(|(vni, name)| VnetRow {
            vnet: name.clone(),
            vni: vni.get(),
            vports: known.get(vni).copied().unwrap_or(0),
            ports: self.plane.ports_of(*vni).iter().map(|&p| self.port(self.plan.own, p)).collect(),
            hosts: self
                .plan
                .hosts
                .iter()
                .filter(|host| host.vnets.contains(vni))
                .map(|host| host.name.clone())
                .collect(),
        });
        rows.collect()
    }

    fn members(&self) -> Vec<MemberRow> {
        let own = MemberRow {
            host: self.plan.name.clone(),
            id: self.plan.own.0,
            vtep: self.plan.listen.ip(),
            kind: "own".to_owned(),
            health: "alive".to_owned(),
            connected: true,
            incarnation: self.plane.incarnation(),
            vports: self.plane.own_claims(),
            stale_ns: None,
            sequence: self.plane.sequence(),
            lag: 0,
            records_sent: 0,
            records_received: 0,
            talk: BTreeMap::new(),
            // Known elsewhere.
            program: None,
            differs: Vec::new(),
            evicted: None,
        };
        let others = self.plane.hosts().map(|info| {
            let plan = self.plan.hosts.iter().find(|known| known.host == info.host);
            let foreign = info.kind == Kind::Foreign;
            MemberRow {
                host: self.host(info.host),
                id: if foreign { 0 } else { info.host.0 },
                vtep: plan.map_or(self.plan.listen.ip(), |plan| plan.vtep),
                kind: if foreign { "foreign" } else { "member" }.to_owned(),
                health: match info.health {
                    Health::Unknown => "unknown",
                    Health::Alive(_) => "alive",
                    Health::Suspected => "suspected",
                    Health::Down => "down",
                }
                .to_owned(),
                connected: info.is_up,
                incarnation: info.have.incarnation,
                vports: info.claims,
                stale_ns: info.stale_since.map(|since| self.plane.ago(since).0),
                sequence: info.have.sequence,
                lag: info.lag,
                records_sent: info.counts.records_sent,
                records_received: info.counts.records_received,
                talk: self.plane.talk_counts(info.host).map(named_counts).unwrap_or_default(),
                // Known elsewhere.
                program: None,
                differs: Vec::new(),
                evicted: None,
            }
        });
        std::iter::once(own).chain(others).collect()
    }

    fn flows(&self) -> Flows {
        let encap = self.plane.installed().filter_map(|(key, location, used)| match location {
            Location::Port(_) => None,
            Location::Host(host) => Some(EncapRow {
                vnet: self.vnet(key.vni),
                mac: key.mac.to_string(),
                host: self.host(host),
                unused_ns: self.plane.ago(used).0,
            }),
        });
        let decap = self.plane.decap_flows();
        Flows {
            tunnels: self
                .plane
                .tunnels()
                .map(|tunnel| TunnelRow {
                    host: self.host(tunnel.host),
                    open_ns: self.plane.ago(tunnel.opened).0,
                    encap_flows: tunnel.encap_flows,
                    decap_flows: tunnel.decap_flows,
                })
                .collect(),
            encap: encap.collect(),
            decap: decap
                .map(|(vni, host, _)| DecapRow { vnet: self.vnet(vni), host: self.host(host) })
                .collect(),
        }
    }

    /// Formats an event as a line.
    pub(super) fn event(&self, event: &Event, started: Nanos) -> EventRow {
        let text = event.to_string();
        let what = text.split_once(' ').map_or("", |(_, what)| what);
        EventRow {
            at_ns: self.now.since(started).0,
            event: event.name().to_owned(),
            what: self.named(event).unwrap_or_else(|| what.to_owned()),
        }
    }

    /// Formats a MAC, with an IP address if that is meant.
    fn binding(&self, key: &Key, ip: Option<IpAddr>) -> String {
        let ip = ip.map_or_else(String::new, |ip| format!(" {ip}"));
        format!("{} {}{ip}", self.vnet(key.vni), key.mac)
    }

    /// Formats an event of a binding, with names.
    fn of_binding(&self, event: &Event) -> Option<String> {
        Some(match event {
            Event::BoundTwice { key, ip, host } => format!(
                "{} is bound here and at {}: delete one of the two ports, or let one take it \
                 (`--move`)",
                self.binding(key, *ip),
                self.host(*host)
            ),
            Event::BindingTaken { key, ip, to } => format!(
                "{} is bound at {} now: its port here is not bound to it any more",
                self.binding(key, *ip),
                self.host(*to)
            ),
            _ => return None,
        })
    }

    /// Formats the events that people read most, with names.
    fn named(&self, event: &Event) -> Option<String> {
        let endpoint = |key: &Key| format!("{} {}", self.vnet(key.vni), key.mac);
        let port = |port: &PortId| format!("port {}", self.port(self.plan.own, *port));
        Some(match event {
            Event::VportAdded(key, host) | Event::VportChanged(key, host) => {
                let ips = self.plane.vport(*key).map(|info| info.vport.claim.ips);
                let ips = ips.iter().flat_map(|ips| ips.iter()).map(|ip| format!(" {ip}"));
                format!("{}{} at {}", endpoint(key), ips.collect::<String>(), self.host(*host))
            }
            Event::VportMoved { key, from, to, .. } => {
                format!("{} from {} to {}", endpoint(key), self.host(*from), self.host(*to))
            }
            Event::VportWithdrawn(key, host, why) => {
                format!("{} at {}: {why}", endpoint(key), self.host(*host))
            }
            Event::AddressMoved { from, to, ip } => format!("{ip} from {} to {to}", endpoint(from)),
            Event::AddressSilent { key, ip } => {
                format!("{} does not answer for {ip}", endpoint(key))
            }
            Event::Refused(at, key, why) => format!("{} at {}: {why}", endpoint(key), port(at)),
            Event::Held(at, key, why) => format!("{} at {}: {why}", endpoint(key), port(at)),
            Event::Outdone(host, known) => format!(
                "{} knows this host as {known}, a later start than this one; it goes on above that",
                self.host(*host)
            ),
            Event::HostUp(host, _)
            | Event::HostSuspected(host)
            | Event::HostDown(host)
            | Event::SessionUp(host)
            | Event::SessionDown(host)
            | Event::SessionHung(host)
            | Event::ClaimsEvicted(host)
            | Event::TunnelOpened(host) => self.host(*host),
            Event::Isolated(port, receiver) => self.isolated(*port, receiver),
            Event::MovesOften(key, moves) => {
                let window = self.plan.moves.window.0 / 1_000_000_000;
                format!("{}: {moves} times within {window} s", endpoint(key))
            }
            Event::LinkUp(at) => format!("{}: somebody is behind it", port(at)),
            Event::LinkDown(at) => {
                format!("{}: its link is down, or its namespace is gone", port(at))
            }
            Event::Restored(at) => format!("{} takes what comes again", port(at)),
            Event::HoldBegun(key, host) | Event::HoldEnded(key, host) => {
                format!("{} for {}", endpoint(key), self.host(*host))
            }
            Event::HoldsUnknown(host) => format!(
                "{} sends to an isolated port, and its version cannot hold frames: upgrade it",
                self.host(*host)
            ),
            Event::ClaimsStale(host, count) | Event::ClaimsLive(host, count) => {
                format!("{count} of {}", self.host(*host))
            }
            Event::TunnelClosed(host, end) => format!("{}: {end}", self.host(*host)),
            Event::FlowMade(key, host) => format!("{} to {}", endpoint(key), self.host(*host)),
            Event::FlowEnded(key, host, end) => {
                format!("{} to {}: {end}", endpoint(key), self.host(*host))
            }
            Event::DecapMade(vni, host) => format!("{} from {}", self.vnet(*vni), self.host(*host)),
            Event::DecapEnded(vni, host, end) => {
                format!("{} from {}: {end}", self.vnet(*vni), self.host(*host))
            }
            Event::OutOfBounds(host, key, bound) => {
                format!("{} {}: {}", self.host(*host), bound.name(), key.mac)
            }
            Event::WrongTalk(host, what) => format!("{}: {}", self.host(*host), what.name()),
            Event::BoundTwice { .. } | Event::BindingTaken { .. } => return self.of_binding(event),
            Event::Conflict { .. } | Event::TooManyIps(..) | Event::Full(_) => return None,
        })
    }
}

/// Returns the counters of questions and answers that are not zero.
fn named_counts(counts: rpc::Counts) -> BTreeMap<String, u64> {
    let rows = [
        ("asked", counts.asked),
        ("answered", counts.answered),
        ("late", counts.late),
        ("late_answers", counts.late_answers),
        ("served", counts.served),
        ("late_replies", counts.late_replies),
    ];
    let wrong = Wrong::ALL.iter().map(|wrong| wrong.name()).zip(counts.wrong);
    let all = rows.into_iter().chain(wrong).filter(|(_, count)| *count > 0);
    all.map(|(name, count)| (name.to_owned(), count)).collect()
}
