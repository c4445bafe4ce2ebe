use std::io;

use sluice_base::Vni;

use super::*;
use crate::chip::{Capacity, Senders};

/// A chip in memory, which may be full, busy or dead.
#[derive(Default)]
struct Memory {
    room: usize,
    entries: HashMap<Key, Entry>,
    hit: Vec<Key>,
    fails: Option<fn() -> Refused>,
}

impl Memory {
    fn works(&self) -> Result<(), Refused> {
        self.fails.map_or(Ok(()), |error| Err(error()))
    }
}

impl Chip for Memory {
    fn capacity(&self) -> Capacity {
        Capacity { macs: 4, flows: 2 }
    }

    fn add_network(&mut self, _: Network) -> Result<(), Refused> {
        self.works()
    }

    fn remove_network(&mut self, vnet: VnetId) -> Result<(), Refused> {
        self.entries.retain(|(of, _), _| *of != vnet);
        self.works()
    }

    fn has_network(&self, _: VnetId) -> bool {
        true
    }

    fn add_port(&mut self, _: PortId, _: VnetId, _: &str) -> Result<(), Refused> {
        self.works()
    }

    fn remove_port(&mut self, port: PortId) -> Result<(), Refused> {
        self.entries.retain(|_, entry| entry.to != Place::Port(port));
        self.works()
    }

    fn put(&mut self, vnet: VnetId, mac: Mac, entry: Entry) -> Result<(), Refused> {
        self.works()?;
        if self.entries.len() >= self.room && !self.entries.contains_key(&(vnet, mac)) {
            return Err(Refused::Full);
        }
        self.entries.insert((vnet, mac), entry);
        Ok(())
    }

    fn remove(&mut self, vnet: VnetId, mac: Mac) -> Result<(), Refused> {
        self.works()?;
        self.entries.remove(&(vnet, mac));
        Ok(())
    }

    fn set_decap(&mut self, _: VnetId, _: (TunnelId, Ipv4Addr), _: bool) -> Result<(), Refused> {
        self.works()
    }

    fn hits(&mut self, each: &mut dyn FnMut(VnetId, Mac, Hits)) -> Result<(), Refused> {
        self.works()?;
        let hits = Hits { to: true, from: false };
        self.hit.drain(..).for_each(|(vnet, mac)| each(vnet, mac, hits));
        Ok(())
    }

    fn mend(&mut self) -> Result<u64, Refused> {
        Ok(1)
    }

    fn forwarded(&self) -> Result<u64, Refused> {
        Ok(0)
    }
}

const VNET: VnetId = VnetId(0);

fn mac(nth: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, nth])
}

fn at_port(port: u16) -> Entry {
    Entry { to: Place::Port(PortId(port)), senders: Senders::Any }
}

fn behind(tunnel: u16) -> Entry {
    let to = Place::Tunnel(TunnelId(tunnel), Ipv4Addr::new(10, 0, 0, 1));
    Entry { to, senders: Senders::Any }
}

fn cache(room: usize) -> Cache<Memory> {
    Cache::new(Memory { room, ..Memory::default() })
}

/// Lets `rounds` pass, in each of which these are used.
fn pass(cache: &mut Cache<Memory>, rounds: usize, used: &[u8]) {
    for _ in 0..rounds {
        cache.chip.hit = used.iter().map(|nth| (VNET, mac(*nth))).collect();
        cache.hits(|_, _, _| {}).unwrap();
    }
}

fn held(cache: &Cache<Memory>) -> Vec<u8> {
    let mut held: Vec<u8> = cache.entries().map(|(_, mac, _)| mac.0[5]).collect();
    held.sort_unstable();
    assert_eq!(held.len(), cache.chip.entries.len(), "cache and chip agree");
    assert_eq!(held.len(), cache.figures().macs);
    held
}

#[test]
fn least_recently_used_makes_room() {
    let mut cache = cache(16);
    for nth in 0..4 {
        cache.put(VNET, mac(nth), at_port(1)).unwrap();
    }
    pass(&mut cache, 3, &[0, 2, 3]);
    cache.put(VNET, mac(9), at_port(1)).unwrap();
    assert_eq!(held(&cache), [0, 2, 3, 9]);
    assert_eq!(cache.figures().evicted, 1);
}

#[test]
fn used_entry_is_never_evicted() {
    let mut cache = cache(16);
    for nth in 0..4 {
        cache.put(VNET, mac(nth), at_port(1)).unwrap();
    }
    pass(&mut cache, 3, &[0, 1, 2, 3]);
    let refused = cache.put(VNET, mac(9), at_port(1));
    assert!(matches!(refused, Err(Refused::Full)), "{refused:?}");
    assert_eq!(held(&cache), [0, 1, 2, 3]);
    assert_eq!(cache.figures().full, 1);
}

