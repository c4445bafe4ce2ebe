use super::super::figure::Published;
use super::*;

fn figure(table: u8, basis: Basis, published: f64, predicted: f64) -> Figure {
    Figure {
        table,
        bytes: 64,
        vms: 2,
        mode: "rss".to_owned(),
        of: format!("{published}"),
        unit: Unit::Loss,
        published: Published::Printed(published),
        predicted,
        basis,
    }
}

fn find(figures: &[Figure], name: &str) -> Summary {
    summaries(figures).into_iter().find(|summary| summary.name == name).unwrap()
}

#[test]
fn largest_errors_count_like_all_others() {
    let errors = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 900.0];
    let figures: Vec<Figure> = errors
        .iter()
        .enumerate()
        .map(|(at, error)| {
            let mut figure = figure(7, Basis::Predicted, 10.0, 10.0 + error / 10.0);
            figure.of = format!("VM{at}");
            figure
        })
        .collect();
    let found = find(&figures, "Table 7, predicted");
    let near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-9;
    assert_eq!((found.figures, found.errors.len()), (10, 10));
    assert!(near(found.median(), 4.5), "{found:?}");
    assert!(near(found.p90(), 8.0), "{found:?}");
    assert!(near(found.worst(), 900.0), "{found:?}");
    assert_eq!(found.worst_at, "rss, 64 B, VM9");
}

#[test]
fn errors_too_small_count_like_too_large() {
    let figures = [figure(7, Basis::Predicted, 100.0, 1.0)];
    assert!((predicted(&figures).worst() - 99.0).abs() < 1e-9);
}

#[test]
fn fitted_and_given_figures_are_no_predictions() {
    let figures = [
        figure(4, Basis::Fitted, 10.0, 10.0),
        figure(5, Basis::Given, 10.0, 10.0),
        figure(5, Basis::Predicted, 10.0, 12.0),
        figure(6, Basis::Repeated, 10.0, 10.0),
    ];
    let all = predicted(&figures);
    assert_eq!(all.errors.len(), 1);
    assert!((all.median() - 20.0).abs() < 1e-9);
    assert_eq!(find(&figures, "Tables 4 to 7, all").errors.len(), 3, "nothing counts twice");
}

#[test]
fn zero_published_is_judged_in_points() {
    let figures = [figure(6, Basis::Predicted, 0.0, 3.0), figure(6, Basis::Predicted, 10.0, 9.0)];
    let found = find(&figures, "Table 6, predicted");
    assert_eq!((found.figures, found.errors.len()), (2, 1));
    assert_eq!(found.in_points(), Some((2.0, 3.0)));
}

#[test]
fn plain_rule_replaces_its_own_cells_only() {
    let figures = [
        figure(7, Basis::Predicted, 10.0, 10.0),
        figure(7, Basis::Plain, 10.0, 20.0),
        figure(6, Basis::Predicted, 10.0, 11.0),
    ];
    let plain = find(&figures, "the same, without the exclusion");
    assert_eq!(plain.errors.len(), 2);
    assert!((plain.worst() - 100.0).abs() < 1e-9);
    assert!((predicted(&figures).worst() - 10.0).abs() < 1e-9);
}

#[test]
fn unknown_cell_is_listed_without_an_error() {
    let mut unknown = figure(7, Basis::Predicted, 0.0, 10.0);
    unknown.published = Published::Unknown;
    let found = predicted(&[unknown]);
    assert_eq!((found.figures, found.errors.len(), found.in_points()), (1, 0, None));
}
