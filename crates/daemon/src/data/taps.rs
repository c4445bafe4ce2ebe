//! The TAPs of this process, its veth pairs ([`super::veths`]), and the socket of a `udp` underlay
//! that no other worker shares. Control holds a copy of each descriptor and outlives this process.
//!
//! ```text
//!   start: descriptors that control kept, and the records on disk
//!   open:  taken over or made ── recorded ── persistent ── its descriptor held
//!   tidy:  TAPs that no port has taken over by then are deleted
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_ports::chip::{CardConfig, KernelCard};
use sluice_ports::tap::abandoned::{self, Inhabited};
use sluice_ports::tap::{KeptTap, TapConfig, TapPort};
use sluice_ports::udp::{UdpConfig, UdpPort};
use sluice_ports::veth::{VethConfig, VethPort};
use sluice_ports::{OpenError, PortHandover};

use super::chip::Chip;
use super::veths::Veths;
use crate::config::{Attachment, Plan, PortPlan};
use crate::sys::descriptors::Named;
use crate::sys::log::say;
use crate::sys::taps::{self, Record};

/// TAPs, by port.
#[derive(Debug)]
pub(super) struct Taps {
    run_dir: PathBuf,
    host: String,
    held: Mutex<BTreeMap<String, Held>>,
    veths: Veths,
    /// The chip, if it is not the switch.
    chip: Option<Chip>,
    /// Sockets, by port: from an earlier process at first, this process's own afterwards.
    sockets: Mutex<BTreeMap<String, OwnedFd>>,
    /// State handed over by an earlier process, by port. A port that several workers share has one
    /// entry per worker, in their order.
    handed: Mutex<BTreeMap<String, VecDeque<PortHandover>>>,
}

#[derive(Debug)]
struct Held {
    record: Record,
    file: Option<OwnedFd>,
    /// True if a port of this process uses the TAP.
    is_open: bool,
    /// True if this process made the TAP.
    is_new: bool,
    /// State of the container behind it.
    container: Container,
}

impl Held {
    /// Notes the outcome of a look for the container.
    fn see_container(&mut self, port: &str, is_found: bool) {
        let next = match (self.container, is_found) {
            (_, true) => Container::There,
            (Container::There, false) => Container::Missed,
            (Container::Missed | Container::Gone, false) => Container::Gone,
        };
        let (was_gone, is_gone) = (self.container == Container::Gone, next == Container::Gone);
        if was_gone != is_gone && !self.set_carrier(port, !is_gone) {
            // The next look tries again.
            return;
        }
        self.container = next;
    }

    /// Returns false if the carrier could not be set.
    fn set_carrier(&self, port: &str, is_on: bool) -> bool {
        let Some(file) = &self.file else { return true };
        match abandoned::set_carrier(file.as_fd(), is_on) {
            Ok(()) if is_on => say!("port {port}: somebody is in its namespace again"),
            Ok(()) => say!(
                warn: "port {port}: the name of its namespace is gone, and nobody is left inside: \
                       its card has no carrier"
            ),
            Err(error) => {
                say!(debug: "port {port}: cannot set the carrier: {error}");
                return false;
            }
        }
        true
    }
}

/// State of the container behind a TAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    There,
    /// Not found at the last look: a process may have begun while it went on.
    Missed,
    /// Not found twice in a row: its card has no carrier.
    Gone,
}

impl Taps {
    /// Takes the TAPs and sockets of an earlier process.
    pub(super) fn new(plan: &Plan, kept: Vec<Named>) -> Self {
        let mut kept: BTreeMap<String, OwnedFd> = kept.into_iter().collect();
        let held = |record: Record| {
            let file = kept.remove(&record.port);
            let held =
                Held { record, file, is_open: false, is_new: false, container: Container::There };
            (held.record.port.clone(), held)
        };
        let held = taps::read(&plan.run_dir).into_iter().map(held).collect();
        let host = plan.config.host.name.clone();
        let veths = Veths::new(&mut kept);
        // The rest are sockets. A descriptor with an unknown name is closed when its port is not
        // opened.
        let sockets = Mutex::new(kept);
        let (run_dir, held) = (plan.run_dir.clone(), Mutex::new(held));
        Self { run_dir, host, held, veths, chip: None, sockets, handed: Mutex::default() }
    }

