//! Tests against a real back end, DPDK's: `dpdk-testpmd` forwards frames between two vhost-user
//! ports, in both roles of the socket. They are skipped with a message if it is not installed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluice_testkit::guest::{
    Cut, Guest, GuestConfig, Listener, Shape, connect, feature, ring::SUPPRESS,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A running `dpdk-testpmd` with two ports, and its folder; both end when it is dropped.
struct Testpmd {
    child: Child,
    dir: PathBuf,
}

impl Testpmd {
    /// Starts it; `None` if it is not installed. With `comes` it connects to sockets of the guests.
    fn start(name: &str, comes: bool, queues: usize) -> Option<Self> {
        if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
            eprintln!("SKIPPED: dpdk-testpmd is not installed (apt-get install dpdk-dev)");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("sluice-tk-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let child = Self::spawn(&dir, name, comes, queues);
        Some(Self { child, dir })
    }

    fn spawn(dir: &Path, name: &str, comes: bool, queues: usize) -> Child {
        let mut command = Command::new("dpdk-testpmd");
        command.args(["-l", "0,1", "--no-huge", "-m", "192", "--no-pci"]);
        command.args(["--no-shconf", "--no-telemetry"]);
        command.arg(format!("--file-prefix={name}-{}", std::process::id()));
        for port in 0..2 {
            let path = dir.join(format!("{port}"));
            let client = u8::from(comes);
            command.arg("--vdev").arg(format!(
                "net_vhost{port},iface={},client={client},queues={queues}",
                path.display()
            ));
        }
        command.args(["--", "--forward-mode=io", "--auto-start", "--nb-cores=1"]);
        command.args(["--total-num-mbufs=8192", "--no-lsc-interrupt"]);
        command.arg(format!("--rxq={queues}")).arg(format!("--txq={queues}"));
        // The program ends when its input does.
        let log = std::fs::File::create(dir.join("log")).unwrap();
        command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        command.spawn().unwrap()
    }

    fn path(&self, port: usize) -> PathBuf {
        self.dir.join(format!("{port}"))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.dir.join("log")).unwrap_or_default());
        }
        _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame: Vec<u8> =
        (0..bytes).map(|at| u8::try_from((at + number as usize) % 251).unwrap()).collect();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Sends until the first frame comes through, and discards the frames until then.
fn warm_up(from: &mut Guest, to: &mut Guest) {
    for _ in 0..400 {
        from.send(&frame(0, 60));
        std::thread::sleep(Duration::from_millis(20));
        if to.receive().is_some() {
            std::thread::sleep(Duration::from_millis(50));
            while to.receive().is_some() {}
            return;
        }
    }
    panic!("no frame comes through");
}

