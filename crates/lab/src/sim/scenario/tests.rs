use super::*;

fn error(text: &str) -> String {
    format!("{:#}", Any::parse(text).unwrap_err())
}

/// `incast` with one piece of its text replaced.
fn changed(from: &str, to: &str) -> String {
    let (_, text) = SHIPPED[0];
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

#[test]
fn shipped_sim_scenarios_valid_and_roundtrip_through_toml() {
    for (name, text) in SHIPPED {
        let Any::Sim(scenario) = Any::parse(text).unwrap() else { panic!("{name}") };
        assert_eq!(scenario.sim.name, name);
        assert!(!scenario.sim.about.is_empty(), "{name} says nothing about itself");
        let again = Any::parse(&toml::to_string(&scenario).unwrap()).unwrap();
        assert_eq!(again, Any::Sim(scenario), "{name}");
    }
}

#[test]
fn sim_scenario_names_distinct_from_lab_names() {
    for (name, _) in SHIPPED {
        assert!(LAB.iter().all(|(lab, _)| *lab != name), "{name} names two scenarios");
    }
}

#[test]
fn every_scenario_of_the_lab_is_read() {
    for (name, text) in LAB {
        assert!(matches!(Any::parse(text), Ok(Any::Lab(_))), "{name}");
    }
}

#[test]
fn unknown_scenario_key_error_lists_valid_ones() {
    let text = error(&changed("buffer_kb = 150", "bufer_kb = 150"));
    assert!(text.contains("bufer_kb") && text.contains("buffer_kb"), "{text}");
    let text = error(&changed("kind = \"star\"", "kind = \"ring\""));
    assert!(text.contains("ring") && text.contains("leaf-spine"), "{text}");
    let text = error(&changed("profile = \"linux-2013\"", "profile = \"linux-1991\""));
    assert!(text.contains("linux-1991") && text.contains("freebsd9"), "{text}");
    let text = error(&changed("congestion = \"cubic\"", "congestion = \"bbr\""));
    assert!(text.contains("bbr") && text.contains("vegas"), "{text}");
}

#[test]
fn what_cannot_work_is_named_with_its_remedy() {
    let cases = [
        (("senders = 16", "senders = 17"), "workload.senders: 1 to 16"),
        (("sizes = [4, 8, 16, 32, 64]", "sizes = []"), "workload.sizes: full segments"),
        (("queries = 100", "queries = 0"), "workload.queries: 1 to"),
        (("hosts = 17", "hosts = 1"), "topology: it has 1 hosts"),
        (("link_mbps = 10000", "link_mbps = 0"), "topology.link_mbps: 1 to"),
        (("vm_mbps = 5000", "vm_mbps = 0"), "leave it out for no limit"),
        (("vms_per_host = 1", "vm_frames = 1"), "overlay.vm_frames: 2 to"),
        (("buffer_kb = 150", "buffer_kb = 1"), "switch.buffer_kb: 2 to"),
        (("[overlay]\nvms_per_host = 1\nvm_mbps = 5000", ""), "use LL and LZ, or add a table"),
        (("kind = \"incast\"\nsenders = 16", "kind = \"search\"\ngap_us = 9"), "needs 3"),
        (
            ("[tcp]", "[background]\nkind = \"tcp\"\nsizes = \"x\"\nload_percent = 1\n[tcp]"),
            "there is no distribution x; there are: web-search",
        ),
        (
            ("[tcp]", "[background]\nkind = \"tcp\"\nsizes = \"hadoop\"\nload_percent = 0\n[tcp]"),
            "background.load_percent: 1 to 100",
        ),
        (("[tcp]", "[[topology.link]]\nhosts = [17]\ndelay_ns = 5\n[tcp]"), "use 0 to 16"),
        (
            ("[tcp]", "[[topology.link]]\nhosts = [3, 3]\ndelay_ns = 5\n[tcp]"),
            "topology.link.hosts: host 3 has one link and is named twice",
        ),
        (
            ("[tcp]", "[[topology.link]]\nhosts = [3]\ndelay_ns = 200000000\n[tcp]"),
            "topology.link.delay_ns: 100000000 at most",
        ),
        (("[tcp]", "[trace]\nwhat = []\ninterval_us = 5\n[tcp]"), "trace.what: at least one of"),
        (("[tcp]", "[trace]\ninterval_us = 0\n[tcp]"), "trace.interval_us: 1 to"),
        (
            (
                "kind = \"incast\"\nsenders = 16\nsizes = [4, 8, 16, 32, 64]\nqueries = 100",
                "kind = \"udp-sources\"\ngaps = \"poisson\"\nsenders = 17\nload_percent = 1\n\
                 duration_ms = 1",
            ),
            "workload.senders: 1 to 16",
        ),
    ];
    for ((from, to), expected) in cases {
        let text = error(&changed(from, to));
        assert!(text.contains(expected), "{to}: {text}");
    }
}

#[test]
fn links_sources_and_trace_survive_toml() {
    let (_, incast) = SHIPPED[0];
    let more = "[[topology.link]]\nhosts = [0, 4]\ndelay_ns = 50000\n\
         [background]\nkind = \"udp-sources\"\ngaps = \"constant\"\nload_percent = 9\n\
         [trace]\nwhat = [\"wait\"]\ninterval_us = 10\n[tcp]";
    let Any::Sim(scenario) = Any::parse(&incast.replace("[tcp]", more)).unwrap() else { panic!() };
    assert_eq!(scenario.topology.links()[0].hosts, [0, 4]);
    let again = Any::parse(&toml::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(again, Any::Sim(scenario));
    let text = error(&incast.replace("[tcp]", &more.replace("constant", "even")));
    assert!(text.contains("even") && text.contains("poisson"), "{text}");
    let text = error(&incast.replace("[tcp]", &more.replace("\"wait\"", "\"delay\"")));
    assert!(text.contains("delay") && text.contains("window"), "{text}");
}

#[test]
fn a_scenario_is_of_one_kind() {
    assert!(error("x = 1").contains("add one of them"));
    assert!(error("[lab]\n[sim]").contains("exclude each other"));
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let text = text_of("nothing").unwrap_err().to_string();
    assert!(text.contains("incast") && text.contains("demo"), "{text}");
}
