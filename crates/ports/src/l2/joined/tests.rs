use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sluice_testkit::unfinished::{Carries, Unfinished};

use super::*;

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Two sockets that keep messages apart, as a packet socket does.
fn sockets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None).unwrap()
}

fn series(data: usize, each: u16, carries: Carries) -> Unfinished {
    Unfinished::new(carries, ADDRESSES, data, Some(each))
}

fn rx_frame(bytes: &[u8], tag: Option<[u8; 4]>) -> RxFrame<'_> {
    let size = bytes.len();
    RxFrame { bytes: &bytes[..128], size, tag, checksum_open: true, is_in_socket: true }
}

fn put(socket: &OwnedFd, net_header: &[u8], packet: &[u8]) {
    let parts = [IoSlice::new(net_header), IoSlice::new(packet)];
    rustix::io::writev(socket, &parts).unwrap();
}

fn all(joined: &mut Joined) -> Vec<Vec<u8>> {
    let mut to = vec![0; 2_048];
    std::iter::from_fn(|| Some(joined.next(&mut to)?.map(|size| to[..size].to_vec()).unwrap()))
        .collect()
}

/// The fields of a datagram that tell of its checksum.
fn without_sum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[40..42].fill(0);
    frame
}

#[test]
fn joined_datagrams_come_apart_as_sent() {
    let (ours, theirs) = sockets();
    for (data, each) in [(7_200, 1_000), (7_000, 1_000), (1_001, 1_000), (60_000, 1_400)] {
        let sent = series(data, each, Carries::Udp4);
        let (packet, header) = (sent.frame(), net_header_of_series(each, 34));
        assert_eq!(header, sent.header()[..NET_HEADER_SIZE], "little-endian machines");
        for sums in [true, false] {
            let mut joined = Joined::new(sums);
            put(&theirs, &header, &packet);
            assert!(joined.fetch(ours.as_fd(), &rx_frame(&packet, None)));
            let waiting = joined.add_to(HeldBack::default());
            let expected = sent.finished();
            assert_eq!(waiting.frames, expected.len() as u64);
            assert_eq!(waiting.bytes, expected.iter().map(Vec::len).sum::<usize>() as u64);
            let expected: Vec<_> = match sums {
                true => expected,
                false => expected.into_iter().map(without_sum).collect(),
            };
            assert!(all(&mut joined) == expected, "{data} by {each}, checksums: {sums}");
            assert_eq!(joined.add_to(HeldBack::default()).frames, 0);
        }
    }
}

#[test]
fn joined_datagrams_tag_is_put_back() {
    let (ours, theirs) = sockets();
    let sent = series(3_000, 1_000, Carries::Udp4);
    put(&theirs, &net_header_of_series(1_000, 34), &sent.frame());
    let mut joined = Joined::new(true);
    let tag = [0x81, 0, 0x60, 5];
    assert!(joined.fetch(ours.as_fd(), &rx_frame(&sent.frame(), Some(tag))));
    let expected: Vec<_> =
        sent.finished().iter().map(|frame| [&frame[..12], &tag, &frame[12..]].concat()).collect();
    assert!(all(&mut joined) == expected);
}

#[test]
fn packet_that_is_no_series_is_not_cut() {
    let (ours, theirs) = sockets();
    let sent = series(7_200, 1_000, Carries::Udp4);
    let (packet, right) = (sent.frame(), net_header_of_series(1_000, 34));
    let with = |at: usize, value: u8| {
        let mut header = right;
        header[at] = value;
        header
    };
    // No series, one of TCP, datagrams of no bytes: what the packet says inside does not count.
    let headers = [[0; NET_HEADER_SIZE], with(1, 1), with(1, 0x85), net_header_of_series(0, 34)];
    for header in headers {
        let mut joined = Joined::new(true);
        put(&theirs, &header, &packet);
        assert!(!joined.fetch(ours.as_fd(), &rx_frame(&packet, None)), "{header:?}");
        assert!(joined.next(&mut [0; 2_048]).is_none());
    }
    let tcp = series(7_200, 1_000, Carries::Tcp4);
    put(&theirs, &right, &tcp.frame());
    assert!(!Joined::new(true).fetch(ours.as_fd(), &rx_frame(&tcp.frame(), None)));
}

#[test]
fn packet_without_slot_in_ring_is_passed_over() {
    let (ours, theirs) = sockets();
    let stale = series(5_000, 1_000, Carries::Udp4);
    let mut sent = series(3_000, 1_000, Carries::Udp4);
    sent.ident = 7;
    let header = net_header_of_series(1_000, 34);
    put(&theirs, &header, &stale.frame());
    put(&theirs, &header, &sent.frame());
    let mut joined = Joined::new(true);
    assert!(joined.fetch(ours.as_fd(), &rx_frame(&sent.frame(), None)));
    assert!(all(&mut joined) == sent.finished());
    assert!(!joined.fetch(ours.as_fd(), &rx_frame(&sent.frame(), None)), "there is none");
}

#[test]
fn frame_larger_than_room_is_refused_alone() {
    let (ours, theirs) = sockets();
    let sent = series(2_500, 1_000, Carries::Udp4);
    put(&theirs, &net_header_of_series(1_000, 34), &sent.frame());
    let mut joined = Joined::new(true);
    assert!(joined.fetch(ours.as_fd(), &rx_frame(&sent.frame(), None)));
    let mut small = [0; 1_000];
    let sizes: Vec<_> = std::iter::from_fn(|| joined.next(&mut small)).collect();
    assert_eq!(sizes, [Err(()), Err(()), Ok(542)]);
}
