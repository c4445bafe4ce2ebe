//! Each wrong file with all that is said about it, word for word.

use sluice_base::{ByteCount, Nanos, PortId, Priority, PriorityMask, TunnelId, VnetId};
use sluice_switch::{Destination, InputFull, PauseConfig, PortRole};

use super::*;

struct Fake;

impl Devices for Fake {
    fn facts(&self, device: &str) -> Option<DeviceFacts> {
        let mac = Mac([2, 0, 0, 0, 0, 0xee]);
        device.starts_with("eth").then_some(DeviceFacts { mac, mtu: 1500 })
    }
}

const HOST: &str = r#"[host]
name = "h1"
policy = "ZZ"

[underlay]
kind = "l2"
device = "eth0"
address = "10.0.0.1"
link = { rate_mbps = 1000 }

[[vnet]]
name = "blue"
vni = 42

[[port]]
name = "c1"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/c1"
mac = "02:00:00:00:00:01"
service_mbps = 500

[[peer]]
name = "h2"
vtep = "10.0.0.2"
vnets = ["blue"]

[[vport]]
vnet = "blue"
mac = "02:00:00:00:00:02"
peer = "h2"
"#;

const SWITCH: &str = r#"[host]
name = "tor"
role = "switch"
policy = "ZZ"

[[vnet]]
name = "fabric"

[[port]]
name = "p1"
kind = "l2"
vnet = "fabric"
device = "eth1"
link = { rate_mbps = 1000 }

[[port]]
name = "p2"
kind = "l2"
vnet = "fabric"
device = "eth2"
link = { rate_mbps = 1000 }
"#;

fn planned(text: &str) -> Plan {
    plan("host.toml", text, &Fake).unwrap_or_else(|report| panic!("{report}"))
}

/// What is said about `text` after each `from` is replaced.
fn said(text: &str, changes: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    match plan("host.toml", &text, &Fake) {
        Ok(_) => "nothing".to_owned(),
        Err(report) => report.to_string(),
    }
}

macro_rules! wrong {
    ($($name:ident: $text:ident, $changes:expr, $expected:expr;)*) => {
        $(#[test] fn $name() {
            let said = said($text, &$changes);
            assert!(said == $expected.trim_start_matches('\n'), "said:\n{said}\n");
        })*
    };
}

