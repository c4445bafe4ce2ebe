use super::*;

#[test]
fn tracer_pid_parsed_from_process_status() {
    assert_eq!(tracer("Name:\tsluice\nTracerPid:\t0\nUid:\t0\n"), Some(0));
    assert_eq!(tracer("Name:\tsluice\nTracerPid:\t4711\n"), Some(4711));
    assert_eq!(tracer("Name:\tTracerPid\n"), None);
    assert!(!is_traced(std::process::id()));
    assert!(!is_traced(u32::MAX), "one that is gone");
}
