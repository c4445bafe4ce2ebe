//! One receiver that does not take frames, on one of three hosts of a fabric behind a physical
//! switch, and three unrelated pairs in the same priority: they have the same rates as beside an
//! equal load with a culprit that reads. The scene is that of `rig/scene.rs`.

use std::time::{Duration, Instant};

use crate::rig::culprit::Culprit;
use crate::rig::scene::{CULPRIT, SLOW, Scene, SceneConfig, Seen, mac_text};
use crate::rig::{say, skip, wait_for};
use serde_json::Value;
use sluice_testkit::bound::{at_least, at_most, is_soak};

/// Longest time until a culprit is isolated, and affects no other receiver.
const FOUND: Duration = Duration::from_millis(20);
const SOAK_RUNS: u64 = 20;

const CULPRITS: [Culprit; 4] = [Culprit::Guest, Culprit::Stopped, Culprit::CardDown, Culprit::Slow];

/// Returns the name of the port of a culprit.
const fn port_of(culprit: Culprit) -> &'static str {
    match culprit {
        Culprit::Guest => "culprit",
        Culprit::Stopped | Culprit::CardDown => "box",
        Culprit::Slow => "slow",
    }
}

/// Returns true if the switch of a culprit has to isolate it: a TAP takes all frames even without a
/// reader behind it, and a lossy switch holds no sender.
fn is_isolated(draw: &Draw) -> bool {
    draw.scene.policy == "ZZ" && matches!(draw.culprit, Culprit::Guest | Culprit::Slow)
}

/// Parameters of one run, drawn at random.
#[derive(Clone, Copy, Debug)]
struct Draw {
    seed: u64,
    culprit: Culprit,
    scene: SceneConfig,
}

impl Draw {
    fn new(seed: u64) -> Self {
        let mut rng = sluice_base::Prng::new(seed);
        let mut pick = |count: usize| usize::try_from(rng.below(count as u64)).unwrap();
        // Less than a link carries: a link with a longer overload is isolated by the physical
        // switch, which cannot ask senders to hold. The output of a lossy host has room for 64
        // frames: a burst of the flooder is theirs.
        let floods = [[80_000, 80_000, 2_000, 20_000], [200, 2_000, 5_000, 10_000]];
        let scene = SceneConfig::draw(&mut pick, floods);
        Self { seed, culprit: CULPRITS[pick(4)], scene }
    }
}

/// Times of a run, in µs, as far as they are visible from outside.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// Time from the last frame delivered to isolation.
    found: Option<u64>,
    /// Time for which the two other hosts were paused because of the culprit.
    paused: u64,
    /// Time from isolation until the host of the flooder holds.
    held: Option<u64>,
}

fn paused_us(scene: &Scene) -> u64 {
    let of = |at: usize| {
        let rows = scene.hosts[at].show("pauses");
        let rows = rows.as_array().unwrap().iter().filter(|row| row["port"] == "underlay");
        rows.map(|row| row["paused_ns"].as_u64().unwrap()).sum::<u64>()
    };
    [1, 2].map(of).into_iter().max().unwrap() / 1_000
}

/// Returns the row of an isolated port in `sluice show pauses`.
fn isolated_row(scene: &Scene, port: &str) -> Option<Value> {
    let rows = scene.hosts[0].show("pauses");
    let found =
        rows.as_array()?.iter().find(|row| row["port"] == port && row["isolated"] != Value::Null);
    found.map(|row| row["isolated"].clone())
}

/// Returns the start of the first row of an answer, in µs of this process: the best of a few
/// questions.
fn began_us(scene: &Scene, host: usize, list: &str, clock: Instant) -> Option<i128> {
    let ask = |_| {
        let before = clock.elapsed().as_micros();
        let answer = scene.hosts[host].ask(&["fabric", "holds"]);
        let after = clock.elapsed().as_micros();
        let ago = answer["holds"][list].as_array()?.first()?["since_ns"].as_u64()?;
        let middle = i128::try_from(u128::midpoint(before, after)).unwrap();
        Some((after - before, middle - i128::from(ago / 1_000)))
    };
    (0..3).filter_map(ask).min().map(|(_, began)| began)
}

