use super::*;

fn evidence(near: u64, whole: u64) -> Evidence {
    Evidence { near, whole }
}

#[test]
fn what_is_written_is_read_again_in_order() {
    let mut record = Record::default();
    record.add("b-later", evidence(1, 2));
    record.add("a-first", evidence(u64::MAX, 0));
    let text = record.text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        lines,
        ["a-first ffffffffffffffff 0000000000000000", "b-later 0000000000000001 0000000000000002"]
    );
    assert_eq!(Record::parse(&text).unwrap(), record);
}

#[test]
fn record_merge_lines_of_both_sides_kept() {
    let record = Record::parse("a 1 2\nb 5 6\na 3 4\n").unwrap();
    assert_eq!(record.of("a").collect::<Vec<_>>(), [evidence(1, 2), evidence(3, 4)]);
    assert_eq!(record.of("c").count(), 0);
}

#[test]
fn what_is_no_verdict_is_refused() {
    for bad in ["<<<<<<< HEAD", "a 1", "a 1 2 3", "a x 2"] {
        assert!(Record::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn faults_that_are_gone_are_forgotten() {
    let mut record = Record::parse("a 1 2\nb 5 6\nc 5 6\n").unwrap();
    record.retain(&BTreeSet::from(["a", "b"]));
    record.forget("b");
    assert_eq!(record, Record::parse("a 1 2").unwrap());
}
