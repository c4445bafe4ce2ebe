//! `sluice steer` on the kernel's own VXLAN: numbered datagrams of eight flows between two
//! namespaces, and the cores that do the receiver's work.
//!
//! ```text
//!   a: sockets ─ vx (VXLAN 77) ─ wire ══ wire (steered) ─ vx (VXLAN 77) ─ sockets :b
//! ```

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rig::{Net, Netns, cable, program, say, skip, wait_for};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use sluice_api::placement::{PlaceStatus, PolicyFile, PolicyVersion, Stamped};
use sluice_cpus::machines;
use sluice_testkit::bound::{at_most, is_soak};

const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const FLOWS: u16 = 8;
const FIRST_PORT: u16 = 7000;
/// Pause of the sender between datagrams of all flows.
const PACE: Duration = Duration::from_micros(500);
/// Pause that is so long that every flow pauses for as long as a move waits.
const SLOW_PACE: Duration = Duration::from_millis(8);
/// Datagrams under way in the drill: fewer than the queue of a core, and the kernel's ingress
/// backlog (`net.core.netdev_max_backlog`), which is 1,000.
const UNDER_WAY: u64 = 800;
/// Receive buffer: more than comes in a second.
const BUFFER_SIZE: usize = 16 << 20;
/// Time after which a missing datagram counts as lost.
const GIVE_UP: Duration = Duration::from_secs(20);

/// Longest wait for one datagram, after which the receiver looks whether all have come.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Time without a datagram, when all were sent, after which the missing ones count as lost.
const SILENCE_MAX: Duration = Duration::from_secs(2);

struct Case {
    a: Netns,
    b: Netns,
    _net: Net,
}

impl Case {
    fn new(word: &str) -> Self {
        let mut net = Net::new(word);
        let (a, b) = (net.netns("a"), net.netns("b"));
        cable((&a, "wire", "192.0.2.1/24"), (&b, "wire", "192.0.2.2/24"));
        for (netns, here, there, address, other) in [(&a, 1, 2, A, B), (&b, 2, 1, B, A)] {
            netns.ip(&format!(
                "link add vx address 02:00:00:00:77:0{here} type vxlan id 77 \
                 local 192.0.2.{here} remote 192.0.2.{there} dstport 4789"
            ));
            // No neighbour resolution while flows are counted: its packets are a flow, too.
            netns.ip("link set vx addrgenmode none");
            netns.ip(&format!("addr add {address}/24 dev vx"));
            netns.ip("link set vx up");
            netns.ip(&format!(
                "neigh replace {other} lladdr 02:00:00:00:77:0{there} dev vx nud permanent"
            ));
        }
        a.ping(B, 3);
        Self { a, b, _net: net }
    }

    /// Runs `sluice steer` on the receiver's wire; returns its last line.
    fn steer(&self, words: &str) -> Value {
        let line = format!("{} steer wire --json {words}", program().display());
        let said = self.b.run(&line);
        let last = said.lines().last().unwrap_or_else(|| panic!("it says nothing: {line}"));
        serde_json::from_str(last).unwrap()
    }

    /// Runs `work` while all flows send; returns the flows' counts.
    fn under_traffic<T: Send>(
        &self,
        pace: Duration,
        work: impl FnOnce() -> T + Send,
    ) -> (T, Fared) {
        let (stop, all) = (AtomicBool::new(false), AllSent::default());
        let bind = |netns: &Netns, at, flow| netns.udp(at, FIRST_PORT + flow);
        let from: Vec<UdpSocket> = (0..FLOWS).map(|flow| bind(&self.a, A, flow)).collect();
        let to: Vec<UdpSocket> = (0..FLOWS).map(|flow| bind(&self.b, B, flow)).collect();
        // Receivers that stand still on a busy machine lose nothing of what steering delivers.
        to.iter().for_each(|to| set_socket_recv_buffer_size_force(to, BUFFER_SIZE).unwrap());
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(&from, pace, &stop));
            let receivers: Vec<_> =
                to.iter().map(|socket| scope.spawn(|| count(socket, &all))).collect();
            let stops = Stops(&stop);
            let done = work();
            drop(stops);
            let sent = sender.join().unwrap();
            all.tell(sent);
            let counted = receivers.into_iter().map(|thread| thread.join().unwrap());
            let mut fared = Fared { sent: sent * u64::from(FLOWS), ..Fared::default() };
            for (came, late) in counted {
                (fared.came, fared.late) = (fared.came + came, fared.late + late);
            }
            (done, fared)
        })
    }
}

