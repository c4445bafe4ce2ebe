use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;

use super::super::credentials::Credentials;
use super::*;

const NOW: i64 = 1_800_000_000;

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

#[test]
fn member_judged_by_signature_not_by_chain() {
    let [ours, theirs] = [(); 2].map(|()| Credentials::create("h1", NOW).unwrap());
    let fingerprint = ours.authority().unwrap().fingerprint();
    let (token, _) = Token::new(fingerprint, 0, 1).unwrap();
    let pinned = Pinned::new(token, Arc::new(default_provider()));
    let name = ServerName::try_from("10.0.0.1").unwrap();
    let judge = |member: &Credentials, chain: &[&str], days: i64| {
        let member = der(member.certificate());
        let chain: Vec<_> = chain.iter().map(|pem| der(pem)).collect();
        let seconds = u64::try_from(NOW + days * super::super::profile::DAY).unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        pinned.verify_server_cert(&member, &chain, &name, &[], now).is_ok()
    };
    let (own, other) = (ours.authorities()[0].as_str(), theirs.authorities()[0].as_str());
    for (member, chain, days, accepted) in [
        (&ours, &[own][..], 0, true),
        (&ours, &[other, own], 0, true),
        (&ours, &[own], 400, false),
        (&ours, &[own], -9, false),
        (&ours, &[], 0, false),
        (&ours, &[other], 0, false),
        (&theirs, &[other], 0, false),
        // The certificate of an authority is no secret: anybody can send it along.
        (&theirs, &[own, other], 0, false),
        (&theirs, &[ours.certificate(), own], 0, false),
    ] {
        assert_eq!(judge(member, chain, days), accepted, "{chain:?} {days}");
    }
}
