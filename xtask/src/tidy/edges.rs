//! Allowed dependencies between crates. Crates exist to forbid edges; this is the table of the
//! allowed ones.

use super::{Findings, PURE_CRATES};
use crate::workspace::{Dependency, Metadata, Package};

/// A crate of the workspace: its name without `sluice-`, its layer, and the workspace crates it may
/// use. The tests of a crate may use any crate of a lower layer.
struct Rule {
    name: &'static str,
    layer: u8,
    may_use: &'static [&'static str],
}

const fn rule(name: &'static str, layer: u8, may_use: &'static [&'static str]) -> Rule {
    Rule { name, layer, may_use }
}

const RULES: &[Rule] = &[
    rule("base", 0, &[]),
    rule("wire", 1, &["base"]),
    rule("switch", 2, &["base", "wire"]),
    rule("control", 2, &["base", "wire"]),
    rule("placement", 2, &["base"]),
    rule("host", 3, &["base", "wire", "switch"]),
    rule("btf", 3, &[]),
    rule("netns", 3, &[]),
    rule("ports", 4, &["base", "wire", "switch", "btf"]),
    rule("sim", 4, &["base", "wire", "switch", "placement", "host"]),
    rule("api", 4, &["base", "placement"]),
    rule("chart", 4, &[]),
    rule("testkit", 4, &[]),
    rule("dropwatch", 4, &["btf"]),
    rule("cpus", 4, &[]),
    rule("evpn", 4, &["base"]),
    rule(
        "daemon",
        5,
        &["base", "wire", "switch", "control", "placement", "host", "ports", "cpus", "api", "evpn"],
    ),
    rule("steer", 5, &["base", "placement", "cpus", "api"]),
    rule("guest", 5, &["ports", "api"]),
    rule("cni", 5, &["api"]),
    rule("lab", 5, &["base", "wire", "placement", "api", "chart", "sim", "dropwatch", "netns"]),
    rule(
        "bench",
        5,
        &[
            "base",
            "wire",
            "switch",
            "control",
            "placement",
            "host",
            "ports",
            "sim",
            "api",
            "chart",
            "testkit",
            "netns",
            "evpn",
        ],
    ),
    rule("sluice", 6, &["api", "daemon", "guest", "lab", "steer"]),
    rule("xtask", 6, &[]),
];

/// Edges of tests that do not point down: (crate, crate that its tests use).
const TEST_EDGES: &[(&str, &str)] = &[
    // The guest at the other end of a vhost-user port.
    ("ports", "testkit"),
    // The kernel's own report of dropped packets.
    ("ports", "dropwatch"),
];

/// External crates that may be used below L4. Tests may use any crate.
const PURE_EXTERNAL: &[&str] = &["bytes", "foca", "raft", "rand_core", "slog", "zerocopy"];

pub(super) fn check(metadata: &Metadata) -> Findings {
    let mut problems = Vec::new();
    let mut edge_count = 0;
    for package in &metadata.packages {
        let name = short(&package.name);
        let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
            problems.push(format!(
                "crate `{name}` is not in the table of xtask/src/tidy/edges.rs: give it a layer \
                 and the crates it may use, and show it in the design's picture of the layers"
            ));
            continue;
        };
        edge_count += package.dependencies.len();
        let edges = package.dependencies.iter();
        problems.extend(edges.filter_map(|dependency| problem(rule, package, dependency)));
    }
    let note = format!("{} crates, {edge_count} edges", metadata.packages.len());
    Findings { problems, note }
}

fn problem(rule: &Rule, package: &Package, dependency: &Dependency) -> Option<String> {
    let from = &package.name;
    let is_dev = dependency.kind.as_deref() == Some("dev");
    if dependency.path.is_none() {
        let to = &dependency.name;
        let allowed =
            is_dev || !PURE_CRATES.contains(&rule.name) || PURE_EXTERNAL.contains(&to.as_str());
        return (!allowed).then(|| {
            format!(
                "{from} uses `{to}`: a crate below L4 may use only {PURE_EXTERNAL:?}; move what \
                 needs it to L4 or above, or make it a dev-dependency"
            )
        });
    }
    let to = short(&dependency.name);
    if rule.may_use.contains(&to) {
        return None;
    }
    if !is_dev {
        return Some(format!(
            "{from} uses `{to}`, which the table of edges forbids (it may use {:?}): move the code \
             to the crate it belongs to, or pass the value in as an argument",
            rule.may_use
        ));
    }
    let points_down = RULES.iter().any(|other| other.name == to && other.layer < rule.layer);
    let allowed = points_down || TEST_EDGES.contains(&(rule.name, to));
    (!allowed).then(|| {
        format!(
            "{from} uses `{to}` in its tests, which is not below it: move the test to the upper \
             crate, or list the edge in TEST_EDGES of xtask/src/tidy/edges.rs with its reason"
        )
    })
}

/// Returns the name of a crate without `sluice-`.
fn short(name: &str) -> &str {
    name.strip_prefix("sluice-").unwrap_or(name)
}

#[cfg(test)]
mod tests;
