use std::sync::Arc;

use sluice_testkit::guest;

use super::*;
use crate::vhost_user::memory::Layout;

/// A driver's ring, and the device's side of it.
struct Pair {
    driver: guest::Ring,
    device: Ring,
    /// Kept as long as the rings.
    _memories: (Arc<guest::Memory>, Memory),
}

fn pair(size: u16, event_idx: bool) -> Pair {
    let shared = Arc::new(guest::Memory::new(1 << 20, guest::Pages::Small, 1).unwrap());
    let mut driver = guest::Ring::new(&shared, size).unwrap();
    driver.reset(if event_idx { guest::feature::EVENT_IDX } else { 0 });
    let regions: Vec<_> = shared
        .regions()
        .iter()
        .map(|region| {
            let layout = Layout {
                guest: region.guest_phys_addr,
                user: region.userspace_addr,
                size: region.memory_size,
                offset: region.mmap_offset,
            };
            (layout, shared.fd().try_clone_to_owned().unwrap().into())
        })
        .collect();
    let memory = Memory::map(&regions).unwrap();
    let parts = driver.parts();
    let place = Place {
        size,
        desc: shared.address(parts.descriptors),
        avail: shared.address(parts.avail),
        used: shared.address(parts.used),
    };
    let device = Ring::new(&memory, place, 0, event_idx).unwrap();
    Pair { driver, device, _memories: (shared, memory) }
}

#[test]
fn ring_buffer_published_before_arm_is_seen() {
    for event_idx in [false, true] {
        let Pair { mut driver, mut device, _memories } = pair(8, event_idx);
        for round in 0..100_000_u32 {
            assert_eq!(device.available(1), Ok(0));
            // After the device looked, and before it wants kicks: no kick comes.
            let kicks = driver.kicks();
            driver.offer(0);
            driver.publish();
            let kicked = driver.kicks() > kicks;
            assert!(!kicked || round == 0, "the device was awake");
            assert_eq!(device.arm(device.base()), Ok(true), "round {round}");
            device.disarm();
            device.take(1);
            device.give_back(0, 0);
            device.publish();
            driver.take(1);
        }
    }
}

#[test]
fn what_comes_while_the_device_sleeps_is_kicked() {
    for event_idx in [false, true] {
        let Pair { mut driver, mut device, _memories } = pair(8, event_idx);
        for round in 0..100_000_u32 {
            assert_eq!((device.available(1), device.arm(device.base())), (Ok(0), Ok(false)));
            let kicks = driver.kicks();
            driver.offer(0);
            driver.publish();
            assert_eq!(driver.kicks(), kicks + 1, "round {round}");
            assert_eq!(device.available(1), Ok(1));
            device.disarm();
            device.take(1);
            device.give_back(0, 0);
            device.publish();
            driver.take(1);
        }
    }
}

/// A worker arms notifications again before it serves, as it does while another port has more.
#[test]
fn ring_repeated_arm_same_answer_until_served() {
    for event_idx in [false, true] {
        let Pair { mut driver, mut device, _memories } = pair(8, event_idx);
        assert_eq!(device.available(1), Ok(0));
        let missed = device.seen();
        // All at once, and before a kick is wanted.
        (0..8).for_each(|head| driver.offer(head));
        driver.publish();
        for _ in 0..3 {
            assert_eq!(device.arm(missed), Ok(true));
        }
        assert_eq!(device.available(8), Ok(8));
        device.take(8);
        let served = device.base();
        for _ in 0..3 {
            assert_eq!(device.arm(served), Ok(false));
        }
    }
}

/// The event index against the specification's definition: is it among those passed?
#[test]
fn an_event_is_passed_once() {
    for before in [0_u16, 1, 1_000, u16::MAX - 5, u16::MAX] {
        for (count, ahead) in (0..20_u16).flat_map(|count| (0..24).map(move |a| (count, a))) {
            let event = before.wrapping_sub(2).wrapping_add(ahead);
            let passed = (0..count).any(|nth| before.wrapping_add(nth) == event);
            let now = before.wrapping_add(count);
            assert_eq!(passes(event, before, now), passed, "{event}: from {before} to {now}");
        }
    }
}

#[test]
fn ring_outside_memory_or_misaligned_is_refused() {
    let shared = Arc::new(guest::Memory::new(1 << 16, guest::Pages::Small, 1).unwrap());
    let region = shared.regions()[0];
    let layout = Layout {
        guest: region.guest_phys_addr,
        user: region.userspace_addr,
        size: region.memory_size,
        offset: region.mmap_offset,
    };
    let file = shared.fd().try_clone_to_owned().unwrap().into();
    let memory = Memory::map(&[(layout, file)]).unwrap();
    let at = region.userspace_addr;
    let good = Place { size: 8, desc: at, avail: at + 4096, used: at + 8192 };
    assert!(Ring::new(&memory, good, 0, true).is_some());
    let end = at + region.memory_size;
    for bad in [
        Place { size: 0, ..good },
        Place { size: 7, ..good },
        Place { desc: at + 8, ..good },
        Place { avail: at + 1, ..good },
        Place { used: at + 2, ..good },
        Place { desc: end - 16, ..good },
        Place { avail: end - 20, ..good },
        Place { used: end - 68, ..good },
        Place { used: 0, ..good },
    ] {
        assert!(Ring::new(&memory, bad, 0, true).is_none(), "{bad:?}");
    }
}
