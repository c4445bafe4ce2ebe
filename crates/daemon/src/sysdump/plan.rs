//! Contents of the archive: the name of each file, and its source.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use sluice_api::{fabric, placement, show, transaction};

use super::host::Found;
use super::secrets::Form;
use crate::ipc::protocol::Request;
use crate::sys::run_dir;

/// Longest time for an item.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// Longest time for a report that asks several parts of a host, each of which may hang.
const REPORT_LIMIT: Duration = Duration::from_secs(20);
/// Longest part of a log: its end.
pub(super) const TAIL_SIZE: u64 = 4 << 20;
/// Lines of the journal.
const JOURNAL_LINES: &str = "20000";
/// Transactions of the fabric.
const TRANSACTIONS: u32 = 200;

/// Where something comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Ask(Box<Request>),
    Metrics,
    Run(Vec<String>),
    Read(PathBuf),
    /// The end of a file.
    Tail(PathBuf),
    Doctor(Option<PathBuf>),
    Text(String),
}

/// A file of the archive.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) path: String,
    pub(super) about: String,
    pub(super) source: Source,
    pub(super) form: Form,
    pub(super) limit: Duration,
}

/// Questions of `sluice show`.
const SHOWN: [(&str, show::Question); 10] = [
    ("ports", show::Question::Ports),
    ("queues", show::Question::Queues),
    ("drops", show::Question::Drops),
    ("audit", show::Question::Audit),
    ("pauses", show::Question::Pauses),
    ("tunnels", show::Question::Tunnels),
    ("mac", show::Question::Mac),
    ("worker", show::Question::Worker),
    ("placement", show::Question::Placement),
    ("chip", show::Question::Chip),
];

/// Files of the machine that are read.
const MACHINE: [(&str, &str); 13] = [
    ("os-release", "/etc/os-release"),
    ("cpuinfo.txt", "/proc/cpuinfo"),
    ("meminfo.txt", "/proc/meminfo"),
    ("mounts.txt", "/proc/self/mounts"),
    ("interrupts.txt", "/proc/interrupts"),
    ("softirqs.txt", "/proc/softirqs"),
    ("stat.txt", "/proc/stat"),
    ("loadavg.txt", "/proc/loadavg"),
    ("vmstat.txt", "/proc/vmstat"),
    ("modules.txt", "/proc/modules"),
    ("pressure-cpu.txt", "/proc/pressure/cpu"),
    ("pressure-memory.txt", "/proc/pressure/memory"),
    ("schedstat.txt", "/proc/schedstat"),
];

/// Files of the kernel about a network namespace.
const PROC_NET: [&str; 8] =
    ["dev", "snmp", "snmp6", "netstat", "softnet_stat", "sockstat", "protocols", "packet"];

/// Programs that look at a network namespace.
const LOOKS: [(&str, &str, &str); 8] = [
    ("link.json", "devices and their counters", "ip -j -d -s -s link"),
    ("address.json", "addresses", "ip -j -d address"),
    ("neighbors.json", "neighbours", "ip -j -s neigh"),
    ("routes.json", "routes of all tables", "ip -j route show table all"),
    ("rules.json", "rules of the routes", "ip -j rule"),
    ("qdisc.json", "queueing disciplines, with drops", "tc -j -s qdisc"),
    ("sockets.txt", "sockets with their memory and timers", "ss -anpeimo"),
    ("sockets-summary.txt", "how many sockets there are", "ss -s"),
];

/// Returns what there is to get.
pub(super) fn items(found: &Found) -> Vec<Item> {
    let mut items = vec![version(found)];
    if found.run_dir.is_some() {
        items.extend(of_host(found));
        items.extend(of_fabric());
        items.extend(of_processes(found));
    }
    items.extend(of_machine(found));
    let own = found.control.or(found.data).map(|pid| PathBuf::from(format!("/proc/{pid}/ns/net")));
    items.extend(of_namespace("host", own));
    for (name, path) in &found.namespaces {
        items.extend(of_namespace(name, Some(path.clone())));
    }
    items
}

