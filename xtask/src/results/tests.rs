use serde_json::json;

use super::*;

fn row() -> Value {
    json!({
        "measure": "switch.forward", "subject": "sluice", "unit": "frames/s",
        "values": [3e6, 1e6, 2e6], "median": 2e6,
        "context": {"ports": 4, "macs": 1000, "frame_bytes": 64, "policy": "ZZ", "extra": true},
    })
}

fn file(rows: Value) -> Value {
    json!({"name": "switch", "commit": "abc", "machine": "2 cores", "rows": rows})
}

/// Returns the problems of the good row with one key changed; `null` removes the key.
fn changed(key: &str, value: Value) -> String {
    let mut row = row();
    match value {
        Value::Null => drop(row.as_object_mut().unwrap().remove(key)),
        value => row[key] = value,
    }
    check(&file(json!([row]))).join("\n")
}

#[test]
fn a_good_file_passes() {
    assert_eq!(check(&file(json!([row(), row()]))), Vec::<String>::new());
}

#[test]
fn the_top_level_is_checked() {
    assert_eq!(check(&json!([])).len(), 1);
    assert_eq!(check(&json!({})).len(), 4);
    assert_eq!(check(&file(json!([]))).len(), 1);
    assert_eq!(check(&file(json!({}))).len(), 1);
    let mut extra = file(json!([row()]));
    extra["when"] = json!("today");
    extra["commit"] = json!("");
    assert_eq!(check(&extra).len(), 2);
}

#[test]
fn a_missing_key_of_a_row_is_named() {
    for key in ["measure", "subject", "unit", "values", "median", "context"] {
        let problems = changed(key, Value::Null);
        assert!(problems.contains(&format!("rows[0]: `{key}` is missing")), "{problems}");
    }
}

#[test]
fn result_measure_unit_and_context_validated_by_table() {
    assert!(changed("measure", json!("switch.speed")).contains("unknown measure"));
    assert!(changed("unit", json!("Mpps")).contains("measured in frames/s"));
    let problems = changed("context", json!({"ports": 4, "macs": null}));
    assert!(problems.contains("needs `frame_bytes`") && problems.contains("needs `policy`"));
    assert!(!problems.contains("macs"), "null says that it is not known, which is an answer");
    assert!(changed("subject", json!("")).contains("the peer's name"));
}

#[test]
fn context_of_either_experiment_is_enough() {
    let of = |context: Value| {
        check_context(Some(&context), table::find("throughput").unwrap()).join("\n")
    };
    let vs_extend = ["frame_bytes", "mode", "vms", "vm", "core", "published"];
    let vs_extend = vs_extend.map(|key| (key.to_owned(), json!(1)));
    assert_eq!(of(Value::Object(Map::from_iter(vs_extend))), "");
    assert_eq!(of(json!({"write_bytes": 64, "overlay": "none"})), "");
    assert!(of(json!({"write_bytes": 64, "vms": 2})).contains("needs `published`"));
}

#[test]
fn the_median_must_be_that_of_the_values() {
    assert!(changed("median", json!(3e6)).contains("the median of `values` is 2000000"));
    assert!(changed("median", json!("2e6")).contains("None"));
    assert!(changed("values", json!([])).contains("nothing was measured"));
    assert!(changed("values", json!(2e6)).contains("must be a list of numbers"));
    assert!(changed("values", json!([1, null])).contains("must be a list of numbers"));
    assert_eq!(changed("values", json!([1e6, 3e6])), "");
    assert_eq!(changed("values", json!([2e6])), "");
}

#[test]
fn rounding_of_the_last_digit_is_no_error() {
    let third = 2e6 * (1.0 + 1e-12);
    assert_eq!(changed("median", json!(third)), "");
    assert_eq!(median(vec![0.0, 0.0]), Some(0.0));
}

#[test]
fn every_measure_has_one_line() {
    for (index, measure) in table::all().enumerate() {
        let first = table::all().position(|other| other.name == measure.name);
        assert_eq!(first, Some(index), "{} stands twice", measure.name);
        assert!(!measure.unit.is_empty());
        let is_design = !measure.name.starts_with("lab.");
        assert!(!is_design || !measure.context.is_empty(), "{}", measure.name);
    }
}
