use alloc::string::ToString as _;

use super::*;

#[test]
fn reasons_are_words_and_not_names_of_variants() {
    for reason in Reason::ALL {
        let text = reason.to_string();
        let is_word = text.contains(' ') && text.starts_with(|c: char| c.is_lowercase());
        assert!(is_word, "{reason:?}: {text}");
    }
    assert_eq!(End::Moved.to_string(), "the endpoint is elsewhere");
    assert_eq!(Why::OwnerStale.to_string(), "the host that had it is silent");
}
