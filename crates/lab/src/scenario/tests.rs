use super::*;

#[test]
fn every_shipped_scenario_is_valid() {
    for (name, _) in SHIPPED {
        let scenario = Scenario::load(name).unwrap();
        assert!(!scenario.lab.about.is_empty(), "{name} says nothing about itself");
        assert!(scenario.pa.is_some() || !scenario.checks.is_empty(), "{name} does nothing");
        let text = toml::to_string(&scenario).unwrap();
        assert_eq!(Scenario::parse(&text).unwrap(), scenario, "{name} does not survive");
    }
}

#[test]
fn names_of_labs_differ() {
    let mut names: Vec<String> =
        SHIPPED.iter().map(|(name, _)| Scenario::load(name).unwrap().lab.name).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = Scenario::load("nothing").unwrap_err().to_string();
    assert!(error.contains("demo") && error.contains("smoke"), "{error}");
}

#[test]
fn what_cannot_be_built_is_refused() {
    let good = include_str!("../../../../scenarios/smoke.toml");
    for (from, to) in [
        ("name = \"smoke\"", "name = \"Smoke\""),
        ("name = \"smoke\"", "name = \"a-name-that-is-too-long\""),
        ("hosts = 2", "hosts = 0"),
        ("hosts = 2", "hosts = 2\nsubnets = 3"),
        ("hosts = 2", "hosts = 2\ncolour = 3"),
        ("sizes = [8]", "sizes = []"),
        ("sizes = [8]", "sizes = [0]"),
        ("queries_min = 10", "queries_min = 51"),
        ("to = \"h1c1\"", "to = \"h1c2\""),
        ("to = \"h1c1\"", "to = \"h0c0\""),
        ("hosts = 2", "hosts = 2\nfabric = \"linux-bridge\""),
        ("hosts = 2", "hosts = 2\nfabric = \"linux-vxlan\""),
        ("[pa]", "[today]\nsizes = [8]\nqueries = 0\nseconds_per_cell = 1.0\n[pa]"),
    ] {
        assert!(good.contains(from));
        let text = good.replacen(from, to, 1);
        assert!(Scenario::parse(&text).is_err(), "accepted {to}");
    }
}

#[test]
fn virtual_machines_are_where_a_scenario_says() {
    let good = include_str!("../../../../scenarios/pa-vms.toml");
    let scenario = Scenario::parse(good).unwrap();
    assert!(scenario.has_container("h1v1"));
    for other in ["h1v2", "h2v0", "h0c0", "hv0", "h0v", "v0"] {
        assert!(!scenario.has_container(other), "{other}");
    }
    for (from, to) in [
        ("vms_per_host = 2", "vms_per_host = 0"),
        ("vms_per_host = 2", "vms_per_host = 2\nvnets = 3"),
        ("vms_per_host = 2", "vms_per_host = 2\nfabric = \"ovs\""),
        ("vms_per_host = 2", "vms_per_host = 2\nvnic = \"e1000\""),
        ("kind = \"ping\"", "kind = \"flood\""),
        ("\"vegas\"]", "\"vegas\", \"reno\"]"),
        ("count = 5", "count = 5\nunheard_at = \"h0v1\""),
    ] {
        assert!(good.contains(from));
        assert!(Scenario::parse(&good.replacen(from, to, 1)).is_err(), "accepted {to}");
    }
}

#[test]
fn aggregator_is_extra_container_on_host_0() {
    let scenario = Scenario::load("demo").unwrap();
    assert!(scenario.has_container("h0c8"));
    assert!(!scenario.has_container("h0c9"));
    assert!(!scenario.has_container("h1c8"));
    assert!(!scenario.has_container("c1"));
}
