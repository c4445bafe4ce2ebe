//! Kernel, rights, limits, scheduling, memory.

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use sluice_api::doctor::Row;
use sluice_api::trace::Grade;

use crate::sys::{limits, privileges};

const PART: &str = "host";
/// Oldest kernel on which everything but named exceptions works.
const KERNEL_MIN: (u32, u32) = (6, 6);
/// Without these no port but `udp` opens.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);
/// Ports that a host is expected to have room for.
const PORTS_MIN: u64 = 1_000;

/// Looks at the machine.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![kernel(), rights(), descriptors(), processors()];
    rows.push(autogroup(read("/proc/sys/kernel/sched_autogroup_enabled")));
    rows.push(real_time(read("/proc/sys/kernel/sched_rt_runtime_us")));
    rows.push(huge_pages(&read("/proc/meminfo").unwrap_or_default()));
    rows
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn kernel() -> Row {
    let name = rustix::system::uname();
    kernel_of(&name.release().to_string_lossy())
}

fn kernel_of(release: &str) -> Row {
    let row = Row::pass(PART, "kernel", format!("Linux {release}"));
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return row.but(Grade::Unknown, "Its version cannot be read from its name.");
    };
    if (major, minor) >= KERNEL_MIN {
        return row;
    }
    let (major, minor) = KERNEL_MIN;
    row.but(
        Grade::Warn,
        format!(
            "Use Linux {major}.{minor} or later: an older one cannot guard an underlay at the \
             device's egress, and tenants reach other hosts in its name."
        ),
    )
}

fn rights() -> Row {
    match capabilities(None) {
        Ok(own) => rights_of(own.effective),
        Err(error) => Row::pass(PART, "rights", error.to_string())
            .but(Grade::Unknown, "The kernel does not tell this process's capabilities."),
    }
}

fn rights_of(own: CapabilitySet) -> Row {
    let row = Row::pass(PART, "rights", "all capabilities that a host uses");
    let missing = privileges::KEPT.difference(own);
    if missing.is_empty() {
        return row;
    }
    let names: Vec<String> = missing.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    let seen = format!("without {}", names.join(", "));
    let grade = if missing.intersects(NEEDED) { Grade::Stop } else { Grade::Warn };
    let remedy = "Run it as root, or let its service have them (`AmbientCapabilities=`); the page \
                  on security says what each is for.";
    Row { seen, ..row }.but(grade, remedy)
}

fn descriptors() -> Row {
    let limit = getrlimit(Resource::Nofile).maximum;
    let ports = limits::ports_with(limit);
    let seen = match limit {
        Some(limit) => format!("{limit}, enough for {ports} containers"),
        None => "no limit".to_owned(),
    };
    let row = Row::pass(PART, "descriptors", seen);
    if ports >= PORTS_MIN {
        return row;
    }
    row.but(Grade::Warn, "Raise the hard limit: `ulimit -Hn`, or `LimitNOFILE=` of its service.")
}

fn processors() -> Row {
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let row = Row::pass(PART, "processors", format!("{count} for this process"));
    if count > 1 {
        return row;
    }
    row.but(Grade::Warn, "Give it two: a worker and those who send to it share one.")
}

fn autogroup(text: Option<String>) -> Row {
    let is_on = text.as_deref().map(str::trim) == Some("1");
    let seen = if is_on { "by session (autogroup)" } else { "by process" };
    let row = Row::pass(PART, "shares of the CPUs", seen);
    if !is_on {
        return row;
    }
    row.but(
        Grade::Warn,
        "`sysctl kernel.sched_autogroup_enabled=0`: while it is on, a data process that was \
         started from a terminal shares what that session gets, and `nice` moves nothing.",
    )
}

fn real_time(text: Option<String>) -> Row {
    let what = "real-time threads";
    let Some(micros) = text.and_then(|text| text.trim().parse::<i64>().ok()) else {
        let row = Row::pass(PART, what, "unknown");
        return row.but(Grade::Unknown, "/proc/sys/kernel/sched_rt_runtime_us cannot be read.");
    };
    match micros {
        0 => Row::pass(PART, what, "never run").but(
            Grade::Warn,
            "`sysctl kernel.sched_rt_runtime_us=950000`: control finds silent hosts late on a \
             busy machine.",
        ),
        _ => Row::pass(PART, what, "run first"),
    }
}

fn huge_pages(meminfo: &str) -> Row {
    let value = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let row = |seen: String| Row::pass("machines", "huge pages", seen);
    match (value("HugePages_Free"), value("Hugepagesize")) {
        (Some(0), Some(size)) => row(format!("none free, of {size} KiB")).but(
            Grade::Warn,
            "`sysctl vm.nr_hugepages=N` before machines start: a machine whose memory is of small \
             pages costs its switch more time a frame.",
        ),
        (Some(free), Some(size)) => row(format!("{free} free, of {size} KiB")),
        _ => row("unknown".to_owned())
            .but(Grade::Unknown, "/proc/meminfo does not tell of huge pages."),
    }
}

#[cfg(test)]
mod tests;
