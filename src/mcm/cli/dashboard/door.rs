//! Access to the page: for a browser of this computer that has its address. Pages of other origins cannot read it.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Headers of every response. The page loads only what this process serves, and is in no frame.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The address of the page.
#[derive(Clone, Debug)]
pub(super) struct DashboardAddress {
    port: u16,
    token: String,
}

impl DashboardAddress {
    /// A door with a path that cannot be guessed.
    pub(super) fn new(port: u16) -> Self {
        Self { port, token: format!("{:032x}", rand::random::<u128>()) }
    }

    /// The first segment of every path.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The address for a browser.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// The request names this computer, and not a name that another server made point here, and is from a user or from the page
    /// itself.
    fn opens(&self, headers: &HeaderMap) -> bool {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let host = text(header::HOST).unwrap_or_default();
        let is_here = ["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{}", self.port));
        let site = text(HeaderName::from_static("sec-fetch-site")).unwrap_or("none");
        is_here && ["none", "same-origin"].contains(&site)
    }
}

/// Refuses requests of other origins, and adds the headers of every response.
pub(super) async fn guard(State(door): State<Arc<DashboardAddress>>, request: Request, next: Next) -> Response {
    let mut response = if door.opens(request.headers()) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "open the address that mcm dashboard printed\n").into_response()
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::address("127.0.0.1:8080", None, true)]
    #[case::name("localhost:8080", Some("same-origin"), true)]
    #[case::typed("127.0.0.1:8080", Some("none"), true)]
    #[case::other_port("127.0.0.1:8081", None, false)]
    #[case::no_port("127.0.0.1", None, false)]
    #[case::rebound("attacker.example:8080", None, false)]
    #[case::suffix("127.0.0.1.attacker.example:8080", None, false)]
    #[case::absent("", None, false)]
    #[case::other_page("127.0.0.1:8080", Some("cross-site"), false)]
    #[case::other_port_of_this_host("127.0.0.1:8080", Some("same-site"), false)]
    fn only_a_browser_of_this_computer_is_let_in(#[case] host: &str, #[case] site: Option<&str>, #[case] opens: bool) {
        let door = DashboardAddress { port: 8080, token: "t".to_owned() };
        let mut headers = HeaderMap::new();
        if !host.is_empty() {
            headers.insert(header::HOST, host.parse().unwrap());
        }
        if let Some(site) = site {
            headers.insert("sec-fetch-site", site.parse().unwrap());
        }
        assert_eq!(door.opens(&headers), opens);
    }

    #[test]
    fn the_path_differs_each_time() {
        let (one, other) = (DashboardAddress::new(1), DashboardAddress::new(1));
        assert_eq!(one.token().len(), 32);
        assert_ne!(one.token(), other.token());
    }
}
