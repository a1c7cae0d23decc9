//! Operations of Compute Engine, as far as the driver reads them.

use google_cloud_compute_v1::model::{
    self,
    operation::{Status, error::Errors},
};

use mcm_driver::cloud::is_word;

/// The fields that lists ask for.
pub(super) const FIELDS: &str = "kind,nextPageToken,warning.code,items.name,items.status,items.clientOperationId,\
     items.httpErrorStatusCode,items.error.errors.code,items.error.errors.message,items.error.errors.errorDetails.quotaInfo";

/// Work that Google does after its answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Operation {
    pub name: String,
    is_done: bool,
    /// The ID of the request that began it.
    pub client_operation_id: String,
    errors: Option<Vec<OperationError>>,
    /// The HTTP status for the errors.
    http_status: u16,
}

/// An error of an operation.
#[derive(Clone, Debug, Default)]
pub(super) struct OperationError {
    pub code: String,
    pub message: String,
}

impl Operation {
    /// `None` if it has no state, or no name, which is part of paths.
    pub(super) fn from_model(found: model::Operation) -> Option<Self> {
        Some(Self {
            name: found.name.filter(|name| is_word(name))?,
            is_done: found.status? == Status::Done,
            client_operation_id: found.client_operation_id.unwrap_or_default(),
            errors: found.error.map(|error| error.errors.into_iter().map(OperationError::from).collect()),
            http_status: found.http_error_status_code.and_then(|status| status.try_into().ok()).unwrap_or_default(),
        })
    }

    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// The errors of a failed operation, with their HTTP status. `None` if it did not fail.
    pub(super) fn failure(&self) -> Option<(&[OperationError], u16)> {
        self.errors.as_ref().map(|errors| (errors.as_slice(), self.http_status))
    }
}

impl From<Errors> for OperationError {
    /// A quota is named with its limit.
    fn from(error: Errors) -> Self {
        let mut message = error.message.unwrap_or_default();
        for quota in error.error_details.into_iter().filter_map(|detail| detail.quota_info) {
            let name = quota.limit_name.or(quota.metric_name).unwrap_or_default();
            let limit = quota.limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
            message += &format!(" (quota {name}{limit})");
        }
        Self { code: error.code.unwrap_or_default(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn read(operation: Value) -> Option<Operation> {
        Operation::from_model(serde_json::from_value(operation).unwrap())
    }

    #[rstest]
    #[case("DONE", true)]
    #[case("RUNNING", false)]
    #[case("PENDING", false)]
    #[case::newer_than_we_are("PAUSED", false)]
    fn an_operation_is_done_or_not(#[case] status: &str, #[case] expected: bool) {
        assert_eq!(read(json!({"name": "operation-1", "status": status})).unwrap().is_done(), expected);
    }

    #[rstest]
    #[case::no_name(json!({"status": "DONE"}))]
    #[case::no_state(json!({"name": "operation-1"}))]
    #[case::leads_elsewhere(json!({"name": "../../instances/a", "status": "DONE"}))]
    fn an_operation_has_a_name_and_a_state(#[case] operation: Value) {
        assert!(read(operation).is_none());
    }

    #[test]
    fn a_failure_names_the_quota() {
        let quota = json!({"limitName": "CPUS-per-project-region", "metricName": "compute/cpus", "limit": 24.0});
        let errors = json!([{"code": "QUOTA_EXCEEDED", "message": "m", "errorDetails": [{"quotaInfo": quota}]}]);
        let failed = json!({"name": "o", "status": "DONE", "error": {"errors": errors}, "httpErrorStatusCode": 403});
        let failed = read(failed).unwrap();
        let (errors, status) = failed.failure().unwrap();
        assert_eq!((errors[0].code.as_str(), status), ("QUOTA_EXCEEDED", 403));
        assert_eq!(errors[0].message, "m (quota CPUS-per-project-region of 24)");
    }
}
