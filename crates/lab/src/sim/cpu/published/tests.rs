use super::*;

#[test]
fn shares_follow_from_known_counts_only() {
    let near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-9;
    // One core does all work, whatever its count is.
    assert!(near(share(64, Rule::Default, 3), 100.0));
    assert!(near(share(64, Rule::Default, 0), 0.0));
    assert!(near(share(1400, Rule::VsExtend, 2), 50.0));
    // Two unknown counts share what the others leave.
    assert_eq!(share(64, Rule::VsExtend, 2), None);
    assert_eq!(share(8192, Rule::Rss, 1), None);
    assert!(near(share(8192, Rule::Rss, 0), 90.0));
}

#[test]
fn each_table_has_every_rule_and_size() {
    for bytes in SIZES {
        for rule in [Rule::Default, Rule::Rss, Rule::VsExtend] {
            let of_rule = |other: (u64, Rule)| other == (bytes, rule);
            assert_eq!(TABLE_5.iter().filter(|row| of_rule((row.0, row.1))).count(), 1);
            assert_eq!(TABLE_6.iter().filter(|row| of_rule((row.0, row.1))).count(), 1);
            let in_table_7 = TABLE_7.iter().filter(|row| of_rule((row.0, row.1))).count();
            assert_eq!(in_table_7, usize::from(rule != Rule::Default));
        }
    }
}
