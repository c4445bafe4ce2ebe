use proptest::prelude::*;
use sluice_base::Priority;

use super::*;

/// A record of a frame of these bytes, scattered into `pieces` pieces behind its head.
fn scattered(bytes: &[u8], pieces: usize) -> Box<Record> {
    let mut record = Box::new(Record::EMPTY);
    let (head, rest) = bytes.split_at(bytes.len().min(HEAD_SIZE));
    record.head[..head.len()].copy_from_slice(head);
    for piece in rest.chunks(rest.len().div_ceil(pieces).max(1)) {
        let size = u32::try_from(piece.len()).unwrap();
        record.pieces[usize::from(record.count)] = Piece { at: piece.as_ptr(), size };
        record.count += 1;
    }
    record
}

proptest! {
    #[test]
    fn a_scattered_frame_is_sent_whole(
        bytes in prop::collection::vec(any::<u8>(), 1..4_000),
        pieces in 1..=PIECES_MAX,
        header in prop::collection::vec(any::<u8>(), 0..60),
        strip in 0_usize..200,
        behind in 0_usize..300,
    ) {
        let mut record = scattered(&bytes, pieces);
        let size = u16::try_from(bytes.len()).unwrap();
        let left = bytes.len() - behind.min(bytes.len() - 1);
        let strip = strip.min(left);
        // SAFETY: the record and the bytes outlive the handle.
        let mut buf = unsafe { FrameBuf::in_guest(NonNull::from(&mut *record), 7, size) };
        prop_assert_eq!(buf.head(), &bytes[..bytes.len().min(HEAD_SIZE)]);
        // Bytes behind the packet of an underlay are cut off.
        buf.truncate(u32::try_from(left).unwrap());
        prop_assert_eq!(buf.head(), &bytes[..left.min(HEAD_SIZE)]);
        let egress = Egress {
            header: &header,
            buf: Some(&buf),
            strip: u16::try_from(strip).unwrap(),
            size: 0,
            first: 0,
            priority: Priority::ZERO,
            tunnel: None,
        };
        let mut sent = vec![0; frame_size(&egress)];
        gather(&egress, 0, &mut sent);
        prop_assert_eq!(&sent[..header.len()], &header[..]);
        prop_assert_eq!(&sent[header.len()..], &bytes[strip..left]);
        prop_assert_eq!((buf.guest_number(), buf.pool_slot()), (Some(7), None));
    }
}

#[test]
#[should_panic(expected = "no reference into a guest's memory")]
fn guest_memory_frame_bytes_reference_panics() {
    let mut record = scattered(&[1, 2, 3], 1);
    // SAFETY: as above.
    let buf = unsafe { FrameBuf::in_guest(NonNull::from(&mut *record), 0, 3) };
    let _ = buf.bytes();
}
