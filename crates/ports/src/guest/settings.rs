//! Settings of a guest's kernel that losslessness needs, where no switch can look: a queueing
//! discipline that holds frames back instead of dropping them, and buffers that take what a held
//! sender or a late receiver has. They last until the guest boots again.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use super::GuestError;
use crate::netlink::Netlink;

/// Frames that the queueing discipline holds. It drops when it is full: so it must be longer than
/// all socket buffers together, which is where a sender is then held.
const QUEUE_FRAMES: u32 = 10_000;

/// Values under `/proc/sys`, and what they are for.
const VALUES: [(&str, &str); 6] = [
    // A device that comes later has the same.
    ("net/core/default_qdisc", "pfifo"),
    // A socket of UDP drops what it has no room for. Room of its own for a burst, and more for a
    // program that asks.
    ("net/core/rmem_default", "4194304"),
    ("net/core/rmem_max", "67108864"),
    // A sender's buffer stays small: the queue above must hold those of all sockets.
    ("net/core/wmem_default", "212992"),
    ("net/core/wmem_max", "4194304"),
    // Between the card and the stack.
    ("net/core/netdev_max_backlog", "10000"),
];

/// A setting, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, as `sysctl`, `ip` or `tc` has it.
    pub name: String,
    /// Its value before, if it was read.
    pub before: Option<String>,
    /// The value that losslessness needs.
    pub wanted: String,
    /// Reason why it was not set, if so.
    pub error: Option<String>,
}

/// Sets everything for the card of this name, and says each. One that fails leaves the others.
///
/// # Errors
/// [`GuestError`] if there is no such card.
pub fn apply(device: &str) -> Result<Vec<Setting>, GuestError> {
    let (asker, request, index) = super::find(device)?;
    let length = Path::new("/sys/class/net").join(device).join("tx_queue_len");
    let mut done = vec![Setting {
        name: format!("{device} txqueuelen"),
        before: read(&length),
        wanted: QUEUE_FRAMES.to_string(),
        error: reason(request.set_queue_frames(asker.as_fd(), QUEUE_FRAMES)),
    }];
    let queue = Netlink::open().and_then(|mut netlink| netlink.set_fifo(index, QUEUE_FRAMES));
    done.push(Setting {
        name: format!("{device} qdisc root"),
        before: None,
        wanted: format!("pfifo limit {QUEUE_FRAMES}"),
        error: reason(queue),
    });
    done.extend(VALUES.iter().map(|(name, wanted)| value(Path::new("/proc/sys"), name, wanted)));
    Ok(done)
}

/// Sets a value under `root`.
fn value(root: &Path, name: &str, wanted: &str) -> Setting {
    let path = root.join(name);
    let before = read(&path);
    let error = match &before {
        Some(before) if before == wanted => None,
        _ => reason(std::fs::write(&path, wanted)),
    };
    Setting { name: name.replace('/', "."), before, wanted: wanted.to_owned(), error }
}

fn read(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn reason(result: io::Result<()>) -> Option<String> {
    let remedy = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{error}; run it as root"),
        io::ErrorKind::NotFound => format!("{error}; this kernel, or namespace, does not have it"),
        _ => error.to_string(),
    };
    result.err().map(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_set_and_says_what_it_was() {
        let root = std::env::temp_dir().join(format!("sluice-settings-{}", std::process::id()));
        std::fs::create_dir_all(root.join("net/core")).unwrap();
        std::fs::write(root.join("net/core/rmem_max"), "212992\n").unwrap();
        let first = value(&root, "net/core/rmem_max", "67108864");
        assert_eq!((first.name.as_str(), first.error), ("net.core.rmem_max", None));
        assert_eq!(first.before.as_deref(), Some("212992"));
        let again = value(&root, "net/core/rmem_max", "67108864");
        assert_eq!(again.before.as_deref(), Some("67108864"));
        let missing = value(&root, "net/none/rmem_max", "1");
        assert!(missing.error.unwrap().contains("does not have it"));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn unknown_device_is_named() {
        let error = apply("no-such-card").unwrap_err().to_string();
        assert!(error.contains("device no-such-card") && error.contains("ip link"), "{error}");
    }
}
