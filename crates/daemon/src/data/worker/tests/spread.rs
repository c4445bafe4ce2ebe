//! Buckets of an underlay of sockets that move between two workers while frames come.
//!
//! ```text
//!   two senders ── UDP over loopback ──▶ worker 0 or 1 ──▶ guest 0 (worker 0), guest 1 (worker 1)
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use sluice_api::placement::{PolicyVersion, Stamped};
use sluice_api::show::PlacementRow;
use sluice_base::Prng;
use sluice_placement::Mode;
use sluice_ports::buckets::{BUCKETS, Gauges, HighFlows, LOW_BUCKETS, is_high};
use sluice_ports::udp::{Selector, VXLAN_PORT};
use sluice_testkit::guest::{Guest, GuestConfig};

use super::guests::Folder;
use super::*;
use crate::config::{self, KernelDevices};
use crate::data::attach::SharedSelector;
use crate::data::cpus::Cpus;
use crate::data::policy::PolicyWatch;
use crate::data::rebalancer::buckets::high::gathering;
use crate::data::rebalancer::buckets::{self, Change, Mover, Shown};
use crate::data::taps::Taps;
use crate::data::worker::Part;
use crate::data::{Idle, WorkerHandles, merge};

const VNI: u32 = 42;
const SENDERS: usize = 2;
const FLOWS: usize = 512;
/// Most frames of a flow under way: all flows together stay below the limit of an input.
const WINDOW_MAX: u32 = 6;
/// Most buckets that move in a round.
const MOVES: usize = BUCKETS as usize;

struct Spread {
    askers: WorkerHandles,
    threads: Vec<JoinHandle<Left>>,
    guests: Vec<Guest>,
    /// Parts of the workers; a test that moves buckets takes them.
    parts: Vec<Part>,
    selector: Option<SharedSelector>,
    gauges: Vec<Arc<Gauges>>,
    own: Ipv4Addr,
    peer: Ipv4Addr,
    _dir: Folder,
}

/// Returns addresses of the loopback device that no other test uses.
fn addresses() -> (Ipv4Addr, Ipv4Addr) {
    static COUNT: AtomicU8 = AtomicU8::new(50);
    let [.., high, low] = std::process::id().to_be_bytes();
    let next = || Ipv4Addr::new(127, COUNT.fetch_add(1, Ordering::Relaxed), high, low);
    (next(), next())
}

fn config(dir: &Folder, own: Ipv4Addr, peer: Ipv4Addr) -> String {
    let mut text = format!(
        "[host]\nname = \"t\"\npolicy = \"ZL\"\nworkers = 2\nisolate_after_ms = 0\n\
         [underlay]\nkind = \"udp\"\ndevice = \"lo\"\naddress = \"{own}\"\n\
         link = {{ in = {{ frames = 8192, bytes = 16000000 }} }}\n\
         [[vnet]]\nname = \"blue\"\nvni = {VNI}\nmtu = 1400\n\
         [[peer]]\nname = \"h2\"\nvtep = \"{peer}\"\nvnets = [\"blue\"]\n"
    );
    for n in 0..2 {
        let (socket, mac) = (dir.join(&n.to_string()), mac(n));
        write!(
            text,
            "[[port]]\nname = \"vm{n}\"\nkind = \"vhost-user\"\nvnet = \"blue\"\n\
             mac = \"{mac}\"\nsocket = \"{}\"\nworker = {n}\n",
            socket.display()
        )
        .unwrap();
    }
    text
}

fn start_spread() -> Spread {
    let dir = Folder::new();
    let (own, peer) = addresses();
    let text = config(&dir, own, peer);
    let plan = config::plan("host.toml", &text, &KernelDevices).unwrap_or_else(|r| panic!("{r}"));
    let mut idle = Idle::new(&plan).unwrap();
    idle.open(&plan, &Taps::new(&plan, Vec::new())).unwrap();
    let (Idle { askers, mut workers, selector, .. }, ports) = (idle, plan.ports.len());
    let parts: Vec<Part> = workers.iter_mut().filter_map(|worker| worker.part(ports)).collect();
    let gauges = parts.iter().map(|part| Arc::clone(&part.gauges)).collect();
    let run = |mut worker: Worker| {
        std::thread::spawn(move || {
            let left = worker.run().unwrap();
            worker.close();
            left
        })
    };
    let threads = workers.into_iter().map(run).collect();
    let guest =
        |n: usize| Guest::connected(GuestConfig::default(), &dir.join(&n.to_string())).unwrap();
    let guests = (0..2).map(guest).collect();
    Spread { askers, threads, guests, parts, selector, gauges, own, peer, _dir: dir }
}

