use std::net::IpAddr;

use proptest::prelude::*;
use sluice_base::{FlowMatch, Vni};

use super::*;
use crate::buckets::{BUCKETS, GROUPS, HIGH_MATCHES_MAX, group_of, is_high};

/// Result of a program of classic BPF for a packet, according to `linux/filter.h` and
/// `Documentation/networking/filter.rst`.
fn run(program: &[Instruction], packet: &[u8]) -> u32 {
    use crate::sys::bpf::*;
    let load = |at: u32, size: usize| {
        let bytes = packet.get(at as usize..)?.get(..size)?;
        Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    };
    let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
    loop {
        let (code, yes, no, k) = program[at].parts();
        at += 1;
        let loaded = match code {
            LOAD_WORD => load(k, 4),
            LOAD_HALF => load(k, 2),
            LOAD_WORD_X => load(x.wrapping_add(k), 4),
            LOAD_HALF_X => load(x.wrapping_add(k), 2),
            LOAD_BYTE_X => load(x.wrapping_add(k), 1),
            _ => Some(a),
        };
        // A load beyond the end ends the program.
        let Some(loaded) = loaded else { return 0 };
        a = loaded;
        let holds = match code {
            JUMP_IF_EQUAL => a == k,
            JUMP_IF_NOT_BELOW => a >= k,
            JUMP_IF_NOT_BELOW_X => a >= x,
            JUMP_IF_ANY => a & k != 0,
            _ => false,
        };
        match code {
            LOAD_WORD | LOAD_HALF | LOAD_WORD_X | LOAD_HALF_X | LOAD_BYTE_X => {}
            JUMP_IF_EQUAL | JUMP_IF_NOT_BELOW | JUMP_IF_NOT_BELOW_X | JUMP_IF_ANY => {
                at += usize::from(if holds { yes } else { no });
            }
            LOAD_CONSTANT => a = k,
            LOAD_SIZE => a = u32::try_from(packet.len()).unwrap(),
            LOAD_STORED => a = memory[k as usize],
            LOAD_X => x = k,
            LOAD_X_STORED => x = memory[k as usize],
            STORE => memory[k as usize] = a,
            STORE_X => memory[k as usize] = x,
            MISC_TAX => x = a,
            JUMP => at += k as usize,
            RET_A => return a,
            code => {
                let by = if code & 8 == 0 { k } else { x };
                a = match code & !8 {
                    code if code == ALU_K | ADD => a.wrapping_add(by),
                    code if code == ALU_K | SUB => a.wrapping_sub(by),
                    code if code == ALU_K | MUL => a.wrapping_mul(by),
                    code if code == ALU_K | AND => a & by,
                    code if code == ALU_K | LSH => a << by,
                    code if code == ALU_K | RSH => a >> by,
                    code if code == ALU_K | XOR => a ^ by,
                    code => panic!("operation {code:#x}"),
                };
            }
        }
    }
}

/// Bucket that a program gives, from a table with its lower bits, and from one with its upper bits.
fn bucket_by_program(datagram: &[u8], high: &HighFlows) -> u32 {
    let table = |shift: usize| std::array::from_fn(|bucket| (bucket >> shift).to_le_bytes()[0]);
    let [low, upper] = [0, 8].map(|shift| program(&table(shift), high));
    assert!(low.len() <= 4096, "{} instructions", low.len());
    run(&upper, datagram) << 8 | run(&low, datagram)
}

/// A frame by the fields that it is to have.
#[derive(Clone, Debug)]
struct Said {
    vni: u32,
    macs: [u8; 2],
    tagged: bool,
    ip: Option<Ip>,
}

#[derive(Clone, Debug)]
struct Ip {
    addresses: [IpAddr; 2],
    protocol: u8,
    options: usize,
    fragment: u16,
    ports: [u16; 2],
}

