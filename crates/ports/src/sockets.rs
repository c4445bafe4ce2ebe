//! Counters of the UDP sockets of a network namespace: datagrams that arrived and found no room.
//!
//! The namespace's own files are opened once, by a thread that is in it; with these descriptors the
//! counters can be read from any thread. A read costs some tens of microseconds: it is for queries,
//! not for frames.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::port::Counters;

/// Limit of a file's size, above that of both files.
const FILE_SIZE_MAX: usize = 16 << 10;

/// Rows, and the kernel's names of them. The kernel's last counter includes the others; its row is
/// without them.
const ROWS: [(&str, &str); 4] = [
    ("container.udp_rcvbuf_errors", "RcvbufErrors"),
    ("container.udp_mem_errors", "MemErrors"),
    ("container.udp_csum_errors", "InCsumErrors"),
    ("container.udp_in_errors", "InErrors"),
];

/// The counters of a namespace, since this was made.
#[derive(Debug)]
pub(crate) struct SocketCounters {
    v4: File,
    /// `None` without IPv6.
    v6: Option<File>,
    before: [u64; 4],
}

impl SocketCounters {
    /// Begins to count for the caller's namespace.
    pub(crate) fn new() -> io::Result<Self> {
        let mut new = Self::since([0; 4])?;
        new.before = new.now()?;
        Ok(new)
    }

    /// Counts on from an earlier start.
    pub(crate) fn since(before: [u64; 4]) -> io::Result<Self> {
        let v4 = File::open("/proc/thread-self/net/snmp")?;
        let v6 = File::open("/proc/thread-self/net/snmp6").ok();
        Ok(Self { v4, v6, before })
    }

    /// The values at which the count began.
    pub(crate) const fn start(&self) -> [u64; 4] {
        self.before
    }

    /// Adds the rows.
    pub(crate) fn read(&self, rows: &mut Counters) -> io::Result<()> {
        for (((row, _), now), before) in ROWS.iter().zip(self.now()?).zip(self.before) {
            rows.insert(row, now.saturating_sub(before));
        }
        Ok(())
    }

    fn now(&self) -> io::Result<[u64; 4]> {
        let v4 = text(&self.v4)?;
        let v6 = self.v6.as_ref().map(text).transpose()?.unwrap_or_default();
        Ok(counters(&v4, &v6))
    }
}

fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; FILE_SIZE_MAX];
    let size = file.read_at(&mut bytes, 0)?;
    bytes.truncate(size);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The rows of `/proc/net/snmp` and `/proc/net/snmp6` together.
fn counters(v4: &str, v6: &str) -> [u64; 4] {
    let mut sums = ROWS.map(|(_, name)| {
        let six = format!("Udp6{name}");
        let mut lines = v6.lines().map(str::split_whitespace);
        let six = lines
            .find_map(|mut words| (words.next()? == six).then(|| words.next()?.parse().ok())?);
        snmp_counter(v4, "Udp:", name).unwrap_or(0) + six.unwrap_or(0)
    });
    let others = sums[..3].iter().sum();
    sums[3] = sums[3].saturating_sub(others);
    sums
}

/// A counter of `/proc/net/snmp`: a line of names, and a line of values.
pub(crate) fn snmp_counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.split_whitespace().next() == Some(protocol));
    let column = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_errors_summed_over_families_without_double_count() {
        let v4 = "Ip: A B\nIp: 1 2\n\
                  Udp: InDatagrams InErrors RcvbufErrors InCsumErrors MemErrors\n\
                  Udp: 90 20 7 3 1\n";
        let v6 = "Ip6InReceives 5\nUdp6InErrors \t9\nUdp6RcvbufErrors 4\nUdp6InCsumErrors 0\n";
        assert_eq!(counters(v4, v6), [11, 1, 3, 14]);
        assert_eq!(counters(v4, ""), [7, 1, 3, 9]);
        assert_eq!(counters("", ""), [0; 4]);
    }

    #[test]
    fn it_counts_from_its_beginning() {
        let mut rows = Counters::new();
        SocketCounters::new().unwrap().read(&mut rows).unwrap();
        assert_eq!(rows.len(), 4);
    }
}
