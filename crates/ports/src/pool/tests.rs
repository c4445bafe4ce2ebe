use super::*;

fn pool(slots: u32) -> Pool {
    Pool::new(PoolConfig { slots, slot_size: 2048, populate: false }).unwrap()
}

#[test]
fn a_frame_is_read_back_as_written() {
    let mut pool = pool(2);
    let mut slot = pool.take().unwrap();
    slot.bytes_mut()[42..342].fill(7);
    let buf = slot.freeze(42, 300);
    assert_eq!(buf.bytes(), [7; 300]);
    assert_eq!(buf.head(), [7; 128]);
    assert_eq!(buf.size(), 300);
    pool.give_back(buf);
    assert_eq!((pool.used(), pool.free(), pool.used_max()), (0, 2, 1));
}

#[test]
fn slots_are_counted_and_come_back() {
    let mut pool = pool(3);
    let mut taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!((taken.len(), pool.used(), pool.free()), (3, 3, 0));
    pool.cancel(taken.pop().unwrap());
    assert_eq!((pool.used(), pool.free()), (2, 1));
    for slot in taken {
        pool.give_back(slot.freeze(0, 60));
    }
    assert_eq!((pool.used(), pool.used_max()), (0, 3));
}

#[test]
fn slots_do_not_overlap() {
    let mut pool = pool(4);
    let bufs: Vec<_> = (0u8..4)
        .map(|n| {
            let mut slot = pool.take().unwrap();
            slot.bytes_mut().fill(n);
            let size = slot.size();
            slot.freeze(0, size)
        })
        .collect();
    for (n, buf) in (0u8..).zip(&bufs) {
        assert!(buf.bytes().iter().all(|&byte| byte == n));
    }
    bufs.into_iter().for_each(|buf| pool.give_back(buf));
}

#[test]
fn a_handle_outlives_its_pool() {
    let mut pool = pool(1);
    let mut slot = pool.take().unwrap();
    slot.bytes_mut()[0] = 9;
    let buf = slot.freeze(0, 1);
    drop(pool);
    assert_eq!(buf.bytes(), [9]);
}

#[test]
#[should_panic(expected = "another pool")]
fn a_foreign_handle_is_refused() {
    let (mut a, mut b) = (pool(1), pool(1));
    let buf = a.take().unwrap().freeze(0, 60);
    b.give_back(buf);
}

#[test]
#[should_panic(expected = "lies in the slot")]
fn a_frame_past_the_slot_is_refused() {
    let mut pool = pool(1);
    let _buf = pool.take().unwrap().freeze(2000, 49);
}

#[test]
fn the_slot_size_follows_the_mtu() {
    assert_eq!(PoolConfig::for_mtu(1, 1500).slot_size, 2048 + 64);
    assert_eq!(PoolConfig::for_mtu(1, 9000).slot_size, 9152);
    assert_eq!(PoolConfig::for_mtu(1, 65_535).slot_size, 0xffc0);
}

#[test]
fn a_handle_says_what_became_of_its_tag() {
    use sluice_base::VlanTag;
    let mut pool = Pool::new(PoolConfig { slots: 1, slot_size: 64, populate: false }).unwrap();
    let mut buf = pool.take().unwrap().freeze(0, 60);
    assert_eq!(buf.vlan_tag(), VlanTag::AsIs);
    for tci in (0..=u16::MAX).filter(|tci| tci & 0xfff != 0xfff) {
        buf = buf.with_vlan_tag(VlanTag::TakenOff(tci));
        assert_eq!(buf.vlan_tag(), VlanTag::TakenOff(tci));
    }
    buf = buf.with_vlan_tag(VlanTag::NotAllowed);
    assert_eq!(buf.vlan_tag(), VlanTag::NotAllowed);
    buf = buf.with_vlan_tag(VlanTag::AsIs);
    assert_eq!(buf.vlan_tag(), VlanTag::AsIs);
    pool.give_back(buf);
    let again = pool.take().unwrap().freeze(0, 60);
    assert_eq!(again.vlan_tag(), VlanTag::AsIs, "a slot forgets");
    pool.give_back(again);
}
