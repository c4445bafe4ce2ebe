use super::*;

#[test]
fn mask_blanks_comments_and_literals_keeps_lines() {
    let text = "let a = \"todo!(\\\" // x\"; // dbg!(\n/* /* unsafe */ \n fn */ let b = 'x';\n";
    let masked = mask(text);
    assert_eq!(masked.len(), text.len());
    assert_eq!(masked.lines().count(), text.lines().count());
    for word in ["todo", "dbg", "unsafe", "fn", "x"] {
        assert!(!masked.contains(word), "{word} is left in {masked:?}");
    }
    assert!(masked.contains("let b ="));
}

#[test]
fn mask_handles_raw_strings_lifetimes_nested_quotes() {
    let text =
        "fn f<'a>(x: &'a str) { r#\"}\"\"#; br\"}\"; '}'; '\\''; b'{'; r#fn; '\\u{7d}'; 'é' }";
    let masked = mask(text);
    assert_eq!(masked.matches('{').count(), 1, "{masked}");
    assert_eq!(masked.matches('}').count(), 1, "{masked}");
    assert!(masked.contains("<'a>") && masked.contains("r#fn"));
}

#[test]
fn an_unfinished_literal_ends_with_the_file() {
    for text in ["\"abc", "\"abc\\", "r#\"abc", "/* abc", "'\\", "// abc", "'", "b", "br"] {
        assert_eq!(mask(text).len(), text.len());
    }
}

#[test]
fn inline_test_modules_are_not_production() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
    let source = RustSource::new(text);
    assert_eq!(source.production_line_count(), 2);
    let names: Vec<String> = source.functions().into_iter().map(|f| f.name).collect();
    assert_eq!(names, ["a", "c"]);
}

#[test]
fn production_line_count_excludes_test_items_exactly() {
    for (item, production) in [
        ("#[cfg(test)]\nmod tests;", 0),
        ("#[cfg(test)]\nuse a::{\n  b,\n};", 0),
        ("#[cfg(all(test, unix))]\n#[allow(x)]\nfn f<A, B>(a: [u8; 2]) {\n}", 0),
        ("struct S {\n  #[cfg(test)]\n  a: u8,\n  b: u8,\n}", 3),
        ("struct S {\n  b: u8,\n  #[cfg(test)]\n  a: u8\n}", 3),
        ("#[cfg(not(test))]\nfn f() {\n}", 3),
        ("#[cfg(feature = \"test\")]\nfn f() {\n}", 3),
        ("#![cfg(test)]\nfn f() {\n}", 0),
    ] {
        let source = RustSource::new(&format!("{item}\n"));
        assert_eq!(source.production_line_count(), production, "{item}");
    }
}

#[test]
fn functions_are_measured_from_fn_to_brace() {
    let text = "trait T {\n    fn none(&self) -> [u8; 2];\n}\n#[inline]\n\
                fn two(\n    f: fn(u8) -> u8,\n) {\n    let _ = f;\n}\n\
                macro_rules! m { () => { fn $name() {\n} } }\n";
    let functions = RustSource::new(text).functions();
    assert_eq!(
        functions,
        [
            Function { name: "two".into(), line: 5, lines: 5 },
            Function { name: "$name".into(), line: 10, lines: 2 },
        ]
    );
}

#[test]
fn words_have_borders() {
    assert!(has_word("std::env", "std"));
    assert!(!has_word("nostd::env stdio", "std"));
}