    /// Adds the chip.
    pub(super) fn with_chip(mut self, chip: Option<Chip>) -> Self {
        self.chip = chip;
        self
    }

    /// The chip, if it is not the switch.
    pub(super) const fn chip(&self) -> Option<&Chip> {
        self.chip.as_ref()
    }

    /// Makes the card of a port whose frames the kernel forwards, or finds it.
    pub(super) fn open_card(&self, plan: &PortPlan) -> Result<KernelCard, OpenError> {
        let Attachment::Kernel { device, netns, mac, addresses, routes, mtu, .. } =
            &plan.attachment
        else {
            unreachable!("the caller has matched it")
        };
        KernelCard::open(&CardConfig {
            host: self.host.clone(),
            port: plan.name.clone(),
            device: device.clone(),
            netns: netns.clone(),
            mac: *mac,
            addresses: addresses.clone(),
            routes: routes.clone(),
            mtu: *mtu,
        })
    }

    /// Takes over like [`Self::new`], with the state that an earlier process handed over.
    pub(super) fn succeed(
        plan: &Plan,
        kept: Vec<Named>,
        handed: Vec<(String, PortHandover)>,
    ) -> Self {
        let taps = Self::new(plan, kept);
        for (port, handed) in handed {
            taps.handed_over().entry(port).or_default().push_back(handed);
        }
        taps
    }

    /// Takes the state that was handed over for a port, or for the next worker's part of the port.
    pub(super) fn take_handed(&self, port: &str) -> Option<PortHandover> {
        self.handed_over().get_mut(port)?.pop_front()
    }

    /// Closes all descriptors that were handed over and that no port has taken over.
    pub(super) fn close_handed(&self) {
        self.handed_over().clear();
    }

    fn handed_over(&self) -> MutexGuard<'_, BTreeMap<String, VecDeque<PortHandover>>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns copies of the descriptors of all TAPs.
    pub(super) fn tap_descriptors(&self) -> Vec<Named> {
        let copy = |(name, held): (&String, &Held)| {
            Some((name.clone(), held.file.as_ref()?.try_clone().ok()?))
        };
        self.held().iter().filter_map(copy).collect()
    }

    /// Opens the sockets of an underlay.
    pub(super) fn open_udp(&self, port: &str, config: &UdpConfig) -> Result<UdpPort, OpenError> {
        let mut sockets = self.sockets();
        let kept = sockets.remove(port).filter(|_| config.sharers <= 1).map(UdpPort::handed);
        let opened = UdpPort::adopt(config, self.take_handed(port).or(kept))?;
        sockets.extend(opened.duplicate_socket().map(|socket| (port.to_owned(), socket)));
        Ok(opened)
    }

    fn sockets(&self) -> MutexGuard<'_, BTreeMap<String, OwnedFd>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the veth pair of a port.
    pub(super) fn open_veth(&self, port: &str, config: &VethConfig) -> Result<VethPort, OpenError> {
        self.veths.open(port, config, self.take_handed(port))
    }

    /// Opens the TAP of a port.
    pub(super) fn open(&self, port: &str, config: &TapConfig) -> Result<TapPort, OpenError> {
        let mut held = self.held();
        let copy = |file: &OwnedFd| file.try_clone().ok();
        let is_new = !held.contains_key(port);
        let known = held.get(port).map(|held| {
            let file = held.file.as_ref().and_then(copy);
            held.record.known(file)
        });
        let kept = KeptTap::open(config, &taps::mark(&self.host, port), known)?;
        let failed =
            |what| move |source| OpenError::Device { device: config.device.clone(), what, source };
        let given = TapConfig { offload: kept.offload, holds: kept.holds, ..config.clone() };
        let record = Record::new(port, &given, kept.index, kept.is_own);
        taps::write(&self.run_dir, &record).map_err(failed("write down that it is there"))?;
        let (opened, file) = kept.keep().map_err(failed("keep it"))?;
        let file = Some(file);
        let opened_anew = Held { record, file, is_open: true, is_new, container: Container::There };
        held.insert(port.to_owned(), opened_anew);
        Ok(opened)
    }

