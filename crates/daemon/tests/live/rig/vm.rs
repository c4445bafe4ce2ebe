//! Virtual machines under QEMU, which interprets them: slow, but on every machine.
//! `scripts/guest.sh` makes the image.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::say;

/// Longest boot: it takes seconds, and tens of them on a busy machine.
const BOOT_PATIENCE: Duration = Duration::from_secs(60);

/// Attempts to boot: an interpreted kernel on a busy host now and then hangs in a wait for its own
/// timer, but not when booted again.
const BOOTS: u32 = 3;

/// Options against checks that such a kernel fails, or takes minutes for, on a busy host.
const UNCHECKED: &str = "no_timer_check cryptomgr.notests";

/// Returns true if a test with virtual machines cannot run here, and prints the reason.
pub(crate) fn skip(test: &str, tools: &[&str]) -> bool {
    if super::skip(test, tools) {
        return true;
    }
    let why = lacking();
    if let Some(why) = &why {
        say(&format!("SKIPPED {test}: {why}"));
    }
    why.is_some()
}

/// Returns the reason why no virtual machine can run here.
fn lacking() -> Option<String> {
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        return Some("qemu-system-x86_64 is not installed".to_owned());
    }
    image("guest").is_none().then(|| "there is nothing to boot: run scripts/guest.sh".to_owned())
}

/// Returns the folder of this name with kernel and root file system, beside cargo's output.
pub(crate) fn image(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let is_whole =
        |dir: &PathBuf| ["vmlinuz", "initrd.gz"].iter().all(|name| dir.join(name).is_file());
    test.ancestors().map(|dir| dir.join(name)).find(is_whole)
}

/// As [`skip`], for tests whose machines have the agent.
pub(crate) fn skip_agent(test: &str) -> bool {
    if skip(test, &["iperf3", "cpio"]) {
        return true;
    }
    let is_there = agent().is_some();
    if !is_there {
        say(&format!("SKIPPED {test}: there is no static sluice-guest: run `make guest`"));
    }
    !is_there
}

/// Returns the program of `make guest`, beside cargo's output.
fn agent() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let file = test.ancestors().map(|dir| dir.join("guest/sluice-guest"));
    file.into_iter().find(|file| file.is_file())
}

/// Returns an archive that puts this program into `/opt`.
fn archive(program: &Path, folder: &Path) -> Vec<u8> {
    let root = folder.join("agent");
    std::fs::create_dir_all(root.join("opt")).unwrap();
    std::fs::copy(program, root.join("opt/sluice-guest")).unwrap();
    let mut cpio = Command::new("cpio");
    cpio.args(["--quiet", "-o", "-H", "newc"]).current_dir(&root);
    let mut cpio = cpio.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cpio.stdin.take().unwrap().write_all(b"opt\nopt/sluice-guest\n").unwrap();
    cpio.wait_with_output().unwrap().stdout
}

fn qmp(monitor: &Path) -> String {
    format!("unix:{},server=on,wait=off", monitor.display())
}

/// A machine, with its shell at its serial port. It is killed when dropped.
pub(crate) struct Vm {
    name: String,
    command: Command,
    running: Running,
}

