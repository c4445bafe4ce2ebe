use super::*;

/// A message of this type with a body.
fn of(kind: u16, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(HEADER_SIZE + body.len()).unwrap();
    let mut message = size.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.resize(HEADER_SIZE, 0);
    message.extend(body);
    message.resize(message.len().next_multiple_of(ALIGN), 0);
    message
}

#[test]
fn messages_are_taken_one_by_one() {
    let all = [of(20, &[1, 2, 3]), of(NLMSG_DONE, &[0; 4])].concat();
    let mut rest = &all[..];
    assert_eq!(message(&mut rest), Some((20, &[1, 2, 3][..])));
    assert_eq!(message(&mut rest), Some((NLMSG_DONE, &[0; 4][..])));
    assert_eq!(message(&mut rest), None);
}

#[test]
fn cut_messages_and_attributes_are_none() {
    let whole = of(20, &[8, 0, 2, 0, 9, 0, 0, 0]);
    for end in 0..whole.len() {
        assert_eq!(message(&mut &whole[..end]), None, "{end}");
    }
    let attributes = [6, 0, 1, 0, 7, 7, 0, 0, 8, 0, 2, 0x80, 9, 0, 0, 0];
    assert_eq!(attribute(&attributes, 2), Some(&[9, 0, 0, 0][..]), "flags of a type are no type");
    assert_eq!(attribute(&attributes, 3), None);
    for end in 0..attributes.len() {
        assert_eq!(attribute(&attributes[..end], 2), None, "{end}");
    }
    assert_eq!(attribute(&[0; 8], 2), None, "an attribute shorter than its header");
}

#[test]
fn kernel_resolves_its_netdev_family() {
    // Reading needs no privilege.
    let mut netdev = Generic::open().unwrap();
    let answer = netdev.ask(NAPI_GET, NLM_F_DUMP, &[]).unwrap();
    assert!(answer.iter().all(|message| number(message, NAPI_ID).is_some()));
}
