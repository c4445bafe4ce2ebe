//! The machine and the commit, for result files.

use std::path::Path;
use std::process::Command;

/// Returns processor, cores, memory and kernel in one line.
pub(crate) fn description() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let after = |text: &str, name: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processor = after(&cpuinfo, "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kb = after(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{processor}, {cores} cores, {} GB, Linux {}", kb >> 20, kernel.trim())
}

/// Returns the commit of the program: `SLUICE_COMMIT` at build time, or the commit of the
/// repository that holds the program or the current folder.
pub(crate) fn commit() -> String {
    if let Some(commit) = option_env!("SLUICE_COMMIT") {
        return commit.to_owned();
    }
    let program = std::env::current_exe().ok();
    let folder = program.as_deref().and_then(Path::parent);
    let commit = folder.and_then(head).or_else(|| {
        let here = std::env::current_dir().ok()?;
        head(&here).filter(|_| here.join("crates/lab/Cargo.toml").exists())
    });
    commit.unwrap_or_else(|| "unknown".to_owned())
}

fn head(folder: &Path) -> Option<String> {
    let output =
        Command::new("git").arg("-C").arg(folder).args(["rev-parse", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}
