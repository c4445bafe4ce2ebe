//! Policies of single vports.

use serde_json::Value;

use super::operation::no_vnet;
use super::settings::set;
use super::{FabricConfig, NotApplicable, Operation};

/// Changes one value of a vport's policy. Returns the operation that undoes it.
pub(super) fn set_policy(
    to: &mut FabricConfig,
    (vnet, port): (&str, &str),
    key: &str,
    value: Option<&Value>,
) -> Result<Operation, NotApplicable> {
    if !to.vnets.contains_key(vnet) {
        return Err(no_vnet(to, vnet));
    }
    let before = to.vports.get(vnet).and_then(|vports| vports.get(port));
    let mut next = before.cloned().unwrap_or_default();
    let value = set(&mut next, key, value)?;
    next.check(vnet, port).map_err(NotApplicable::of)?;
    let vports = to.vports.entry(vnet.to_owned()).or_default();
    match next.is_empty() {
        true => _ = vports.remove(port),
        false => _ = vports.insert(port.to_owned(), next),
    }
    if vports.is_empty() {
        to.vports.remove(vnet);
    }
    let (vnet, port) = (vnet.to_owned(), port.to_owned());
    Ok(Operation::SetVport { vnet, port, key: key.to_owned(), value })
}