    /// Deletes the device of a port that is closed, if it has one.
    pub(super) fn delete(&self, port: &str) {
        self.veths.delete(port);
        self.delete_card(port);
        let held = self.held().remove(port);
        if let Some(Held { record, file, .. }) = held {
            taps::delete(&self.run_dir, &self.host, &record, file);
        }
    }

    /// Deletes the card of a port whose frames the kernel forwards, if it is one.
    fn delete_card(&self, port: &str) {
        if self.chip.is_some()
            && let Err(error) = KernelCard::delete(&self.host, port)
        {
            say!(warn: "port {port}: its card stays: {error}");
        }
    }

    /// Deletes the devices that an earlier process left and no port has taken over.
    pub(super) fn tidy(&self) {
        self.veths.tidy();
        let mut held = self.held();
        let (open, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut *held).into_iter().partition(|(_, held)| held.is_open);
        *held = open;
        let (mut records, mut files) = (Vec::new(), Vec::new());
        for (name, Held { record, file, .. }) in left {
            records.push(record);
            files.extend(file.map(|file| (name, file)));
        }
        taps::delete_all(&self.run_dir, &self.host, records, files);
    }

    /// Deletes the TAPs that this process made, since it cannot continue.
    pub(super) fn undo(&self) {
        let made = std::mem::take(&mut *self.held()).into_iter().filter(|(_, held)| held.is_new);
        for (_, Held { record, file, .. }) in made {
            taps::delete(&self.run_dir, &self.host, &record, file);
        }
    }

    /// Returns copies of the descriptors of these ports, or of all.
    pub(super) fn descriptors(&self, ports: &[String]) -> Vec<Named> {
        let held = self.held();
        let wanted = held.iter().filter(|(name, _)| ports.is_empty() || ports.contains(name));
        let copy = |(name, held): (&String, &Held)| {
            Some((name.clone(), held.file.as_ref()?.try_clone().ok()?))
        };
        let sockets = self.sockets();
        let beside = sockets.iter().filter(|_| ports.is_empty());
        let beside = beside.filter_map(|(name, file)| Some((name.clone(), file.try_clone().ok()?)));
        let taps = wanted.filter_map(copy).chain(beside);
        taps.chain(self.veths.descriptors(ports)).collect()
    }

    /// Takes the carrier of each own TAP whose container is gone, and gives it back when somebody
    /// lives in its namespace again. `/proc` is read only if a namespace has lost its name.
    pub(super) fn follow_containers(&self) {
        let nameless = self.nameless();
        let is_watched = |held: &Held| held.container != Container::There;
        if nameless.is_empty() && !self.held().values().any(is_watched) {
            return;
        }
        let inhabited = if nameless.is_empty() { None } else { Inhabited::look() };
        for (port, held) in self.held().iter_mut() {
            let namespace = nameless.get(port);
            let is_found = namespace.is_none_or(|namespace| {
                inhabited.as_ref().is_none_or(|all| all.contains(*namespace))
            });
            held.see_container(port, is_found);
        }
    }

    /// Returns the namespaces of own TAPs whose names lead elsewhere, by port.
    fn nameless(&self) -> BTreeMap<String, u64> {
        let look = |(port, held): (&String, &Held)| {
            let (name, file) = (held.record.netns.as_ref()?, held.file.as_ref()?);
            // A device that is gone has no container to follow.
            let namespace = abandoned::nameless(file.as_fd(), name).ok()??;
            held.record.is_own.then(|| (port.clone(), namespace))
        };
        self.held().iter().filter_map(look).collect()
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
