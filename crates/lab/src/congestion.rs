//! Congestion controls of this kernel: a lab whose TCP it lacks is refused before it is built.

use std::net::TcpListener;

use anyhow::bail;

use crate::scenario::Scenario;

/// The kernel's list, in the initial network namespace.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Checks that the kernel has every congestion control that the scenario's containers use. A
/// virtual machine has a kernel of its own.
///
/// # Errors
///
/// Names the key, the missing congestion control, and those that the kernel has.
pub(crate) fn check(scenario: &Scenario) -> anyhow::Result<()> {
    let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
    check_with(scenario, &available, has)
}

/// Returns true if a socket takes this congestion control. The kernel loads its module for that, so
/// that one that is only installed counts.
fn has(name: &str) -> bool {
    let listener = TcpListener::bind(("127.0.0.1", 0));
    listener.is_ok_and(|listener| rustix::net::sockopt::set_tcp_congestion(&listener, name).is_ok())
}

fn check_with(
    scenario: &Scenario,
    available: &str,
    has: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let lab = &scenario.lab;
    if lab.containers_per_host == 0 && !lab.aggregator {
        return Ok(());
    }
    let (key, names) = match &scenario.pa {
        Some(pa) if !pa.congestions.is_empty() => ("pa.congestions", pa.congestions.clone()),
        _ => ("tcp.congestion", vec![scenario.tcp.congestion.clone()]),
    };
    let listed = |name: &str| available.split_whitespace().any(|known| known == name);
    if let Some(name) = names.iter().find(|name| !listed(name) && !has(name)) {
        bail!(
            "{key}: this kernel has no congestion control {name}; it has {}: use one of them, load \
             the module tcp_{name}, or simulate the scenario (`sluice sim run`)",
            available.split_whitespace().collect::<Vec<_>>().join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(name: &str, from: &str, to: &str) -> Scenario {
        let text = crate::scenario::SHIPPED.iter().find(|(known, _)| *known == name).unwrap().1;
        assert!(text.contains(from), "{from}");
        Scenario::parse(&text.replace(from, to)).unwrap()
    }

    #[test]
    fn missing_congestion_control_refused_with_available() {
        let vegas = scenario("smoke", "congestion = \"cubic\"", "congestion = \"vegas\"");
        let error = check_with(&vegas, "reno cubic\n", |_| false).unwrap_err().to_string();
        assert!(error.starts_with("tcp.congestion: this kernel has no congestion control vegas"));
        assert!(error.contains("it has reno, cubic:"), "{error}");
        assert!(check_with(&vegas, "reno vegas", |_| false).is_ok());
        assert!(check_with(&vegas, "reno", |name| name == "vegas").is_ok());
        let both = "queries = 50\ncongestions = [\"reno\", \"vegas\"]";
        let error = check_with(&scenario("smoke", "queries = 50", both), "reno", |_| false);
        assert!(error.unwrap_err().to_string().starts_with("pa.congestions: "));
    }

    #[test]
    fn virtual_machines_have_their_own_kernel() {
        let vms = Scenario::load("pa-vms").unwrap();
        assert!(check_with(&vms, "reno", |_| false).is_ok());
    }

    #[test]
    fn this_kernel_has_reno_and_no_nonsense() {
        assert!(has("reno"));
        assert!(!has("sluice-none"));
    }

    #[test]
    fn lab_refused_before_namespaces_exist() {
        let folder = std::env::temp_dir().join(format!("sluice-tcp-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("none.toml");
        let text = include_str!("../../../scenarios/smoke.toml")
            .replace("name = \"smoke\"", "name = \"tcp-none\"")
            .replace("congestion = \"cubic\"", "congestion = \"sluice-none\"");
        std::fs::write(&path, text).unwrap();
        let options = crate::Options { quiet: true, ..crate::Options::default() };
        let error = crate::run(path.to_str().unwrap(), &options).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("tcp.congestion: this kernel has no"), "{error}");
        assert!(!crate::plan::run_dir("tcp-none").exists());
        assert!(!crate::netns::exists("slab-tcp-none-h0"));
    }
}
