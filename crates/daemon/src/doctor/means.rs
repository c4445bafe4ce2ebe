//! Means of the kernel for containers and underlays.

use std::io;

use sluice_api::doctor::Row;
use sluice_api::trace::Grade;
use sluice_ports::probe::{self, TapFeatures};
use sluice_ports::udp::Selector;

/// Looks at the kernel's means.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = taps(probe::tap_features());
    let able = |part, what, does: &str, asked: io::Result<()>, remedy: &str| match asked {
        Ok(()) => Row::pass(part, what, does),
        Err(error) => Row::pass(part, what, error.to_string()).but(Grade::Warn, remedy),
    };
    rows.push(able(
        "containers",
        "AF_XDP",
        "there",
        probe::af_xdp(),
        "Use a kernel with CONFIG_XDP_SOCKETS, and give the host CAP_NET_RAW.",
    ));
    rows.push(sockets(probe::socket_room()));
    rows.push(able(
        "underlay",
        "programs at devices",
        "loaded",
        probe::programs(),
        "Use Linux 6.6 or later, and give the host CAP_BPF and CAP_NET_ADMIN: without the guard \
         a tenant that the host routes for reaches other hosts in its name.",
    ));
    rows.push(able(
        "underlay",
        "datagrams together",
        "UDP_SEGMENT, UDP_GRO",
        probe::datagrams_together(),
        "Use Linux 5.0 or later: a `udp` underlay carries bulk at a fraction of the rate.",
    ));
    rows.push(buckets(Selector::can_change()));
    rows
}

/// Returns the row about the room of UDP sockets.
fn sockets(room: Result<bool, String>) -> Row {
    let row = |seen: &str| Row::pass("containers", "UDP sockets' room", seen);
    match room {
        Ok(true) => row("read, and a drained socket is signalled"),
        Ok(false) => row("read; a drained socket is polled each millisecond"),
        Err(lacks) => row(&format!("not read, needs {lacks}")).but(
            Grade::Warn,
            "Give the host a kernel with BTF (CONFIG_DEBUG_INFO_BTF, Linux 6.2) and CAP_BPF, \
             CAP_NET_ADMIN and CAP_PERFMON or CAP_SYS_ADMIN: without it a container's UDP socket \
             that is full drops.",
        ),
    }
}

fn taps(features: io::Result<TapFeatures>) -> Vec<Row> {
    let row = |what, seen: &str| Row::pass("containers", what, seen);
    let features = match features {
        Ok(features) => features,
        Err(error) => {
            let remedy = "`modprobe tun`, and let the host open /dev/net/tun: it has no \
                          containers without.";
            return vec![row("TAP", &error.to_string()).but(Grade::Stop, remedy)];
        }
    };
    let offloads = match features.offloads {
        true => row("TAP offloads", "checksums and segmentation are left to it"),
        false => row("TAP offloads", "none")
            .but(Grade::Warn, "Use Linux 3.8 or later: TCP between containers is slow."),
    };
    let pressure = match features.back_pressure {
        true => row("TAP back-pressure", "a full TAP holds its senders"),
        false => row("TAP back-pressure", "none: a full TAP drops what a container sends").but(
            Grade::Warn,
            "Give a container that floods a port of kind `veth` (Linux 6.13), which holds it, or \
             use Linux 7.3 or later: by a TAP only TCP is surely held, and UDP is dropped in the \
             container's card, and counted there.",
        ),
    };
    vec![row("TAP", "there"), offloads, pressure]
}

fn buckets(can_change: bool) -> Row {
    let row = |seen| Row::pass("underlay", "flows between workers", seen);
    match can_change {
        true => row("move without loss"),
        false => row("stay where they are").but(
            Grade::Warn,
            "Use a kernel with CONFIG_MEMBARRIER: flows of a `udp` underlay do not follow load.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_without_a_device_stop_with_remedy() {
        let missing = taps(Err(io::Error::from_raw_os_error(2)));
        assert_eq!((missing.len(), missing[0].grade), (1, Grade::Stop));
        assert!(missing[0].remedy.contains("modprobe tun"));
        let all = |offloads, back_pressure| {
            let rows = taps(Ok(TapFeatures { offloads, back_pressure }));
            rows.iter().map(|row| row.grade).collect::<Vec<_>>()
        };
        assert_eq!(all(true, true), [Grade::Pass; 3]);
        assert_eq!(all(false, false), [Grade::Pass, Grade::Warn, Grade::Warn]);
    }

    #[test]
    fn means_not_passing_have_a_remedy() {
        for row in rows().into_iter().chain([buckets(false), buckets(true)]) {
            assert_eq!(row.remedy.is_empty(), row.grade == Grade::Pass, "{row:?}");
        }
    }
}
