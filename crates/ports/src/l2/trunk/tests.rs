use sluice_base::{Mac, Priority, PriorityMask, Prng, VlanTag};
use sluice_switch::Egress;
use sluice_wire::mac_control::Message;

use super::pauses::{Heard, Pauses};
use super::sort::{Place, Sorter};
use super::*;

const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn frame(rest: &[u8]) -> Vec<u8> {
    let mut frame = [&ADDRESSES[..], rest].concat();
    frame.resize(60, 0);
    frame
}

fn sorter(vlans: &[Vlan]) -> Sorter {
    let mut sorter = Sorter::new();
    vlans.iter().enumerate().for_each(|(state, vlan)| sorter.add(state, *vlan));
    sorter
}

fn to(vlan: usize, tag: VlanTag) -> Place {
    Place::Vlan { vlan, tag, tagless: matches!(tag, VlanTag::TakenOff(_)) }
}

const REFUSED: VlanTag = VlanTag::NotAllowed;

/// Each kind of device with each kind of tag: port, and the tag as the switch gets it.
#[test]
fn every_tag_at_every_kind_of_device() {
    let access = sorter(&[Vlan::Access]);
    let trunk = sorter(&[Vlan::Tagged(10), Vlan::Tagged(20)]);
    let native = sorter(&[Vlan::Tagged(10), Vlan::Native(20)]);
    let off = VlanTag::TakenOff;
    let as_is = VlanTag::AsIs;
    let table: [(&str, &[u8], [Place; 3]); 10] = [
        ("none", &[8, 0], [to(0, as_is), to(0, REFUSED), to(1, as_is)]),
        (
            "priority 5",
            &[0x81, 0, 0xa0, 0],
            [to(0, off(0xa000)), to(0, REFUSED), to(1, off(0xa000))],
        ),
        ("VLAN 10", &[0x81, 0, 0, 10], [to(0, REFUSED), to(0, off(10)), to(0, off(10))]),
        (
            "VLAN 20, 7",
            &[0x81, 0, 0xe0, 20],
            [to(0, REFUSED), to(1, off(0xe014)), to(1, off(0xe014))],
        ),
        (
            "VLAN 20, DEI",
            &[0x81, 0, 0x10, 20],
            [to(0, REFUSED), to(1, off(0x1014)), to(1, off(0x1014))],
        ),
        ("VLAN 30", &[0x81, 0, 0, 30], [to(0, REFUSED), to(0, REFUSED), to(1, REFUSED)]),
        ("VLAN 4095", &[0x81, 0, 0xf, 0xff], [to(0, REFUSED), to(0, REFUSED), to(1, REFUSED)]),
        ("service VLAN 10", &[0x88, 0xa8, 0, 10], [to(0, REFUSED), to(0, REFUSED), to(1, REFUSED)]),
        (
            "20 in 10",
            &[0x81, 0, 0, 10, 0x81, 0, 0, 20],
            [to(0, REFUSED), to(0, off(10)), to(0, off(10))],
        ),
        (
            "flow control of nobody",
            &[0x88, 0x08, 0, 9],
            [to(0, as_is), to(0, REFUSED), to(1, as_is)],
        ),
    ];
    for (name, rest, expected) in table {
        let whole = frame(rest);
        for (sorter, expected) in [&access, &trunk, &native].into_iter().zip(expected) {
            assert_eq!(sorter.place(&whole, None), expected, "{name}, in the frame");
        }
        // As the kernel gives it: the tag beside the frame.
        let Some(tag) = rest
            .first_chunk()
            .filter(|tag: &&[u8; 4]| sort::is_tag(u16::from_be_bytes([tag[0], tag[1]])))
        else {
            continue;
        };
        let without = [&ADDRESSES[..], &whole[16..]].concat();
        for (sorter, expected) in [&access, &trunk, &native].into_iter().zip(expected) {
            assert_eq!(sorter.place(&without, Some(*tag)), expected, "{name}, beside the frame");
        }
    }
}

#[test]
fn trunk_pfc_reaches_all_ports_truncated_reaches_first() {
    let trunk = sorter(&[Vlan::Tagged(10), Vlan::Tagged(20)]);
    let source = Mac([2, 0, 0, 0, 0, 9]);
    let mut bytes = [0; 60];
    let message = Message::Pfc { enabled: PriorityMask(8), quanta: [9; 8] };
    message.emit(source, &mut bytes);
    assert_eq!(trunk.place(&bytes, None), Place::Everyone(source, message));
    // A tag makes it an ordinary frame.
    assert_eq!(trunk.place(&bytes, Some([0x81, 0, 0, 10])), to(0, VlanTag::TakenOff(10)));
    for broken in [&bytes[..15], &bytes[..13], &bytes[..0]] {
        assert_eq!(trunk.place(broken, None), to(0, VlanTag::AsIs), "the switch says what it is");
    }
}