wrong! {
    unknown_key: HOST, [("policy =", "polcy =")], "
host.toml:3: host.polcy: no such key
    Did you mean `policy`?";
    unknown_key_of_an_inner_table: HOST, [("rate_mbps", "rate")], "
host.toml:9: underlay.link.rate: no such key
    Did you mean `rate_mbps`?";
    unknown_value: HOST, [("\"ZZ\"", "\"zz\"")], "
host.toml:3: host.policy: `zz` is none of its values
    Did you mean `ZZ`?
host.toml: what the values mean is checked when these are mended";
    missing_key: HOST, [("vtep = \"10.0.0.2\"\n", "")], "
host.toml:24: peer[1].vtep: is missing
    Add a line `vtep = …`.
host.toml: what the values mean is checked when these are mended";
    every_problem_of_the_form: HOST,
        [("vni = 42", "vni = \"42\""), ("service_mbps", "servce"), ("kind = \"tap\"\n", "")], "
host.toml:13: vnet[1].vni: invalid type: string \"42\", expected u32
host.toml:15: port[1].kind: is missing
    Add a line `kind = …`.
host.toml:21: port[1].servce: no such key
    Did you mean `service_mbps`?
host.toml: what the values mean is checked when these are mended";
    unknown_keys_do_not_hide_wrong_meaning: HOST,
        [("policy =", "polcy ="), ("vni = 42", "vni = 16777216")], "
host.toml:3: host.polcy: no such key
    Did you mean `policy`?
host.toml:13: vnet[1].vni: 16777216 does not fit into the 24 bits of a VNI
    Use 0 to 16777215.";
    syntax: HOST, [("vni = 42", "vni =")], "
host.toml:13: string values must be quoted, expected literal string
    The file is TOML: see https://toml.io.
host.toml: what the values mean is checked when these are mended";

    pfc_over_udp: HOST, [("\"l2\"", "\"udp\"")], "
host.toml:6: underlay.kind: policy ZZ pauses the physical network, and a UDP socket can neither \
send nor see pause frames
    Use `kind = \"l2\"` on a device that carries PFC, or `policy = \"ZL\"`.";
    pfc_over_udp_lossy: HOST, [("\"l2\"", "\"udp\""), ("\"ZZ\"", "\"LZ\"")], "
host.toml:6: underlay.kind: policy LZ pauses the physical network, and a UDP socket can neither \
send nor see pause frames
    Use `kind = \"l2\"` on a device that carries PFC, or `policy = \"LL\"`.";
    mtu_too_large: HOST, [("vni = 42", "vni = 42\nmtu = 1451")], "
host.toml:14: vnet[1].mtu: 1451 bytes and 50 of VXLAN headers do not fit into the underlay's MTU \
of 1500
    Use 1450 or less, or raise the underlay: `ip link set eth0 mtu 1501`.";
    underlay_mtu_above_the_device: HOST, [("kind = \"l2\"", "kind = \"l2\"\nmtu = 9000")], "
host.toml:7: underlay.mtu: 9000 is more than the 1500 that eth0 takes
    Use 1500 or less, or `ip link set eth0 mtu 9000`.";
    no_such_device: HOST, [("eth0", "wan0")], "
host.toml:7: underlay.device: there is no network device `wan0` here
    `ip link` lists the devices of this network namespace.";
    same_vtep_twice: HOST,
        [("[[vport]]", "[[peer]]\nname = \"h3\"\nvtep = \"10.0.0.2\"\nvnets = []\n\n[[vport]]")], "
host.toml:31: peer[2].vtep: VTEP 10.0.0.2 is there twice, first on line 24
    Take one of the two out.";
    own_vtep: HOST, [("10.0.0.2", "10.0.0.1")], "
host.toml:26: peer[1].vtep: 10.0.0.1 is this host's own address
    A peer is another host; take the entry out, or mend the address.";
    xon_above_xoff: HOST, [("rate_mbps = 1000", "xoff_bytes = 100000, xon_bytes = 100000")], "
host.toml:9: underlay.link.xon_bytes: XON at 100000 bytes is not below XOFF at 100000
    XON must be below XOFF, and XOFF below the input buffer; without the keys they are 40 % and \
60 % of it.";
    xoff_above_the_buffer: HOST, [("rate_mbps = 1000", "xoff_bytes = 409600")], "
host.toml:9: underlay.link.xoff_bytes: XOFF at 409600 bytes is not below the input buffer of \
409600
    XON must be below XOFF, and XOFF below the input buffer; without the keys they are 40 % and \
60 % of it.";
    ring_below_headroom: HOST, [("rate_mbps = 1000", "rate_mbps = 1000, ring_bytes = 1000000")], "
host.toml:9: underlay.link.ring_bytes: a receive ring of 1000000 bytes is smaller than the \
headroom of 6278762 B: 1000000000 bit/s for 2 x 1000 ns and a stall of 50000000 ns, the response, \
and 2 frames for each of 8 lossless priorities
    Use 6278762 or more, leave the key out, or lower `stall_ms` if the reader is never \
descheduled that long.";
    burst_below_a_frame: HOST, [("rate_mbps = 1000", "rate_mbps = 10, catch_up_us = 100")], "
host.toml:9: underlay.link.catch_up_us: at 10 Mbit/s this is a burst of 125 bytes, less than a \
frame
    Use 1234 or more.";
    unknown_names: HOST,
        [("\"blue\"\ndevice", "\"bule\"\ndevice"), ("peer = \"h2\"", "peer = \"x\"")], "
host.toml:18: port[1].vnet: there is no vnet `bule`
    Did you mean `blue`?
host.toml:32: vport[1].peer: there is no peer `x`
    There is: h2.";
    port_is_unknown: HOST, [("peer = \"h2\"", "port = \"container-1\"")], "
host.toml:32: vport[1].port: there is no port `container-1`
    There is: c1.";
    mac_syntax: HOST, [("02:00:00:00:00:02", "02-00-00-00-00-02")], "
host.toml:31: vport[1].mac: `02-00-00-00-00-02` is not a MAC address
    A MAC address is six two-digit hexadecimal numbers, like 02:00:00:00:00:01.";
    group_mac: HOST, [("02:00:00:00:00:01", "03:00:00:00:00:01")], "
host.toml:21: port[1].mac: 03:00:00:00:00:01 is a group address, which no endpoint can have
    The second hexadecimal digit must be even, as in 02:00:00:00:00:01.";
    duplicate_mac: HOST, [("02:00:00:00:00:02", "02:00:00:00:00:01")], "
host.toml:31: vport[1].mac: 02:00:00:00:00:01 in network `blue` is there twice, first on line 15
    Take one of the two out.";
    vport_without_a_place: HOST, [("peer = \"h2\"", "")], "
host.toml:29: vport[1]: does not say where it is
    Add `peer = …` for an endpoint on another host, or `port = …`.";
    peer_without_the_network: HOST, [("[\"blue\"]", "[]")], "
host.toml:32: vport[1].peer: peer `h2` does not have network `blue`
    Add `blue` to the `vnets` of that peer.";
    classes: HOST, [("[underlay]",
        "[[class]]\npriority = 8\n[[class]]\npriority = 1\nweight = 0\n[[class]]\npriority = 1\n\
         dscp = [64]\n[underlay]")], "
host.toml:6: class[1].priority: there is no priority 8
    Use 0 to 7.
host.toml:9: class[2].weight: a weight of 0 would never be served
    Use 1 to 255.
host.toml:11: class[3].priority: priority 1 is there twice, first on line 7
    Take one of the two out.
host.toml:12: class[3].dscp: there is no DSCP 64
    Use 0 to 63.";
    buffers: HOST,
        [("[underlay]", "[buffers]\nvport_in = { frames = 0, bytes = 0 }\n[underlay]")], "
host.toml:6: buffers.vport_in: 0 frames and 0 bytes: one full frame does not fit
    Give at least 1 frame and 1600 bytes; both numbers bind.";
    tap_with_a_link: HOST, [("service_mbps = 500", "link = { rate_mbps = 500 }")], "
host.toml:22: port[1].link: a TAP is no cable
    Take it out; `service_mbps` is the rate of a vNIC.";
    netns_by_name: HOST, [("/run/netns/c1", "c1")], "
host.toml:20: port[1].netns: `c1` is not the path of a network namespace
    Use a path such as `/run/netns/c1`.";
    peers_without_underlay: HOST, [("[underlay]\nkind = \"l2\"\ndevice = \"eth0\"\naddress = \
        \"10.0.0.1\"\nlink = { rate_mbps = 1000 }\n", "")], "
host.toml:19: peer: there are peers and no underlay to reach them by
    Add an `[underlay]` with `kind`, `device` and `address`.";
    tap_on_a_switch: SWITCH, [("name = \"p1\"\nkind = \"l2\"", "name = \"p1\"\nkind = \"tap\"")], "
host.toml:11: port[1].kind: a switch has cables only
    Use `kind = \"l2\"`, or `role = \"host\"`.
host.toml:14: port[1].link: a TAP is no cable
    Take it out; `service_mbps` is the rate of a vNIC.";
    the_host_is_fine: HOST, [], "nothing";
    the_switch_is_fine: SWITCH, [], "nothing";
}

