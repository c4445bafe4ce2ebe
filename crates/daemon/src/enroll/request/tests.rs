use rcgen::{DnType, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

use super::*;

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn refusal(params: &CertificateParams, key: &KeyPair) -> RequestError {
    let pem = params.serialize_request(key).unwrap().pem().unwrap();
    SigningRequest::parse(&pem).unwrap_err()
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = profile::named(name);
    params
}

#[test]
fn request_of_host_read_back() {
    let key = key();
    let request = SigningRequest::parse(&SigningRequest::make("rack-3.h7", &key).unwrap()).unwrap();
    assert_eq!(request, SigningRequest::own("rack-3.h7", &key));
    assert_eq!(request.name(), "rack-3.h7");
    assert_eq!(request.key(), Fingerprint::of_key(&key.subject_public_key_info()));
    let long = "h".repeat(NAME_SIZE_MAX);
    assert!(SigningRequest::make(&long, &key).unwrap().len() * 2 < REQUEST_SIZE_MAX);
}

#[test]
fn request_of_more_than_a_name_refused() {
    let key = key();
    let mut nobody = named("h1");
    nobody.distinguished_name = rcgen::DistinguishedName::new();
    assert_eq!(refusal(&nobody, &key), RequestError::Subject);
    let mut organisation = named("h1");
    organisation.distinguished_name.push(DnType::OrganizationName, "o");
    assert_eq!(refusal(&organisation, &key), RequestError::Subject);
    let mut other = named("h1");
    other.distinguished_name = rcgen::DistinguishedName::new();
    other.distinguished_name.push(DnType::OrganizationName, "h1");
    assert_eq!(refusal(&other, &key), RequestError::Subject);
    let mut names = named("h1");
    names.subject_alt_names = CertificateParams::new(["h2".to_owned()]).unwrap().subject_alt_names;
    assert_eq!(refusal(&names, &key), RequestError::Extensions);
    let mut authority = named("h1");
    authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    assert_eq!(refusal(&authority, &key), RequestError::Extensions);
}

#[test]
fn request_name_of_no_host_refused() {
    let key = key();
    for name in ["", "a b", "ä", "h1/../h2", "*", &"h".repeat(NAME_SIZE_MAX + 1)] {
        assert_eq!(refusal(&named(name), &key), RequestError::Name, "{name}");
    }
}

#[test]
fn request_key_of_other_kind_refused() {
    for kind in [&PKCS_ED25519, &PKCS_ECDSA_P384_SHA384] {
        let key = KeyPair::generate_for(kind).unwrap();
        assert_eq!(refusal(&named("h1"), &key), RequestError::Key);
    }
}

#[test]
fn request_without_proof_of_key_refused() {
    let (own, other) = (key(), key());
    let der = named("h1").serialize_request(&own).unwrap().der().to_vec();
    let at = der.windows(65).position(|part| part == own.public_key_raw()).unwrap();
    let pem = |der: &[u8]| pem_of(der);
    SigningRequest::parse(&pem(&der)).unwrap();
    let mut stolen = der.clone();
    stolen[at..at + 65].copy_from_slice(other.public_key_raw());
    assert_eq!(SigningRequest::parse(&pem(&stolen)), Err(RequestError::Signature));
    let mut longer = der.clone();
    longer.push(0);
    assert_eq!(SigningRequest::parse(&pem(&longer)), Err(RequestError::Form));
    // No bent byte leads to another name or key.
    for at in 0..der.len() {
        let mut bent = der.clone();
        bent[at] ^= 1;
        if let Ok(read) = SigningRequest::parse(&pem(&bent)) {
            assert_eq!(read, SigningRequest::own("h1", &own), "byte {at}");
        }
    }
    for text in ["", "-----BEGIN CERTIFICATE REQUEST-----", &"x".repeat(REQUEST_SIZE_MAX + 1)] {
        assert_eq!(SigningRequest::parse(text), Err(RequestError::Form));
    }
}

/// Returns a request in PEM.
fn pem_of(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in der.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit > three.len() { '=' } else { char::from(DIGITS[value]) });
        }
    }
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
}
