use super::super::rows;
use super::*;

fn figure(unit: Unit, published: Published, basis: Basis, of: &str) -> Figure {
    Figure {
        table: 6,
        bytes: 1400,
        vms: 2,
        mode: "vs-extend".to_owned(),
        of: of.to_owned(),
        unit,
        published,
        predicted: 12.5,
        basis,
    }
}

fn all_kinds() -> Vec<Figure> {
    use Published::{Dash, Derived, Incomparable, Printed, Unknown};
    vec![
        figure(Unit::Mbps, Printed(10.0), Basis::Predicted, "all"),
        figure(Unit::Loss, Derived(50.0), Basis::Fitted, "VM2"),
        figure(Unit::Share, Printed(0.0), Basis::Given, "core 3"),
        figure(Unit::Jain, Dash, Basis::Plain, "Jain"),
        figure(Unit::Count, Incomparable(4.0), Basis::Repeated, "core 0"),
        figure(Unit::Mbps, Unknown, Basis::Predicted, "VM2 and VM3"),
    ]
}

#[test]
fn every_kind_of_figure_survives_result_file() {
    let figures = all_kinds();
    let text = serde_json::to_string(&rows::results("x", rows::predict(&figures, 2))).unwrap();
    let read = super::figures(&serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(read.len(), figures.len());
    for (read, figure) in read.iter().zip(&figures) {
        assert!((read.predicted - figure.predicted).abs() < 1e-9);
        let (value, wanted) = (read.published.value(), figure.published.value());
        assert!((value.unwrap_or(-1.0) - wanted.unwrap_or(-1.0)).abs() < 1e-9, "{read:?}");
        let mut same = read.clone();
        (same.predicted, same.published) = (figure.predicted, figure.published);
        assert_eq!(same, *figure);
        assert_eq!(read.published.word(), figure.published.word());
    }
}

#[test]
fn row_has_error_or_reason_for_none() {
    let context = |figure: &Figure| row(figure).context;
    for figure in all_kinds() {
        let context = context(&figure);
        assert_ne!(context["error"].is_null(), context["why_no_error"].is_null(), "{context:?}");
    }
    let kinds = all_kinds();
    assert_eq!(context(&kinds[0])["error"], json!(0.25));
    assert_eq!(context(&kinds[0])["off"], json!(2.5e6));
    assert_eq!(
        (&context(&kinds[1])["vm"], &context(&kinds[2])["core"]),
        (&json!("2"), &json!("3"))
    );
    assert_eq!(context(&kinds[5])["vm"], json!("VM2 and VM3"));
}

#[test]
fn row_of_unknown_kind_is_an_error() {
    let mut row = row(&all_kinds()[0]);
    row.context.insert("basis".to_owned(), json!("guessed"));
    let wrong = figures(&rows::results("x", vec![row])).unwrap_err();
    assert!(wrong.to_string().contains("no cell as"), "{wrong}");
    let none = figures(&rows::results("x", Vec::new())).unwrap_err();
    assert!(none.to_string().contains("give a result.json"), "{none}");
}
