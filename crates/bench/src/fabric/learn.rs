//! Software learning: frames of unknown endpoints go into a TAP, and the host at the far end counts
//! the endpoints that it knows.
//!
//! ```text
//!   frame ─ TAP ─ switch ─ punt ─> control: learn, claim ─┬─> switch: source in the FDB
//!                                                         └─> the other host: known
//! ```
//!
//! The sender stays ahead of the far end by a bounded number of frames, about as many as may wait
//! between data and control. Beyond that the switch forwards frames without punting them; unlearned
//! endpoints are sent again.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use sluice_api::results::Row;
use sluice_base::Mac;

use super::Plan;
use super::host::{Hosts, Sender, Setup, mac_of};
use super::net::{PATIENCE, wait_for};

/// Settings that keep policing out of the measurement: one port may learn all endpoints and punt as
/// fast as it can.
pub(super) const SETTINGS: &str =
    "learn_max = 200000\nclaims_per_host = 1200000\npunts_per_port = 1000000";
/// The same for a fabric that is made by command.
pub(super) const LIMITS: [(&str, u32); 3] =
    [("learn_max", 200_000), ("claims_per_host", 1_200_000), ("punts_per_port", 1_000_000)];
/// Number of endpoints.
pub(super) const COUNT: u32 = 100_000;
/// Number of frames that may be ahead of the far end.
const AHEAD_MAX: u32 = 3_000;
/// After this time without progress, all frames are sent again.
const STALL: Duration = Duration::from_millis(500);

/// Returns a tenant's frame of the smallest size.
pub(crate) fn data_frame(src: Mac, dst: Mac) -> [u8; 60] {
    let mut frame = [0; 60];
    crate::forward::write_frame(&mut frame, src, dst);
    frame
}

/// Measures; returns the rows.
pub(super) fn rows(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let [mut rates, mut resent, mut fdb] = [const { Vec::new() }; 3];
    for _ in 0..plan.rounds {
        // Fresh hosts each time: a table that learned once keeps its endpoints.
        let hosts = Hosts::start("learn", &Setup::plain(2, SETTINGS))?;
        let [a, b] = &hosts.all[..] else { bail!("two hosts were asked for") };
        let mut far = b.talk()?;
        let (time, twice) = teach(a.sender()?, 0..COUNT, || Ok(far.member(a.id)?.vports))?;
        rates.push(f64::from(COUNT) / time.as_secs_f64());
        resent.push(f64::from(twice));
        fdb.push(f64::from(u32::try_from(a.talk()?.fdb()?)?));
    }
    let settings = SETTINGS.replace('\n', ", ");
    let row = |measure, unit, values| {
        Row::new(measure, "sluice", unit, values)
            .with("entries", COUNT)
            .with("peers", 1)
            .with("settings", settings.clone())
    };
    Ok(vec![
        row("learn", "1/s", rates),
        row("learn.resent", "frames", resent),
        row("learn.fdb", "entries", fdb),
    ])
}

/// Sends frames of endpoints with some numbers into a TAP until so many are `known`, of which there
/// are some before. Returns the elapsed time, and the number of frames that were sent again.
pub(crate) fn teach(
    mut sender: Sender,
    numbers: Range<u32>,
    mut known: impl FnMut() -> anyhow::Result<u64>,
) -> anyhow::Result<(Duration, u32)> {
    let (count, mac_of) = (numbers.end - numbers.start, |at| mac_of(numbers.start + at));
    let before = known()?;
    let mut known = || -> anyhow::Result<u32> { Ok(u32::try_from(known()? - before)?) };
    // An endpoint behind the same port: the switch sends the frame nowhere.
    let to = mac_of(0);
    sender.send(&data_frame(to, to), true)?;
    wait_for("the first endpoint is known", || Ok(known()? == 1))?;
    let begin = Instant::now();
    let (mut sent, mut resent, mut there, mut moved_at) = (1, 0, 1, begin);
    while there < count {
        while sent < count && sent < there + AHEAD_MAX {
            let until = (sent + 64).min(count);
            for number in sent..until {
                sender.send(&data_frame(mac_of(number), to), number + 1 == until)?;
            }
            sent = until;
        }
        let now = known()?;
        if now > there {
            (there, moved_at) = (now, Instant::now());
        } else if moved_at.elapsed() > STALL {
            ensure!(begin.elapsed() < PATIENCE, "{there} of {count} are known");
            for number in 0..sent {
                sender.send(&data_frame(mac_of(number), to), number % 64 == 63)?;
            }
            (resent, moved_at) = (resent + sent, Instant::now());
        }
        // Short enough that about a hundredth of the window is learned meanwhile: the far end never
        // idles.
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok((begin.elapsed(), resent))
}
