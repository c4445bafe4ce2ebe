//! A virtual machine with another kernel, which runs tests of this very program.
//!
//! ```text
//!   this test ── QEMU ── kernel of `scripts/guest.sh` ── this test, and sluice
//! ```
//!
//! The file system of the image is followed by another one with both programs and what they call.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::vm::{self, Vm};
use super::{Net, program, say};

/// Programs that the tests inside call, beside those of the image.
const TOOLS: [&str; 3] = ["ethtool", "ping", "bridge"];

/// A virtual machine.
pub(crate) struct Guest<'a> {
    /// Its image, a word of `scripts/guest.sh`.
    pub(crate) image: &'a str,
    /// Options of QEMU.
    pub(crate) options: &'a [String],
    /// Number of tests that run inside.
    pub(crate) tests: usize,
}

impl Guest<'_> {
    /// Runs the tests of this program whose names begin with `inside` in the machine, where they
    /// must pass and skip nothing; false if that is not possible here, and the reason is printed.
    pub(crate) fn runs(&self, test: &str, net: &Net, inside: &str, time: Duration) -> bool {
        if let Some(why) = self.lacking() {
            say(&format!("SKIPPED {test}: {why}"));
            return false;
        }
        let image = vm::image(&self.folder()).expect("it was looked for");
        let initrd = pack(net, &image.join("initrd.gz"));
        let (kernel, options) = (image.join("vmlinuz"), self.options);
        let mut vm = Vm::without_card(inside, &kernel, &initrd, options);
        vm.ready();
        vm.begin(&format!(
            "export PATH=/test:/opt:/bin SLUICE=/test/sluice RUST_BACKTRACE=1; /test/live \
             --include-ignored --nocapture --test-threads 1 {inside} 2>&1"
        ));
        let said = vm.end(time);
        say(&said);
        let passed = format!("test result: ok. {} passed", self.tests);
        assert!(said.contains(&passed), "{test}: {inside} failed inside");
        assert!(!said.contains("SKIPPED"), "{test}: {inside} did not run inside");
        true
    }

    fn folder(&self) -> String {
        format!("guest-{}", self.image)
    }

    fn lacking(&self) -> Option<String> {
        let tools = ["qemu-system-x86_64", "cpio", "strip", "ldd"];
        if let Some(tool) =
            tools.iter().chain(&TOOLS).find(|tool| !sluice_netns::is_installed(tool))
        {
            return Some(format!("the program `{tool}` is not installed"));
        }
        let image = vm::image(&self.folder());
        let why = || format!("its kernel is not there: run `scripts/guest.sh {}`", self.image);
        image.is_none().then(why)
    }
}

/// Makes a file system of both programs behind the one of the image.
fn pack(net: &Net, base: &Path) -> PathBuf {
    let root = net.file("root");
    let test = root.join("test");
    fs::create_dir_all(&test).unwrap();
    let own = std::env::current_exe().unwrap();
    for (from, name) in [(&own, "live"), (&program(), "sluice")] {
        checked(Command::new("strip").arg("-o").arg(test.join(name)).arg(from));
        libraries(from, &root);
    }
    for tool in TOOLS {
        let found = checked(Command::new("which").arg(tool));
        let from = PathBuf::from(found.trim());
        fs::copy(&from, test.join(tool)).unwrap();
        libraries(&from, &root);
    }
    let archive = net.file("more.cpio");
    let pack = format!("find . | cpio --quiet -o -H newc >{}", archive.display());
    checked(Command::new("sh").args(["-c", &pack]).current_dir(&root));
    let mut bytes = fs::read(base).unwrap();
    // The second archive begins at a multiple of four.
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(fs::read(&archive).unwrap());
    let initrd = net.file("initrd");
    fs::write(&initrd, bytes).unwrap();
    initrd
}

/// Copies the libraries of a program, the loader among them, to the same paths.
fn libraries(program: &Path, root: &Path) {
    let said = checked(Command::new("ldd").arg(program));
    for path in said.split_whitespace().filter(|word| word.starts_with('/')) {
        let path = path.trim_end_matches(':');
        let to = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }
}

fn checked(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