#[test]
fn flows_have_a_limit_of_their_own() {
    let mut cache = cache(16);
    for nth in 0..2 {
        cache.put(VNET, mac(nth), behind(1)).unwrap();
    }
    cache.put(VNET, mac(2), at_port(1)).unwrap();
    pass(&mut cache, 3, &[1]);
    cache.put(VNET, mac(3), behind(1)).unwrap();
    assert_eq!(held(&cache), [1, 2, 3], "a port's address is no flow");
    assert_eq!(cache.figures().flows, 2);
}

#[test]
fn moved_entry_takes_one_place() {
    let mut cache = cache(16);
    for nth in 0..2 {
        cache.put(VNET, mac(nth), behind(1)).unwrap();
    }
    for at in [behind(2), at_port(3), behind(1)] {
        cache.put(VNET, mac(0), at).unwrap();
        assert_eq!(cache.chip.entries[&(VNET, mac(0))], at, "the next hop is the new one");
        assert_eq!(held(&cache), [0, 1]);
    }
}

#[test]
fn chip_that_says_full_loses_oldest() {
    let mut cache = cache(2);
    cache.put(VNET, mac(0), at_port(1)).unwrap();
    cache.put(VNET, mac(1), at_port(1)).unwrap();
    pass(&mut cache, 3, &[1]);
    cache.put(VNET, mac(2), at_port(1)).unwrap();
    assert_eq!(held(&cache), [1, 2]);
}

#[test]
fn busy_or_dead_chip_is_survived() {
    for error in [(|| Refused::Busy(io::ErrorKind::ResourceBusy.into())) as fn() -> Refused, || {
        Refused::Broken(io::ErrorKind::NotFound.into())
    }] {
        let mut cache = cache(16);
        cache.put(VNET, mac(0), at_port(1)).unwrap();
        cache.chip.fails = Some(error);
        assert!(cache.put(VNET, mac(1), at_port(1)).is_err());
        assert!(cache.remove(VNET, mac(0)).is_err());
        assert_eq!(held(&cache), [0], "what it did not remove is still held");
        cache.chip.fails = None;
        cache.remove(VNET, mac(0)).unwrap();
        cache.put(VNET, mac(1), at_port(1)).unwrap();
        assert_eq!(held(&cache), [1]);
        assert_eq!(cache.figures().refused, 2);
    }
}

#[test]
fn entries_go_with_port_and_network() {
    let mut cache = cache(16);
    let network = Network { vnet: VNET, vni: Vni::new(1).unwrap(), mtu: 1400 };
    cache.add_network(network).unwrap();
    cache.put(VNET, mac(0), at_port(1)).unwrap();
    cache.put(VNET, mac(1), at_port(2)).unwrap();
    cache.put(VnetId(1), mac(2), at_port(2)).unwrap();
    cache.remove_port(PortId(1)).unwrap();
    assert_eq!(held(&cache), [1, 2]);
    cache.remove_network(VNET).unwrap();
    assert_eq!(held(&cache), [2]);
}

/// Together or one after the other: the chip holds the same, and the same was counted. Of a chip
/// that holds less than it says, another address may have gone, which comes back when it is used.
#[test]
fn put_all_equals_puts_one_by_one() {
    let mut prng = sluice_base::Prng::new(7);
    for room in [2, 4, 16] {
        let [mut one, mut all] = [cache(room), cache(room)];
        for _ in 0..500 {
            let count = prng.below(7);
            let entries: Vec<_> = (0..count)
                .map(|_| {
                    let number = u8::try_from(prng.below(9)).unwrap();
                    let to = [at_port(1), at_port(2), behind(1), behind(2)];
                    (VNET, mac(number), to[usize::try_from(prng.below(4)).unwrap()])
                })
                .collect();
            for &(vnet, mac, entry) in &entries {
                _ = one.put(vnet, mac, entry);
            }
            all.put_all(entries).unwrap();
            assert_eq!(held(&one).len(), held(&all).len());
            if room >= 4 {
                assert_eq!(one.chip.entries, all.chip.entries);
            }
            let used: Vec<u8> = held(&one).into_iter().filter(|_| prng.below(2) == 0).collect();
            let rounds = usize::try_from(prng.below(3)).unwrap();
            pass(&mut one, rounds, &used);
            pass(&mut all, rounds, &used);
        }
        if room >= 4 {
            assert_eq!(one.figures(), all.figures());
        }
    }
}
