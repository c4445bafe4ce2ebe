use super::*;

#[test]
fn time_in_file_name_has_no_colon() {
    assert_eq!(compact("2026-03-01T12:00:00.123Z"), "20260301T120000Z");
}

#[test]
fn summary_names_file_size_and_errors() {
    let none = Summary { file: "a.tar.gz".to_owned(), size: 1_001, entries: 3, errors: vec![] };
    let text = words(&none);
    assert!(text.starts_with("a.tar.gz: 3 files, 2 kB\n") && !text.contains("errors"), "{text}");
    let error = Missing { entry: "host".to_owned(), why: "nobody".to_owned() };
    let text = words(&Summary { errors: vec![error], ..none });
    assert!(text.contains("1 things could not be had"), "{text}");
}
