use sluice_api::placement::{PolicyVersion, Stamped};

use super::*;

fn cpu(cpu: u16, buckets: u32) -> CpuStatus {
    CpuStatus { cpu: Some(cpu), buckets, load_percent: 12.34, ..CpuStatus::default() }
}

#[test]
fn what_holds_and_what_hosts_make_of_it() {
    let stamp = PolicyVersion { version: 3, by: 1, at_ms: 0 };
    let policy: Policy =
        toml::from_str("mode = \"adaptive\"\nexcluded_cpus = [0]\nhigh = [\"vni=7\"]").unwrap();
    let place = PlaceStatus {
        name: "underlay".to_owned(),
        kind: "workers".to_owned(),
        stamp,
        mode: "adaptive".to_owned(),
        high: 1,
        moves: 9,
        cpus: vec![
            CpuStatus { excluded: true, ..cpu(0, 0) },
            CpuStatus { runs_vcpu: true, high: 64, ..cpu(1, 320) },
        ],
    };
    let h1 = Status {
        host: "h1".to_owned(),
        stamp: Some(stamp),
        follows: true,
        places: vec![place],
        notes: vec![],
    };
    let h2 = Status {
        host: "h2".to_owned(),
        notes: vec!["it is not connected".to_owned()],
        ..Status::default()
    };
    let answer =
        Answer { stamped: Stamped { stamp, policy }, committed: false, hosts: vec![h1, h2] };
    let text = render(&answer).unwrap();
    let words: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0].join(" "), "# version 3, set at host 1");
    assert_eq!(words[1].join(" "), "mode = \"adaptive\"");
    let has = |line: &str| words.iter().any(|words| words.join(" ") == line);
    assert!(has("h1 3 underlay (workers) adaptive 0 0 0 12.3 excluded"), "{text}");
    assert!(has("h1 3 underlay (workers) adaptive 1 320 64 12.3 runs a vCPU"), "{text}");
    assert!(has("h2 ?") && has("h2: it is not connected"), "{text}");
    assert!(has("h2 does not follow yet: it could not be asked"), "{text}");
    assert!(!text.contains("h1 does not follow"), "{text}");
}

#[test]
fn nothing_set_is_said() {
    let host = Status {
        host: "h1".to_owned(),
        stamp: Some(PolicyVersion::default()),
        ..Status::default()
    };
    let text = render(&Answer { stamped: Stamped::default(), committed: false, hosts: vec![host] })
        .unwrap();
    assert!(text.starts_with("no policy is set") && !text.contains("follow"), "{text}");
}

#[test]
fn what_is_typed_is_read() {
    let nobody = HostSelector::RunDir("/nowhere".into());
    let high = ["vni=7,mac=02:00:00:00:00:01".to_owned()];
    let typed = policy(&nobody, Some(Mode::Rss), Some("0-2,9"), &high).unwrap();
    let read: Policy = toml::from_str(
        "mode = \"rss\"\nexcluded_cpus = [0, 1, 2, 9]\nhigh = [\"vni=7,mac=02:00:00:00:00:01\"]",
    )
    .unwrap();
    assert_eq!(typed, read);
    for (excluded, high, says) in
        [(Some("x"), "vni=7", "--exclude-cpus"), (None, "vni=x", "--high vni=x")]
    {
        let error = policy(&nobody, None, excluded, &[high.to_owned()]).unwrap_err();
        assert!(format!("{error:#}").contains(says), "{error:#}");
    }
}

#[test]
fn placement_output_names_lagging_hosts_distinguishes_equal_versions() {
    let [own, other, earlier] =
        [(3, 7), (1, 7), (3, 2)].map(|(by, at_ms)| PolicyVersion { version: 2, by, at_ms });
    let old = PolicyVersion { version: 1, ..own };
    let host = |name: &str, stamp| Status {
        host: name.to_owned(),
        stamp: Some(stamp),
        ..Status::default()
    };
    let place = |stamp| PlaceStatus {
        name: "up".to_owned(),
        kind: "workers".to_owned(),
        stamp,
        cpus: vec![CpuStatus::default()],
        ..PlaceStatus::default()
    };
    let follows = Status { follows: true, places: vec![place(own)], ..host("h1", own) };
    let lags = Status { places: vec![place(old)], ..host("h3", own) };
    let stamped = Stamped { stamp: own, policy: Policy::default() };
    let hosts = vec![follows, host("h2", other), lags, host("h4", own)];
    let text = render(&Answer { stamped: stamped.clone(), committed: true, hosts }).unwrap();
    for line in [
        "h2 does not follow yet: it holds version 2 by 1\n",
        "h3 does not follow yet: up (workers) is at version 1\n",
        "h4 does not follow yet: nobody knows what its workers do\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(
        text.starts_with("# version 2, set at host 3, in the fabric's configuration\n"),
        "{text}"
    );
    assert!(text.contains("2 by 3") && !text.contains("h1 does"), "{text}");
    // The policy of a host that has forgotten its first one.
    let text =
        render(&Answer { stamped, committed: false, hosts: vec![host("h2", earlier)] }).unwrap();
    assert!(text.contains("it holds version 2 by 3 at 2 ms"), "{text}");
}

#[test]
fn placement_oversized_policy_refused_before_sending() {
    let nobody = HostSelector::RunDir("/nowhere".into());
    let policy = policy(&nobody, None, Some("0-4095"), &[]).unwrap();
    let error = ask(&nobody, Question::Set(Box::new(policy)), false).unwrap_err();
    assert!(error.to_string().contains("8192 are the most"), "{error:#}");
}
