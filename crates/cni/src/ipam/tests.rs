use super::*;
use crate::config::Version;
use crate::tests::write_program;

/// Makes an IPAM plugin of a script, and asks it.
fn ask(word: &str, script: &str) -> Result<Addressing, Error> {
    let dir = std::env::temp_dir().join(format!("sluice-{}-ipam-{word}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    write_program(
        &dir.join("fixed"),
        &format!(
            "#!/bin/sh
{script}
"
        ),
    );
    let text = br#"{"cniVersion":"1.1.0","name":"pods","vnet":"blue","ipam":{"type":"fixed"}}"#;
    let config = NetConfig::parse(text, &mut Version::NEWEST.clone()).unwrap();
    let invocation = Invocation {
        command: Command::Add,
        container: "c7".to_owned(),
        interface: "eth0".to_owned(),
        netns: None,
        path: vec!["/nowhere".into(), dir.clone()],
        mac: None,
    };
    let given = Ipam::of(&invocation, &config).unwrap().unwrap().add();
    std::fs::remove_dir_all(&dir).unwrap();
    given
}

#[test]
fn plugin_gets_configuration_and_command() {
    let script = r#"read line
case "$CNI_COMMAND $line" in
"ADD "*'"type":"fixed"'*) echo '{"ips":[{"address":"10.0.0.7/24"}]}';;
*) exit 1;;
esac"#;
    assert_eq!(ask("gets", script).unwrap().ips.len(), 1);
}

#[test]
fn refusal_keeps_code_and_words_of_plugin() {
    let error = ask("says", r#"echo '{"code":11,"msg":"full","details":"later"}'; exit 1"#);
    let error = error.unwrap_err().to_json(Version::V1_1);
    assert_eq!((&error["code"], &error["msg"]), (&11.into(), &"`fixed`: full".into()));
    assert_eq!(error["details"], "later");
    let silent = ask("dies", "exit 7").unwrap_err().to_json(Version::V1_1);
    assert_eq!(silent["msg"], "`fixed` failed at ADD without a word");
}

#[test]
fn output_that_is_no_result_is_refused() {
    assert_eq!(ask("prose", "echo done").unwrap_err().code(), Code::Undecodable);
    let endless = "head -c 2000000 /dev/zero";
    assert_eq!(ask("endless", endless).unwrap_err().code(), Code::Undecodable);
}
