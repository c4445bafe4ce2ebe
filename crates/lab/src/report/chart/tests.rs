use super::*;

#[test]
fn numbers_have_no_needless_digits() {
    for (value, text) in
        [(0.0, "0"), (0.05, "0.05"), (1.0, "1"), (2.5, "2.5"), (20.0, "20"), (1000.0, "1000")]
    {
        assert_eq!(number(value), text);
    }
}

#[test]
fn log_axis_ends_map_to_plot_ends() {
    let axis = LogAxis { low: 1.0, high: 100.0, from: 0.0, to: 200.0 };
    assert!((axis.at(1.0) - 0.0).abs() < 1e-9);
    assert!((axis.at(10.0) - 100.0).abs() < 1e-9);
    assert!((axis.at(100.0) - 200.0).abs() < 1e-9);
    assert!((axis.at(0.0) - 0.0).abs() < 1e-9, "zero lies on the edge");
    assert_eq!(axis.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
}

#[test]
fn a_chart_without_points_is_nothing() {
    let chart = Lines {
        x_label: String::new(),
        y_label: String::new(),
        lines: Vec::new(),
        levels: Vec::new(),
    };
    assert_eq!(chart.svg(), "");
    let bars = Bars { x_label: String::new(), y_label: String::new(), groups: Vec::new() };
    assert_eq!(bars.svg(), "");
}

#[test]
fn names_cannot_break_the_page() {
    let point = Point { x: 4.0, y: 3.0, interval: Some((2.0, 4.0)), title: "<b>&\"".to_owned() };
    let line =
        Line { class: "LL".to_owned(), dashed: true, marker: Marker::Disc, points: vec![point] };
    let chart = Lines {
        x_label: "<x>".to_owned(),
        y_label: "y".to_owned(),
        lines: vec![line],
        levels: vec![Level { y: 19.1, name: "<l>".to_owned(), below: false }],
    };
    let svg = chart.svg();
    assert!(svg.contains("&lt;b&gt;&amp;&quot;") && svg.contains("&lt;x&gt;"));
    assert!(!svg.contains("<b>") && !svg.contains("<l>") && !svg.contains("NaN"));
}

#[test]
fn bars_end_at_round_numbers() {
    for (value, top) in [(0.0, 1.0), (3.0, 3.0), (11.0, 20.0), (99.0, 100.0), (0.7, 0.8)] {
        assert!((nice_top(value) - top).abs() < 1e-9, "{value}");
    }
}
