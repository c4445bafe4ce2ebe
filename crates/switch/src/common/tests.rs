use super::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proptest::prelude::*;

fn tag(number: u16) -> Tag {
    Tag { bytes: 60, input: number, way: number, strip: 0, home: Home::Ring }
}

proptest! {
    #[test]
    fn entries_leave_in_the_order_in_which_they_came(
        ops in prop::collection::vec(any::<bool>(), 0..300),
    ) {
        let mut class = Class::new();
        let mut model = VecDeque::new();
        for (number, push) in (0..).zip(ops) {
            if push && class.common_room(COMMON_FRAMES_MAX) > 0 {
                class.common.push(number, tag(number));
                model.push_back(number);
            } else {
                prop_assert_eq!(class.common.head().map(|(buf, _)| *buf), model.front().copied());
                prop_assert_eq!(class.common.pop().map(|(buf, _)| buf), model.pop_front());
            }
            prop_assert_eq!(class.common.len() as usize, model.len());
            prop_assert_eq!(class.is_idle(), model.is_empty());
            let all: Vec<u16> = class.common.tags().map(|tag| tag.input).collect();
            prop_assert_eq!(all, Vec::from(model.clone()));
        }
    }
}

#[test]
fn nobody_enters_a_common_queue_while_a_source_has_a_queue_of_its_own() {
    let mut class = Class::new();
    class.common.push(0, tag(0));
    assert_eq!((class.common_room(4), class.common_room(1), class.common_room(0)), (3, 0, 0));
    class.ring = 7;
    assert_eq!(class.common_room(4), 0);
    assert!(!class.is_idle());
}

#[test]
fn a_frame_of_the_live_drivers_takes_24_bytes() {
    // A handle of 16 bytes with a pointer in it, as the pool's is.
    assert_eq!(size_of::<Entry<(&u8, u32)>>(), 24);
}
