use std::path::Path;

use super::*;
use crate::fabric::tests::plan;

const NOW: u64 = 1_700_000_000_000;

/// Returns the differences that h1 finds at h2, after `change` of h2's plan.
fn found(change: impl FnOnce(&mut FabricPlan), clock_ms: u64) -> Vec<(Setting, String)> {
    let [h1, mut h2] = [1, 2].map(|own| plan(Path::new("/nonexistent"), own, 2, 7474));
    change(&mut h2);
    let theirs = page_of(&h2, &h2.hosts[0], 0, clock_ms);
    let all = compare(&h1, &h1.hosts[0], &theirs, NOW);
    all.iter().map(|one| (one.what, one.to_string())).collect()
}

fn only(change: impl FnOnce(&mut FabricPlan)) -> (Setting, String) {
    let mut all = found(change, NOW);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn members_that_say_the_same_do_not_differ() {
    assert_eq!(found(|_| {}, NOW), []);
    assert_eq!(found(|_| {}, NOW + CLOCK_MS_MAX), []);
    // Each host may choose its own name for a network.
    assert_eq!(found(|h2| h2.vnets[0].1 = "azure".to_owned(), NOW), []);
}

#[test]
fn each_matter_is_named_with_both_sides() {
    let vni = Vni::new(43).unwrap();
    let (what, words) = only(|h2| {
        h2.vnets[0].0 = vni;
        h2.hosts[0].vnets = vec![vni];
    });
    assert_eq!((what, &*words), (Setting::Vni, "vni of blue is 42 here and 43 there"));
    let (what, words) = only(|h2| h2.mtus[0] = 1400);
    assert_eq!((what, &*words), (Setting::Mtu, "mtu of blue is 1450 here and 1400 there"));
    let (what, words) = only(|h2| h2.policy = "LL".to_owned());
    assert_eq!((what, &*words), (Setting::Policy, "policy is ZL here and LL there"));
    let (what, words) = only(|h2| h2.vtep = "127.0.9.99".parse().unwrap());
    assert_eq!((what, &*words), (Setting::Vtep, "vtep is 127.0.9.2 here and 127.0.9.99 there"));
    let (what, _) = only(|h2| h2.hosts[0].vnets.clear());
    assert_eq!(what, Setting::Network);
    let (what, words) = only(|h2| {
        let more = Vni::new(99).unwrap();
        h2.vnets.push((more, "red".to_owned()));
        h2.mtus.push(1450);
        h2.hosts[0].vnets.push(more);
    });
    assert!(what == Setting::Network && words.contains("red"), "{words}");
}

#[test]
fn clock_difference_derived_from_answer_travel_time() {
    let late = found(|_| {}, NOW - 90_500);
    assert_eq!(late.len(), 1);
    assert!(late[0].1.ends_with("90.5 s behind there"), "{late:?}");
    let early = found(|_| {}, NOW + CLOCK_MS_MAX + 1);
    assert!(early[0].0 == Setting::Clock && early[0].1.contains("ahead"), "{early:?}");
}

#[test]
fn many_networks_come_in_pages_that_fit() {
    let [_, mut h2] = [1, 2].map(|own| plan(Path::new("/nonexistent"), own, 2, 7474));
    let many: Vec<Vni> = (100..1_100).map(|vni| Vni::new(vni).unwrap()).collect();
    h2.vnets.extend(many.iter().map(|vni| (*vni, format!("network-of-tenant-{vni}"))));
    h2.mtus.extend(many.iter().map(|_| 1450));
    h2.hosts[0].vnets.extend(many);
    let (mut from, mut names, mut pages) = (0, Vec::new(), 0);
    loop {
        let page = page_of(&h2, &h2.hosts[0], from, NOW);
        assert!(serde_json::to_vec(&page).unwrap().len() <= ANSWER_SIZE_MAX);
        names.extend(page.vnets.into_iter().map(|row| row.vnet));
        pages += 1;
        match page.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert!((2..PAGES_MAX).contains(&pages), "{pages}");
    names.dedup();
    assert_eq!(names.len(), 1_001);
}

#[test]
fn text_of_another_host_controls_no_screen() {
    let (_, words) = only(|h2| h2.policy = "\u{1b}[2J".repeat(100));
    assert!(!words.contains('\u{1b}') && words.len() < 400, "{words:?}");
}