/// QEMU, and the output of the machine in it.
struct Running {
    child: Child,
    input: ChildStdin,
    output: Arc<Mutex<String>>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&output);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(size @ 1..) = stdout.read(&mut bytes) {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..size]));
            }
        });
        Self { child, input, output }
    }

    fn printed(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for `mark` in the output, and returns the output before it. `None` on a timeout.
    fn wait(&self, mark: &str, time: Duration) -> Option<String> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let mut text = self.output.lock().unwrap();
            if let Some(at) = text.find(mark) {
                let rest = text.split_off(at + mark.len());
                let mut before = std::mem::replace(&mut *text, rest);
                before.truncate(at);
                return Some(before);
            }
            drop(text);
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Vm {
    /// Boots a machine with a card on `socket`: 02:00:00:00:00:NUMBER, 10.0.0.NUMBER.
    pub(crate) fn boot(number: u8, socket: &Path) -> Self {
        Self::start(number, socket, 1, &[])
    }

    /// Boots a machine whose card has `queues` queue pairs, and as many processors: its driver uses
    /// a pair for each.
    pub(crate) fn boot_with_queues(number: u8, socket: &Path, queues: u8) -> Self {
        Self::start(number, socket, queues, &["-smp", &queues.to_string()])
    }

    /// Boots a machine that can be migrated, through a monitor at this path.
    pub(crate) fn boot_to_move(number: u8, socket: &Path, monitor: &Path) -> Self {
        Self::start(number, socket, 1, &["-qmp", &qmp(monitor)])
    }

    /// Starts QEMU for a machine that comes from elsewhere, over the socket `from`, and continues
    /// here. Card and monitor are as for [`Self::boot_to_move`].
    pub(crate) fn incoming(number: u8, socket: &Path, monitor: &Path, from: &Path) -> Self {
        let from = format!("unix:{}", from.display());
        Self::start(number, socket, 1, &["-qmp", &qmp(monitor), "-incoming", &from])
    }

    /// Boots a machine that has the agent at `/opt/sluice-guest`. `folder` is for its files.
    pub(crate) fn boot_with_agent(number: u8, socket: &Path, folder: &Path) -> Self {
        let image = image("guest").expect("`skip` was asked");
        let initrd = folder.join("initrd-with-agent");
        let mut bytes = std::fs::read(image.join("initrd.gz")).unwrap();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(archive(&agent().expect("`skip_agent` was asked"), folder));
        std::fs::write(&initrd, bytes).unwrap();
        Self::start_from(&initrd, number, socket, 1, &[])
    }

    fn start(number: u8, socket: &Path, queues: u8, more: &[&str]) -> Self {
        let initrd = image("guest").expect("`skip` was asked").join("initrd.gz");
        Self::start_from(&initrd, number, socket, queues, more)
    }

    fn start_from(initrd: &Path, number: u8, socket: &Path, queues: u8, more: &[&str]) -> Self {
        let image = image("guest").expect("`skip` was asked");
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-machine", "q35,accel=tcg", "-m", "128M", "-nographic", "-nodefaults"]);
        command.args(["-no-reboot", "-serial", "stdio"]);
        // As started by libvirt: its threads have names.
        command.args(["-name", &format!("vm{number},debug-threads=on")]);
        command.args(["-object", "memory-backend-memfd,id=mem,size=128M,share=on"]);
        command.args(["-numa", "node,memdev=mem"]);
        command.arg("-kernel").arg(image.join("vmlinuz"));
        command.arg("-initrd").arg(initrd);
        command
            .arg("-append")
            .arg(format!("console=ttyS0 quiet {UNCHECKED} ipv6.disable=1 ip4=10.0.0.{number}/24"));
        let socket = socket.display();
        command.arg("-chardev").arg(format!("socket,id=net,path={socket},reconnect=1"));
        command.args(["-netdev", &format!("vhost-user,id=net0,chardev=net,queues={queues}")]);
        // Without KVM this version crashes on the interrupts of its default.
        let device = "virtio-net-pci,netdev=net0,vectors=0,romfile=";
        let mq = if queues > 1 { "on" } else { "off" };
        command.arg("-device").arg(format!("{device},mq={mq},mac=02:00:00:00:00:{number:02x}"));
        command.args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let running = Running::start(&mut command);
        Self { name: format!("vm{number}"), command, running }
    }

    /// Boots a machine without a card but those of its options, with two processors, of an image of
    /// its own.
    pub(crate) fn without_card(
        name: &str,
        kernel: &Path,
        initrd: &Path,
        options: &[String],
    ) -> Self {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "1G"]);
        command.args(["-nographic", "-nodefaults", "-no-reboot", "-serial", "stdio"]);
        command.arg("-kernel").arg(kernel).arg("-initrd").arg(initrd);
        command.arg("-append").arg(format!("console=ttyS0 quiet {UNCHECKED} plain"));
        command.args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let running = Running::start(&mut command);
        Self { name: name.to_owned(), command, running }
    }

    /// Waits until it has booted.
    pub(crate) fn ready(&mut self) {
        for boot in 1..=BOOTS {
            if self.running.wait("READY", BOOT_PATIENCE).is_some() {
                return;
            }
            say(&format!("{}: boot {boot} of {BOOTS}: {}", self.name, self.running.printed()));
            if boot < BOOTS {
                // The old process must close the sockets before the new one opens them.
                _ = self.running.child.kill();
                _ = self.running.child.wait();
                self.running = Running::start(&mut self.command);
            }
        }
        panic!("{} did not boot in {BOOTS} times {BOOT_PATIENCE:?}", self.name);
    }

    /// Starts a command line; [`Self::end`] waits for it.
    pub(crate) fn begin(&mut self, line: &str) {
        // The shell assembles the mark, so that an echo of the line does not contain it.
        writeln!(self.running.input, "{line}; echo EN''D").unwrap();
    }

    /// Returns the output of the command.
    pub(crate) fn end(&mut self, time: Duration) -> String {
        let said = self.running.wait("END", time);
        said.unwrap_or_else(|| panic!("{}: it does not end within {time:?}", self.name))
    }

    /// Runs a command line and returns its output.
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.begin(line);
        self.end(Duration::from_secs(60))
    }

    /// Returns the number of pings that were answered.
    pub(crate) fn ping(&mut self, to: u8, count: u32) -> u32 {
        let said = self.run(&format!("ping -c {count} -i 0.1 -W 2 10.0.0.{to}"));
        let lines = said.lines().filter(|line| line.contains("bytes from"));
        u32::try_from(lines.count()).unwrap()
    }

    /// Stops QEMU, or lets it continue: the machine takes nothing meanwhile.
    pub(crate) fn pause(&self, pause: bool) {
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.running.child), signal).unwrap();
    }

    /// Pins its processor to a CPU of this machine, as libvirt's `vcpupin` does.
    pub(crate) fn pin(&self, cpu: usize) {
        let tasks = format!("/proc/{}/task", self.running.child.id());
        let mut pinned = 0;
        for task in std::fs::read_dir(tasks).unwrap().flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if name.starts_with("CPU 0/") {
                let thread: i32 = task.file_name().to_str().unwrap().parse().unwrap();
                let mut cpus = CpuSet::new();
                cpus.set(cpu);
                sched_setaffinity(Pid::from_raw(thread), &cpus).unwrap();
                pinned += 1;
            }
        }
        assert_eq!(pinned, 1, "{}: it has one processor", self.name);
    }

    /// Kills the machine, as by a power cut.
    pub(crate) fn kill(mut self) {
        self.running.child.kill().unwrap();
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&format!("{} printed: {}", self.name, self.running.printed()));
        }
    }
}
