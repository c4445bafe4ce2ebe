use sluice_base::{Batch, ByteCount, PriorityMask};
use sluice_switch::Window;

use super::*;
use crate::{Pool, PoolConfig, Port};

const ALL: Window = Window {
    frames: 1000,
    bytes: ByteCount(1 << 30),
    closed: PriorityMask::NONE,
    needs_copy: false,
};

fn pool() -> Pool {
    Pool::new(PoolConfig { slots: 8, slot_size: 2048, populate: false }).unwrap()
}

#[test]
fn memory_ring_full_refuses_until_read() {
    let (mut a, probe) = port(&MemoryConfig { ring_frames: 2, mtu: 1500 }).unwrap();
    assert!(probe.send(&[1; 60]) && probe.send(&[2; 60]) && !probe.send(&[3; 60]));
    let (mut pool, mut batch) = (pool(), Batch::with_limit(8));
    assert_eq!(
        a.read(ALL, 1, &mut pool, &mut batch).unwrap(),
        crate::Read { frames: 1, more: true, others: 0 }
    );
    assert!(probe.send(&[3; 60]));
    assert_eq!(
        a.read(ALL, 8, &mut pool, &mut batch).unwrap(),
        crate::Read { frames: 2, more: false, others: 0 }
    );
    let firsts: Vec<u8> = batch.as_slice().iter().map(|buf| buf.bytes()[0]).collect();
    assert_eq!(firsts, [1, 2, 3]);
    batch.drain().for_each(|buf| pool.give_back(buf));
    assert_eq!(a.ring().waiting_frames_max, Some(2));
}

#[test]
fn without_slots_nothing_is_read() {
    let (mut a, probe) = port(&MemoryConfig::default()).unwrap();
    let (mut pool, mut batch) = (pool(), Batch::with_limit(8));
    let held: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert!(probe.send(&[1; 60]));
    let read = a.read(ALL, 8, &mut pool, &mut batch).unwrap();
    assert_eq!(read, crate::Read { frames: 0, more: true, others: 0 });
    held.into_iter().for_each(|slot| pool.cancel(slot));
    assert_eq!(a.read(ALL, 8, &mut pool, &mut batch).unwrap().frames, 1);
    batch.drain().for_each(|buf| pool.give_back(buf));
}
