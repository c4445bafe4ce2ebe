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
fn a_head_is_cut_at_its_limit_and_the_size_is_not() {
    let long = [0u8; 200];
    assert_eq!((&long[..]).head().len(), <&[u8] as Buf>::HEAD_SIZE_MAX);
    assert_eq!((&long[..]).size(), 200);
}
