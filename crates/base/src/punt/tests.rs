use super::*;

#[test]
fn causes_listed_in_order_of_index() {
    assert!(PuntCause::ALL.iter().enumerate().all(|(at, cause)| cause.index() == at));
}