impl Spread {
    /// Takes the workers' parts and the selector of their sockets.
    fn take_parts(&mut self) -> (Option<SharedSelector>, Vec<Part>) {
        (self.selector.take(), std::mem::take(&mut self.parts))
    }
}

/// Returns a datagram of a flow: VXLAN and the inner frame, with its number.
fn datagram(flow: usize, number: u32) -> Vec<u8> {
    let mut bytes = vec![8, 0, 0, 0];
    bytes.extend((VNI << 8).to_be_bytes());
    bytes.extend(mac(flow % 2).0);
    // Each flow is in a bucket of its own, as far as there are enough.
    bytes.extend(Mac::from_u64(0x0200_0001_0000 + (flow as u64) * 256).0);
    bytes.extend([0x88, 0xb5]);
    bytes.extend(number.to_be_bytes());
    bytes.resize(8 + 200, 0);
    bytes
}

/// Counters of sender and receiver for all flows.
struct Flows {
    sent: [AtomicU32; FLOWS],
    received: [AtomicU32; FLOWS],
    stop: AtomicBool,
}

impl Flows {
    fn new() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU32::new(0));
        Self { sent: zeros(), received: zeros(), stop: AtomicBool::new(false) }
    }

    fn under_way(&self, flow: usize) -> u32 {
        self.sent[flow].load(Ordering::Acquire) - self.received[flow].load(Ordering::Acquire)
    }

    /// Sends every second flow, each up to its window.
    fn send(&self, first: usize, from: Ipv4Addr, to: Ipv4Addr, window: u32) {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        while !self.stop.load(Ordering::Acquire) {
            let mut any = false;
            for flow in (first..FLOWS).step_by(SENDERS) {
                if self.under_way(flow) < window {
                    let number = self.sent[flow].load(Ordering::Relaxed);
                    // Count first, since the frame may arrive before the call returns.
                    self.sent[flow].store(number + 1, Ordering::Release);
                    socket.send_to(&datagram(flow, number), (to, VXLAN_PORT)).unwrap();
                    any = true;
                }
            }
            if !any {
                std::thread::yield_now();
            }
        }
    }

    /// Takes a guest's received frames: each must be the next one of its flow. Panics if frames
    /// were lost or reordered.
    fn receive(&self, guest: &mut Guest) -> Option<()> {
        let mut any = None;
        while let Some(frame) = guest.receive() {
            let flow = usize::from(u16::from_be_bytes([frame[9], frame[10]])) - 0x0100;
            let next = self.received[flow].load(Ordering::Relaxed);
            assert_eq!(number(&frame), next, "flow {flow}: a frame is late, or lost");
            self.received[flow].store(next + 1, Ordering::Release);
            any = Some(());
        }
        any
    }
}

impl Spread {
    fn ask(&self, question: Question) -> Body {
        let shots = self.askers.answers(|reply| WorkerRequest::Show(question, reply)).unwrap();
        merge::snapshots(shots).unwrap().body
    }

    /// Returns the number of datagrams that the socket of one worker holds.
    fn capacity(&self) -> u64 {
        let Body::Ports(ports) = self.ask(Question::Ports) else { panic!("ports") };
        ports[2].ring.capacity_frames / 2
    }

    /// Checks that no frame was lost, in the switches or in front of them.
    fn nothing_is_lost(&self) {
        let Body::Drops(drops) = self.ask(Question::Drops) else { panic!("drops") };
        assert!(drops.is_empty(), "{drops:?}");
        let Body::Ports(ports) = self.ask(Question::Ports) else { panic!("ports") };
        assert_eq!(ports[2].outside.state().counters.as_ref().unwrap()["socket.drops"], 0);
        let Body::Audit(audit) = self.ask(Question::Audit) else { panic!("an audit") };
        assert!(audit.closed, "{audit:?}");
    }

