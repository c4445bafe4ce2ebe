use alloc::vec;
use alloc::vec::Vec;

use sluice_base::Nanos;

use super::*;
use crate::tests::config;

/// Returns two switches of one host, of which the first has the port.
fn pair() -> [Switch<Vec<u8>>; 2] {
    [false, true].map(|elsewhere| {
        let mut config = config();
        config.ports[0].rx_pause = false;
        config.handoff.movable = vec![PortId(0)];
        config.handoff.refs_max = 4;
        if elsewhere {
            config.handoff.elsewhere = vec![PortId(0)];
        }
        Switch::new(&config, 1, Nanos::ZERO).unwrap()
    })
}

#[test]
fn class_progress_unchanged_while_port_moves_between_workers() {
    let [mut one, mut other] = pair();
    let class = one.egress.class_of(0, 0);
    for _ in 0..7 {
        one.egress.add_sent(class, 60);
    }
    for _ in 0..3 {
        assert_eq!((one.progress(class), other.progress(class)), (7, 0));
        let its = one.export_port(PortId(0));
        assert_eq!(one.progress(class), 7, "a receiver that is watched here did not move");
        other.import_port(PortId(0), its);
        assert_eq!((one.progress(class), other.progress(class)), (7, 0));
        assert_eq!(other.egress.sent(class).frames, 7, "and is shown where it is");
        let its = other.export_port(PortId(0));
        one.import_port(PortId(0), its);
    }
}
