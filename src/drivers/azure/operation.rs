//! Operations that Azure carries out after its answer.

use mcm_driver::cloud::{CloudFailure, HttpAnswer};
use reqwest::{Url, header::HeaderMap};
use serde::Deserialize;
use serde_json::Value;

use crate::errors::Named;

/// Where Azure reports on an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub url: Url,
    /// The report is in the body; otherwise the HTTP status is the report.
    has_body: bool,
}

/// The state in a report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Progress {
    Running,
    Succeeded,
    Failed(CloudFailure),
}

#[derive(Deserialize)]
struct Report {
    status: String,
    error: Option<Named>,
}

impl Operation {
    /// The operation that an answer announces. A report elsewhere than below `api` is not read, because the credentials would go
    /// there.
    pub fn from_headers(headers: &HeaderMap, api: &Url) -> Option<Self> {
        let url = |name: &str| {
            let url = Url::parse(headers.get(name)?.to_str().ok()?).ok()?;
            (url.origin() == api.origin() && !url.path().contains('%')).then_some(url)
        };
        let with_body = url("azure-asyncoperation").map(|url| Self { url, has_body: true });
        with_body.or_else(|| url("location").map(|url| Self { url, has_body: false }))
    }

    /// Reads a report. `None` if the answer is no report.
    pub fn progress(&self, answer: &HttpAnswer) -> Option<Progress> {
        if !self.has_body {
            let is_of_azure = answer.text.is_empty() || answer.json::<Value>().is_ok();
            let progress = if answer.status == 202 { Progress::Running } else { Progress::Succeeded };
            return is_of_azure.then_some(progress);
        }
        let report: Report = serde_json::from_str(&answer.text).ok()?;
        Some(match report.status.to_ascii_lowercase().as_str() {
            "succeeded" => Progress::Succeeded,
            "failed" | "canceled" => {
                let unnamed = Named { code: report.status, message: "no reason is given".to_owned() };
                Progress::Failed(report.error.unwrap_or(unnamed).failure())
            }
            _ => Progress::Running,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::Code;
    use rstest::rstest;
    use serde_json::json;

    const HERE: &str = "https://management.azure.com/subscriptions/s/operations/1?api-version=2023-07-01";

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.insert(*name, value.parse().unwrap());
        }
        headers
    }

    fn announced_operation(all: &[(&'static str, &str)]) -> Option<Operation> {
        Operation::from_headers(&headers(all), &Url::parse("https://management.azure.com").unwrap())
    }

    #[test]
    fn an_operation_is_where_its_header_says() {
        let operation =
            announced_operation(&[("azure-asyncoperation", HERE), ("location", "https://management.azure.com/other")])
                .unwrap();
        assert_eq!((operation.url.as_str(), operation.has_body), (HERE, true));
        assert!(!announced_operation(&[("location", HERE)]).unwrap().has_body);
        assert_eq!(announced_operation(&[]), None);
    }

    #[rstest]
    #[case("https://example.com/operations/1")]
    #[case("http://management.azure.com/operations/1")]
    #[case("https://management.azure.com:8443/operations/1")]
    #[case("https://management.azure.com/a%2Fb")]
    #[case("operations/1")]
    fn credentials_do_not_follow_a_header_elsewhere(#[case] url: &str) {
        assert_eq!(announced_operation(&[("azure-asyncoperation", url)]), None);
    }

    #[rstest]
    #[case(json!({"status": "InProgress"}), Some(Progress::Running))]
    #[case(json!({"status": "Succeeded"}), Some(Progress::Succeeded))]
    #[case::no_report(json!({}), None)]
    fn a_report_has_a_status(#[case] body: Value, #[case] expected: Option<Progress>) {
        let operation = announced_operation(&[("azure-asyncoperation", HERE)]).unwrap();
        let answer = HttpAnswer { status: 200, headers: HeaderMap::new(), text: body.to_string() };
        assert_eq!(operation.progress(&answer), expected);
    }

    #[rstest]
    #[case(json!({"status": "Failed", "error": {"code": "AllocationFailed", "message": "m"}}), Code::ResourceExhausted)]
    #[case(json!({"status": "Failed"}), Code::Internal)]
    #[case(json!({"status": "Canceled"}), Code::Internal)]
    fn a_failed_operation_says_why(#[case] body: Value, #[case] expected: Code) {
        let operation = announced_operation(&[("azure-asyncoperation", HERE)]).unwrap();
        let answer = HttpAnswer { status: 200, headers: HeaderMap::new(), text: body.to_string() };
        let Some(Progress::Failed(failure)) = operation.progress(&answer) else { panic!() };
        assert_eq!(failure.code(), expected);
    }

    #[rstest]
    #[case(202, "", Some(Progress::Running))]
    #[case(204, "", Some(Progress::Succeeded))]
    #[case(200, "{}", Some(Progress::Succeeded))]
    #[case::page_of_a_proxy(200, "<html>", None)]
    fn without_a_report_the_status_is_one(#[case] status: u16, #[case] text: &str, #[case] expected: Option<Progress>) {
        let answer = HttpAnswer { status, headers: HeaderMap::new(), text: text.to_owned() };
        assert_eq!(announced_operation(&[("location", HERE)]).unwrap().progress(&answer), expected);
    }
}
