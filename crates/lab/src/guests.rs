//! The virtual machines of a lab: QEMU, the kernel of Debian's package, and this very program.
//!
//! ```text
//!  sluice lab run ── socket ── virtio-serial ── /dev/vport1p1 ── sluice lab __aggregator
//!  sluice daemon ── vhost-user ── virtio-net ── eth0
//! ```
//!
//! The image is made by `scripts/guest.sh`. This program is appended to its file system when a lab
//! starts, so that both ends of the serial port are of the same build. Control traffic of the
//! workload never uses the measured network. A machine boots after the daemons of a policy have
//! started, and ends before they end. No machine outlives a program that was killed.

mod image;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::counters::Counters;
use crate::daemons::{last_words, launch};
use crate::interrupt;
use crate::lab::{Lab, tcp_settings};
use crate::netns;
use crate::pa::processes::Aggregator;
use crate::pa::{Job, Report};
use crate::plan::{self, Container, Plan};
use crate::scenario::{Fabric, GuestKind, Vnic};
use crate::state::{self, Process, State};
use image::Image;

/// Time limit of a boot. Booting takes seconds, and tens of seconds on a busy machine.
const BOOT: Duration = Duration::from_secs(120);
/// Time limit for QEMU to create its sockets.
const START: Duration = Duration::from_secs(20);
/// Time limit of an answer of a machine outside of measurements.
const ANSWER: Duration = Duration::from_secs(30);
/// Memory of a machine. It holds the file system, twice during the boot.
const MEMORY: &str = "384M";
const QEMU: &str = "qemu-system-x86_64";

/// The running virtual machines.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    guests: Vec<Guest>,
}

#[derive(Debug)]
struct Guest {
    name: String,
    agent: Aggregator,
    process: Process,
    log: PathBuf,
}

impl Guests {
    /// Boots every virtual machine of a lab whose daemons run, and sets it up.
    pub(crate) fn boot(lab: &mut Lab, program: &Path) -> anyhow::Result<Self> {
        let vms: Vec<Container> =
            lab.plan.containers.iter().filter(|machine| machine.is_vm).cloned().collect();
        let mut guests = Self::default();
        if vms.is_empty() {
            return Ok(guests);
        }
        let found = netns::is_installed(QEMU);
        anyhow::ensure!(found, "virtual machines need {QEMU} (package qemu-system-x86)");
        let image = Image::pack(program, lab.plan.vnic, &lab.plan.run_dir())?;
        for vm in &vms {
            guests.guests.push(start(&lab.plan, &mut lab.state, vm, &image)?);
        }
        for (guest, vm) in guests.guests.iter_mut().zip(&vms) {
            let patience = || format!("{} does not boot; {}", guest.name, last_words(&guest.log));
            guest.agent.ready(BOOT).with_context(patience)?;
            let settings = tcp_settings(lab.scenario.tcp.profile);
            let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            guest.job(&Job::Prepare {
                commands: plan::container_commands(&lab.plan, &lab.scenario, vm),
                settings: settings.into_iter().map(owned).collect(),
            })?;
        }
        Ok(guests)
    }

    /// Makes every machine answer requests; new connections use this congestion control.
    pub(crate) fn serve(&mut self, plan: &Plan, congestion: &str) -> anyhow::Result<()> {
        for guest in &mut self.guests {
            let address = plan.container(&guest.name).context("a machine")?.ip;
            guest.job(&Job::Serve { address, congestion: congestion.to_owned() })?;
        }
        Ok(())
    }

    /// Returns the aggregator of a machine; none if the name is not that of a virtual machine.
    pub(crate) fn agent(&mut self, name: &str) -> Option<&mut Aggregator> {
        self.guests.iter_mut().find(|guest| guest.name == name).map(|guest| &mut guest.agent)
    }

    /// Adds the counters of all machines' kernels: repairs, losses.
    pub(crate) fn count(&mut self, sums: &mut (Counters, Counters)) -> anyhow::Result<()> {
        for guest in &mut self.guests {
            let Report::Counted { repairs, losses } = guest.job(&Job::Count)? else {
                bail!("{} does not count", guest.name)
            };
            for (sum, own) in [(&mut sums.0, repairs), (&mut sums.1, losses)] {
                for (name, value) in own {
                    *sum.entry(name).or_default() += value;
                }
            }
        }
        Ok(())
    }

