//! Waits of datagrams at a link: M/D/1, Little's law, and sources in phase.

use sluice_base::{BitRate, ByteCount, Nanos, Priority};
use sluice_sim::topology::{LinkId, Topology};
use sluice_sim::workload::{Gaps, Source, Sources};
use sluice_sim::world::{Departure, End, Observer, World, WorldConfig};

use crate::network::{Chain, FULL_WIRE};

/// Payload of a datagram that makes a frame of 1,514 bytes.
const DATAGRAM: u32 = 1_472;
/// Time of such a frame at 1 Gbit/s, S.
const SERVICE: Nanos = Nanos(FULL_WIRE * 8);
/// Groups of frames whose means give the standard error.
const BATCHES: u64 = 40;

/// Waits at one link.
#[derive(Debug)]
struct Waits {
    link: LinkId,
    /// Frames of a batch.
    batch: u64,
    /// Sum of the waits of each whole batch, in nanoseconds.
    sums: Vec<u64>,
    frames: u64,
    sum: u64,
    /// The end of the frame that left last, and its arrival.
    last: (Nanos, Nanos),
    /// Sum of the gaps between arrivals, and of their squares.
    gaps: (f64, f64),
    /// Number of samples, and the sum of the frames that waited then.
    queue: (u64, u64),
}

impl Waits {
    fn new(link: LinkId, frames: u64) -> Self {
        let batch = (frames / BATCHES).max(1);
        let last = (Nanos::ZERO, Nanos::ZERO);
        let (sums, gaps, queue) = (Vec::new(), (0.0, 0.0), (0, 0));
        Self { link, batch, sums, frames: 0, sum: 0, last, gaps, queue }
    }

    /// Returns the mean wait, and its standard error by the means of the batches.
    fn mean(&self) -> (f64, f64) {
        let means = || self.sums.iter().map(|sum| *sum as f64 / self.batch as f64);
        let count = self.sums.len() as f64;
        let mean = means().sum::<f64>() / count;
        let squares = means().map(|of| (of - mean).powi(2)).sum::<f64>();
        (mean, (squares / (count - 1.0) / count).sqrt())
    }

    /// Returns the squared coefficient of variation of the gaps between arrivals.
    fn variation(&self) -> f64 {
        let count = (self.frames - 1) as f64;
        let mean = self.gaps.0 / count;
        (self.gaps.1 / count - mean * mean) / (mean * mean)
    }
}

impl Observer for Waits {
    fn sample(&mut self, world: &World, at: Nanos) {
        self.queue = (self.queue.0 + 1, self.queue.1 + world.waiting(self.link, at).frames);
    }

    fn left(&mut self, departure: &Departure) {
        if departure.link != self.link {
            return;
        }
        let begin = departure.at.before(SERVICE);
        let arrival = begin.before(departure.wait);
        // Lindley 1952: a frame begins when it is there and the one ahead of it has ended.
        assert_eq!(begin, arrival.max(self.last.0), "the link works while it has frames");
        if self.frames > 0 {
            let gap = arrival.since(self.last.1).0 as f64;
            self.gaps = (self.gaps.0 + gap, self.gaps.1 + gap * gap);
        }
        self.last = (departure.at, arrival);
        self.frames += 1;
        self.sum += departure.wait.0;
        if self.frames.is_multiple_of(self.batch) {
            let before: u64 = self.sums.iter().sum();
            self.sums.push(self.sum - before);
        }
    }
}

/// Returns hosts around a switch, all of whose links have 1 Gbit/s.
fn star(pairs: u32) -> WorldConfig {
    let (rate, delay, buffer) = (BitRate::from_gbps(1), Nanos(1_000), ByteCount(4_000_000));
    Chain { pairs, links: 2, rate, delay, buffer }.config()
}

fn source(from: u32, to: u32, gaps: Gaps, gap: u64) -> Source {
    Source {
        from,
        to,
        bytes: DATAGRAM,
        gaps,
        gap: Nanos(gap),
        first: Nanos(gap),
        datagrams: u64::MAX,
        priority: Priority::ZERO,
    }
}

/// Runs sources until about so many datagrams have been sent, and observes a link.
fn observe(
    config: &WorldConfig,
    sources: Vec<Source>,
    link: LinkId,
    datagrams: u64,
    every: Nanos,
) -> Waits {
    let gap = sources[0].gap.0 / sources.len() as u64;
    let end = Nanos(gap * datagrams);
    let mut waits = Waits::new(link, datagrams);
    let mut sources = Sources::new(sources, 1);
    let mut world = World::new(config).expect("a star that works");
    let reason = world.run_observed(&mut [&mut sources], end, every, &mut waits);
    assert_eq!((reason, world.drops()), (End::Time, 0));
    let counts = sources.counts(&world);
    let (sent, arrived) = counts.iter().fold((0, 0), |sum, c| (sum.0 + c.sent, sum.1 + c.arrived));
    assert!(arrived <= sent && arrived + 2_000 > sent, "{arrived} of {sent}: the rest waits");
    assert!(arrived <= waits.frames && waits.frames <= sent, "{} frames", waits.frames);
    waits
}

