//! Frames on a wire: captured by tcpdump, read by tshark.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use super::{Net, Netns, Process, run};

/// A running tcpdump.
pub(crate) struct Capture {
    file: PathBuf,
    process: Process,
    said: BufReader<std::process::ChildStderr>,
}

impl Capture {
    /// Starts to capture frames that match `filter`; the capture runs when this returns.
    pub(crate) fn start(net: &Net, netns: &Netns, device: &str, filter: &str) -> Self {
        let file = net.file(&format!("{}-{device}.pcap", netns.name()));
        let mut command = netns.command("tcpdump");
        // Keep root's rights, or tcpdump could not write into the directory of the test.
        command.args([
            "-n",
            "-U",
            "--immediate-mode",
            "-s",
            "256",
            "-B",
            "8192",
            "-Z",
            "root",
            "-i",
            device,
            "-w",
        ]);
        command.arg(&file).args(filter.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let mut said = BufReader::new(process.0.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "tcpdump does not listen on {device}");
        }
        Self { file, process, said }
    }

    /// Stops the capture, and panics if it missed a frame.
    pub(crate) fn stop(self) -> Captured {
        // tcpdump reads the last frames within a moment.
        std::thread::sleep(std::time::Duration::from_millis(200));
        self.process.stop();
        let last: Vec<String> = self.said.lines().map_while(Result::ok).collect();
        let last = last.join("\n");
        assert!(last.contains("\n0 packets dropped by kernel"), "{last}");
        Captured(self.file)
    }
}

/// A capture file.
pub(crate) struct Captured(PathBuf);

impl Captured {
    /// Returns a file that something else captured.
    pub(crate) fn of(file: &std::path::Path) -> Self {
        Self(file.to_owned())
    }

    /// Returns the frames that match a display filter, as the texts of some fields. A field with
    /// several values, as `eth.dst` of a tunnel, has them joined by commas.
    pub(crate) fn frames(&self, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        let mut line = format!(
            "tshark -n -r {} -d udp.port==4789,vxlan -T fields -E separator=;",
            self.0.display()
        );
        for field in fields {
            line += " -e ";
            line += field;
        }
        if !filter.is_empty() {
            // No spaces: the words become arguments.
            line += " -Y ";
            line += &filter.replace(' ', "");
        }
        let frames = run(&line);
        frames.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect()
    }
}
