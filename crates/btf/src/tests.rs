use super::*;

/// A BTF of an integer, a structure of one member, and `enum colour { RED = 1, BLUE = 7 }`.
fn sample() -> Vec<u8> {
    let strings = b"\0int\0thing\0colour\0RED\0BLUE\0";
    let at = |word: &str| {
        let found = strings.windows(word.len()).position(|bytes| bytes == word.as_bytes());
        u32::try_from(found.unwrap()).unwrap()
    };
    let types = [
        [at("int"), 1 << 24, 4, 32].as_slice(),
        &[at("thing"), 4 << 24 | 1, 4, at("int"), 1, 0],
        &[at("colour"), 6 << 24 | 2, 4, at("RED"), 1, at("BLUE"), 7],
    ]
    .concat();
    let of_types = u32::try_from(4 * types.len()).unwrap();
    let of_strings = u32::try_from(strings.len()).unwrap();
    let header = [MAGIC | 1 << 16, 24, 0, of_types, of_types, of_strings];
    let words = header.iter().chain(&types).flat_map(|word| word.to_ne_bytes());
    words.chain(strings.iter().copied()).collect()
}

fn enumeration(bytes: &[u8], name: &str) -> Option<BTreeMap<u32, String>> {
    Btf::parse(bytes)?.enumeration(name)
}

#[test]
fn an_enumeration_is_found_behind_other_kinds() {
    let colours = enumeration(&sample(), "colour").unwrap();
    assert_eq!(colours, BTreeMap::from([(1, "RED".to_owned()), (7, "BLUE".to_owned())]));
    assert_eq!(enumeration(&sample(), "thing"), None, "a structure is none");
    assert_eq!(enumeration(&sample(), "flavour"), None);
}

#[test]
fn structure_member_found_with_offset_and_type() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    let thing = btf.number(Kind::Struct, "thing").unwrap();
    assert_eq!(thing, 2);
    assert_eq!(btf.member(thing, "int"), Some(Member { offset: 0, type_number: 1 }));
    assert_eq!(btf.member(thing, "RED"), None);
    assert_eq!(btf.number(Kind::Func, "thing"), None, "it is no function");
}

#[test]
fn unknown_kind_hides_only_later_types() {
    let mut bytes = sample();
    // The kind of `thing`, behind the header and the 16 bytes of `int`.
    let kind = HEADER_SIZE + 16 + 4 + if cfg!(target_endian = "little") { 3 } else { 0 };
    bytes[kind] = 0x1f;
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offsets, [0, 16]);
    assert_eq!(btf.enumeration("colour"), None);
}

#[test]
fn btf_truncated_gives_none_corrupt_never_panics() {
    let whole = sample();
    for length in 0..whole.len() - 1 {
        assert_eq!(enumeration(&whole[..length], "colour"), None, "{length} bytes");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        _ = enumeration(&bytes, "colour"); // The result does not matter; it must not panic.
    }
}

/// The running kernel's reasons have the names that tests and documents use.
#[test]
fn the_kernel_names_its_reasons() {
    let Ok(bytes) = running_kernel() else {
        eprintln!("SKIPPED the_kernel_names_its_reasons: this kernel has no BTF");
        return;
    };
    let reasons = enumeration(&bytes, "skb_drop_reason").unwrap();
    for name in ["FULL_RING", "SOCKET_RCVBUFF"] {
        let name = format!("SKB_DROP_REASON_{name}");
        assert!(reasons.values().any(|reason| *reason == name), "{name} in {reasons:?}");
    }
}
