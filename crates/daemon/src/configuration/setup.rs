//! A host becomes a member: the first of a new fabric, or another one of an existing fabric.
//!
//! Everything is checked before anything is written. What is written last makes the host a member:
//! its place ([`Place`]). A host that is killed before that is still none, and may try again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use anyhow::{Context as _, bail};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sluice_api::config::{HostConfig, LocalConfig, LocalUnderlay, Policy};
use sluice_api::fabric_config::{FabricConfig, Member, NotApplicable, Operation, Role};
use sluice_api::transaction as api;
use sluice_control::commit::Seat;

pub(crate) use super::store::FILE;
use super::store::{Disk, Place};
use crate::config::member::compose;
use crate::discovery::{self, Announcer, Beacon};
use crate::enroll::{self, Applicant, Credentials, Files, Fingerprint, Token, join_port};
use crate::fabric::{Wall, wall};

/// Port of a fabric, unless another one is named.
pub(super) const FABRIC_PORT: u16 = 7474;

/// A host that is no member yet.
#[derive(Clone, Debug)]
pub(crate) struct Applying {
    /// Its file, or the defaults.
    pub(crate) local: LocalConfig,
    /// Directory of its state.
    pub(crate) state_dir: std::path::PathBuf,
    /// Networks and settings that it knows already, as from a file that said everything: the first
    /// ones of a new fabric; of an existing one until its configuration comes.
    pub(crate) known: Vec<Operation>,
}

/// A host that has become a member.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    /// Answer to the person who asked.
    pub(crate) answer: api::Answer,
}

/// Returns the place of a host in its fabric; `None` if it is in none.
///
/// # Errors
/// If the state cannot be read.
pub(crate) fn place(state_dir: &Path) -> anyhow::Result<Option<Place>> {
    match Disk::open(state_dir)? {
        Some(disk) => disk.place(),
        None => Ok(None),
    }
}

impl Applying {
    /// Makes a fabric of this host. `check` finds what is wrong with its configuration, and returns
    /// notes on it.
    ///
    /// # Errors
    /// Reason why there is no fabric, with the remedy.
    pub(crate) fn create(
        &self,
        fabric: &str,
        place: &api::Place,
        check: impl FnOnce(&HostConfig) -> Result<Vec<String>, String>,
    ) -> anyhow::Result<Joined> {
        let underlay = self.underlay(place, None)?;
        let vtep = vtep(place, &underlay.device)?;
        let (name, files) = (self.local.host.name.as_str(), Files::of(&self.state_dir));
        check_free(&files)?;
        let credentials = Credentials::create(name, now_s(&wall()))?;
        let seat = seat_of(&credentials)?;
        let mut shared = FabricConfig::new(fabric)?;
        let member = Member { id: 1, seat: seat.get(), vtep, address: None, role: Role::default() };
        shared.apply(&[
            Operation::AddMember { name: name.to_owned(), member },
            Operation::SetAuthorities { authorities: credentials.authorities().to_vec() },
        ])?;
        shared.apply(&self.known)?;
        let fitting = fit_policy(&mut shared, &underlay)?;
        let config = compose(&self.local, Some(&underlay), &shared, (name, &self.state_dir));
        let notes = check(&config.map_err(anyhow::Error::msg)?).map_err(anyhow::Error::msg)?;
        let notes = fitting.into_iter().chain(notes).collect();
        files.install(&credentials)?;
        let answer = api::Answer::Member {
            fabric: fabric.to_owned(),
            host: name.to_owned(),
            id: 1,
            vtep,
            members: vec![name.to_owned()],
            notes,
        };
        let place = Place {
            fabric: fabric.to_owned(),
            name: name.to_owned(),
            id: 1,
            seat: seat.get(),
            is_founder: true,
            underlay,
        };
        Disk::create(&self.state_dir)?.begin(&place, &shared)?;
        Ok(Joined { answer })
    }

