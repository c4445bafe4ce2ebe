use std::sync::mpsc::{Receiver, sync_channel};

use super::*;
use crate::fabric::tests::Folder;

const TEXT: &str = r#"
[host]
name = "h1"
[underlay]
kind = "udp"
device = "lo"
address = "127.0.0.1"
[fabric]
name = "test"
id = 1
certificates = "/etc/sluice/tls/h1"
[evpn]
as = 65000
[[evpn.neighbor]]
address = "127.0.0.2"
as = 65000
[[vnet]]
name = "blue"
vni = 100
[[vnet]]
name = "green"
vni = 200
[[peer]]
name = "h2"
id = 2
vtep = "192.0.2.2"
vnets = ["blue"]
"#;

fn config() -> HostConfig {
    toml::from_str(TEXT).unwrap()
}

fn vteps(list: &[(&str, &[u32])]) -> Vteps {
    let vnis = |numbers: &[u32]| numbers.iter().map(|number| Vni::new(*number).unwrap()).collect();
    list.iter().map(|(vtep, numbers)| (vtep.parse().unwrap(), vnis(numbers))).collect()
}

fn peers(folder: &Path) -> (EvpnPeers, Receiver<Event>) {
    let (events, asked) = sync_channel(1);
    (EvpnPeers::load(folder, events), asked)
}

#[test]
fn vtep_becomes_peer_with_its_networks() {
    let known = vteps(&[
        ("192.0.2.9", &[100, 200, 300]),
        ("192.0.2.8", &[200]),
        // A member, this host, and one without a network of this host.
        ("192.0.2.2", &[100]),
        ("127.0.0.1", &[100]),
        ("192.0.2.7", &[300]),
        // What no host has would make the configuration wrong.
        ("0.0.0.0", &[100]),
        ("0.0.0.1", &[100]),
        ("127.0.0.9", &[100]),
        ("224.0.0.9", &[100]),
        ("255.255.255.255", &[100]),
    ]);
    let all = choose(&config(), &known, &[], Some(100));
    assert_eq!((all.left_out, all.waiting), (0, 0));
    let all = all.peers;
    let rows: Vec<_> =
        all.iter().map(|peer| (&*peer.name, peer.vnets.join(" "), peer.by_evpn)).collect();
    let expected = [
        ("h2", "blue".to_owned(), false),
        ("evpn-192.0.2.8", "green".to_owned(), true),
        ("evpn-192.0.2.9", "blue green".to_owned(), true),
    ];
    assert_eq!(rows, expected);
    // Those of before go.
    let config = HostConfig { peers: all, ..config() };
    let names = |vteps: &Vteps| -> Vec<String> {
        choose(&config, vteps, &[], Some(100)).peers.into_iter().map(|peer| peer.name).collect()
    };
    assert_eq!(names(&vteps(&[("192.0.2.8", &[200])])), ["h2", "evpn-192.0.2.8"]);
    let silent = HostConfig { evpn: None, ..config.clone() };
    assert_eq!(
        choose(&silent, &known, &[], Some(100)).peers.len(),
        1,
        "a host that speaks no EVPN has none of it"
    );
}

