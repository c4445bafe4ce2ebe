//! A running lab: built from a plan, taken down when it goes out of scope.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use sluice_api::config::Policy;

use crate::daemons::Daemons;
use crate::netns;
use crate::plan::vxlan::{self, Shaped};
use crate::plan::{self, HostNode, Plan};
use crate::scenario::{Fabric, Profile, Scenario};
use crate::settings::Settings;
use crate::state::{Lock, Process, State};

/// A lab. Dropped, it is taken down, unless [`Lab::leave`] was called.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) scenario: Scenario,
    pub(crate) plan: Plan,
    pub(crate) state: State,
    stays: bool,
    _lock: Lock,
}

impl Lab {
    /// Builds namespaces, devices and addresses. Leftovers of an earlier run of this lab are
    /// removed first.
    pub(crate) fn build(scenario: &Scenario) -> anyhow::Result<Self> {
        netns::requirements()?;
        let plan = Plan::new(scenario);
        let lock = Lock::take(&plan.lab)?;
        if let Some(old) = State::load(&plan.lab)? {
            if old.owner.is_none() {
                bail!("lab {0} is up; `sluice lab down {0}` takes it down", plan.lab);
            }
            old.take_down().context("taking away what an earlier run left")?;
        }
        for name in plan.namespaces() {
            ensure!(!netns::exists(&name), "there is a namespace {name}, and it is not ours");
        }
        clear_logs(&plan.run_dir());
        let me = Process::find("lab", rustix::process::getpid().as_raw_pid());
        let state = State {
            lab: plan.lab.clone(),
            // Until `leave`: if the owner dies, the next start cleans up.
            owner: Some(me.context("reading /proc")?),
            policy: scenario.lab.policy,
            netns: plan.namespaces(),
            processes: Vec::new(),
        };
        let mut lab = Self { scenario: scenario.clone(), plan, state, stays: false, _lock: lock };
        lab.state.save()?;
        lab.assemble()?;
        Ok(lab)
    }

    fn assemble(&mut self) -> anyhow::Result<()> {
        let plan = &self.plan;
        netns::create(&self.state.netns)?;
        for name in &self.state.netns {
            netns::enter(name, || Ok(netns::disable_ipv6()?))?;
        }
        netns::ip(&plan::cable_commands(plan))?;
        for switch in &plan.switches {
            netns::enter(&switch.netns, || {
                for cable in &switch.cables {
                    netns::offloads_off(&cable.device)?;
                    if plan.fabric == Fabric::LinuxBridge {
                        token_bucket(&cable.device, &self.scenario)?;
                    }
                }
                netns::ip(&plan::switch_commands(plan, switch))
            })?;
        }
        if plan.fabric == Fabric::Ovs {
            crate::ovs::start(plan, &mut self.state)?;
        }
        for host in &plan.hosts {
            netns::enter(&host.netns, || {
                netns::offloads_off("up0")?;
                netns::ip(&plan::host_commands(plan, host))?;
                if plan.fabric == Fabric::LinuxVxlan {
                    linux_host(plan, host, &self.scenario)?;
                }
                Ok(())
            })?;
        }
        if let Some(router) = &plan.router {
            netns::enter(router, || {
                for switch in &plan.switches {
                    netns::offloads_off(&format!("leg{}", switch.subnet))?;
                }
                netns::setting("net.ipv4.ip_forward", "1")?;
                netns::ip(&plan::router_commands(plan))
            })?;
        }
        for container in plan.containers.iter().filter(|container| !container.is_vm) {
            crate::interrupt::check()?;
            netns::enter(&container.netns, || {
                for (name, value) in tcp_settings(self.scenario.tcp.profile) {
                    netns::setting(name, value)?;
                }
                if [Fabric::LinuxBridge, Fabric::LinuxVxlan].contains(&plan.fabric) {
                    netns::offloads_off("eth0")?;
                }
                // Its device comes with its port.
                if plan.by_command {
                    return Ok(());
                }
                netns::ip(&plan::container_commands(plan, &self.scenario, container))
            })?;
        }
        Ok(())
    }

    /// Starts the daemons.
    pub(crate) fn start(
        &mut self,
        policy: Policy,
        settings: &Settings,
        program: &Path,
    ) -> anyhow::Result<Daemons> {
        Daemons::start((&self.plan, &self.scenario), &mut self.state, policy, settings, program)
    }

    /// Leaves the lab running when this value and the program end.
    pub(crate) fn leave(mut self) -> anyhow::Result<()> {
        self.state.owner = None;
        self.state.save()?;
        self.stays = true;
        Ok(())
    }

    /// Takes the lab down; the error names the parts that could not be removed.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.stays = true;
        self.state.take_down()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        if let Err(error) = self.state.take_down() {
            eprintln!("taking down lab {}: {error:#}", self.plan.lab);
        }
    }
}

/// Takes a lab down. Returns false if there was none.
pub(crate) fn down(name: &str) -> anyhow::Result<bool> {
    netns::requirements()?;
    if !plan::run_dir(name).exists() {
        return Ok(false);
    }
    let _lock = Lock::take(name)?;
    match State::load(name)? {
        Some(state) => state.take_down().map(|()| true),
        None => Ok(false),
    }
}

/// Returns the path of the running program, which is also the daemon.
pub(crate) fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("the path of the running program")
}

fn clear_logs(folder: &Path) {
    let Ok(files) = std::fs::read_dir(folder) else { return };
    for file in files.flatten().filter(|f| f.path().extension().is_some_and(|e| e == "log")) {
        let _ = std::fs::remove_file(file.path());
    }
}

/// Kernel settings of a TCP profile.
pub(crate) fn tcp_settings(profile: Profile) -> Vec<(&'static str, &'static str)> {
    let mut settings = vec![
        ("net.ipv4.tcp_no_metrics_save", "1"),
        ("net.ipv4.tcp_slow_start_after_idle", "0"),
        // Answers have the priority of their requests.
        ("net.ipv4.tcp_reflect_tos", "1"),
    ];
    if profile == Profile::Linux2013 {
        settings.extend([("net.ipv4.tcp_early_retrans", "0"), ("net.ipv4.tcp_recovery", "0")]);
    }
    settings
}

/// Sets the rate and the queue of a container's vNIC on a bridge.
fn token_bucket(device: &str, scenario: &Scenario) -> anyhow::Result<()> {
    let settings = Settings::new(scenario.lab.variant, &scenario.settings, None);
    shape(&Shaped::container(device, &settings), &settings)
}

fn shape(device: &Shaped, settings: &Settings) -> anyhow::Result<()> {
    let words = device.words(settings.catch_up_us);
    netns::tool("tc", &words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Sets up the rest of a host that is a bridge and a VXLAN device, in its namespace.
fn linux_host(plan: &Plan, host: &HostNode, scenario: &Scenario) -> anyhow::Result<()> {
    let settings = Settings::new(scenario.lab.variant, &scenario.settings, None);
    for device in vxlan::shaped(plan, host, &settings) {
        netns::offloads_off(&device.device)?;
        shape(&device, &settings)?;
    }
    for (mac, vtep) in vxlan::elsewhere(plan, host) {
        let vtep = vtep.to_string();
        netns::tool("bridge", &["fdb", "append", &mac, "dev", "vx0", "dst", &vtep])?;
    }
    Ok(())
}
