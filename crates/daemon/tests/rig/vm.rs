//! Virtual machines under QEMU, which interprets them: slow, but on every machine. What they boot
//! is made by `scripts/guest.sh`.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::say;

/// Booting takes seconds, and tens of them where others compile.
const BOOT_PATIENCE: Duration = Duration::from_secs(60);

/// A kernel that is interpreted while its host is busy now and then stays where it waits for its
/// own timer: booted again, it does not.
const BOOTS: u32 = 3;

/// The checks that such a kernel fails, or takes minutes for, on a busy host.
const UNCHECKED: &str = "no_timer_check cryptomgr.notests";

/// Whether a test with virtual machines cannot run here; says why.
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

/// Why no virtual machine can run here.
fn lacking() -> Option<String> {
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        return Some("qemu-system-x86_64 is not installed".to_owned());
    }
    image().is_none().then(|| "there is nothing to boot: run scripts/guest.sh".to_owned())
}

/// The folder of kernel and root file system, beside what cargo built.
fn image() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let is_whole =
        |dir: &PathBuf| ["vmlinuz", "initrd.gz"].iter().all(|name| dir.join(name).is_file());
    test.ancestors().map(|dir| dir.join("guest")).find(is_whole)
}

fn qmp(monitor: &Path) -> String {
    format!("unix:{},server=on,wait=off", monitor.display())
}

/// A machine, with its shell at its serial port. It ends with this.
pub(crate) struct Vm {
    name: String,
    command: Command,
    running: Running,
}

/// QEMU, and what the machine in it has printed.
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

    /// Waits until it prints something, and gives what it printed before. `None` if it does not.
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
    /// Boots one with a card at `socket`: 02:00:00:00:00:NUMBER, 10.0.0.NUMBER.
    pub(crate) fn boot(number: u8, socket: &Path) -> Self {
        Self::start(number, socket, 1, &[])
    }

    /// Boots one whose card has so many queue pairs, and as many processors: its driver uses a pair
    /// for each.
    pub(crate) fn boot_with_queues(number: u8, socket: &Path, queues: u8) -> Self {
        Self::start(number, socket, queues, &["-smp", &queues.to_string()])
    }

    /// Boots one that can be moved, by a monitor at this path.
    pub(crate) fn boot_to_move(number: u8, socket: &Path, monitor: &Path) -> Self {
        Self::start(number, socket, 1, &["-qmp", &qmp(monitor)])
    }

    /// Makes room for a machine that comes from elsewhere, over the socket `from`: it goes on here.
    /// Card and monitor are as for [`Self::boot_to_move`].
    pub(crate) fn incoming(number: u8, socket: &Path, monitor: &Path, from: &Path) -> Self {
        let from = format!("unix:{}", from.display());
        Self::start(number, socket, 1, &["-qmp", &qmp(monitor), "-incoming", &from])
    }

    fn start(number: u8, socket: &Path, queues: u8, more: &[&str]) -> Self {
        let image = image().expect("`skip` was asked");
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-machine", "q35,accel=tcg", "-m", "128M", "-nographic", "-nodefaults"]);
        command.args(["-no-reboot", "-serial", "stdio"]);
        // As libvirt starts it: its threads have names.
        command.args(["-name", &format!("vm{number},debug-threads=on")]);
        command.args(["-object", "memory-backend-memfd,id=mem,size=128M,share=on"]);
        command.args(["-numa", "node,memdev=mem"]);
        command.arg("-kernel").arg(image.join("vmlinuz"));
        command.arg("-initrd").arg(image.join("initrd.gz"));
        command
            .arg("-append")
            .arg(format!("console=ttyS0 quiet {UNCHECKED} ipv6.disable=1 ip4=10.0.0.{number}/24"));
        let socket = socket.display();
        command.arg("-chardev").arg(format!("socket,id=net,path={socket},reconnect=1"));
        command.args(["-netdev", &format!("vhost-user,id=net0,chardev=net,queues={queues}")]);
        // Without KVM this version crashes on the interrupts that it would choose.
        let device = "virtio-net-pci,netdev=net0,vectors=0,romfile=";
        let mq = if queues > 1 { "on" } else { "off" };
        command.arg("-device").arg(format!("{device},mq={mq},mac=02:00:00:00:00:{number:02x}"));
        command.args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let running = Running::start(&mut command);
        Self { name: format!("vm{number}"), command, running }
    }

    /// Waits until it has booted.
    pub(crate) fn ready(&mut self) {
        for boot in 1..=BOOTS {
            if self.running.wait("READY", BOOT_PATIENCE).is_some() {
                return;
            }
            say(&format!("{}: boot {boot} of {BOOTS}: {}", self.name, self.running.printed()));
            if boot < BOOTS {
                // The old one lets go of the sockets before the new one asks for them.
                _ = self.running.child.kill();
                _ = self.running.child.wait();
                self.running = Running::start(&mut self.command);
            }
        }
        panic!("{} did not boot in {BOOTS} times {BOOT_PATIENCE:?}", self.name);
    }

    /// Begins a command line; [`Self::end`] waits for it.
    pub(crate) fn begin(&mut self, line: &str) {
        // The mark is put together there, so that an echo of the line is none.
        writeln!(self.running.input, "{line}; echo EN''D").unwrap();
    }

    /// What the command printed.
    pub(crate) fn end(&mut self, time: Duration) -> String {
        let said = self.running.wait("END", time);
        said.unwrap_or_else(|| panic!("{}: it does not end within {time:?}", self.name))
    }

    /// Runs a command line and gives what it printed.
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.begin(line);
        self.end(Duration::from_secs(60))
    }

    /// How many of so many pings came back.
    pub(crate) fn ping(&mut self, to: u8, count: u32) -> u32 {
        let said = self.run(&format!("ping -c {count} -i 0.1 -W 2 10.0.0.{to}"));
        let lines = said.lines().filter(|line| line.contains("bytes from"));
        u32::try_from(lines.count()).unwrap()
    }

    /// Stops the clock of it, or lets it go on: it takes nothing meanwhile.
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

    /// Ends it at once, as a power cut.
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
