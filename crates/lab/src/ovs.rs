//! Open vSwitch in a namespace of a lab: a peer to compare with. It runs the userspace data path,
//! which needs no kernel module and reads frames from TAPs by packet sockets.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::daemons::{last_words, launch};
use crate::interrupt;
use crate::netns::{self, tool};
use crate::plan::Plan;
use crate::state::State;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const TOOLS: [&str; 4] = ["ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"];
/// Time limit for its database to answer.
const READY: Duration = Duration::from_secs(15);

/// Starts Open vSwitch with a bridge that joins the TAPs of all virtual machines.
pub(crate) fn start(plan: &Plan, state: &mut State) -> anyhow::Result<()> {
    for name in TOOLS {
        let found = netns::is_installed(name);
        anyhow::ensure!(found, "this scenario needs {name} (package openvswitch-switch)");
    }
    let folder = plan.run_dir().join("ovs");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    tool("ovsdb-tool", &["create", &path("conf.db"), SCHEMA])?;
    let remote = format!("unix:{}", path("db.sock"));
    let netns = plan.switches[0].netns.clone();
    let mut begin = |name: &str, words: &[&str]| {
        let mut command = Command::new("env");
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.arg(format!("{variable}={}", folder.display()));
        }
        command.arg(name).args(words);
        launch(state, name, &netns, &command, &plan.run_dir().join(format!("{name}.log")))
    };
    let listen = format!("--remote=p{remote}");
    begin("ovsdb-server", &[&path("conf.db"), &listen, "-vconsole:warn"])?;
    wait_for(&folder.join("db.sock"), &plan.run_dir().join("ovsdb-server.log"))?;
    let database = format!("--db={remote}");
    let control =
        |words: &[&str]| tool("ovs-vsctl", &[&["--timeout=20", &database], words].concat());
    control(&["--no-wait", "init"])?;
    begin("ovs-vswitchd", &[&remote, "-vconsole:warn"])?;
    control(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"])?;
    for vm in plan.containers.iter().filter(|machine| machine.is_vm) {
        control(&["add-port", "br0", &vm.name])?;
    }
    Ok(())
}

fn wait_for(socket: &Path, log: &Path) -> anyhow::Result<()> {
    let starts = interrupt::wait(READY, || Ok(socket.exists().then_some(())))?;
    starts.with_context(|| format!("Open vSwitch does not start; {}", last_words(log)))
}
