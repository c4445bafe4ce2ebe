use sluice_api::show::{Audit, DropRow, PauseRow};

use super::*;

#[test]
fn kernel_drops_summed_by_node_device_and_reason() {
    let row = |namespace: &str, device: &str, reason: &str, frames| sluice_dropwatch::Dropped {
        namespace: namespace.to_owned(),
        device: device.to_owned(),
        reason: reason.to_owned(),
        function: format!("function_{frames}"),
        frames,
    };
    let rows = vec![
        row("slab-pa-h0c1", "eth0", "FULL_RING", 3),
        row("slab-pa-h0c1", "eth0", "FULL_RING", 4),
        row("slab-pa-h0", "", "NOT_SPECIFIED", 1),
        row("slab-pa-h0", "up0", "NO_SOCKET", 9),
    ];
    let sums = [("h0c1 eth0 FULL_RING", 7), ("h0 - NOT_SPECIFIED", 1)];
    let sums: Counters = sums.map(|(name, frames)| (name.to_owned(), frames)).into();
    assert_eq!(kfree_skb("pa", rows), sums, "what nobody waited for is no loss");
}
use crate::settings::{Override, Variant};

fn node(name: &str, frames: u64) -> Snapshot {
    let port = |port: &str, kind: &str, vnet: &str| PortRow {
        port: port.to_owned(),
        kind: kind.to_owned(),
        vnet: vnet.to_owned(),
        kernel: [("packet.tp_drops".to_owned(), frames), ("qdisc.dropped".to_owned(), 5)].into(),
        ..PortRow::default()
    };
    let drop = |port: &str, reason: &str, class: &str| DropRow {
        port: port.to_owned(),
        priority: 0,
        reason: reason.to_owned(),
        class: class.to_owned(),
        frames,
        bytes: 0,
    };
    Snapshot {
        node: name.to_owned(),
        ports: vec![port("up0", "l2", "underlay"), port("h0c1", "tap", "lab")],
        drops: vec![
            drop("up0", "output_full", "congestion"),
            drop("up0", "input_full", "congestion"),
            drop("h0c1", "no_receiver", "policy"),
        ],
        audit: Audit { closed: true, rows: Vec::new() },
        pauses: vec![PauseRow {
            port: "up0".to_owned(),
            priority: 0,
            xoff_sent: frames,
            xon_sent: 0,
            received: 0,
            paused_ns: frames * 10,
            paused: false,
            pausing: false,
            isolated: None,
            sockets: Vec::new(),
        }],
    }
}

#[test]
fn what_was_there_before_is_not_counted() {
    let (before, after) = ([node("h0", 3)], [node("h0", 10)]);
    let losses = between(&before, &after);
    let expected = [
        ("nic h0 input_full".to_owned(), 7),
        ("vswitch h0 no_receiver".to_owned(), 7),
        ("vswitch h0 output_full".to_owned(), 7),
    ];
    assert_eq!(losses.drops, expected.into());
    assert_eq!(losses.congestion, 14, "a drop by policy is none for congestion");
    assert_eq!(losses.kernel.len(), 2, "the counter that did not move is not shown");
    assert_eq!(losses.kernel["h0/up0 packet.tp_drops"], 7);
    assert_eq!(losses.pauses["h0/up0"], Paused { xoff_sent: 7, paused_ns: 70 });
    assert_eq!(losses.audit_closed, Some(true));
    assert_eq!(between(&after, &after).drops, BTreeMap::new());
}

#[test]
fn physical_switch_losses_attributed_to_tor() {
    let losses = between(&[node("s0", 0)], &[node("s0", 1)]);
    assert!(losses.drops.keys().all(|place| place.starts_with("tor s0 ")));
}

#[test]
fn one_open_audit_is_enough() {
    let mut open = node("h1", 0);
    open.audit.closed = false;
    let before = [node("h0", 0), node("h1", 0)];
    assert_eq!(between(&before, &[node("h0", 0), open]).audit_closed, Some(false));
}

#[test]
fn high_water_reports_fullest_port_of_each_kind() {
    let settings = Settings::new(Variant::VmBound, &Override::default(), None);
    let (mut low, mut high) = (node("h0", 0), node("h1", 0));
    (low.ports[1].queued_frames_max, low.ports[1].queued_bytes_max) = (40, 60_000);
    (high.ports[1].queued_frames_max, high.ports[1].queued_bytes_max) = (64, 96_000);
    let snapshots = [low, high];
    let marks = high_water(&snapshots, &settings, Policy::LL);
    let mark = marks.iter().find(|mark| mark.place == "container output").unwrap();
    assert_eq!((mark.frames, mark.limit_frames, mark.port.as_str()), (64, 64, "h1/h0c1"));
    let marks = high_water(&snapshots, &settings, Policy::ZL);
    let limit = |place: &str| marks.iter().find(|mark| mark.place == place).unwrap().limit_frames;
    assert_eq!(limit("container output"), u64::from(UNLIMITED), "its frames count at inputs");
    assert_eq!(limit("container input"), 64);
}