    /// Keeps two senders sending while `during` runs, and checks the received frames: each flow in
    /// order, and in the end all of them.
    fn under_load<T: Send>(&mut self, during: impl FnOnce() -> T + Send) -> T {
        let window = u32::try_from(self.capacity() / 2 / FLOWS as u64).unwrap();
        let (flows, window) = (Flows::new(), window.clamp(1, WINDOW_MAX));
        let (flows, own, peer, askers) = (&flows, self.own, self.peer, self.askers.clone());
        std::thread::scope(|scope| {
            let _stop = Stop(flows, askers);
            let senders: Vec<_> = (0..SENDERS)
                .map(|first| scope.spawn(move || flows.send(first, peer, own, window)))
                .collect();
            let running = scope.spawn(during);
            let mut looked = Instant::now();
            while !running.is_finished() {
                let any = self.guests.iter_mut().filter_map(|guest| flows.receive(guest)).count();
                // Guests pause now and then, so that frames of all flows wait in both switches.
                if looked.elapsed() > Duration::from_millis(100) {
                    std::thread::sleep(Duration::from_millis(40));
                    looked = Instant::now();
                } else if any == 0 {
                    std::thread::yield_now();
                }
            }
            let done = running.join().unwrap();
            flows.stop.store(true, Ordering::Release);
            // A sender that has looked at the flag before sends one more frame of each flow.
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            let until = Instant::now() + PATIENCE;
            while (0..FLOWS).any(|flow| flows.under_way(flow) > 0) {
                assert!(Instant::now() < until, "all that was sent arrives");
                self.guests.iter_mut().for_each(|guest| _ = flows.receive(guest));
            }
            let sent: u32 = flows.sent.iter().map(|sent| sent.load(Ordering::Relaxed)).sum();
            eprintln!("{sent} frames, none lost and none late");
            done
        })
    }

    fn seen(&self, worker: usize) -> u64 {
        (0..BUCKETS).map(|bucket| u64::from(self.gauges[worker].seen(bucket))).sum()
    }

    fn end(self) {
        self.askers.ask_all(|| WorkerRequest::Drain);
        for thread in self.threads {
            assert_eq!(thread.join().unwrap(), Left::default());
        }
    }
}

/// Returns buckets that have flows: three of four that one worker has.
fn some_of(gauges: &[Arc<Gauges>], mover: &Mover, from: u8, prng: &mut Prng) -> Vec<Change> {
    let seen = |bucket: u16| gauges.iter().any(|gauges| gauges.seen(bucket) > 0);
    let all = (0..BUCKETS).filter(|b| seen(*b) && mover.table[usize::from(*b)] == from);
    let mut all: Vec<u16> = all.collect();
    let count = MOVES.min(all.len() * 3 / 4);
    while all.len() > count {
        let at = prng.below(all.len() as u64);
        all.swap_remove(usize::try_from(at).unwrap());
    }
    all.into_iter().map(|bucket| Change { bucket, from, to: 1 - from }).collect()
}

/// Returns the duration of the test: three seconds, or the value of the environment.
fn duration() -> Duration {
    let said = std::env::var("SLUICE_MOVE_SECONDS").ok();
    Duration::from_secs(said.and_then(|text| text.parse().ok()).unwrap_or(3))
}

/// Moves buckets to and fro, one round after the other. Returns the number of moves, and of
/// buckets that moved.
fn move_about(mut mover: Mover, gauges: &[Arc<Gauges>]) -> (usize, usize) {
    let until = Instant::now() + duration();
    let mut prng = Prng::new(1);
    let mut buckets = BTreeSet::new();
    let (mut rounds, mut moves) = (Vec::new(), 0);
    // On a busy machine a round takes as long as workers wait for a processor.
    while Instant::now() < until || (rounds.len() < 10 && Instant::now() < until + PATIENCE * 4) {
        let changes = some_of(gauges, &mover, u8::from(rounds.len() % 2 == 1), &mut prng);
        let begun = Instant::now();
        mover.round(&changes).unwrap();
        rounds.push(begun.elapsed().as_millis());
        buckets.extend(changes.iter().map(|change| change.bucket));
        moves += changes.len();
    }
    rounds.sort_unstable();
    let [least, median, most] = [0, rounds.len() / 2, rounds.len() - 1].map(|at| rounds[at]);
    let (count, used) = (rounds.len(), buckets.len());
    eprintln!(
        "{moves} moves of {used} buckets in {count} rounds of {least} / {median} / {most} ms"
    );
    (moves, buckets.len())
}

