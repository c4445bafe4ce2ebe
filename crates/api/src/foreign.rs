//! Texts of another host: limited in length, and without terminal control codes.

/// Most characters of a text that are accepted from another host.
pub const TEXT_MAX: usize = 400;
/// Most items of a list that are accepted from another host.
pub const LIST_MAX: usize = 64;

/// Cuts a text, and replaces control characters.
pub fn clean(text: &mut String) {
    if text.chars().count() > TEXT_MAX || text.contains(char::is_control) {
        *text = text
            .chars()
            .take(TEXT_MAX)
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
    }
}