#[test]
fn a_vlan_that_is_closed_is_nobodys() {
    let mut native = sorter(&[Vlan::Native(10), Vlan::Tagged(20)]);
    native.remove(0, Vlan::Native(10), Some(1));
    for tag in [[0x81, 0, 0, 10], [0x81, 0, 0, 0]] {
        assert_eq!(native.place(&frame(&[]), Some(tag)), to(1, REFUSED));
    }
    assert_eq!(native.place(&frame(&[]), None), to(1, REFUSED));
    native.add(0, Vlan::Native(30));
    assert_eq!(native.place(&frame(&[]), Some([0x81, 0, 0, 30])), to(0, VlanTag::TakenOff(30)));
    assert_eq!(native.place(&frame(&[]), None), to(0, VlanTag::AsIs));
}

#[test]
#[should_panic(expected = "is no VLAN")]
fn a_reserved_number_is_no_vlan() {
    sorter(&[Vlan::Tagged(4095)]);
}

#[test]
fn egress_vlan_tag_detected_at_any_header_split() {
    let mut pool = Pool::new(crate::PoolConfig { slots: 1, slot_size: 256, populate: false });
    let pool = pool.as_mut().unwrap();
    for (ethertype, expected) in [([0x81, 0], true), ([0x88, 0xa8], true), ([8, 0], false)] {
        let whole = frame(&ethertype);
        for header_size in 0..20 {
            let mut slot = pool.take().unwrap();
            let payload = &whole[header_size..];
            slot.bytes_mut()[..payload.len()].copy_from_slice(payload);
            let buf = slot.freeze(0, payload.len());
            let egress = Egress {
                header: &whole[..header_size],
                buf: Some(&buf),
                strip: 0,
                size: 60,
                first: 0,
                priority: Priority::ZERO,
                tunnel: None,
            };
            assert_eq!(has_tag(&egress), expected, "{ethertype:x?} behind {header_size}");
            pool.give_back(buf);
        }
    }
}

/// The neighbour at the other end: its last message for each priority.
fn tell(paused: &mut PriorityMask, message: Option<Message>) {
    let Some(Message::Pfc { enabled, quanta }) = message else { return };
    for priority in Priority::all().filter(|p| enabled.contains(*p)) {
        if quanta[priority.index()] > 0 {
            paused.insert(priority);
        } else {
            paused.remove(priority);
        }
    }
}

/// For any messages of the ports in any order, the neighbour pauses a priority that one of them
/// requests and no other; and a port's repetition repeats all pauses that stand.
#[test]
fn the_wire_pauses_what_any_port_asks_for() {
    for seed in 0..200 {
        let mut rng = Prng::new(seed);
        let vlans = 1 + usize::try_from(rng.below(4)).unwrap();
        let pausable = PriorityMask(u8::try_from(rng.below(256)).unwrap());
        let mut pauses = Pauses::new(pausable);
        (0..vlans).for_each(|vlan| pauses.add(vlan));
        let (mut asked, mut held, mut wire) = (vec![0_u8; vlans], 0, PriorityMask::NONE);
        for step in 0..100 {
            let vlan = usize::try_from(rng.below(vlans as u64)).unwrap();
            match rng.below(8) {
                0 | 1 => {
                    held = u8::try_from(rng.below(256)).unwrap();
                    tell(&mut wire, pauses.hold(PriorityMask(held)));
                    held &= pausable.0;
                }
                2 => {
                    asked[vlan] = 0;
                    tell(&mut wire, pauses.remove(vlan));
                    pauses.add(vlan);
                }
                _ => {
                    let enabled = u8::try_from(rng.below(256)).unwrap();
                    let on = enabled & u8::try_from(rng.below(256)).unwrap();
                    asked[vlan] = asked[vlan] & !enabled | on;
                    let quanta = std::array::from_fn(|p| u16::from(on >> p & 1) * 77);
                    let said = Message::Pfc { enabled: PriorityMask(enabled), quanta };
                    let message = pauses.merge(vlan, &said);
                    if on != 0 {
                        // This alone pauses again the priorities whose pause had run out.
                        wire = PriorityMask::NONE;
                    }
                    tell(&mut wire, message);
                }
            }
            let expected = asked.iter().fold(held, |sum, one| sum | one);
            assert_eq!(wire, PriorityMask(expected), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn of_what_was_heard_the_later_word_counts() {
    let source = Mac([2, 0, 0, 0, 0, 9]);
    let pfc = |enabled, quanta| Message::Pfc { enabled: PriorityMask(enabled), quanta };
    let first = Heard::after(None, source, &pfc(0b0110, [0, 10, 20, 0, 0, 0, 0, 0]));
    let both = Heard::after(Some(first), source, &pfc(0b1100, [0, 0, 0, 30, 0, 0, 0, 0]));
    assert_eq!(both.message(), pfc(0b1110, [0, 10, 0, 30, 0, 0, 0, 0]));
    let whole = Heard::after(Some(both), source, &Message::Pause { quanta: 7 });
    assert_eq!(whole.message(), pfc(0xff, [7; 8]));
}
