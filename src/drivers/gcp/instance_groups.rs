//! Unmanaged instance groups, whose members are VMs of their zone.

use serde::Deserialize;
use serde_json::json;

use super::{
    GcpCloud,
    calls::Compute,
    errors::is_absent,
    operation::Operation,
    operations::{Ended, Meanwhile},
    running::Begun,
    session::{Place, Session},
};
use mcm_api::load_balancer::InstanceGroup;
use mcm_driver::{
    DriverError, MachineRequest,
    cloud::{CloudFailure, CloudOperations, PageCollector, is_instance_name},
    code::Code,
};

/// Members per page, as many as there may be.
const PAGE: u32 = 500;

/// A page of the members of a group.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    kind: String,
    #[serde(default)]
    items: Vec<Member>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Member {
    /// Its URL.
    instance: String,
}

impl GcpCloud {
    /// Makes the VM of a Machine a member of the group of its zone, or ends its membership.
    pub(super) async fn set_member_of_group(
        &self,
        request: &MachineRequest,
        groups: &[InstanceGroup],
        is_member: bool,
    ) -> Result<(), DriverError> {
        let session = self.open_session(&request.class, &request.secret).await?;
        let place = session.place_of(&request.machine)?;
        let group = groups.iter().find(|group| group.zone == place.zone);
        let Some(group) = group.filter(|group| is_instance_name(&group.name)) else {
            let message = format!("VM {} is in zone {}: name an instance group of that zone", place.name, place.zone);
            return Err(DriverError::new(Code::InvalidArgument, message));
        };
        if session.is_member(group, &place).await? == is_member {
            return Ok(());
        }
        let verb = if is_member { "addInstances" } else { "removeInstances" };
        let what = format!("instanceGroups.{verb} of {} in zone {}", group.name, group.zone);
        let begun = session.compute.change_members(group, verb, place.name).await;
        let begun = begun.map_err(|failure| session.error_of_group(&failure, group, &what))?;
        let begun = Begun::now(begun, place.zone, 0);
        match self.operations.until_done(&session, &begun, &what, Meanwhile::Wait).await {
            // The VM may have been deleted meanwhile.
            Err(Ended::Absent(_)) if !is_member && !session.is_member(group, &place).await? => Ok(()),
            ended => Ok(ended?),
        }
    }
}

impl Session {
    async fn is_member(&self, group: &InstanceGroup, place: &Place<'_>) -> Result<bool, DriverError> {
        let what = format!("instanceGroups.listInstances of {} in zone {}", group.name, group.zone);
        let members = self.compute.members(group).await;
        let members = members.map_err(|failure| self.error_of_group(&failure, group, &what))?;
        let end = format!("/zones/{}/instances/{}", place.zone, place.name);
        Ok(members.iter().any(|member| member.ends_with(&end)))
    }

    /// Only the name of the group in the answer proves that the group does not exist: it may be the project or the VM.
    fn error_of_group(&self, failure: &CloudFailure, group: &InstanceGroup, what: &str) -> DriverError {
        let error = self.compute.error(failure, what);
        let named = format!("/instanceGroups/{}'", group.name);
        let is_named = matches!(failure, CloudFailure::Named { message, .. } if message.contains(&named));
        if is_absent(failure) && is_named { DriverError { code: Code::NotFound, ..error } } else { error }
    }
}

impl Compute {
    /// URLs of the members of a group.
    async fn members(&self, group: &InstanceGroup) -> Result<Vec<String>, CloudFailure> {
        let mut pages = PageCollector::new("instanceGroups.listInstances");
        loop {
            let token =
                pages.token().map(|token| form_urlencoded::byte_serialize(token.as_bytes()).collect::<String>());
            let token = token.map(|token| format!("&pageToken={token}")).unwrap_or_default();
            let path = format!("{}/listInstances?maxResults={PAGE}{token}", self.group(group));
            let page: Page = self.post("group_get", &path, &json!({ "instanceState": "ALL" }), true).await?;
            if page.kind != "compute#instanceGroupsListInstances" {
                return Err(CloudFailure::Unreadable(200));
            }
            let items = page.items.into_iter().map(|member| member.instance).collect();
            let added = pages.add(items, page.next_page_token).map_err(|error| CloudFailure::Named {
                code: Code::Unavailable,
                name: "nextPageToken".to_owned(),
                message: error.message,
            });
            if added? {
                return Ok(pages.into_items());
            }
        }
    }

    async fn change_members(
        &self,
        group: &InstanceGroup,
        verb: &str,
        instance: &str,
    ) -> Result<Operation, CloudFailure> {
        let instance = format!("projects/{}/zones/{}/instances/{instance}", self.project, group.zone);
        let body = json!({ "instances": [{ "instance": instance }] });
        let begun = self.post("group_change", &format!("{}/{verb}", self.group(group)), &body, false).await?;
        Operation::from_model(begun).ok_or(CloudFailure::Unreadable(200))
    }

    fn group(&self, group: &InstanceGroup) -> String {
        format!("projects/{}/zones/{}/instanceGroups/{}", self.project, group.zone, group.name)
    }
}
