use std::net::SocketAddr;

use super::*;

fn flow(from: SocketAddr, to: SocketAddr) -> FlowEntry {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { unreachable!("IPv4") };
    let mut tuple = [0; TUPLE_SIZE];
    tuple[..4].copy_from_slice(&from.ip().octets());
    tuple[4..8].copy_from_slice(&to.ip().octets());
    tuple[8..10].copy_from_slice(&from.port().to_be_bytes());
    tuple[10..12].copy_from_slice(&to.port().to_be_bytes());
    FlowEntry::new(false, tuple)
}

/// Needs no rights; says aloud where the kernel has no `udp_diag`.
#[test]
fn sent_datagram_shows_as_used_room() {
    let mut diag = match Diag::open() {
        Ok(diag) => diag,
        Err(error) => return eprintln!("SKIPPED sent_datagram_shows_as_used_room: {error}"),
    };
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let flow = flow(sender.local_addr().unwrap(), receiver.local_addr().unwrap());
    let empty = diag.room(&flow).unwrap().unwrap();
    assert!(empty.used == 0 && empty.limit > 0 && empty.cookie != 0);
    sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
    let one = diag.room(&flow).unwrap().unwrap();
    assert!(one.used >= 1000 && one.used < 8192, "its truesize: {}", one.used);
    assert_eq!((one.cookie, one.limit), (empty.cookie, empty.limit));
    receiver.recv(&mut [0; 1000]).unwrap();
    assert_eq!(diag.room(&flow).unwrap().unwrap().used, 0, "drained");
    drop(receiver);
    assert_eq!(diag.room(&flow).unwrap(), None);
}

#[test]
fn connected_socket_is_found_before_bound_one() {
    let Ok(mut diag) = Diag::open() else { return };
    let (one, other) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (one, other) = (one.unwrap(), other.unwrap());
    let (from, to) = (one.local_addr().unwrap(), other.local_addr().unwrap());
    let before = diag.room(&flow(from, to)).unwrap();
    assert!(before.is_some());
    other.connect("127.0.0.1:9").unwrap();
    assert_eq!(diag.room(&flow(from, to)).unwrap(), None, "it hears only that one");
    other.connect(from).unwrap();
    assert_eq!(diag.room(&flow(from, to)).unwrap(), before);
}

fn reply(kind: u16, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(HEADER_SIZE + body.len()).unwrap();
    [&size.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 2], &7_u32.to_ne_bytes(), &[0; 4], body]
        .concat()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let size = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [&size.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn memory() -> Vec<u8> {
    let words: Vec<u8> = [11_u32, 22, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    attribute(MEMORY, &words)
}

#[test]
fn answer_is_read_or_refused() {
    let mut head = [0; MESSAGE_SIZE];
    head[COOKIE..COOKIE + 8].copy_from_slice(&5_u64.to_ne_bytes());
    let other = attribute(8, &[1]);
    let whole = reply(BY_FAMILY, &[&head[..], &other, &memory()].concat());
    let found = answer(&whole, 7).unwrap().unwrap();
    assert_eq!(found, Some(SocketRoom { cookie: 5, used: 11, limit: 22 }));
    assert!(answer(&whole, 8).is_none(), "another question's");
    let error = |number: i32| answer(&reply(ERROR, &number.to_ne_bytes()), 7);
    assert!(matches!(error(-libc::ENOENT), Some(Ok(None))));
    assert!(matches!(error(-libc::EINVAL), Some(Err(_))));
    assert!(matches!(error(0), Some(Err(_))));
    assert!(matches!(error(i32::MIN), Some(Err(_))));
    assert!(answer(&reply(3, &[0; 4]), 7).is_none(), "of another kind");
    let without = reply(BY_FAMILY, &[&head[..], &other].concat());
    assert!(answer(&without, 7).unwrap().is_err());
}

#[test]
fn answer_that_is_cut_off_tells_nothing() {
    let whole = reply(BY_FAMILY, &[&[0; MESSAGE_SIZE][..], &memory()].concat());
    for size in 0..whole.len() {
        let read = answer(&whole[..size], 7);
        assert!(!matches!(read, Some(Ok(_))), "{size}");
    }
    let mut endless = reply(BY_FAMILY, &[&[0; MESSAGE_SIZE][..], &[0; 8]].concat());
    assert!(answer(&endless, 7).unwrap().is_err(), "an attribute of no size");
    endless[0] = 0;
    assert!(answer(&endless, 7).is_none(), "smaller than its header");
}
