use super::*;

fn of(vports: &[&str], decap: &[&str]) -> Tables {
    let list = |rows: &[&str]| rows.iter().map(|&row| row.to_owned()).collect();
    Tables { vports: list(vports), decap: list(decap), ..Tables::default() }
}

#[test]
fn order_does_not_count_and_everything_else_does() {
    let seen = of(&["h0c0 at h0", "h1c0 at h1"], &["lab from h1"]);
    assert!(compare(&of(&["h1c0 at h1", "h0c0 at h0"], &["lab from h1"]), &seen).is_empty());
    let one_less = compare(&of(&["h0c0 at h0"], &["lab from h1"]), &seen);
    assert_eq!(one_less, [r#"vports: ["h0c0 at h0", "h1c0 at h1"] and not ["h0c0 at h0"]"#]);
    let one_more = compare(&of(&["h0c0 at h0", "h1c0 at h1"], &[]), &seen);
    assert_eq!(one_more, [r#"decap: ["lab from h1"] and not []"#]);
}
