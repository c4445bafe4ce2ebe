use alloc::string::ToString as _;

use super::{FlowMatch, IpPrefix};
use crate::{Mac, Vni};

fn parse(text: &str) -> FlowMatch {
    text.parse().unwrap()
}

#[test]
fn what_is_written_is_read() {
    for text in [
        "vni=5000",
        "vni=0,mac=02:00:00:00:00:01",
        "ip=10.0.0.7/32",
        "ip=0.0.0.0/0",
        "ip=::/0",
        "vni=16777215,mac=02:00:00:00:00:01,ip=fd00::/8,proto=udp,port=53",
        "proto=1",
        "proto=tcp,port=0",
    ] {
        assert_eq!(parse(text).to_string(), text);
    }
}

#[test]
fn an_address_alone_is_all_of_it() {
    assert_eq!(parse("ip=10.0.0.7"), parse("ip=10.0.0.7/32"));
    assert_eq!(parse("ip=fd00::7"), parse("ip=fd00::7/128"));
}

#[test]
fn fields_are_what_they_say() {
    let all = parse("port=443,proto=6,mac=02:00:00:00:00:01,vni=7");
    assert_eq!((all.vni, all.mac), (Vni::new(7), Some(Mac([2, 0, 0, 0, 0, 1]))));
    assert_eq!((all.protocol, all.port, all.ip), (Some(6), Some(443), None));
    assert!(all.parts_a_pair());
    assert!(!parse("vni=7,mac=02:00:00:00:00:01").parts_a_pair());
}

#[test]
fn what_is_wrong_is_said() {
    for (text, says) in [
        ("", "`` is not KEY=VALUE"),
        ("5000", "`5000` is not KEY=VALUE"),
        ("net=5000", "`net` is none of"),
        ("vni=16777216", "vni=16777216: a number up to 16777215"),
        ("vni=1,vni=2", "`vni` is given twice"),
        ("mac=02", "a MAC address is six"),
        ("ip=10.0.0.1/24", "no bit set behind the prefix"),
        ("ip=10.0.0.0/33", "an address or a prefix"),
        ("ip=web", "an address or a prefix"),
        ("proto=sctp", "proto=sctp: tcp, udp or a number"),
        ("proto=tcp,port=65536", "port=65536"),
        ("port=443", "a port needs proto=tcp"),
        ("proto=1,port=443", "a port needs proto=tcp"),
        ("vni=1,", "`` is not KEY=VALUE"),
    ] {
        let error = text.parse::<FlowMatch>().unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn a_prefix_has_its_addresses_and_no_others() {
    let prefix = |text: &str| -> IpPrefix { parse(&alloc::format!("ip={text}")).ip.unwrap() };
    let lan = prefix("10.0.0.0/24");
    assert!(lan.contains("10.0.0.255".parse().unwrap()));
    assert!(!lan.contains("10.0.1.0".parse().unwrap()));
    assert!(!lan.contains("::a00:0".parse().unwrap()));
    assert!(prefix("0.0.0.0/0").contains("255.1.2.3".parse().unwrap()));
    assert!(prefix("::/0").contains("fd00::1".parse().unwrap()));
    assert!(!prefix("fd00::/8").contains("fe80::1".parse().unwrap()));
    assert!(prefix("fd00::7").contains("fd00::7".parse().unwrap()));
}
