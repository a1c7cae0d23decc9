//! Where ECS is.

use mcm_driver::{Code, DriverError, SecretPolicy, cloud::is_word};
use reqwest::Url;

/// Secrets may name hosts below it, such as `ecs-vpc.<region>.aliyuncs.com`.
const DOMAIN: &str = "aliyuncs.com";
const ENDPOINT: &str = "endpointURL";
/// Regions without a host by their name, as in Alibaba Cloud's clients (7.11.8).
const HOSTS: [(&str, &[&str]); 5] = [
    (
        "ecs-cn-hangzhou",
        &[
            "cn-beijing-nu16-b01",
            "cn-fujian",
            "cn-haidian-cm12-c01",
            "cn-hangzhou",
            "cn-hangzhou-bj-b01",
            "cn-hangzhou-internal-prod-1",
            "cn-hangzhou-internal-test-1",
            "cn-hangzhou-internal-test-2",
            "cn-hangzhou-internal-test-3",
            "cn-hangzhou-test-306",
            "cn-shanghai-et15-b01",
            "cn-shanghai-et2-b01",
            "cn-shanghai-finance-1",
            "cn-shanghai-internal-test-1",
            "cn-shenzhen-finance-1",
            "cn-shenzhen-st4-d01",
            "cn-shenzhen-su18-b01",
            "cn-zhangbei-na61-b01",
        ],
    ),
    (
        "ecs",
        &[
            "ap-northeast-2-pop",
            "cn-beijing-finance-pop",
            "cn-beijing-gov-1",
            "cn-hangzhou-finance",
            "cn-hongkong-finance-pop",
            "cn-north-2-gov-1",
            "cn-shanghai-inner",
            "cn-shenzhen-inner",
            "cn-wuhan",
            "cn-yushanfang",
            "cn-zhangbei",
            "rus-west-1-pop",
        ],
    ),
    ("ecs.cn-qingdao-nebula", &["cn-edge-1", "cn-huhehaote-nebula-1", "cn-zhengzhou-nebula-1"]),
    ("ecs.cn-shenzhen-cloudstone", &["eu-west-1-oxs"]),
    ("ecs.cn-zhangjiakou", &["cn-zhangjiakou-na62-a01"]),
];

/// The URL of ECS in a region.
///
/// # Errors
/// [`Code::InvalidArgument`]: the region is not a word, so it could lead to another host.
pub(crate) fn of_region(region: &str) -> Result<Url, DriverError> {
    let host = match HOSTS.iter().find(|(_, regions)| regions.contains(&region)) {
        Some((host, _)) => (*host).to_owned(),
        None => format!("ecs.{region}"),
    };
    let url = Url::parse(&format!("https://{host}.{DOMAIN}/")).ok().filter(|_| is_word(region));
    url.ok_or_else(|| invalid("providerSpec.region: expected letters, digits and hyphens"))
}

/// The URL of ECS that a Secret names.
///
/// # Errors
/// [`Code::InvalidArgument`]: it is not allowed.
pub(crate) fn of_secret(url: &str, policy: &SecretPolicy) -> Result<Url, DriverError> {
    policy.check_url(ENDPOINT, url, &[DOMAIN])?;
    let parsed = Url::parse(url).ok().filter(|url| url.path() == "/" && url.query().is_none());
    parsed.ok_or_else(|| invalid("endpointURL in the secret of the class has a path or a query: remove it"))
}

fn invalid(text: &str) -> DriverError {
    DriverError::new(Code::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::testing::secret_policy;
    use rstest::rstest;

    #[rstest]
    #[case("cn-beijing", "https://ecs.cn-beijing.aliyuncs.com/")]
    #[case("eu-central-1", "https://ecs.eu-central-1.aliyuncs.com/")]
    #[case("cn-hangzhou", "https://ecs-cn-hangzhou.aliyuncs.com/")]
    #[case("cn-shanghai-finance-1", "https://ecs-cn-hangzhou.aliyuncs.com/")]
    #[case("cn-north-2-gov-1", "https://ecs.aliyuncs.com/")]
    #[case("cn-edge-1", "https://ecs.cn-qingdao-nebula.aliyuncs.com/")]
    #[case("eu-west-1-oxs", "https://ecs.cn-shenzhen-cloudstone.aliyuncs.com/")]
    #[case("cn-zhangjiakou-na62-a01", "https://ecs.cn-zhangjiakou.aliyuncs.com/")]
    fn a_region_has_its_host(#[case] region: &str, #[case] expected: &str) {
        assert_eq!(of_region(region).unwrap().as_str(), expected);
    }

    #[rstest]
    #[case("")]
    #[case("example.com/")]
    #[case("x@example.com#")]
    #[case("example.com:80")]
    fn a_region_cannot_lead_elsewhere(#[case] region: &str) {
        assert_eq!(of_region(region).unwrap_err().code, Code::InvalidArgument);
    }

    #[rstest]
    #[case::in_a_vpc("https://ecs-vpc.cn-beijing.aliyuncs.com", true)]
    #[case::of_a_test("http://127.0.0.1:8080", true)]
    #[case::without_tls("http://ecs.cn-beijing.aliyuncs.com", false)]
    #[case::elsewhere("https://ecs.example.com", false)]
    #[case::with_a_path("https://ecs.cn-beijing.aliyuncs.com/x", false)]
    #[case::with_a_query("https://ecs.cn-beijing.aliyuncs.com/?Action=x", false)]
    fn a_secret_names_hosts_of_alibaba_cloud_or_allowed_ones(#[case] url: &str, #[case] is_allowed: bool) {
        match of_secret(url, &secret_policy()) {
            Ok(_) => assert!(is_allowed),
            Err(error) => assert!(!is_allowed && error.code == Code::InvalidArgument, "{error}"),
        }
    }
}