fn item(path: impl Into<String>, about: impl Into<String>, source: Source) -> Item {
    let path = path.into();
    let form = if path.ends_with(".json") { Form::Json } else { Form::Text };
    Item { path, about: about.into(), source, form, limit: LIMIT }
}

fn asked(path: impl Into<String>, about: &str, request: Request) -> Item {
    item(path, about, Source::Ask(Box::new(request)))
}

fn run(path: impl Into<String>, about: &str, line: &str) -> Item {
    let words = line.split_whitespace().map(str::to_owned).collect();
    item(path, format!("{about}: `{line}`"), Source::Run(words))
}

fn version(found: &Found) -> Item {
    let (debug, arch) = (cfg!(debug_assertions), std::env::consts::ARCH);
    let program = std::env::current_exe().map(|path| path.display().to_string());
    let mut text = format!(
        "version: {}\nbuild: {}\narchitecture: {arch}\nprogram: {}\n",
        env!("CARGO_PKG_VERSION"),
        if debug { "for development" } else { "release" },
        program.unwrap_or_default(),
    );
    for (name, pid) in [("control", found.control), ("data", found.data)] {
        let pid = pid.map_or_else(|| "does not run".to_owned(), |pid| pid.to_string());
        // Writing to a text does not fail.
        _ = writeln!(text, "{name}: {pid}");
    }
    item("version.txt", "this program, and the numbers of the processes", Source::Text(text))
}

fn of_host(found: &Found) -> Vec<Item> {
    let show = |(name, question): &(&str, show::Question)| {
        let about = format!("`sluice show {name}`");
        asked(format!("show/{name}.json"), &about, Request::Show(*question))
    };
    let mut items: Vec<Item> = SHOWN.iter().map(show).collect();
    let placement = Request::Placement(placement::Question::Show);
    items.push(asked("status.json", "`sluice status`", Request::Status));
    items.push(item("doctor.json", "`sluice doctor`", Source::Doctor(found.config.clone())));
    items.push(asked("ports.json", "`sluice port list`: ports that were added", Request::Ports));
    items.push(asked("placement.json", "`sluice placement show`", placement));
    items.push(item("metrics.txt", "`/metrics`", Source::Metrics));
    for item in &mut items {
        item.limit = if item.path.starts_with("show/") { LIMIT } else { REPORT_LIMIT };
    }
    let files = [
        found.config.clone().map(|path| ("host.toml", "the file of the host", path)),
        found.run_dir.as_ref().map(|dir| {
            ("data.toml", "the configuration that data runs", dir.join(run_dir::CONFIG_FILE))
        }),
    ];
    for (name, about, path) in files.into_iter().flatten() {
        let mut file = item(format!("config/{name}"), about, Source::Read(path));
        file.form = Form::Values;
        items.push(file);
    }
    items
}

fn of_fabric() -> Vec<Item> {
    use fabric::Question::{Certificates, Evpn, Flows, Holds, Members, Rivals, Vnets, Vports};
    let fabric = [
        ("members", "`sluice fabric members`", Members),
        ("flows", "`sluice fabric flows`", Flows),
        ("holds", "`sluice fabric holds`", Holds),
        ("vports", "`sluice vport list`", Vports { vnet: None }),
        ("vnets", "`sluice vnet list`", Vnets),
        ("certificates", "certificates of the hosts, without keys", Certificates),
        ("rivals", "addresses that are bound at two hosts", Rivals),
        ("evpn", "`sluice fabric evpn`", Evpn),
    ];
    let fabric = fabric.map(|(name, about, question)| {
        asked(format!("fabric/{name}.json"), about, Request::Fabric(question))
    });
    use transaction::Question::{Log, Show, Status};
    let configuration = [
        ("status", "`sluice fabric status`", Status),
        ("log", "`sluice config log`", Log { last: TRANSACTIONS }),
        ("config", "`sluice config show`", Show { at: None }),
    ];
    let configuration = configuration.map(|(name, about, question)| {
        asked(format!("fabric/{name}.json"), about, Request::Transaction(Box::new(question)))
    });
    fabric.into_iter().chain(configuration).collect()
}

