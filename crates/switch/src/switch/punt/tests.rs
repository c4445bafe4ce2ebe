use super::*;

fn head(n: u8) -> [u8; 60] {
    let mut head = [n; 60];
    head[12..14].copy_from_slice(&[0x08, 0x06]);
    head
}

const ARP: (PuntCause, VnetId, Destination) =
    (PuntCause::Arp, VnetId(0), Destination::Port(PortId(0)));

#[test]
fn punt_places_capped_per_port_and_in_total() {
    for (places, share) in [(0, 0), (1, 1), (4, 1), (11, 2), (12, 3), (256, 64)] {
        let mut control = Control::new(places, 0, 9);
        let mut admitted = 0;
        for port in 0..9 {
            for n in 0..100 {
                admitted += u64::from(control.punt(port, None, ARP, &head(n), None));
            }
            let counters = control.shares[usize::from(port)].counters[PuntCause::Arp.index()];
            assert_eq!(counters.admitted + counters.suppressed, 100);
            assert!(counters.admitted <= share, "{counters:?}");
        }
        assert_eq!(admitted, u64::from(places).min(9 * share));
        // Decap flows have places of their own, and nothing grows.
        let capacity = control.queue.capacity();
        let events = (0..600).filter(|&n| control.tell_decap(VnetId(0), TunnelId(n))).count();
        assert_eq!((events, control.queue.capacity()), (usize::from(places), capacity));
        control.clear();
        assert_eq!(control.punt(0, None, ARP, &head(0), None), places > 0);
    }
}

#[test]
fn punt_of_pending_source_on_port_is_suppressed() {
    let mut control = Control::new(40, 0, 2);
    let mut ask = |port, source| control.punt(port, Some(source), ARP, &head(1), None);
    assert!(ask(0, 7) && !ask(0, 7));
    assert!(ask(1, 7), "another port");
    assert!(ask(0, 8) && !ask(0, 8));
}

#[test]
fn neighbor_frames_classified_apart_from_others() {
    let frame = |ethertype: [u8; 2], rest: &[u8]| [&[2; 12], &ethertype[..], rest].concat();
    let nd = |next: u8, kind: u8| {
        let mut packet = [0; 41];
        (packet[0], packet[5], packet[6], packet[40]) = (0x60, 1, next, kind);
        frame([0x86, 0xdd], &packet)
    };
    let table = [
        (frame([0x08, 0x06], &[]), Some(PuntCause::Arp)),
        (frame([0x81, 0x00], &[0, 0, 0x08, 0x06]), Some(PuntCause::Arp)),
        (frame([0x88, 0xa8], &[0, 0, 0x08, 0x06]), Some(PuntCause::Arp)),
        (frame([0x08, 0x00], &[0; 40]), None),
        (frame([0x81, 0x00], &[0, 0]), None),
        (nd(58, 132), None),
        (nd(58, 133), Some(PuntCause::Snooped)),
        (nd(58, 134), Some(PuntCause::Snooped)),
        (nd(58, 135), Some(PuntCause::Nd)),
        (nd(58, 136), Some(PuntCause::Nd)),
        (nd(58, 137), Some(PuntCause::Snooped)),
        (nd(58, 138), None),
        (nd(17, 135), None),
        (nd(58, 135)[..54].to_vec(), None),
        (nd(58, 135)[..40].to_vec(), None),
        (alloc::vec![2; 13], None),
    ];
    for (bytes, cause) in table {
        assert_eq!(neighbors(&bytes), cause, "{bytes:x?}");
    }
}