    /// Makes this host a member of a fabric.
    ///
    /// # Errors
    /// Reason why it is none, with the remedy.
    pub(crate) fn join(
        &self,
        (address, token): (&str, &str),
        place: &api::Place,
        check: impl FnOnce(&HostConfig) -> Result<Vec<String>, String>,
    ) -> anyhow::Result<Joined> {
        let to = address_of(address)?;
        let token: Token = token.parse()?;
        let underlay = self.underlay(place, Some(to))?;
        let vtep = vtep(place, &underlay.device)?;
        let name = self.local.host.name.as_str();
        let files = Files::of(&self.state_dir);
        check_free(&files)?;
        let key = files.join_key()?;
        let listen = SocketAddr::new(IpAddr::V4(vtep), FABRIC_PORT);
        let applicant = Applicant {
            name: name.to_owned(),
            vtep: IpAddr::V4(vtep),
            address: listen,
            underlay: underlay.kind,
        };
        let notes = self.check_alone((&underlay, vtep), check)?;
        let joined = enroll::join(to, &token, &applicant, &key, &wall())?;
        let seat = seat_of(&joined.credentials)?;
        let mut bootstrap = bootstrap(&joined, (name, vtep, seat))?;
        bootstrap.apply(&self.known)?;
        fit_policy(&mut bootstrap, &underlay)?;
        files.install(&joined.credentials)?;
        if let Some(next) = &joined.next {
            files.keep_next(next)?;
        }
        let place = Place {
            fabric: joined.fabric.clone(),
            name: name.to_owned(),
            id: joined.id,
            seat: seat.get(),
            is_founder: false,
            underlay,
        };
        Disk::create(&self.state_dir)?.begin(&place, &bootstrap)?;
        Ok(Joined {
            answer: api::Answer::Member {
                fabric: joined.fabric,
                host: name.to_owned(),
                id: joined.id,
                vtep,
                members: bootstrap.members.keys().cloned().collect(),
                notes,
            },
        })
    }

    /// Checks the own part of the configuration before anybody else is asked.
    fn check_alone(
        &self,
        (underlay, vtep): (&LocalUnderlay, Ipv4Addr),
        check: impl FnOnce(&HostConfig) -> Result<Vec<String>, String>,
    ) -> anyhow::Result<Vec<String>> {
        let name = self.local.host.name.as_str();
        let mut alone = FabricConfig::new("check")?;
        let member = Member { id: 1, seat: 1, vtep, address: None, role: Role::default() };
        alone.apply(&[Operation::AddMember { name: name.to_owned(), member }])?;
        alone.apply(&self.known)?;
        fit_policy(&mut alone, underlay)?;
        let config = compose(&self.local, Some(underlay), &alone, (name, &self.state_dir));
        check(&config.map_err(anyhow::Error::msg)?).map_err(anyhow::Error::msg)
    }

    /// Returns the underlay: the one that is named, the file's, or that of the route to a member.
    fn underlay(
        &self,
        place: &api::Place,
        member: Option<SocketAddr>,
    ) -> anyhow::Result<LocalUnderlay> {
        if let (Some(rate), Some(_)) = (place.rate_mbps, &self.local.underlay) {
            bail!(
                "the file of this host has an `[underlay]`, which holds: set `link = {{ rate_mbps \
                 = {rate} }}` there, and leave `--rate` out"
            );
        }
        if let (Some(named), Some(own)) = (&place.underlay, &self.local.underlay)
            && *named != own.device
        {
            bail!(
                "the file of this host has an `[underlay]` with the device `{}`, which holds: \
                 change it there, or leave `--underlay {named}` out",
                own.device
            );
        }
        let device = match (&place.underlay, &self.local.underlay, member) {
            (Some(device), None, _) => device.clone(),
            (_, Some(underlay), _) => return Ok(underlay.clone()),
            (None, None, Some(member)) => device_to(member).with_context(|| {
                format!(
                    "no route to {member} is known, whose device could be the underlay; name it, \
                     as `--underlay eth0`"
                )
            })?,
            (None, None, None) => bail!("name the device of the underlay, as `--underlay eth0`"),
        };
        let mut underlay = LocalUnderlay::new(&device);
        // A device that is not there is refused later, with the rest of the configuration.
        let own = || sluice_ports::device::speed_mbps(&device).ok().flatten();
        underlay.link.rate_mbps = place.rate_mbps.or_else(own);
        Ok(underlay)
    }
}

/// Gives a fabric of which no policy is said the one that fits an underlay. Returns a note if that
/// is not the default.
fn fit_policy(
    shared: &mut FabricConfig,
    underlay: &LocalUnderlay,
) -> Result<Option<String>, NotApplicable> {
    let default = Policy::default();
    let fitting = default.on(underlay.kind);
    if shared.settings.policy.is_some() || fitting == default {
        return Ok(None);
    }
    shared.apply(&[Operation::Set {
        key: "policy".to_owned(),
        value: Some(fitting.name().into()),
    }])?;
    Ok(Some(format!(
        "policy {}, not {}: the UDP sockets of this underlay see no pause frames (PFC), so the \
         physical network may drop; `sluice config set policy=…` changes it",
        fitting.name(),
        default.name()
    )))
}

/// Checks that a host has no certificate of another fabric.
fn check_free(files: &Files) -> anyhow::Result<()> {
    if files.has_credentials() {
        bail!(
            "{} has the certificate of another fabric; remove that folder if the host is not to go \
             back to it",
            files.folder().display()
        );
    }
    Ok(())
}

