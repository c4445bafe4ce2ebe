use super::*;

fn question(ports: &[&str], vnets: &[&str], peers: &[&str], underlay: bool) -> Question {
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (ports, vnets, peers) = (all(ports), all(vnets), all(peers));
    Question { ports, vnets, peers, underlay, frames: true, snaplen: 96, ..Question::default() }
}

#[test]
fn places_and_networks_both_have_their_say() {
    use Wanted::{All, None, Tunnelled};
    let web = Port::named("web", "blue");
    let underlay = Port::named("underlay", "underlay");
    let link = Port::named("from worker 1", "");
    let cases = [
        (question(&[], &[], &[], false), [All, All]),
        (question(&["web"], &[], &[], false), [All, None]),
        (question(&["db"], &[], &[], false), [None, None]),
        (question(&[], &["blue"], &[], false), [All, Tunnelled]),
        (question(&[], &["red"], &[], false), [None, Tunnelled]),
        (question(&[], &[], &[], true), [None, All]),
        (question(&[], &[], &["h2"], false), [None, Tunnelled]),
        (question(&["web"], &["red"], &[], false), [None, None]),
        (question(&["web"], &[], &["h2"], false), [All, Tunnelled]),
        (question(&[], &["blue"], &[], true), [None, Tunnelled]),
    ];
    for (question, expected) in cases {
        assert_eq!(
            [wanted(&question, &web), wanted(&question, &underlay)],
            expected,
            "{question:?}"
        );
        assert_eq!(wanted(&question, &link), None, "a link between workers");
    }
}

#[test]
fn half_close_and_end_are_seen() {
    let (own, other) = UnixStream::pair().unwrap();
    assert!(!has_enough(&own));
    other.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(has_enough(&own));
    let (own, other) = UnixStream::pair().unwrap();
    drop(other);
    assert!(has_enough(&own));
}
