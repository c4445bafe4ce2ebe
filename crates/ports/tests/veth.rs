//! Requirements on `veth`: senders are held, every frame wakes, and losses show.

mod support;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sluice_base::{Batch, Mac};
use sluice_ports::veth::{Known, VethConfig, VethPort, remove};
use sluice_ports::{Handover as _, Lossless, Pool, PoolConfig, Port};
use sluice_switch::{Sink as _, Taken};
use support::{
    OPEN, Peer as _, RawPeer, Waiter, add_namespace, can_have_namespaces, egress, eventually,
    frame, inside, is_gone, kernel_drops, path, pool, read_all, receive_all, run, test_frame,
};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 7, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 7, 2);
const OWN_MAC: Mac = Mac([2, 0, 0, 0, 7, 1]);

/// A container's namespace, which goes away with this.
struct Container(String);

impl Container {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let container = Self(format!("sluice-v-{}-{number}", std::process::id()));
        add_namespace(&container.0);
        container
    }

    fn config(&self, mtu: u16) -> VethConfig {
        let addresses = vec![(OWN.into(), 24)];
        let netns = Some(path(&self.0));
        VethConfig { netns, addresses, mac: Some(OWN_MAC), ..VethConfig::new("eth0", mtu) }
    }

    /// A port whose neighbour's MAC is known, so that nothing but datagrams is sent.
    fn port(&self, mtu: u16) -> VethPort {
        let port = VethPort::open(&self.config(mtu)).unwrap();
        let name = &self.0;
        run(&format!("ip -n {name} neigh add {FAR} lladdr 02:00:00:00:07:02 dev eth0"));
        port
    }

    fn sender(&self) -> UdpSocket {
        inside(&self.0, || {
            let socket = UdpSocket::bind((OWN, 0)).unwrap();
            socket.connect((FAR, 9)).unwrap();
            socket
        })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _gone = std::process::Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Reads all that is there now; returns the number of frames, and whether more may be.
fn read_some(
    port: &mut VethPort,
    pool: &mut Pool,
    batch: &mut Batch<sluice_ports::FrameBuf>,
) -> (u64, bool) {
    let read = port.read(OPEN, 64, pool, batch).unwrap();
    batch.drain().for_each(|buf| pool.give_back(buf));
    (read.frames as u64, read.more)
}

/// Rows of the counters that are not zero.
fn losses(port: &VethPort) -> Vec<(&'static str, u64)> {
    let rows = port.outside().into_counters().unwrap();
    rows.into_iter().filter(|(name, count)| *count > 0 && *name != "device.rx_dropped").collect()
}

/// Senders in blocking calls, and a reader that stops again and again.
fn stopped_again_and_again(test: &str, senders: usize) {
    const STOPS: u32 = 3;
    const STOP: Duration = Duration::from_secs(2);
    const ACTIVE: Duration = Duration::from_millis(300);
    let container = Container::new();
    let mut port = container.port(1500);
    assert_eq!(port.lossless(), Lossless::Yes);
    let drops = kernel_drops(test, &[&container.0]);
    let sockets: Vec<_> = (0..senders).map(|_| container.sender()).collect();
    let (sent, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut pool, mut batch, mut received) = (pool(256), Batch::with_limit(64), 0);
    let mut active = Duration::ZERO;
    std::thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .map(|socket| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        socket.send(&[7; 18]).expect("a held sender waits, and gets no error");
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for stop in 0..STOPS {
            let begin = Instant::now();
            while begin.elapsed() < ACTIVE {
                received += read_some(&mut port, &mut pool, &mut batch).0;
            }
            active += begin.elapsed();
            std::thread::sleep(STOP / 2);
            let held = sent.load(Ordering::Relaxed);
            std::thread::sleep(STOP / 2);
            assert_eq!(sent.load(Ordering::Relaxed), held, "stop {stop}: all senders are held");
        }
        eprintln!("{test}: {:.0} frames/s while read", received as f64 / active.as_secs_f64());
        done.store(true, Ordering::Relaxed);
        while threads.iter().any(|thread| !thread.is_finished()) {
            received += read_some(&mut port, &mut pool, &mut batch).0;
        }
    });
    let sent = sent.into_inner();
    eventually(|| {
        received += read_some(&mut port, &mut pool, &mut batch).0;
        received >= sent
    });
    assert_eq!(received, sent, "frames sent by the sockets, and frames read");
    assert_eq!(losses(&port), []);
    eprintln!("{test}: {sent} sent, {received} received");
    if let Some(drops) = drops {
        let seen = drops.losses();
        assert!(seen.is_empty(), "{seen:?}");
    }
}

