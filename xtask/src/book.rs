//! Links of the built book: each leads to a file of the book, and to an anchor that its page has.
//!
//! `tidy` checks the links of the Markdown pages. The book differs from them in its anchors, which
//! mdbook makes, and in its pages: one that `docs/SUMMARY.md` does not name becomes no page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Files of mdbook that are no pages: all pages as one, the frame of contents, the error page.
const NO_PAGES: [&str; 3] = ["print.html", "toc.html", "404.html"];

/// Checks every page of a book. Returns `false` if a link is broken.
pub(crate) fn run(folder: &Path) -> Result<bool> {
    let mut files = BTreeSet::new();
    list(folder, Path::new(""), &mut files)?;
    let mut pages = BTreeMap::new();
    let is_html = |path: &Path| path.extension().is_some_and(|extension| extension == "html");
    for path in files.iter().filter(|path| is_html(path)) {
        if !NO_PAGES.iter().any(|name| path == Path::new(name)) {
            let text = std::fs::read_to_string(folder.join(path));
            let text = text.with_context(|| format!("reading {}", path.display()))?;
            pages.insert(path.clone(), Page::new(&text));
        }
    }
    ensure!(!pages.is_empty(), "{}: there is no page; build the book first", folder.display());
    let problems = problems(&files, &pages);
    for problem in &problems {
        println!("error[book]: {problem}");
    }
    let links: usize = pages.values().map(|page| page.links.len()).sum();
    let word = if problems.is_empty() { "ok" } else { "FAILED" };
    println!("book: {word}, {} pages, {links} links within it", pages.len());
    Ok(problems.is_empty())
}

/// A page of the book.
#[derive(Debug, Default)]
struct Page {
    /// Targets within the book.
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn new(html: &str) -> Self {
        let links = ["href", "src"].into_iter().flat_map(|name| attributes(html, name));
        let is_web = |link: &&str| {
            link.contains("://")
                || ["mailto:", "javascript:", "data:"].iter().any(|scheme| link.starts_with(scheme))
        };
        let links = links.filter(|link| !link.is_empty() && !is_web(link));
        let anchors = attributes(html, "id");
        Self {
            links: links.map(str::to_owned).collect(),
            anchors: anchors.map(str::to_owned).collect(),
        }
    }
}

/// Returns the values of an attribute in all tags. mdbook quotes them with `"`, and escapes quotes
/// in text.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {name}=\"");
    let starts: Vec<usize> = html.match_indices(&begin).map(|(at, _)| at + begin.len()).collect();
    starts.into_iter().filter_map(|at| html[at..].split_once('"').map(|(value, _)| value))
}

/// Returns the broken links.
fn problems(files: &BTreeSet<PathBuf>, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut problems = Vec::new();
    for (from, page) in pages {
        for link in &page.links {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let name = from.display();
            let Some(target) = resolve(from, file) else {
                problems.push(format!("{name}: {link} leaves the book: make it a web address"));
                continue;
            };
            if !files.contains(&target) {
                problems.push(format!(
                    "{name}: the book has no {}: correct the link, or name the page in \
                     docs/SUMMARY.md",
                    target.display()
                ));
            } else if let Some(page) = pages.get(&target)
                && !anchor.is_empty()
                && !page.anchors.contains(anchor)
            {
                problems.push(format!("{name}: {} has no #{anchor}", target.display()));
            }
        }
    }
    problems
}

/// Resolves a link of a page to a file of the book; `None` if it leads out of the book.
fn resolve(from: &Path, file: &str) -> Option<PathBuf> {
    if file.is_empty() {
        return Some(from.to_owned());
    }
    let mut resolved = PathBuf::new();
    for part in from.parent()?.join(file).components() {
        match part {
            Component::ParentDir if !resolved.pop() => return None,
            Component::Normal(name) => resolved.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
            Component::ParentDir | Component::CurDir => {}
        }
    }
    Some(resolved)
}

/// Adds the files below a folder, by their paths in the book.
fn list(folder: &Path, within: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    let place = folder.join(within);
    let entries = std::fs::read_dir(&place);
    for entry in entries.with_context(|| format!("reading {}", place.display()))? {
        let entry = entry?;
        let path = within.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(folder, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
