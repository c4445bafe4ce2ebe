//! Requests of a front end with several queue pairs, without a driver: no ring runs.

use std::sync::mpsc::sync_channel;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::notifier::Notifier;

fn device(pairs: usize) -> Device {
    let (asks, _nobody) = sync_channel(1);
    let driver = Driver::new(asks, Notifier::new().unwrap());
    Device::new(driver, Offer { features: features(false, true, pairs), pairs, mtu: 1450 })
}

/// A region of one page, and its file.
fn region(at: u64) -> (VhostUserSingleMemoryRegion, File) {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 4096).unwrap();
    (VhostUserSingleMemoryRegion::new(at, 4096, at, 0), file.into())
}

#[test]
fn memory_region_repeat_accepted_only_with_multiple_pairs() {
    let mut two = device(2);
    for _ in 0..2 {
        let (region, file) = region(0x10_0000);
        two.add_mem_region(&region, file, None).unwrap();
        assert_eq!((two.regions.len(), two.memory.end()), (1, 0x10_1000));
    }
    let (overlaps, file) = region(0x10_0800);
    assert!(two.add_mem_region(&overlaps, file, None).is_err());
    for _ in 0..2 {
        two.remove_mem_region(&region(0x10_0000).0).unwrap();
        assert!(two.regions.is_empty());
    }
    let mut one = device(1);
    let (again, file) = region(0x10_0000);
    one.add_mem_region(&again, file, None).unwrap();
    assert!(one.add_mem_region(&again, region(0).1, None).is_err());
    one.remove_mem_region(&again).unwrap();
    assert!(one.remove_mem_region(&again).is_err());
}

#[test]
fn queues_are_offered_where_there_are_several() {
    for pairs in [1, 2, 8] {
        let mut device = device(pairs);
        assert_eq!(device.get_queue_num().unwrap(), pairs as u64);
        assert_eq!(device.get_features().unwrap() & MQ != 0, pairs > 1);
        let last = u32::try_from(2 * pairs).unwrap();
        assert!(device.set_vring_num(last - 1, 256).is_ok());
        assert!(device.set_vring_num(last, 256).is_err());
        let problem = device.problem.unwrap();
        assert_eq!(problem, format!("ring {last}: this port has {last}"));
    }
}

#[test]
fn a_ring_is_enabled_by_itself() {
    let mut device = device(2);
    device.set_vring_enable(2, true).unwrap();
    device.set_vring_enable(1, true).unwrap();
    device.set_vring_enable(1, false).unwrap();
    let enabled: Vec<bool> = device.rings.iter().map(|ring| ring.enabled).collect();
    assert_eq!(enabled, [false, false, true, false]);
    assert!(device.set_vring_enable(4, true).is_err());
}

#[test]
fn mtu_feature_offered_larger_mtu_refused_by_name() {
    let mut device = device(1);
    assert_ne!(device.get_features().unwrap() & MTU, 0);
    let protocol = device.get_protocol_features().unwrap();
    assert!(protocol.contains(VhostUserProtocolFeatures::MTU));
    for mtu in [68, 1280, 1450] {
        device.set_mtu(mtu).unwrap();
    }
    for mtu in [1451, 9000, u64::MAX] {
        assert!(device.set_mtu(mtu).is_err());
        let problem = device.problem.take().unwrap();
        assert!(problem.contains(&format!("an MTU of {mtu}")), "{problem}");
        assert!(problem.contains("host_mtu=1450"), "{problem}");
    }
}
