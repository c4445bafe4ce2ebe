//! Tests of what is printed and written.

use super::*;

fn host(name: &str, last: u8) -> Imported {
    Imported {
        name: name.to_owned(),
        path: format!("{name}-file.toml").into(),
        vtep: [10, 0, 0, last].into(),
        local: String::new(),
    }
}

fn agreed(names: &[&str]) -> Agreed {
    Agreed {
        fabric: "prod".to_owned(),
        change: Vec::new(),
        hosts: names.iter().zip(1..).map(|(name, last)| host(name, last)).collect(),
        notes: vec!["one note".to_owned()],
    }
}

#[test]
fn steps_are_one_command_a_host() {
    let text = steps(&agreed(&["h1", "h2", "h3"]));
    let commands: Vec<&str> = text.lines().filter(|line| line.contains("# sluice")).collect();
    let expected = [
        "h1# sluice fabric import --create h1-file.toml h2-file.toml h3-file.toml",
        "h2# sluice fabric import --join 10.0.0.1 --token TOKEN h2-file.toml",
        "h3# sluice fabric import --join 10.0.0.1 --token TOKEN h3-file.toml",
    ];
    assert_eq!(commands, expected);
    assert!(text.contains("note: one note"), "{text}");
}

#[test]
fn each_host_gets_its_own_token() {
    let all = agreed(&["h1", "h2", "h3"]);
    let tokens = ["one".to_owned(), "two".to_owned()];
    let text = next_steps(&all.hosts[1..], &all.hosts[0], Some(&tokens));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("--token one h2-file") && lines[1].contains("--token two h3-file"));
}

#[test]
fn host_named_as_shared_part_is_refused() {
    let error = parts(&agreed(&["fabric"])).unwrap_err().to_string();
    assert!(error.contains("rename it"), "{error}");
}

#[test]
fn written_file_is_never_replaced() {
    let dir = std::env::temp_dir().join(format!("sluice-import-{}", std::process::id()));
    let path = dir.join("h1.toml");
    write_new(&path, "one").unwrap();
    let error = format!("{:#}", write_new(&path, "two").unwrap_err());
    assert!(error.contains("no file is replaced"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
    std::fs::remove_dir_all(&dir).unwrap();
}