#[test]
fn buckets_moving_under_load_keep_frames_and_order() {
    if !Selector::can_change() {
        eprintln!("skipped: no `membarrier` for all CPUs");
        return;
    }
    let _alone = alone();
    let mut spread = start_spread();
    let selector = spread.selector.take().unwrap();
    let mover = Mover::new(spread.askers.clone(), selector);
    let gauges = spread.gauges.clone();
    let (moves, buckets) = spread.under_load(move || move_about(mover, &gauges));
    assert!(buckets > 20 && moves > buckets, "{moves} moves of {buckets} of {BUCKETS} buckets");
    spread.nothing_is_lost();
    assert!(spread.seen(0) > 1_000 && spread.seen(1) > 1_000, "both get frames");
    spread.end();
}

/// Returns the rows shown for buckets: worker, number of buckets, reason.
fn shown(shown: &Shown) -> Vec<(u16, usize, String)> {
    let rows = &shown.lock().unwrap().rows;
    let row = |row: &PlacementRow| {
        (row.worker.unwrap(), row.buckets.as_ref().unwrap().list.len(), row.why.clone())
    };
    rows.iter().filter(|row| row.buckets.is_some()).map(row).collect()
}

/// Waits until worker 0 has received frames, and then none for half a second.
fn all_leave(gauges: &Gauges) -> bool {
    let seen = || -> Vec<u32> { (0..BUCKETS).map(|bucket| gauges.seen(bucket)).collect() };
    let until = Instant::now() + PATIENCE * 2;
    let mut before = seen();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = seen();
        if now == before && now.iter().any(|seen| *seen > 0) {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        before = now;
    }
}

#[test]
fn flows_leave_worker_with_pinned_vcpu() {
    if !Selector::can_change() {
        return;
    }
    let _alone = alone();
    let mut spread = start_spread();
    let parts = spread.take_parts();
    let cpus = Cpus::new(&[Some(2), Some(3)], Some(&[2]));
    let wanted = PolicyWatch::of("h1", Mode::Adaptive);
    let placed = buckets::follow("underlay", wanted, cpus, parts, &spread.askers).unwrap();
    assert_eq!(shown(&placed), [0, 1].map(|worker| (worker, 128, "by hash".to_owned())));
    let gauges = Arc::clone(&spread.gauges[0]);
    let all_left = spread.under_load(|| all_leave(&gauges));
    let rows = shown(&placed);
    assert!(all_left, "{rows:?}");
    let left = rows.iter().find(|(worker, _, why)| *worker == 1 && why.contains("pinned vCPU"));
    assert!(left.is_some_and(|(_, count, _)| *count > 10), "{rows:?}");
    assert_eq!(rows.iter().map(|(_, count, _)| count).sum::<usize>(), usize::from(LOW_BUCKETS));
    spread.nothing_is_lost();
    spread.end();
}

fn high(matches: &[&str]) -> HighFlows {
    let matches: Vec<_> = matches.iter().map(|text| text.parse().unwrap()).collect();
    HighFlows::new(&matches).unwrap()
}

/// Selections of flows of high priority: some, half of them, all, none.
fn choices() -> Vec<HighFlows> {
    let some: Vec<String> =
        (0..30).map(|flow| format!("mac=02:00:00:01:{flow:02x}:00,vni={VNI}")).collect();
    let some: Vec<&str> = some.iter().map(String::as_str).collect();
    let half = format!("mac={}", mac(0));
    vec![high(&some), high(&[&half]), high(&[&format!("vni={VNI}")]), HighFlows::default()]
}