/// Forgets the fabric of a host that has left it. What it knew stays beside it, for people.
///
/// # Errors
/// If it cannot be moved away.
pub(crate) fn forget(state_dir: &Path) -> anyhow::Result<()> {
    for name in [FILE, crate::sys::run_dir::PORTS_FILE] {
        let (from, to) = (state_dir.join(name), state_dir.join(format!("{name}.left")));
        match std::fs::rename(&from, &to) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            moved => moved.with_context(|| format!("cannot move {} away", from.display()))?,
        }
    }
    Ok(Files::of(state_dir).remove()?)
}

/// Announces a host that waits, where other hosts may be. It is a hint: a machine on which it
/// cannot be given does without.
pub(crate) fn announce_waiting(name: &str) -> Option<Announcer> {
    let places = discovery::candidates().ok()?;
    Announcer::start(places, Beacon::waiting(name, FABRIC_PORT).ok()?).ok()
}

/// Announces a member at its underlay.
pub(super) fn announce_member(place: &Place, vtep: Ipv4Addr, authority: &str) -> Option<Announcer> {
    let at = discovery::Place { device: place.underlay.device.clone(), address: vtep };
    let beacon = Beacon::member(&place.name, FABRIC_PORT, (&place.fabric, authority)).ok()?;
    Announcer::start(vec![at], beacon).ok()
}

/// Returns the fabric as a host knows it that has joined, until the first snapshot comes.
fn bootstrap(
    joined: &enroll::Joined,
    (name, vtep, seat): (&str, Ipv4Addr, Seat),
) -> anyhow::Result<FabricConfig> {
    let mut shared = FabricConfig::new(&joined.fabric)?;
    let mut change = Vec::new();
    for other in joined.members.iter().filter(|other| other.name != name) {
        let (IpAddr::V4(vtep), IpAddr::V4(address)) = (other.vtep, other.address.ip()) else {
            bail!("member `{}` has an IPv6 address, which no underlay carries here", other.name);
        };
        let address = (address != vtep).then_some(address);
        // Its seat is not known yet.
        let member = Member { id: other.id, seat: 1, vtep, address, role: Role::default() };
        change.push(Operation::AddMember { name: other.name.clone(), member });
    }
    let member =
        Member { id: joined.id, seat: seat.get(), vtep, address: None, role: Role::default() };
    change.push(Operation::AddMember { name: name.to_owned(), member });
    let authorities = joined.credentials.authorities().to_vec();
    change.push(Operation::SetAuthorities { authorities });
    shared.apply(&change)?;
    Ok(shared)
}

/// Returns the identity of the disk that has the key of a certificate.
fn seat_of(credentials: &Credentials) -> anyhow::Result<Seat> {
    let certificate = CertificateDer::from_pem_slice(credentials.certificate().as_bytes())?;
    let key = Fingerprint::of_certificate(&certificate);
    key.map(seat).context("this host's own certificate cannot be read")
}

/// Returns the identity of a disk: it has the key, which no other disk has.
pub(super) fn seat(key: Fingerprint) -> Seat {
    let digits = key.to_string();
    let bits = u64::from_str_radix(&digits[..12], 16).unwrap_or(1);
    Seat::new(bits.max(1)).expect("not zero")
}

/// Returns the seconds since 1970.
pub(super) fn now_s(wall: &Wall) -> i64 {
    wall.current_time().map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// Returns the address of the VTEP: the one that is named, or the first of the device.
fn vtep(place: &api::Place, device: &str) -> anyhow::Result<Ipv4Addr> {
    if let Some(vtep) = place.vtep {
        return Ok(vtep);
    }
    let all = sluice_ports::device::addresses();
    let all = all.context("cannot read the addresses of this machine")?;
    match all.iter().find(|(name, _)| name == device) {
        Some((_, address)) => Ok(*address),
        None => bail!(
            "device `{device}` has no IPv4 address, which the VTEP needs; give it one, or name \
             the device that has it (`--underlay`)"
        ),
    }
}

/// Returns the device of the route to an address.
fn device_to(member: SocketAddr) -> Option<String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent: the kernel looks the route up.
    socket.connect(member).ok()?;
    let IpAddr::V4(own) = socket.local_addr().ok()?.ip() else { return None };
    sluice_ports::device::device_with(own).ok().flatten()
}

/// Reads the address of a member. The port is that of its fabric, if one is named.
fn address_of(text: &str) -> anyhow::Result<SocketAddr> {
    let address = text
        .parse::<SocketAddr>()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, FABRIC_PORT)))
        .map_err(|_| anyhow::anyhow!("`{text}` is no address of a member, as 10.0.0.1"))?;
    let port = join_port(address.port())
        .with_context(|| format!("port {} cannot be that of a fabric", address.port()))?;
    Ok(SocketAddr::new(address.ip(), port))
}

#[cfg(test)]
mod tests;
