use super::*;

#[test]
fn a_full_batch_gives_the_item_back() {
    let mut batch = Batch::with_limit(1);
    assert_eq!(batch.push(1), Ok(()));
    assert_eq!(batch.push(2), Err(Full(2)));
    assert_eq!(batch.drain().collect::<Vec<_>>(), [1]);
    assert_eq!(batch.room(), 1);
}

#[test]
fn buf_head_cut_at_limit_size_unchanged() {
    let long = [0u8; 200];
    assert_eq!((&long[..]).head().len(), <&[u8] as Buf>::HEAD_SIZE_MAX);
    assert_eq!((&long[..]).size(), 200);
}

#[test]
fn batch_refill_bounded_by_request_source_and_room() {
    let mut from = Batch::with_limit(8);
    for item in 0..8 {
        assert_eq!(from.push(item), Ok(()));
    }
    let mut to = Batch::with_limit(4);
    assert_eq!(to.refill(&mut from, 3), 3);
    assert_eq!((to.as_slice(), from.len()), (&[5, 6, 7][..], 5));
    assert_eq!(to.refill(&mut from, 3), 1);
    assert_eq!((to.as_slice(), from.as_slice()), (&[5, 6, 7, 4][..], &[0, 1, 2, 3][..]));
    let mut rest = Batch::with_limit(9);
    assert_eq!(rest.refill(&mut from, 9), 4);
    assert_eq!(rest.refill(&mut from, 9), 0);
    assert!(from.is_empty());
}
