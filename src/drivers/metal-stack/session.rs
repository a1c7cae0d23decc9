//! A class with access to its metal-api, and the look-ups of its machines.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use mcm_api::machine::Machine;
use mcm_driver::{
    DriverError, Vm, VmsByProviderId,
    cloud::{CloudSession, MachineIdentity, VmLookups, VmQuery},
};

use super::{
    calls::{Api, FoundServers},
    login::Login,
    names::IDS,
    server::Server,
    spec::{Scope, Spec},
};

/// A cluster with a login.
pub(super) type ServerPlace = (Login, Scope);

/// A class with access to its metal-api.
#[derive(Clone)]
pub(super) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub look_ups: Arc<VmLookups<ServerPlace, FoundServers>>,
}

impl Session {
    async fn look(&self, asked: VmQuery) -> Result<Arc<FoundServers>, DriverError> {
        let (api, scope) = (self.api.clone(), self.scope.clone());
        let send = move |asked| async move { api.look(&scope, &asked).await.map(Arc::new) };
        self.look_ups.look_up(self.place(), asked, send).await
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = Server;
    type Place = ServerPlace;

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) -> ServerPlace {
        (self.login.clone(), self.scope.clone())
    }

    async fn with_id(&self, machine: &Machine) -> Result<Vec<Server>, DriverError> {
        let Some(id) = IDS.word_of_machine(machine)? else { return Ok(Vec::new()) };
        let asked = VmQuery::Id(id.to_owned());
        let found = self.look(asked.clone()).await?;
        let with_id = |found: &FoundServers| found.servers.iter().find(|server| server.id == id).cloned();
        Ok(match with_id(&found) {
            // Its tags may have been changed.
            None if found.is_of_cluster => with_id(&self.api.look(&self.scope, &BTreeSet::from([asked])).await?),
            found => found,
        }
        .into_iter()
        .collect())
    }

    async fn named(&self, machine: &Machine) -> Result<Vec<Server>, DriverError> {
        let name = MachineIdentity::from_machine(machine).name.to_owned();
        Ok(self.look(VmQuery::Name(name)).await?.servers.clone())
    }

    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        Ok(self.listing(self.api.of_cluster(&self.scope).await?))
    }

    fn shown(&self, server: &Server) -> Vm {
        server.vm()
    }
}
