use super::*;

#[test]
fn kernel_below_minimum_warned_with_version() {
    for (release, grade) in [
        ("6.18.0", Grade::Pass),
        ("6.6.1-cloud-amd64", Grade::Pass),
        ("6.1.0-56-cloud-amd64", Grade::Warn),
        ("5.15", Grade::Warn),
        ("7.3.0", Grade::Pass),
        ("next", Grade::Unknown),
        ("", Grade::Unknown),
    ] {
        assert_eq!(kernel_of(release).grade, grade, "{release}");
    }
    assert!(kernel_of("6.1").remedy.contains("6.6"));
}

#[test]
fn missing_rights_named_and_graded() {
    assert_eq!(rights_of(privileges::KEPT).grade, Grade::Pass);
    let less = rights_of(privileges::KEPT.difference(CapabilitySet::SYS_RESOURCE));
    assert_eq!((less.grade, &*less.seen), (Grade::Warn, "without CAP_SYS_RESOURCE"));
    let none = rights_of(CapabilitySet::empty());
    assert_eq!(none.grade, Grade::Stop);
    assert!(none.seen.contains("CAP_NET_ADMIN"), "{none:?}");
}

#[test]
fn scheduling_settings_graded_by_effect() {
    let grade = |text: &str| autogroup(Some(text.to_owned())).grade;
    assert_eq!((grade("1\n"), grade("0\n")), (Grade::Warn, Grade::Pass));
    assert_eq!(autogroup(None).grade, Grade::Pass, "a kernel without it");
    let grade = |text: &str| real_time(Some(text.to_owned())).grade;
    assert_eq!((grade("950000\n"), grade("-1\n"), grade("0\n")), {
        (Grade::Pass, Grade::Pass, Grade::Warn)
    });
    assert_eq!((real_time(None).grade, grade("?")), (Grade::Unknown, Grade::Unknown));
}

#[test]
fn huge_pages_counted_from_meminfo() {
    let text = |free: u32| format!("MemTotal: 9 kB\nHugePages_Free: {free}\nHugepagesize: 2048 kB");
    assert_eq!(huge_pages(&text(0)).grade, Grade::Warn);
    let some = huge_pages(&text(512));
    assert_eq!((some.grade, &*some.seen), (Grade::Pass, "512 free, of 2048 KiB"));
    assert_eq!(huge_pages("").grade, Grade::Unknown);
}

#[test]
fn every_row_not_passing_has_a_remedy() {
    for row in rows() {
        assert_eq!(row.remedy.is_empty(), row.grade == Grade::Pass, "{row:?}");
    }
}
