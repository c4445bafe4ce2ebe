use super::*;

#[test]
fn pairs_of_lines_become_names_and_values() {
    let text = "Tcp: MaxConn RetransSegs InErrs\nTcp: -1 12 3\nUdp: InDatagrams\nUdp: 9\n";
    assert_eq!(parse(text), [("RetransSegs", 12), ("InErrs", 3), ("InDatagrams", 9)]);
    assert!(parse("").is_empty());
    assert!(parse("Tcp: a b\nUdp: 1 2\n").is_empty());
}

#[test]
fn the_own_process_has_counters() {
    let (repairs, losses) = read(&[std::process::id()]);
    assert!(repairs.contains_key("RetransSegs") && repairs.contains_key("TCPTimeouts"));
    assert!(losses.contains_key("TCPBacklogDrop"));
}

#[test]
fn net_dev_fields_4_and_12_are_drops() {
    let text = "Inter-|   Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
    let expected = [("eth0.rx_dropped".to_owned(), 4), ("eth0.tx_dropped".to_owned(), 12)];
    assert_eq!(device_losses(text), expected);
    assert!(device_losses("    lo: 1 2 3").is_empty());
}

#[test]
fn only_what_grew_is_kept() {
    let before = Counters::from([("a".to_owned(), 5), ("b".to_owned(), 1)]);
    let after = Counters::from([("a".to_owned(), 5), ("b".to_owned(), 3), ("c".to_owned(), 2)]);
    let grown = difference(&before, &after);
    assert_eq!(grown, Counters::from([("b".to_owned(), 2), ("c".to_owned(), 2)]));
}