#[test]
fn stopped_port_holds_one_sender() {
    let test = "stopped_port_holds_one_sender";
    if can_have_namespaces(test) {
        stopped_again_and_again(test, 1);
    }
}

#[test]
fn stopped_port_holds_sixteen_senders() {
    let test = "stopped_port_holds_sixteen_senders";
    if can_have_namespaces(test) {
        stopped_again_and_again(test, 16);
    }
}

/// Frames come one by one to a reader that sleeps on its descriptors, after pauses of all lengths.
#[test]
fn every_frame_wakes_an_idle_port() {
    if !can_have_namespaces("every_frame_wakes_an_idle_port") {
        return;
    }
    const FRAMES: u32 = 2_000;
    let container = Container::new();
    let mut port = container.port(1500);
    let socket = container.sender();
    let (mut pool, mut batch) = (pool(64), Batch::with_limit(64));
    let waiter = Waiter::new(&port);
    while read_some(&mut port, &mut pool, &mut batch).1 {}
    while waiter.wait(0) {}
    assert!(!waiter.wait(500), "an idle port makes no event");
    let (tell, told) = mpsc::sync_channel(FRAMES as usize);
    let mut late = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for nth in 0..FRAMES {
                std::thread::sleep(Duration::from_micros(u64::from(nth * nth % 701)));
                tell.send(Instant::now()).unwrap();
                socket.send(&[7; 18]).unwrap();
            }
        });
        let mut received = 0;
        while received < u64::from(FRAMES) {
            assert!(waiter.wait(2_000), "{received} of {FRAMES} came, and no event");
            loop {
                let (frames, more) = read_some(&mut port, &mut pool, &mut batch);
                let now = Instant::now();
                late.extend((0..frames).map(|_| now - told.recv().unwrap()));
                received += frames;
                if !more {
                    break;
                }
            }
        }
    });
    late.sort_unstable();
    let (p50, p99) = (late[late.len() / 2], late[late.len() * 99 / 100]);
    eprintln!("woken after {p50:?} (median), {p99:?} (99 %), {:?} (most)", late[late.len() - 1]);
    assert!(p50 < Duration::from_millis(5), "{p50:?}");
    assert_eq!(losses(&port), []);
}

/// A discipline that drops: the kernel counts the loss, and the port sleeps and wakes as before.
#[test]
fn frames_dropped_at_the_qdisc_are_counted() {
    if !can_have_namespaces("frames_dropped_at_the_qdisc_are_counted") {
        return;
    }
    let container = Container::new();
    let mut port = container.port(1500);
    run(&format!("ip netns exec {} tc qdisc replace dev eth0 root pfifo limit 10", container.0));
    // No send buffer holds one of them.
    let sockets: Vec<_> = (0..5).map(|_| container.sender()).collect();
    for _ in 0..80 {
        sockets.iter().for_each(|socket| assert_eq!(socket.send(&[7; 18]).unwrap(), 18));
    }
    let (mut pool, mut batch) = (pool(64), Batch::with_limit(64));
    let waiter = Waiter::new(&port);
    let mut received = 0;
    let settled = eventually(|| {
        received += read_some(&mut port, &mut pool, &mut batch).0;
        received + port.outside().into_counters().unwrap()["qdisc.dropped"] == 400
    });
    let rows = port.outside().into_counters().unwrap();
    assert!(settled && rows["qdisc.dropped"] > 0, "{received}, {rows:?}");
    assert_eq!(rows["xdp.fill_ring_empty"] + rows["device.tx_dropped"], 0, "{rows:?}");
    // It looks for the frames that do not come, at first often.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        waiter.wait(100);
        read_some(&mut port, &mut pool, &mut batch);
    }
    let mut events = 0;
    while Instant::now() < until + Duration::from_secs(2) {
        events += u32::from(waiter.wait(100));
        read_some(&mut port, &mut pool, &mut batch);
    }
    assert!(events <= 4, "it sleeps: {events} events in 2 s");
    sockets[0].send(&[7; 18]).unwrap();
    assert!(waiter.wait(2_000), "and wakes");
    assert_eq!(read_some(&mut port, &mut pool, &mut batch).0, 1);
}

/// Other threads start programs meanwhile, which for a moment hold copies of every descriptor.
#[test]
fn openings_side_by_side_succeed() {
    if !can_have_namespaces("openings_side_by_side_succeed") {
        return;
    }
    let done = AtomicBool::new(false);
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                run("true");
            }
        });
        let open = || {
            let container = Container::new();
            (0..4)
                .map(|_| {
                    let begin = Instant::now();
                    drop(VethPort::open(&container.config(1500)).unwrap());
                    begin.elapsed()
                })
                .collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
        let took = threads.into_iter().map(|thread| thread.join());
        let took: Vec<_> = took.collect();
        done.store(true, Ordering::Relaxed);
        took.into_iter().flat_map(Result::unwrap).collect()
    });
    took.sort_unstable();
    eprintln!("opened in {:?} (median), {:?} (most)", took[8], took[15]);
}

