//! The world of a case: a network over two hosts, stations, a directory.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::station::Station;
use crate::rig::{Net, Netns};

/// Largest packet that fits into a tunnel of an underlay of 9,000 bytes.
pub(crate) const MTU_MAX: u16 = 8_950;
/// Default MTU of stations.
pub(crate) const MTU: u16 = 1_450;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    H1,
    H2,
}

impl Host {
    pub(crate) fn index(self) -> usize {
        match self {
            Self::H1 => 0,
            Self::H2 => 1,
        }
    }
}

/// A port for a station.
#[derive(Clone, Debug)]
pub(crate) struct Plug {
    pub(crate) network: usize,
    /// Number of the station in its case.
    pub(crate) number: u8,
    pub(crate) host: Host,
    pub(crate) netns: Netns,
    /// MAC, and IP with its prefix, for a subject that binds ports.
    pub(crate) bound: Option<(String, String)>,
    /// Address that it may share with other bound ports.
    pub(crate) shared: Option<Ipv4Addr>,
}

/// Binding of a port, if the subject binds ports.
enum Binding {
    None,
    /// MAC and address of its station.
    Own,
    /// Like `Own`, and it may share this address.
    And(Ipv4Addr),
}

/// A bridge or a fabric.
pub(crate) trait Subject: Sync {
    fn word(&self) -> &'static str;
    /// Gives a namespace the device `eth0`, in the network of a case.
    fn attach(&self, plug: &Plug);
    /// Removes the device.
    fn detach(&self, plug: &Plug);
}

/// One run of a case on one subject.
pub(crate) struct World<'a> {
    subject: &'a dyn Subject,
    network: usize,
    net: RefCell<Net>,
    last: Cell<u8>,
    plugs: RefCell<Vec<Plug>>,
}

impl<'a> World<'a> {
    pub(crate) fn new(subject: &'a dyn Subject, network: usize) -> Self {
        let net = Net::new(&format!("{}-{network}", subject.word()));
        Self {
            subject,
            network,
            net: RefCell::new(net),
            last: Cell::new(0),
            plugs: RefCell::default(),
        }
    }

    /// Makes stations at these hosts. They are called `a`, `b`, … in order.
    pub(crate) fn stations<const N: usize>(&self, hosts: [Host; N]) -> [Station; N] {
        hosts.map(|host| {
            let station = self.plug(host, &Binding::None, None);
            station.has_address();
            station
        })
    }

    /// Makes stations without an address.
    pub(crate) fn bare<const N: usize>(&self, hosts: [Host; N]) -> [Station; N] {
        hosts.map(|host| self.plug(host, &Binding::None, None))
    }

    /// Makes a station whose port is bound to its MAC and address, if the subject binds ports.
    pub(crate) fn bound(&self, host: Host) -> Station {
        let station = self.plug(host, &Binding::Own, None);
        station.has_address();
        station
    }

    /// Makes a bound station that may share an address with others.
    pub(crate) fn sharing(&self, host: Host, ip: Ipv4Addr) -> Station {
        let station = self.plug(host, &Binding::And(ip), None);
        station.has_address();
        station
    }

    /// Makes a station without an address that has the MAC of another one.
    pub(crate) fn twin(&self, host: Host, of: &Station) -> Station {
        self.plug(host, &Binding::None, Some(of))
    }

    fn plug(&self, host: Host, binding: &Binding, twin: Option<&Station>) -> Station {
        let number = self.last.get() + 1;
        self.last.set(number);
        let netns = self.net.borrow_mut().netns(&format!("s{number}"));
        let mut station = Station::new(netns.clone(), number);
        if let Some(other) = twin {
            (station.mac, station.name) = (other.mac, other.name);
        }
        let own = || (station.mac.to_string(), format!("{}/24", station.ip));
        let (bound, shared) = match *binding {
            Binding::None => (None, None),
            Binding::Own => (Some(own()), None),
            Binding::And(ip) => (Some(own()), Some(ip)),
        };
        let plug = Plug { network: self.network, number, host, netns, bound, shared };
        self.subject.attach(&plug);
        self.plugs.borrow_mut().push(plug);
        station.is_plugged_in();
        station
    }

    /// Unplugs a station, as if the port or the veth pair was deleted.
    pub(crate) fn unplug(&self, station: &Station) {
        let plugs = self.plugs.borrow();
        let plug = plugs.iter().find(|plug| plug.number == station.number).unwrap();
        self.subject.detach(plug);
    }

    /// Returns the path of a file of this run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.net.borrow().file(name)
    }

    /// Writes a file of this run.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        for plug in self.plugs.borrow().iter() {
            self.subject.detach(plug);
        }
    }
}
