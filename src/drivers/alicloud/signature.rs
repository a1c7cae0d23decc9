//! Signatures of requests with an access key: `ACS3-HMAC-SHA256`.

use std::{collections::BTreeMap, fmt::Write as _};

use async_trait::async_trait;
use jiff::Timestamp;
use mcm_driver::cloud::{CloudFailure, RequestAuthenticator, UnsignedRequest};
use rand::{Rng, distr::Alphanumeric};
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};
use ring::{
    digest::{SHA256, digest},
    hmac::{HMAC_SHA256, Key, sign},
};

const ALGORITHM: &str = "ACS3-HMAC-SHA256";
/// All headers that begin so are signed.
const SIGNED: &str = "x-acs-";
const DATE: HeaderName = HeaderName::from_static("x-acs-date");
const NONCE: HeaderName = HeaderName::from_static("x-acs-signature-nonce");
const BODY_HASH: HeaderName = HeaderName::from_static("x-acs-content-sha256");
const NONCE_LENGTH: usize = 32;

/// Signs requests with an access key. There is no `Debug`, because of the key.
pub(crate) struct Signer {
    id: String,
    key: Key,
}

impl Signer {
    pub fn new(id: &str, secret: &str) -> Self {
        Self { id: id.to_owned(), key: Key::new(HMAC_SHA256, secret.as_bytes()) }
    }

    /// The headers of a request at a time. A nonce is used once.
    fn headers_at(
        &self,
        request: &UnsignedRequest<'_>,
        now: Timestamp,
        nonce: &str,
    ) -> Result<HeaderMap, CloudFailure> {
        let value = |text: &str| HeaderValue::try_from(text).map_err(|error| CloudFailure::Unsent(error.to_string()));
        let mut headers = HeaderMap::new();
        headers.insert(DATE, value(&now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())?);
        headers.insert(NONCE, value(nonce)?);
        headers.insert(BODY_HASH, value(&hash(request.body))?);
        let mut signed = BTreeMap::from([("host", host(request.url))]);
        for (name, value) in headers.iter().chain(request.headers).filter(|(name, _)| name.as_str().starts_with(SIGNED))
        {
            signed.insert(name.as_str(), value.to_str().unwrap_or_default().to_owned());
        }
        let authorization = self.authorization(request.method.as_str(), request.url, &signed, &hash(request.body));
        let mut authorization = value(&authorization)?;
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
        Ok(headers)
    }

    fn authorization(&self, method: &str, url: &Url, signed: &BTreeMap<&str, String>, body_hash: &str) -> String {
        let names = signed.keys().copied().collect::<Vec<_>>().join(";");
        let headers: String = signed.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let canonical = [method, url.path(), &query(url), &headers, &names, body_hash].join("\n");
        let signature = hex(sign(&self.key, format!("{ALGORITHM}\n{}", hash(&canonical)).as_bytes()).as_ref());
        format!("{ALGORITHM} Credential={},SignedHeaders={names},Signature={signature}", self.id)
    }
}

#[async_trait]
impl RequestAuthenticator for Signer {
    async fn headers(&self, request: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        let nonce: String = rand::rng().sample_iter(Alphanumeric).take(NONCE_LENGTH).map(char::from).collect();
        self.headers_at(request, Timestamp::now(), &nonce)
    }
}

/// The host as the client sends it.
fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// The parameters in the form that is signed: sorted, and escaped as in RFC 3986.
fn query(url: &Url) -> String {
    let pairs: BTreeMap<_, _> = url.query_pairs().collect();
    let pairs = pairs.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            all.push(char::from(byte));
        } else {
            // A string takes everything.
            let _ = write!(all, "%{byte:02X}");
        }
    }
    all
}

