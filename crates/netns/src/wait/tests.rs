use super::*;

const NEVER: Duration = Duration::from_secs(3_600);

#[test]
fn wait_returns_what_a_later_look_finds() {
    let (mut looks, mut pauses) = (0, 0);
    let found = wait(
        NEVER,
        || {
            pauses += 1;
            Ok::<_, &str>(())
        },
        || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        },
    );
    assert_eq!((found, pauses), (Ok(Some(3)), 2));
}

#[test]
fn wait_without_time_looks_once() {
    let mut looks = 0;
    let found: Result<Option<()>, &str> = wait(
        Duration::ZERO,
        || panic!("the time is over"),
        || {
            looks += 1;
            Ok(None)
        },
    );
    assert_eq!((found, looks), (Ok(None), 1));
}

#[test]
fn wait_ends_with_the_first_error() {
    let found: Result<Option<()>, &str> = wait(NEVER, || Err("interrupted"), || Ok(None));
    assert_eq!(found, Err("interrupted"));
    let found: Result<Option<()>, &str> = wait(NEVER, || Ok(()), || Err("no answer"));
    assert_eq!(found, Err("no answer"));
}

#[test]
fn happens_is_false_when_time_is_over() {
    assert!(!happens(Duration::from_millis(2), Duration::from_millis(1), || false));
    assert!(happens(Duration::ZERO, Duration::ZERO, || true));
}
