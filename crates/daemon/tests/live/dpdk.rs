//! DPDK's virtio-user as a foreign client of two ports: one card sends as fast as it can, the other
//! one is stopped for random times and then takes, and refills, all at once.
//!
//! ```text
//!   testpmd, txonly ─ vhost-user ─ switch ─ vhost-user ─ testpmd, rxonly
//! ```
//!
//! Only counts are checked: after each gap more frames arrive, and in the end all frames that one
//! ring took came out of the other. With `SLUICE_DPDK_SECONDS` all shapes are repeated for that
//! long; without it, they run once and shortly.

use std::time::{Duration, Instant};

use crate::rig::dpdk::{Card, Shape, mac};
use crate::rig::{Daemon, Net, say, skip, wait_for};
use sluice_base::Prng;

/// Longest stop of the receiver, and longest run between two stops.
const GAP_US_MAX: u64 = 300;
/// Gaps after which frames must have arrived; and number of such checks in the short form.
const GAPS: u32 = 100;
const LOOKS_SHORT: u32 = 12;
/// Number of checks in the long form, for each shape.
const LOOKS_LONG: u32 = 200;

/// Both roles of the socket, three sizes, and each option with and without: pairs of all of them.
/// Packed rings are requested and not offered.
const SHAPES: [Shape; 6] = [
    Shape { ring: 64, options: ",in_order=1,mrg_rxbuf=1", listens: false },
    Shape { ring: 256, options: ",in_order=0,mrg_rxbuf=0", listens: false },
    Shape { ring: 1024, options: ",packed_vq=1,in_order=0", listens: false },
    Shape { ring: 64, options: ",packed_vq=1,in_order=0,mrg_rxbuf=0", listens: true },
    Shape { ring: 256, options: ",packed_vq=1,in_order=1", listens: true },
    Shape { ring: 1024, options: ",in_order=1,mrg_rxbuf=0", listens: true },
];

/// Two cards on two ports.
struct Bench {
    sender: Card,
    receiver: Card,
    daemon: Daemon,
    _net: Net,
}

impl Bench {
    fn new(shape: Shape) -> Self {
        let mut net = Net::new("dpdk");
        let netns = net.netns("host");
        // Chains are used in order for drivers that rely on it.
        let in_order = shape.options.contains("in_order=1");
        let client = shape.listens;
        let port = |number: u8| {
            let socket = net.file(&format!("vm{number}.sock"));
            format!(
                "[[port]]\nname = \"vm{number}\"\nkind = \"vhost-user\"\nvnet = \"blue\"\n\
                 socket = \"{}\"\nclient = {client}\nmac = \"{}\"\nin_order = {in_order}\n",
                socket.display(),
                mac(number)
            )
        };
        let rest = format!(
            "policy = \"ZZ\"\n[[vnet]]\nname = \"blue\"\nmtu = 1450\n{}{}",
            port(1),
            port(2)
        );
        let daemon = net.daemon(&netns, "h1", &rest);
        let last = std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1);
        let sender = Card::start(&net, 1, 2, 0, shape);
        let receiver = Card::start(&net, 2, 1, last, shape);
        let mut bench = Self { sender, receiver, daemon, _net: net };
        bench.receiver.tell("set fwd rxonly");
        bench.receiver.tell("start");
        bench.sender.tell("set fwd txonly");
        // Frames that a card drops when it starts are not sent yet.
        assert_eq!(bench.receiver.counts().0, 0, "{}", bench.receiver.said());
        for port in ["vm1", "vm2"] {
            wait_for("the card drives its port", || {
                bench.daemon.row("ports", "port", port)["lossless"] == "yes"
            });
        }
        bench
    }

    /// Returns the frames that the receiver's port took so far.
    fn delivered(&self) -> u64 {
        self.daemon.row("ports", "port", "vm2")["tx_frames"].as_u64().unwrap()
    }

    /// Stops the receiver for random times, and expects frames after each stop.
    fn gaps(&mut self, prng: &mut Prng) {
        let before = self.delivered();
        for _ in 0..GAPS {
            for pause in [true, false] {
                self.receiver.pause(pause);
                let until = Instant::now() + Duration::from_micros(prng.below(GAP_US_MAX));
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
        }
        wait_for("the port goes on after a gap", || self.delivered() > before);
    }

    /// Checks that all frames sent have arrived. Returns their number.
    fn end(mut self) -> u64 {
        self.sender.tell("stop");
        let sent = self.sender.counts().1;
        wait_for("every frame that was sent comes", || {
            let came = self.receiver.counts().0;
            assert!(came <= sent, "{came} of {sent} frames came");
            came == sent
        });
        self.daemon.drained();
        self.daemon.assert_lossless();
        sent
    }
}

#[test]
#[ignore = "live: needs root"]
fn dpdk_guest_after_receiver_stops_resumes_without_loss() {
    let name = "dpdk_guest_after_receiver_stops_resumes_without_loss";
    if skip(name, &["dpdk-testpmd"]) {
        return;
    }
    let seconds = std::env::var("SLUICE_DPDK_SECONDS").ok().and_then(|text| text.parse().ok());
    let (looks, until) = match seconds {
        None => (LOOKS_SHORT, Instant::now()),
        Some(seconds) => (LOOKS_LONG, Instant::now() + Duration::from_secs(seconds)),
    };
    for seed in 0.. {
        for shape in SHAPES {
            say(&format!("seed {seed}, {shape:?}"));
            let mut prng = Prng::new(seed);
            let mut bench = Bench::new(shape);
            bench.sender.tell("start");
            (0..looks).for_each(|_| bench.gaps(&mut prng));
            let sent = bench.end();
            say(&format!("{} gaps, {sent} frames sent and received", looks * GAPS));
        }
        if Instant::now() >= until {
            break;
        }
    }
}