/// Ends the senders, also if the work beside them panics.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Datagrams: sent, received, and received after one that was sent later.
#[derive(Clone, Copy, Debug, Default)]
struct Fared {
    sent: u64,
    came: u64,
    late: u64,
}

/// Sends numbered datagrams in all flows; returns the number in each. All come from one core: on a
/// veth pair, packets of a sender that changes cores are reordered by themselves.
fn send(from: &[UdpSocket], pace: Duration, stop: &AtomicBool) -> u64 {
    let mut core = CpuSet::new();
    core.set(0);
    sched_setaffinity(None, &core).unwrap();
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        for (flow, socket) in (0..).zip(from) {
            socket.send_to(&number.to_be_bytes(), (B, FIRST_PORT + flow)).unwrap();
        }
        std::thread::sleep(pace);
    }
    number
}

/// The number of datagrams, which is known when the last one was sent.
#[derive(Default)]
struct AllSent(OnceLock<u64>);

impl AllSent {
    fn tell(&self, sent: u64) {
        self.0.set(sent).unwrap();
    }

    /// Receives a datagram. Returns false if all have come, or no more do for [`SILENCE_MAX`].
    fn receive(&self, socket: &UdpSocket, came: u64, bytes: &mut [u8]) -> bool {
        let mut since = Instant::now();
        while socket.recv(bytes).is_err() {
            match self.0.get() {
                // A busy machine may be silent for long before all was sent.
                None => since = Instant::now(),
                Some(&sent) if came >= sent || since.elapsed() > SILENCE_MAX => return false,
                Some(_) => {}
            }
        }
        true
    }
}

/// Receives until all came, or no more do; returns the numbers of received and of late ones.
fn count(socket: &UdpSocket, all: &AllSent) -> (u64, u64) {
    socket.set_read_timeout(Some(LOOK_AGAIN)).unwrap();
    let (mut came, mut late, mut last) = (0, 0, 0);
    let mut bytes = [0; 8];
    loop {
        if !all.receive(socket, came, &mut bytes) {
            return (came, late);
        }
        let number = u64::from_be_bytes(bytes);
        came += 1;
        late += u64::from(number < last);
        last = last.max(number);
    }
}

/// Returns the number of buckets on each core.
fn buckets(said: &Value) -> Vec<(u64, u64)> {
    let core = |core: &Value| Some((core["core"].as_u64()?, core["buckets"].as_u64()?));
    said["cores"].as_array().unwrap().iter().map(|c| core(c).unwrap()).collect()
}

fn two_cores(test: &str) -> bool {
    let there = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    if !there {
        say(&format!("SKIPPED {test}: it needs two cores"));
    }
    there
}

#[test]
#[ignore = "live: needs root"]
fn steered_flows_reach_chosen_core_in_order() {
    let name = "steered_flows_reach_chosen_core_in_order";
    if skip(name, &[]) || !two_cores(name) {
        return;
    }
    let case = Case::new("steer");
    for (core, pace) in [(0, SLOW_PACE), (1, SLOW_PACE), (0, PACE), (1, PACE)] {
        let words = format!("--cores {core} --xdp generic --seconds 2");
        let (said, fared) = case.under_traffic(pace, || case.steer(&words));
        let on: Vec<_> = buckets(&said).into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(on, [(core, FLOWS.into())], "{said}");
        let steered = said["steered"].as_u64().unwrap();
        assert!(steered * 2 > fared.sent, "{steered} steered of {fared:?}");
        assert_eq!(fared.sent, fared.came, "{fared:?}, {said}");
        // If no flow pauses for long enough, each may have a few late ones on the way in and out.
        let late_max = if pace == SLOW_PACE { 0 } else { u64::from(FLOWS) * 4 };
        assert!(fared.late <= late_max, "{fared:?}, {said}");
        say(&format!("on core {core}: {steered} steered, {fared:?}"));
    }
}

