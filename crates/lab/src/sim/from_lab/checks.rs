//! The lab's checks of connectivity as cells: echoes, and the transfer of a file over TCP.
//!
//! An echo is a segment each way over an open connection, with as many bytes as the lab's ICMP
//! message has: frames have the same size. ARP is not simulated.

use std::sync::Arc;

use sluice_base::{Nanos, Priority, Prng};
use sluice_sim::tcp::Config;
use sluice_sim::workload::Exchange;

use super::super::experiment::{Load, Probe};
use super::fabric::Machines;
use crate::scenario::Check;

/// Payload of a segment with time stamps in a frame as long as that of an ICMP echo: 8 and 56 bytes
/// behind the IP header, of which 32 are TCP's.
const ECHO_BYTES: u64 = 8 + 56 - 32;
/// Time from one echo to the next, as in the lab.
const ECHO_GAP: Nanos = Nanos::from_millis(10);

/// Returns a check as a load; none for a check without a model.
///
/// # Errors
///
/// The check names a container that does not exist.
pub(super) fn load(
    check: &Check,
    machines: &Machines<'_>,
    tcp: &Arc<Config>,
    seed: u64,
) -> anyhow::Result<Option<Load>> {
    let plan = |asks: &str, answers: &str, own: Config| {
        anyhow::Ok(Exchange {
            tcp: Arc::new(own),
            from: machines.station(asks)?,
            to: machines.station(answers)?,
            request_bytes: crate::pa::REQUEST_BYTES as u64,
            response_bytes: 0,
            rounds: 1,
            gap: ECHO_GAP,
            priority: Priority::ZERO,
            flow: Prng::stream(seed, &check.describe()).next_u64(),
        })
    };
    let probe =
        |is_echo, from: &String, to: &String| Probe { is_echo, from: from.clone(), to: to.clone() };
    Ok(match check {
        Check::Ping { from, to, count, .. } => {
            // Without quick acknowledgements the echo itself acknowledges.
            let own = Config { quick_acks: 0, ..Config::clone(tcp) };
            let plan = Exchange {
                request_bytes: ECHO_BYTES,
                response_bytes: ECHO_BYTES,
                rounds: *count,
                ..plan(from, to, own)?
            };
            Some(Load::Exchange(plan, probe(true, from, to)))
        }
        // Bytes are fetched by the container that receives them.
        Check::Transfer { from, to, megabytes } => {
            let bytes = u64::from(*megabytes) * 1_000_000;
            let plan = Exchange { response_bytes: bytes, ..plan(to, from, Config::clone(tcp))? };
            Some(Load::Exchange(plan, probe(false, from, to)))
        }
        Check::Flood { .. } | Check::Tables { .. } => None,
    })
}
