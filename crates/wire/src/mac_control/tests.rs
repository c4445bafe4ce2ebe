use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const SRC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn emitted(message: Message) -> [u8; FRAME_SIZE] {
    let mut out = [0xee; FRAME_SIZE];
    message.emit(SRC, &mut out);
    out
}

#[test]
fn pause_frame_emits_exact_bytes() {
    let mut expected = [0; FRAME_SIZE];
    expected[..18].copy_from_slice(&[
        0x01, 0x80, 0xc2, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x01, 0x88, 0x08, 0x00, 0x01, 0x12, 0x34,
    ]);
    assert_eq!(emitted(Message::Pause { quanta: 0x1234 }), expected);
}

#[test]
fn pfc_frame_emits_exact_bytes() {
    let mut quanta = [0; 8];
    quanta[3] = 0xffff;
    let mut expected = [0; FRAME_SIZE];
    expected[..18].copy_from_slice(&[
        0x01, 0x80, 0xc2, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x01, 0x88, 0x08, 0x01, 0x01, 0x00, 0x08,
    ]);
    expected[24..26].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(emitted(Message::Pfc { enabled: PriorityMask(1 << 3), quanta }), expected);
}

#[test]
fn the_parameters_of_an_opcode_must_be_there() {
    for (opcode, size_min) in [(0x0001, 4), (0x0101, 20), (0x0002, 2)] {
        let mut bytes = [0; 20];
        bytes[..2].copy_from_slice(&u16::to_be_bytes(opcode));
        for size in 0..=20 {
            let parsed = Message::parse(&bytes[..size]);
            assert_eq!(parsed.is_ok(), size >= size_min, "opcode {opcode:#06x} size {size}");
        }
    }
}

#[test]
fn pfc_enable_vector_reserved_half_ignored() {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&[0x01, 0x01, 0xff, 0x81]);
    let expected = Message::Pfc { enabled: PriorityMask(0x81), quanta: [0; 8] };
    assert_eq!(Message::parse(&bytes), Ok(expected));
}

fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        any::<u16>().prop_map(|quanta| Message::Pause { quanta }),
        any::<(u8, [u16; 8])>()
            .prop_map(|(mask, quanta)| Message::Pfc { enabled: PriorityMask(mask), quanta }),
        any::<u16>()
            .prop_filter("a known opcode", |opcode| !matches!(opcode, 0x0001 | 0x0101))
            .prop_map(|opcode| Message::Unknown { opcode }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(message in messages()) {
        let bytes = emitted(message);
        let frame = ethernet::Frame::new_checked(&bytes).unwrap();
        prop_assert_eq!((frame.dst(), frame.src()), (Mac::PAUSE, SRC));
        prop_assert_eq!(frame.ethertype(), EtherType::MAC_CONTROL);
        prop_assert_eq!(Message::parse(frame.payload()), Ok(message));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        prop_assert!(Message::parse(&bytes).is_ok() || bytes.len() < 20);
    }
}
