//! Names in a certificate of a client (RFC 5280 sections 4.1.2.6 and 4.2.1.6).

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// Most names of a certificate that count.
const NAMES_MAX: usize = 64;

/// Returns the common name and the alternative names (DNS, e-mail, URI) of a certificate.
pub(super) fn of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else { return Vec::new() };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let others = parsed.subject_alternative_name().ok().flatten();
    let others = others.iter().flat_map(|extension| &extension.value.general_names);
    let others = others.filter_map(|name| match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            Some(*text)
        }
        _ => None,
    });
    common.chain(others).take(NAMES_MAX).map(str::to_owned).collect()
}
