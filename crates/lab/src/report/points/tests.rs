use sluice_api::results::Row;

use super::*;

fn results(counts: [[f64; 2]; 6]) -> Results {
    let rows = POINTS.iter().zip(counts).map(|(place, values)| {
        Row::new("flood.point", "ovs", "frames", values.to_vec())
            .with("place", *place)
            .with("about", "a <b>")
    });
    Results { name: "c1".into(), commit: "c".into(), machine: "m".into(), rows: rows.collect() }
}

#[test]
fn a_loss_stands_between_the_points_that_differ() {
    let counts =
        [[100.0, 300.0], [90.0, 300.0], [91.0, 300.0], [50.0, 101.0], [50.0, 101.0], [40.0, 60.0]];
    let line = Line::of(&results(counts)).unwrap();
    let text = markdown(std::slice::from_ref(&line));
    let expected = "| c1 | a <b> | 400 | 2.5 % | 0 | 60.0 % | 0 | 12.8 % | 20.0 to 40.0 % |";
    assert_eq!(text.lines().last(), Some(expected));
    let page = html(&[line], "m");
    assert!(page.contains("a &lt;b&gt;") && !page.contains("NaN"), "{page}");
    assert!(page.contains("c1: 60.00 % lost in the virtual switch (3 to 4)"));
}

#[test]
fn a_run_without_a_flood_is_said() {
    let empty =
        Results { name: "x".into(), commit: "c".into(), machine: "m".into(), rows: Vec::new() };
    let error = Line::of(&empty).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("x has no point 1"));
}
