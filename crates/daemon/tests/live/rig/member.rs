//! The configuration of one of two hosts of a fabric, h1 and h2, which have the network `blue`.

use std::path::Path;

use sluice_netns::host::Member;

/// Returns the configuration of host number `own`, from 0. `head` comes before everything else, and
/// `more` after it, such as ports. The certificates are in a folder of the host's name.
pub(crate) fn member(own: usize, certificates: &Path, head: &str, more: &str) -> String {
    let (id, hosts, fabric) = (own + 1, 2, "test");
    let (host, settings, vnet) = (head, "", "");
    Member { id, hosts, fabric, certificates, host, settings, vnet, more }.file()
}
