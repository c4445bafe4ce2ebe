use super::*;

#[test]
fn graver_levels_are_written_and_others_not() {
    for (at, level) in Level::ALL.into_iter().enumerate() {
        assert_eq!(level as usize, at);
        assert_eq!(level_named(level.name()), Some(level));
    }
    assert_eq!(level_named("verbose"), None);
    // No other test in this process sets it.
    set_level(Some(Level::Warn));
    let on = Level::ALL.map(is_on);
    set_level(None);
    assert_eq!(on, [true, true, false, false]);
    assert_eq!(Level::ALL.map(is_on), [true, true, true, false]);
}
