//! Peers that lie, and disks that rot: errors, never a panic.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proptest::test_runner::Config;
use sluice_base::{HostId, Nanos, Prng};
use sluice_control::commit::{
    Commit, Config as Settings, Formats, Record, Recovered, Seat, Start, Timing,
};

use super::doc::Doc;
use super::host::Disk;
use super::world::World;

/// Numbers at the edges of ranges.
const EDGES: [u64; 9] = [0, 1, 2, 3, 1 << 32, 1 << 48, 1 << 56, u64::MAX - 1, u64::MAX];

/// Changes some bytes of a message, mostly whole numbers.
fn spoil(prng: &mut Prng, bytes: &mut Vec<u8>) {
    let place =
        |prng: &mut Prng, len: usize| usize::try_from(prng.below(len as u64 + 1)).expect("small");
    for _ in 0..=prng.below(3) {
        match prng.below(8) {
            0 => bytes.truncate(place(prng, bytes.len())),
            1 => bytes.extend(prng.next_u64().to_be_bytes()),
            2 | 3 => {
                let at = place(prng, bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << prng.below(8);
                }
            }
            _ => {
                let (at, edge) = (place(prng, bytes.len()), EDGES[place(prng, EDGES.len() - 1)]);
                if let Some(word) = bytes.get_mut(at..at + 8) {
                    let near = u64::from_be_bytes((&*word).try_into().expect("8 bytes"));
                    let step = prng.below(5);
                    let near = if prng.chance(1, 2) {
                        near.wrapping_add(step)
                    } else {
                        near.wrapping_sub(step)
                    };
                    let value = if prng.chance(1, 2) { edge } else { near };
                    word.copy_from_slice(&value.to_be_bytes());
                }
            }
        }
    }
}

/// Lets one host of a working fabric be lied to, by messages that differ little from good ones.
fn lie(seed: u64) {
    let mut world = World::new(seed, 3);
    world.keep_sent = true;
    world.look(true);
    world.run_for(Nanos::from_millis(2_000));
    let mut prng = Prng::stream(seed, "liar");
    for n in 0..30 {
        world.commit(1 + n % 3, &format!("add n{n} 1"));
        world.run_for(Nanos::from_millis(5));
        for _ in 0..40 {
            let (from, to, mut bytes) = {
                let place = prng.below(world.kept.len() as u64);
                world.kept[usize::try_from(place).expect("small")].clone()
            };
            spoil(&mut prng, &mut bytes);
            // Host 3 is the one that hears lies: what it then says is not believed by this test.
            if to == 3 {
                world.tell(from, to, &bytes);
            }
        }
        world.run_for(Nanos::from_millis(20));
        world.kept.truncate(2_000);
    }
}

#[test]
fn lying_peer_causes_errors_only() {
    let seeds = 60 * u64::from(Config::default().cases) / 256;
    for seed in 0..seeds.max(1) {
        catch_unwind(AssertUnwindSafe(|| lie(seed))).unwrap_or_else(|panic| {
            println!("caught after {} cases: seed {seed}", seed + 1);
            resume_unwind(panic)
        });
    }
}

fn start(disk: Recovered, seat: u64) -> bool {
    let settings = Settings {
        host: HostId(2),
        seat: Seat::new(seat).expect("not zero"),
        incarnation: 9,
        seed: 1,
        timing: Timing::default(),
        start: Start::<Doc<2>>::Join,
        formats: Formats::OWN,
    };
    Commit::new(settings, disk, Nanos::ZERO).is_ok()
}

/// Damages a disk in every way that leaves whole records, and some that do not.
#[test]
fn damaged_disk_is_named_or_read() {
    let mut world = World::new(3, 3);
    world.look(true);
    world.run_for(Nanos::from_millis(2_000));
    for n in 0..12 {
        world.commit(2, &format!("add n{n} 1"));
        world.run_for(Nanos::from_millis(30));
    }
    let seat = world.hosts[&2].seat;
    let records: Vec<Vec<u8>> = match &world.hosts[&2].disk {
        Disk::Keys(map) => map.values().cloned().collect(),
        Disk::Log(log) => log.clone(),
    };
    let read = |records: &[Vec<u8>]| Recovered::from_records(records.iter().map(Vec::as_slice));
    assert!(start(read(&records).expect("a good disk"), seat));
    let mut named = 0;
    for without in 0..records.len() {
        let mut left = records.clone();
        let gone = left.remove(without);
        assert!(Record::parse(&gone).is_ok());
        named += u64::from(!read(&left).is_ok_and(|disk| start(disk, seat)));
    }
    assert!(named > 0, "a missing record is noticed");
    let mut prng = Prng::new(1);
    for _ in 0..2_000 {
        let mut left = records.clone();
        let place = usize::try_from(prng.below(left.len() as u64)).expect("small");
        let before = left[place].clone();
        spoil(&mut prng, &mut left[place]);
        if left[place] != before {
            let why = read(&left).expect_err("a rotten record");
            assert!(why.to_string().contains("evict this host"), "{why}");
        }
    }
}