/// Selects other flows again and again, and moves buckets in between. Returns the number of
/// selections.
fn choose_about(mut mover: Mover, gauges: &[Arc<Gauges>]) -> usize {
    let until = Instant::now() + duration();
    let mut prng = Prng::new(2);
    let (mut count, mut gathered) = (0, 0);
    let most = until + PATIENCE * 12;
    while Instant::now() < until || (count < 4 && Instant::now() < most) {
        for from in [0, 1] {
            let mut changes = gathering(&mover.table, |_| true).unwrap();
            changes.retain(|change| change.from == from);
            gathered += changes.len();
            mover.round(&changes).unwrap();
        }
        let choices = choices();
        mover.set_high(choices[count % choices.len()].clone()).unwrap();
        count += 1;
        for from in [0, 1] {
            let changes = some_of(gauges, &mover, from, &mut prng);
            mover.round(&changes).unwrap();
        }
    }
    eprintln!("{count} choices of flows of high priority, {gathered} buckets gathered for them");
    count
}

#[test]
fn high_priority_matches_changed_keep_frames_and_order() {
    if !Selector::can_change() {
        eprintln!("skipped: no `membarrier` for all CPUs");
        return;
    }
    let _alone = alone();
    let mut spread = start_spread();
    let selector = spread.selector.take().unwrap();
    let mover = Mover::new(spread.askers.clone(), selector);
    let gauges = spread.gauges.clone();
    let count = spread.under_load(move || choose_about(mover, &gauges));
    assert!(count >= 4, "{count} choices");
    spread.nothing_is_lost();
    let high = (LOW_BUCKETS..BUCKETS).filter(|b| spread.gauges.iter().any(|g| g.seen(*b) > 0));
    assert!(high.count() > 20, "many of the high buckets are used");
    spread.end();
}

/// Frames that workers have read of low and of high buckets: by worker, low and high.
fn read_so_far(gauges: &[Arc<Gauges>]) -> [[u64; 2]; 2] {
    let sum = |worker: usize, high: bool| {
        let of = (0..BUCKETS).filter(|bucket| is_high(*bucket) == high);
        of.map(|bucket| u64::from(gauges[worker].seen(bucket))).sum()
    };
    [0, 1].map(|worker| [false, true].map(|high| sum(worker, high)))
}

/// Waits until workers read exactly the expected kinds of buckets, for a third of a second at
/// least. On a busy machine a worker may wait as long for a processor.
fn comes_to(gauges: &[Arc<Gauges>], expected: [[bool; 2]; 2]) -> Result<(), [[u64; 2]; 2]> {
    let until = Instant::now() + PATIENCE * 12;
    let mut before = read_so_far(gauges);
    loop {
        std::thread::sleep(Duration::from_millis(333));
        let after = read_so_far(gauges);
        let came = [0, 1].map(|w| [0, 1].map(|high| after[w][high] - before[w][high]));
        let all = came.iter().flatten().zip(expected.iter().flatten());
        if all.clone().all(|(came, expected)| (*came > 0) == *expected) {
            return Ok(());
        }
        if all.clone().any(|(came, expected)| *came > 0 && !expected) {
            before = after;
        }
        if Instant::now() > until {
            return Err(came);
        }
    }
}

#[test]
fn high_priority_flows_get_dedicated_worker() {
    if !Selector::can_change() {
        return;
    }
    let _alone = alone();
    let mut spread = start_spread();
    let (parts, wanted) = (spread.take_parts(), PolicyWatch::of("h1", Mode::Adaptive));
    let (cpus, askers) = (Cpus::new(&[Some(2), Some(3)], Some(&[])), &spread.askers);
    let placed = buckets::follow("underlay", wanted.clone(), cpus, parts, askers).unwrap();
    let gauges = spread.gauges.clone();
    let (half, all) = (format!("\"mac={}\"", mac(0)), format!("\"vni={VNI}\""));
    // No CPU runs a virtual machine: the first worker is the one for flows of high priority.
    let steps = [
        (half.as_str(), [[false, true], [true, false]]),
        ("", [[true, false], [true, false]]),
        (all.as_str(), [[false, true], [false, false]]),
        ("", [[true, false], [true, false]]),
    ];
    let came = spread.under_load(|| {
        let mut versions = 1..;
        let mut step = |(high, expected)| {
            let text = format!("mode = \"predetermined\"\nhigh = [{high}]");
            wanted.set(policy(versions.next().unwrap(), &text));
            comes_to(&gauges, expected).map_err(|came| (expected, came, shown(&placed)))
        };
        steps.into_iter().try_for_each(&mut step)
    });
    assert_eq!(came, Ok(()));
    spread.nothing_is_lost();
    spread.end();
}

