//! Arguments of `sluice port add`, `sluice port del` and `sluice port list`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_api::port::{AllowedIp, Cidr, Kind, NewPort, Place, Route, VmSocket};
use sluice_daemon::client;
use sluice_daemon::client::show::HostSelector;

use crate::Asked;

#[derive(Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// Add a port: a device in a container, or on the host itself
    Add(Box<AddArguments>),
    /// Delete a port that was added, with its device
    Del {
        /// The name of the port
        name: String,
        #[command(flatten)]
        asked: Asked,
    },
    /// List the ports that were added
    List {
        #[command(flatten)]
        asked: Asked,
    },
}

/// Place of a new port.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct PlaceArguments {
    /// In this network namespace: its name, or a path
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// In the network namespace of this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// A device of this name on the host, for a bridge or a machine behind it
    #[arg(long, value_name = "DEVICE")]
    tap: Option<String>,
    /// A virtual machine behind this vhost-user socket
    #[arg(long, value_name = "SOCKET")]
    vm: Option<String>,
    /// On the host itself, which gets into the network by it
    #[arg(long = "host")]
    on_host: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AddArguments {
    #[command(flatten)]
    place: PlaceArguments,
    /// The kind of the device: tap, which drops what a sender has beyond its ring, or veth, which
    /// holds the sender
    #[arg(long, value_name = "KIND", default_value = "tap")]
    kind: Kind,
    /// The hypervisor listens at the socket of --vm, and the port connects
    #[arg(long, requires = "vm")]
    client: bool,
    /// The network
    #[arg(long, value_name = "NAME")]
    vnet: String,
    /// An address with its prefix, such as 10.0.0.7/24: the device gets it, and the endpoint is
    /// bound to it; may be given more than once
    #[arg(long = "ip", value_name = "CIDR")]
    ips: Vec<Cidr>,
    /// The MAC that the endpoint is bound to; without it and without --ip, senders are learned
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// An address, or a prefix, that the endpoint may speak as beside its own, such as a virtual
    /// one that several ports share: whoever announced it last has it; may be given more than once
    #[arg(long = "allow-ip", value_name = "IP|CIDR", value_delimiter = ',')]
    allowed: Vec<AllowedIp>,
    /// Take the MAC and the addresses over from a port of another host that is bound to them
    #[arg(long = "move")]
    moves: bool,
    /// Bind it here only: the ports that have the addresses keep them until --change
    #[arg(long)]
    standby: bool,
    /// Give a port of this name, behind which a machine is, these addresses in place
    #[arg(long)]
    change: bool,
    /// The router of the device's default route, which must be in a network of --ip
    #[arg(long, value_name = "IP")]
    gateway: Option<std::net::IpAddr>,
    /// A route of the device, with its router if it has one; may be given more than once
    #[arg(long = "route", value_name = "CIDR[,IP]")]
    routes: Vec<Route>,
    /// The MTU of the device; without it, that of the network
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,
    /// The name of the port; without it, that of the place
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The name of the device; without it, eth0 in a namespace and sl-NETWORK on the host
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The socket of the running host
    #[arg(long, value_name = "PATH", conflicts_with = "run_dir")]
    socket: Option<PathBuf>,
    /// The directory of the running host
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// The name of the running host, if several run on this machine
    #[arg(long, value_name = "NAME", conflicts_with_all = ["socket", "run_dir"])]
    on: Option<String>,
    /// Print JSON instead of a sentence
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: PortCommand) -> anyhow::Result<ExitCode> {
    match command {
        PortCommand::Del { name, asked } => client::port::delete(&asked.whom(), &name, asked.json)?,
        PortCommand::List { asked } => client::port::list(&asked.whom(), asked.json)?,
        PortCommand::Add(said) => {
            let said = *said;
            let whom = match (said.socket, said.run_dir, said.on) {
                (Some(path), _, _) => HostSelector::Socket(path),
                (None, Some(dir), _) => HostSelector::RunDir(dir),
                (None, None, Some(name)) => HostSelector::Host(name),
                (None, None, None) => HostSelector::TheOnlyOne,
            };
            let place = match (said.place.netns, said.place.pid, said.place.tap, said.place.vm) {
                (Some(netns), _, _, _) => Place::Netns(netns),
                (None, Some(pid), _, _) => Place::Pid(pid),
                (None, None, Some(device), _) => Place::Tap(device),
                (.., Some(socket)) => Place::Vm(VmSocket { socket, client: said.client }),
                (None, None, None, None) => Place::Host,
            };
            let (vnet, name, device) = (said.vnet, said.name, said.device);
            let (gateway, routes, mtu) = (said.gateway, said.routes, said.mtu);
            let (ips, mac, allowed) = (said.ips, said.mac, said.allowed);
            let new = NewPort {
                place,
                kind: said.kind,
                vnet,
                name,
                device,
                ips,
                mac,
                allowed,
                moves: said.moves,
                standby: said.standby,
                change: said.change,
                taken: 0,
                gateway,
                routes,
                mtu,
                cni: None,
            };
            client::port::add(&whom, new, said.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
