//! Calls of AWS's Query protocol.

use std::sync::Arc;

use roxmltree::{Document, Node, ParsingOptions};

use super::{
    errors::named,
    kind::Kind,
    login::Login,
    signed::{Signed, Unsigned},
};
use mcm_driver::cloud::{AccountLimiters, CloudFailure, HttpClient};

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
/// An answer has some hundred nodes.
const MOST_NODES: u32 = 10_000;

/// A service with this protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// Its name in signatures.
    pub name: &'static str,
    /// The version of its API.
    pub version: &'static str,
}

/// A place where a service is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// The region that signatures name.
    pub region: &'a str,
    pub url: &'a str,
}

/// A service for an account.
pub(super) struct Query {
    service: Service,
    calls: Signed,
}

impl Query {
    pub(super) fn new(
        service: Service,
        login: &Arc<Login>,
        limiters: &Arc<AccountLimiters>,
        http: &Arc<HttpClient>,
    ) -> Self {
        Self { service, calls: Signed::new(service.name, login, limiters, http) }
    }

    /// Calls an action, and returns the text of its answer.
    pub(super) async fn call(
        &self,
        place: Place<'_>,
        kind: Kind,
        action: &str,
        params: &[(&str, &str)],
    ) -> Result<String, CloudFailure> {
        let pairs = [("Action", action), ("Version", self.service.version)];
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).extend_pairs(params).finish();
        let headers = [("content-type", FORM)];
        let unsigned = Unsigned { region: place.region, url: place.url, headers: &headers, body: &body };
        self.calls.call(&unsigned, kind, |status, text| checked(action, status, &text).map(|()| text)).await
    }
}

/// The text of the first element with a name.
pub(super) fn text_in(answer: &str, name: &str) -> Option<String> {
    let document = parsed(answer)?;
    let found = document.descendants().find(|node| node.tag_name().name() == name)?;
    found.text().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn parsed(text: &str) -> Option<Document<'_>> {
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).ok()
}

/// Checks that an answer belongs to the action.
fn checked(action: &str, status: u16, text: &str) -> Result<(), CloudFailure> {
    let document = parsed(text);
    if (200..300).contains(&status) {
        let is_answer = |document: &Document<'_>| {
            document.root_element().tag_name().name().strip_suffix("Response") == Some(action)
        };
        return document.filter(is_answer).map(drop).ok_or(CloudFailure::Unreadable(status));
    }
    match document.as_ref().and_then(error_in) {
        Some((name, message)) => Err(named(name, message, status)),
        None => Err(CloudFailure::Status(status)),
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
    fn errors_of_aws_are_read(#[case] text: &str, #[case] expected: Option<(&str, &str)>) {
        let expected = match expected {
            Some((name, message)) => named(name.to_owned(), message.to_owned(), 403),
            None => CloudFailure::Status(403),
        };
        assert_eq!(checked("GetInstanceProfile", 403, text), Err(expected));
    }

    #[rstest]
    #[case("<GetInstanceProfileResponse><x/></GetInstanceProfileResponse>", Ok(()))]
    #[case::of_another_action("<GetUserResponse><x/></GetUserResponse>", Err(CloudFailure::Unreadable(200)))]
    #[case::of_a_proxy("<html></html>", Err(CloudFailure::Unreadable(200)))]
    fn only_the_answer_to_an_action_is_its_success(#[case] text: &str, #[case] expected: Result<(), CloudFailure>) {
        assert_eq!(checked("GetInstanceProfile", 200, text), expected);
    }

    #[rstest]
    #[case("<R><m><TargetType> ip </TargetType></m></R>", Some("ip"))]
    #[case::empty("<R><TargetType/></R>", None)]
    #[case::absent("<R/>", None)]
    fn a_text_of_an_answer_is_read(#[case] answer: &str, #[case] expected: Option<&str>) {
        assert_eq!(text_in(answer, "TargetType").as_deref(), expected);
    }
}
