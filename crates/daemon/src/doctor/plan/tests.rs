use std::io;

use sluice_base::Mac;

use super::*;

const DEVICE: Device = Device { index: 1, mac: Mac([2; 6]), mtu: 1_500, up: true, running: true };

#[test]
fn device_graded_by_state_and_mtu() {
    let grade = |now: Device, needed| state("up0", Ok(now), needed).grade;
    assert_eq!(grade(DEVICE, Some(1_500)), Grade::Pass);
    assert_eq!(grade(DEVICE, Some(1_550)), Grade::Warn);
    assert_eq!(grade(DEVICE, None), Grade::Pass);
    assert_eq!(grade(Device { up: false, ..DEVICE }, None), Grade::Warn);
    assert_eq!(grade(Device { running: false, ..DEVICE }, None), Grade::Warn);
    assert!(state("up0", Ok(DEVICE), Some(1_550)).remedy.contains("mtu 1550"));
    let gone = state("up0", Err(io::Error::from_raw_os_error(19)), None);
    assert_eq!(gone.grade, Grade::Stop);
}

#[test]
fn directory_not_made_yet_judged_by_its_parent() {
    let dir = std::env::temp_dir().join("sluice-doctor-none/a/b");
    let row = directory(("run_dir", &dir));
    assert!(row.grade <= Grade::Warn && row.seen.contains("MiB free"), "{row:?}");
}

#[test]
fn unreadable_configuration_stops_with_its_reason() {
    let rows = rows(Path::new("/nonexistent/host.toml"));
    assert_eq!((rows.len(), rows[0].grade), (1, Grade::Stop));
    assert!(rows[0].seen.contains("/nonexistent/host.toml"), "{rows:?}");
}
