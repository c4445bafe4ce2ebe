//! The configuration of one of two hosts of a fabric, h1 and h2, which have the network `blue`.

use std::path::Path;

/// Returns the configuration of host number `own`, from 0. `head` comes before everything else, and
/// `more` after it, such as ports. The certificates are in a folder of the host's name.
pub(crate) fn member(own: usize, certificates: &Path, head: &str, more: &str) -> String {
    let (other, id) = (2 - own, own + 1);
    let certificates = certificates.join(format!("h{id}"));
    format!(
        r#"
policy = "ZL"
{head}
[underlay]
kind = "l2"
device = "up0"
address = "192.0.2.{id}"
[fabric]
name = "test"
id = {id}
certificates = "{}"
[[vnet]]
name = "blue"
vni = 42
[[peer]]
name = "h{other}"
id = {other}
vtep = "192.0.2.{other}"
vnets = ["blue"]
{more}
"#,
        certificates.display()
    )
}