fn hash(text: &str) -> String {
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::Method;

    /// The URL of a request of Alibaba Cloud's client for Python (alibabacloud-ecs20140526 7.11.8), as it was sent.
    const RECORDED: &str = "http://127.0.0.1:38217/?ClientToken=uid&ImageId=m-1&InstanceName=m+1%2A~&\
        InstanceType=ecs.g7.large&RegionId=cn-beijing&Tag.1.Key=kubernetes.io%2Fcluster%2Fx&Tag.1.Value=%C3%A4&\
        Tag.2.Key=kubernetes.io%2Frole%2Fn&Tag.2.Value=&UserData=I2Nsb3Vk%2B%2F%3D&ZoneId=&\
        SystemDisk.Category=cloud_essd&SystemDisk.Size=50";
    const DATE_SENT: &str = "2026-11-26T17:00:00Z";
    const NONCE_SENT: &str = "0123456789abcdef0123456789abcdef";

    fn signer() -> Signer {
        Signer::new("LTAI1", "secret-1")
    }

    #[test]
    fn a_recorded_request_gets_the_signature_of_alibaba_clouds_own_client() {
        let headers = [
            ("accept", "application/json"),
            ("host", "127.0.0.1:38217"),
            ("user-agent", "AlibabaCloud (Linux; x86_64) Python/3.11.7 Core/0.4.3 TeaDSL/2 x"),
            ("x-acs-action", "RunInstances"),
            ("x-acs-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("x-acs-credentials-provider", "static_ak"),
            ("x-acs-date", DATE_SENT),
            ("x-acs-signature-nonce", NONCE_SENT),
            ("x-acs-version", "2014-05-26"),
        ];
        let headers = headers.map(|(name, value)| (name, value.to_owned())).into();
        let found = signer().authorization("POST", &RECORDED.parse().unwrap(), &headers, &hash(""));
        let expected = "ACS3-HMAC-SHA256 Credential=LTAI1,SignedHeaders=accept;host;user-agent;x-acs-action;\
            x-acs-content-sha256;x-acs-credentials-provider;x-acs-date;x-acs-signature-nonce;x-acs-version,\
            Signature=b585f503806ae720a5a9de190b0771bc7f6fa0899bb8c3222b32b3356ecde5d0";
        assert_eq!(found, expected);
    }

    fn signed(url: &str, action: &str, body: &str, nonce: &str) -> HeaderMap {
        let (method, url) = (Method::POST, url.parse().unwrap());
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-acs-action"), action.parse().unwrap())]);
        let request = UnsignedRequest { method: &method, url: &url, headers: &headers, body };
        signer().headers_at(&request, "2026-11-26T17:00:00.9Z".parse().unwrap(), nonce).unwrap()
    }

    #[test]
    fn a_signature_covers_parameters_action_body_and_nonce() {
        let first = signed(RECORDED, "RunInstances", "", NONCE_SENT);
        assert_eq!((first[DATE].to_str().unwrap(), first[NONCE].to_str().unwrap()), (DATE_SENT, NONCE_SENT));
        assert_eq!(first[BODY_HASH], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let names = "SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce,";
        assert!(first[AUTHORIZATION].to_str().unwrap().contains(names), "{first:?}");
        let others = [
            signed(&format!("{RECORDED}&Amount=2"), "RunInstances", "", NONCE_SENT),
            signed(RECORDED, "DeleteInstance", "", NONCE_SENT),
            signed(RECORDED, "RunInstances", "x", NONCE_SENT),
            signed(RECORDED, "RunInstances", "", "another"),
        ];
        for other in others {
            assert_ne!(other[AUTHORIZATION], first[AUTHORIZATION]);
        }
        assert!(!format!("{first:?}").contains("Signature="), "a signature is not shown");
    }

    #[tokio::test]
    async fn each_attempt_has_a_nonce() {
        let (method, url, headers) = (Method::POST, RECORDED.parse().unwrap(), HeaderMap::new());
        let request = UnsignedRequest { method: &method, url: &url, headers: &headers, body: "" };
        let [first, second] = [signer().headers(&request).await.unwrap(), signer().headers(&request).await.unwrap()];
        assert_ne!(first[NONCE], second[NONCE]);
        assert_eq!(first[NONCE].len(), NONCE_LENGTH);
    }
}
