//! The replicas that share control planes, as their Leases show them.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt, api::ListParams};

use mcm_api::labels;
use mcm_insight::{manager::ManagerLease, reader};
use mcm_runtime::{dated::DatedObject, members::MemberIdentity};

/// The Leases of replicas, by namespace and name.
pub(super) type MemberLeases = BTreeMap<(String, String), Lease>;

/// The Leases of replicas in a namespace, or in all.
pub(super) async fn leases(control: &Client, namespace: Option<&str>) -> Result<MemberLeases> {
    let api: Api<DatedObject<Lease>> = match namespace {
        Some(namespace) => Api::namespaced(control.clone(), namespace),
        None => Api::all(control.clone()),
    };
    let leases = reader::pages(&api, ListParams::default().labels(labels::FLEET)).await?;
    let keyed =
        |DatedObject(lease): DatedObject<Lease>| ((lease.namespace().unwrap_or_default(), lease.name_any()), lease);
    Ok(leases.into_iter().map(keyed).collect())
}

/// The holder of a Lease; empty if there is none.
pub(super) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// The owner of a claim lives as long as it renews the Lease of its membership.
pub(super) fn show_owner(claim: &mut ManagerLease, members: &MemberLeases) {
    let Some(member) = MemberIdentity::parse(&claim.holder) else { return };
    let key = (member.namespace.to_owned(), member.lease.to_owned());
    claim.show_membership(members.get(&key));
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use mcm_insight::testing::held_lease;

    const HOLDER: &str = "pod@mcm-system/mcm-fleet-one-0000000a_0123456789abcdef0123456789abcdef";

    fn shown(holder: &str) -> Option<String> {
        let renewed = "2026-01-01T00:00:00Z".parse().unwrap();
        let held = held_lease("machine-controller", "machines", holder, renewed);
        let mut claim = ManagerLease { lasts: SignedDuration::from_secs(900), ..held };
        let spec =
            json!({"holderIdentity": HOLDER, "renewTime": "2026-01-01T00:04:00.000000Z", "leaseDurationSeconds": 15});
        let lease = json!({"metadata": {"name": "mcm-fleet-one-0000000a", "namespace": "mcm-system"}, "spec": spec});
        let key = ("mcm-system".to_owned(), "mcm-fleet-one-0000000a".to_owned());
        show_owner(&mut claim, &[(key, serde_json::from_value(lease).unwrap())].into());
        claim.renewed.map(|time| time.to_string())
    }

    #[test]
    fn a_claim_of_a_replica_has_the_membership_that_its_holder_names() {
        assert_eq!(shown(HOLDER).as_deref(), Some("2026-01-01T00:04:00Z"));
        assert_eq!(shown("go-pod").as_deref(), Some("2026-01-01T00:00:00Z"));
    }
}
