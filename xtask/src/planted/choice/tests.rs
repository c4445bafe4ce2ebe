use std::path::Path;

use super::*;
use crate::planted::fault::parse;

fn fault(name: &str, target: &str) -> Fault {
    fault_of("sluice-switch", name, target)
}

fn fault_of(package: &str, name: &str, target: &str) -> Fault {
    let text = format!("# fault: x\n# caught by: cargo test -p {package} {target} it\n");
    parse(&Path::new("planted").join(name).with_extension("patch"), &text).unwrap()
}

fn evidence(near: u64, whole: u64) -> Evidence {
    Evidence { near, whole }
}

/// The choice about one fault of content (1, 1), before the draw.
fn choice(target: &str, verdicts: &[(u64, u64)]) -> Choice {
    let mut record = Record::default();
    for &(near, whole) in verdicts {
        record.add("a", evidence(near, whole));
    }
    by_content(&fault("a", target), evidence(1, 1), &record)
}

#[test]
fn content_decides_what_is_proved() {
    for (target, verdicts, expected) in [
        ("--lib", &[][..], Choice::Prove(Why::New)),
        ("--lib", &[(1, 1)], Choice::Same),
        ("--lib", &[(1, 2)], Choice::Older),
        ("--lib", &[(2, 2)], Choice::Prove(Why::Touched)),
        ("--test fairness", &[(1, 2)], Choice::Older),
        ("--test random", &[(1, 2)], Choice::Older),
        ("--test random", &[(2, 2)], Choice::Prove(Why::Touched)),
        ("--test random", &[(1, 1)], Choice::Same),
        // Both sides of a merge left a verdict.
        ("--lib", &[(2, 2), (1, 1)], Choice::Same),
        ("--lib", &[(2, 2), (1, 2)], Choice::Older),
    ] {
        assert_eq!(choice(target, verdicts), expected, "{target} {verdicts:?}");
    }
}

#[test]
fn unchanged_faults_one_twentieth_drawn_by_content() {
    let faults: Vec<Fault> = (0..41).map(|at| fault(&format!("f{at}"), "--lib")).collect();
    let mut record = Record::default();
    for at in 0..41 {
        record.add(&format!("f{at}"), evidence(1, 1));
    }
    let with_evidence: Vec<(&Fault, Evidence)> =
        faults.iter().map(|fault| (fault, evidence(1, 1))).collect();
    let draw = |seed: &[u8]| choose(&with_evidence, &record, Digest::EMPTY.and(seed));
    let one = draw(b"one");
    let is_drawn = |choice: &&Choice| **choice == Choice::Prove(Why::Drawn);
    assert_eq!(one.iter().filter(is_drawn).count(), 3);
    assert_eq!(one.iter().filter(|choice| **choice == Choice::Same).count(), 38);
    assert_eq!(one, draw(b"one"));
    // In a hundred contents each fault has its turn.
    let turns = |at: usize| {
        let of_content = |seed: u8| is_drawn(&&draw(&[seed])[at]);
        (0..100).filter(|&seed| of_content(seed)).count()
    };
    for at in 0..41 {
        assert!((1..40).contains(&turns(at)), "fault {at}: {} turns", turns(at));
    }
}

#[test]
fn draw_takes_package_by_package() {
    let of_package = |at: usize| fault_of(&format!("p{}", at / 10), &format!("f{at}"), "--lib");
    let faults: Vec<Fault> = (0..100).map(of_package).collect();
    let mut record = Record::default();
    faults.iter().for_each(|fault| record.add(&fault.name, evidence(1, 1)));
    let with_evidence: Vec<(&Fault, Evidence)> =
        faults.iter().map(|fault| (fault, evidence(1, 1))).collect();
    let drawn_of = |seed: u8| {
        let choices = choose(&with_evidence, &record, Digest::EMPTY.and(&[seed]));
        let drawn = (0..100).filter(|&at| matches!(choices[at], Choice::Prove(_)));
        drawn.map(|at| at / 10).collect::<Vec<usize>>()
    };
    let mut packages = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let drawn = drawn_of(seed);
        assert_eq!(drawn, vec![drawn[0]; 5]);
        packages.insert(drawn[0]);
    }
    assert_eq!(packages.len(), 10);
}

#[test]
fn oracle_faults_one_fifth_proved_on_distant_change() {
    let fault = |at: usize| match at % 2 {
        0 => fault(&format!("f{at:02}"), "--test random"),
        _ => fault(&format!("f{at:02}"), "--test fairness"),
    };
    let faults: Vec<Fault> = (0..60).map(fault).collect();
    let with_evidence: Vec<(&Fault, Evidence)> =
        faults.iter().map(|fault| (fault, evidence(1, 2))).collect();
    let count = |recorded: Evidence, why: Why| {
        let mut record = Record::default();
        faults.iter().for_each(|fault| record.add(&fault.name, recorded));
        let choices = choose(&with_evidence, &record, Digest::EMPTY);
        choices.iter().filter(|choice| **choice == Choice::Prove(why)).count()
    };
    let (far, same) = (evidence(1, 1), evidence(1, 2));
    assert_eq!([count(far, Why::Oracle), count(far, Why::Drawn)], [6, 2]);
    assert_eq!([count(same, Why::Oracle), count(same, Why::Drawn)], [0, 3]);
}

#[test]
fn those_that_are_proved_anyway_are_not_drawn() {
    let faults: Vec<Fault> = (0..10).map(|at| fault(&format!("f{at}"), "--lib")).collect();
    let with_evidence: Vec<(&Fault, Evidence)> =
        faults.iter().map(|fault| (fault, evidence(1, 1))).collect();
    let choices = choose(&with_evidence, &Record::default(), Digest::EMPTY);
    assert_eq!(choices, vec![Choice::Prove(Why::New); 10]);
}

#[test]
fn a_record_is_completed_without_a_draw() {
    let faults = [fault("a", "--lib"), fault("b", "--lib"), fault("c", "--lib")];
    let mut record = Record::default();
    record.add("a", evidence(1, 1));
    record.add("b", evidence(1, 2));
    let with_evidence: Vec<(&Fault, Evidence)> =
        faults.iter().map(|fault| (fault, evidence(1, 1))).collect();
    let expected = [Choice::Same, Choice::Prove(Why::Older), Choice::Prove(Why::New)];
    assert_eq!(unrecorded(&with_evidence, &record), expected);
}
