use sluice_base::Priority;

use super::*;
use crate::pool::{Pool, PoolConfig};

fn egress<'a>(header: &'a [u8], buf: Option<&'a PoolBuf>, strip: u16) -> Egress<'a, PoolBuf> {
    Egress { header, buf, strip, size: 0, priority: Priority::ZERO, tunnel: None }
}

#[test]
fn header_and_rest_are_gathered() {
    let mut pool = Pool::new(PoolConfig { slots: 1, slot_size: 2048, populate: false }).unwrap();
    let mut slot = pool.take().unwrap();
    slot.bytes_mut()[..6].copy_from_slice(b"xxtail");
    let buf = slot.freeze(0, 6);
    let mut staging = Staging::new(16);
    staging.push(&egress(b"__head", Some(&buf), 2), 2).unwrap();
    assert_eq!(staging.get(0), b"headtail");
    assert_eq!(staging.amount(), Amount { frames: 1, bytes: 8 });
    pool.give_back(buf);
}

#[test]
fn order_is_kept_around_the_end() {
    let mut staging = Staging::new(1);
    let mut next_in = 0u8;
    let mut next_out = 0u8;
    for round in 1..200 {
        for _ in 0..round % 37 {
            match staging.push(&egress(&[next_in], None, 0), 0) {
                Ok(()) => next_in += 1,
                Err(why) => {
                    assert_eq!((why, staging.len()), (NotStaged::Full, STAGED_FRAMES_MAX));
                    break;
                }
            }
            next_in %= 251;
        }
        for _ in 0..(round % 5).min(staging.len()) {
            assert_eq!(staging.get(0), [next_out]);
            assert_eq!(staging.pop(), 1);
            next_out = (next_out + 1) % 251;
        }
    }
}

#[test]
fn a_frame_too_large_is_refused() {
    let mut staging = Staging::new(4);
    assert_eq!(staging.push(&egress(b"12345", None, 0), 0), Err(NotStaged::TooLarge));
    assert!(staging.is_empty());
}
