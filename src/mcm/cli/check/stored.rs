//! Kinds, stored objects, drivers, classes and Secrets: the findings of both checks about them.

use anyhow::Result;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::{
    finding::CheckFinding,
    install::{self, Kind},
    kinds, owners, read,
};
use crate::api::machine::{Machine, MachineClass, MachineDeployment, MachineSet};
use mcm_controllers::object::authority;
use mcm_driver_host::DriverCatalogue;
use mcm_insight::{
    error::error_line,
    family::is_frozen,
    read_only::ReadOnlyClients,
    reader::{self, DecodedList},
    story::UndecodableObject,
};

/// Kinds, stored objects and classes: what both checks read.
pub(super) struct StoredLists {
    pub machines: Result<DecodedList<Machine>>,
    pub sets: Result<DecodedList<MachineSet>>,
    pub deployments: Result<DecodedList<MachineDeployment>>,
    pub classes: Result<DecodedList<MachineClass>>,
}

impl StoredLists {
    async fn read(reach: &ReadOnlyClients) -> Self {
        let (control, namespace) = (&reach.control, reach.namespace.as_str());
        let (machines, sets, deployments, classes) = tokio::join!(
            reader::list(control, namespace),
            reader::list(control, namespace),
            reader::list(control, namespace),
            reader::list(control, namespace)
        );
        Self { machines, sets, deployments, classes }
    }

    fn findings(&self, namespace: &str) -> Vec<CheckFinding> {
        fn kind<K>(name: &'static str, listed: &Result<DecodedList<K>>) -> (Kind, Vec<UndecodableObject>) {
            match listed {
                Ok(listed) => (Kind { name, objects: Ok(listed.objects.len()) }, listed.unreadable.clone()),
                Err(error) => (Kind { name, objects: Err(error_line(error)) }, Vec::new()),
            }
        }
        let (kinds, unreadable): (Vec<Kind>, Vec<Vec<UndecodableObject>>) = [
            kind("class", &self.classes),
            kind("deployment", &self.deployments),
            kind("set", &self.sets),
            kind("machine", &self.machines),
        ]
        .into_iter()
        .unzip();
        let mut findings = install::objects(&kinds, &unreadable.concat(), namespace);
        findings.extend(self.deployments.as_ref().ok().and_then(|all| owners::selectors(&all.objects)));
        if let (Ok(machines), Ok(sets)) = (&self.machines, &self.sets) {
            findings.extend(owners::owners(&machines.objects, &sets.objects));
        }
        findings
    }

    /// There is an object that needs a manager.
    pub fn has_objects(&self) -> bool {
        fn is_any<K>(listed: &Result<DecodedList<K>>) -> bool {
            listed.as_ref().is_ok_and(|listed| !listed.objects.is_empty() || !listed.unreadable.is_empty())
        }
        is_any(&self.machines) || is_any(&self.sets) || is_any(&self.deployments)
    }

    /// The provider for Cluster API manages all deployments, sets and machines that there are, as far as all could be read.
    pub fn is_of_provider_alone(&self) -> bool {
        fn metas<K: Resource>(listed: &Result<DecodedList<K>>) -> Option<Vec<&ObjectMeta>> {
            let listed = listed.as_ref().ok().filter(|listed| listed.unreadable.is_empty())?;
            Some(listed.objects.values().map(K::meta).collect())
        }
        let all = [metas(&self.deployments), metas(&self.sets), metas(&self.machines)];
        let is_provided = |metas: &Vec<&ObjectMeta>| metas.iter().all(|meta| authority::is_of_provider(meta));
        self.has_objects() && all.iter().all(|metas| metas.as_ref().is_some_and(is_provided))
    }

    /// Names of sets that create no machines because there were too many.
    pub fn frozen(&self) -> Vec<String> {
        let Ok(sets) = &self.sets else { return Vec::new() };
        sets.objects.iter().filter(|(_, set)| is_frozen(set)).map(|(name, _)| name.clone()).collect()
    }
}

/// Findings about kinds, stored objects, drivers, classes and Secrets.
pub(super) async fn stored_findings(
    reach: &ReadOnlyClients,
    drivers: &DriverCatalogue,
) -> Result<(StoredLists, Vec<CheckFinding>)> {
    let resources = read::resources(&reach.control).await?;
    let mut findings = kinds::judge(&resources, &read::definitions(&reach.control).await);
    let stored = StoredLists::read(reach).await;
    if !resources.is_empty() {
        findings.extend(stored.findings(&reach.namespace));
    }
    if let Ok(classes) = &stored.classes {
        let (classes, secrets) = read::classes(reach, drivers, &classes.objects).await;
        findings.extend(install::drivers(&classes, &drivers.names()));
        findings.extend(install::classes(&classes));
        findings.extend(install::secrets(&secrets));
    }
    Ok((stored, findings))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn listed<K>(objects: impl IntoIterator<Item = K>) -> Result<DecodedList<K>> {
        let objects = objects.into_iter().enumerate().map(|(number, object)| (number.to_string(), object));
        Ok(DecodedList { objects: objects.collect::<BTreeMap<_, _>>(), unreadable: Vec::new() })
    }

    fn machine(owner: &str) -> Machine {
        let owner = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": owner, "name": "a", "uid": "u",
            "controller": owner == "MCMMachine",
        });
        let metadata = json!({"name": "a", "ownerReferences": [owner]});
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": metadata, "spec": {},
        });
        serde_json::from_value(machine).unwrap()
    }

    fn stored(machines: &[&str]) -> StoredLists {
        let machines = listed(machines.iter().map(|owner| machine(owner)));
        StoredLists { machines, sets: listed([]), deployments: listed([]), classes: listed([]) }
    }

    #[test]
    fn the_provider_is_alone_where_it_manages_each_machine() {
        assert!(stored(&["MCMMachine", "MCMMachine"]).is_of_provider_alone());
        assert!(!stored(&["MCMMachine", "Other"]).is_of_provider_alone());
        assert!(!stored(&[]).is_of_provider_alone(), "no manager may be installed yet");
        let unread = StoredLists { sets: Err(anyhow::anyhow!("forbidden")), ..stored(&["MCMMachine"]) };
        assert!(!unread.is_of_provider_alone(), "unread sets may be native");
    }
}