impl Said {
    fn datagram(&self) -> Vec<u8> {
        let mut bytes = vec![8, 0, 0, 0];
        bytes.extend((self.vni << 8).to_be_bytes());
        self.macs.iter().for_each(|last| bytes.extend([2, 0, 0, 0, 0, *last]));
        if self.tagged {
            bytes.extend([0x81, 0, 0x20, 7]);
        }
        let Some(ip) = &self.ip else {
            bytes.extend([0x88, 0xb5]);
            bytes.extend([0x45; 60]);
            return bytes;
        };
        match ip.addresses {
            [IpAddr::V4(src), IpAddr::V4(dst)] => {
                bytes.extend([8, 0, 0x45 + u8::try_from(ip.options).unwrap(), 0, 0, 0, 0, 0]);
                bytes.extend(ip.fragment.to_be_bytes());
                bytes.extend([64, ip.protocol, 0, 0]);
                bytes.extend(src.octets().into_iter().chain(dst.octets()));
                bytes.extend(vec![0; ip.options * 4]);
            }
            [IpAddr::V6(src), IpAddr::V6(dst)] => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, ip.protocol, 64]);
                bytes.extend(src.octets().into_iter().chain(dst.octets()));
            }
            _ => unreachable!("both are of one kind"),
        }
        ip.ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
        bytes.extend([0; 16]);
        bytes
    }

    /// Reference of a match, by the fields from which the frame was made.
    fn is_meant(&self, flow: &FlowMatch) -> bool {
        let ports = self.ip.as_ref().and_then(|ip| {
            let is_v6 = ip.addresses[0].is_ipv6();
            let is_whole = is_v6 || ip.fragment & 0x3fff == 0;
            (matches!(ip.protocol, 6 | 17) && is_whole).then_some(ip.ports)
        });
        let addresses = self.ip.as_ref().map(|ip| ip.addresses);
        let of_one_end = [0, 1].into_iter().any(|end| {
            let ip = flow.ip.is_none_or(|ip| addresses.is_some_and(|all| ip.contains(all[end])));
            ip && flow.port.is_none_or(|port| ports.is_some_and(|all| all[end] == port))
        });
        let is_mac = |last: &u8| flow.mac.is_some_and(|mac| mac.0 == [2, 0, 0, 0, 0, *last]);
        flow.vni.is_none_or(|vni| vni.get() == self.vni)
            && (flow.mac.is_none() || self.macs.iter().any(is_mac))
            && flow.protocol.is_none_or(|p| self.ip.as_ref().is_some_and(|ip| ip.protocol == p))
            && of_one_end
    }
}

fn v4() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(vec!["10.0.0.7", "10.0.0.8", "10.0.1.7", "192.0.2.1"])
        .prop_map(|text| text.parse().unwrap())
}

fn v6() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(vec!["fd00::7", "fd00::8", "fd00:0:0:1::7", "fd00:0:0:1:8000::7"])
        .prop_map(|text| text.parse().unwrap())
}

fn ip() -> impl Strategy<Value = Ip> {
    let addresses = prop_oneof![[v4(), v4()], [v6(), v6()]];
    let fragments = prop::sample::select(vec![0, 0, 0x4000, 0x2000, 0x0001, 0x2010]);
    let protocols = prop::sample::select(vec![6_u8, 17, 6, 17, 1, 44]);
    let port = || prop::sample::select(vec![53_u16, 443, 5000]);
    let options = prop_oneof![3 => Just(0_usize), 1 => 1..=10_usize];
    (addresses, protocols, options, fragments, [port(), port()]).prop_map(
        |(addresses, protocol, options, fragment, ports)| Ip {
            addresses,
            protocol,
            options,
            fragment,
            ports,
        },
    )
}

prop_compose! {
    fn said()(vni in 41..44_u32, macs in [0..4_u8, 0..4_u8], tagged: bool,
              ip in prop::option::weighted(0.9, ip())) -> Said {
        Said { vni, macs, tagged, ip }
    }
}

fn prefix() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "10.0.0.7",
        "10.0.0.0/24",
        "10.0.0.0/23",
        "0.0.0.0/0",
        "fd00::7",
        "fd00::/64",
        "fd00:0:0:1:8000::/65",
        "fd00::/16",
        "::/0",
    ])
    .prop_map(|text| format!("ip={text}"))
}

