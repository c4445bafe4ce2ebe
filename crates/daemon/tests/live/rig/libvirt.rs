//! libvirt at a host, with the hook of `packaging/libvirt`.
//!
//! Each libvirt has the host's network namespace and a root of its own: its files lie over the
//! machine's, in memory, and what it writes stays there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::docker::{inside, printed};
use super::pair::Pair;
use super::{Process, program, run, say, vm, wait_for};

/// Longest time for libvirt to end.
const END_MAX: Duration = Duration::from_secs(10);
const PATH: &str = "/opt/sluice:/usr/sbin:/usr/bin:/sbin:/bin";
/// A user that libvirt looks for, settings for a machine without systemd, and for one user.
const SETUP: &str = r#"
set -e
mkdir -p $1/work $1/root $1/up/etc/libvirt/hooks $1/up/etc/sluice $1/up/opt/sluice
mkdir -p $1/up/var/log/libvirt/qemu
cp -a $2/. $1/up/
cp $3 $1/up/etc/libvirt/hooks/qemu
mount -t overlay sluice -o lowerdir=/,upperdir=$1/up,workdir=$1/work $1/root
for name in proc sys dev tmp; do
    mount --rbind /$name $1/root/$name
    mount --make-rslave $1/root/$name
done
mount -t tmpfs sluice $1/root/run
mount --bind $4 $1/root/opt/sluice
echo 'libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin' >>$1/root/etc/passwd
echo 'libvirt-qemu:x:64055:' >>$1/root/etc/group
cat >$1/root/etc/libvirt/libvirtd.conf <<CONF
auth_unix_rw = "none"
host_uuid = "$(cat /proc/sys/kernel/random/uuid)"
CONF
cat >$1/root/etc/libvirt/qemu.conf <<CONF
security_driver = "none"
namespaces = []
cgroup_controllers = []
user = "root"
group = "root"
stdio_handler = "file"
CONF
"#;

/// Returns the folder that `scripts/libvirt.sh` fills.
fn folder() -> PathBuf {
    program().ancestors().nth(2).expect("a build folder").join("libvirt/root")
}

/// Returns true if a test cannot run here, and prints the reason.
pub(crate) fn skip_without_libvirt(test: &str) -> bool {
    if vm::skip(test, &["nsenter", "chroot", "/usr/bin/python3"]) {
        return true;
    }
    let is_there = folder().join("usr/sbin/libvirtd").is_file();
    if !is_there {
        say(&format!("SKIPPED {test}: there is no libvirt: run scripts/libvirt.sh"));
    }
    !is_there
}

/// libvirt at one host.
pub(crate) struct Libvirt {
    daemon: Option<Process>,
    dir: PathBuf,
    netns: String,
}

impl Libvirt {
    /// Starts it at a host, with the hook for that host.
    pub(crate) fn new(case: &Pair, own: usize) -> Self {
        let dir = case.file(&format!("libvirt-h{}", own + 1));
        std::fs::create_dir_all(&dir).unwrap();
        run(&format!("mount -t tmpfs sluice {}", dir.display()));
        let mut new = Self { daemon: None, dir, netns: case.hosts[own].name().to_owned() };
        let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/libvirt/qemu");
        let mut setup = Command::new("sh");
        setup.args(["-c", SETUP, "sh"]).args([&new.dir, &folder(), &hook]);
        let output = setup.arg(program().parent().unwrap()).output().unwrap();
        printed(&output, &["setup"]);
        let socket = case.file(&format!("h{}/show.sock", own + 1));
        let options = format!("--socket {}\n", socket.display());
        std::fs::write(new.dir.join("root/etc/sluice/libvirt-options"), options).unwrap();
        let image = vm::image("guest").unwrap();
        for name in ["vmlinuz", "initrd.gz"] {
            std::fs::copy(image.join(name), new.dir.join("root/opt").join(name)).unwrap();
        }
        new.start();
        new
    }

    fn inside(&self) -> Command {
        let mut command = inside(&self.netns);
        command.arg("chroot").arg(self.dir.join("root")).stdin(Stdio::null());
        command.env("PATH", PATH);
        command
    }

    /// Starts it, and waits until it answers. Two libvirts of one machine tell themselves apart by
    /// the name of the machine and by a UUID.
    pub(crate) fn start(&mut self) {
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        let line = format!(
            "hostname {} && exec chroot {} /usr/sbin/libvirtd",
            self.netns,
            self.dir.join("root").display()
        );
        let mut daemon = inside(&self.netns);
        daemon.args(["unshare", "--uts", "sh", "-c", &line]).env("PATH", PATH);
        daemon.stdin(Stdio::null()).stderr(log).stdout(Stdio::null());
        self.daemon = Some(Process(daemon.spawn().unwrap()));
        wait_for("libvirt answers", || self.attempt(&["version"]).status.success());
    }

    /// Kills it at once. Its machines live on.
    pub(crate) fn kill(&mut self) {
        drop(self.daemon.take());
    }

    /// Executes `virsh`, which may fail.
    pub(crate) fn attempt(&self, words: &[&str]) -> Output {
        let mut virsh = self.inside();
        virsh.args(["virsh", "-q", "-c", "qemu:///system"]).args(words).output().unwrap()
    }

    /// Executes `virsh`; panics if it fails.
    pub(crate) fn virsh(&self, words: &[&str]) -> String {
        printed(&self.attempt(words), words)
    }

    /// Gives a file of the machine a name that it has only here.
    pub(crate) fn link(&self, file: &Path, name: &str) {
        std::os::unix::fs::symlink(file, self.dir.join("root").join(&name[1..])).unwrap();
    }

    /// Lets `virsh` here ask another libvirt, at `/run/other`.
    pub(crate) fn sees(&self, other: &Self) {
        let (from, to) = (other.dir.join("root/run/libvirt"), self.dir.join("root/run/other"));
        std::fs::create_dir(&to).unwrap();
        run(&format!("mount --bind {} {}", from.display(), to.display()));
    }

    /// Executes the hook as libvirt does, or as people do.
    pub(crate) fn hook(&self, words: &[&str], domain: &str) -> Output {
        let xml = self.write(domain);
        let mut hook = self.inside();
        hook.arg("/etc/libvirt/hooks/qemu").args(words);
        hook.stdin(std::fs::File::open(self.dir.join("root").join(&xml[1..])).unwrap());
        hook.output().unwrap()
    }

    /// Writes the description of a domain, and returns its path as libvirt sees it.
    pub(crate) fn write(&self, domain: &str) -> String {
        std::fs::write(self.dir.join("root/opt/domain.xml"), domain).unwrap();
        "/opt/domain.xml".to_owned()
    }
}

impl Drop for Libvirt {
    /// Ends the machines, then libvirt, and takes away what was mounted.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            say(&format!("libvirt of {}:\n{log}", self.netns));
        }
        let output = self.attempt(&["list", "--name"]);
        for name in String::from_utf8_lossy(&output.stdout).split_whitespace() {
            _ = self.attempt(&["destroy", name]);
        }
        if let Some(mut daemon) = self.daemon.take() {
            _ = kill_process(Pid::from_child(&daemon.0), Signal::TERM);
            let until = Instant::now() + END_MAX;
            while Instant::now() < until && matches!(daemon.0.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        for path in [self.dir.join("root"), self.dir.clone()] {
            _ = Command::new("umount").arg("-R").arg("-l").arg(path).status();
        }
    }
}
