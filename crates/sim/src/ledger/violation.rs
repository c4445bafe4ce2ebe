//! A violation of a rule.

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker that found it, by its file.
    pub checker: &'static str,
    /// The violation in words.
    pub what: String,
}

impl Violation {
    pub(crate) const fn new(checker: &'static str, what: String) -> Self {
        Self { checker, what }
    }
}
