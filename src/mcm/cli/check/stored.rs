//! Kinds, stored objects, drivers, classes and Secrets: the findings of both checks about them.

use anyhow::Result;

use super::{
    finding::CheckFinding,
    install::{self, Kind},
    kinds, owners, read,
};
use crate::api::machine::{Machine, MachineClass, MachineDeployment, MachineSet};
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

    fn findings(&self) -> Vec<CheckFinding> {
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
        let mut findings = install::objects(&kinds, &unreadable.concat());
        findings.extend(self.deployments.as_ref().ok().and_then(|all| owners::selectors(&all.objects)));
        if let (Ok(machines), Ok(sets)) = (&self.machines, &self.sets) {
            findings.extend(owners::owners(&machines.objects, &sets.objects));
        }
        findings
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
        findings.extend(stored.findings());
    }
    if let Ok(classes) = &stored.classes {
        let (classes, secrets) = read::classes(reach, drivers, &classes.objects).await;
        findings.extend(install::drivers(&classes, &drivers.names()));
        findings.extend(install::classes(&classes));
        findings.extend(install::secrets(&secrets));
    }
    Ok((stored, findings))
}
