use super::*;

fn me() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

#[test]
fn a_program_named_with_brackets_is_read_right() {
    let text = "42 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1";
    let stat = parse_stat(text).unwrap();
    assert_eq!((stat.state, stat.group, stat.start), ('S', 7, 12345));
    assert!(parse_stat("42 (cut off").is_none());
    assert!(parse_stat("42 (x) S 1 2").is_none());
}

#[test]
fn a_process_is_its_number_and_its_start() {
    let own = Process::find("me", me()).unwrap();
    assert!(own.alive());
    let other = Process { start: own.start + 1, ..own };
    assert!(!other.alive(), "a number that was given again is not the same process");
}

#[test]
fn only_the_recorded_process_is_ended() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let right = Process::find("sleep", pid).unwrap();
    let wrong = Process { start: right.start + 1, ..right.clone() };
    end(&[wrong], &[]);
    assert!(right.alive(), "a foreign process was ended");
    end(std::slice::from_ref(&right), &[]);
    assert!(!right.alive());
    let _ = child.wait();
}

#[test]
fn a_zombie_is_not_alive() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let process = Process::find("true", pid);
    std::thread::sleep(Duration::from_millis(100));
    assert!(process.is_none_or(|process| !process.alive()));
    child.wait().unwrap();
}
