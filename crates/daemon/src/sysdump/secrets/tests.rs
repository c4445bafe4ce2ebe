use super::*;

const KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg";

fn clean(form: Form, text: &str) -> String {
    let bytes = Known::default().clean(form, text.as_bytes().to_vec()).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn pem_key_and_token_left_out() {
    let text = format!(
        "a\n-----BEGIN EC PRIVATE KEY-----\n{KEY}\n-----END EC PRIVATE KEY-----\nb \
         sluice1-abcd0123-wxyz: c\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    );
    for form in [Form::Text, Form::Values] {
        let kept = clean(form, &text);
        assert!(!kept.contains(KEY) && !kept.contains("abcd0123"), "{kept}");
        assert!(kept.contains("a\n") && kept.contains(": c") && kept.contains("MIIB"), "{kept}");
    }
    let cut = clean(Form::Text, &format!("-----BEGIN PRIVATE KEY-----\n{KEY}"));
    assert!(!cut.contains(KEY), "a key without its end: {cut}");
    assert_eq!(clean(Form::Text, "no secret = here\n"), "no secret = here\n");
}

#[test]
fn values_named_as_secrets_left_out() {
    let text = "net.ipv4.tcp_fastopen_key = 1-2\nnet.ipv6.conf.a.stable_secret = fe80::1\n\
                password: x=y\nmtu = 1500\n";
    let kept = clean(Form::Values, text);
    assert!(!kept.contains("1-2") && !kept.contains("fe80") && !kept.contains("x=y"), "{kept}");
    assert!(kept.ends_with("mtu = 1500\n") && kept.lines().count() == 4, "{kept}");
}

#[test]
fn json_loses_secrets_and_nothing_else() {
    let text = r#"{"tokens":{"t1":{"hash":"beef","expires_ms":7}},"a":[{"api_key":"k","n":1.5}]}"#;
    let kept: Value = serde_json::from_str(&clean(Form::Json, text)).unwrap();
    assert_eq!(kept["tokens"]["t1"]["hash"], LEFT_OUT);
    assert_eq!((&kept["tokens"]["t1"]["expires_ms"], &kept["a"][0]["n"]), (&7.into(), &1.5.into()));
    assert_eq!(kept["a"][0]["api_key"], LEFT_OUT);
}

#[test]
fn file_with_part_of_own_key_left_out() {
    let folder = std::env::temp_dir().join(format!("sluice-secrets-{}", std::process::id()));
    fs::create_dir_all(folder.join("tls")).unwrap();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n");
    fs::write(folder.join("tls/host.key"), pem).unwrap();
    let mut parts = Vec::new();
    read_keys(&folder, DEPTH_MAX, &mut parts);
    fs::remove_dir_all(folder).unwrap();
    let known = Known(parts);
    assert!(known.clean(Form::Text, format!("debug: {KEY}!").into_bytes()).is_err());
    assert!(known.clean(Form::Text, b"nothing".to_vec()).is_ok());
}
