//! A machine of a case: a namespace with `eth0`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use sluice_base::Mac;

use super::listen::Listener;
use super::world::MTU;
use crate::rig::Netns;
use crate::rig::ping::Pinger;
use crate::rig::raw::Sender;

/// Longest time for an answer to one ping.
const PATIENCE: Duration = Duration::from_millis(400);

/// A machine.
#[derive(Clone)]
pub(crate) struct Station {
    pub(crate) netns: Netns,
    /// Number of the station; `a` is 1.
    pub(crate) number: u8,
    pub(crate) name: char,
    pub(crate) mac: Mac,
    pub(crate) ip: Ipv4Addr,
    pub(crate) ip6: Ipv6Addr,
}

impl Station {
    pub(crate) fn new(netns: Netns, number: u8) -> Self {
        Self {
            netns,
            number,
            name: char::from(b'a' + number - 1),
            mac: Mac([2, 0x50, 0, 0, 0, number]),
            ip: Ipv4Addr::new(10, 0, 0, number),
            ip6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()),
        }
    }

    /// Gives the device its MAC and sets it up.
    pub(crate) fn is_plugged_in(&self) {
        self.netns.ip(&format!("link set eth0 address {} mtu {MTU}", self.mac));
        self.netns.ip("link set eth0 up");
    }

    /// Gives the device its IPv4 address, if the port did not bring it.
    pub(crate) fn has_address(&self) {
        self.netns.ip(&format!("addr replace {}/24 dev eth0", self.ip));
    }

    /// Enables IPv6, with a link-local address.
    pub(crate) fn speaks_v6(&self) {
        self.sysctl("net/ipv6/conf/all/disable_ipv6", "0");
        self.sysctl("net/ipv6/conf/eth0/disable_ipv6", "0");
    }

    /// Enables IPv6, with its address, which is not probed for.
    pub(crate) fn has_address6(&self) {
        self.speaks_v6();
        self.netns.ip(&format!("-6 addr add {}/64 dev eth0 nodad", self.ip6));
    }

    /// Returns its link-local address, once duplicate address detection is over.
    pub(crate) fn link_local(&self) -> Option<Ipv6Addr> {
        let mut found = None;
        until(Duration::from_secs(8), || {
            let text = self.netns.ip("-6 -o addr show dev eth0 scope link -tentative");
            let mut words = text.split("inet6 ").skip(1);
            found = words.next().and_then(|rest| rest.split('/').next()?.parse().ok());
            found.is_some()
        });
        found
    }

    /// Writes a setting of its kernel.
    pub(crate) fn sysctl(&self, path: &str, value: &str) {
        let path = format!("/proc/sys/{path}");
        self.netns
            .inside(|| std::fs::write(&path, value).unwrap_or_else(|e| panic!("{path}: {e}")));
    }

    /// Runs `ip` in its namespace.
    pub(crate) fn does(&self, line: &str) -> String {
        self.netns.ip(line)
    }

    /// Returns the output of a command line, which may fail.
    pub(crate) fn prints(&self, line: &str) -> String {
        String::from_utf8_lossy(&self.netns.attempt(line).stdout).into_owned()
    }

    /// Flushes its neighbours.
    pub(crate) fn forgets(&self) {
        self.netns.ip("neigh flush all");
    }

    /// Returns the MAC that its kernel has for an address.
    pub(crate) fn neighbour(&self, ip: impl Into<IpAddr>) -> Option<Mac> {
        let text = self.netns.ip(&format!("neigh show {} dev eth0", ip.into()));
        text.split("lladdr ").nth(1)?.split_whitespace().next()?.parse().ok()
    }

    /// Returns the number of `count` pings that are answered.
    pub(crate) fn pings(&self, to: Ipv4Addr, count: usize) -> usize {
        let mut pinger = Pinger::with_patience(&self.netns, to, PATIENCE);
        (0..count).filter(|_| pinger.ping(84)).count()
    }

    /// Returns true if a ping is answered, with three seconds for neighbour resolution.
    pub(crate) fn reaches(&self, to: Ipv4Addr) -> bool {
        self.heals(to, Duration::from_secs(3)).is_some()
    }

    /// Returns the time until pings are answered.
    pub(crate) fn heals(&self, to: Ipv4Addr, limit: Duration) -> Option<Duration> {
        let mut pinger = Pinger::with_patience(&self.netns, to, PATIENCE);
        until(limit, || pinger.ping(84))
    }

    /// Returns the number of `count` pings over IPv6 that are answered.
    pub(crate) fn pings6(&self, to: impl std::fmt::Display, count: usize) -> usize {
        let text = self.prints(&format!("ping -6 -n -i 0.2 -W 1 -c {count} {to}"));
        text.matches("bytes from").count()
    }

    /// Returns the time until pings over IPv6 are answered.
    pub(crate) fn heals6(&self, to: Ipv6Addr, limit: Duration) -> Option<Duration> {
        until(limit, || self.netns.attempt(&format!("ping -6 -n -W 1 -c 1 {to}")).status.success())
    }

    /// Returns the MACs that answer ARP requests for an address, each once, in order.
    pub(crate) fn asks(&self, ip: Ipv4Addr, more: &str) -> Vec<Mac> {
        let text = self.prints(&format!("arping -r -c 2 -W 0.4 -w 2 -i eth0 {more} {ip}"));
        let mut macs: Vec<Mac> = text.lines().filter_map(|l| l.trim().parse().ok()).collect();
        macs.sort_unstable();
        macs.dedup();
        macs
    }

    /// Announces an address as its own, by a gratuitous ARP request.
    pub(crate) fn announces(&self, ip: Ipv4Addr) {
        self.sends(&super::frames::announcement(self.mac, ip));
    }

    /// Sends a frame unchanged; returns true if the kernel accepted it.
    pub(crate) fn sends(&self, frame: &[u8]) -> bool {
        self.sender().send(frame)
    }

    /// Returns a socket that sends frames unchanged.
    pub(crate) fn sender(&self) -> Sender {
        Sender::new(&self.netns, "eth0")
    }

    /// Starts to listen to all received frames.
    pub(crate) fn listens(&self) -> Listener {
        Listener::start(self)
    }

    /// Adds a macvlan device with its own MAC and address.
    pub(crate) fn has_macvlan(&self, name: &str, mac: Mac, address: &str) {
        self.netns.ip(&format!("link add {name} link eth0 address {mac} type macvlan mode bridge"));
        self.netns.ip(&format!("addr add {address} dev {name}"));
        self.netns.ip(&format!("link set {name} up"));
    }
}

/// Returns the names of the stations with these MACs.
pub(crate) fn names(macs: &[Mac], stations: &[&Station]) -> String {
    let name = |mac: &Mac| {
        let station = stations.iter().find(|station| station.mac == *mac);
        station.map_or_else(|| mac.to_string(), |station| station.name.to_string())
    };
    if macs.is_empty() {
        "nobody".to_owned()
    } else {
        macs.iter().map(name).collect::<Vec<_>>().join(" and ")
    }
}

/// Returns the time until a condition holds; `None` if it does not in time.
pub(crate) fn until(limit: Duration, mut is_so: impl FnMut() -> bool) -> Option<Duration> {
    let begin = Instant::now();
    loop {
        if is_so() {
            return Some(begin.elapsed());
        }
        if begin.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits.
pub(crate) fn wait(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
