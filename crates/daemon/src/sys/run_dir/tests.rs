use super::*;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("sluice-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn role_lock_exclusive_until_holder_drops_it() {
    let dir = scratch("role");
    let first = Role::take(&dir, "control").unwrap();
    let error = Role::take(&dir, "control").unwrap_err().to_string();
    assert!(error.contains(&format!("process {} runs this host", std::process::id())), "{error}");
    assert!(Role::take(&dir, "data").is_ok(), "the other role is free");
    assert!(Role::is_taken(&dir, "control"));
    drop(first);
    assert!(!Role::is_taken(&dir, "control") && !Role::is_taken(&dir, "nobody"));
    assert!(Role::take(&dir, "control").is_ok());
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn stale_socket_of_killed_process_replaced() {
    let dir = scratch("stale");
    let role = Role::take(&dir, "data").unwrap();
    let path = dir.join(DATA_SOCKET);
    drop(role.listen(&path, None).unwrap());
    assert!(path.exists(), "a dropped listener leaves its file");
    let listener = role.listen(&path, None).unwrap();
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    drop(listener);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn run_dir_with_too_long_socket_path_refused() {
    let error =
        create(Path::new(&format!("/tmp/{}", "x".repeat(120))), None).unwrap_err().to_string();
    assert!(error.contains("use a shorter `run_dir`"), "{error}");
}

#[test]
fn durable_write_replaces_file_without_leftovers() {
    let dir = scratch("for-good");
    let path = dir.join("placement.json");
    for text in ["one", "2"] {
        replace_for_good(&path, text).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    fs::remove_dir_all(&dir).unwrap();
    assert!(replace_for_good(&path, "3").is_err());
}

/// A process that may open a lock file may hold the lock, so only the owner may open it.
#[test]
fn directory_and_lock_are_for_their_owner() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = scratch("modes").join("own");
    create(&dir, None).unwrap();
    assert_eq!(mode(&dir), 0o700);
    let lock = dir.join("data.pid");
    // A file of an earlier version.
    File::create(&lock).unwrap().set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
    let role = Role::take(&dir, "data").unwrap();
    assert_eq!(mode(&lock), 0o600);
    let socket = dir.join(SHOW_SOCKET);
    let _listens = role.listen(&socket, None).unwrap();
    assert_eq!(mode(&socket), 0o600);
    let error = group_id("no such group").unwrap_err().to_string();
    assert!(error.contains("groupadd no such group"), "{error}");
    assert_eq!(group_id("77").unwrap(), 77);
    // Another user's directory stays as it was.
    let theirs = scratch("theirs");
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o755)).unwrap();
    create(&theirs, None).unwrap();
    assert_eq!(mode(&theirs), 0o755);
    fs::remove_dir_all(dir.parent().unwrap()).unwrap();
    fs::remove_dir_all(&theirs).unwrap();
}
