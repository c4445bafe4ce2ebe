//! `sluice port`: adds ports to a running host, deletes them, and lists those that were added.

use sluice_api::port::{Added, AddedPorts, Deleted, NewPort, Place, PortState};

use crate::client::show::{self, HostSelector};
use crate::ipc::protocol::Request;

/// Adds a port and prints its properties.
///
/// # Errors
/// If no host answers, or it cannot be added, with the remedy.
pub fn add(whom: &HostSelector, new: NewPort, json: bool) -> anyhow::Result<()> {
    let added: Added = show::answer(whom, &Request::Add(Box::new(new)))?;
    let words = || {
        let place = added.netns.as_deref().unwrap_or("this host");
        let ips: String = added.ips.iter().map(|ip| format!(" {ip}")).collect();
        let who = match &added.mac {
            Some(mac) => format!("bound to {mac}{ips}{}", also(&added)),
            None => "who is behind it is learned".to_owned(),
        };
        format!("port {} of {}: device {} in {place}, {who}", added.name, added.vnet, added.device)
    };
    show::print(whom, &added, json, words)
}

/// Formats the addresses that a port may share.
fn also(added: &Added) -> String {
    let allowed: Vec<String> = added.allowed.iter().map(ToString::to_string).collect();
    if allowed.is_empty() { String::new() } else { format!("; allowed: {}", allowed.join(" ")) }
}

/// Deletes a port that was added.
///
/// # Errors
/// If no host answers, or there is no such port.
pub fn delete(whom: &HostSelector, name: &str, json: bool) -> anyhow::Result<()> {
    let deleted: Deleted = show::answer(whom, &Request::Del(name.to_owned()))?;
    show::print(whom, &deleted, json, || match deleted.frames {
        0 => format!("port {} is gone", deleted.name),
        frames => format!("port {} is gone; {frames} frames ended with it", deleted.name),
    })
}

/// Lists the ports that were added.
///
/// # Errors
/// If no host answers.
pub fn list(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    let all: AddedPorts = show::answer(whom, &Request::Ports)?;
    show::print(whom, &all, json, || {
        let header = ["port", "vnet", "place", "device", "for", "state"];
        let rows = all.ports.iter().map(row).collect();
        show::table(&header, header.len(), rows, "no port was added").trim_end().to_owned()
    })
}

fn row(state: &PortState) -> Vec<String> {
    let PortState { port, open } = state;
    let place = match &port.place {
        Place::Netns(netns) => netns.clone(),
        Place::Pid(pid) => format!("process {pid}"),
        Place::Vm(vm) => vm.socket.clone(),
        Place::Tap(_) | Place::Host => "this host".to_owned(),
    };
    let made_for = port.cni.as_ref().map_or_else(String::new, |of| {
        format!("{} of {}, network {}", of.interface, of.container, of.network)
    });
    let state = if *open { "open" } else { "waits" };
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    vec![word(&port.name), port.vnet.clone(), place, word(&port.device), made_for, state.to_owned()]
}
