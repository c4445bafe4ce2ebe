//! Speed of two guests of one thread with a back end that listens on two sockets and forwards
//! between them, such as `dpdk-testpmd`.
//!
//! ```console
//! $ cargo run --release -p sluice-testkit --example speed -- p0 p1 64
//! 64 B: 9.43 M frames/s, 1088 lost, 104.5 ns of processor time a frame
//! ```

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use sluice_testkit::guest::{Guest, GuestConfig, Pages};
use sluice_testkit::load::frame::{End, plain};
use sluice_testkit::load::{Load, Run, Sink, Source, Tsc, pin};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, bytes] = args.as_slice() else { return Err("speed SOCKET SOCKET BYTES".into()) };
    let bytes = bytes.parse()?;
    let config = GuestConfig { ring_size: 1024, pages: Pages::Huge, ..GuestConfig::default() };
    let mut guests = Vec::new();
    for path in [from, to] {
        guests.push(Guest::connected(config.clone(), Path::new(path))?);
    }
    pin(0)?;
    let mut load = Load::new(guests);
    let end = |n: u8| End { mac: [2, 0, 0, 0, 0, n], ip: [198, 51, 100, n] };
    let template = plain(end(1), end(2), bytes);
    let sources = [Source { guest: 0, pair: 0, template, skip: 0, rate: None, flows: 1 }];
    let sinks = [Sink { guest: 1, skip: 0, rate: None, sleep_us: None }];
    let run = Run { settle_ms: 300, window_ms: 1000, burst: 32, touch: false };
    for _ in 0..5 {
        let before = nanoseconds();
        let report = load.run(&sources, &sinks, run, &Tsc::measured());
        let used = nanoseconds() - before;
        let (rate, frames) = (report.taken_rate(), report.taken[0].frames.max(1));
        let each = used * 10 / frames;
        println!(
            "{bytes} B: {}.{:02} M frames/s, {} lost, {}.{} ns of processor time a frame",
            rate / 1_000_000,
            rate / 10_000 % 100,
            report.lost(),
            each / 10,
            each % 10
        );
    }
    Ok(())
}

/// Returns the processor time of this thread.
fn nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}
