//! From a configuration file to a plan: the switch that it describes, the ports to open, and the
//! addresses that are known. Everything is checked before anything is opened.
//!
//! ```text
//!   text ─ document ─▶ HostConfig ─ check ─▶ (every problem, by line) ─ build ─▶ Plan
//!          form                     meaning                            pure
//! ```
//!
//! A plan is a function of the text and of the facts about the machine's devices ([`Devices`]), so
//! the tests need no devices.

mod added;
mod attachment;
mod build;
mod check;
mod document;
mod evpn;
mod fabric;
mod headroom;
mod live;
pub(crate) mod member;
mod numbers;
mod plan;
mod policy;
mod report;
pub(crate) mod trunks;
mod workers;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use sluice_api::config::HostConfig;
use sluice_api::port::NewPort;
use sluice_base::Mac;

pub(crate) use added::{
    AddedPort, BoundTo, answer as added_answer, card_answer, complete, completed, is_rebinding,
    place_is_there, plan as plan_port,
};
pub(crate) use build::{run_dir, state_dir};
pub(crate) use check::is_host_address;
pub use evpn::EvpnPlan;
pub use fabric::{Bound, FabricPlan, HostPlan, LocalPort};
pub(crate) use fabric::{TapPlace, number_of as fabric_number};
pub use headroom::Headroom;
pub(crate) use headroom::RING_MEMORY_BYTES_MAX;
pub(crate) use live::{Merged, OTHER_RUN_DIR, merge, no_place};
pub(crate) use numbers::EXTENSION as NUMBERS;
pub use numbers::Numbers;
pub(crate) use numbers::{is_same_peer, vnet_key};
pub use plan::{Attachment, Fingerprint, Plan, PortPlan};
pub(crate) use policy::{check as check_policies, check_added as check_added_policy};
pub use report::{Problem, Report};
pub use workers::{Placed, Why, Workers};

/// Facts about a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// MAC of the device.
    pub mac: Mac,
    /// Layer-3 MTU of the device.
    pub mtu: u16,
}

/// Facts about devices, each asked for once: a plan looks at one device for every network.
struct Remembered<'a> {
    devices: &'a dyn Devices,
    known: RefCell<BTreeMap<String, Option<DeviceFacts>>>,
}

impl<'a> Remembered<'a> {
    fn new(devices: &'a dyn Devices) -> Self {
        Self { devices, known: RefCell::default() }
    }
}

impl Devices for Remembered<'_> {
    fn facts(&self, device: &str) -> Option<DeviceFacts> {
        if let Some(known) = self.known.borrow().get(device) {
            return *known;
        }
        let facts = self.devices.facts(device);
        self.known.borrow_mut().insert(device.to_owned(), facts);
        facts
    }

    fn switch_of(&self, device: &str) -> Option<Vec<u8>> {
        self.devices.switch_of(device)
    }
}

/// Source of facts about devices.
pub trait Devices {
    /// Returns the facts about the device of this name; `None` if there is none.
    fn facts(&self, device: &str) -> Option<DeviceFacts>;

    /// Returns the number of the switch whose port a device is; `None` if it is none.
    fn switch_of(&self, _device: &str) -> Option<Vec<u8>> {
        None
    }
}

/// The devices of the network namespace that this program runs in.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelDevices;

impl Devices for KernelDevices {
    fn facts(&self, device: &str) -> Option<DeviceFacts> {
        let found = sluice_ports::device::device(device).ok()?;
        Some(DeviceFacts { mac: found.mac, mtu: u16::try_from(found.mtu).unwrap_or(u16::MAX) })
    }

    fn switch_of(&self, device: &str) -> Option<Vec<u8>> {
        sluice_ports::chip::switch_of(device).ok().flatten()
    }
}

/// Completes and checks a port to be added; returns it in the form in which it is kept.
///
/// # Errors
/// Reason why there is no such port beside the file's and the `others`, and the remedy.
pub fn admit(plan: &Plan, others: &[NewPort], new: &NewPort) -> Result<NewPort, String> {
    let new = complete(plan, new)?;
    plan_port(plan, others, &new)?;
    Ok(new)
}

/// Reads, checks and plans a configuration file.
///
/// # Errors
/// A [`Report`] of everything that is wrong with it.
pub fn load(path: &Path, devices: &dyn Devices) -> Result<Plan, Report> {
    let dir = std::path::absolute(path).ok().and_then(|path| Some(path.parent()?.to_owned()));
    load_beside(path, dir.as_deref(), devices)
}

