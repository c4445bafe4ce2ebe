//! Form of a fabric's certificates, the same for those made by files (`sluice fabric cert`) and by
//! commands.
//!
//! | | authority | host |
//! |---|---|---|
//! | key | ECDSA P-256 | ECDSA P-256 |
//! | subject | `CN=Sluice fabric` | `CN=NAME`, and NAME as its one alternative name |
//! | use | signs certificates of hosts, and no further authority | TLS, as server and as client |
//! | validity | ten years | as asked, at most [`DAYS_MAX`] days |

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose, SerialNumber,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::{CertificateDer, DnsName, UnixTime};
use sluice_api::envelope::civil;
use x509_parser::parse_x509_certificate;

/// Longest validity of a certificate, in days.
pub(crate) const DAYS_MAX: u32 = 36_525;
/// Seconds of a day.
pub(crate) const DAY: i64 = 86_400;
/// Validity of an authority, in days: ten years.
const AUTHORITY_DAYS: i32 = 3_653;
const AUTHORITY_NAME: &str = "Sluice fabric";
/// Longest name of a host: that of a DNS label (RFC 1035 section 2.3.4).
pub(crate) const NAME_SIZE_MAX: usize = 63;

/// Validity of a certificate, in seconds since 1970, both ends included (RFC 5280 section 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// Returns the serial number of a certificate in hexadecimal digits; `None` if it cannot be parsed.
pub(crate) fn serial(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Some(parsed.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Validity {
    /// Returns the validity of a certificate; `None` if it cannot be parsed.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(certificate).ok()?;
        let validity = parsed.validity();
        let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        Some(Self { from, until })
    }

    /// Returns the moment within it that is nearest to `now`.
    pub(crate) fn nearest(self, now: i64) -> UnixTime {
        let seconds = u64::try_from(now.max(self.from).min(self.until)).unwrap_or(0);
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
    }
}

/// Returns true if a certificate can carry the name of a host.
pub(crate) fn is_name(name: &str) -> bool {
    DnsName::try_from(name).is_ok()
}

/// Returns the form of an authority. The name is always the same: keys identify authorities, and an
/// old one can continue to sign.
pub(crate) fn authority(today: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(AUTHORITY_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_validity(&mut params, today, AUTHORITY_DAYS);
    params
}

/// Returns the form of a host's certificate, valid for `days`; negative: expired so many days ago.
///
/// # Errors
/// If no certificate can carry the name, or the kernel has no random bytes.
pub(crate) fn host(name: &str, today: i64, days: i32) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = named(name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    // A renewed certificate for the same key needs a number of its own (RFC 5280 section 4.1.2.2).
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| rcgen::Error::RingUnspecified)?;
    // Positive, and as long in DER.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    set_validity(&mut params, today, days);
    Ok(params)
}

/// Returns a name with a common name alone.
pub(super) fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Sets the validity: from yesterday on, as clocks differ, or from long ago for an expired
/// certificate.
fn set_validity(params: &mut CertificateParams, today: i64, days: i32) {
    let end = today + i64::from(days);
    let date = |day| {
        let (year, month, day) = civil(day);
        let year = i32::try_from(year).unwrap_or(i32::MAX);
        let small = |n: i64| u8::try_from(n).unwrap_or(1);
        rcgen::date_time_ymd(year, small(month), small(day))
    };
    params.not_before = date(end.min(today) - 1);
    params.not_after = date(end);
}
