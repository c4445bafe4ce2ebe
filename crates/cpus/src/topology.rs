//! CPU and card topology: threads of one physical core, and the NUMA node of each CPU and card,
//! from `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cpu_list;

/// Place of a CPU in the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuEntry {
    /// Other threads of its physical core.
    pub siblings: Vec<u16>,
    /// Lowest CPU of its physical core, if that has several threads.
    pub physical: Option<u16>,
    /// Its NUMA node, if the kernel knows of any.
    pub node: Option<u16>,
}

/// Returns the place of a CPU; empty for a CPU that does not exist.
#[must_use]
pub fn of_cpu(cpu: u16) -> CpuEntry {
    look(Path::new("/sys/devices/system/cpu"), cpu)
}

/// Returns the NUMA node of a network device; `None` if it is virtual, or the machine does not
/// tell.
#[must_use]
pub fn node_of_device(device: &str) -> Option<u16> {
    node_of(&Path::new("/sys/class/net").join(device))
}

fn look(all: &Path, cpu: u16) -> CpuEntry {
    let folder = all.join(format!("cpu{cpu}"));
    let threads = fs::read_to_string(folder.join("topology/thread_siblings_list"));
    let threads = threads.ok().and_then(|text| cpu_list::parse(&text).ok()).unwrap_or_default();
    let siblings: Vec<u16> = threads.iter().copied().filter(|other| *other != cpu).collect();
    let physical = threads.first().copied().filter(|_| !siblings.is_empty());
    // Its folder has a link with the name of its node.
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let node = names.filter_map(|name| name.strip_prefix("node")?.parse().ok()).next();
    CpuEntry { siblings, physical, node }
}

fn node_of(device: &Path) -> Option<u16> {
    let file: PathBuf = device.join("device/numa_node");
    // The kernel writes -1 if there is none.
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_cards_as_the_kernel_tells_them() {
        let root = std::env::temp_dir().join(format!("sluice-topology-{}", std::process::id()));
        let cpu = |number: u16, threads: &str, node: Option<u16>| {
            let folder = root.join(format!("cpu{number}"));
            fs::create_dir_all(folder.join("topology")).unwrap();
            fs::write(folder.join("topology/thread_siblings_list"), format!("{threads}\n"))
                .unwrap();
            if let Some(node) = node {
                fs::create_dir_all(folder.join(format!("node{node}"))).unwrap();
            }
        };
        cpu(1, "1,33", Some(0));
        cpu(33, "1,33", Some(0));
        cpu(4, "4", None);
        cpu(5, "?", Some(3));
        let card = |name: &str, node: &str| {
            let folder = root.join(name).join("device");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("numa_node"), format!("{node}\n")).unwrap();
            node_of(&root.join(name))
        };
        let cards = [card("eth0", "1"), card("eth1", "-1"), node_of(&root.join("veth"))];
        let seats = [1, 33, 4, 5, 9].map(|number| look(&root, number));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(cards, [Some(1), None, None]);
        let seat = |siblings: &[u16], physical, node| {
            let siblings = siblings.to_vec();
            CpuEntry { siblings, physical, node }
        };
        let wanted = [
            seat(&[33], Some(1), Some(0)),
            seat(&[1], Some(1), Some(0)),
            seat(&[], None, None),
            seat(&[], None, Some(3)),
            CpuEntry::default(),
        ];
        assert_eq!(seats, wanted);
    }

    #[test]
    fn this_machine_is_read() {
        let seat = of_cpu(0);
        assert!(!seat.siblings.contains(&0));
        assert!(seat.siblings.iter().all(|other| of_cpu(*other).physical == seat.physical));
    }
}
