//! Wrong files with all of their messages, word for word.

use sluice_base::{ByteCount, IpPrefix, Nanos, PortId, Priority, PriorityMask, TunnelId, VnetId};
use sluice_switch::{Destination, InputFull, PauseConfig, PortRole};

use super::*;

/// Devices of the machine: every `eth…`.
pub(crate) struct Fake;

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

/// Returns the messages on `text` after each `from` is replaced.
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

#[test]
fn http_address_for_everybody_refused_by_line() {
    let said = said(HOST, &[("[underlay]", "[api]\nlisten = \"10.0.0.1:9342\"\n[underlay]")]);
    let what = "host.toml:6: api.listen: 10.0.0.1:9342 is no loopback address";
    assert!(said.starts_with(what) && said.contains("\n    Use 127.0.0.1 or [::1]"), "{said}");
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
    state_dir_is_relative: HOST, [("policy = \"ZZ\"", "state_dir = \"var\"")], "
host.toml:3: host.state_dir: is not an absolute path
    Use a path that begins with `/`; the default is `/var/lib/sluice/NAME`.";
    hangs_too_soon: HOST, [("policy = \"ZZ\"", "data_hung_ms = 499")], "
host.toml:3: host.data_hung_ms: a busy machine may keep a process from answering for 499 ms
    Use 500 or more, or 0 for never; the default is 5000.";
    ring_below_headroom: HOST, [("rate_mbps = 1000", "rate_mbps = 1000, ring_bytes = 1000000")], "
host.toml:9: underlay.link.ring_bytes: a receive ring of 1000000 bytes is smaller than the \
headroom of 6278762 B: 1000000000 bit/s for 2 x 1 µs and a stall of 50 ms, the response, \
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
    veth_with_keys_of_other_kinds: HOST, [("\"tap\"", "\"veth\"\nvlan = 5\nring_frames = 9"),
        ("service_mbps = 500", "link = { rate_mbps = 500 }")], "
host.toml:18: port[1].vlan: a veth pair has no VLANs: its container's frames are those of \
    its network
    Take it out; `kind = \"l2\"` is for a device with tagged frames.
host.toml:19: port[1].ring_frames: the ring of a veth pair is the kernel's, and a full one \
    holds its senders
    Take it out; it is for `kind = \"tap\"`.
host.toml:24: port[1].link: a veth pair is no cable
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

/// Settings for the two letters of a policy: (outputs hold, inputs from the wire pause).
#[test]
fn policies_are_settings_of_places() {
    for (policy, held, paused) in
        [("LL", false, false), ("LZ", false, true), ("ZL", true, false), ("ZZ", true, true)]
    {
        let plan = planned(&HOST.replace("\"ZZ\"", &format!("\"{policy}\"")));
        assert!(plan.switch.classes.iter().all(|class| class.lossless == held), "{policy}");
        let [tap, underlay] = &plan.switch.ports[..] else { panic!("two ports") };
        assert_eq!(tap.input_full, InputFull::Wait, "{policy}");
        assert!(!tap.rx_pause);
        assert_eq!(matches!(underlay.input_full, InputFull::Pause(_)), paused, "{policy}");
        assert_eq!(underlay.input_full == InputFull::Drop, !paused, "{policy}");
        assert_eq!(underlay.rx_pause, paused, "{policy}");

        let plan = planned(&SWITCH.replace("\"ZZ\"", &format!("\"{policy}\"")));
        assert!(plan.switch.classes.iter().all(|class| class.lossless == paused), "{policy}");
        assert_eq!(plan.switch.ports[0].rx_pause, paused, "{policy}");
    }
}

#[test]
fn dscp_maps_to_class_selector_priority() {
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
    assert_eq!(plan.state_dir, Path::new("/var/lib/sluice/h1"));
    assert_eq!(
        plan.notes,
        ["port underlay: receive ring of 6278762 bytes; headroom 6278762 B = 1000000000 bit/s x \
          (2 x 1 µs + 50 ms) + response + 2 frames of 1542 B for 8 priorities"]
    );
}

#[test]
fn learning_port_vports_claimed_without_bindings() {
    let fabric = "[fabric]\nname = \"f\"\nid = 1\ncertificates = \"/tls\"\n";
    let at_port = |ip| {
        let mac = "02:00:00:00:00:07";
        format!("[[vport]]\nvnet = \"blue\"\nmac = \"{mac}\"\nport = \"c1\"\nip = \"{ip}\"\n")
    };
    let text = format!("{HOST}{fabric}{}", at_port("10.0.0.7"));
    let learns = planned(&text.replace("mac = \"02:00:00:00:00:01\"\n", ""));
    let bound = learns.fabric.unwrap().bound;
    assert_eq!((bound.len(), bound[0].mac.0[5]), (1, 7));
    assert_eq!(learns.switch.control.bindings, []);
    // A port with a MAC of its own has both.
    let binds = planned(&text);
    assert_eq!(binds.fabric.unwrap().bound.len(), 2);
    assert_eq!(binds.switch.control.bindings.len(), 2);
}

#[test]
fn allow_ip_on_bound_port_planned_unbound_refused() {
    let fabric = "[fabric]\nname = \"f\"\nid = 1\ncertificates = \"/tls\"\n";
    let mac = "mac = \"02:00:00:00:00:01\"\n";
    let allow = format!("{mac}allow_ip = [\"10.0.0.40\", \"fd00::/64\"]\n");
    let text = format!("{HOST}{fabric}").replace(mac, &allow);
    let plan = planned(&text);
    let prefix = |ip: &str, length| IpPrefix::new(ip.parse().unwrap(), length).unwrap();
    let expected = [prefix("10.0.0.40", 32), prefix("fd00::", 64)];
    assert_eq!(plan.switch.control.allowed, expected.map(|prefix| (PortId(0), prefix)));
    assert_eq!(plan.fabric.unwrap().ports[&PortId(0)].allowed, expected);
    assert_eq!(plan.ports[0].allowed.len(), 2);
    let many: Vec<String> = (0..17).map(|n| format!("\"10.0.0.{n}\"")).collect();
    for (wrong, why) in [
        (text.replace(mac, ""), "takes any address"),
        (HOST.replace(mac, &allow), "takes any address"),
        (text.replace("\"10.0.0.40\"", &many.join(", ")), "more than the 16"),
        (text.replace("fd00::/64", "fd00::1/64"), "use fd00::/64"),
    ] {
        let report = said(&wrong, &[]);
        assert!(report.contains(why), "{report}");
    }
}

#[test]
fn ring_below_pause_headroom_noted_as_not_lossless() {
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
    // No promise depends on it.
    assert!(notes(&unknown.replace("\"ZZ\"", "\"ZL\"")).is_empty());
    assert!(
        notes(&HOST.replace("rate_mbps = 1000", "rate_mbps = 10000, stall_ms = 10")).is_empty()
    );
}

#[test]
fn udp_underlay_next_hop_left_to_kernel() {
    let plan = planned(&HOST.replace("\"l2\"", "\"udp\"").replace("\"ZZ\"", "\"ZL\""));
    assert!(plan.switch.tunnels[0].next_hop.is_some());
    assert!(matches!(plan.ports[1].attachment, Attachment::Udp { .. }));
    assert_eq!(plan.ports[1].policy_lacks, Some("an l2 underlay"));
}

#[test]
fn slow_rate_limit_keeps_burst_of_two_frames() {
    let plan = planned(&HOST.replace("rate_mbps = 1000", "rate_mbps = 10"));
    let rate = plan.switch.ports[1].rate.unwrap();
    assert!(rate.rate.bytes_in(rate.catch_up).0 >= 2 * 1542, "{rate:?}");
}

#[test]
fn config_fingerprint_follows_values_and_ignores_comments() {
    let same = planned(&HOST.replace("[underlay]", "# the wire\n[underlay]"));
    let other = planned(&HOST.replace("vni = 42", "vni = 43"));
    assert_eq!(planned(HOST).fingerprint, same.fingerprint);
    assert_ne!(planned(HOST).fingerprint, other.fingerprint);
}

/// The data process reads a copy in another directory, and must get the same result.
#[test]
fn config_copy_resolves_relative_paths_like_original() {
    let dir = std::env::temp_dir().join(format!("sluice-beside-{}", std::process::id()));
    let run_dir = dir.join("run");
    std::fs::create_dir_all(&run_dir).unwrap();
    let text = HOST.replacen("policy = \"ZZ\"", "policy = \"ZZ\"\nrun_dir = \"run\"", 1);
    assert_ne!(text, HOST);
    let [file, copy] = [&dir, &run_dir].map(|dir| dir.join("host.toml"));
    for path in [&file, &copy] {
        std::fs::write(path, &text).unwrap();
    }
    let first = load(&file, &Fake).unwrap();
    let second = load_beside(&copy, first.dir.as_deref(), &Fake).unwrap();
    let own = load(&copy, &Fake).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(first.run_dir, run_dir);
    assert_eq!((&second.run_dir, second.fingerprint), (&run_dir, first.fingerprint));
    assert_ne!(own.fingerprint, first.fingerprint, "what would be without it");
}

#[test]
fn the_example_of_the_documentation_is_fine() {
    let text = include_str!("../../../../docs/host.toml");
    plan("docs/host.toml", text, &Fake).unwrap_or_else(|report| panic!("{report}"));
}

const TRUNK: &str = r#"
[[vnet]]
name = "red"
vni = 43

[[port]]
name = "rack-blue"
kind = "l2"
vnet = "blue"
device = "eth1"
vlan = 10
link = { rate_mbps = 1000 }

[[port]]
name = "rack-red"
kind = "l2"
vnet = "red"
device = "eth1"
vlan = 20
native = true
"#;

#[test]
fn device_vlans_become_separate_trunk_ports() {
    use sluice_ports::l2::Vlan;
    use sluice_switch::Tags;

    let plan = planned(&format!("{HOST}{TRUNK}"));
    let bare = |at: usize| match &plan.ports[at].attachment {
        Attachment::BareMetal { device, vlan, ring_bytes, mtu, pausable, .. } => {
            assert_eq!((&**device, *mtu, *pausable), ("eth1", 1450, PriorityMask::ALL));
            (*vlan, *ring_bytes)
        }
        other => panic!("{other:?}"),
    };
    let ring = bare(1).1;
    assert_eq!((bare(1), bare(2)), ((Vlan::Tagged(10), ring), (Vlan::Native(20), ring)));
    let ports = &plan.switch.ports;
    let role = |vnet| PortRole::Access { vnet: VnetId(vnet) };
    assert_eq!((ports[1].role, ports[2].role), (role(0), role(1)));
    for port in &ports[1..3] {
        assert_eq!(port.tags, Tags::Trunk);
        let rate = port.rate.expect("the cable's");
        assert_eq!((rate.rate.0, rate.overhead), (1_000_000_000, 28), "the tag's bytes too");
        assert!(matches!(port.input_full, InputFull::Pause(_)));
    }
    assert_eq!((ports[0].tags, ports[3].tags), (Tags::Kept, Tags::Kept), "TAP and underlay");
    let rings = plan.notes.iter().filter(|note| note.contains("receive ring of")).count();
    assert_eq!(rings, 2, "a device has one: {:?}", plan.notes);
    assert!(!plan.notes.iter().any(|note| note.contains("tag of their own")), "1454 fit into 1500");
}

#[test]
fn l2_port_without_vlan_access_on_host_only() {
    use sluice_ports::l2::Vlan;
    use sluice_switch::Tags;

    let desk = "[[port]]\nname = \"desk\"\nkind = \"l2\"\nvnet = \"blue\"\ndevice = \"eth1\"\n";
    let host = planned(&format!("{HOST}{desk}").replace("\"ZZ\"", "\"ZL\""));
    assert_eq!(host.switch.ports[1].tags, Tags::Access);
    let Attachment::BareMetal { vlan, pausable, .. } = &host.ports[1].attachment else {
        panic!("{:?}", host.ports[1])
    };
    assert_eq!((*vlan, *pausable), (Vlan::Access, PriorityMask::NONE), "ZL pauses no wire");
    let switch = planned(SWITCH);
    assert_eq!(switch.switch.ports[0].tags, Tags::Kept);
    assert!(matches!(switch.ports[0].attachment, Attachment::L2 { .. }));
}

#[test]
fn tagged_full_frames_above_device_mtu_noted() {
    let text = format!("{HOST}{TRUNK}").replace("vni = 43", "vni = 43\nmtu = 1500");
    let text = text.replace(
        "link = { rate_mbps = 1000 }\n\n[[vnet]]\nname = \"blue\"",
        "mtu = 1550\nlink = { rate_mbps = 1000 }\n\n[[vnet]]\nname = \"blue\"",
    );
    struct Large;
    impl Devices for Large {
        fn facts(&self, device: &str) -> Option<DeviceFacts> {
            let mtu = if device == "eth0" { 1600 } else { 1500 };
            Some(DeviceFacts { mac: Mac::default(), mtu })
        }
    }
    let plan = plan("host.toml", &text, &Large).unwrap_or_else(|report| panic!("{report}"));
    let notes: Vec<_> = plan.notes.iter().filter(|n| n.contains("of their own")).collect();
    assert_eq!(notes.len(), 2, "{:?}", plan.notes);
    assert!(notes[0].ends_with("`ip link set eth1 mtu 1504`"), "{notes:?}");
}

/// Returns the messages on a host with a trunk after each change.
fn trunk_said(changes: &[(&str, &str)]) -> String {
    said(&format!("{HOST}{TRUNK}"), changes)
}

/// A case: name, changes, message.
type Wrong<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

#[test]
fn wrong_vlans() {
    let table: [Wrong<'_>; 12] = [
        (
            "none",
            &[("vlan = 10", "vlan = 0")],
            "
host.toml:43: port[2].vlan: VLAN 0 is none: its tag says a priority only
    Use 1 to 4094.",
        ),
        (
            "the reserved one",
            &[("vlan = 10", "vlan = 4095")],
            "
host.toml:43: port[2].vlan: VLAN 4095 is reserved (802.1Q table 9-2)
    Use 1 to 4094.",
        ),
        (
            "too large",
            &[("vlan = 10", "vlan = 4096")],
            "
host.toml:43: port[2].vlan: 4096 does not fit into the 12 bits of a VLAN
    Use 1 to 4094.",
        ),
        (
            "one twice",
            &[("vlan = 20", "vlan = 10")],
            "
host.toml:51: port[3].vlan: VLAN 10 of device `eth1` is there twice, first on line 38
    Take one of the two out.",
        ),
        (
            "a network twice",
            &[("vnet = \"red\"", "vnet = \"blue\"")],
            "
host.toml:49: port[3].vnet: network `blue` behind device `eth1` is there twice, first on line 38
    Take one of the two out.",
        ),
        (
            "two native",
            &[("vlan = 10", "vlan = 10\nnative = true")],
            "
host.toml:53: port[3].native: native VLAN of `eth1` is there twice, first on line 38
    Take one of the two out.",
        ),
        (
            "an unknown network",
            &[("vnet = \"red\"", "vnet = \"rad\"")],
            "
host.toml:49: port[3].vnet: there is no vnet `rad`
    There is: blue, red.",
        ),
        (
            "the underlay's device",
            &[("\"eth1\"", "\"eth0\"")],
            "
host.toml:42: port[2].device: `eth0` is the device of the underlay
    Use another one: what comes from there is VXLAN, and no machine's frames.
host.toml:50: port[3].device: `eth0` is the device of the underlay
    Use another one: what comes from there is VXLAN, and no machine's frames.",
        ),
        (
            "one without",
            &[("vlan = 20\nnative = true\n", "")],
            "
host.toml:50: port[3].device: ports share device `eth1`, and `rack-red` has no VLAN
    Give it a `vlan`, with `native = true` if its frames are untagged.",
        ),
        (
            "native without",
            &[("vlan = 20\n", ""), ("\"eth1\"\nnative", "\"eth2\"\nnative")],
            "
host.toml:51: port[3].native: there is no VLAN that the untagged frames could be of
    Add `vlan = …`, or take it out: without a VLAN all frames are untagged.",
        ),
        (
            "two cables",
            &[("vlan = 20", "vlan = 20\nlink = { rate_mbps = 10 }")],
            "
host.toml:52: port[3].link: the ports of device `eth1` have one cable, and this is another
    Say it at one of them.",
        ),
        (
            "of a TAP",
            &[("netns = \"/run/netns/c1\"", "vlan = 5")],
            "
host.toml:20: port[1].vlan: a TAP has no VLANs: its container's frames are those of its network
    Take it out; `kind = \"l2\"` is for a device with tagged frames.",
        ),
    ];
    for (name, changes, expected) in table {
        let said = trunk_said(changes);
        assert!(said == expected.trim_start_matches('\n'), "{name}, said:\n{said}\n");
    }
}

const MACHINES: &str = r#"
[[port]]
name = "vm1"
kind = "vhost-user"
vnet = "blue"
socket = "/run/sluice/vm1.sock"

[[port]]
name = "vm2"
kind = "vhost-user"
vnet = "blue"
socket = "/run/sluice/vm2.sock"
client = true
in_order = true
offload = false
"#;

#[test]
fn a_virtual_machine_has_a_socket() {
    let plan = planned(&format!("{HOST}{MACHINES}"));
    let of = |at: usize| match &plan.ports[at].attachment {
        Attachment::VhostUser { socket, client, mtu, in_order, offload, .. } => {
            (socket.to_str().unwrap(), *client, *mtu, *in_order, *offload)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(of(1), ("/run/sluice/vm1.sock", false, 1450, false, true));
    assert_eq!(of(2), ("/run/sluice/vm2.sock", true, 1450, true, false));
}

#[test]
fn queues_of_a_machine_are_of_priorities() {
    let text = format!("{HOST}{MACHINES}queues = [[0, 1, 2], [6, 3], [4, 5, 7]]\n");
    let plan = planned(&text);
    let masks = |of: &[&[u8]]| -> Vec<PriorityMask> {
        of.iter()
            .map(|of| of.iter().fold(PriorityMask::NONE, |m, p| PriorityMask(m.0 | 1 << p)))
            .collect()
    };
    let Attachment::VhostUser { queues, .. } = &plan.ports[2].attachment else { panic!() };
    assert_eq!(*queues, masks(&[&[0, 1, 2], &[6, 3], &[4, 5, 7]]));
    let [_, one, three, _] = &plan.switch.ports[..] else { panic!("four ports") };
    assert_eq!((one.queues, three.queues), (1, 3));
    assert_eq!(one.queue_priorities, [PriorityMask::ALL; 8]);
    // The first queue takes every priority.
    assert_eq!(
        three.queue_priorities[..4],
        [&[PriorityMask::ALL], &queues[1..], &[PriorityMask::ALL]].concat()
    );
}

#[test]
fn a_wrong_socket_is_explained() {
    let table: [(&[(&str, &str)], &str); 9] = [
        (&[("socket = \"/run/sluice/vm1.sock\"\n", "")], "port[2].socket: a port for a virtual"),
        (&[("/run/sluice/vm1.sock", "vm1.sock")], "port[2].socket: `vm1.sock` is not a path"),
        (&[("vm1.sock", "vm2.sock")], "socket `/run/sluice/vm2.sock` is there twice"),
        (
            &[("client = true", "device = \"x\"")],
            "port[3].device: a port for a virtual machine has",
        ),
        (&[("netns = \"/run/netns/c1\"", "socket = \"/x\"")], "port[1].socket: only a port for a"),
        (&[("client = true", "queues = [[0, 1, 2], [3, 4, 5, 6]]")], "port[3].queues: the queues"),
        (&[("client = true", "queues = [[0, 1, 2, 3, 4, 5, 6, 7], []]")], "port[3].queues: the"),
        (&[("client = true", "queues = [[0, 1, 2, 3, 4, 5, 6, 7, 7]]")], "port[3].queues: the"),
        (&[("netns = \"/run/netns/c1\"", "queues = [[0]]")], "port[1].queues: only a port for a"),
    ];
    for (changes, expected) in table {
        let mut text = format!("{HOST}{MACHINES}");
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let report = plan("host.toml", &text, &Fake).expect_err(expected).to_string();
        assert!(report.contains(expected), "{expected}, said:\n{report}");
    }
}

mod underlay;

#[test]
fn port_without_own_values_has_those_of_network() {
    let vnet = "vni = 42\nservice_mbps = 200\npriority = 3\nhold = \"2s\"";
    let port = |text: &str| {
        let port = planned(text).switch.ports.swap_remove(0);
        (port.rate.map(|rate| rate.rate.0), port.default_priority.get())
    };
    let with_vnet = HOST.replacen("vni = 42", vnet, 1);
    assert_eq!(port(&with_vnet), (Some(500_000_000), 3), "its own rate goes before");
    let without_own = with_vnet.replacen("service_mbps = 500\n", "", 1);
    assert_eq!(port(&without_own), (Some(200_000_000), 3));
    assert_eq!(port(HOST), (Some(500_000_000), 0));
    for (key, what) in
        [("priority = 9", "there is no priority 9"), ("service_mbps = 0", "serve no")]
    {
        let text = HOST.replacen("vni = 42", &format!("vni = 42\n{key}"), 1);
        let report = plan("host.toml", &text, &Fake).unwrap_err().to_string();
        assert!(report.contains(what), "{report}");
    }
}
