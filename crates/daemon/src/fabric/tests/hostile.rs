//! Strangers, copies and wrong numbers, and their effect on existing members.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use super::*;

fn at(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(127, 0, 9, host).into(), port)
}

/// Connects from the address of a host.
fn connect_from(host: u8, to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &at(host, 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

#[test]
fn a_forged_datagram_declares_nobody_dead() {
    let folder = Folder::new("forged");
    certificates(&folder, &["h1", "h2", "h3"]);
    let port = free_port();
    let [h1, h2] = [1, 2].map(|own| start(&folder, &plan(&folder, own, 3, port)));
    connected(&[&h1], &["h2"]);
    wait_for("the two know that they are alive", || {
        member(&h1, "h2").health == "alive" && member(&h2, "h1").health == "alive"
    });
    let events = h1.watch();
    // An Announce in the name of h2, with the highest incarnation, from its address, which was once
    // enough; and all other kinds of datagrams.
    let mut announce = Vec::new();
    announce.extend(2_u16.to_be_bytes());
    announce.extend(u64::MAX.to_be_bytes());
    announce.extend([0; 4 + 2]);
    announce.extend(1_u16.to_be_bytes());
    announce.extend([0; 8 + 4]);
    announce.push(7);
    assert_eq!(announce.len(), 31);
    // From the address of a third host: h2 itself uses its own.
    let third = UdpSocket::bind(at(3, port)).unwrap();
    for size in 0..64 {
        third.send_to(&announce[..announce.len().min(size)], at(1, port)).unwrap();
        third.send_to(&announce, at(2, port)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(
        (member(&h1, "h2").health.as_str(), member(&h2, "h1").health.as_str()),
        ("alive", "alive")
    );
    let told: Vec<_> = events.try_iter().collect();
    let is_bad =
        |line: &Answer| matches!(line, Answer::Event(row) if row.event.starts_with("host-"));
    assert!(!told.iter().any(is_bad), "{told:?}");
    // Nothing was answered, so no storm can begin.
    third.set_nonblocking(true).unwrap();
    assert!(third.recv_from(&mut [0; 64]).is_err());
}

#[test]
fn silent_connections_keep_no_member_out() {
    let folder = Folder::new("silent");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let h2 = start(&folder, &plan(&folder, 2, 2, port));
    // From the address of the member itself, and from an address of no host.
    let silent: Vec<_> = (0..80).map(|_| connect_from(1, at(2, port)).unwrap()).collect();
    let mut stranger = connect_from(77, at(2, port)).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stranger.read(&mut [0; 1]).unwrap_or(0), 0, "it is closed at once");
    let h1 = start(&folder, &plan(&folder, 1, 2, port));
    connected(&[&h1], &["h2"]);
    connected(&[&h2], &["h1"]);
    drop(silent);
}

#[test]
fn duplicate_host_at_other_address_refused_original_unaffected() {
    let folder = Folder::new("copy");
    certificates(&folder, &["h1", "h2", "h3"]);
    let port = free_port();
    let [h1, h3] = [1, 3].map(|own| start(&folder, &plan(&folder, own, 3, port)));
    connected(&[&h1], &["h3"]);
    connected(&[&h3], &["h1"]);
    let incarnation = member(&h3, "h1").incarnation;
    // The same file and the same certificate, at the address of another member.
    let mut copied = plan(&folder, 1, 3, port);
    copied.listen = at(2, port);
    copied.hosts.retain(|host| host.host == HostId(3));
    let dir = folder.join("run-copy");
    std::fs::create_dir_all(&dir).unwrap();
    let held = Arc::new(Held::open("h1", 1, &dir));
    let copy =
        Fabric::start(&copied, (&dir, &dir), (Nanos::ZERO, wall()), (held, Arc::new(NoConfig)))
            .unwrap();
    std::thread::sleep(Duration::from_millis(1_000));
    assert!(!member(&copy, "h3").connected);
    // A host without a processor for a moment may be taken to be away, whoever copies it.
    connected(&[&h1], &["h3"]);
    connected(&[&h3], &["h1"]);
    assert_eq!(member(&h3, "h1").incarnation, incarnation);
}

#[test]
fn host_with_lost_incarnation_recovers_it_from_members() {
    let folder = Folder::new("lost-number");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let h1 = start(&folder, &plan(&folder, 1, 2, port));
    let of_h2 = plan(&folder, 2, 2, port);
    let file = folder.join("run-h2").join("incarnation");
    // An incarnation from long ago, by a clock that was ahead.
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "1999999999999\n").unwrap();
    let h2 = start(&folder, &of_h2);
    connected(&[&h1], &["h2"]);
    let before = member(&h1, "h2").incarnation;
    h2.leave();
    std::fs::remove_file(&file).unwrap();
    let h2 = start(&folder, &of_h2);
    connected(&[&h1], &["h2"]);
    connected(&[&h2], &["h1"]);
    wait_for("it is alive in its next life", || {
        let row = member(&h1, "h2");
        row.incarnation > before && row.health == "alive"
    });
    assert_eq!(vports(&h1).iter().filter(|row| row.state != "stale").count(), 2);
    let kept: u64 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    assert!(kept > before, "and remembered");
}
