//! The HTTP client of AWS's SDK: connections with the TLS of the rest of the program, through the proxy of the environment. An
//! answer is read whole and checked before the SDK decodes it.

use std::time::Duration;

use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_http_client::{
    Connector,
    proxy::ProxyConfig,
    tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{
        HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
        http_client_fn,
    },
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
};
use aws_smithy_types::body::SdkBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::{SignedDuration, Timestamp, civil, fmt::rfc2822, tz::TimeZone};
use roxmltree::{Document, Node, ParsingOptions};

use mcm_driver::cloud::{CaBundle, CloudFailure, HttpLimits, LARGEST, causes, find};

const CONNECT: Duration = Duration::from_secs(5);
/// Most nodes of an answer. A page of 1000 VMs has some 300,000. Small nodes take much more memory than their text.
const MOST_NODES: u32 = 2_000_000;
/// Most entries of all lists of an answer, such as tags, volumes and addresses. Even without content, each is a structure of the
/// SDK.
const MOST_ENTRIES: usize = 300_000;
/// The lists of VMs, subnets and other objects are not deeper than this. Their structures are the largest.
const DEPTH_OF_OBJECTS: usize = 4;
/// Most elements down to that depth. A page of 1000 VMs has some 8,000.
const MOST_OBJECTS: usize = 100_000;
/// AWS accepts a signature of a time that differs by five minutes.
const ACCEPTED_SKEW: SignedDuration = SignedDuration::from_mins(4);

/// Connections to AWS.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    services: SharedHttpConnector,
    uses_proxy: bool,
    tls: TlsContext,
}

impl Connections {
    pub(super) fn new(limits: HttpLimits, uses_proxy: bool, bundle: Option<&CaBundle>) -> Self {
        let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT.min(limits.attempt)).build();
        let tls = trusting(bundle);
        Self { services: connector(settings, uses_proxy, &tls), uses_proxy, tls }
    }

    /// One pool for all services and accounts.
    pub(super) fn of_services(&self) -> SharedHttpClient {
        let services = self.services.clone();
        http_client_fn(move |_, _| services.clone())
    }

    /// For the sources of the credentials of the process, each of which sets its time limits.
    pub(super) fn of_credentials(&self) -> SharedHttpClient {
        let (uses_proxy, tls) = (self.uses_proxy, self.tls.clone());
        http_client_fn(move |settings, _| connector(settings.clone(), uses_proxy, &tls))
    }
}

/// An answer that the SDK does not get.
#[derive(Debug, thiserror::Error)]
#[error("the answer is refused")]
struct Refused(CloudFailure);

/// How far the time of a signature was from that of the answer, if it was too far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skew(pub SignedDuration);

/// A connector that limits and checks answers.
#[derive(Debug)]
struct Checked(Connector);

impl HttpConnector for Checked {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let action = action_of(&request);
        let signed = request.headers().get("x-amz-date").and_then(time_of_signature);
        let answer = self.0.call(request);
        HttpConnectorFuture::new(async move {
            let mut answer = answer.await?;
            let body = Limited::new(answer.take_body(), LARGEST).collect().await.map_err(|error| {
                refused(match find::<LengthLimitError>(&*error) {
                    Some(_) => CloudFailure::TooLarge(LARGEST),
                    None => CloudFailure::Broken(causes(&*error)),
                })
            })?;
            let body = body.to_bytes();
            if let Some(action) = action.filter(|_| answer.status().is_success())
                && !is_answer_to(&action, &body)
            {
                return Err(refused(CloudFailure::Unreadable(answer.status().as_u16())));
            }
            if let Some(skew) = skew(signed, &answer) {
                answer.add_extension(Skew(skew));
            }
            *answer.body_mut() = SdkBody::from(body);
            Ok(answer)
        })
    }
}

fn connector(settings: HttpConnectorSettings, uses_proxy: bool, tls: &TlsContext) -> SharedHttpConnector {
    let mut connector = Connector::builder().connector_settings(settings).sleep_impl(TokioSleep::new());
    connector.set_proxy_config(uses_proxy.then(ProxyConfig::from_env));
    let connector = connector.tls_provider(Provider::Rustls(CryptoMode::Ring)).tls_context(tls.clone());
    SharedHttpConnector::new(Checked(connector.build()))
}

/// The certificates of a bundle in place of those of the system.
fn trusting(bundle: Option<&CaBundle>) -> TlsContext {
    match bundle {
        Some(bundle) => {
            let store = TrustStore::empty().with_pem_certificate(bundle.pem());
            // Only names of servers can make it fail, and there are none.
            TlsContext::builder().with_trust_store(store).build().unwrap_or_default()
        }
        None => TlsContext::default(),
    }
}

/// Why a connector has no answer.
pub(super) fn failed(error: &ConnectorError) -> CloudFailure {
    if let Some(Refused(failure)) = find(error) {
        failure.clone()
    } else if error.is_timeout() {
        CloudFailure::NoAnswer
    } else if error.is_io() {
        CloudFailure::Unreachable(causes(error))
    } else if error.is_user() {
        CloudFailure::Unsent(causes(error))
    } else {
        CloudFailure::Broken(causes(error))
    }
}

