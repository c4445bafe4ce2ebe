//! TCP throughput by iperf3.

use std::net::Ipv4Addr;
use std::process::Stdio;

use super::{Netns, Process};

/// A server that is stopped when dropped.
pub(crate) struct Server {
    address: Ipv4Addr,
    _process: Process,
}

impl Server {
    pub(crate) fn start(netns: &Netns, address: Ipv4Addr) -> Self {
        let mut command = netns.command("iperf3");
        command.args(["--server", "--bind", &address.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process(command.spawn().unwrap());
        super::wait_for("iperf3 listens", || netns.run("ss -Hltn").contains(":5201"));
        Self { address, _process: process }
    }

    /// Returns the bits per second that arrived, over `seconds`; with `--reverse` in `more` the
    /// server sends.
    pub(crate) fn rate(&self, client: &Netns, seconds: u32, more: &str) -> u64 {
        // A connection that hangs fails this test, but does not block it.
        let limit = seconds + 20;
        let line = format!(
            "timeout {limit} iperf3 --json --client {} --time {seconds} {more}",
            self.address
        );
        let report: serde_json::Value = serde_json::from_str(&client.run(&line)).unwrap();
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
        let rate = rate.unwrap_or_else(|| panic!("iperf3 measured nothing: {report}"));
        format!("{rate:.0}").parse().unwrap()
    }
}
