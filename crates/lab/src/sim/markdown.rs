//! Tables in Markdown, for pages.

/// Returns a table.
pub(super) fn table(head: &[String], lines: &[Vec<String>]) -> String {
    let line = |words: &[String]| format!("| {} |\n", words.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    line(head) + &rule + &lines.iter().map(|words| line(words)).collect::<String>()
}