#[test]
#[ignore = "live: needs root"]
fn steer_cycles_restore_device_state() {
    let name = "steer_cycles_restore_device_state";
    if skip(name, &[]) {
        return;
    }
    let case = Case::new("onoff");
    let mask = || case.b.run("cat /sys/class/net/wire/queues/rx-0/rps_cpus");
    let look = || (case.b.ip("-d link show dev wire"), mask());
    case.b.run("sh -c echo${IFS}1>/sys/class/net/wire/queues/rx-0/rps_cpus");
    let before = look();
    let rounds = if is_soak() { 100 } else { 8 };
    let ((), fared) = case.under_traffic(PACE, || {
        for round in 0..rounds {
            let how = if round % 10 == 9 { "rps" } else { "generic" };
            case.steer(&format!("--xdp {how} --seconds 0"));
        }
    });
    assert_eq!(look(), before);
    assert!(!before.0.contains("xdp"));
    let lost = fared.sent - fared.came;
    assert!(lost * 100 < fared.sent, "{lost} lost: {fared:?}");
    say(&format!("{rounds} times on and off: {lost} of {} lost, {} late", fared.sent, fared.late));
}

/// Behaviour of flows in the drill.
struct Manner {
    /// Number of flows, which decides whether a flow's turn comes again after more than a move
    /// waits.
    flows: u16,
    /// Datagrams of a flow, one after the other.
    burst: u32,
    /// Arguments of `sluice steer`.
    words: &'static str,
}

/// Received datagrams of each flow.
#[derive(Default)]
struct Came {
    all: AtomicU64,
    late: AtomicU64,
    sent: AllSent,
}

impl Case {
    /// Runs full load while a bucket moves every millisecond: senders continue as soon as their
    /// datagrams have arrived, so that only a loss could hold them forever.
    fn drill(&self, manner: &Manner, seconds: u32) -> (Value, Fared) {
        let Manner { flows, burst, words } = manner;
        let to = self.b.udp(B, FIRST_PORT);
        set_socket_recv_buffer_size_force(&to, BUFFER_SIZE).unwrap();
        let bind = |flow| self.a.udp(A, FIRST_PORT + flow);
        let from: Vec<UdpSocket> = (0..*flows).map(bind).collect();
        let (stop, came) = (AtomicBool::new(false), Came::default());
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| note(&to, from.len(), &came));
            let sender = scope.spawn(|| send_in_turns(&from, *burst, &came, &stop));
            let stops = Stops(&stop);
            let said = self.steer(&format!("--xdp generic {words} --seconds {seconds}"));
            drop(stops);
            let sent = sender.join().unwrap();
            came.sent.tell(sent);
            receiver.join().unwrap();
            let [came, late] = [&came.all, &came.late].map(|count| count.load(Ordering::Relaxed));
            (said, Fared { sent, came, late })
        })
    }
}

/// Sends a burst of each flow in turn, with at most `UNDER_WAY` datagrams under way. Gives up after
/// `GIVE_UP` without room: then the missing datagrams were lost.
fn send_in_turns(from: &[UdpSocket], burst: u32, came: &Came, stop: &AtomicBool) -> u64 {
    let mut core = CpuSet::new();
    core.set(0);
    sched_setaffinity(None, &core).unwrap();
    let mut sent = 0;
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        for (flow, socket) in (0_u64..).zip(from) {
            let begin = Instant::now();
            while sent - came.all.load(Ordering::Relaxed) > UNDER_WAY {
                if begin.elapsed() > GIVE_UP {
                    return sent;
                }
                std::thread::yield_now();
            }
            for _ in 0..burst {
                number += 1;
                let bytes = [flow.to_be_bytes(), number.to_be_bytes()].concat();
                socket.send_to(&bytes, (B, FIRST_PORT)).unwrap();
            }
            sent += u64::from(burst);
        }
    }
    sent
}

