//! Privileges of the two processes: no more than they need, with any parent.
//!
//! | capability | for |
//! |---|---|
//! | `NET_BIND_SERVICE` | the port of BGP |
//! | `NET_ADMIN`, `NET_RAW` | devices, TAPs, veth pairs, packet sockets, AF_XDP, marks |
//! | `SYS_ADMIN` | to enter the network namespaces of containers, and make those of veth pairs |
//! | `SYS_PTRACE` | to find the namespace of a process (`port add --pid`) |
//! | `BPF` | the programs at a device's hooks |
//! | `DAC_OVERRIDE`, `CHOWN`, `FOWNER` | other users' sockets; the group of `show.sock` |
//! | `SYS_NICE`, `IPC_LOCK`, `SYS_RESOURCE` | priorities, CPUs, memory that stays, descriptors |
//! | `KILL` | to end a data process that does not listen |
//!
//! All others are dropped at the start, before there is a second thread, and also for programs that
//! are executed later (`NoNewPrivs`, the bounding set). Files are for their owner alone.

mod user;

use std::path::Path;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use sluice_api::config::Host;

use crate::sys::log::say;

/// Capabilities that are kept if present.
pub(crate) const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::KILL);

/// Drops the capabilities that are not needed, and continues as the user of the configuration, if
/// it names one. That user becomes the owner of the host's directories.
///
/// # Errors
/// If there is no such user.
pub(crate) fn drop_others(host: &Host, dirs: [&Path; 2]) -> anyhow::Result<()> {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    if let Err(error) = bound() {
        say!("privileges that are not needed cannot all be given up: {error}");
    }
    if let Some(name) = &host.user {
        user::become_user(name, host.group.as_deref(), &dirs)?;
    }
    if let Err(error) = give_up() {
        say!("privileges that are not needed cannot all be given up: {error}");
    }
    Ok(())
}

/// Limits the privileges of programs that are executed later.
fn bound() -> Result<(), Errno> {
    set_no_new_privs(true)?;
    let now = capabilities(None)?;
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for bit in 0..u64::BITS {
            let one = CapabilitySet::from_bits_retain(1 << bit);
            // The kernel knows no capability from here on.
            let Ok(is_there) = capability_is_in_bounding_set(one) else { break };
            if is_there && !KEPT.contains(one) {
                remove_capability_from_bounding_set(one)?;
            }
        }
    }
    Ok(())
}

fn give_up() -> Result<(), Errno> {
    let permitted = capabilities(None)?.permitted & KEPT;
    if geteuid().is_root() {
        let inheritable = CapabilitySet::empty();
        let sets = CapabilitySets { effective: permitted, permitted, inheritable };
        return set_capabilities(None, sets);
    }
    // Only root regains them when it executes a program; other users pass them on.
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: permitted };
    set_capabilities(None, sets)?;
    for capability in permitted {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The unit grants the capabilities that the processes keep, so that either list alone would
    /// suffice.
    #[test]
    fn unit_has_the_same_list() {
        let unit = include_str!("../../../../packaging/sluice.service");
        for key in ["CapabilityBoundingSet=", "AmbientCapabilities="] {
            let line = unit.lines().find_map(|line| line.strip_prefix(key));
            let in_unit: CapabilitySet = line
                .unwrap()
                .split_whitespace()
                .map(|word| {
                    let name = word.strip_prefix("CAP_").unwrap();
                    CapabilitySet::from_name(name).unwrap_or_else(|| panic!("{word}"))
                })
                .collect();
            assert_eq!(in_unit, KEPT, "{key}");
        }
    }

    /// The unit forbids nothing that the processes do without it: sockets of `veth` ports, a
    /// thread with real-time priority, network namespaces.
    #[test]
    fn unit_allows_xdp_sockets_realtime_and_namespaces() {
        let unit = include_str!("../../../../packaging/sluice.service");
        let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key));
        let families = value("RestrictAddressFamilies=").unwrap();
        for family in ["AF_UNIX", "AF_INET", "AF_NETLINK", "AF_PACKET", "AF_XDP"] {
            assert!(families.split_whitespace().any(|word| word == family), "{family}");
        }
        assert_eq!(value("RestrictRealtime="), None);
        assert_eq!(value("RestrictNamespaces="), Some("net"));
    }
}
