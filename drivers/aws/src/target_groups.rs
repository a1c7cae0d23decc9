//! Target groups of load balancers: their targets are instances or IP addresses.

use std::sync::Arc;

use super::{
    kind::{Kind, reading, writing},
    login::Login,
    names::IDS,
    query::{Place, Query, Service, text_in},
    signed::Location,
};
use mcm_api::machine::Machine;
use mcm_driver::{
    DriverError, SecretData,
    cloud::{Failure, Http, Limiters},
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
enum TargetType {
    Instance,
    Address,
}

impl TargetGroups {
    pub(super) fn of(location: Location, login: &Arc<Login>, limiters: &Arc<Limiters>, http: &Arc<Http>) -> Self {
        Self { location, query: Query::of(SERVICE, login, limiters, http) }
    }

    /// Makes the VM of a Machine a target of a group.
    pub(super) async fn register(&self, arn: &str, machine: &Machine, secret: &SecretData) -> Result<(), DriverError> {
        let target = self.target(arn, machine, secret).await?;
        let answer = self.change("RegisterTargets", arn, &target).await;
        answer.map(drop).map_err(|failure| match &failure {
            Failure::Named { name, .. } if name == NO_TARGET => {
                let error = failure.error(&attempt("RegisterTargets", arn), secret);
                DriverError { code: Code::FailedPrecondition, ..error }
            }
            _ => error(&failure, "RegisterTargets", arn, secret),
        })
    }

    /// The VM of a Machine is no target of a group any more.
    pub(super) async fn deregister(
        &self,
        arn: &str,
        machine: &Machine,
        secret: &SecretData,
    ) -> Result<(), DriverError> {
        let target = self.target(arn, machine, secret).await?;
        match self.change("DeregisterTargets", arn, &target).await {
            Ok(_) => Ok(()),
            // It is no target.
            Err(Failure::Named { name, .. }) if name == NO_TARGET => Ok(()),
            Err(failure) => Err(error(&failure, "DeregisterTargets", arn, secret)),
        }
    }

    /// The VM as a target of a group.
    async fn target(&self, arn: &str, machine: &Machine, secret: &SecretData) -> Result<String, DriverError> {
        let region = &self.location.region;
        if region_of(arn) != Some(region) {
            let message = format!("target group {arn} is not in region {region} of the VM: name one of that region");
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let invalid = |message: String| DriverError::new(Code::FailedPrecondition, message);
        match self.target_type(arn, secret).await? {
            TargetType::Instance => {
                let id = IDS.of_machine(machine)?.map(|[_, id]| id.to_owned());
                id.ok_or_else(|| invalid("the machine has no provider ID".to_owned()))
            }
            TargetType::Address => {
                let addresses = machine.status.iter().flat_map(|status| &status.addresses);
                let private = addresses.filter(|address| address.type_ == "InternalIP").map(|one| one.address.clone());
                let missing = || invalid(format!("the VM has no private address for target group {arn} yet"));
                private.into_iter().next().ok_or_else(missing)
            }
        }
    }

    async fn target_type(&self, arn: &str, secret: &SecretData) -> Result<TargetType, DriverError> {
        const ACTION: &str = "DescribeTargetGroups";
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
            None => Err(error(&Failure::Unreadable(200), ACTION, arn, secret)),
        }
    }

    async fn change(&self, action: &str, arn: &str, target: &str) -> Result<String, Failure> {
        let kind = writing(if action == "RegisterTargets" { "target_register" } else { "target_deregister" });
        self.call(kind, action, &[("TargetGroupArn", arn), ("Targets.member.1.Id", target)]).await
    }

    async fn call(&self, kind: Kind, action: &str, params: &[(&str, &str)]) -> Result<String, Failure> {
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

/// Only the name of the error says that a target group does not exist.
fn error(failure: &Failure, action: &str, arn: &str, secret: &SecretData) -> DriverError {
    let error = failure.error(&attempt(action, arn), secret);
    let code = match (failure, error.code) {
        (Failure::Named { name, .. }, _) if name == NO_GROUP => Code::NotFound,
        (_, Code::NotFound) => Code::Unknown,
        (_, code) => code,
    };
    DriverError { code, ..error }
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
    #[case::gone(Failure::Named { code: Code::Internal, name: NO_GROUP.to_owned(), message: String::new() }, Code::NotFound)]
    #[case::page_of_a_proxy(Failure::Status(404), Code::Unknown)]
    #[case::refused(Failure::Status(403), Code::PermissionDenied)]
    fn only_aws_says_that_a_target_group_does_not_exist(#[case] failure: Failure, #[case] expected: Code) {
        assert_eq!(error(&failure, "DeregisterTargets", "arn", &SecretData::default()).code, expected);
    }
}
