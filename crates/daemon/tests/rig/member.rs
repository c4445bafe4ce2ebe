//! The configuration of one of two hosts of a fabric, h1 and h2, which have the network `blue`.

use std::path::Path;

/// Of the host number `own`, from 0, with what stands before everything else, and behind it, such
/// as ports. Its certificates lie in a folder of its name.
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
