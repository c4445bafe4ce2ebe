//! Questions about a network device of this namespace.

use std::io;

use sluice_base::Mac;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its MAC.
    pub mac: Mac,
    /// Its layer-3 MTU.
    pub mtu: u32,
    /// Whether it is set up.
    pub up: bool,
    /// Whether it has a carrier.
    pub running: bool,
}

/// Looks a device up by name.
///
/// # Errors
/// What the kernel said; `ENODEV` if there is none of that name.
pub fn device(_name: &str) -> io::Result<Device> {
    todo!()
}
