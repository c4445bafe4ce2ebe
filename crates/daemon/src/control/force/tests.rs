//! Tests of what a host has against a configuration.

use super::*;

fn host(more: &str) -> Host {
    let text = format!("[host]\nname = \"h1\"\n{more}");
    let config: HostConfig = toml::from_str(&text).unwrap();
    config.host
}

#[test]
fn policy_that_excludes_all_workers_is_refused() {
    let policy = |text: &str| -> Policy { toml::from_str(text).unwrap() };
    let both = policy("excluded_cpus = [0, 1]");
    let of_h1 = policy("excluded_cpus = [7]\n[hosts.h1]\nexcluded_cpus = [0, 1]");
    let not_h1 = policy("excluded_cpus = [0, 1]\n[hosts.h1]\nexcluded_cpus = [1]");
    let two = host("workers = 2\nworker_cpus = [0, 1]\n");
    for refused in [&both, &of_h1] {
        let why = judge_placement(&two, refused).unwrap_err();
        assert!(why.contains("(0, 1)") && why.contains("[hosts.h1]"), "{why}");
    }
    assert!(judge_placement(&host("worker_cpu = 1\n"), &both).is_err());
    for (host, policy) in [
        (&two, &not_h1),
        (&two, &Policy::default()),
        (&two, &policy("excluded_cpus = [0]")),
        // On no CPU, and on one that is left.
        (&host("workers = 2\n"), &both),
        (&host("worker_cpu = 2\n"), &both),
    ] {
        assert_eq!(judge_placement(host, policy), Ok(()));
    }
}