fn times(scene: &Scene, draw: &Draw) -> Times {
    // A slow receiver is isolated when it is over its share, and held when its senders are.
    if draw.culprit != Culprit::Guest {
        return Times::default();
    }
    let Some(row) = isolated_row(scene, port_of(draw.culprit)) else { return Times::default() };
    let at = |key: &str| row[key].as_u64().unwrap();
    // It may have taken a frame since.
    let found = at("since_ns").checked_sub(at("moved_ns"));
    let clock = Instant::now();
    let here = began_us(scene, 0, "isolated", clock);
    let there = began_us(scene, 1, "held", clock);
    let held = here.zip(there).map(|(here, there)| u64::try_from(there - here).unwrap_or(0));
    Times { found: found.map(|ns| ns / 1_000), paused: 0, held }
}

fn assert_named(scene: &Scene, draw: &Draw) {
    let row = isolated_row(scene, port_of(draw.culprit));
    let machine = if draw.culprit == Culprit::Slow { SLOW } else { draw.culprit.beside() };
    if draw.culprit == Culprit::Stopped && draw.scene.policy == "ZZ" {
        // Its socket is held: it is isolated if it is over its share, which the flood decides.
        return;
    }
    if !is_isolated(draw) {
        assert_eq!(row, None, "nobody is held by it");
        if draw.culprit == Culprit::Stopped && draw.scene.flood != 200 {
            let lost = scene.hosts[0].row("ports", "port", "box")["lossless"].take();
            assert!(lost.as_str().unwrap().contains("container.udp_rcvbuf_errors"), "{lost}");
        }
        return;
    }
    let row = row.expect("it is isolated");
    let endpoints = row["endpoints"].as_array().unwrap();
    assert!(endpoints.iter().any(|one| *one == *mac_text(machine)), "{row}");
    let waiting = row["waiting"].as_array().unwrap();
    assert!(waiting.iter().any(|one| one.as_str().unwrap().contains("h2")), "{row}");
    for host in [0, 1] {
        let status = scene.hosts[host].ask(&["fabric", "status"]);
        let is_it = |row: &&Value| row["host"] == "h1" && row["priority"] == 0;
        let row = status["receivers"].as_array().unwrap().iter().find(is_it);
        let row = row.unwrap_or_else(|| panic!("it is not named: {status}"));
        let endpoint = row["endpoints"][0].as_str().unwrap();
        assert!(endpoint.contains(&mac_text(machine)), "{row}");
        assert!(row["waiting"].as_array().unwrap().iter().any(|one| *one == "h2"), "{row}");
        assert_eq!(row["port"].as_str(), (host == 0).then(|| port_of(draw.culprit)), "{row}");
    }
}

/// Checks that innocent frames are neither late nor missing. A lossy virtual network may drop them
/// at the output of their own host, if this machine was so busy that they left in bursts: then it
/// counts each.
fn assert_innocent(scene: &Scene, draw: &Draw, lost: [u64; 3]) {
    let (late, missing) = scene.wrong();
    assert_eq!(late, 0, "innocent frames are out of order");
    let counted = match draw.scene.policy {
        "ZZ" => 0,
        _ => scene.dropped_at_outputs(&["near", "far"]),
    };
    assert_eq!(lost.iter().sum::<u64>(), counted, "innocent frames are missing: {lost:?}");
    assert!(missing <= counted, "{missing} missing, {counted} counted");
    at_most("lost of innocent pairs", counted, 0);
}

/// Checks the drops and their places: at the culprit, or on its path.
fn assert_drops(scene: &Scene, draw: &Draw) {
    let lost = scene.dropped();
    say(&format!("  dropped {lost:?}"));
    if draw.scene.policy != "ZZ" {
        return;
    }
    let may: &[&str] = match draw.culprit {
        // A stopped process does not read its sockets, whose senders are held as those of a port.
        Culprit::Guest | Culprit::Stopped if draw.scene.hold == "1s" => &["receiver_stuck"],
        Culprit::CardDown => &["receiver_stuck", "refused"],
        _ => &[],
    };
    for reason in lost.iter().flat_map(|sums| sums.keys()) {
        assert!(may.contains(&reason.as_str()), "{reason}: {lost:?}");
    }
}

