//! Words of another host: no more of them than a screen takes, and nothing that would control one.

/// Characters of a text that are taken from another host.
pub const TEXT_MAX: usize = 400;
/// Items of a list that are taken from another host.
pub const LIST_MAX: usize = 64;

/// Cuts a text, and replaces what a terminal would obey.
pub(crate) fn clean(text: &mut String) {
    if text.chars().count() > TEXT_MAX || text.contains(char::is_control) {
        *text = text
            .chars()
            .take(TEXT_MAX)
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
    }
}
