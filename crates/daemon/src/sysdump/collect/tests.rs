use super::*;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn program_that_hangs_is_killed_in_time() {
    let began = Instant::now();
    let line = ["sh", "-c", "echo first; exec sleep 60"].map(str::to_owned);
    let got = run(&line, Duration::from_millis(300));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(got.bytes.unwrap(), b"first\n");
    assert!(got.error.unwrap().contains("did not end within"));
}

#[test]
fn error_of_program_names_it() {
    let got = run(&words("no-such-program-x"), WHO_MAX);
    assert!(got.error.unwrap().starts_with("cannot run `no-such-program-x`"));
    let got = run(&words("ls /no/such/place"), WHO_MAX);
    assert!(got.bytes.is_none() && got.error.unwrap().contains("/no/such/place"));
    assert_eq!(run(&words("echo well"), WHO_MAX).bytes.unwrap(), b"well\n");
}

#[test]
fn silent_socket_costs_its_limit_only() {
    let folder = std::env::temp_dir().join(format!("sluice-collect-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("show.sock");
    // It listens, and never accepts.
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let began = Instant::now();
    let error = ask(&socket, &Request::Status, Duration::from_millis(200)).unwrap_err();
    assert!(error.starts_with(NO_ANSWER) || error.contains("unavailable"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30));
    std::fs::remove_dir_all(folder).unwrap();
}
