//! The time of frames on a wire: the smallest frame is 64 bytes with its check sequence, 84 with
//! preamble and gap.

use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos};
use sluice_sim::tcp::{Algorithm, Config};

use crate::network::{Chain, FULL_WIRE, Flows};

/// A full segment of one way shares its link with half an acknowledgement of the other way:
/// `1460 / (1538 + 84 / 2)` of the rate, each way, for 18.48 of 20 Gbit/s. An acknowledgement
/// without time stamps has 54 bytes, and is padded to 60.
#[test]
fn flows_both_ways_share_with_padded_acks() {
    let chain = Chain {
        pairs: 1,
        links: 2,
        rate: BitRate::from_gbps(10),
        delay: Nanos::from_micros(1),
        buffer: ByteCount(4_000_000),
    };
    let tcp = Config { send_buffer: 128 << 10, ..Config::freebsd9(Algorithm::NewReno) };
    let ends = (0..16).map(|at| if at < 8 { (0, 1) } else { (1, 0) }).collect();
    let mut flows = Flows::new(Arc::new(tcp), ends, Nanos::from_millis(5));
    flows.run(&chain, 20);
    let both = flows.rate(4, flows.seen.len() - 1) * 8.0;
    // A frame's time is whole nanoseconds: 1,231 for 1,538 bytes, 68 for 84.
    let expected = 2.0 * 1_460.0 * 8e9 / (1_231.0 + 68.0 / 2.0);
    println!("{:.3} of {:.3} Gbit/s, {FULL_WIRE} bytes a frame", both / 1e9, expected / 1e9);
    assert!((0.999..1.000_2).contains(&(both / expected)), "{both} of {expected}");
}
