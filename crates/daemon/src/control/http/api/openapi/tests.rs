use std::collections::BTreeSet;
use std::path::Path;

use super::*;

/// Variable of the environment that writes the document again.
const UPDATE: &str = "UPDATE_GOLDEN";

fn parsed() -> Value {
    serde_json::from_str(text()).unwrap()
}

/// Clients are made of the document in the repository.
#[test]
fn document_is_one_in_docs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, text()).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text(), "docs/openapi.json is another one; write it again with {UPDATE}=1");
}

/// Two types of one name would be one schema, of which one is wrong.
#[test]
fn references_lead_to_schemas() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(keys) => {
                for (key, value) in keys {
                    match (key.as_str(), value) {
                        ("$ref", Value::String(to)) => _ = found.insert(to.clone()),
                        _ => references(value, found),
                    }
                }
            }
            Value::Array(rows) => rows.iter().for_each(|row| references(row, found)),
            _ => {}
        }
    }
    let document = parsed();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 50, "{found:?}");
    // The schema of an alias has the name of the container, which two aliases share.
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.keys().all(|name| !["BTreeMap", "BTreeSet", "Vec"].contains(&&**name)));
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

/// Whoever reads the document alone learns what each path does and how it refuses.
#[test]
fn operations_have_words_and_refusals() {
    let document = parsed();
    let mut names = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let what = format!("{method} {path}");
            assert!(operation["summary"].is_string(), "{what} has no summary");
            assert!(names.insert(operation["operationId"].to_string()), "{what} has no own name");
            for status in ["400", "403", "409", "503", "504"] {
                assert!(operation["responses"][status].is_object(), "{what}: no {status}");
            }
            let made_of_path = path.matches('{').count();
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let in_path = parameters.filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(in_path, made_of_path, "{what}: parameters of the path");
        }
    }
    assert!(names.len() >= 25, "{names:?}");
}

/// A client that sends what the document allows is understood.
#[test]
fn integers_bounded_by_types_or_meaning() {
    let document = parsed();
    let property = |schema: &str, name: &str| {
        document["components"]["schemas"][schema]["properties"][name].clone()
    };
    assert_eq!(property("NewPort", "mtu")["maximum"], u16::MAX);
    assert_eq!(property("NewPort", "taken")["maximum"], u32::MAX);
    assert_eq!(property("VnetSettings", "vni")["maximum"], (1 << 24) - 1);
    assert_eq!(property("LogRow", "revision")["maximum"], u64::MAX);
    assert_eq!(property("PortRow", "port")["maximum"], Value::Null);
}