fn refused(failure: CloudFailure) -> ConnectorError {
    ConnectorError::other(Box::new(Refused(failure)), None)
}

/// The action of a request of the query protocol, which begins with it.
fn action_of(request: &HttpRequest) -> Option<String> {
    let action = request.body().bytes()?.strip_prefix(b"Action=")?.split(|byte| *byte == b'&').next()?;
    std::str::from_utf8(action).ok().map(str::to_owned)
}

/// A body is the complete answer to an action, and has no more parts than AWS would send. The SDK takes a truncated body
/// for a complete one, and ignores answers without content.
fn is_answer_to(action: &str, body: &[u8]) -> bool {
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let Ok(document) = Document::parse_with_options(text, options) else { return false };
    let root = document.root_element();
    let entries = root.descendants().filter(|node| node.tag_name().name() == "item").count();
    // The page of a proxy must not pass for an empty list.
    root.tag_name().name().strip_suffix("Response") == Some(action)
        && entries <= MOST_ENTRIES
        && elements_to(DEPTH_OF_OBJECTS, root) <= MOST_OBJECTS
}

/// How many elements a node has down to a depth.
fn elements_to(depth: usize, node: Node<'_, '_>) -> usize {
    let below = |child| if depth == 1 { 0 } else { elements_to(depth - 1, child) };
    node.children().filter(Node::is_element).map(|child| 1 + below(child)).sum()
}

fn skew(signed: Option<Timestamp>, answer: &HttpResponse) -> Option<SignedDuration> {
    let answered = rfc2822::parse(answer.headers().get("date")?).ok()?.timestamp();
    let skew = answered.duration_since(signed?);
    Some(skew).filter(|skew| skew.abs() > ACCEPTED_SKEW)
}

/// `20261126T170633Z`
fn time_of_signature(text: &str) -> Option<Timestamp> {
    let time = civil::DateTime::strptime("%Y%m%dT%H%M%SZ", text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::empty_list(
        "<DescribeXResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><xSet/></DescribeXResponse>",
        true
    )]
    #[case::with_a_declaration("<?xml version=\"1.0\"?>\n<DescribeXResponse/>\n", true)]
    #[case::of_a_proxy("<html></html>", false)]
    #[case::of_another_action("<DescribeYResponse/>", false)]
    #[case::cut("<DescribeXResponse><xSet><item>", false)]
    #[case::mixed_up("<DescribeXResponse><xSet></item></DescribeXResponse>", false)]
    #[case::no_xml("no XML", false)]
    #[case::nothing("", false)]
    fn only_a_complete_answer_to_an_action_is_decoded(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(is_answer_to("DescribeX", text.as_bytes()), expected);
    }

    fn nested(before: &str, one: &str, count: usize, after: &str) -> bool {
        let text = format!("<AResponse>{before}{}{after}</AResponse>", one.repeat(count));
        is_answer_to("A", text.as_bytes())
    }

    #[rstest]
    #[case::vms(MOST_OBJECTS - 3, true)]
    #[case::too_many_vms(MOST_OBJECTS - 2, false)]
    fn objects_without_content_are_bounded(#[case] count: usize, #[case] expected: bool) {
        let (before, after) = ("<a><item><b>", "</b></item></a>");
        assert_eq!(nested(before, "<item/>", count, after), expected);
    }

    #[rstest]
    #[case::tags(MOST_ENTRIES, true)]
    #[case::too_many_tags(MOST_ENTRIES + 1, false)]
    fn entries_without_content_are_bounded(#[case] count: usize, #[case] expected: bool) {
        let (before, after) = ("<a><b><c><d>", "</d></c></b></a>");
        assert_eq!(nested(before, "<item/>", count, after), expected);
    }

    #[test]
    fn nodes_without_content_are_bounded() {
        assert!(!nested("<a><b><c><d>", "<e/>", MOST_NODES as usize, "</d></c></b></a>"));
    }

    #[rstest]
    #[case::same("Thu, 26 Nov 2026 17:06:34 GMT", None)]
    #[case::accepted("Thu, 26 Nov 2026 17:03:00 GMT", None)]
    #[case::slow("Thu, 26 Nov 2026 18:06:33 GMT", Some(3600))]
    #[case::fast("Thu, 26 Nov 2026 16:06:33 GMT", Some(-3600))]
    #[case::no_date("yesterday", None)]
    fn a_clock_that_is_too_far_from_that_of_aws_is_noticed(#[case] date: &str, #[case] expected: Option<i64>) {
        let mut answer = HttpResponse::new(200.try_into().unwrap(), SdkBody::empty());
        answer.headers_mut().insert("date", date.to_owned());
        let skew = skew(time_of_signature("20261126T170633Z"), &answer);
        assert_eq!(skew.map(|skew| skew.as_secs()), expected);
    }
}
