//! FRR in a namespace: zebra and bgpd with a bridge and a VXLAN device of the kernel, which
//! together are a VTEP that speaks EVPN.
//!
//! ```text
//!   q0 ══ p0 ─ br100 ─ vx100 ─ VTEP        the network: VNI 100
//! ```

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::Error;
use crate::namespace::Netns;
use crate::tool::{cannot_start, is_installed};
use crate::wait::happens;

/// Folder of the daemons, as Debian's package has it.
const FOLDER: &str = "/usr/lib/frr";
/// Longest time for zebra to make its socket.
const PATIENCE: Duration = Duration::from_secs(30);

/// A VTEP that speaks EVPN.
#[derive(Debug)]
pub struct Frr {
    netns: Netns,
    dir: PathBuf,
    vtep: Ipv4Addr,
    daemons: Vec<(&'static str, Child)>,
}

/// Returns the program of FRR that is not installed, if one is not.
#[must_use]
pub fn missing() -> Option<&'static str> {
    let programs = ["zebra", "bgpd"];
    let away = programs.into_iter().find(|name| !Path::new(FOLDER).join(name).is_file());
    away.or_else(|| (!is_installed("vtysh")).then_some("vtysh"))
}

impl Frr {
    /// Makes the devices of the network with VNI 100, and starts the daemons: AS `number`, with
    /// neighbors of the same AS. `dir` gets their files and logs, and the address is one of the
    /// namespace.
    ///
    /// # Errors
    /// A device cannot be made, or a daemon does not start.
    pub fn start(
        netns: &Netns,
        dir: &Path,
        (number, vtep): (u32, Ipv4Addr),
        neighbors: &[Ipv4Addr],
    ) -> Result<Self, Error> {
        for line in [
            "link add br100 type bridge",
            &format!("link add vx100 type vxlan id 100 local {vtep} dstport 4789 nolearning"),
            "link set vx100 master br100",
            "link add p0 type veth peer name q0",
            "link set p0 master br100",
        ] {
            netns.ip(line)?;
        }
        for device in ["br100", "vx100", "p0", "q0"] {
            netns.ip(&format!("link set {device} up"))?;
        }
        netns.run("bridge link set dev vx100 learning off neigh_suppress on")?;
        let dir = dir.to_owned();
        let mut frr = Self { netns: netns.clone(), dir, vtep, daemons: Vec::new() };
        frr.write(number, neighbors).map_err(|source| cannot_start("bgpd", source))?;
        frr.start_daemons()?;
        Ok(frr)
    }

    fn write(&self, number: u32, neighbors: &[Ipv4Addr]) -> io::Result<()> {
        // The daemons change to a user of their own before they make their sockets here.
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o777))?;
        fs::write(self.dir.join("zebra.conf"), "hostname peer\n")?;
        fs::write(self.dir.join("bgpd.conf"), configuration(number, self.vtep, neighbors))
    }

    /// Starts the daemons, which were killed.
    ///
    /// # Errors
    /// One does not start.
    pub fn start_daemons(&mut self) -> Result<(), Error> {
        let socket = self.dir.join("zserv.api");
        _ = fs::remove_file(&socket);
        self.daemon("zebra")?;
        if !happens(PATIENCE, Duration::from_millis(5), || socket.exists()) {
            let said = fs::read_to_string(self.dir.join("zebra.log")).unwrap_or_default();
            return Err(Error::Failed { command: "zebra".to_owned(), said });
        }
        self.daemon("bgpd")
    }

    fn daemon(&mut self, name: &'static str) -> Result<(), Error> {
        let file = |ending: &str| self.dir.join(format!("{name}.{ending}"));
        let mut command = self.netns.command(Path::new(FOLDER).join(name));
        command.arg("-f").arg(file("conf")).arg("-i").arg(file("pid"));
        command.arg("-z").arg(self.dir.join("zserv.api")).arg("--vty_socket").arg(&self.dir);
        command.args(["-P", "0", "--log", "stdout"]);
        let started = File::create(file("log")).and_then(|log| {
            let other = log.try_clone()?;
            command.stdout(other).stderr(log).spawn()
        });
        let child = started.map_err(|source| cannot_start(name, source))?;
        self.daemons.push((name, child));
        Ok(())
    }

    /// Kills a daemon.
    pub fn kill(&mut self, name: &str) {
        for (_, child) in self.daemons.iter_mut().filter(|(known, _)| *known == name) {
            _ = child.kill();
            _ = child.wait();
        }
        self.daemons.retain(|(known, _)| *known != name);
    }

    /// Asks one question; what it says is returned, an error too.
    #[must_use]
    pub fn vtysh(&self, line: &str) -> String {
        let mut command = Command::new("vtysh");
        command.arg("--vty_socket").arg(&self.dir).args(["-c", line]);
        match command.output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// Puts an address behind the bridge's own port.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn put(&self, mac: &str) -> Result<(), Error> {
        self.netns.run(&format!("bridge fdb replace {mac} dev p0 master dynamic")).map(drop)
    }

    /// Removes it.
    ///
    /// # Errors
    /// It is not there.
    pub fn remove(&self, mac: &str) -> Result<(), Error> {
        self.netns.run(&format!("bridge fdb del {mac} dev p0 master")).map(drop)
    }

    /// Returns true if the kernel sends frames for a MAC to a VTEP: the bridge sends them to the
    /// VXLAN device, and that to the VTEP. The second entry alone stays while the MAC is at `p0`.
    #[must_use]
    pub fn sends(&self, mac: &str, to: Ipv4Addr) -> bool {
        let text = self.fdb();
        let has = |word: &str| text.lines().any(|row| row.starts_with(mac) && row.contains(word));
        has("master br100") && has(&format!("dst {to}"))
    }

    /// Returns true if the kernel sends frames for all of the network to a VTEP.
    #[must_use]
    pub fn floods(&self, to: Ipv4Addr) -> bool {
        let dst = format!("dst {to}");
        let is_it = |row: &str| row.starts_with("00:00:00:00:00:00") && row.contains(&dst);
        self.fdb().lines().any(is_it)
    }

    fn fdb(&self) -> String {
        self.netns.run("bridge fdb show dev vx100").unwrap_or_default()
    }

    /// Returns what is to be known when a test fails.
    #[must_use]
    pub fn state(&self) -> String {
        let lines = ["show evpn mac vni 100", "show bgp l2vpn evpn route", "show bgp neighbors"];
        let said = lines.map(|line| format!("{line}\n{}", self.vtysh(line))).concat();
        self.netns.run("bridge fdb show").unwrap_or_default() + &said
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for (_, child) in &mut self.daemons {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

fn configuration(number: u32, vtep: Ipv4Addr, neighbors: &[Ipv4Addr]) -> String {
    let sessions = neighbors.iter().map(|neighbor| {
        format!(" neighbor {neighbor} remote-as {number}\n neighbor {neighbor} timers connect 1\n")
    });
    let families = neighbors.iter().map(|neighbor| format!("  neighbor {neighbor} activate\n"));
    format!(
        "router bgp {number}\n bgp router-id {vtep}\n no bgp default ipv4-unicast\n \
         timers bgp 3 9\n{} address-family l2vpn evpn\n{}  advertise-all-vni\n \
         exit-address-family\n",
        sessions.collect::<String>(),
        families.collect::<String>()
    )
}
