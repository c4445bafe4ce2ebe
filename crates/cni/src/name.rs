//! Names of ports, and of the files of claims.

use sluice_api::port::Attachment;

/// Bytes of the container's name that a port's name shows.
const SHOWN_SIZE: usize = 12;

/// Returns the name of the port of a container's interface: `cni-`, the beginning of the
/// container's name, and a hash of container and interface, always the same.
///
/// Two attachments whose names collide keep apart all the same: whoever finds a port by its name
/// compares its [`Attachment`].
pub(crate) fn of(attachment: &Attachment) -> String {
    let shown: String = attachment.container.chars().take(SHOWN_SIZE).collect();
    let hash = fnv([attachment.container.as_bytes(), &[0], attachment.interface.as_bytes()]);
    format!("cni-{shown}-{hash:016x}")
}

/// Returns the name of the file of a claim on an attachment, always the same.
pub(crate) fn of_claim(attachment: &Attachment) -> String {
    let Attachment { network, container, interface } = attachment;
    let parts = [network.as_bytes(), &[0], container.as_bytes(), &[0], interface.as_bytes()];
    format!("{:016x}.json", fnv(parts))
}

/// FNV-1a with 64 bits.
fn fnv<const N: usize>(parts: [&[u8]; N]) -> u64 {
    let bytes = parts.into_iter().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(container: &str, interface: &str) -> String {
        let [network, container, interface] = ["pods", container, interface].map(str::to_owned);
        of(&Attachment { network, container, interface })
    }

    #[test]
    fn name_is_stable_short_and_own() {
        let id = "4f".repeat(32);
        assert_eq!(name(&id, "eth0"), name(&id, "eth0"));
        assert!(name(&id, "eth0").starts_with("cni-4f4f4f4f4f4f-"));
        assert_eq!(name(&id, "eth0").len(), 4 + 12 + 1 + 16);
        let names = [("a", "eth0"), ("a", "eth1"), ("b", "eth0"), ("aeth", "0"), (&id, "eth0")];
        let mut names: Vec<String> = names.iter().map(|(c, i)| name(c, i)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5);
        // FNV-1a's published value of "a".
        assert_eq!(fnv([b"a"]), 0xaf63_dc4c_8601_ec8c);
    }
}