prop_compose! {
    fn flow()(vni in prop::option::weighted(0.3, 41..44_u32),
              mac in prop::option::weighted(0.3, 0..4_u8),
              ip in prop::option::weighted(0.5, prefix()),
              protocol in prop::option::weighted(0.5, prop::sample::select(vec![6_u8, 17, 1])),
              port in prop::option::weighted(0.5, prop::sample::select(vec![53_u16, 443])))
              -> FlowMatch {
        let mac = mac.map(|last| sluice_base::Mac([2, 0, 0, 0, 0, last]));
        let ip = ip.and_then(|text| text.parse::<FlowMatch>().unwrap().ip);
        let port = port.filter(|_| matches!(protocol, Some(6 | 17)));
        FlowMatch { vni: vni.and_then(Vni::new), mac, ip, protocol, port }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn program_and_port_mean_the_same_flows(
        flows in prop::collection::vec(flow(), 0..5),
        frames in prop::collection::vec((said(), 0..120_usize), 16),
    ) {
        let high = HighFlows::new(&flows).unwrap();
        for (said, cut) in frames {
            let datagram = said.datagram();
            let is_meant = flows.iter().any(|flow| said.is_meant(flow));
            let bucket = bucket_of(&datagram, &high).unwrap();
            prop_assert_eq!(is_high(bucket), is_meant, "{:?} {:?}", said, flows);
            let low = bucket_of(&datagram, &HighFlows::default()).unwrap();
            prop_assert_eq!(group_of(bucket), group_of(low), "whatever is high, the group stays");
            prop_assert_eq!(u32::from(bucket), bucket_by_program(&datagram, &high));
            // A datagram of any size; a short one is no frame.
            let cut = &datagram[..cut.min(datagram.len())];
            let bucket = bucket_of(cut, &high);
            prop_assert_eq!(bucket.is_none(), cut.len() < 20);
            prop_assert_eq!(u32::from(bucket.unwrap_or(0)), bucket_by_program(cut, &high));
        }
    }

    #[test]
    fn program_and_port_agree_on_any_bytes(
        flows in prop::collection::vec(flow(), 1..5),
        mut bytes in prop::collection::vec(any::<u8>(), 0..90),
        kind in prop::sample::select(vec![[8_u8, 0], [0x86, 0xdd], [0x81, 0]]),
    ) {
        if let Some(at) = bytes.get_mut(20..22) {
            at.copy_from_slice(&kind);
        }
        let high = HighFlows::new(&flows).unwrap();
        let bucket = bucket_of(&bytes, &high);
        prop_assert_eq!(u32::from(bucket.unwrap_or(0)), bucket_by_program(&bytes, &high));
    }
}

#[test]
fn selector_program_with_max_matches_accepted_by_kernel() {
    // The kernel's limit is 4,096 instructions.
    let longest = "vni=42,mac=02:00:00:00:00:09,ip=fd00::8/125,proto=tcp,port=443";
    let flows = vec![longest.parse().unwrap(); HIGH_MATCHES_MAX];
    let high = HighFlows::new(&flows).unwrap();
    let count = program(&unlike(), &high).len();
    assert_eq!(count, 1783, "as is written where it is asked for");
    assert_eq!(HighFlows::new(&[flows, vec![FlowMatch::default()]].concat()), None);
    // The kernel takes it.
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).unwrap();
    let socket = bind(socket, "127.0.0.1:0".parse().unwrap(), 2).unwrap();
    sys::choose_socket(&socket, &mut program(&unlike(), &high)).unwrap();
    Selector::would_take(&high).unwrap();
}

#[test]
fn selector_program_of_any_table_within_probed_length() {
    let high = HighFlows::new(&["vni=42".parse().unwrap()]).unwrap();
    let most = program(&unlike(), &high).len();
    let mut prng = sluice_base::Prng::new(9);
    for sharers in [1, 2, 3, 4, 8, 256] {
        let even = evenly(sharers);
        let any = std::array::from_fn(|_| u8::try_from(prng.below(sharers as u64)).unwrap());
        for table in [even, any] {
            assert!(program(&table, &high).len() <= most, "{sharers} sharers");
        }
    }
    assert!(program(&evenly(2), &high).len() < most / 2, "so little it is at start");
}

#[test]
fn bucket_group_has_four_low_and_one_high() {
    for group in 0..GROUPS {
        let all: Vec<u16> = (0..BUCKETS).filter(|b| group_of(*b) == group).collect();
        let first = group * 4;
        let high = LOW_BUCKETS + group;
        assert_eq!(all, [first, first + 1, first + 2, first + 3, high]);
    }
}
