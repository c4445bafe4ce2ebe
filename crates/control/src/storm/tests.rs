use proptest::prelude::*;

use super::*;

const RATE: Rate = Rate { per_second: 1000, burst: 2 };
const WIDE: Rate = Rate { per_second: 1000, burst: 3 };

fn storm() -> Storm {
    let config = Config { ports: 3, vnets: 2, port: [RATE; 3], vnet: [WIDE; 3] };
    Storm::new(&config)
}

#[test]
fn a_destination_has_its_kind() {
    assert_eq!(Kind::of(Mac::BROADCAST), Kind::Broadcast);
    assert_eq!(Kind::of(Mac([0x33, 0x33, 0, 0, 0, 1])), Kind::Multicast);
    assert_eq!(Kind::of(Mac([2, 0, 0, 0, 0, 1])), Kind::Unknown);
}

#[test]
fn ports_networks_and_kinds_have_budgets_of_their_own() {
    use Exceeded::{Port, Vnet};
    use Kind::{Broadcast, Multicast, Unknown};
    let mut storm = storm();
    // (ms, port, network, kind, verdict)
    let rows = [
        (0, 0, 0, Broadcast, Ok(())),
        (0, 0, 0, Broadcast, Ok(())),
        (0, 0, 0, Broadcast, Err(Port)),
        (0, 0, 1, Broadcast, Err(Port)),
        (0, 0, 0, Multicast, Ok(())),
        (0, 0, 0, Unknown, Ok(())),
        (0, 1, 0, Broadcast, Ok(())),
        (0, 1, 0, Broadcast, Err(Vnet)),
        (0, 1, 1, Broadcast, Ok(())),
        (0, 1, 1, Broadcast, Err(Port)),
        (1, 0, 0, Broadcast, Ok(())),
        (1, 1, 0, Broadcast, Err(Vnet)),
        (1, 1, 1, Broadcast, Ok(())),
    ];
    for (row, (ms, port, vnet, kind, expected)) in rows.into_iter().enumerate() {
        let now = Nanos::from_millis(ms);
        let verdict = storm.admit(now, PortId(port), VnetId(vnet), kind);
        assert_eq!(verdict, expected, "row {row}");
    }
    assert_eq!(storm.exceeded_at_port(PortId(0), Broadcast), 2);
    assert_eq!(storm.exceeded_at_port(PortId(0), Multicast), 0);
    assert_eq!(storm.exceeded_in_vnet(VnetId(0), Broadcast), 2);
}

proptest! {
    #[test]
    fn neither_budget_is_ever_exceeded(
        steps in prop::collection::vec((0..2_000_000_u64, 0..3_u16, 0..2_u16), 1..300),
    ) {
        let (mut storm, mut now) = (storm(), Nanos::ZERO);
        let (mut ports, mut vnets) = ([0_u64; 3], [0_u64; 2]);
        for (gap, port, vnet) in steps {
            now = now.after(Nanos(gap));
            if storm.admit(now, PortId(port), VnetId(vnet), Kind::Unknown).is_ok() {
                ports[usize::from(port)] += 1;
                vnets[usize::from(vnet)] += 1;
            }
            let refilled = now.0 / 1_000_000;
            prop_assert!(ports.iter().all(|&count| count <= 2 + refilled));
            prop_assert!(vnets.iter().all(|&count| count <= 3 + refilled));
        }
    }
}
