use sluice_api::show::{DropRow, LossRow, PortRow};
use sluice_api::trace::PortLook;

use super::*;

fn look(index: u16, name: &str, frames: u64) -> PortLook {
    let loss = LossRow {
        port: name.to_owned(),
        counter: "device.tx_dropped".to_owned(),
        frames: 3,
        ago_ns: 0,
    };
    PortLook {
        index,
        row: PortRow {
            port: name.to_owned(),
            rx_frames: frames,
            rx_bytes: frames * 60,
            tx_frames: frames + 1,
            tx_bytes: frames * 61,
            losses: vec![loss],
            ..PortRow::default()
        },
        gone: None,
        up: Some(true),
        window_frames: 0,
        blocked: false,
        pauses: Vec::new(),
        drops: vec![DropRow {
            port: name.to_owned(),
            priority: 5,
            reason: "receiver_stuck".to_owned(),
            class: "stuck".to_owned(),
            frames: 2,
            bytes: 120,
        }],
    }
}

fn looked() -> Looked {
    let ports = vec![look(1, "underlay", 900), look(4, "web", 7)];
    Looked { at_ns: 5_000, fdb: Vec::new(), ports, tunnels: Vec::new() }
}

#[test]
fn usage_is_that_of_its_own_port() {
    let mut usage = VportUsage { port: 4, endpoints: 1, ..VportUsage::default() };
    take(&mut usage, "web", looked());
    assert_eq!(usage.unknown, None);
    assert_eq!(
        (usage.rx_frames, usage.rx_bytes, usage.tx_frames, usage.tx_bytes),
        (7, 420, 8, 427)
    );
    assert_eq!((usage.within_ns, usage.endpoints), (5_000, 1));
    assert_eq!((usage.drops.len(), &*usage.drops[0].reason), (1, "receiver_stuck"));
    assert_eq!(usage.losses["device.tx_dropped"], 3);
}

/// Another port may have the number of a deleted port by now.
#[test]
fn vport_usage_of_reused_port_number_unknown() {
    for (port, name) in [(4, "db"), (9, "web"), (1, "web")] {
        let mut usage = VportUsage { port, ..VportUsage::default() };
        take(&mut usage, name, looked());
        assert!(usage.unknown.is_some(), "{port} {name}");
        assert_eq!((usage.rx_frames, usage.drops.len()), (0, 0));
    }
}
