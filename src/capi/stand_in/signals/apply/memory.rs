//! The last answer about core, and the reads for it.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use parking_lot::RwLock;

use crate::stand_in::standing::CoreCheckResult;
use mcm_conversion::types::names;
use mcm_runtime::{handlers::HandlerList, objects::chain};

type CoreChangeHandler = dyn Fn() + Send + Sync;

/// The last look. Kinds of one cell share it.
#[derive(Default)]
pub(in crate::stand_in) struct CoreCheckState {
    asked: RwLock<Option<CoreCheckResult>>,
    handlers: HandlerList<CoreChangeHandler>,
}

impl CoreCheckState {
    /// The result of the last poll; `None` if there was none.
    pub fn asked(&self) -> Option<CoreCheckResult> {
        self.asked.read().clone()
    }

    /// Calls `handler` after each look that brought something else.
    pub fn on_change(&self, handler: impl Fn() + Send + Sync + 'static) {
        self.handlers.add(Box::new(handler));
    }

    /// Resets to the state before the first poll.
    pub(super) fn forget(&self) {
        *self.asked.write() = None;
    }

    pub(in super::super) fn heard(&self, answer: CoreCheckResult) {
        let before = self.asked.write().replace(answer.clone());
        if before != Some(answer) {
            self.handlers.each(|handler| handler());
        }
    }

    /// Checks live.
    pub async fn ask(&self, client: &Client, has_inventory: bool) {
        let answer = signs(client, has_inventory).await.map_err(|error| chain(&error));
        self.heard(answer);
    }
}

/// The sign of core, if there is any.
async fn signs(client: &Client, has_inventory: bool) -> kube::Result<Option<String>> {
    let by_name = ListParams::default().fields(&format!("metadata.name={}", names::CORE_LEASE));
    let leases = Api::<Lease>::all(client.clone()).list_metadata(&by_name).await?;
    if let Some(lease) = leases.items.first() {
        return Ok(Some(format!("Lease {}/{}", lease.namespace().unwrap_or_default(), names::CORE_LEASE)));
    }
    if !has_inventory {
        return Ok(None);
    }
    let kind = GroupVersionKind::gvk("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider");
    let api = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let providers = api.list(&ListParams::default()).await?;
    let core = providers.items.iter().find(|provider| provider.data["type"] == "CoreProvider");
    Ok(core.map(|provider| {
        format!("Provider {}/{} of clusterctl", provider.namespace().unwrap_or_default(), provider.name_any())
    }))
}
