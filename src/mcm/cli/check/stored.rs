//! Kinds, stored objects, drivers, classes and Secrets: the findings of both checks about them.

use anyhow::Result;

use super::{
    finding::Finding,
    install::{self, Kind},
    kinds, owners, read,
};
use crate::{
    api::machine::{Machine, MachineClass, MachineDeployment, MachineSet},
    cli::reading::{self, Listed, family::is_set_frozen, story::Unreadable},
    process::Reach,
};
use mcm_driver_host::Catalogue;

/// Kinds, stored objects and classes: what both checks read.
pub(super) struct Stored {
    pub machines: Result<Listed<Machine>>,
    pub sets: Result<Listed<MachineSet>>,
    pub deployments: Result<Listed<MachineDeployment>>,
    pub classes: Result<Listed<MachineClass>>,
}

impl Stored {
    async fn read(reach: &Reach) -> Self {
        let (control, namespace) = (&reach.control, reach.namespace.as_str());
        let (machines, sets, deployments, classes) = tokio::join!(
            reading::list(control, namespace),
            reading::list(control, namespace),
            reading::list(control, namespace),
            reading::list(control, namespace)
        );
        Self { machines, sets, deployments, classes }
    }

    fn findings(&self) -> Vec<Finding> {
        fn kind<K>(name: &'static str, listed: &Result<Listed<K>>) -> (Kind, Vec<Unreadable>) {
            match listed {
                Ok(listed) => (Kind { name, objects: Ok(listed.objects.len()) }, listed.unreadable.clone()),
                Err(error) => (Kind { name, objects: Err(format!("{error:#}")) }, Vec::new()),
            }
        }
        let (kinds, unreadable): (Vec<Kind>, Vec<Vec<Unreadable>>) = [
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
        sets.objects.iter().filter(|(_, set)| is_set_frozen(set)).map(|(name, _)| name.clone()).collect()
    }
}

/// Findings about kinds, stored objects, drivers, classes and Secrets.
pub(super) async fn stored_findings(reach: &Reach, drivers: &Catalogue) -> Result<(Stored, Vec<Finding>)> {
    let resources = read::resources(&reach.control).await?;
    let mut findings = kinds::judge(&resources, &read::definitions(&reach.control).await);
    let stored = Stored::read(reach).await;
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
