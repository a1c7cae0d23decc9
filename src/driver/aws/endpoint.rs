//! Where the services of AWS are.

use crate::driver::{DriverError, code::Code};

/// Domains of regions that are not in the general one, by the beginning of their name.
const DOMAINS: [(&str, &str); 7] = [
    ("cn-", "amazonaws.com.cn"),
    ("eusc-", "amazonaws.eu"),
    ("us-iso-", "c2s.ic.gov"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("us-isof-", "csp.hci.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
    ("", "amazonaws.com"),
];

/// The URL of a service in a region.
///
/// # Errors
/// [`Code::InvalidArgument`]: the region is no word, so it could lead to another host.
pub(super) fn url_of(service: &str, region: &str) -> Result<String, DriverError> {
    if !is_region(region) {
        let message = "providerSpec.region: expected letters, digits and hyphens";
        return Err(DriverError::new(Code::InvalidArgument, message));
    }
    let domain = DOMAINS.iter().find(|(start, _)| region.starts_with(start)).map_or("amazonaws.com", |(_, it)| it);
    Ok(format!("https://{service}.{region}.{domain}"))
}

/// Whether this may be a region.
pub(super) fn is_region(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("eu-west-1", "https://ec2.eu-west-1.amazonaws.com")]
    #[case("us-gov-west-1", "https://ec2.us-gov-west-1.amazonaws.com")]
    #[case("cn-north-1", "https://ec2.cn-north-1.amazonaws.com.cn")]
    #[case("us-iso-east-1", "https://ec2.us-iso-east-1.c2s.ic.gov")]
    #[case("us-isob-east-1", "https://ec2.us-isob-east-1.sc2s.sgov.gov")]
    #[case("eusc-de-east-1", "https://ec2.eusc-de-east-1.amazonaws.eu")]
    fn a_region_has_its_endpoint(#[case] region: &str, #[case] expected: &str) {
        assert_eq!(url_of("ec2", region).unwrap(), expected);
    }

    #[rstest]
    #[case("")]
    #[case("example.com/")]
    #[case("x@example.com#")]
    fn a_region_cannot_lead_elsewhere(#[case] region: &str) {
        assert_eq!(url_of("ec2", region).unwrap_err().code, Code::InvalidArgument);
    }
}