/// Notes received datagrams until all came, or no more do.
fn note(socket: &UdpSocket, flows: usize, came: &Came) {
    socket.set_read_timeout(Some(LOOK_AGAIN)).unwrap();
    let mut last = vec![0; flows];
    let mut bytes = [0; 16];
    while came.sent.receive(socket, came.all.load(Ordering::Relaxed), &mut bytes) {
        let [flow, number] =
            [0, 8].map(|at| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()));
        let last = &mut last[usize::try_from(flow).unwrap()];
        came.late.fetch_add(u64::from(number < *last), Ordering::Relaxed);
        *last = number.max(*last);
        came.all.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "live: needs root"]
fn a_bucket_moves_every_millisecond_under_full_load() {
    let name = "a_bucket_moves_every_millisecond_under_full_load";
    if skip(name, &[]) || !two_cores(name) {
        return;
    }
    let seconds = if is_soak() { 60 } else { 3 };
    let case = Case::new("drill");
    // Each of many flows pauses for longer than a move waits, each of few does not.
    let pauses = Manner { flows: 256, burst: 8, words: "--drill-ms 1 --patience-ms 0" };
    let goes_on = Manner { flows: 4, burst: 1, words: "--drill-ms 1 --patience-ms 2" };
    for (manner, is_forced) in [(&pauses, false), (&goes_on, true)] {
        let (said, fared) = case.drill(manner, seconds);
        let of = |key: &str| said[key].as_u64().unwrap();
        let [drilled, moved, forced] = ["drilled", "moved", "forced"].map(of);
        let rate = fared.came / u64::from(seconds);
        say(&format!(
            "{} flows, {seconds} s: {drilled} moves ordered, {moved} made, {forced} forced; \
             {fared:?}, {rate} a second",
            manner.flows
        ));
        assert_eq!(fared.sent, fared.came, "lost: {said}");
        assert!(of("steered") > 0, "{said}");
        // Far fewer on a busy machine, but not none.
        let seconds = u64::from(seconds);
        assert!(drilled > seconds * 100 && moved > seconds * 20, "{said}");
        if !is_forced {
            assert_eq!((forced, fared.late), (0, 0), "{said}");
        }
        // Reordered datagrams were under way in a bucket when it was forced to move.
        assert!(fared.late <= forced * UNDER_WAY, "{fared:?}, {said}");
    }
}

/// Takes nearly all of a core: a real-time process comes before the thread of a CPU map.
fn hog(core: usize) -> Running {
    let mut command = Command::new("chrt");
    command.args([
        "-f",
        "1",
        "taskset",
        "-c",
        &core.to_string(),
        "sh",
        "-c",
        "while :; do :; done",
    ]);
    Running(Some(command.spawn().unwrap()))
}

/// Sends as fast as it can, in so many flows that all of 16 buckets get some.
fn flood(case: &Case, stop: &AtomicBool) {
    let from: Vec<UdpSocket> = (0..64).map(|flow| case.a.udp(A, 8_000 + flow)).collect();
    let mut core = CpuSet::new();
    core.set(0);
    sched_setaffinity(None, &core).unwrap();
    while !stop.load(Ordering::Relaxed) {
        for socket in &from {
            socket.send_to(&[0; 8], (B, 8_000)).unwrap();
        }
    }
}

#[test]
#[ignore = "live: needs root"]
fn a_full_queue_forces_no_move() {
    let name = "a_full_queue_forces_no_move";
    if skip(name, &["chrt", "taskset"]) || !two_cores(name) {
        return;
    }
    let case = Case::new("full");
    let sink = case.b.udp(B, 8_000);
    // With endless patience none is late; with finite patience none is forced once the flood is
    // over.
    for patience in [0, 100] {
        let (forced, fared) = case.under_traffic(SLOW_PACE, || fill(&case, patience));
        say(&format!("patience {patience}: forced {forced:?}, {fared:?}"));
        assert_eq!(forced[1], forced[0]);
        assert!(patience > 0 || fared.late == 0, "{fared:?}");
    }
    drop(sink);
}