/// Returns the times of the run, and the increase of the 99th percentile of latency.
fn one_does_not_take_what_comes(draw: &Draw) -> (Times, f64) {
    say(&format!("seed {}: {:?} of {:?}", draw.seed, draw.culprit, draw.scene));
    let mut scene = Scene::new("isolation", &draw.scene);
    let span = Duration::from_millis(if is_soak() { 2_500 } else { 1_000 });
    scene.flood(draw.culprit.beside());
    std::thread::sleep(FOUND);
    let before = scene.watch(span);
    let paused = paused_us(&scene);
    draw.culprit.strike(&scene);
    std::thread::sleep(FOUND);
    let beside = scene.watch(span);
    let mut times = times(&scene, draw);
    times.paused = paused_us(&scene) - paused;
    assert_named(&scene, draw);
    let taken = scene.taken();
    draw.culprit.heal(&scene);
    if draw.culprit.beside() == CULPRIT {
        wait_for("the culprit takes frames again", || scene.taken() > taken + 100);
    }
    let after = scene.watch(span);
    let lost = scene.end();
    report(&before, &beside, &after, &times);
    assert_innocent(&scene, draw, lost);
    assert_drops(&scene, draw);
    for daemon in scene.daemons() {
        assert_eq!(daemon.show("audit")["closed"], true);
    }
    let share = beside.share_of(&before);
    assert!(share >= 0.5, "an innocent pair gets {share} of its frames");
    at_least("share of its frames that an innocent pair gets", share, 0.9);
    (times, beside.p99_us as f64 / before.p99_us.max(1) as f64)
}

fn report(before: &Seen, beside: &Seen, after: &Seen, times: &Times) {
    say(&format!(
        "  culprit reads {before:?}\n  beside it     {beside:?}\n  after it      {after:?}"
    ));
    say(&format!("  {times:?} (µs)"));
}

/// Returns the 99th percentile, which is the maximum of fewer than a hundred.
fn p99(mut all: Vec<u64>) -> Option<u64> {
    all.sort_unstable();
    all.get((all.len() * 99).div_ceil(100).saturating_sub(1)).copied()
}

fn run_all(draws: &[Draw]) {
    let runs: Vec<_> = draws.iter().map(one_does_not_take_what_comes).collect();
    let found = p99(runs.iter().filter_map(|(times, _)| times.found).collect());
    let paused = p99(runs.iter().map(|(times, _)| times.paused).collect());
    let held = p99(runs.iter().filter_map(|(times, _)| times.held).collect());
    say(&format!(
        "{} runs, p99 in µs: found after {found:?}, wires paused for {paused:?}, held at senders \
         {held:?} later",
        runs.len()
    ));
    let slower: Vec<f64> = runs.iter().map(|(_, slower)| *slower).collect();
    at_most(
        "p99 of victims, of that beside one that reads",
        slower.into_iter().fold(0.0, f64::max),
        2.0,
    );
}

#[test]
#[ignore = "live: needs root"]
fn blocked_receiver_slows_only_its_own_senders() {
    if skip("blocked_receiver_slows_only_its_own_senders", &[]) {
        return;
    }
    if is_soak() {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let first = number("SLUICE_SEED").unwrap_or(1);
        let runs = number("SLUICE_RUNS").unwrap_or(SOAK_RUNS);
        run_all(&(first..first + runs).map(Draw::new).collect::<Vec<_>>());
        return;
    }
    let scene = SceneConfig { policy: "ZZ", hold: "1s", workers: 1, flood: 80_000 };
    let draw = |culprit, scene| Draw { seed: 0, culprit, scene };
    run_all(&[
        draw(Culprit::Guest, SceneConfig { hold: "forever", ..scene }),
        draw(Culprit::Guest, scene),
        draw(Culprit::Slow, scene),
        draw(Culprit::Stopped, SceneConfig { policy: "LZ", flood: 10_000, ..scene }),
    ]);
}
