//! Several UDP underlays at one address: each datagram comes to one of them, by its inner frame.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use sluice_base::{Batch, Buf as _, ByteCount, Mac, PriorityMask};
use sluice_ports::buckets::{
    BUCKETS, BucketSet, BucketTable, HELD_MAX, HighFlows, LOW_BUCKETS, group_of, is_high,
};
use sluice_ports::udp::{Selector, UdpConfig, UdpPort};
use sluice_ports::{Pool, PoolConfig, Port as _, ReadAhead as _};
use sluice_switch::Window;
use sluice_testkit::udp;

/// Size of the headers that the port prepends to a datagram, and of the VXLAN header.
const OUTER_SIZE: usize = 42 + 8;
const PATIENCE: Duration = Duration::from_secs(10);

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
        let free = udp::free_port(&[Ipv4Addr::LOCALHOST]);
        let mut config = UdpConfig::new(Ipv4Addr::LOCALHOST, Mac([2, 0, 0, 0, 0, 1]), 1500);
        (config.port, config.sharers) = (free, count);
        let ports = (0..count).map(|_| UdpPort::open(&config).unwrap()).collect();
        let pool = Pool::new(PoolConfig::for_mtu(256, 1500)).unwrap();
        Self { ports, pool, batch: Batch::with_limit(64), to: (Ipv4Addr::LOCALHOST, free) }
    }

    /// Reads a port: (destination, source, number) of each frame.
    fn read(&mut self, at: usize) -> Vec<(u8, u8, u32)> {
        let window = Window {
            frames: 64,
            bytes: ByteCount(1 << 20),
            closed: PriorityMask::NONE,
            needs_copy: false,
        };
        self.ports[at].read(window, 64, &mut self.pool, &mut self.batch).unwrap();
        let mut seen = Vec::new();
        let mut back = Batch::with_limit(64);
        for buf in self.batch.drain() {
            let inner = &buf.head()[OUTER_SIZE..];
            let number = inner.get(14..18).map_or(0, |n| u32::from_be_bytes(n.try_into().unwrap()));
            seen.push((
                inner.get(5).copied().unwrap_or(0),
                inner.get(11).copied().unwrap_or(0),
                number,
            ));
            back.push(buf).unwrap();
        }
        self.ports[at].give_back(&mut back, &mut self.pool);
        seen
    }
}

