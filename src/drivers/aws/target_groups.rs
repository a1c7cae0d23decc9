//! Target groups of load balancers: their targets are instances or IP addresses.

use std::sync::Arc;

use super::{
    kind::{Kind, reading, writing},
    login::Login,
    query::{Place, Query, Service, text_in},
    signed::Location,
};
use mcm_driver::{
    DriverError, SecretData,
    cloud::{AccountLimiters, CloudFailure, HttpClient},
    code::Code,
};

const SERVICE: Service = Service { name: "elasticloadbalancing", version: "2015-12-01" };
/// The error for a target group that does not exist.
const NO_GROUP: &str = "TargetGroupNotFound";
/// The error for a VM that cannot be a target, such as one that does not run yet.
const NO_TARGET: &str = "InvalidTarget";

/// Elastic Load Balancing of an account in a region.
pub(super) struct TargetGroups {
    location: Location,
    query: Query,
}

/// The kind of the targets of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetType {
    Instance,
    Address,
}

impl TargetGroups {
    pub(super) fn new(
        location: Location,
        login: &Arc<Login>,
        limiters: &Arc<AccountLimiters>,
        http: &Arc<HttpClient>,
    ) -> Self {
        Self { location, query: Query::new(SERVICE, login, limiters, http) }
    }

    /// Makes a VM a target of a group.
    pub(super) async fn register(&self, arn: &str, target: &str, secret: &SecretData) -> Result<(), DriverError> {
        let answer = self.change("RegisterTargets", arn, &[target]).await;
        answer.map(drop).map_err(|failure| match &failure {
            CloudFailure::Named { name, .. } if name == NO_TARGET => {
                let error = failure.error(&attempt("RegisterTargets", arn), secret);
                DriverError { code: Code::FailedPrecondition, ..error }
            }
            _ => error(&failure, "RegisterTargets", arn, secret),
        })
    }

    /// Some targets are none of a group any more.
    pub(super) async fn deregister(&self, arn: &str, targets: &[&str], secret: &SecretData) -> Result<(), DriverError> {
        let failed = |failure| error(&failure, "DeregisterTargets", arn, secret);
        if self.left(arn, targets).await.map_err(failed)? || targets.len() == 1 {
            return Ok(());
        }
        // One of them is no target: the others may still be.
        for target in targets {
            self.left(arn, &[target]).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Removes targets from a group. False if one of them is not in the group.
    async fn left(&self, arn: &str, targets: &[&str]) -> Result<bool, CloudFailure> {
        match self.change("DeregisterTargets", arn, targets).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.is(NO_TARGET) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// The kind of the targets of a group.
    pub(super) async fn target_type(&self, arn: &str, secret: &SecretData) -> Result<TargetType, DriverError> {
        const ACTION: &str = "DescribeTargetGroups";
        let region = &self.location.region;
        if region_of(arn) != Some(region) {
            let message = format!("target group {arn} is not in region {region} of the VM: name one of that region");
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let params = [("TargetGroupArns.member.1", arn)];
        let answer = self.call(reading("target_group_get"), ACTION, &params).await;
        let answer = answer.map_err(|failure| error(&failure, ACTION, arn, secret))?;
        match text_in(&answer, "TargetType").as_deref() {
            Some("instance") => Ok(TargetType::Instance),
            Some("ip") => Ok(TargetType::Address),
            Some(other) => {
                let message = format!("target group {arn} has targets of type {other}: name one for instances or ip");
                Err(DriverError::new(Code::InvalidArgument, message))
            }
            None => Err(error(&CloudFailure::Unreadable(200), ACTION, arn, secret)),
        }
    }

    async fn change(&self, action: &str, arn: &str, targets: &[&str]) -> Result<String, CloudFailure> {
        let kind = writing(if action == "RegisterTargets" { "target_register" } else { "target_deregister" });
        let names: Vec<String> = (1..=targets.len()).map(|number| format!("Targets.member.{number}.Id")).collect();
        let targets = names.iter().map(String::as_str).zip(targets.iter().copied());
        let params: Vec<_> = [("TargetGroupArn", arn)].into_iter().chain(targets).collect();
        self.call(kind, action, &params).await
    }

    async fn call(&self, kind: Kind, action: &str, params: &[(&str, &str)]) -> Result<String, CloudFailure> {
        let url = self.location.url(SERVICE.name).await?;
        self.query.call(Place { region: &self.location.region, url: &url }, kind, action, params).await
    }
}

/// The region in the ARN of a target group.
fn region_of(arn: &str) -> Option<&str> {
    let mut parts = arn.split(':');
    let service = parts.nth(2)?;
    parts.next().filter(|_| service == SERVICE.name)
}

/// Only the name of the error proves that a target group does not exist.
fn error(failure: &CloudFailure, action: &str, arn: &str, secret: &SecretData) -> DriverError {
    let error = failure.error(&attempt(action, arn), secret);
    if failure.is(NO_GROUP) { DriverError { code: Code::NotFound, ..error } } else { error }
}

fn attempt(action: &str, arn: &str) -> String {
    format!("{action} of target group {arn}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/cp/1", Some("eu-west-1"))]
    #[case("arn:aws:iam::123456789012:role/cp", None)]
    #[case("cp", None)]
    fn an_arn_has_a_region(#[case] arn: &str, #[case] expected: Option<&str>) {
        assert_eq!(region_of(arn), expected);
    }

    #[rstest]
    #[case::gone(CloudFailure::Named { code: Code::Internal, name: NO_GROUP.to_owned(), message: String::new() }, Code::NotFound)]
    #[case::page_of_a_proxy(CloudFailure::Status(404), Code::Unknown)]
    #[case::refused(CloudFailure::Status(403), Code::PermissionDenied)]
    fn only_aws_says_that_a_target_group_does_not_exist(#[case] failure: CloudFailure, #[case] expected: Code) {
        assert_eq!(error(&failure, "DeregisterTargets", "arn", &SecretData::default()).code, expected);
    }
}