/// Moves a bucket every 10 ms while a queue overflows, and then while flows pause for 8 ms again
/// and again, but never for a second. Returns the numbers of forced moves before the latter, and
/// after it.
fn fill(case: &Case, patience: u32) -> [u64; 2] {
    let words = "--xdp generic --cores 0,1 --buckets 16 --drill-ms 10 --patience-ms";
    let mut child = case.start(&format!("{words} {patience}")).0.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Returns the counts of the first line that fits.
    let mut until = |what: &str, is_there: &dyn Fn([u64; 3]) -> bool| {
        let counts = lines.by_ref().take(30).map(|line| {
            let said: Value = serde_json::from_str(&line.unwrap()).unwrap();
            ["moved", "dropped", "forced"].map(|key| said[key].as_u64().unwrap())
        });
        let found = counts.into_iter().find(|counts| is_there(*counts));
        found.unwrap_or_else(|| panic!("not within half a minute: {what}"))
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| flood(case, &stop));
        let (stops, hog) = (Stops(&stop), hog(1));
        until("a full queue", &|[_, dropped, _]| dropped > 200);
        drop((stops, hog));
    });
    // The line of the second in which it ended is not the one to compare with.
    until("any line", &|_| true);
    let [before, _, forced_before] = until("any line", &|_| true);
    let [_, _, forced] = until("moves", &|[moved, ..]| moved > before + 60);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    [forced_before, forced]
}

/// Directory of a host, with the policy that its control process would keep there.
struct Host(PathBuf);

impl Host {
    fn new(word: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-{word}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn put(&self, text: &str) {
        let new = self.0.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.0.join("placement.json")).unwrap();
    }

    fn keep(&self, version: u64, policy: &Value) {
        let stamp = PolicyVersion { version, by: 1, at_ms: version };
        let policy = serde_json::from_value(policy.clone()).unwrap();
        let kept =
            PolicyFile { host: "b".to_owned(), stamped: Stamped { stamp, policy }, held: None };
        self.put(&serde_json::to_string(&kept).unwrap());
    }

    fn status(&self) -> Option<(PlaceStatus, String)> {
        let text = fs::read_to_string(self.0.join("steer-wire.json")).ok()?;
        Some((serde_json::from_str(&text).unwrap(), text))
    }