/// Sends frames of all sizes, a few at a time, and expects each of them in order.
fn exchange(from: &mut Guest, to: &mut Guest, frames: u32) {
    let (mut sent, mut seen, mut idle) = (0, 0, 0);
    let size = |n: u32| 60 + (n as usize * 37) % 1455;
    while seen < frames {
        while sent < frames && sent < seen + 50 && from.send(&frame(sent, size(sent))) {
            sent += 1;
        }
        match to.receive() {
            Some(got) => {
                assert!(got == frame(seen, size(seen)), "frame {seen} of {} bytes", got.len());
                (seen, idle) = (seen + 1, 0);
            }
            None => {
                idle += 1;
                assert!(idle < 5000, "only {seen} of {sent} came");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    assert_eq!((from.violation(), to.violation()), (None, None));
}

/// Returns configurations that leave out each feature of the driver in turn, with every shape.
fn configs() -> Vec<GuestConfig> {
    let base = GuestConfig::default();
    let all = feature::ALL;
    let mut configs = vec![base.clone()];
    for left_out in [feature::EVENT_IDX, feature::IN_ORDER, feature::MRG_RXBUF] {
        configs.push(GuestConfig { features: all & !left_out, ..base.clone() });
    }
    for cut in [Cut::Whole, Cut::HeaderApart, Cut::Pieces] {
        for indirect in [false, true] {
            let shape = Shape { cut, indirect };
            let receiver_shape = Shape { indirect: false, ..shape };
            configs.push(GuestConfig {
                features: all & !feature::IN_ORDER,
                sender_shape: shape,
                receiver_shape,
                ..base.clone()
            });
        }
    }
    configs.push(GuestConfig { receive_buffer_bytes: 300, ..base.clone() });
    configs.push(GuestConfig { regions: 3, ..base });
    configs
}

#[test]
#[ignore = "starts DPDK; run with --include-ignored, one test at a time"]
fn frames_pass_with_every_feature_and_shape() {
    let Some(pmd) = Testpmd::start("shapes", false, 1) else { return };
    for config in configs() {
        eprintln!("{config:?}");
        let mut a = Guest::connected(config.clone(), &pmd.path(0)).unwrap();
        let mut b = Guest::connected(config.clone(), &pmd.path(1)).unwrap();
        eprintln!("agreed {:#x}", a.features());
        warm_up(&mut a, &mut b);
        exchange(&mut a, &mut b, 1000);
        exchange(&mut b, &mut a, 1000);
        a.detach().unwrap();
        b.detach().unwrap();
    }
}

#[test]
#[ignore = "starts DPDK; run with --include-ignored, one test at a time"]
fn a_guest_listens_and_its_switch_comes_back() {
    let Some(mut pmd) = Testpmd::start("comes", true, 1) else { return };
    let listeners = [0, 1].map(|port| Listener::bind(&pmd.path(port)).unwrap());
    let [mut a, mut b] = [(); 2].map(|()| Guest::new(GuestConfig::default()).unwrap());
    for _ in 0..2 {
        a.attach(listeners[0].accept(PATIENCE).unwrap()).unwrap();
        b.attach(listeners[1].accept(PATIENCE).unwrap()).unwrap();
        assert!(a.is_connected() && b.is_connected());
        warm_up(&mut a, &mut b);
        exchange(&mut a, &mut b, 1000);
        // The switch is killed with frames in its rings; the next one takes them on.
        pmd.child.kill().unwrap();
        pmd.child.wait().unwrap();
        assert!(!a.is_connected() && !b.is_connected());
        pmd.child = Testpmd::spawn(&pmd.dir, "comes", true, 1);
    }
}

#[test]
#[ignore = "starts DPDK; run with --include-ignored, one test at a time"]
fn stopped_rings_hold_frames_and_go_on() {
    let Some(pmd) = Testpmd::start("stops", false, 1) else { return };
    let config = GuestConfig::default();
    let mut a = Guest::connected(config.clone(), &pmd.path(0)).unwrap();
    let mut b = Guest::connected(config, &pmd.path(1)).unwrap();
    warm_up(&mut a, &mut b);
    for round in 0..5 {
        a.stop().unwrap();
        for number in 0..100 {
            assert!(a.send(&frame(round * 100 + number, 60)));
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(b.receive(), None, "a stopped ring sends nothing");
        a.start().unwrap();
        for number in 0..100 {
            let mut got = b.receive();
            for _ in 0..1000 {
                if got.is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
                got = b.receive();
            }
            assert_eq!(got, Some(frame(round * 100 + number, 60)));
        }
    }
}

#[test]
#[ignore = "starts DPDK; run with --include-ignored, one test at a time"]
fn a_sleeping_guest_is_called() {
    let Some(pmd) = Testpmd::start("calls", false, 1) else { return };
    for features in [feature::ALL, feature::ALL & !feature::EVENT_IDX] {
        let config = GuestConfig { features, ..GuestConfig::default() };
        let mut a = Guest::connected(config.clone(), &pmd.path(0)).unwrap();
        let mut b = Guest::connected(config, &pmd.path(1)).unwrap();
        warm_up(&mut a, &mut b);
        for number in 0..2000 {
            assert!(a.send(&frame(number, 60)), "the switch is faster than that");
            assert!(b.pair(0).receiver.wait(PATIENCE).unwrap(), "frame {number}: no call came");
            assert_eq!(b.receive(), Some(frame(number, 60)));
        }
        a.detach().unwrap();
        b.detach().unwrap();
    }
}

#[test]
#[ignore = "starts DPDK; run with --include-ignored, one test at a time"]
fn two_queue_pairs_both_carry_frames() {
    let Some(pmd) = Testpmd::start("pairs", false, 2) else { return };
    let config = GuestConfig { queue_pairs: 2, ..GuestConfig::default() };
    let mut a = Guest::connected(config.clone(), &pmd.path(0)).unwrap();
    let mut b = Guest::connected(config, &pmd.path(1)).unwrap();
    warm_up(&mut a, &mut b);
    for pair in 0..2 {
        for _ in 0..100 {
            assert!(a.pair(pair).sender.send(&frame(7, 100)));
        }
        let mut seen = 0;
        for _ in 0..2000 {
            if b.pair(pair).receiver.receive().is_some() {
                seen += 1;
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
            if seen == 100 {
                break;
            }
        }
        assert_eq!(seen, 100, "pair {pair}");
    }
}

#[test]
#[ignore = "starts DPDK; run with --include-ignored, one test at a time"]
fn a_hostile_ring_can_be_written() {
    let Some(pmd) = Testpmd::start("hostile", false, 1) else { return };
    let mut a = Guest::new(GuestConfig::default()).unwrap();
    a.attach(connect(&pmd.path(0), 250).unwrap()).unwrap();
    let ring = a.pair(0).sender.ring();
    let outside =
        sluice_testkit::guest::Descriptor { addr: 0xdead_0000, len: 60, flags: 0, next: 0 };
    ring.put_descriptor(3, outside);
    ring.put_avail(0, 3);
    ring.put_avail_flags(SUPPRESS);
    ring.put_avail_idx(1);
    ring.kick();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(ring.descriptor(3), outside);
    assert_eq!(ring.avail_idx(), 1);
}