/// Loads like [`load`], for a file whose relative paths are relative to another directory than its
/// own.
///
/// # Errors
/// See [`load`].
pub fn load_beside(path: &Path, dir: Option<&Path>, devices: &dyn Devices) -> Result<Plan, Report> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let mut report = Report::new(&name);
        report.problems.push(Problem {
            line: None,
            key: String::new(),
            what: format!("cannot be read: {error}"),
            remedy: "Name a readable file with `--config`.".to_owned(),
        });
        report
    })?;
    plan_in(dir, &name, &text, devices)
}

/// Checks and plans a configuration that lies in no directory; `name` names it in errors.
///
/// # Errors
/// A [`Report`] of everything that is wrong with it.
pub fn plan(name: &str, text: &str, devices: &dyn Devices) -> Result<Plan, Report> {
    plan_in(None, name, text, devices)
}

/// Checks and plans a configuration whose relative paths are relative to a directory.
///
/// # Errors
/// A [`Report`] of everything that is wrong with it.
pub fn plan_beside(dir: Option<&Path>, name: &str, text: &str) -> Result<Plan, Report> {
    plan_in(dir, name, text, &KernelDevices)
}

fn plan_in(
    dir: Option<&Path>,
    name: &str,
    text: &str,
    devices: &dyn Devices,
) -> Result<Plan, Report> {
    let devices = &Remembered::new(devices);
    let mut report = Report::new(name);
    let (document, mut config) = document::Document::read(text, &mut report);
    if let (Some(config), Some(dir)) = (&mut config, dir) {
        anchor(config, dir);
    }
    if let Some(config) = &config {
        check::Check::new(&document, config, devices, &mut report).all();
    }
    match config {
        Some(config) if report.problems.is_empty() => {
            let numbers = Numbers::of_positions(&config);
            Ok(Plan {
                dir: dir.map(Path::to_owned),
                ..build::build(text, config, numbers, devices)
            })
        }
        _ => {
            report.sort();
            Err(report)
        }
    }
}

/// Plans a plan's configuration with other numbers.
///
/// # Errors
/// If they are not the numbers of its networks and peers.
pub fn renumber(plan: Plan, numbers: Numbers, devices: &dyn Devices) -> Result<Plan, String> {
    if numbers == plan.numbers {
        return Ok(plan);
    }
    if !numbers.fit(&plan.config) {
        return Err("the numbers beside the configuration are those of another one".to_owned());
    }
    let devices = &Remembered::new(devices);
    Ok(Plan { dir: plan.dir, ..build::build(&plan.text, plan.config, numbers, devices) })
}

/// Checks and plans a configuration that has no text yet, for a host whose file lies in `dir`. The
/// text is written for those who keep it; nothing is read back from it.
///
/// # Errors
/// A [`Report`] of everything that is wrong with it.
pub fn plan_of(
    config: &HostConfig,
    dir: Option<&Path>,
    devices: &dyn Devices,
) -> Result<Plan, Report> {
    let devices = &Remembered::new(devices);
    let text = toml::to_string(config).expect("a configuration is plain data");
    let config = checked(config, dir, devices)?;
    let numbers = Numbers::of_positions(&config);
    let dir = dir.map(Path::to_owned);
    Ok(Plan { dir, ..build::build(&text, config, numbers, devices) })
}

/// Checks a configuration that has no text, and returns it with absolute paths.
///
/// # Errors
/// A [`Report`] of everything that is wrong with it.
pub(crate) fn checked(
    config: &HostConfig,
    dir: Option<&Path>,
    devices: &dyn Devices,
) -> Result<HostConfig, Report> {
    let mut report = Report::new("the new configuration");
    let (document, _) = document::Document::read("", &mut Report::new(""));
    let mut config = config.clone();
    if let Some(dir) = dir {
        anchor(&mut config, dir);
    }
    check::Check::new(&document, &config, devices, &mut report).all();
    if report.problems.is_empty() {
        return Ok(config);
    }
    report.sort();
    Err(report)
}

/// Makes relative paths of a file relative to its directory.
fn anchor(config: &mut HostConfig, dir: &Path) {
    let sockets = config.ports.iter_mut().map(|port| &mut port.socket);
    let underlay = config.underlay.iter_mut().map(|underlay| &mut underlay.socket);
    let host = [&mut config.host.run_dir, &mut config.host.state_dir];
    let paths = sockets.chain(underlay).chain(host).filter_map(Option::as_mut);
    for path in paths.chain(config.fabric.as_mut().map(|fabric| &mut fabric.certificates)) {
        // An absolute path stays as it is.
        if let Some(whole) = dir.join(&*path).to_str() {
            whole.clone_into(path);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
