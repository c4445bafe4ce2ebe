use super::*;

#[test]
fn tap_records_read_back_for_any_port_name() {
    let dir = std::env::temp_dir().join(format!("sluice-{}-taps", std::process::id()));
    let mut config = TapConfig::new("eth0", 1400);
    config.mac = Some("02:00:00:00:00:01".parse().unwrap());
    config.addresses = vec![("10.0.0.1".parse().unwrap(), 24)];
    let names = ["web", "a/b", "..", "%2f", "ä"];
    let mut records: Vec<Record> =
        names.iter().map(|name| Record::new(name, &config, 7, true)).collect();
    for record in &records {
        write(&dir, record).unwrap();
    }
    fs::write(dir.join(run_dir::TAPS_DIR).join("half.json"), "{\"port\":").unwrap();
    let sorted = |mut records: Vec<Record>| {
        records.sort_by(|one, other| one.port.cmp(&other.port));
        records
    };
    assert_eq!(sorted(read(&dir)), sorted(records.clone()));
    let known = records[0].known(None);
    assert_eq!((known.index, known.is_own, known.given), (7, true, config));
    forget(&dir, "..");
    records.retain(|record| record.port != "..");
    assert_eq!(sorted(read(&dir)), sorted(records));
    fs::remove_dir_all(&dir).unwrap();
}
