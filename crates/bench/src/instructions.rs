//! Instructions per frame, counted by callgrind: exact, and the same however busy the machine is.
//!
//! Two runs of different length are counted and subtracted, so that start-up does not count.

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::forward::Setup;

const SHORT: u64 = 200_000;
const LONG: u64 = 600_000;

/// Returns true if callgrind is installed.
pub(crate) fn available() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success())
}

/// Returns the instructions per frame of a set-up.
pub(crate) fn per_frame(setup: &Setup) -> anyhow::Result<f64> {
    let (ports, macs) = (setup.ports.to_string(), setup.macs.to_string());
    per_frame_of(&["once", "--ports", &ports, "--macs", &macs], setup.lossy)
}

/// Returns the instructions per frame through two switches, `batch` frames at a time.
pub(crate) fn per_tunnel_frame(batch: usize, lossy: bool) -> anyhow::Result<f64> {
    per_frame_of(&["once-tunnel", "--batch", &batch.to_string()], lossy)
}

fn per_frame_of(part: &[&str], lossy: bool) -> anyhow::Result<f64> {
    let (short, long) = (count(part, lossy, SHORT)?, count(part, lossy, LONG)?);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let per_frame = (long - short) as f64 / (LONG - SHORT) as f64;
    Ok(per_frame)
}

fn count(part: &[&str], lossy: bool, frames: u64) -> anyhow::Result<u64> {
    let out = std::env::temp_dir().join(format!("sluice-callgrind-{}", std::process::id()));
    let exe = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "-q"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(exe)
        .args(part)
        .args(["--frames", &frames.to_string()]);
    if lossy {
        command.arg("--lossy");
    }
    let output = command.output().context("cannot run valgrind")?;
    let text = fs::read_to_string(&out);
    let _ = fs::remove_file(&out);
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = text.context("callgrind wrote nothing")?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")))
        .context("callgrind's output has no total")?;
    total.trim().parse().context("callgrind's total is no number")
}