/// The port of another process goes on with the card and with every frame that waits.
#[test]
fn kept_pair_continues_with_its_frames() {
    if !can_have_namespaces("kept_pair_continues_with_its_frames") {
        return;
    }
    const FRAMES: u32 = 600;
    let container = Container::new();
    let config = container.config(1500);
    let (mut port, copies) = VethPort::open_kept(&config, None).unwrap();
    let card = || inside(&container.0, || sluice_ports::device::device("eth0").unwrap());
    let before = card();
    run(&format!("ip -n {} neigh add {FAR} lladdr 02:00:00:00:07:02 dev eth0", container.0));
    let socket = container.sender();
    // The sender is held again and again: every ring has frames at every change.
    let sender = socket.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        (0..FRAMES).for_each(|nth| assert_eq!(sender.send(&nth.to_be_bytes()).unwrap(), 4));
    });
    let mut pool = pool(1024);
    let mut seen = read_all(&mut port, &mut pool, 70, 0);
    let mut known = copies;
    for time in 0..3 {
        port.close().unwrap();
        drop(port);
        assert_eq!(card(), before, "time {time}: the card stays");
        let handed = Known { handed: known, is_left: time != 1 };
        (port, known) = VethPort::open_kept(&config, Some(handed)).unwrap();
        assert_eq!(port.outside().state().device.up, Some(true));
        seen.extend(read_all(&mut port, &mut pool, 70, 0));
    }
    seen.extend(read_all(&mut port, &mut pool, FRAMES as usize - seen.len(), 0));
    sender.join().unwrap();
    let payload = |frame: &Vec<u8>| u32::from_be_bytes(*frame[42..].first_chunk().unwrap());
    assert_eq!(seen.iter().map(payload).collect::<Vec<_>>(), (0..FRAMES).collect::<Vec<_>>());
    assert_eq!(losses(&port), []);
    let (mut batch, waiter) = (Batch::with_limit(64), Waiter::new(&port));
    while read_some(&mut port, &mut pool, &mut batch).1 {}
    while waiter.wait(0) {}
    socket.send(&[7; 18]).unwrap();
    assert!(waiter.wait(2_000), "it wakes");
    drop(port);
    remove(known).unwrap();
    assert!(inside(&container.0, || sluice_ports::device::device("eth0").is_err()));
}

#[test]
fn pair_of_a_deleted_namespace_is_replaced() {
    if !can_have_namespaces("pair_of_a_deleted_namespace_is_replaced") {
        return;
    }
    let container = Container::new();
    let (port, copies) = VethPort::open_kept(&container.config(1500), None).unwrap();
    drop(port);
    let name = &container.0;
    run(&format!("ip netns del {name}"));
    run(&format!("ip netns add {name}"));
    let known = Known { handed: copies, is_left: true };
    let (port, copies) = VethPort::open_kept(&container.config(1500), Some(known)).unwrap();
    assert_eq!(port.outside().state().device.up, Some(true));
    let begin = Instant::now();
    for _ in 0..20 {
        port.outside().into_counters().unwrap();
    }
    eprintln!("counters are read in {:?}", begin.elapsed() / 20);
    remove(copies).unwrap();
}

#[test]
fn kept_pair_with_another_mtu_is_replaced() {
    if !can_have_namespaces("kept_pair_with_another_mtu_is_replaced") {
        return;
    }
    let container = Container::new();
    let (port, copies) = VethPort::open_kept(&container.config(1500), None).unwrap();
    drop(port);
    let known = Known { handed: copies, is_left: true };
    let (mut port, copies) = VethPort::open_kept(&container.config(9000), Some(known)).unwrap();
    assert_eq!((port.mtu(), port.outside().state().device.up), (9000, Some(true)));
    let known = Known { handed: copies, is_left: false };
    let error = VethPort::open_kept(&container.config(1500), Some(known)).unwrap_err();
    assert!(error.to_string().contains("its MTU is 9000 and would be 1500"), "{error}");
    assert_eq!(port.outside().state().device.up, Some(true), "the other process continues");
    remove(port.hand_over().unwrap().unwrap()).unwrap();
    assert_eq!(port.outside().state().device.up, Some(false));
}

