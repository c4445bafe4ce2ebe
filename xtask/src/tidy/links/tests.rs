use super::*;

#[test]
fn markdown_links_found_except_code_and_web() {
    let text = "[a](docs/a.md) and [b](<b.md> \"title\") `[c](c.md)`\n```\n[d](d.md)\n```\n\
                [w](https://example.org/x.md)\n[e]: e.md#part\n";
    let targets: Vec<String> = links(text).into_iter().map(|link| link.target).collect();
    assert_eq!(targets, ["docs/a.md", "b.md", "e.md#part"]);
    assert_eq!(links(text)[2].line, 6);
}

#[test]
fn targets_are_relative_to_their_file() {
    let from = Path::new("docs/decisions/one.md");
    let file = |target| resolve(from, target).map(|(path, _)| path);
    assert_eq!(file("two.md"), Some("docs/decisions/two.md".into()));
    assert_eq!(file("../../SPEC.md#x"), Some("SPEC.md".into()));
    assert_eq!(file("/README.md"), Some("README.md".into()));
    assert_eq!(file("#here"), Some(from.to_owned()));
    assert_eq!(file("../../../x.md"), None);
}

#[test]
fn headings_become_anchors() {
    let text = "# One: two, `three`\n```\n# no heading\n```\n## A  b_c\n";
    assert_eq!(headings(text), ["one-two-three", "a--b_c"]);
}
