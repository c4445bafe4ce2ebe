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

/// The answer of two workers, one after the other.
fn looked() -> Looked {
    let ports = vec![look(5, "db", 2), look(1, "underlay", 900), look(4, "web", 7)];
    Looked { at_ns: 5_000, fdb: Vec::new(), ports, tunnels: Vec::new() }
}

/// An endpoint of this host at the port of this number and name.
fn row(index: u16, name: &str) -> VportRow {
    let usage = VportUsage { port: index, endpoints: 1, ..VportUsage::default() };
    VportRow { port: name.to_owned(), usage: Some(Box::new(usage)), ..remote() }
}

/// An endpoint of another host.
fn remote() -> VportRow {
    VportRow {
        vnet: "blue".to_owned(),
        mac: "02:00:00:00:00:01".to_owned(),
        ips: Vec::new(),
        shared: Vec::new(),
        host: "h1".to_owned(),
        port: "4".to_owned(),
        state: "own".to_owned(),
        origin: "bound".to_owned(),
        moves: 0,
        there_ns: 0,
        unused_ns: 0,
        policy: None,
        usage: None,
    }
}

#[test]
fn usage_is_that_of_its_own_port() {
    let mut rows = [remote(), row(4, "web"), row(5, "db")];
    take(&mut rows, &looked());
    assert_eq!(rows[0], remote());
    let usage = rows[1].usage.take().unwrap();
    assert_eq!(usage.unknown, None);
    assert_eq!(
        (usage.rx_frames, usage.rx_bytes, usage.tx_frames, usage.tx_bytes),
        (7, 420, 8, 427)
    );
    assert_eq!((usage.within_ns, usage.endpoints), (5_000, 1));
    assert_eq!((usage.drops.len(), &*usage.drops[0].reason), (1, "receiver_stuck"));
    assert_eq!(usage.losses["device.tx_dropped"], 3);
    assert_eq!(rows[2].usage.as_ref().unwrap().rx_frames, 2);
}

/// Another port may have the number of a deleted port by now.
#[test]
fn vport_usage_of_reused_port_number_unknown() {
    for (port, name) in [(4, "db"), (9, "web"), (1, "web")] {
        let mut rows = [row(port, name)];
        take(&mut rows, &looked());
        let usage = rows[0].usage.take().unwrap();
        assert!(usage.unknown.is_some(), "{port} {name}");
        assert_eq!((usage.rx_frames, usage.drops.len()), (0, 0));
    }
}
