//! Who is told of a port: a client that was killed before it heard of its port does not know that
//! there is one, and nobody else would ever delete it.
//!
//! ```text
//!   the client is gone when its turn comes ──▶ nothing is added
//!   added ── answer ─┬─ written ──▶ somebody knows of the port
//!                    └─ fails ──▶ nobody does, and no other answer is under way: deleted
//! ```
//!
//! A client that ends with the answer in its socket knows nothing either; a port of a container is
//! then found by its [`Attachment`](sluice_api::port::Attachment).

use std::time::Duration;

use sluice_api::port::{Added, NewPort};

use super::AddedPorts;
use crate::sys::log::say;

/// Attempts at deleting a port of which nobody knows, while the data process is away.
const DELETE_ATTEMPTS: usize = 10;
const DELETE_RETRY: Duration = Duration::from_millis(300);

/// Refusal of a client that does not listen any more.
const GONE: &str = "the client is gone; nothing was added";

/// Answer about a port that is being written.
#[derive(Debug)]
pub(in crate::control) struct Notice {
    port: String,
    serial: u64,
}

impl AddedPorts {
    /// Adds a port, or reports one that is there as requested.
    pub(in crate::control) fn add(&self, new: &NewPort) -> Result<Added, String> {
        let (added, notice) = self.add_for(new, || false)?;
        self.settle(&notice, true);
        Ok(added)
    }

    /// Adds a port like [`Self::add`] for a client that may go away. After the answer
    /// [`Self::settle`] must be called.
    pub(in crate::control) fn add_for(
        &self,
        new: &NewPort,
        is_gone: impl Fn() -> bool,
    ) -> Result<(Added, Notice), String> {
        let mut list = self.list();
        // Ports come one at a time. A request that has waited must not be carried out after a
        // deletion by which somebody else has made sure that nothing is left.
        if is_gone() {
            return Err(GONE.to_owned());
        }
        let added = self.add_to(&mut list, new)?;
        let listed = list.iter_mut().find(|kept| kept.new.name.as_ref() == Some(&added.name));
        let listed = listed.expect("an added port is on the list");
        listed.answers += 1;
        let notice = Notice { port: added.name.clone(), serial: listed.serial };
        Ok((added, notice))
    }

    /// Notes if a client was told of a port. A port of which nobody was told is deleted.
    pub(in crate::control) fn settle(&self, notice: &Notice, is_told: bool) {
        let mut list = self.list();
        let Some(listed) = list.iter_mut().find(|kept| kept.serial == notice.serial) else {
            return;
        };
        listed.answers -= 1;
        listed.is_told |= is_told;
        drop(list);
        if is_told {
            return;
        }
        let name = &notice.port;
        for attempt in 1..=DELETE_ATTEMPTS {
            let mut list = self.list();
            let is_unknown = |kept: &super::Listed| !kept.is_told && kept.answers == 0;
            let listed = list.iter().find(|kept| kept.serial == notice.serial);
            if !listed.is_some_and(is_unknown) {
                return;
            }
            let Err(error) = self.delete_from(&mut list, name) else {
                say!("port {name}: its client went away before it was told");
                return;
            };
            drop(list);
            if attempt == DELETE_ATTEMPTS {
                say!(warn: "the client of port {name} went away before it was told: {error}");
            } else {
                std::thread::sleep(DELETE_RETRY);
            }
        }
    }
}

#[cfg(test)]
mod tests;