#[test]
fn mac_pair_ordered_on_one_port_across_senders() {
    let count = 3;
    let mut sharers = Sharers::open(count);
    // Senders whose source ports are unrelated to the flow.
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
fn truncated_vxlan_datagram_goes_to_first_port() {
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

/// The bucket of a frame, computed independently.
fn bucket(dst: u8, src: u8) -> u16 {
    let [last, ..] = ((u32::from(dst) ^ u32::from(src)).wrapping_mul(0x9e37_79b1)).to_be_bytes();
    last.into()
}

/// A set without flows of high priority.
fn none() -> HighFlows {
    HighFlows::default()
}

impl Sharers {
    /// Reads a port until `count` frames came.
    fn read_all(&mut self, at: usize, count: usize) -> Vec<(u8, u8, u32)> {
        let until = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while seen.len() < count {
            seen.extend(self.read(at));
            assert!(Instant::now() < until, "{} of {count} frames come to port {at}", seen.len());
        }
        seen
    }

    fn selector(&mut self) -> (Selector, BucketTable) {
        self.ports[0].take_selector().unwrap()
    }

    fn has_left(&mut self, at: usize) -> bool {
        self.ports[at].buckets().unwrap().has_left()
    }
}

#[test]
fn each_bucket_goes_where_the_table_says() {
    if !Selector::can_change() {
        return;
    }
    let mut sharers = Sharers::open(5);
    let (selector, _) = sharers.selector();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut prng = sluice_base::Prng::new(7);
    let mut buckets = std::collections::BTreeSet::new();
    for round in 0..4 {
        let table: BucketTable = std::array::from_fn(|_| u8::try_from(prng.below(5)).unwrap());
        selector.set(&table, &none()).unwrap();
        let mut expected = [0; 5];
        for pair in 0..=u8::MAX {
            sender.send_to(&datagram(pair, 0, round), sharers.to).unwrap();
            let bucket = bucket(pair, 0);
            buckets.insert(bucket);
            expected[usize::from(table[usize::from(bucket)])] += 1;
        }
        for (at, count) in expected.into_iter().enumerate() {
            for (dst, src, _) in sharers.read_all(at, count) {
                assert_eq!(usize::from(table[usize::from(bucket(dst, src))]), at);
            }
        }
    }
    assert!(
        buckets.len() > usize::from(LOW_BUCKETS) / 2,
        "of {LOW_BUCKETS} buckets {} are used",
        buckets.len()
    );
}

#[test]
fn moved_bucket_kept_until_earlier_frames_left() {
    if !Selector::can_change() {
        return;
    }
    let mut sharers = Sharers::open(2);
    let (selector, mut table) = sharers.selector();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (moved, other) = ((1, 0), (2, 0));
    for pair in [moved, other] {
        table[usize::from(bucket(pair.0, pair.1))] = 0;
    }
    selector.set(&table, &none()).unwrap();
    let send = |sharers: &Sharers, pair: (u8, u8), number| {
        sender.send_to(&datagram(pair.0, pair.1, number), sharers.to).unwrap();
    };
    for number in 0..100 {
        send(&sharers, moved, number);
    }
    let bucket = bucket(moved.0, moved.1);
    let set = BucketSet::from_iter([bucket]);
    sharers.ports[1].buckets().unwrap().hold(&set);
    table[usize::from(bucket)] = 1;
    selector.set(&table, &none()).unwrap();
    for number in 100..200 {
        send(&sharers, moved, number);
        send(&sharers, other, number);
    }
    // Late frames stay in the port.
    for _ in 0..10 {
        assert_eq!(sharers.read(1), []);
    }
    assert_eq!(sharers.ports[1].buckets().unwrap().kept(), 100);
    sharers.ports[0].buckets().unwrap().leave(&set);
    assert!(!sharers.has_left(0), "its socket has all of them");
    // One call takes 64; a frame that was read is under way until its handle is back.
    assert_eq!(sharers.read(0).len(), 64);
    assert!(!sharers.has_left(0), "there are more in its socket");
    let window = Window {
        frames: 64,
        bytes: ByteCount(1 << 20),
        closed: PriorityMask::NONE,
        needs_copy: false,
    };
    sharers.ports[0].read(window, 64, &mut sharers.pool, &mut sharers.batch).unwrap();
    let mut handles: Vec<_> = sharers.batch.drain().collect();
    let came = sharers.read_all(0, 100 + 100 - 2 * 64);
    assert!(!sharers.has_left(0), "36 are under way, and 28 of another bucket");
    let first = handles.swap_remove(0);
    let mut back = Batch::with_limit(64);
    handles.into_iter().for_each(|buf| back.push(buf).unwrap());
    sharers.ports[0].give_back(&mut back, &mut sharers.pool);
    assert!(!sharers.has_left(0), "one is under way");
    back.push(first).unwrap();
    sharers.ports[0].give_back(&mut back, &mut sharers.pool);
    assert!(sharers.has_left(0));
    let of = |pair: (u8, u8), came: &[(u8, u8, u32)]| -> Vec<u32> {
        came.iter().filter(|(dst, ..)| *dst == pair.0).map(|(.., number)| *number).collect()
    };
    assert_eq!(of(other, &came), (128..200).collect::<Vec<_>>());
    // Then the frames of the list, and later ones behind them.
    sharers.ports[1].buckets().unwrap().release(&set);
    for number in 200..250 {
        send(&sharers, moved, number);
    }
    let came = sharers.read_all(1, 150);
    assert_eq!(of(moved, &came), (100..250).collect::<Vec<_>>());
    assert!((0..2).all(|at| sharers.ports[at].buckets().unwrap().gauges().under_way(bucket) == 0));
    assert_eq!(sharers.pool.used(), 0);
}

#[test]
fn frame_copy_counts_in_flight_until_returned() {
    let mut sharers = Sharers::open(2);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let pair = (1..).find(|dst| bucket(*dst, 0).is_multiple_of(2)).unwrap();
    sender.send_to(&datagram(pair, 0, 1), sharers.to).unwrap();
    let window = Window {
        frames: 64,
        bytes: ByteCount(1 << 20),
        closed: PriorityMask::NONE,
        needs_copy: false,
    };
    let until = Instant::now() + PATIENCE;
    while sharers.batch.is_empty() {
        sharers.ports[0].read(window, 64, &mut sharers.pool, &mut sharers.batch).unwrap();
        assert!(Instant::now() < until, "it arrives");
    }
    let Sharers { ports, pool, batch, .. } = &mut sharers;
    let gauges = ports[0].buckets().unwrap().gauges();
    let under_way = || gauges.under_way(bucket(pair, 0));
    let frame = batch.drain().next().unwrap();
    let copy = pool.copy_of(&frame).unwrap();
    ports[0].buckets().unwrap().copied(&frame, &copy);
    assert_eq!(under_way(), 2);
    let mut back = Batch::with_limit(64);
    for (handle, left) in [(frame, 1), (copy, 0)] {
        back.push(handle).unwrap();
        ports[0].give_back(&mut back, pool);
        assert_eq!(under_way(), left);
    }
    // A copy of a frame that is not counted is not counted, either.
    let (other, copy) = (pool.take().unwrap().freeze(0, 64), pool.take().unwrap().freeze(0, 64));
    ports[0].buckets().unwrap().copied(&other, &copy);
    assert!((0..BUCKETS).all(|bucket| gauges.under_way(bucket) == 0));
    pool.give_back(other);
    pool.give_back(copy);
}

#[test]
fn full_held_list_leaves_datagrams_in_socket() {
    let mut sharers = Sharers::open(2);
    sharers.pool = Pool::new(PoolConfig::for_mtu(4096, 1500)).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let pair = (1..).find(|dst| bucket(*dst, 0) % 2 == 1).unwrap();
    let set = BucketSet::from_iter([bucket(pair, 0)]);
    sharers.ports[1].buckets().unwrap().hold(&set);
    let kept = |sharers: &mut Sharers| sharers.ports[1].buckets().unwrap().kept();
    let count = HELD_MAX + 100;
    for number in 0..count {
        sender.send_to(&datagram(pair, 0, u32::try_from(number).unwrap()), sharers.to).unwrap();
        if number % 50 == 49 {
            assert_eq!(sharers.read(1), []);
        }
    }
    for _ in 0..10 {
        assert_eq!(sharers.read(1), []);
    }
    assert!((HELD_MAX - 31..=HELD_MAX).contains(&kept(&mut sharers)));
    sharers.ports[1].buckets().unwrap().release(&set);
    let came = sharers.read_all(1, count);
    let numbers: Vec<u32> = came.into_iter().map(|(.., number)| number).collect();
    assert_eq!(numbers, (0..u32::try_from(count).unwrap()).collect::<Vec<_>>());
    assert_eq!((kept(&mut sharers), sharers.pool.used()), (0, 0));
}

#[test]
fn held_frames_delivered_after_stop_reading_socket_untouched() {
    let mut sharers = Sharers::open(2);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let pair = (1..).find(|dst| bucket(*dst, 0) % 2 == 1).unwrap();
    let send = |sharers: &Sharers, number| {
        sender.send_to(&datagram(pair, 0, number), sharers.to).unwrap();
    };
    let set = BucketSet::from_iter([bucket(pair, 0)]);
    sharers.ports[1].buckets().unwrap().hold(&set);
    (0..100).for_each(|number| send(&sharers, number));
    let until = Instant::now() + PATIENCE;
    while sharers.ports[1].aside().frames < 100 {
        assert_eq!(sharers.read(1), []);
        assert!(Instant::now() < until, "they are kept");
    }
    sharers.ports[1].stop_reading();
    (100..150).for_each(|number| send(&sharers, number));
    let numbers = |came: Vec<(u8, u8, u32)>| came.into_iter().map(|(.., number)| number);
    assert!(numbers(sharers.read_all(1, 100)).eq(0..100));
    assert_eq!(sharers.ports[1].aside().frames, 0);
    assert_eq!(sharers.read(1), [], "they stay in the socket");
    sharers.ports[1].resume_reading();
    assert!(numbers(sharers.read_all(1, 50)).eq(100..150));
    let aside = sharers.ports[1].aside();
    assert_eq!((aside.frames, aside.bytes, aside.frames_max), (0, 0, 100));
}

/// A TCP segment between two machines, to port 443 or another one.
fn segment(dst: u8, src: u8, port: u16, number: u32) -> Vec<u8> {
    behind(&[], &[], dst, src, port, number)
}

/// A segment whose ports are as far behind its beginning as they can be.
fn stretched(dst: u8, src: u8, port: u16, number: u32) -> Vec<u8> {
    behind(&[0x81, 0, 0, 7], &[1; 40], dst, src, port, number)
}

/// A TCP segment with a tag and with IP options.
fn behind(tag: &[u8], options: &[u8], dst: u8, src: u8, port: u16, number: u32) -> Vec<u8> {
    let mut bytes = datagram(dst, src, 0);
    bytes.truncate(8 + 12);
    bytes.extend(tag);
    let words = 5 + u8::try_from(options.len() / 4).unwrap();
    bytes.extend([0x08, 0x00, 0x40 + words, 0, 0, 60, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend([10, 0, 0, src, 10, 0, 0, dst]);
    bytes.extend(options);
    bytes.extend([0xc0, 0x01]);
    bytes.extend(port.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.resize(bytes.len().max(90), 0);
    bytes
}

fn web() -> HighFlows {
    HighFlows::new(&["vni=42,ip=10.0.0.0/24,proto=tcp,port=443".parse().unwrap()]).unwrap()
}

#[test]
fn kernel_and_ports_agree_on_high_priority_flows() {
    if !Selector::can_change() {
        return;
    }
    let mut sharers = Sharers::open(5);
    let (selector, _) = sharers.selector();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut prng = sluice_base::Prng::new(8);
    let table: BucketTable = std::array::from_fn(|_| u8::try_from(prng.below(5)).unwrap());
    sharers.ports.iter_mut().for_each(|port| port.buckets().unwrap().set_high(&web()));
    selector.set(&table, &web()).unwrap();
    let mut high = 0;
    for pair in 0..=u8::MAX {
        let port = if pair % 2 == 0 { 443 } else { 80 };
        let make = if pair % 4 < 2 { segment } else { stretched };
        sender.send_to(&make(pair, 0, port, 1), sharers.to).unwrap();
        let low = bucket(pair, 0);
        let high_bucket = LOW_BUCKETS + group_of(low);
        let expected = if port == 443 { high_bucket } else { low };
        high += usize::from(port == 443);
        let at = usize::from(table[usize::from(expected)]);
        sharers.read_all(at, 1);
        let gauges = sharers.ports[at].buckets().unwrap().gauges();
        assert!(gauges.seen(expected) > 0, "frame {pair} is counted under its bucket");
    }
    let all = |sharers: &mut Sharers, at: usize| sharers.ports[at].buckets().unwrap().gauges();
    let seen: u32 = (0..5)
        .map(|at| {
            let gauges = all(&mut sharers, at);
            (0..BUCKETS).filter(|b| is_high(*b)).map(|b| gauges.seen(b)).sum::<u32>()
        })
        .sum();
    assert_eq!(seen as usize, high);
}

#[test]
fn frame_read_under_old_rules_holds_group_buckets() {
    let mut sharers = Sharers::open(2);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dst = (1..).find(|dst| bucket(*dst, 0).is_multiple_of(2)).unwrap();
    let low = bucket(dst, 0);
    let high = LOW_BUCKETS + group_of(low);
    let other = (0..BUCKETS).find(|b| group_of(*b) != group_of(low)).unwrap();
    let window = Window {
        frames: 64,
        bytes: ByteCount(1 << 20),
        closed: PriorityMask::NONE,
        needs_copy: false,
    };
    let read = |sharers: &mut Sharers| {
        sender.send_to(&segment(dst, 0, 443, 1), sharers.to).unwrap();
        let until = Instant::now() + PATIENCE;
        let Sharers { ports, pool, batch, .. } = sharers;
        while batch.is_empty() {
            ports[0].read(window, 64, pool, batch).unwrap();
            assert!(Instant::now() < until, "it arrives");
        }
        batch.drain().next().unwrap()
    };
    let before = read(&mut sharers);
    let gauges = sharers.ports[0].buckets().unwrap().gauges();
    let under_way = |bucket| gauges.under_way(bucket);
    assert_eq!((under_way(low), under_way(high)), (1, 0));
    sharers.ports[0].buckets().unwrap().set_high(&web());
    assert_eq!((under_way(low), under_way(high), under_way(other)), (1, 1, 0));
    let after = read(&mut sharers);
    assert_eq!((under_way(low), under_way(high)), (1, 2));
    // The high bucket is to leave: not before the frame that was read under the low bucket.
    sharers.ports[0].buckets().unwrap().leave(&BucketSet::from_iter([high]));
    let mut back = Batch::with_limit(64);
    for (handle, is_done) in [(after, false), (before, true)] {
        back.push(handle).unwrap();
        let Sharers { ports, pool, .. } = &mut sharers;
        ports[0].give_back(&mut back, pool);
        assert_eq!(sharers.read(0), []);
        assert_eq!(sharers.has_left(0), is_done);
    }
    assert!((0..BUCKETS).all(|bucket| under_way(bucket) == 0));
}
