use sluice_base::Priority;

use super::*;
use crate::pool::{Pool, PoolConfig};

fn egress<'a>(header: &'a [u8], buf: Option<&'a FrameBuf>, strip: u16) -> Egress<'a, FrameBuf> {
    Egress { header, buf, strip, size: 0, first: 0, priority: Priority::ZERO, tunnel: None }
}

#[test]
fn header_and_rest_are_gathered() {
    let mut pool = Pool::new(PoolConfig { slots: 1, slot_size: 2048, populate: false }).unwrap();
    let mut slot = pool.take().unwrap();
    slot.bytes_mut()[..6].copy_from_slice(b"xxtail");
    let buf = slot.freeze(0, 6);
    let mut staging: Staging = Staging::new(16);
    staging.push(&egress(b"__head", Some(&buf), 2), 2).unwrap();
    assert_eq!(staging.get(0), b"headtail");
    assert_eq!(staging.amount(), Amount { frames: 1, bytes: 8 });
    pool.give_back(buf);
}

#[test]
fn order_is_kept_around_the_end() {
    let mut staging: Staging = Staging::new(1);
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
    let mut staging: Staging = Staging::new(4);
    assert_eq!(staging.push(&egress(b"12345", None, 0), 0), Err(NotStaged::TooLarge));
    assert!(staging.is_empty());
}

#[test]
fn staging_tag_follows_addresses_at_any_header_split() {
    let mut pool = Pool::new(PoolConfig { slots: 1, slot_size: 2048, populate: false }).unwrap();
    let whole: Vec<u8> = (0..60).collect();
    let tag = [0x81, 0x00, 0xa0, 0x0a];
    let expected = [&whole[..12], &tag, &whole[12..]].concat();
    let mut staging: Staging = Staging::new(64);
    for header_size in [0, 1, 11, 12, 13, 34, 59, 60] {
        let mut slot = pool.take().unwrap();
        let payload = &whole[header_size..];
        slot.bytes_mut()[..payload.len()].copy_from_slice(payload);
        let buf = slot.freeze(0, payload.len());
        staging.push_tagged(&egress(&whole[..header_size], Some(&buf), 0), tag).unwrap();
        assert_eq!(staging.get(0), expected, "a header of {header_size} bytes");
        assert_eq!(staging.amount(), Amount { frames: 1, bytes: 64 });
        staging.pop();
        pool.give_back(buf);
    }
    let large = [0; 61];
    assert_eq!(staging.push_tagged(&egress(&large, None, 0), tag), Err(NotStaged::TooLarge));
}