    /// Waits until that policy is followed and its CPUs are as expected.
    #[track_caller]
    fn wait(&self, version: u64, is_there: impl Fn(&PlaceStatus) -> bool) -> String {
        let mut last = None;
        wait_for(&format!("policy {version}"), || {
            last = self.status();
            last.as_ref()
                .is_some_and(|(place, _)| place.stamp.version == version && is_there(place))
        });
        last.unwrap().1
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Ends a program also if the test panics.
struct Running(Option<Child>);

impl Running {
    fn interrupt(&mut self) -> Value {
        let child = self.0.take().unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        serde_json::from_str(said.lines().last().unwrap()).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

impl Case {
    fn follow(&self, folder: &Path, xdp: &str) -> Running {
        let words = format!("--xdp {xdp} --cores 0,1 --follow {}", folder.display());
        self.start(&words)
    }

    fn start(&self, words: &str) -> Running {
        let mut command = self.b.command(program().to_str().unwrap());
        command.args(["steer", "wire", "--json"]).args(words.split(' '));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().unwrap()))
    }
}

/// Returns the buckets of each CPU, and those of high priority among them.
fn of_cpus(place: &PlaceStatus) -> Vec<(u32, u32)> {
    place.cpus.iter().map(|cpu| (cpu.buckets, cpu.high)).collect()
}

#[test]
#[ignore = "live: needs root"]
fn a_policy_is_followed_while_flows_go_on() {
    let name = "a_policy_is_followed_while_flows_go_on";
    if skip(name, &[]) || !two_cores(name) {
        return;
    }
    let (case, host) = (Case::new("follow"), Host::new("follow"));
    let flows = u32::from(FLOWS);
    let (said, fared) = case.under_traffic(SLOW_PACE, || {
        let mut steer = case.follow(&host.0, "generic");
        let all = |place: &PlaceStatus| of_cpus(place).iter().map(|cpu| cpu.0).sum::<u32>();
        host.wait(0, |place| place.mode == "adaptive" && all(place) == flows);
        // One of the flows, by address, protocol and port: the first core is its own, and its old
        // bucket is empty.
        let one = ["ip=10.9.0.2,proto=udp,port=7003"];
        host.keep(1, &json!({ "mode": "predetermined", "high": one }));
        host.wait(1, |place| place.high == 1 && of_cpus(place) == [(1, 1), (flows, 0)]);
        host.keep(2, &json!({ "mode": "rss", "high": one, "excluded_cpus": [0] }));
        let text = host.wait(2, |place| of_cpus(place) == [(0, 0), (flows + 1, 1)]);
        assert!(text.contains("\"excluded\":true") && !text.contains("notes"), "{text}");
        // No CPU is excluded if all are; rss++ starts from the present places.
        host.keep(3, &json!({ "mode": "rss++", "high": one, "excluded_cpus": [0, 1] }));
        let text = host.wait(3, |place| place.mode == "rss++" && all(place) == flows + 1);
        assert!(text.contains("excludes every core") && !text.contains("excluded\":"), "{text}");
        // An unreadable file changes nothing, however often it is read.
        host.put("{");
        std::thread::sleep(Duration::from_millis(2_500));
        host.wait(3, |place| place.mode == "rss++" && all(place) == flows + 1);
        // No flow is of high priority in the end.
        host.keep(4, &json!({ "mode": "rss", "excluded_cpus": [1] }));
        host.wait(4, |place| place.high == 0 && of_cpus(place) == [(flows, 0), (0, 0)]);
        steer.interrupt()
    });
    assert!(host.status().is_none(), "the status goes with who wrote it");
    say(&format!("followed: {fared:?}, {said}"));
    assert_eq!((fared.sent - fared.came, fared.late), (0, 0), "{fared:?}, {said}");
    let of = |key: &str| said[key].as_u64().unwrap();
    assert!(of("steered") * 2 > fared.sent && of("reread") > 0, "{said}");
    assert_eq!((of("forced"), of("reread_forced")), (0, 0), "{said}");
}

/// Runs a thread that is named and pinned like a vCPU, while `work` runs.
fn with_vcpu_on(core: usize, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        let vcpu = std::thread::Builder::new().name("CPU 0/KVM".to_owned());
        let body = || {
            let mut cores = CpuSet::new();
            cores.set(core);
            sched_setaffinity(None, &cores).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        vcpu.spawn_scoped(scope, body).unwrap();
        work();
        drop(stops);
    });
}

#[test]
#[ignore = "live: needs root"]
fn the_reserved_core_follows_machines_at_any_period() {
    let name = "the_reserved_core_follows_machines_at_any_period";
    if skip(name, &[]) || !two_cores(name) {
        return;
    }
    if !machines::pinned().is_empty() {
        say(&format!("SKIPPED {name}: this machine has pinned vCPUs of its own"));
        return;
    }
    let (case, host) = (Case::new("reserve"), Host::new("reserve"));
    let one = |port: u16| json!([format!("ip=10.9.0.2,proto=udp,port={port}")]);
    let (_, fared) = case.under_traffic(SLOW_PACE, || {
        host.keep(1, &json!({ "mode": "predetermined", "high": one(7003) }));
        let mut steer = case.follow(&host.0, "generic");
        let on = |at: usize| {
            move |place: &PlaceStatus| place.cpus[at].high == 1 && place.cpus[1 - at].high == 0
        };
        host.wait(1, on(0));
        with_vcpu_on(0, || {
            host.wait(1, |place| on(1)(place) && place.cpus[0].runs_vcpu);
            with_vcpu_on(1, || {
                let none_free = "none is reserved for high priority";
                let is_said = || host.status().is_some_and(|(_, text)| text.contains(none_free));
                wait_for("no core to be free", is_said);
                // Other matches; everything else is as before.
                host.keep(2, &json!({ "mode": "predetermined", "high": one(7004) }));
                let text = host.wait(2, |place| place.high == 1);
                assert!(text.contains(none_free), "{text}");
            });
        });
        let text = host.wait(2, |place| !place.cpus.iter().any(|cpu| cpu.runs_vcpu));
        assert!(!text.contains("notes"), "{text}");
        steer.interrupt()
    });
    assert_eq!(fared.sent, fared.came, "{fared:?}");
    // Policy and vCPUs are read once a second, also if decisions are rare.
    let words = format!("--xdp generic --period-ms 10000 --follow {}", host.0.display());
    let mut steer = case.start(&words);
    host.wait(2, |place| place.mode == "predetermined");
    host.keep(3, &json!({ "mode": "rss" }));
    let begin = Instant::now();
    host.wait(3, |place| place.mode == "rss");
    at_most("a policy with rare decisions", begin.elapsed(), Duration::from_secs(8));
    steer.interrupt();
}

#[test]
#[ignore = "live: needs root"]
fn steer_output_closed_by_reader_exits_cleanly() {
    let name = "steer_output_closed_by_reader_exits_cleanly";
    if skip(name, &[]) {
        return;
    }
    let case = Case::new("head");
    let (output, fared) = case.under_traffic(SLOW_PACE, || {
        let mut child = case.start("--xdp generic").0.take().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        drop(out);
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    assert_eq!((fared.sent - fared.came, fared.late), (0, 0), "{fared:?}");
    assert!(!case.b.ip("-d link show dev wire").contains("xdp"));
}

#[test]
#[ignore = "live: needs root"]
fn without_a_program_the_mask_follows_the_policy() {
    let name = "without_a_program_the_mask_follows_the_policy";
    if skip(name, &[]) || !two_cores(name) {
        return;
    }
    let (case, host) = (Case::new("mask"), Host::new("mask"));
    let mask = || {
        let text = case.b.run("cat /sys/class/net/wire/queues/rx-0/rps_cpus");
        u64::from_str_radix(&text.trim().replace(',', ""), 16).unwrap()
    };
    let before = mask();
    host.keep(1, &json!({ "mode": "rss", "excluded_cpus": [0] }));
    let mut steer = case.follow(&host.0, "rps");
    host.wait(1, |place| place.kind == "rps" && place.mode == "rss");
    assert_eq!(mask(), 0b10);
    host.keep(2, &json!({ "mode": "rss", "excluded_cpus": [1], "high": ["vni=77"] }));
    let text =
        host.wait(2, |place| place.cpus[1].excluded && !place.cpus[0].excluded && place.high == 0);
    assert!(text.contains("RPS knows no flows"), "{text}");
    assert_eq!(mask(), 0b01);
    steer.interrupt();
    assert_eq!((mask(), host.status().is_none()), (before, true));
}

#[test]
#[ignore = "live: needs root"]
fn what_cannot_be_steered_is_said() {
    if skip("what_cannot_be_steered_is_said", &[]) {
        return;
    }
    let case = Case::new("wrong");
    for (words, said) in [
        ("wira", "there is none of that name"),
        ("../x", "a device's name has"),
        ("wire --cores 900", "core 900 is not online"),
        ("wire --cores 3-1", "from the lower to the higher"),
        ("wire --mode best", "one of rss"),
        ("wire --xdp rps --drill-ms 1", "RPS has no buckets"),
        ("wire --high-flow vni=5,port=443", "a port needs proto=tcp"),
    ] {
        let output = case.b.attempt(&format!("{} steer {words} --seconds 0", program().display()));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(said), "{words}: {error}");
    }
}
