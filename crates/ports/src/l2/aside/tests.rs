use std::collections::VecDeque;

use sluice_base::Prng;

use super::*;

fn priority(nth: u64) -> Priority {
    Priority::new(u8::try_from(nth).unwrap()).unwrap()
}

/// Each frame comes out of its priority once, in order, and a frame without room is counted;
/// against one list per priority.
#[test]
fn aside_priorities_have_separate_fifo_and_byte_limit() {
    for seed in 0..50 {
        let mut rng = Prng::new(seed);
        let bytes_max = 20_000 + rng.below(300_000);
        let (mut room, mut store) = (Room::new(bytes_max), Store::default());
        let mut model: [VecDeque<(Vec<u8>, VlanTag)>; 8] = Default::default();
        let (mut used, mut full, mut most) = ([0_u64; 8], 0, 0);
        let mut bytes = vec![0; 70_000];
        for step in 0..2_000_u64 {
            let p = rng.below(8);
            let queue = &mut model[usize::try_from(p).unwrap()];
            let used = &mut used[usize::try_from(p).unwrap()];
            if rng.chance(3, 5) {
                let size = if rng.chance(1, 50) { rng.below(70_000) } else { rng.below(1_514) };
                let frame = vec![step.to_ne_bytes()[0]; usize::try_from(size).unwrap()];
                let tci = u16::try_from(rng.below(1 << 16)).unwrap();
                let tags = [VlanTag::AsIs, VlanTag::TakenOff(tci), VlanTag::NotAllowed];
                let tag = tags[usize::try_from(rng.below(3)).unwrap()];
                let fits = *used + size + 8 <= bytes_max;
                assert_eq!(store.push(&mut room, priority(p), &frame, tag), fits);
                if fits {
                    *used += size + 8;
                    queue.push_back((frame, tag));
                } else {
                    full += 1;
                }
            } else {
                let popped = store.pop(&mut room, priority(p), &mut bytes);
                let popped = popped.map(|(size, tag)| (bytes[..size].to_vec(), tag));
                assert_eq!(popped, queue.pop_front(), "seed {seed}, step {step}");
                if let Some((frame, _)) = popped {
                    *used -= frame.len() as u64 + 8;
                }
            }
            let sum: usize = model.iter().map(VecDeque::len).sum();
            most = most.max(sum as u64);
            let frames = (room.amount().frames, room.amount().frames_max, room.full());
            assert_eq!(frames, (sum as u64, most, full));
            let waiting = (0..8).filter(|p| !model[*p].is_empty()).map(|p| 1 << p).sum();
            assert_eq!(store.waiting(), PriorityMask(waiting));
        }
        store.clear(&mut room);
        let HeldBack { frames, bytes, .. } = room.amount();
        assert_eq!((frames, bytes, room.used), (0, 0, [0; 8]), "all of it is given back");
    }
}

#[test]
fn those_that_are_open_are_served_in_turn() {
    let (mut room, mut store) = (Room::new(1 << 20), Store::default());
    for p in 0..4 {
        for _ in 0..10 {
            assert!(store.push(&mut room, priority(p), &[0; 60], VlanTag::AsIs));
        }
    }
    let closed = PriorityMask(0b0101);
    let mut served = [0; 8];
    for _ in 0..8 {
        let next = store.next(closed).unwrap();
        served[next.index()] += 1;
        store.pop(&mut room, next, &mut [0; 60]).unwrap();
    }
    assert!(served[1] > 0 && served[3] > 0, "neither starves: {served:?}");
    assert_eq!(served[1] + served[3], 8, "and none that is closed is served");
    assert_eq!(store.next(PriorityMask::ALL), None);
}

/// The smallest frame costs 84 bytes on the wire, the unit of the room here.
#[test]
fn aside_room_holds_headroom_of_smallest_frames() {
    let headroom = 84 * 1_000;
    let (mut room, mut store) = (Room::new(headroom), Store::default());
    for _ in 0..headroom / 84 {
        assert!(store.push(&mut room, Priority::ZERO, &[0; 60], VlanTag::AsIs));
    }
}
