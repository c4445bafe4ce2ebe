use std::io;

use sluice_host::inspect::PortState;
use sluice_ports::{Amount, DeviceState, Lossless, Outside, Ring};

use super::*;

fn shot(kind: &'static str, rows: &[(&'static str, u64)]) -> PortShot {
    PortShot {
        id: PortId(3),
        kind,
        state: PortState::default(),
        pending: Amount::default(),
        lost: Amount::default(),
        ring: Ring { capacity_frames: 0, waiting_frames_max: None },
        aside: sluice_ports::HeldBack::default(),
        lossless: Lossless::Yes,
        outside: Outside::of_driver(rows.iter().copied().collect(), DeviceState::default()),
        gone: None,
        sockets: None,
    }
}

fn rows(ledger: &Ledger, ms: u64, shot: &PortShot) -> Vec<(String, u64, u64)> {
    let rows = ledger.note(Nanos::from_millis(ms), "c1", shot).into_iter();
    rows.map(|row| (row.counter, row.frames, row.ago_ns / 1_000_000)).collect()
}

#[test]
fn loss_age_counts_from_last_counter_rise() {
    let ledger = Ledger::default();
    let none = shot("tap", &[("device.tx_dropped", 0), ("ring.truncated", 0)]);
    assert_eq!(rows(&ledger, 1000, &none), []);
    let some = shot("tap", &[("device.tx_dropped", 12), ("ring.truncated", 0)]);
    let row = |frames, ago| ("device.tx_dropped".to_owned(), frames, ago);
    assert_eq!(rows(&ledger, 2000, &some), [row(12, 0)]);
    assert_eq!(rows(&ledger, 5000, &some), [row(12, 3000)]);
    let more = shot("tap", &[("device.tx_dropped", 13)]);
    assert_eq!(rows(&ledger, 6000, &more), [row(13, 0)]);
    assert_eq!(rows(&ledger, 6500, &more), [row(13, 500)]);
    // A reading that was taken earlier, and comes late, changes nothing.
    assert_eq!(rows(&ledger, 4000, &some), [row(12, 0)]);
    assert_eq!(rows(&ledger, 6700, &more), [row(13, 700)]);
    // The next port with this number starts from zero.
    assert_eq!(rows(&ledger, 7000, &none), []);
    let other = shot("tap", &[("device.tx_dropped", 13)]);
    assert_eq!(rows(&ledger, 8000, &other), [row(13, 0)]);
}

#[test]
fn what_is_sent_again_is_no_loss() {
    let kept = [
        ("device.tx_dropped", 5),
        ("qdisc.dropped", 6),
        ("ring.checksum_open", 7),
        ("series.parted", 1),
    ];
    assert_eq!(rows(&Ledger::default(), 1, &shot("l2", &kept)), []);
    let lost = rows(&Ledger::default(), 1, &shot("tap", &kept));
    assert_eq!(lost.len(), 2, "a TAP's are gone: {lost:?}");
    let ring = rows(&Ledger::default(), 1, &shot("l2", &[("ring.drops", 1)]));
    assert_eq!(ring, [("ring.drops".to_owned(), 1, 0)]);
}

#[test]
fn driver_loss_and_unreadable_kernel_counters_reported() {
    let mut lost = shot("memory", &[]);
    lost.lost.frames = 2;
    assert_eq!(rows(&Ledger::default(), 1, &lost), [("driver.lost".to_owned(), 2, 0)]);
    let mut silent = shot("tap", &[]);
    silent.outside.state_mut().counters = Err(io::Error::other("no"));
    let row = ("kernel.unreadable".to_owned(), 1, 0);
    assert_eq!(rows(&Ledger::default(), 1, &silent), [row]);
    silent.gone = Some("it went".to_owned());
    assert_eq!(rows(&Ledger::default(), 1, &silent), []);
}