#[test]
fn policy_version_shown_only_after_full_application() {
    if !Selector::can_change() {
        return;
    }
    let _alone = alone();
    let mut spread = start_spread();
    let (parts, wanted) = (spread.take_parts(), PolicyWatch::of("h1", Mode::Adaptive));
    let cpus = Cpus::new(&[Some(2), Some(3)], Some(&[]));
    let placed = buckets::follow("underlay", wanted.clone(), cpus, parts, &spread.askers).unwrap();
    wanted.set(policy(1, &format!("high = [\"vni={VNI}\"]")));
    let until = Instant::now() + PATIENCE;
    loop {
        let place = placed.lock().unwrap().place.clone().unwrap();
        let high: u32 = place.cpus.iter().map(|cpu| cpu.high).sum();
        assert_eq!((place.stamp.version, high), (place.high.into(), place.high * 64));
        if place.high == 1 {
            break;
        }
        assert!(Instant::now() < until, "{place:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    spread.end();
}

/// Returns the number of buckets of a worker.
fn here(rows: &[(u16, usize, String)], worker: u16) -> usize {
    rows.iter().filter(|(at, ..)| *at == worker).map(|(_, count, _)| count).sum()
}

/// Makes a policy for the host of the test.
fn policy(version: u64, text: &str) -> Stamped {
    let stamp = PolicyVersion { version, ..PolicyVersion::default() };
    Stamped { stamp, policy: toml::from_str(text).unwrap() }
}

#[test]
fn flows_leave_excluded_worker_and_return_once_allowed() {
    if !Selector::can_change() {
        return;
    }
    let _alone = alone();
    let mut spread = start_spread();
    let parts = spread.take_parts();
    let cpus = Cpus::new(&[Some(2), Some(3)], Some(&[]));
    let wanted = PolicyWatch::of("h1", Mode::Rss);
    let placed = buckets::follow("underlay", wanted.clone(), cpus, parts, &spread.askers).unwrap();
    let follows = |policy: Stamped| {
        let (until, stamp) = (Instant::now() + PATIENCE, policy.stamp);
        wanted.set(policy);
        loop {
            let shown = placed.lock().unwrap();
            let place = shown.place.clone().unwrap();
            if place.stamp == stamp {
                return (place.mode, shown.notes.clone());
            }
            drop(shown);
            assert!(Instant::now() < until, "{place:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let gauges = Arc::clone(&spread.gauges[0]);
    let (left, back, all) = spread.under_load(|| {
        let one = "[hosts.h1]\nexcluded_cpus = [2]\n[hosts.h2]\nmode = \"adaptive\"";
        follows(policy(1, one));
        let left = all_leave(&gauges);
        // By hash again: the buckets that left come back.
        let (back, _) = follows(policy(2, ""));
        let until = Instant::now() + PATIENCE;
        while here(&shown(&placed), 0) != 128 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        let all = follows(policy(3, "mode = \"adaptive\"\nexcluded_cpus = [2, 3]"));
        (left, (back, shown(&placed)), all)
    });
    assert!(left, "{:?}", shown(&placed));
    assert_eq!(back.0, "rss");
    assert_eq!((here(&back.1, 0), here(&back.1, 1)), (128, 128), "{back:?}");
    assert!(all.1.iter().any(|note| note.contains("all of its workers")), "{all:?}");
    assert_eq!(all.0, "adaptive");
    spread.nothing_is_lost();
    spread.end();
}

/// Ends all other threads when dropped, even on a panic.
struct Stop<'a>(&'a Flows, WorkerHandles);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
        if std::thread::panicking() {
            self.1.ask_all(|| WorkerRequest::Drain);
        }
    }
}

mod refused;
