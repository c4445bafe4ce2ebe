use super::*;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("sluice-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn a_role_is_taken_once_and_free_again_when_its_holder_is_gone() {
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
fn a_socket_that_a_killed_process_left_is_replaced() {
    let dir = scratch("stale");
    let role = Role::take(&dir, "data").unwrap();
    let path = dir.join(DATA_SOCKET);
    drop(role.listen(&path).unwrap());
    assert!(path.exists(), "a dropped listener leaves its file");
    let listener = role.listen(&path).unwrap();
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    drop(listener);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_directory_whose_sockets_would_have_too_long_a_path_is_refused() {
    let error = create(Path::new(&format!("/tmp/{}", "x".repeat(120)))).unwrap_err().to_string();
    assert!(error.contains("use a shorter `run_dir`"), "{error}");
}

#[test]
fn what_is_written_for_good_replaces_and_leaves_nothing_else() {
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