fn of_processes(found: &Found) -> Vec<Item> {
    let mut items = Vec::new();
    let processes = [("control", found.control), ("data", found.data)];
    for (name, pid) in processes.into_iter().filter_map(|(name, pid)| Some((name, pid?))) {
        for file in ["status", "limits", "cgroup", "schedstat", "wchan"] {
            let path = PathBuf::from(format!("/proc/{pid}/{file}"));
            let about = format!("{}", path.display());
            items.push(item(format!("process/{name}-{file}.txt"), about, Source::Read(path)));
        }
        let threads = format!("top -b -H -n 1 -p {pid}");
        items.push(run(format!("process/{name}-threads.txt"), "its threads", &threads));
    }
    // Its standard error is a file, or the journal has it.
    let log = found.control.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/fd/2")).ok());
    items.push(match log.filter(|path| path.is_file()) {
        Some(path) => item("log.txt", format!("the end of {}", path.display()), Source::Tail(path)),
        None => run(
            "log.txt",
            "the end of the log",
            &format!(
                "journalctl --no-pager -o short-iso-precise -n {JOURNAL_LINES} -u sluice.service"
            ),
        ),
    });
    items
}

fn of_machine(found: &Found) -> Vec<Item> {
    let read = |(name, path): (&str, &str)| {
        item(format!("machine/{name}"), path, Source::Read(path.into()))
    };
    let mut items: Vec<Item> = MACHINE.into_iter().map(read).collect();
    items.push(run("machine/uname.txt", "the kernel", "uname -a"));
    items.push(run("machine/lscpu.json", "CPUs", "lscpu -J"));
    let hugepages =
        "grep -r --exclude=demote . /sys/kernel/mm/hugepages /sys/kernel/mm/transparent_hugepage";
    items.push(run("machine/hugepages.txt", "huge pages", hugepages));
    let mut sysctl = run("machine/sysctl.txt", "settings of the kernel", "sysctl -a -e");
    sysctl.form = Form::Values;
    items.push(sysctl);
    let kernel = "dmesg --time-format iso";
    items.push(run("machine/dmesg.txt", "messages of the kernel", kernel));
    if found.run_dir.is_none() {
        items.push(item("doctor.json", "`sluice doctor`", Source::Doctor(None)));
    }
    items
}

/// Looks at a network namespace; without a path, at that of this process.
fn of_namespace(name: &str, path: Option<PathBuf>) -> Vec<Item> {
    let enter = path.map_or_else(String::new, |path| format!("nsenter --net={} ", path.display()));
    let looks = LOOKS.iter().map(|(file, about, line)| {
        run(format!("namespace/{name}/{file}"), about, &format!("{enter}{line}"))
    });
    let counters = PROC_NET.iter().map(|file| {
        let line = format!("{enter}cat /proc/net/{file}");
        run(format!("namespace/{name}/{file}.txt"), "counters of the kernel", &line)
    });
    looks.chain(counters).collect()
}

/// Returns the text that says what each file is.
pub(super) fn manifest(found: &Found, items: &[Item]) -> String {
    let mut text = format!(
        "A dump of the host `{}`, by sluice {}.\n\nPrivate keys, tokens and values that are named \
         as secrets are left out. Names,\naddresses, counters and logs are in it.\n\n",
        found.name,
        env!("CARGO_PKG_VERSION"),
    );
    let width = items.iter().map(|item| item.path.len()).max().unwrap_or(0);
    for item in items {
        // Writing to a text does not fail.
        _ = writeln!(text, "{:width$}  {}", item.path, item.about);
    }
    _ = writeln!(text, "{:width$}  what could not be had, and why", "errors.txt");
    text
}

#[cfg(test)]
mod tests;
