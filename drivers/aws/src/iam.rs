//! The one call of IAM, signed here: IAM's SDK would be the second largest crate of the build.

use std::{sync::Arc, time::SystemTime};

use aws_credential_types::Credentials as Keys;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use roxmltree::{Document, Node, ParsingOptions};

use super::{
    endpoint::iam_of,
    errors::{may_pass, named},
    login::Login,
};
use mcm_driver::cloud::{Failure, Http, Limiters};

const ACTION: &str = "GetInstanceProfile";
const VERSION: &str = "2010-05-08";
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
/// An answer has some hundred nodes.
const MOST_NODES: u32 = 10_000;

/// IAM of an account.
pub(super) struct Iam {
    region: &'static str,
    url: String,
    login: Arc<Login>,
    limiters: Arc<Limiters>,
    http: Arc<Http>,
}

impl Iam {
    /// At an endpoint, or at that of AWS for a region.
    pub(super) fn of(
        region: &str,
        endpoint: Option<&String>,
        login: &Arc<Login>,
        limiters: &Arc<Limiters>,
        http: &Arc<Http>,
    ) -> Self {
        let (region, url) = iam_of(region);
        Self {
            region,
            url: endpoint.cloned().unwrap_or_else(|| url.to_owned()),
            login: Arc::clone(login),
            limiters: Arc::clone(limiters),
            http: Arc::clone(http),
        }
    }

    /// Looks for an instance profile by its name.
    ///
    /// # Errors
    /// [`Failure::Named`] with `NoSuchEntity`: there is none.
    pub(super) async fn instance_profile(&self, name: &str) -> Result<(), Failure> {
        let keys = self.login.keys().await?;
        let limiter = &self.limiters.reads;
        let once = || async {
            let sent = self.http.send(limiter, self.request(name, &keys)?).await?;
            answer(sent.status, &sent.text)
        };
        self.http.repeat(limiter, "instance_profile_get", once, may_pass).await
    }

    /// The signed request for an instance profile.
    fn request(&self, profile: &str, keys: &Keys) -> Result<http::Request<String>, Failure> {
        let unsent = |error: &dyn std::error::Error| Failure::Unsent(error.to_string());
        let pairs = [("Action", ACTION), ("Version", VERSION), ("InstanceProfileName", profile)];
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        let url = format!("{}/", self.url.trim_end_matches('/'));
        let identity = keys.clone().into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(self.region)
            .name("iam")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| unsent(&error))?
            .into();
        let signed_headers = [("content-type", FORM)].into_iter();
        let signable = SignableRequest::new("POST", &url, signed_headers, SignableBody::Bytes(body.as_bytes()))
            .map_err(|error| unsent(&error))?;
        let (instructions, _) = sign(signable, &params).map_err(|error| unsent(&error))?.into_parts();
        let request = http::Request::post(&url).header("content-type", FORM).body(body);
        let mut request = request.map_err(|error| unsent(&error))?;
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }
}

fn answer(status: u16, text: &str) -> Result<(), Failure> {
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).ok();
    if (200..300).contains(&status) {
        let is_answer = |document: &Document<'_>| {
            document.root_element().tag_name().name().strip_suffix("Response") == Some(ACTION)
        };
        return document.filter(is_answer).map(drop).ok_or(Failure::Unreadable(status));
    }
    match document.as_ref().and_then(error_in) {
        Some((name, message)) => Err(named(name, message, status)),
        None => Err(Failure::Status(status)),
    }
}

/// The code and message of an error. `None` if it is no error of AWS.
fn error_in(document: &Document<'_>) -> Option<(String, String)> {
    let is = |node: &Node<'_, '_>, name: &str| node.tag_name().name() == name;
    let error = document.descendants().find(|node| is(node, "Error"))?;
    let text = |name: &str| error.children().find(|node| is(node, name))?.text().map(str::trim).map(str::to_owned);
    Some((text("Code").filter(|code| !code.is_empty())?, text("Message").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(r#"<ErrorResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><Error><Type>Sender</Type><Code>B</Code></Error></ErrorResponse>"#, Some(("B", "")))]
    #[case::message("<ErrorResponse><Error><Code>A</Code><Message>m &amp; n</Message></Error></ErrorResponse>", Some(("A", "m & n")))]
    #[case::no_code("<Error></Error>", None)]
    #[case::of_a_proxy("<html></html>", None)]
    #[case("no XML", None)]
    fn errors_of_iam_are_read(#[case] text: &str, #[case] expected: Option<(&str, &str)>) {
        let expected = match expected {
            Some((name, message)) => named(name.to_owned(), message.to_owned(), 403),
            None => Failure::Status(403),
        };
        assert_eq!(answer(403, text), Err(expected));
    }

    #[rstest]
    #[case("<GetInstanceProfileResponse><x/></GetInstanceProfileResponse>", Ok(()))]
    #[case::of_a_proxy("<html></html>", Err(Failure::Unreadable(200)))]
    fn only_the_answer_of_iam_says_that_a_profile_exists(#[case] text: &str, #[case] expected: Result<(), Failure>) {
        assert_eq!(answer(200, text), expected);
    }
}
