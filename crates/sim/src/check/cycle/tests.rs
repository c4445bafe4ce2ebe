use super::find;

#[test]
fn a_chain_is_no_ring() {
    assert_eq!(find(&[vec![1], vec![2], vec![]]), None);
    assert_eq!(find(&[]), None);
}

#[test]
fn a_ring_is_found_behind_a_chain() {
    let mut ring = find(&[vec![1], vec![2], vec![4, 3], vec![1], vec![]]).unwrap();
    ring.sort_unstable();
    assert_eq!(ring, [1, 2, 3]);
}

#[test]
fn a_link_may_wait_for_itself() {
    assert_eq!(find(&[vec![], vec![1]]), Some(vec![1]));
}