/// The kernel drops, unseen, what is sent to a card that is down: the port counts it instead.
#[test]
fn frames_to_a_down_card_are_counted() {
    if !can_have_namespaces("frames_to_a_down_card_are_counted") {
        return;
    }
    let container = Container::new();
    let mut port = container.port(1500);
    let mut pool = pool(64);
    let mut batch = Batch::with_limit(64);
    let mut offer = |port: &mut VethPort| {
        read_some(port, &mut pool, &mut batch);
        let buf = frame(&mut pool, &test_frame(1, 100));
        assert_eq!(port.offer(&egress(&[], Some(&buf))), Taken::All);
        pool.give_back(buf);
        port.flush().unwrap();
        port.lost().total().frames
    };
    assert_eq!(offer(&mut port), 0);
    run(&format!("ip -n {} link set eth0 down", container.0));
    assert!(eventually(|| offer(&mut port) >= 3));
    assert_eq!(port.outside().state().device.up, Some(false));
    run(&format!("ip -n {} link set eth0 up", container.0));
    assert!(eventually(|| offer(&mut port) == offer(&mut port)), "it takes frames again");
}

#[test]
fn large_frames_pass_both_ways() {
    if !can_have_namespaces("large_frames_pass_both_ways") {
        return;
    }
    let container = Container::new();
    let mut port = container.port(9000);
    let mut peer = inside(&container.0, || RawPeer::new("eth0"));
    let mut pool = Pool::new(PoolConfig::for_mtu(64, 9000)).unwrap();
    let frames: Vec<_> = (0..200).map(|nth| test_frame(nth * 61, 4000)).collect();
    let frames: Vec<_> = frames.into_iter().chain([vec![0xa5; 9014], vec![0x5a; 3840]]).collect();
    for part in frames.chunks(20) {
        part.iter().for_each(|frame| peer.send(frame));
        assert_eq!(read_all(&mut port, &mut pool, part.len(), 0), part);
    }
    for bytes in frames.iter().filter(|frame| frame.len() <= 4000) {
        let buf = frame(&mut pool, bytes);
        assert_eq!(port.offer(&egress(&[], Some(&buf))), Taken::All);
        pool.give_back(buf);
        port.flush().unwrap();
        assert_eq!(receive_all(&mut peer, 1), std::slice::from_ref(bytes));
    }
    assert_eq!(losses(&port), []);
}

/// The container's stack finishes checksums and segments itself.
#[test]
fn frames_of_the_stack_are_finished() {
    if !can_have_namespaces("frames_of_the_stack_are_finished") {
        return;
    }
    let container = Container::new();
    let mut port = container.port(1500);
    let socket = container.sender();
    for size in [0, 1, 700, 701] {
        socket.send(&vec![0xa5; size]).unwrap();
    }
    for frame in read_all(&mut port, &mut pool(8), 4, 0) {
        let size = u32::try_from(frame.len() - 34).unwrap();
        let mut sum: u32 = 17 + size;
        for pair in frame[26..].chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!((sum, &frame[6..12]), (0xffff, &OWN_MAC.0[..]), "{size} bytes");
    }
}

#[test]
fn deleted_container_is_an_error() {
    if !can_have_namespaces("deleted_container_is_an_error") {
        return;
    }
    let container = Container::new();
    let mut port = container.port(1500);
    let (mut pool, mut batch) = (pool(8), Batch::with_limit(8));
    let waiter = Waiter::new(&port);
    while read_some(&mut port, &mut pool, &mut batch).1 {}
    while waiter.wait(0) {}
    assert_eq!(port.outside().state().device.up, Some(true));
    drop(container);
    // First the carrier goes.
    let read = loop {
        assert!(waiter.wait(10_000), "it tells that the card is gone");
        match port.read(OPEN, 8, &mut pool, &mut batch) {
            Ok(read) => assert_eq!((read.frames, read.more), (0, false)),
            Err(error) => break error,
        }
    };
    assert!(is_gone(&read), "{read}");
    assert_eq!(port.outside().state().device.up, Some(false));
    port.close().unwrap();
}

#[test]
fn card_goes_away_with_its_port() {
    if !can_have_namespaces("card_goes_away_with_its_port") {
        return;
    }
    let container = Container::new();
    let there = || inside(&container.0, || sluice_ports::device::device("eth0").is_ok());
    let port = container.port(1500);
    assert!(there());
    drop(port);
    assert!(!there(), "the card was deleted");
    // The name is free again.
    let port = container.port(1500);
    assert_eq!((port.outside().state().device.up, there()), (Some(true), true));
}

#[test]
fn card_name_in_use_is_refused() {
    if !can_have_namespaces("card_name_in_use_is_refused") {
        return;
    }
    let container = Container::new();
    let _port = container.port(1500);
    let error = VethPort::open(&container.config(1500)).unwrap_err();
    assert!(error.to_string().contains("device eth0: cannot move it"), "{error}");
}
