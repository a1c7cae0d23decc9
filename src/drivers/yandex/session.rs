//! A class with access to its cloud, and the look-ups of its VMs.

use std::sync::Arc;

use async_trait::async_trait;
use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError, Vm, VmsByProviderId,
    cloud::{CloudSession, MachineIdentity, VmLookups, VmQuery, is_instance_name, is_word},
};

use crate::{
    calls::{Api, FoundInstances},
    instance::Instance,
    login::Login,
    names::{NAME, SCHEME},
    spec::{Scope, Spec},
};

/// A class with access to its cloud.
#[derive(Clone)]
pub(crate) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub look_ups: Arc<VmLookups<Login, FoundInstances>>,
}

impl Session {
    async fn look(&self, asked: VmQuery) -> Result<Arc<FoundInstances>, DriverError> {
        let api = self.api.clone();
        let send = move |asked| async move { api.look(&asked).await.map(Arc::new) };
        self.look_ups.look_up(self.place(), asked, send).await
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = Instance;
    type Place = Login;

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) -> Login {
        self.login.clone()
    }

    async fn with_id(&self, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        let Some(id) = id_of(machine)? else { return Ok(Vec::new()) };
        let found = self.look(VmQuery::Id(id.to_owned())).await?;
        Ok(match found.instances.iter().find(|instance| instance.id == id) {
            // Only the cloud's answer to this ID is certain.
            None if found.is_of_folder => self.api.instance(id).await?,
            found => found.cloned(),
        }
        .into_iter()
        .collect())
    }

    /// Names are unique in a folder.
    async fn named(&self, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        let name = MachineIdentity::from_machine(machine).name;
        if !is_instance_name(name) {
            return Ok(Vec::new());
        }
        let found = self.look(VmQuery::Name(name.to_owned())).await?;
        Ok(found.instances.iter().filter(|instance| instance.name == name).cloned().collect())
    }

    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        Ok(self.listing(self.api.instances().await?))
    }

    fn shown(&self, instance: &Instance) -> Vm {
        instance.vm()
    }
}

/// The ID of the instance in the provider ID of a Machine, if it has one. The cloud controller manager writes IDs without a zone on
/// Nodes: a Machine with such an ID would not have the ID of its VM in a list, and the VM would be taken for an orphan.
pub(crate) fn id_of(machine: &Machine) -> Result<Option<&str>, DriverError> {
    let id = machine.spec.provider_id.as_str();
    if id.is_empty() {
        return Ok(None);
    }
    let parts = id.strip_prefix(SCHEME).map(|rest| rest.split('/').collect::<Vec<_>>());
    match parts.as_deref() {
        Some([zone, instance]) if !zone.is_empty() && is_word(instance) => Ok(Some(instance)),
        _ => {
            let name = MachineIdentity::from_machine(machine).name;
            let instance = id.strip_prefix(SCHEME).map(|rest| rest.trim_start_matches('/'));
            let message = match instance.filter(|instance| is_word(instance)) {
                Some(instance) => format!(
                    "machine {name:?} has provider ID {id:?} without a zone, as Deckhouse's driver writes it, so a list of VMs would \
                     have another: set spec.providerID to {SCHEME}<zone>/{instance}"
                ),
                None => format!(
                    "machine {name:?} has provider ID {id:?}, which is not an ID of provider {NAME}: check its class"
                ),
            };
            Err(DriverError::new(Code::InvalidArgument, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("", Some(None))]
    #[case("yandex://ru-central1-a/fhm1", Some(Some("fhm1")))]
    #[case::of_the_cloud_controller_manager("yandex://fhm1", None)]
    #[case::with_a_name("yandex://folder/ru-central1-a/worker-1", None)]
    #[case::without_a_zone("yandex:///fhm1", None)]
    #[case("yandex://ru-central1-a/", None)]
    #[case("yandex://ru-central1-a/..", None)]
    #[case("yandex://ru-central1-a/a%2Fb", None)]
    #[case::of_another_cloud("aws:///eu-west-1/i-1", None)]
    #[case("fhm1", None)]
    fn a_provider_id_names_an_instance(#[case] id: &str, #[case] expected: Option<Option<&str>>) {
        let mut machine = Machine::default();
        machine.spec.provider_id = id.to_owned();
        assert_eq!(id_of(&machine).ok(), expected);
    }

    #[rstest]
    #[case::of_deckhouse("yandex://fhm1", "set spec.providerID to yandex://<zone>/fhm1")]
    #[case::with_an_empty_zone("yandex:///fhm1", "set spec.providerID to yandex://<zone>/fhm1")]
    #[case::of_another_cloud("aws:///eu-west-1/i-1", "check its class")]
    #[case::with_a_name("yandex://folder/ru-central1-a/worker-1", "check its class")]
    fn a_provider_id_of_another_form_is_refused_with_what_to_do(#[case] id: &str, #[case] expected: &str) {
        let mut machine = Machine::default();
        machine.spec.provider_id = id.to_owned();
        let error = id_of(&machine).unwrap_err();
        assert!(error.code == Code::InvalidArgument && error.message.ends_with(expected), "{error}");
    }
}
