//! The vport table alone.
//!
//! The table neither waits nor calls the kernel except for memory, so time is the processor time of
//! the thread: a busy machine affects it only through the caches.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use sluice_api::results::Row;
use sluice_base::{HostId, Mac, Nanos, PortId, Prng, Vni};
use sluice_control::table::Table;
use sluice_control::vport::{Claim, Key, Origin};

use crate::machine::processor_time;

const HOSTS: u32 = 200;
const VNETS: u32 = 1000;
/// Number of networks in which each host has endpoints.
const VNETS_OF_HOST: u32 = 20;
/// Number of consecutive claims of one host.
const BATCH: u32 = 64;
const ENTRIES: [u32; 2] = [100_000, 1_200_000];
const LOOKUPS: u32 = 2_000_000;

/// Measures the rows of all sizes.
pub(super) fn rows(rounds: usize) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for entries in ENTRIES {
        rows.extend(table(entries, rounds)?);
    }
    Ok(rows)
}

/// Values of one size, one per round.
#[derive(Default)]
struct Values {
    insert: Vec<f64>,
    stop: Vec<f64>,
    refresh: Vec<f64>,
    find: Vec<f64>,
    holder: Vec<f64>,
    find_ip: Vec<f64>,
    bytes: Vec<f64>,
}

fn table(entries: u32, rounds: usize) -> anyhow::Result<Vec<Row>> {
    let mut all = Values::default();
    for round in 0..rounds {
        let seed = u64::try_from(round)?;
        let mut table = Table::new(entries, seed);
        let begin = processor_time();
        for number in 0..entries {
            insert(&mut table, number)?;
        }
        all.insert.push(rate(entries, processor_time() - begin));
        all.bytes.push(ratio(table.memory_bytes(), entries)?);
        anyhow::ensure!(table.vport_count() == entries, "an endpoint is missing");

        let begin = processor_time();
        for number in 0..entries {
            insert(&mut table, number)?;
        }
        all.refresh.push(rate(entries, processor_time() - begin));
        let key = |number| claim_of(number).1.key;
        let find = |number| table.find(key(number)).is_some();
        all.find.push(lookups(seed, entries, find)?);
        let holder = |number| table.holder(key(number)).is_some();
        all.holder.push(lookups(seed, entries, holder)?);
        let find_ip = |number| table.find_ip(key(number).vni, ip_of(number)).is_some();
        all.find_ip.push(lookups(seed, entries, find_ip)?);
        drop(table);
        all.stop.push(longest_claim(seed, entries)?);
    }
    let row = |measure, unit, values| {
        Row::new(measure, "sluice", unit, values)
            .with("entries", entries)
            .with("hosts", HOSTS)
            .with("vnets", VNETS)
    };
    Ok(vec![
        row("table.insert", "1/s", all.insert).with("of", "new"),
        row("table.insert", "1/s", all.refresh).with("of", "known"),
        row("table.find", "1/s", all.find).with("by", "mac"),
        row("table.find", "1/s", all.holder).with("by", "mac, holder only"),
        row("table.find", "1/s", all.find_ip).with("by", "ip"),
        row("table.bytes", "bytes", all.bytes),
        row("table.stop", "ns", all.stop),
    ])
}

/// Returns a claim. Each host has all its endpoints in a few networks; batches of hosts interleave.
fn claim_of(number: u32) -> (HostId, Claim) {
    let host = number / BATCH % HOSTS;
    let vnet = (host * 7 + number % VNETS_OF_HOST * (VNETS / VNETS_OF_HOST)) % VNETS;
    let vni = Vni::new(5000 + vnet).expect("below 2^24");
    let key = Key { vni, mac: Mac::from_u64(0x0200_0000_0000 | u64::from(number)) };
    let owner = HostId(u16::try_from(host).expect("few hosts"));
    let ips = [ip_of(number)].into_iter().collect();
    (owner, Claim { key, port: PortId(1), ips, origin: Origin::Learned, moves: 0 })
}

fn ip_of(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + number).into()
}

fn insert(table: &mut Table, number: u32) -> anyhow::Result<()> {
    let (owner, claim) = claim_of(number);
    let change = table.claim(Nanos(u64::from(number)), owner, &claim);
    anyhow::ensure!(change.is_ok(), "the table is full");
    black_box(change.is_ok_and(|change| change.is_nothing()));
    Ok(())
}

/// Returns the longest call in nanoseconds while a table fills. The clock is read for each call, so
/// the rates are measured separately.
fn longest_claim(seed: u64, entries: u32) -> anyhow::Result<f64> {
    let mut table = Table::new(entries, seed);
    let mut longest: f64 = 0.0;
    for number in 0..entries {
        let begin = processor_time();
        insert(&mut table, number)?;
        longest = longest.max(processor_time() - begin);
    }
    Ok(longest * 1e9)
}

/// Returns the look-ups of random entries per second.
fn lookups(seed: u64, entries: u32, found: impl Fn(u32) -> bool) -> anyhow::Result<f64> {
    let mut prng = Prng::new(seed);
    let begin = processor_time();
    for _ in 0..LOOKUPS {
        let number = u32::try_from(prng.below(u64::from(entries)))?;
        anyhow::ensure!(black_box(found(number)), "endpoint {number} is missing");
    }
    Ok(rate(LOOKUPS, processor_time() - begin))
}

fn rate(count: u32, seconds: f64) -> f64 {
    f64::from(count) / seconds
}

fn ratio(bytes: usize, entries: u32) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(bytes)?) / f64::from(entries))
}
