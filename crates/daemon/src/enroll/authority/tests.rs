use super::*;

const NOW: i64 = 1_800_000_000;

fn request(name: &str) -> SigningRequest {
    let key = KeyPair::generate().unwrap();
    SigningRequest::parse(&SigningRequest::make(name, &key).unwrap()).unwrap()
}

#[test]
fn authority_signs_no_other_name_nor_too_long() {
    let authority = Authority::create(NOW).unwrap();
    let error = authority.sign(&request("h2"), "h1", NOW, 1).unwrap_err().to_string();
    assert_eq!(error, "it is for `h2`, and only one for `h1` is signed");
    let error = authority.sign(&request("h1"), "h1", NOW, DAYS_MAX + 1).unwrap_err();
    assert!(matches!(error, AuthorityError::Days));
    authority.sign(&request("h1"), "h1", NOW, DAYS_MAX).unwrap();
}

#[test]
fn authority_read_back_signs_for_same_fingerprint() {
    let made = Authority::create(NOW).unwrap();
    let read = Authority::read(made.pem()).unwrap();
    assert_eq!((read.fingerprint(), read.pem()), (made.fingerprint(), made.pem()));
    let text = serde_json::to_string(made.pem()).unwrap();
    assert_eq!(serde_json::from_str::<AuthorityPem>(&text).unwrap(), *made.pem());
    assert!(!format!("{made:?}{:?}", made.pem()).contains("PRIVATE"));
    let text = made.fingerprint().to_string();
    assert_eq!((text.len(), text.parse()), (64, Ok(made.fingerprint())));
}

#[test]
fn authority_parts_that_differ_refused() {
    let (one, other) = (Authority::create(NOW).unwrap(), Authority::create(NOW).unwrap());
    let key = one.pem().key.clone();
    let refusal = |certificate: &str, key: &str| {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Authority::read(&AuthorityPem { certificate, key }).unwrap_err()
    };
    let host = one.sign(&request("h1"), "h1", NOW, 1).unwrap();
    assert!(matches!(refusal(&other.pem().certificate, &key), AuthorityError::Pair));
    assert!(matches!(refusal(&host, &key), AuthorityError::Certificate));
    assert!(matches!(refusal("", &key), AuthorityError::Certificate));
    assert!(matches!(refusal(&one.pem().certificate, ""), AuthorityError::Key));
}

/// Two certificates for one key differ in their number (RFC 5280 section 4.1.2.2).
#[test]
fn certificates_renewed_have_numbers_of_their_own() {
    let authority = Authority::create(NOW).unwrap();
    let request = request("h1");
    let serial = || {
        let pem = authority.sign(&request, "h1", NOW, 1).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        parse_x509_certificate(&der).unwrap().1.raw_serial().to_vec()
    };
    let (first, second) = (serial(), serial());
    assert_ne!(first, second);
    assert_eq!((first.len(), second.len()), (16, 16));
}
