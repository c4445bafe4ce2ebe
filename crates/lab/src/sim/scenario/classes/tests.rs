use super::*;

fn parse(text: &str) -> anyhow::Result<Classes> {
    let classes: Classes = toml::from_str(text)?;
    classes.check()?;
    Ok(classes)
}

#[test]
fn absent_classes_are_one_lossless_class() {
    let classes = parse("").unwrap();
    assert_eq!(classes.lossless(), PriorityMask::ALL);
    assert_eq!(classes.used(true), PriorityMask(1));
    assert_eq!(classes.service(), SAME_WEIGHT);
    assert!(classes.is_default());
}

#[test]
fn each_priority_gets_its_treatment() {
    let text = "workload = 5\nbackground = 1\nlossless = [5]\nstrict = [5]\nweights = { 1 = 3 }\n\
                own_queues = [5]";
    let classes = parse(text).unwrap();
    assert_eq!(classes.lossless(), PriorityMask(1 << 5));
    assert_eq!(classes.used(true), PriorityMask(1 << 5 | 1 << 1));
    assert_eq!(classes.used(false), PriorityMask(1 << 5));
    assert_eq!(classes.own_queues(), PriorityMask(1 << 5));
    let service = classes.service();
    assert_eq!(service[5], Service::Strict);
    assert_eq!(service[1], Service::Weighted(3));
    assert_eq!(service[0], Service::Weighted(1));
    let written: Classes = toml::from_str(&toml::to_string(&classes).unwrap()).unwrap();
    assert_eq!(written, classes);
}

#[test]
fn what_is_no_priority_is_refused_by_key() {
    for (text, key) in [
        ("workload = 8", "classes.workload"),
        ("background = 8", "classes.background"),
        ("lossless = [8]", "classes.lossless"),
        ("lossless = []", "classes.lossless"),
        ("strict = [8]", "classes.strict"),
        ("own_queues = [8]", "classes.own_queues"),
        ("weights = { 8 = 1 }", "classes.weights.8"),
        ("weights = { high = 1 }", "classes.weights.high"),
        ("weights = { 1 = 0 }", "classes.weights.1"),
        ("strict = [1]\nweights = { 1 = 2 }", "classes.weights.1"),
        ("queries = 1", "queries"),
    ] {
        let error = format!("{:#}", parse(text).unwrap_err());
        assert!(error.contains(key), "{text}: {error}");
    }
}
