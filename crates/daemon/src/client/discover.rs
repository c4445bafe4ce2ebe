//! `sluice fabric discover`: listens for the beacons of hosts, and asks nobody.

use std::io::Write as _;
use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use sluice_api::discovery::{Heard, HeardRow};
use sluice_api::envelope::Envelope;

use crate::discovery::{candidates, listen};

/// Digits of a fingerprint in a table.
const DIGITS: usize = 16;

/// Listens for a span on a device, or on all that may lead to other hosts, and prints the hosts
/// that were heard.
///
/// # Errors
/// If a device cannot be listened on.
pub fn discover(device: Option<String>, span: Duration, json: bool) -> anyhow::Result<()> {
    let devices = match device {
        Some(device) => vec![device],
        None => candidates()?.into_iter().map(|place| place.device).collect(),
    };
    let heard = listen(&devices, span)?;
    let text = match json {
        true => Envelope::now(None).around(&serde_json::to_string(&heard)?) + "\n",
        false => render(&heard, &devices),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn render(heard: &Heard, devices: &[String]) -> String {
    let mut text = if heard.hosts.is_empty() {
        format!(
            "nothing heard on {}; is `sluice daemon` running on the other hosts, and are they on \
             the same network?\n",
            devices.join(", ")
        )
    } else {
        table(&heard.hosts)
    };
    if heard.more > 0 {
        text += &format!("{} beacons of further hosts are not shown\n", heard.more);
    }
    if heard.unreadable > 0 {
        text += &format!("{} datagrams were no beacons of this version\n", heard.unreadable);
    }
    if heard.hosts.iter().any(|row| row.fabric.is_some()) {
        text += "anybody can send this: `sluice fabric join` verifies the member by the token\n";
    }
    text
}

fn table(rows: &[HeardRow]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["HOST", "FABRIC", "ADDRESS", "VERSION", "FINGERPRINT", "DEVICE", "AGE"]);
    for row in rows {
        let fingerprint = row.authority.as_deref().unwrap_or("-");
        table.add_row([
            row.host.clone(),
            row.fabric.clone().unwrap_or_else(|| "(waiting)".to_owned()),
            row.address.to_string(),
            row.program.clone(),
            fingerprint.get(..DIGITS).unwrap_or(fingerprint).to_owned(),
            row.device.clone(),
            format!("{}.{} s", row.age_ms / 1_000, row.age_ms / 100 % 10),
        ]);
    }
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(host: &str, fabric: Option<&str>) -> HeardRow {
        HeardRow {
            host: host.to_owned(),
            fabric: fabric.map(str::to_owned),
            authority: fabric.map(|_| "0123456789abcdef".repeat(4)),
            address: [10, 0, 0, 1].into(),
            port: 7474,
            program: "0.1.0".to_owned(),
            device: "eth0".to_owned(),
            age_ms: 1_234,
        }
    }

    #[test]
    fn heard_hosts_shown_as_hearsay() {
        let hosts = vec![row("h1", Some("prod")), row("h2", None)];
        let text = render(&Heard { hosts, more: 2, unreadable: 1 }, &[]);
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[1]), "h1 prod 10.0.0.1 0.1.0 0123456789abcdef eth0 1.2 s");
        assert_eq!(words(lines[2]), "h2 (waiting) 10.0.0.1 0.1.0 - eth0 1.2 s");
        assert!(lines[3].starts_with("2 beacons") && lines[4].starts_with("1 datagrams"));
        assert!(lines[5].starts_with("anybody can send this"));
    }

    #[test]
    fn heard_nobody_says_where_and_why() {
        let devices = ["eth0".to_owned(), "eth1".to_owned()];
        let text = render(&Heard::default(), &devices);
        assert!(text.starts_with("nothing heard on eth0, eth1; is `sluice daemon`"), "{text}");
    }
}
