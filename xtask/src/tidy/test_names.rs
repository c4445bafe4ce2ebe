//! Names of tests: short enough to be read in a list of failures.

use super::{Findings, RustFile};

/// Most words of a name, `subject_condition_result`.
const WORDS_MAX: usize = 8;

pub(super) fn check(files: &[RustFile]) -> Findings {
    let mut problems = Vec::new();
    let mut count = 0;
    for file in files {
        for (line, name) in names(&file.text) {
            count += 1;
            let words = name.split('_').count();
            if words > WORDS_MAX {
                problems.push(format!(
                    "{}:{line}: {name} has {words} words, {WORDS_MAX} are the limit: say the \
                     subject, the condition and the result, and leave the rest to the body",
                    file.path.display()
                ));
            }
        }
    }
    Findings { problems, note: format!("{count} tests, {WORDS_MAX} words at most") }
}

/// Returns the names of the tests in a file, each with its line, numbered from one.
fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_test = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim_start();
        if line.starts_with("#[test]") {
            is_test = true;
        }
        let name = is_test.then(|| name_of(line)).flatten()?;
        is_test = false;
        Some((index + 1, name))
    })
}

/// Returns the name of the function that begins in a line.
fn name_of(line: &str) -> Option<&str> {
    let name = line.strip_prefix("fn ")?;
    name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_source::RustSource;

    #[test]
    fn names_of_tests_alone_are_counted() {
        let text = "fn one_two_three_four_five_six_seven_eight_nine() {}\n#[test]\n\
                    #[ignore = \"live\"]\nfn short() {}\n    #[test]\n\
                    fn a_b_c_d_e_f_g_h_i() {}\n";
        let found: Vec<_> = names(text).collect();
        assert_eq!(found, [(4, "short"), (6, "a_b_c_d_e_f_g_h_i")]);
        let file =
            RustFile { path: "x.rs".into(), text: text.into(), source: RustSource::new(text) };
        let problems = check(&[file]).problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("x.rs:6: a_b_c_d_e_f_g_h_i has 9 words"), "{problems:?}");
    }
}
