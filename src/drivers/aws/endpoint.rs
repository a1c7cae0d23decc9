//! Where the services of AWS are.

use mcm_driver::{DriverError, cloud::is_word, code::Code};

/// The domains of AWS; `api.aws` is that of endpoints with IPv6.
pub(super) const DOMAINS: [&str; 9] = [
    "amazonaws.com",
    "api.aws",
    "api.amazonwebservices.com.cn",
    "amazonaws.com.cn",
    "amazonaws.eu",
    "c2s.ic.gov",
    "sc2s.sgov.gov",
    "csp.hci.ic.gov",
    "cloud.adc-e.uk",
];
/// Where IAM is, by the beginning of the names of the regions that share it: the region that signatures name, and its URL.
const IAM: [(&str, &str, &str); 8] = [
    ("cn-", "cn-north-1", "https://iam.cn-north-1.amazonaws.com.cn"),
    ("eusc-", "eusc-de-east-1", "https://iam.eusc-de-east-1.amazonaws.eu"),
    ("us-gov-", "us-gov-west-1", "https://iam.us-gov.amazonaws.com"),
    ("us-iso-", "us-iso-east-1", "https://iam.us-iso-east-1.c2s.ic.gov"),
    ("us-isob-", "us-isob-east-1", "https://iam.us-isob-east-1.sc2s.sgov.gov"),
    ("us-isof-", "us-isof-south-1", "https://iam.us-isof-south-1.csp.hci.ic.gov"),
    ("eu-isoe-", "eu-isoe-west-1", "https://iam.eu-isoe-west-1.cloud.adc-e.uk"),
    ("", "us-east-1", "https://iam.amazonaws.com"),
];

/// Variant of the endpoints of AWS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Variant {
    /// Endpoints with validated cryptography.
    pub is_fips: bool,
    /// Endpoints with IPv4 and IPv6.
    pub is_dual_stack: bool,
}

impl Variant {
    /// Settings from the environment variables that the SDKs of AWS read.
    pub(super) fn of_environment() -> Self {
        let is_on = |name| std::env::var(name).is_ok_and(|value| value.eq_ignore_ascii_case("true"));
        Self { is_fips: is_on("AWS_USE_FIPS_ENDPOINT"), is_dual_stack: is_on("AWS_USE_DUALSTACK_ENDPOINT") }
    }
}

/// Checks a region from which an endpoint will be made.
///
/// # Errors
/// [`Code::InvalidArgument`]: it is no word, so it could lead to another host.
pub(super) fn check_region(region: &str) -> Result<(), DriverError> {
    if is_word(region) {
        return Ok(());
    }
    let message = "providerSpec.region: expected letters, digits and hyphens";
    Err(DriverError::new(Code::InvalidArgument, message))
}

/// Where IAM is for a region: the region that signatures name, and the URL.
pub(super) fn iam_of(region: &str) -> (&'static str, &'static str) {
    let [.., (_, general, url)] = IAM;
    IAM.iter().find(|(start, ..)| region.starts_with(start)).map_or((general, url), |(_, region, url)| (region, url))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_ec2::config::endpoint as ec2;
    use aws_sdk_sts::config::endpoint as sts;
    use rstest::rstest;

    async fn url_of_ec2(region: &str) -> String {
        use ec2::ResolveEndpoint as _;
        let params = ec2::Params::builder().region(region).build().unwrap();
        ec2::DefaultResolver::new().resolve_endpoint(&params).await.unwrap().url().to_owned()
    }

    async fn url_of_sts(region: &str, variant: Variant) -> String {
        use sts::ResolveEndpoint as _;
        let params = sts::Params::builder().region(region).use_fips(variant.is_fips);
        let params = params.use_dual_stack(variant.is_dual_stack).build().unwrap();
        sts::DefaultResolver::new().resolve_endpoint(&params).await.unwrap().url().to_owned()
    }

    #[rstest]
    #[case("eu-west-1", "https://ec2.eu-west-1.amazonaws.com")]
    #[case("us-gov-west-1", "https://ec2.us-gov-west-1.amazonaws.com")]
    #[case("cn-north-1", "https://ec2.cn-north-1.amazonaws.com.cn")]
    #[case("us-iso-east-1", "https://ec2.us-iso-east-1.c2s.ic.gov")]
    #[case("us-isob-east-1", "https://ec2.us-isob-east-1.sc2s.sgov.gov")]
    #[case("eusc-de-east-1", "https://ec2.eusc-de-east-1.amazonaws.eu")]
    #[tokio::test]
    async fn a_region_has_its_endpoint(#[case] region: &str, #[case] expected: &str) {
        assert_eq!(url_of_ec2(region).await, expected);
    }

    #[rstest]
    #[case("eu-west-1", true, false, "https://sts-fips.eu-west-1.amazonaws.com")]
    #[case("eu-west-1", false, true, "https://sts.eu-west-1.api.aws")]
    #[case("us-east-1", true, true, "https://sts-fips.us-east-1.api.aws")]
    #[case("us-gov-west-1", true, false, "https://sts.us-gov-west-1.amazonaws.com")]
    #[case("cn-north-1", false, true, "https://sts.cn-north-1.api.amazonwebservices.com.cn")]
    #[tokio::test]
    async fn endpoints_have_variants(
        #[case] region: &str,
        #[case] is_fips: bool,
        #[case] is_dual_stack: bool,
        #[case] expected: &str,
    ) {
        assert_eq!(url_of_sts(region, Variant { is_fips, is_dual_stack }).await, expected);
    }

    #[rstest]
    #[case("eu-west-1", "us-east-1", "https://iam.amazonaws.com")]
    #[case("cn-northwest-1", "cn-north-1", "https://iam.cn-north-1.amazonaws.com.cn")]
    #[case("us-isof-south-1", "us-isof-south-1", "https://iam.us-isof-south-1.csp.hci.ic.gov")]
    #[case("eu-isoe-west-1", "eu-isoe-west-1", "https://iam.eu-isoe-west-1.cloud.adc-e.uk")]
    #[case("us-gov-east-1", "us-gov-west-1", "https://iam.us-gov.amazonaws.com")]
    fn regions_share_iam(#[case] region: &str, #[case] signed_for: &str, #[case] url: &str) {
        assert_eq!(iam_of(region), (signed_for, url));
    }

    #[rstest]
    #[case("")]
    #[case("example.com/")]
    #[case("x@example.com#")]
    fn a_region_cannot_lead_elsewhere(#[case] region: &str) {
        assert_eq!(check_region(region).unwrap_err().code, Code::InvalidArgument);
    }
}