/// Holds waits against Pollaczek and Khinchine: `rho S / (2 (1 - rho))` (Kleinrock, Queueing
/// Systems I, 1975, equation 5.71 with a variance of zero).
fn check(name: &str, load: u64, waits: &Waits) {
    let rho = load as f64 / 100.0;
    let expected = rho * SERVICE.0 as f64 / (2.0 * (1.0 - rho));
    let (mean, error) = waits.mean();
    let (ratio, error) = (mean / expected, error / expected);
    println!(
        "{name}, load {rho}: {mean:.0} ns of {expected:.0} ({:+.2} %), standard error {:.2} %, \
         {} frames, gaps {:.3}",
        (ratio - 1.0) * 100.0,
        error * 100.0,
        waits.frames,
        waits.variation(),
    );
    assert!((0.97..=1.03).contains(&ratio), "load {rho}: {ratio:.4} of the closed form");
    assert!(error < 0.015, "load {rho}: {error:.4} is no error to judge 3 % by");
}

/// Frames wait at the network card of one sender, whose queue has no limit. The number of frames
/// grows as `1 / (1 - rho)^2`, as the variance of the mean does (Whitt, "Planning queueing
/// simulations", Management Science 1989): 3 % are two standard errors or more.
#[test]
fn poisson_source_waits_as_md1() {
    let loads = [(50, 200_000), (70, 500_000), (80, 1_000_000), (90, 2_500_000), (95, 6_000_000)];
    for (load, datagrams) in loads {
        let sources = vec![source(0, 1, Gaps::Poisson, SERVICE.0 * 100 / load)];
        let waits = observe(&star(1), sources, LinkId(0), datagrams, Nanos::ZERO);
        check("at a card", load, &waits);
        assert!((0.97..1.03).contains(&waits.variation()), "exponential gaps");
    }
}

/// Eight senders with links of 100 Gbit/s share the link of 1 Gbit/s behind a switch: the sum of
/// Poisson processes is one. The waits at the senders' own links, which are missing here, are
/// below 0.01 %.
#[test]
fn poisson_sources_behind_switch_wait_as_md1() {
    let mut config = star(8);
    for cable in &mut config.topology.cables[..8] {
        cable.rate = BitRate::from_gbps(100);
    }
    let gap = SERVICE.0 * 100 / 70 * 8;
    let sources = (0..8).map(|from| source(from, 8, Gaps::Poisson, gap)).collect();
    let to_receiver = Topology::link(8, true);
    let waits = observe(&config, sources, to_receiver, 500_000, Nanos::ZERO);
    check("behind a switch", 70, &waits);
}

/// Little 1961: the mean number of frames that wait is their rate by their mean wait. Both kinds of
/// samples are of one run, so that only the interval of the samples makes a difference. At the
/// receiver's link frames are in the queue's list before they are there; they do not count.
#[test]
fn queue_is_rate_by_mean_wait() {
    let every = Nanos(3_001);
    for (senders, link) in [(1, LinkId(0)), (8, Topology::link(8, true))] {
        let gap = SERVICE.0 * 100 / 80 * u64::from(senders);
        let sources = (0..senders).map(|from| source(from, 8, Gaps::Poisson, gap)).collect();
        let waits = observe(&star(8), sources, link, 200_000, every);
        let length = waits.queue.1 as f64 / waits.queue.0 as f64;
        let expected = waits.sum as f64 / (waits.queue.0 * every.0) as f64;
        println!("{senders} senders: {length:.4} frames wait, {expected:.4} by Little's law");
        assert!((0.998..1.002).contains(&(length / expected)), "{length} of {expected}");
    }
}

/// Five senders in step: at the receiver's link the first datagram waits for none, the fifth for
/// four. Sent alone, none ever waits.
#[test]
fn constant_sources_in_step_take_turns() {
    let of = |senders: u32| {
        let sources =
            (0..senders).map(|from| source(from, 5, Gaps::Constant, 6 * SERVICE.0)).collect();
        let to_receiver = Topology::link(5, true);
        observe(&star(5), sources, to_receiver, 1_000 * u64::from(senders), Nanos::ZERO)
    };
    let (all, alone) = (of(5), of(1));
    assert_eq!((alone.sum, alone.variation()), (0, 0.0));
    assert!(all.frames >= 4_990, "{} frames", all.frames);
    let turns: u64 = (0..all.frames).map(|frame| frame % 5).sum();
    assert_eq!(all.sum, turns * SERVICE.0);
}