    /// Switches all machines off.
    pub(crate) fn stop(self, state: &mut State) -> anyhow::Result<()> {
        let processes: Vec<Process> = self.guests.iter().map(|g| g.process.clone()).collect();
        drop(self.guests);
        state::end(&processes, &[]);
        state.processes.retain(|known| !processes.contains(known) || known.alive());
        state.save()
    }
}

impl Guest {
    fn job(&mut self, job: &Job) -> anyhow::Result<Report> {
        let what = || format!("{}; {}", self.name, last_words(&self.log));
        self.agent.run(job, ANSWER, &mut |_| {}).with_context(what)
    }
}

fn start(plan: &Plan, state: &mut State, vm: &Container, image: &Image) -> anyhow::Result<Guest> {
    let (control, log) = (plan.file(vm, "control"), plan.file(vm, "log"));
    let _ = std::fs::remove_file(&control);
    // QEMU ends with the program that runs the lab, however that program ends.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", QEMU]).args(arguments(plan, vm, image));
    let process = launch(state, &vm.name, &vm.netns, &command, &log)?;
    let deadline = Instant::now() + START;
    // QEMU runs nothing before its serial port is connected.
    let port = loop {
        match UnixStream::connect(&control) {
            Ok(port) => break port,
            Err(error) if Instant::now() > deadline || !process.alive() => {
                bail!("QEMU of {} does not start: {error}; {}", vm.name, last_words(&log))
            }
            Err(_) => interrupt::sleep(Duration::from_millis(10))?,
        }
    };
    let agent = Aggregator::far(&vm.name, port)?;
    Ok(Guest { name: vm.name.clone(), agent, process, log })
}

/// Returns the arguments of QEMU. It runs without KVM, which works everywhere and is slow.
fn arguments(plan: &Plan, vm: &Container, image: &Image) -> Vec<String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let (socket, control) = (path(&plan.file(vm, "sock")), path(&plan.file(vm, "control")));
    let memory = format!("memory-backend-memfd,id=mem,size={MEMORY},share=on");
    let card = format!("socket,id=card,path={socket},reconnect=1");
    let header = if plan.fabric == Fabric::LinuxBridge { "on" } else { "off" };
    let tap = format!("tap,id=net,ifname={},script=no,downscript=no,vnet_hdr={header}", vm.name);
    let net = match plan.fabric {
        Fabric::Sluice => vec!["-chardev", &card, "-netdev", "vhost-user,id=net,chardev=card"],
        Fabric::LinuxBridge | Fabric::LinuxVxlan | Fabric::Ovs => vec!["-netdev", &tap],
    };
    let port = format!("socket,id=port,path={control},server=on,wait=on");
    // Without KVM, QEMU 7.2 crashes on the interrupts that it would choose.
    let card = match plan.vnic {
        Vnic::Virtio => "virtio-net-pci,vectors=0",
        Vnic::E1000 => "e1000",
    };
    let device = format!("{card},netdev=net,romfile=,mac={}", vm.mac);
    let plain = match (plan.guests, plan.fabric) {
        (GuestKind::Plain, _) => " plain",
        // Another switch hears no agent.
        (GuestKind::Lossless, Fabric::Sluice) => " agent",
        (GuestKind::Lossless, _) => "",
    };
    // On a busy host the kernel's timer check fails, and its cipher self-tests take minutes.
    let words = "console=ttyS0 quiet no_timer_check cryptomgr.notests ipv6.disable=1";
    let append = format!("{words} mtu={}{plain}", plan.mtu);
    let (kernel, initrd) = (path(&image.kernel), path(&image.initrd));
    let words = [
        ["-machine", "q35,accel=tcg"],
        ["-m", MEMORY],
        ["-object", &memory],
        ["-numa", "node,memdev=mem"],
        ["-display", "none"],
        ["-serial", "stdio"],
        ["-kernel", &kernel],
        ["-initrd", &initrd],
        ["-append", &append],
        ["-device", &device],
        ["-device", "virtio-serial-pci"],
        ["-chardev", &port],
        ["-device", "virtserialport,chardev=port,name=sluice"],
    ];
    let single = ["-nodefaults", "-no-user-config", "-no-reboot"].into_iter();
    // QEMU needs the card's back end before the card.
    single.chain(net).chain(words.into_iter().flatten()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
