//! Calls that are signed here. The SDK of IAM would be the second largest crate of the build, that of load balancers has two
//! hundred actions of which the driver needs three, and that of Secrets Manager has two dozen of which it needs four.

use std::{sync::Arc, time::SystemTime};

use aws_credential_types::Credentials as Keys;
use aws_sdk_ec2::config::endpoint::{DefaultResolver, Params, ResolveEndpoint};
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};

use super::{endpoint::Variant, errors::may_pass, kind::Kind, login::Login};
use mcm_driver::{
    cloud::{AccountLimiters, CloudFailure, HttpClient},
    code::Code,
};

/// A service for an account.
pub(super) struct Signed {
    /// Its name in signatures.
    service: &'static str,
    login: Arc<Login>,
    limiters: Arc<AccountLimiters>,
    http: Arc<HttpClient>,
}

/// A request before it is signed.
pub(super) struct Unsigned<'a> {
    /// The region that signatures name.
    pub region: &'a str,
    pub url: &'a str,
    pub headers: &'a [(&'static str, &'a str)],
    pub body: &'a str,
}

impl Signed {
    pub(super) fn new(
        service: &'static str,
        login: &Arc<Login>,
        limiters: &Arc<AccountLimiters>,
        http: &Arc<HttpClient>,
    ) -> Self {
        let (login, limiters, http) = (Arc::clone(login), Arc::clone(limiters), Arc::clone(http));
        Self { service, login, limiters, http }
    }

    /// Sends a request until there is an answer that can be read, from its status and text. Every action of this driver may be
    /// repeated.
    pub(super) async fn call<T>(
        &self,
        unsigned: &Unsigned<'_>,
        kind: Kind,
        read: impl Fn(u16, String) -> Result<T, CloudFailure>,
    ) -> Result<T, CloudFailure> {
        let keys = self.login.keys().await?;
        let limiter = if kind.is_read { &self.limiters.reads } else { &self.limiters.writes };
        let once = || async {
            let sent = self.http.send(limiter, self.request(unsigned, &keys)?).await?;
            read(sent.status, sent.text)
        };
        let answer = self.http.repeat(limiter, kind.service, once, may_pass).await;
        if answer.as_ref().is_err_and(|failure| failure.code() == Code::Unauthenticated) {
            self.login.forget(&keys).await;
        }
        answer
    }

    fn request(&self, unsigned: &Unsigned<'_>, keys: &Keys) -> Result<http::Request<String>, CloudFailure> {
        let unsent = |error: &dyn std::error::Error| CloudFailure::Unsent(error.to_string());
        let url = format!("{}/", unsigned.url.trim_end_matches('/'));
        let identity = keys.clone().into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(unsigned.region)
            .name(self.service)
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| unsent(&error))?
            .into();
        let body = SignableBody::Bytes(unsigned.body.as_bytes());
        let signable = SignableRequest::new("POST", &url, unsigned.headers.iter().copied(), body)
            .map_err(|error| unsent(&error))?;
        let (instructions, _) = sign(signable, &params).map_err(|error| unsent(&error))?.into_parts();
        let request =
            unsigned.headers.iter().fold(http::Request::post(&url), |all, (name, value)| all.header(*name, *value));
        let mut request = request.body(unsigned.body.to_owned()).map_err(|error| unsent(&error))?;
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }
}

/// Where the services of a region are.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub region: String,
    /// `None` for the endpoint of AWS.
    pub endpoint: Option<String>,
    pub variant: Variant,
}

impl Location {
    /// The URL of a service. The endpoints of AWS differ from that of EC2 only in the name of the service.
    pub(super) async fn url(&self, service: &str) -> Result<String, CloudFailure> {
        if let Some(url) = &self.endpoint {
            return Ok(url.clone());
        }
        let Variant { is_fips, is_dual_stack } = self.variant;
        let params = Params::builder().region(&self.region).use_fips(is_fips).use_dual_stack(is_dual_stack);
        let unsent = |error: &dyn std::error::Error| CloudFailure::Unsent(error.to_string());
        let params = params.build().map_err(|error| unsent(&error))?;
        let endpoint = DefaultResolver::new().resolve_endpoint(&params).await.map_err(|error| unsent(&*error))?;
        Ok(endpoint.url().replacen("//ec2", &format!("//{service}"), 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("elasticloadbalancing", "eu-west-1", (false, false), "https://elasticloadbalancing.eu-west-1.amazonaws.com")]
    #[case("elasticloadbalancing", "cn-north-1", (false, false), "https://elasticloadbalancing.cn-north-1.amazonaws.com.cn")]
    #[case("elasticloadbalancing", "us-east-1", (true, false), "https://elasticloadbalancing-fips.us-east-1.amazonaws.com")]
    #[case("elasticloadbalancing", "eu-west-1", (false, true), "https://elasticloadbalancing.eu-west-1.api.aws")]
    #[case("secretsmanager", "eu-west-1", (false, false), "https://secretsmanager.eu-west-1.amazonaws.com")]
    #[case("secretsmanager", "us-east-1", (true, false), "https://secretsmanager-fips.us-east-1.amazonaws.com")]
    #[case("secretsmanager", "eusc-de-east-1", (false, false), "https://secretsmanager.eusc-de-east-1.amazonaws.eu")]
    #[tokio::test]
    async fn a_service_has_its_endpoint(
        #[case] service: &str,
        #[case] region: &str,
        #[case] (is_fips, is_dual_stack): (bool, bool),
        #[case] expected: &str,
    ) {
        let variant = Variant { is_fips, is_dual_stack };
        let location = Location { region: region.to_owned(), endpoint: None, variant };
        assert_eq!(location.url(service).await.unwrap(), expected);
        let given = Location { endpoint: Some("https://aws.example".to_owned()), ..location };
        assert_eq!(given.url(service).await.unwrap(), "https://aws.example");
    }
}
