use super::*;

#[test]
fn sweep_makes_group_per_buffer_size_and_policy() {
    let buffers = groups(&Scenario::load("pa-buffers").unwrap());
    assert_eq!(buffers.len(), 6 * 3);
    assert_eq!(buffers[0].settings.switch_kb, 12);
    let total = groups(&Scenario::load("pa-total").unwrap());
    let names: Vec<(Policy, Variant)> =
        total.iter().map(|group| (group.policy, group.settings.variant)).collect();
    let expected = [
        (Policy::LL, Variant::VmBound),
        (Policy::ZZ, Variant::VmBound),
        (Policy::LL, Variant::VmBoundTotal),
    ];
    assert_eq!(names, expected);
    assert!(groups(&Scenario::load("two-subnets").unwrap()).is_empty());
}

#[test]
fn run_overrides_applied_and_invalid_ones_refused() {
    let mut scenario = Scenario::load("demo").unwrap();
    let overrides = Overrides {
        chip: None,
        queries: Some(7),
        sizes: Some(vec![2, 4]),
        policies: Some(vec![Policy::ZZ]),
        seconds_per_cell: Some(1.5),
    };
    change(&mut scenario, &overrides).unwrap();
    let pa = scenario.pa.as_ref().unwrap();
    assert_eq!((pa.queries, pa.queries_min, pa.sizes.as_slice()), (7, 7, &[2, 4][..]));
    assert_eq!(groups(&scenario).len(), 1);
    let bad = Overrides { sizes: Some(vec![0]), ..Overrides::default() };
    assert!(change(&mut scenario, &bad).is_err());
    let mut checks = Scenario::load("two-subnets").unwrap();
    assert!(change(&mut checks, &overrides).is_err());
}

#[test]
fn every_scenario_can_be_described() {
    for (name, _) in crate::scenario::SHIPPED {
        let scenario = Scenario::load(name).unwrap();
        let plan = Plan::new(&scenario);
        let text = describe(&scenario, &plan, &groups(&scenario)).unwrap();
        assert!(text.contains(&plan.lab) && text.contains("namespace"), "{name}");
    }
}
