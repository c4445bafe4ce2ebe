use super::*;
use crate::rust_source::RustSource;

fn file(text: &str) -> RustFile {
    let source = RustSource::new(text);
    RustFile { path: "crates/base/src/lib.rs".into(), text: text.to_owned(), source }
}

#[test]
fn both_attributes_must_stand_in_the_root() {
    assert!(missing_attributes(&file("#![no_std]\n#![forbid(unsafe_code)]\n")).is_empty());
    assert_eq!(missing_attributes(&file("// #![no_std]\n")).len(), 2);
}

#[test]
fn std_is_found_in_production_only() {
    for text in ["use std::time::Instant;", "let x = ::std::env::args();", "extern crate std;"] {
        assert_eq!(names_std(&file(text)).len(), 1, "{text}");
    }
    for text in ["// std::time", "use nostd::x;", "let std = 1;", "#[cfg(test)]\nextern crate std;"]
    {
        assert!(names_std(&file(text)).is_empty(), "{text}");
    }
}
