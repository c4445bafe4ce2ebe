use std::net::Ipv4Addr;

use sluice_base::Mac;

use super::driver::{UdpConfig, UdpPort};
use super::outer::target;
use super::rings::Receiver;
use crate::buckets::RECEIVE_COST_MIN;
use crate::sockets::snmp_counter;

mod series;

/// Outer headers with TOS 0xba, to 10.0.0.2, from port 0xc001; `tag` goes before the EtherType.
fn outer(tag: &[u8], ethertype: u16, first: u8, protocol: u8) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend(tag);
    bytes.extend(ethertype.to_be_bytes());
    bytes.extend([first, 0xba, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0xc0, 0x01, 0x12, 0xb5, 0, 0, 0, 0]);
    bytes
}

#[test]
fn the_target_is_in_the_outer_headers() {
    for (tag, skip) in [(&[][..], 42), (&[0x81, 0x00, 0xa0, 0x00][..], 46)] {
        let (target, skipped, port) = target(&outer(tag, 0x0800, 0x45, 17), 4789).unwrap();
        assert_eq!(*target.to.ip(), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!((target.to.port(), target.tos, skipped, port), (4789, 0xba, skip, 0xc001));
    }
}

#[test]
fn udp_target_absent_for_non_ipv4_udp_frame() {
    let whole = outer(&[], 0x0800, 0x45, 17);
    for cut in 0..whole.len() {
        assert!(target(&whole[..cut], 4789).is_none(), "{cut} bytes");
    }
    assert!(target(&outer(&[], 0x86dd, 0x45, 17), 4789).is_none());
    assert!(target(&outer(&[], 0x8808, 0x45, 17), 4789).is_none());
    assert!(target(&outer(&[], 0x0800, 0x46, 17), 4789).is_none());
    assert!(target(&outer(&[], 0x0800, 0x45, 6), 4789).is_none());
}

#[test]
fn counters_are_found_by_name() {
    let text = "Ip: A B\nIp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 7 9\nUdpLite: RcvbufErrors\n\
                UdpLite: 5\n";
    assert_eq!(snmp_counter(text, "Udp:", "RcvbufErrors"), Some(9));
    assert_eq!(snmp_counter(text, "Udp:", "NoSuch"), None);
    assert_eq!(snmp_counter(text, "Tcp:", "A"), None);
    assert_eq!(snmp_counter("", "Udp:", "A"), None);
}

#[test]
fn datagram_takes_at_least_assumed_receive_buffer() {
    for size in [0, 1, 60, 200, 500, 900, 1450, 8000] {
        let mut config = UdpConfig::new(Ipv4Addr::LOCALHOST, Mac::default(), 1500);
        (config.port, config.receive_buffer_bytes) = (0, 1 << 20);
        let receiver = Receiver::open(&config, None).unwrap();
        let to = receiver.socket().local_addr().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for count in 1..=10 {
            sender.send_to(&vec![0; size], to).unwrap();
            let least = count * (RECEIVE_COST_MIN + size as u64);
            assert!(receiver.memory().unwrap().taken >= least, "{count} of {size} bytes");
        }
    }
}

#[test]
fn udp_handover_keeps_queued_datagrams_rebinds_changed_address() {
    let config =
        |port| UdpConfig { port, ..UdpConfig::new([127, 0, 0, 1].into(), Mac([2; 6]), 1500) };
    let first = UdpPort::open(&config(0)).unwrap();
    let duplicate = first.duplicate_socket().unwrap();
    let socket = std::net::UdpSocket::from(duplicate.try_clone().unwrap());
    let at = socket.local_addr().unwrap();
    drop((first, socket));
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(b"while nobody has it open", at).unwrap();
    let second =
        UdpPort::adopt(&config(at.port()), Some(UdpPort::handed(duplicate.try_clone().unwrap())))
            .unwrap();
    let mut bytes = [0; 64];
    let socket = std::net::UdpSocket::from(second.duplicate_socket().unwrap());
    assert_eq!(socket.recv(&mut bytes).unwrap(), 24);
    // The socket is of another port: not taken, and closed.
    let third = UdpPort::adopt(&config(0), Some(UdpPort::handed(duplicate))).unwrap();
    let socket = std::net::UdpSocket::from(third.duplicate_socket().unwrap());
    assert_ne!(socket.local_addr().unwrap(), at);
}

/// Frames between sixteen pairs of machines: those at the first socket, and those at the second.
fn spread(receivers: &[Receiver; 2]) -> Vec<usize> {
    let to = receivers[0].socket().local_addr().unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = |machine: u8| {
        let mut datagram = [0; 64];
        datagram[8 + 6 + 5] = machine;
        sender.send_to(&datagram, to).unwrap();
        let come = |receiver: &Receiver| receiver.socket().recv(&mut [0; 64]).is_ok();
        receivers.iter().position(come).expect("one of them has it")
    };
    (0..16).map(at).collect()
}

#[test]
fn udp_reuseport_on_device_keeps_spread_after_handover() {
    let mut config = UdpConfig::new(Ipv4Addr::LOCALHOST, Mac::default(), 1500);
    (config.port, config.sharers, config.device) = (0, 2, Some("lo".to_owned()));
    let first = Receiver::open(&config, None).unwrap();
    config.port = first.socket().local_addr().unwrap().port();
    let before = [first, Receiver::open(&config, None).unwrap()];
    let seen = spread(&before);
    assert!(seen.contains(&0) && seen.contains(&1), "{seen:?}");
    let next = |receiver: &Receiver| {
        let inherited = receiver.fd().try_clone_to_owned().unwrap();
        Receiver::open(&config, Some(inherited)).unwrap()
    };
    let after = before.each_ref().map(next);
    drop(before);
    assert_eq!(spread(&after), seen);
}
