use super::*;
use crate::egress::Class;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proptest::prelude::*;

fn tag(number: u16) -> Tag {
    Tag::new(60, number, number, 0, BufferOwner::Ring)
}

proptest! {
    #[test]
    fn common_queue_mixed_push_pop_keeps_fifo_order(
        ops in prop::collection::vec(any::<bool>(), 0..300),
    ) {
        let mut class = Class::new();
        let mut model = VecDeque::new();
        for (number, push) in (0..).zip(ops) {
            if push && class.common_room(CommonMax(COMMON_FRAMES_MAX)) > 0 {
                class.common.push(number, tag(number));
                model.push_back(number);
            } else {
                prop_assert_eq!(class.common.head().map(|(buf, _)| *buf), model.front().copied());
                prop_assert_eq!(class.common.pop(), model.pop_front());
            }
            prop_assert_eq!(class.common.len() as usize, model.len());
            prop_assert_eq!(class.is_idle(), model.is_empty());
            let all: Vec<u16> = class.common.tags().map(|tag| tag.input()).collect();
            prop_assert_eq!(all, Vec::from(model.clone()));
        }
    }
}

#[test]
fn common_queue_closed_while_source_has_own_queue() {
    let mut class = Class::new();
    class.common.push(0, tag(0));
    let room = |class: &Class<u32>| [4, 1, 0].map(|max| class.common_room(CommonMax(max)));
    assert_eq!(room(&class), [3, 0, 0]);
    class.ring = 7;
    assert_eq!(room(&class), [0; 3]);
    assert!(!class.is_idle());
}

#[test]
fn queue_entry_with_pool_handle_is_24_bytes() {
    // A handle of 16 bytes with a pointer in it, as the pool's is.
    assert_eq!(size_of::<Entry<(&u8, u32)>>(), 24);
}
