use super::*;

#[test]
fn indices_follow_the_list_and_names_are_unique() {
    for (index, reason) in DropReason::ALL.iter().enumerate() {
        assert_eq!(reason.index(), index);
        let same = DropReason::ALL.iter().filter(|r| r.name() == reason.name()).count();
        assert_eq!(same, 1, "{reason}");
    }
}