/// What the two letters of a policy become: (outputs hold, inputs from the wire pause).
#[test]
fn policies_are_settings_of_places() {
    for (policy, held, paused) in
        [("LL", false, false), ("LZ", false, true), ("ZL", true, false), ("ZZ", true, true)]
    {
        let plan = planned(&HOST.replace("\"ZZ\"", &format!("\"{policy}\"")));
        assert!(plan.switch.classes.iter().all(|class| class.lossless == held), "{policy}");
        let [tap, underlay] = &plan.switch.ports[..] else { panic!("two ports") };
        assert_eq!(tap.input_full, InputFull::Wait, "{policy}");
        assert!(!tap.obey_pause);
        assert_eq!(matches!(underlay.input_full, InputFull::Pause(_)), paused, "{policy}");
        assert_eq!(underlay.input_full == InputFull::Drop, !paused, "{policy}");
        assert_eq!(underlay.obey_pause, paused, "{policy}");

        let plan = planned(&SWITCH.replace("\"ZZ\"", &format!("\"{policy}\"")));
        assert!(plan.switch.classes.iter().all(|class| class.lossless == paused), "{policy}");
        assert_eq!(plan.switch.ports[0].obey_pause, paused, "{policy}");
    }
}

#[test]
fn a_dscp_is_of_the_priority_of_its_class_selector() {
    let table = planned(HOST).switch.dscp_to_priority;
    // EF, AF11, AF43, default and CS7.
    for (dscp, priority) in [(46, 5), (10, 1), (38, 4), (0, 0), (56, 7), (63, 7)] {
        assert_eq!(table[dscp], Priority::from_low_bits(priority), "{dscp}");
    }
}

#[test]
fn a_lossy_class_is_neither_held_nor_paused() {
    let lossy = "[[class]]\npriority = 3\nlossless = false\ndscp = [46]\n[underlay]";
    let plan = planned(&HOST.replace("[underlay]", lossy));
    assert!(!plan.switch.classes[3].lossless && plan.switch.classes[0].lossless);
    assert_eq!(plan.switch.dscp_to_priority[46], Priority::from_low_bits(3));
    assert_eq!(plan.notes[0], "priority of a packet: its DSCP / 8, but 46 is 3");
    assert_eq!(plan.switch.dscp_to_priority[56], Priority::from_low_bits(7));
    let InputFull::Pause(pause) = plan.switch.ports[1].input_full else { panic!("pauses") };
    let mut others = PriorityMask::ALL;
    others.remove(Priority::from_low_bits(3));
    assert_eq!(pause.priorities, others);
}

