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
    let (all, left_out) = peers_of(&config(), &known);
    assert_eq!(left_out, 0);
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
        peers_of(&config, vteps).0.into_iter().map(|peer| peer.name).collect()
    };
    assert_eq!(names(&vteps(&[("192.0.2.8", &[200])])), ["h2", "evpn-192.0.2.8"]);
    let silent = HostConfig { evpn: None, ..config.clone() };
    assert_eq!(peers_of(&silent, &known).0.len(), 1, "a host that speaks no EVPN has none of it");
}

#[test]
fn vteps_beyond_spare_tunnels_are_left_out() {
    let mut config = config();
    config.host.spare_tunnels = Some(3);
    let text: Vec<String> = (10..20).map(|host| format!("192.0.2.{host}")).collect();
    let known: Vec<(&str, &[u32])> = text.iter().map(|vtep| (&**vtep, &[100][..])).collect();
    let (all, left_out) = peers_of(&config, &vteps(&known));
    assert_eq!((all.len(), left_out), (4, 7));
    // Each time the same ones, or their places would be wanted by turns.
    assert_eq!(peers_of(&HostConfig { peers: all.clone(), ..config }, &vteps(&known)).0, all);
}

#[test]
fn control_asked_until_peers_are_in_force() {
    let folder = Folder::new("evpn-asked");
    let (peers, asked) = peers(&folder);
    let known = vteps(&[("192.0.2.9", &[100])]);
    peers.set(&Vteps::new(), true);
    assert!(asked.try_recv().is_err(), "nothing has changed");
    peers.set(&known, true);
    peers.set(&known, true);
    assert!(matches!(asked.try_recv(), Ok(Event::Peers)));
    assert!(asked.try_recv().is_err(), "it is asked once");
    // Control begins, and fails.
    peers.state().is_asked = false;
    peers.set(&known, true);
    assert!(matches!(asked.try_recv(), Ok(Event::Peers)), "it is asked again");
    (peers.state().is_asked, peers.state().is_done) = (false, true);
    peers.set(&known, true);
    assert!(asked.try_recv().is_err());
}

#[test]
fn next_process_begins_with_peers_of_file() {
    let folder = Folder::new("evpn-file");
    let known = vteps(&[("192.0.2.9", &[100]), ("192.0.2.8", &[100, 200])]);
    peers(&folder).0.set(&known, true);
    let (next, _) = peers(&folder);
    assert_eq!(next.state().vteps, known);
    assert_eq!(next.added_to(&config()).unwrap().peers.len(), 3);
    // Neighbors have not told all of theirs.
    next.set(&vteps(&[("192.0.2.7", &[100])]), false);
    assert_eq!(next.state().vteps.len(), 3);
    next.set(&vteps(&[("192.0.2.7", &[100])]), true);
    assert_eq!(next.state().vteps.len(), 1);
    // A file that was cut off is no reason not to start.
    fs::write(folder.join(FILE), "[[\"192.0").unwrap();
    let (next, _) = peers(&folder);
    assert!(next.state().vteps.is_empty());
    assert!(next.added_to(&config()).is_none());
}
