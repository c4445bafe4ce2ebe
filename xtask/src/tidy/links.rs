//! Links in Markdown files that point into the repository: the file must exist, and so must the
//! heading.

use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use super::Findings;
use crate::workspace;

pub(super) fn check(files: &[PathBuf]) -> Result<Findings> {
    let mut problems = Vec::new();
    let mut link_count = 0;
    let is_markdown = |path: &Path| path.extension().is_some_and(|extension| extension == "md");
    for path in files.iter().filter(|path| is_markdown(path)) {
        for link in links(&workspace::read(path)?) {
            link_count += 1;
            let name = path.display();
            let Some((target, heading)) = resolve(path, &link.target) else {
                problems.push(format!("{name}:{}: {} leaves the repo", link.line, link.target));
                continue;
            };
            let known = files.iter().any(|file| file.starts_with(&target));
            if !known {
                problems.push(format!(
                    "{name}:{}: there is no {}: correct the link or add the file",
                    link.line,
                    target.display()
                ));
            } else if let Some(heading) = heading.filter(|_| is_markdown(&target))
                && !headings(&workspace::read(&target)?).contains(&heading)
            {
                problems.push(format!(
                    "{name}:{}: {} has no heading #{heading}: correct the link",
                    link.line,
                    target.display()
                ));
            }
        }
    }
    Ok(Findings { problems, note: format!("{link_count} links into the repo") })
}

#[derive(Debug, PartialEq, Eq)]
struct Link {
    line: usize,
    target: String,
}

/// Returns the links outside of code, without web addresses.
fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, content) in prose(text) {
        let content = blank_code_spans(content);
        let inline = content.match_indices("](").map(|(at, _)| &content[at + 2..]);
        let definition = content.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let definition = definition.map(|(_, rest)| rest);
        for rest in inline.chain(definition) {
            let rest = rest.trim_start().trim_start_matches('<');
            let end = rest.find([')', ' ', '>', '"']).unwrap_or(rest.len());
            let target = &rest[..end];
            let is_web = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !is_web {
                links.push(Link { line, target: target.to_owned() });
            }
        }
    }
    links
}

/// Returns the lines outside of fenced code, numbered from one.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

fn blank_code_spans(line: &str) -> String {
    let mut in_code = false;
    let blank = |c: char| {
        in_code ^= c == '`';
        if in_code { ' ' } else { c }
    };
    line.chars().map(blank).collect()
}

/// Resolves a link of `from` to a file and a heading. `None` if the file is outside the repository.
fn resolve(from: &Path, target: &str) -> Option<(PathBuf, Option<String>)> {
    let (file, heading) = match target.split_once('#') {
        Some((file, heading)) => (file, Some(heading.to_owned())),
        None => (target, None),
    };
    if file.is_empty() {
        return Some((from.to_owned(), heading));
    }
    let mut resolved = PathBuf::new();
    let folder = if file.starts_with('/') { Path::new("") } else { from.parent()? };
    for part in folder.join(file.trim_start_matches('/')).components() {
        match part {
            Component::ParentDir if !resolved.pop() => return None,
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    Some((resolved, heading))
}

/// Returns the anchors of all headings, as code hosts make them.
fn headings(text: &str) -> Vec<String> {
    prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests;
