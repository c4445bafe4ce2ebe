//! An underlay of kind `vhost-user`, made from a configuration: guest 0 is a machine, guest 1 is
//! the far end of the underlay.

use std::path::Path;

use sluice_base::DropReason;
use sluice_testkit::guest::GuestConfig;
use sluice_testkit::load::frame::{End, VXLAN_BYTES, plain, vxlan};

use super::guests::Folder;
use super::planned::{self, Host};
use super::*;

const VNI: u32 = 42;
const OWN: End = End { mac: [2, 0, 0, 0, 9, 1], ip: [192, 0, 2, 1] };
const PEER: End = End { mac: [2, 0, 0, 0, 9, 2], ip: [192, 0, 2, 2] };
const NEAR: End = End { mac: [2, 0, 0, 0, 0, 1], ip: [198, 51, 100, 1] };
const FAR: End = End { mac: [2, 0, 0, 0, 0, 2], ip: [198, 51, 100, 2] };

fn config(dir: &Path, policy: &str) -> String {
    let dir = dir.display();
    format!(
        r#"[host]
name = "t"
policy = "{policy}"
isolate_after_ms = 0

[underlay]
kind = "vhost-user"
socket = "{dir}/1"
address = "192.0.2.1"
mac = "02:00:00:00:09:01"

[[vnet]]
name = "blue"
vni = 42

[[port]]
name = "vm"
kind = "vhost-user"
vnet = "blue"
socket = "{dir}/0"
mac = "02:00:00:00:00:01"

[[peer]]
name = "h2"
vtep = "192.0.2.2"
vnets = ["blue"]
next_hop = "02:00:00:00:09:02"

[[vport]]
vnet = "blue"
mac = "02:00:00:00:00:02"
peer = "h2"
"#
    )
}

fn host(policy: &str) -> Host {
    let dir = Folder::new();
    let text = config(dir.path(), policy);
    // Longer than the limit of the input in the switch, or a full input would never be seen.
    let guest = GuestConfig { ring_size: 512, ..GuestConfig::default() };
    planned::host(dir, &text, [guest.clone(), guest])
}

/// Returns a frame of `bytes` with its number in it.
fn numbered(from: End, to: End, bytes: usize, number: u32) -> Vec<u8> {
    let mut frame = plain(from, to, bytes);
    let at = frame.len() - 4;
    frame[at..].copy_from_slice(&number.to_be_bytes());
    frame
}

impl Host {
    /// Sends the frames of `of`, by number, until the sender is held. Returns the number of frames.
    fn fill(&mut self, from: usize, of: impl Fn(u32) -> Vec<u8>) -> u32 {
        self.until_held(|host, number| host.guests[from].send(&of(number)))
    }
}

#[test]
fn memory_underlay_encapsulates_and_decapsulates_vxlan() {
    let mut host = host("ZZ");
    for (number, bytes) in [(1, 64), (2, 65), (3, 178), (4, 179), (5, 700), (6, 1450), (7, 1464)] {
        let out = numbered(NEAR, FAR, bytes, number);
        assert!(host.guests[0].send(&out));
        let outer = host.receive(1, 0);
        assert_eq!((&outer[..6], &outer[6..12]), (&PEER.mac[..], &OWN.mac[..]));
        assert_eq!((&outer[26..30], &outer[30..34]), (&OWN.ip[..], &PEER.ip[..]));
        assert_eq!(outer[46..50], (VNI << 8).to_be_bytes());
        assert!(outer[VXLAN_BYTES..] == out, "{bytes} bytes, as they were sent");
        let back = numbered(FAR, NEAR, bytes, number);
        assert!(host.guests[1].send(&vxlan(PEER, OWN, VNI, &back)));
        assert!(host.receive(0, 0) == back, "{bytes} bytes, as the peer sent them");
    }
    assert_eq!(host.drops(), []);
    host.end();
}

#[test]
fn memory_underlay_blocked_receiver_holds_sender_both_directions() {
    let mut host = host("ZZ");
    // The peer takes nothing: the machine is held. Then the machine takes nothing.
    let out = |number| numbered(NEAR, FAR, 200, number);
    let back = |number| numbered(FAR, NEAR, 200, number);
    let outer = |number| vxlan(PEER, OWN, VNI, &back(number));
    let sent = [host.fill(0, out), host.fill(1, outer)];
    // The rings of both.
    assert!(sent.iter().all(|&sent| sent >= 1_024), "{sent:?}");
    for number in 0..sent[0] {
        assert!(host.receive(1, 0)[VXLAN_BYTES..] == out(number), "frame {number} of the machine");
    }
    for number in 0..sent[1] {
        assert!(host.receive(0, 0) == back(number), "frame {number} of the peer");
    }
    assert_eq!(host.drops(), []);
    host.end();
}

#[test]
fn memory_underlay_policy_zl_full_input_drops() {
    let mut host = host("ZL");
    let until = Instant::now() + PATIENCE;
    let outer = |number| vxlan(PEER, OWN, VNI, &numbered(FAR, NEAR, 200, number));
    let mut sent = 0;
    while host.drops().is_empty() {
        assert!(Instant::now() < until, "the input is full and reads on");
        for _ in 0..256 {
            sent += u32::from(host.guests[1].send(&outer(sent)));
        }
    }
    assert!(host.drops().iter().all(|&(reason, _)| reason == DropReason::InputFull));
    host.end();
}
