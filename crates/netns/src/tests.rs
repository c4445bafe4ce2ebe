use super::*;

/// Returns true if namespaces can be made here; prints a message if not.
fn can_have_namespaces(test: &str) -> bool {
    let probe = Netns::create(&format!("sluice-n-{}-{test}", std::process::id()));
    match probe.and_then(|netns| netns.delete()) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("SKIPPED {test}: {error}");
            false
        }
    }
}

#[test]
fn namespace_missing_gives_its_path() {
    let error = inside("sluice-no-such", || ()).unwrap_err();
    assert!(
        error.to_string().starts_with("opening the network namespace /run/netns/sluice-no-such")
    );
}

#[test]
fn command_failing_gives_its_words() {
    let error = run("sh -c no-such-program-here").unwrap_err().to_string();
    assert!(error.contains("sh -c no-such-program-here failed: "), "{error}");
    assert!(error.contains("not found"), "{error}");
    let error = tool("no-such-program-here", &[]).unwrap_err().to_string();
    assert!(error.starts_with("starting no-such-program-here: "), "{error}");
}

#[test]
fn cable_joins_two_namespaces_without_offloads() {
    if !is_installed("ip") || !is_installed("ethtool") || !can_have_namespaces("cable") {
        eprintln!("SKIPPED cable_joins_two_namespaces_without_offloads");
        return;
    }
    let name = |side| format!("sluice-n-{}-{side}", std::process::id());
    let ends = ["l", "r"].map(|side| Netns::create(&name(side)).unwrap());
    let made = cable((&ends[0], "eth0"), (&ends[1], "eth1"));
    let seen = ends[1].run("ethtool -k eth1");
    let ipv6 =
        ends[0].inside(|| std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6"));
    let there = ends.each_ref().map(|end| exists(end.name()));
    for end in &ends {
        end.delete().unwrap();
    }
    made.unwrap();
    assert!(seen.unwrap().contains("tx-checksumming: off"));
    assert!(ipv6.unwrap().map_or(true, |text| text.trim() == "1"), "IPv6 is off, or absent");
    assert_eq!(there, [true; 2]);
    assert!(!exists(ends[0].name()));
}
