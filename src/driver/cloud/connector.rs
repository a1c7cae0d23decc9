//! Connections for AWS's own clients.

use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_http_client::{
    Connector,
    proxy::ProxyConfig,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings},
    orchestrator::HttpRequest,
};
use aws_smithy_types::body::SdkBody;
use http_body_util::Limited;

use super::client::LARGEST;

/// Connections whose answers end with an error when they become too large.
#[derive(Debug)]
pub(crate) struct Bounded(Connector);

impl HttpConnector for Bounded {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let answer = self.0.call(request);
        HttpConnectorFuture::new(async move {
            Ok(answer.await?.map(|body| SdkBody::from_body_1_x(Limited::new(body, LARGEST))))
        })
    }
}

/// Connections, through the proxy that the environment names if there is one and it is used.
pub(crate) fn connector(settings: HttpConnectorSettings, uses_proxy: bool) -> Bounded {
    let mut connector = Connector::builder().connector_settings(settings).sleep_impl(TokioSleep::new());
    connector.set_proxy_config(uses_proxy.then(ProxyConfig::from_env));
    Bounded(connector.tls_provider(Provider::Rustls(CryptoMode::Ring)).build())
}
