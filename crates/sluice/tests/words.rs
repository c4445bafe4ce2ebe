//! Output of `sluice` for programs: the envelope of JSON, errors in it, exit codes, and pipes
//! without screen codes. A thread plays the host.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// A host that knows a few answers. Its directory is deleted when dropped.
struct Host(PathBuf);

impl Host {
    fn new(word: &str) -> Self {
        Self::graded(word, "pass")
    }

    /// Starts a host whose status has a grade.
    fn graded(word: &str, grade: &'static str) -> Self {
        let dir = std::env::temp_dir().join(format!("sluice-words-{word}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let listener = UnixListener::bind(dir.join("show.sock")).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                let Ok(1..) = BufReader::new(&stream).read_line(&mut line) else { continue };
                let request = serde_json::from_str(&line).unwrap();
                let reply = if request == "status" { report(grade) } else { answer(&request) };
                _ = writeln!(&stream, "{reply}");
            }
        });
        Self(dir)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(SLUICE);
        command.args(words).arg("--run-dir").arg(&self.0);
        command
    }

    fn ask(&self, words: &[&str]) -> (Option<i32>, Value) {
        read(&self.command(words).output().unwrap())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(output: &Output) -> (Option<i32>, Value) {
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text);
    (output.status.code(), value.unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// Returns the report of a host that has a row of a grade, its last one.
fn report(grade: &str) -> Value {
    json!({"version": 1, "grade": grade, "rows": [
        {"part": "host", "what": "program", "grade": "pass", "seen": "it is", "remedy": ""},
        {"part": "host", "what": "forwarding", "grade": grade, "seen": "it is",
         "remedy": "Mend it."},
    ]})
}

fn answer(request: &Value) -> Value {
    if request == "who" {
        return json!({"host": "h1", "program": "7.7.7"});
    }
    if request["show"].is_string() {
        return json!({"version": 2, "host": "h1", "policy": "ZZ", "at_ns": 1, "queues": []});
    }
    let trace = &request["fabric"]["trace"];
    match trace["to"].as_str() {
        None if request["fabric"] == "members" => json!({"members": []}),
        None => json!({"error": "no such thing here; ask another"}),
        Some(grade) => json!({"trace": {
            "version": 1, "vnet": "blue", "from": "a", "to": "b", "verdict": "delivered",
            "grade": grade, "at": null, "why": "", "remedy": "", "hops": [],
        }}),
    }
}

#[test]
fn answers_have_an_envelope_beside_their_keys() {
    let host = Host::new("envelope");
    let words: [(&[&str], &str); 2] =
        [(&["fabric", "members", "--json"], "members"), (&["show", "queues", "--json"], "queues")];
    for (words, key) in words {
        let (code, answer) = host.ask(words);
        assert_eq!(code, Some(0));
        assert_eq!(answer[key], json!([]), "{answer}");
        assert_eq!((&answer["format"], &answer["host"]), (&json!(1), &json!("h1")));
        assert_eq!(answer["program"], "7.7.7", "the version of who answers");
        assert!(answer["time"].as_str().unwrap().ends_with('Z'));
    }
}

#[test]
fn cli_json_error_has_remedy_and_exit_code() {
    let host = Host::new("errors");
    let (code, answer) = host.ask(&["vnet", "list", "--json"]);
    assert_eq!(code, Some(1));
    assert_eq!(answer["error"], "no such thing here; ask another");
    assert_eq!((&answer["remedy"], &answer["format"]), (&json!("ask another"), &json!(1)));
    // No host is there, and none could be.
    let nobody = ["show", "ports", "--json", "--run-dir", "/nonexistent"];
    let (code, answer) = read(&Command::new(SLUICE).args(nobody).output().unwrap());
    assert_eq!((code, &answer["host"]), (Some(1), &Value::Null));
    assert!(answer["remedy"].as_str().unwrap().contains("sluice daemon"), "{answer}");
    let wrong = ["show", "nothing", "--json"];
    let (code, answer) = read(&Command::new(SLUICE).args(wrong).output().unwrap());
    assert_eq!(code, Some(2));
    assert!(answer["error"].as_str().unwrap().contains("nothing"), "{answer}");
    assert!(answer["remedy"].as_str().unwrap().contains("ports"), "{answer}");
}

#[test]
fn exit_code_of_a_trace_is_its_verdict() {
    let host = Host::new("trace");
    for (grade, wanted) in [("pass", 0), ("warn", 3), ("stop", 4), ("unknown", 5)] {
        for json in [&[][..], &["--json"]] {
            let words = ["trace", "--vnet", "blue", "--from", "web", "--to", grade];
            let output = host.command(&[&words, json].concat()).output().unwrap();
            assert_eq!(output.status.code(), Some(wanted), "{grade}");
        }
    }
}

#[test]
fn status_exit_code_is_gravest_row_with_remedy() {
    for (grade, wanted) in [("pass", 0), ("warn", 3), ("stop", 4), ("unknown", 5)] {
        let host = Host::graded(&format!("status-{grade}"), grade);
        let (code, answer) = host.ask(&["status", "--json"]);
        assert_eq!((code, &answer["grade"]), (Some(wanted), &json!(grade)), "{answer}");
        assert_eq!((&answer["format"], &answer["host"]), (&json!(1), &json!("h1")));
        let output = host.command(&["status"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(wanted), "{text}");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert!(lines[1].starts_with(&format!("host  forwarding  {grade}")), "{text}");
        assert_eq!(lines[2], "Mend it.", "{text}");
    }
    let nobody = ["status", "--run-dir", "/nonexistent"];
    let output = Command::new(SLUICE).args(nobody).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "no host answers");
}

#[test]
fn doctor_exit_code_is_gravest_row_with_remedy() {
    let config = ["doctor", "--json", "--config", "/nonexistent/host.toml"];
    let (code, answer) = read(&Command::new(SLUICE).args(config).output().unwrap());
    assert_eq!((code, &answer["grade"]), (Some(4), &json!("stop")), "{answer}");
    let rows = answer["rows"].as_array().unwrap();
    for row in rows {
        assert_eq!(row["remedy"] == "", row["grade"] == "pass", "{row}");
    }
    let last = rows.last().unwrap();
    assert_eq!((&last["part"], &last["what"]), (&json!("config"), &json!("file")));
    assert!(last["seen"].as_str().unwrap().contains("/nonexistent/host.toml"), "{last}");
}

#[test]
fn pipe_gets_no_screen_codes() {
    let host = Host::new("pipe");
    let mut command = host.command(&["show", "queues", "--watch"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    // Two pictures: codes or an empty line come with the second one.
    while text.matches("h1  policy").count() < 2 {
        assert!(lines.read_line(&mut text).unwrap() > 0, "{text}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines.read_to_string(&mut text).unwrap();
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(text.contains("\n\nh1  policy"), "pictures are apart: {text:?}");
}

/// The shell itself takes the text, and knows of the program afterwards.
#[test]
fn completion_taken_by_bash() {
    let script = format!("source <({SLUICE} completions bash) && complete -p sluice");
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("sluice"), "{output:?}");
    for shell in ["zsh", "fish"] {
        let output = Command::new(SLUICE).args(["completions", shell]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("rotate-ca"), "{shell}");
    }
}

#[test]
fn every_command_has_manual_page() {
    let dir = std::env::temp_dir().join(format!("sluice-man-{}", std::process::id()));
    let output = Command::new(SLUICE).arg("man").arg(&dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for page in ["sluice", "sluice-daemon", "sluice-fabric-create", "sluice-show"] {
        let text = std::fs::read_to_string(dir.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".TH ") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
