use super::*;

fn book(pages: &[(&str, &str)], others: &[&str]) -> Vec<String> {
    let of = |(path, html): &(&str, &str)| (PathBuf::from(path), Page::new(html));
    let parsed: BTreeMap<PathBuf, Page> = pages.iter().map(of).collect();
    let files = parsed.keys().cloned().chain(others.iter().map(PathBuf::from)).collect();
    problems(&files, &parsed)
}

#[test]
fn page_links_and_anchors_found() {
    let page = Page::new(
        "<h1 id=\"top\"><a class=\"header\" href=\"#top\">x</a></h1> <img src=\"a/b.svg\">\
         <a href=\"https://example.org/\">web</a> <code>&lt;a href=&quot;no.html&quot;&gt;</code>",
    );
    assert_eq!(page.links, ["#top", "a/b.svg"]);
    assert_eq!(page.anchors.into_iter().collect::<Vec<_>>(), ["top"]);
}

#[test]
fn links_that_hold_pass() {
    let one =
        "<p id=\"here\"> <a href=\"two.html#there\"> <a href=\"../x.toml\"> <a href=\"#here\">";
    let two = "<p id=\"there\">";
    assert_eq!(book(&[("d/one.html", one), ("d/two.html", two)], &["x.toml"]), [""; 0]);
}

#[test]
fn page_outside_summary_reported() {
    let found = book(&[("d/one.html", "<a href=\"three.html\">")], &["d/three.md"]);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("the book has no d/three.html"), "{found:?}");
}

#[test]
fn missing_anchor_reported() {
    let found = book(&[("one.html", "<a href=\"#gone\">")], &[]);
    assert_eq!(found, ["one.html: one.html has no #gone"]);
}

#[test]
fn link_out_of_book_reported() {
    let found = book(&[("one.html", "<a href=\"../up.html\">")], &["up.html"]);
    assert!(found[0].contains("leaves the book"), "{found:?}");
}
