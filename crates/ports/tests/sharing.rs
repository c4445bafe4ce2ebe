//! Several UDP underlays at one address: each datagram comes to one of them, by the frame in it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use sluice_base::{Batch, Buf as _, ByteCount, Mac};
use sluice_ports::udp::{UdpConfig, UdpPort};
use sluice_ports::{Pool, PoolConfig, Port as _};
use sluice_switch::Window;

/// The bytes that the port puts in front of a datagram, and the VXLAN header.
const OUTER_SIZE: usize = 42 + 8;
const PATIENCE: Duration = Duration::from_secs(5);

fn datagram(dst: u8, src: u8, number: u32) -> Vec<u8> {
    let vxlan = [8, 0, 0, 0, 0, 0, 42, 0];
    let mut bytes = vxlan.to_vec();
    bytes.extend([2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 0x88, 0xb5]);
    bytes.extend(number.to_be_bytes());
    bytes.resize(80, 0);
    bytes
}

struct Sharers {
    ports: Vec<UdpPort>,
    pool: Pool,
    batch: Batch<sluice_ports::FrameBuf>,
    to: (Ipv4Addr, u16),
}

impl Sharers {
    fn open(count: usize) -> Self {
        // A port of the kernel's choice that is free now.
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut config = UdpConfig::new(Ipv4Addr::LOCALHOST, Mac([2, 0, 0, 0, 0, 1]), 1500);
        (config.port, config.sharers) = (free, count);
        let ports = (0..count).map(|_| UdpPort::open(&config).unwrap()).collect();
        let pool = Pool::new(PoolConfig::for_mtu(256, 1500)).unwrap();
        Self { ports, pool, batch: Batch::with_limit(64), to: (Ipv4Addr::LOCALHOST, free) }
    }

    /// What came to a port: (destination, source, number) of each.
    fn read(&mut self, at: usize) -> Vec<(u8, u8, u32)> {
        let window = Window { frames: 64, bytes: ByteCount(1 << 20), spill: false };
        self.ports[at].read(window, 64, &mut self.pool, &mut self.batch).unwrap();
        let mut seen = Vec::new();
        for buf in self.batch.drain() {
            let inner = &buf.head()[OUTER_SIZE..];
            let number = inner.get(14..18).map_or(0, |n| u32::from_be_bytes(n.try_into().unwrap()));
            seen.push((
                inner.get(5).copied().unwrap_or(0),
                inner.get(11).copied().unwrap_or(0),
                number,
            ));
            self.pool.give_back(buf);
        }
        seen
    }
}

#[test]
fn the_frames_of_a_pair_come_to_one_port_in_order_whatever_the_outer_ports_are() {
    let count = 3;
    let mut sharers = Sharers::open(count);
    // Senders whose source ports say nothing of the flow.
    let senders: Vec<UdpSocket> = (0..5).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let mut came: BTreeMap<(u8, u8), Vec<(usize, u32)>> = BTreeMap::new();
    let (pairs, rounds) = (40, 8);
    for number in 0..rounds {
        for pair in 0..pairs {
            let sender = &senders[(pair as usize + number as usize) % senders.len()];
            sender.send_to(&datagram(pair, 100 + pair, number), sharers.to).unwrap();
        }
        let until = Instant::now() + PATIENCE;
        while came.values().map(Vec::len).sum::<usize>()
            < (number as usize + 1) * usize::from(pairs)
        {
            for at in 0..count {
                for (dst, src, number) in sharers.read(at) {
                    came.entry((dst, src)).or_default().push((at, number));
                }
            }
            assert!(Instant::now() < until, "all of round {number} arrive");
        }
    }
    let mut used = [0; 3];
    for (pair, came) in &came {
        let first = came[0].0;
        used[first] += 1;
        let expected: Vec<(usize, u32)> = (0..rounds).map(|number| (first, number)).collect();
        assert_eq!(*came, expected, "of {pair:?}");
    }
    assert!(used.iter().all(|&pairs| pairs >= 5), "spread over all ports: {used:?}");
}

#[test]
fn a_datagram_that_is_too_short_comes_to_the_first_port() {
    let mut sharers = Sharers::open(2);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..10 {
        sender.send_to(&[8, 0, 0, 0, 0, 0, 42, 0], sharers.to).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    let mut seen = 0;
    while seen < 10 {
        assert!(sharers.read(1).is_empty(), "the second one gets none");
        seen += sharers.read(0).len();
        assert!(Instant::now() < until, "all arrive");
    }
}