fn at(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// VTEPs 192.0.2.10 to 192.0.2.19.
fn ten() -> Vteps {
    let vnis = BTreeSet::from([Vni::new(100).unwrap()]);
    (10..20).map(|host| (Ipv4Addr::new(192, 0, 2, host), vnis.clone())).collect()
}

/// Ends of the addresses of peers by EVPN.
fn ends(peers: &[Peer]) -> Vec<u8> {
    peers.iter().filter(|peer| peer.by_evpn).map(|peer| peer.vtep.octets()[3]).collect()
}

#[test]
fn vteps_beyond_spare_tunnels_are_left_out() {
    let mut config = config();
    config.host.spare_tunnels = Some(3);
    let all = choose(&config, &ten(), &[], Some(4));
    assert_eq!((all.peers.len(), all.left_out), (3, 8), "one of three is left to peers that come");
    // Each time the same ones, or their places would be wanted by turns.
    let next = HostConfig { peers: all.peers.clone(), ..config };
    assert_eq!(choose(&next, &ten(), &all.peers, Some(4)).peers, all.peers);
}

/// Returns peers as if they ran by EVPN, at these ends of addresses.
fn running(ends: &[u8]) -> Vec<Peer> {
    ends.iter().map(|end| peer(Ipv4Addr::new(192, 0, 2, *end), Vec::new())).collect()
}

#[test]
fn vteps_take_no_place_of_configured_peers() {
    let mut config = config();
    let ends_of = |config: &HostConfig, running: &[Peer], places| {
        let all = choose(config, &ten(), running, places);
        (ends(&all.peers), all.left_out, all.waiting)
    };
    assert_eq!(ends_of(&config, &[], Some(36)), (vec![10, 11, 12], 7, 0), "one is configured");
    for host in 3..8 {
        let (name, vtep) = (format!("h{host}"), Ipv4Addr::new(192, 0, 2, host));
        config.peers.push(Peer { name, vtep, ..config.peers[0].clone() });
    }
    assert_eq!(ends_of(&config, &[], Some(39)), (vec![10], 9, 0));
    assert_eq!(ends_of(&config, &[], Some(38)), (vec![], 10, 0), "members come first");
    assert_eq!(ends_of(&config, &[], Some(2)), (vec![], 10, 0));
    // Those that run keep their places, and stand in the order of their addresses.
    let two = running(&[19, 15]);
    assert_eq!(ends_of(&config, &two, Some(40)), (vec![15, 19], 8, 0));
    assert_eq!(ends_of(&config, &two, Some(41)), (vec![10, 15, 19], 7, 0));
    // A control process that begins takes these, so that data that runs may go on.
    assert_eq!(ends_of(&config, &two, None), (vec![15, 19], 0, 8));
    assert_eq!(ends_of(&config, &[], None), (vec![], 0, 10));
}

#[test]
fn vteps_wait_for_places_that_are_left() {
    let mut config = config();
    config.host.spare_tunnels = Some(4);
    // Of five places one is a member's, one is kept, and two of three VTEPs go in this change.
    let mut now = config.peers.clone();
    now.extend(running(&[10, 50, 51]));
    let all = choose(&config, &ten(), &now, Some(5));
    assert_eq!((ends(&all.peers), all.waiting, all.left_out), (vec![10, 11], 8, 0));
    // Once those have gone, another one comes.
    let all = choose(&config, &ten(), &all.peers, Some(5));
    assert_eq!((ends(&all.peers), all.waiting, all.left_out), (vec![10, 11, 12], 0, 7));
    // A member that comes in the same change is before them.
    let (name, vtep) = ("h3".to_owned(), Ipv4Addr::new(192, 0, 2, 3));
    config.peers.push(Peer { name, vtep, ..config.peers[0].clone() });
    let all = choose(&config, &ten(), &now, Some(5));
    assert_eq!((ends(&all.peers), all.waiting), (vec![10], 9));
}

#[test]
fn control_asked_until_peers_are_in_force() {
    let folder = Folder::new("evpn-asked");
    let (peers, asked) = peers(&folder);
    let known = vteps(&[("192.0.2.9", &[100])]);
    peers.set(at(0), &Vteps::new(), true);
    assert!(asked.try_recv().is_err(), "nothing has changed");
    peers.set(at(0), &known, true);
    peers.set(at(1_000), &known, true);
    assert!(matches!(asked.try_recv(), Ok(Event::Peers)));
    assert!(asked.try_recv().is_err(), "it is asked once");
    // Control begins, and fails.
    peers.state().is_asked = false;
    peers.set(at(1_500), &known, true);
    assert!(matches!(asked.try_recv(), Ok(Event::Peers)), "it is asked again");
    peers.state().is_asked = false;
    peers.set(at(1_600), &known, true);
    assert!(asked.try_recv().is_err(), "not all the time");
    peers.set(at(2_500), &known, true);
    assert!(matches!(asked.try_recv(), Ok(Event::Peers)));
    (peers.state().is_asked, peers.state().is_done) = (false, true);
    peers.set(at(9_000), &known, true);
    assert!(asked.try_recv().is_err());
}

#[test]
fn next_process_begins_with_peers_of_file() {
    let folder = Folder::new("evpn-file");
    let known = vteps(&[("192.0.2.9", &[100]), ("192.0.2.8", &[100, 200])]);
    let first = peers(&folder).0;
    first.set(at(0), &known, true);
    let with_both = first.added_to(&config(), Some(100)).unwrap();
    first.set_running(&with_both);
    let (next, asked) = peers(&folder);
    assert_eq!(next.state().steady.vteps(), &known);
    assert_eq!(next.added_to(&config(), None), Some(with_both));
    // Neighbors have not told all of theirs.
    let other = vteps(&[("192.0.2.7", &[100])]);
    next.set(at(0), &other, false);
    next.set(at(3_000), &other, false);
    assert_eq!(next.state().steady.vteps().len(), 3);
    assert!(asked.try_recv().is_ok());
    next.set(at(5_000), &other, true);
    next.set(at(6_000), &other, true);
    assert_eq!(next.state().steady.vteps().len(), 1);
    // `[evpn]` is taken out of the file.
    next.forget();
    assert!(peers(&folder).0.state().steady.vteps().is_empty());
    // A file that was cut off is no reason not to start.
    fs::write(folder.join(FILE), "[{\"vtep").unwrap();
    let (next, _) = peers(&folder);
    assert!(next.state().steady.vteps().is_empty());
    assert!(next.added_to(&config(), None).is_none());
}

#[test]
fn next_process_keeps_those_that_ran() {
    let folder = Folder::new("evpn-ran");
    let mut config = config();
    config.host.spare_tunnels = Some(3);
    let first = peers(&folder).0;
    let some = vteps(&[("192.0.2.18", &[100]), ("192.0.2.19", &[100])]);
    first.set(at(0), &some, true);
    first.set_running(&first.added_to(&config, Some(5)).unwrap());
    first.set(at(1_000), &ten(), true);
    let with_more = first.added_to(&config, Some(5)).unwrap();
    assert_eq!(ends(&with_more.peers), [10, 18, 19]);
    first.set_running(&with_more);
    let (next, asked) = peers(&folder);
    let same = next.added_to(&config, None).unwrap();
    assert_eq!(ends(&same.peers), [10, 18, 19], "or data would have to begin anew");
    // Then it is asked for how many more there are places.
    next.set(at(0), &ten(), false);
    assert!(matches!(asked.try_recv(), Ok(Event::Peers)));
}