#[test]
fn the_places_of_a_host() {
    let plan = planned(HOST);
    let [tap, underlay] = &plan.switch.ports[..] else { panic!("two ports") };
    assert_eq!(tap.role, PortRole::Access { vnet: VnetId(0) });
    assert_eq!((tap.mtu, underlay.mtu), (1450, 1500));
    assert_eq!(tap.rate.map(|rate| (rate.rate.0, rate.overhead)), Some((500_000_000, 0)));
    let rate = underlay.rate.unwrap();
    assert_eq!((rate.overhead, rate.catch_up), (24, Nanos::from_micros(200)));
    let InputFull::Pause(PauseConfig { xoff, xon, .. }) = underlay.input_full else { panic!() };
    assert_eq!((xoff, xon), (ByteCount(245_760), ByteCount(163_840)));
    assert!(u64::from(underlay.input.frames) * 60 > xoff.0, "small frames reach XOFF");
    assert_eq!(plan.switch.vnets[0].tunnels, [TunnelId(0)]);
    assert_eq!(plan.switch.tunnels[0].port, PortId(1));
    assert_eq!(plan.switch.tunnels[0].next_hop, None);
    let mac = |last| Mac([2, 0, 0, 0, 0, last]);
    let expected = [
        (VnetId(0), mac(1), Destination::Port(PortId(0))),
        (VnetId(0), mac(2), Destination::Tunnel(TunnelId(0))),
    ];
    assert_eq!(plan.addresses, expected);
    assert_eq!(plan.run_dir, Path::new("/run/sluice/h1"));
    assert_eq!(
        plan.notes,
        ["port underlay: receive ring of 6278762 bytes; headroom 6278762 B = 1000000000 bit/s x \
          (2 x 1000 ns + 50000000 ns) + response + 2 frames of 1542 B for 8 priorities"]
    );
}

#[test]
fn a_ring_that_may_not_hold_its_headroom_is_told_of() {
    let notes = |text: &str| planned(text).notes[1..].to_vec();
    let small = "port underlay: not lossless: the ring may take 256 MiB, which hold 14417920 bytes \
                 in the smallest frames; ";
    let unknown = HOST.replace("rate_mbps = 1000", "");
    let assumed =
        "10 Gbit/s are assumed; set `rate_mbps` to the rate of the link, or lower `stall_ms`";
    assert_eq!(notes(&unknown), [format!("{small}{assumed}")]);
    let fast = HOST.replace("rate_mbps = 1000", "rate_mbps = 10000");
    let stall = "lower `stall_ms` if the reader is never descheduled that long";
    assert_eq!(notes(&fast), [format!("{small}{stall}")]);
    // Nobody relies on it.
    assert!(notes(&unknown.replace("\"ZZ\"", "\"ZL\"")).is_empty());
    assert!(
        notes(&HOST.replace("rate_mbps = 1000", "rate_mbps = 10000, stall_ms = 10")).is_empty()
    );
}

#[test]
fn a_udp_underlay_leaves_the_way_to_the_kernel() {
    let plan = planned(&HOST.replace("\"l2\"", "\"udp\"").replace("\"ZZ\"", "\"ZL\""));
    assert!(plan.switch.tunnels[0].next_hop.is_some());
    assert!(matches!(plan.ports[1].attachment, Attachment::Udp { .. }));
    assert_eq!(plan.ports[1].policy_lacks, Some("an l2 underlay"));
}

#[test]
fn a_slow_rate_still_has_a_burst_of_two_frames() {
    let plan = planned(&HOST.replace("rate_mbps = 1000", "rate_mbps = 10"));
    let rate = plan.switch.ports[1].rate.unwrap();
    assert!(rate.rate.bytes_in(rate.catch_up).0 >= 2 * 1542, "{rate:?}");
}

#[test]
fn comments_do_not_change_the_fingerprint_and_values_do() {
    let same = planned(&HOST.replace("[underlay]", "# the wire\n[underlay]"));
    let other = planned(&HOST.replace("vni = 42", "vni = 43"));
    assert_eq!(planned(HOST).fingerprint, same.fingerprint);
    assert_ne!(planned(HOST).fingerprint, other.fingerprint);
}

#[test]
fn the_example_of_the_documentation_is_fine() {
    let text = include_str!("../../../../docs/host.toml");
    plan("docs/host.toml", text, &Fake).unwrap_or_else(|report| panic!("{report}"));
}
