//! The targets of namespaces, by a label of the Namespace object. Tenants may write in a namespace, but not the Namespace.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, core::PartialObjectMeta};
use tokio_util::task::AbortOnDropHandle;

use super::{CellTargets, TargetId};
use crate::{
    cache::{ObjectCache, ObjectChange},
    cell::CellScope,
    panics::{self, PanicPlace},
    trust::{CacheNeed, CacheRegistry, WatchTiming},
};

type MetadataOfNamespace = PartialObjectMeta<Namespace>;

/// The Namespaces of a control cluster, watched until it is dropped.
pub struct NamespaceWatch {
    cache: Arc<ObjectCache<MetadataOfNamespace>>,
    _watch: AbortOnDropHandle<()>,
}

impl Drop for NamespaceWatch {
    fn drop(&mut self) {
        self.cache.forget_handlers();
    }
}

impl CellTargets {
    /// Assigns targets to namespaces: the value of a label of the Namespace is the name of its target. `cluster` names the control
    /// cluster in `/readyz` and metrics.
    pub fn follow_namespaces(
        self: &Arc<Self>,
        control: &Client,
        scope: &CellScope,
        label: &str,
        cluster: &str,
        caches: &CacheRegistry,
    ) -> NamespaceWatch {
        let cache = ObjectCache::<MetadataOfNamespace>::new(&[], |namespace| {
            namespace.metadata.managed_fields = None;
            namespace.metadata.annotations = None;
        });
        let (targets, owned, scope) = (Arc::downgrade(self), label.to_owned(), scope.clone());
        cache.on_change(move |change| {
            let is_served = match &scope {
                CellScope::Namespace(one) => *one == change.key.name,
                CellScope::All => true,
            };
            if let Some(targets) = targets.upgrade().filter(|_| is_served) {
                targets.assign(&change.key.name, target_of(change, &owned));
            }
        });
        let (targets, owned) = (Arc::downgrade(self), label.to_owned());
        cache.on_trust(move |_| {
            if let Some(targets) = targets.upgrade() {
                targets.labels_known(&owned);
            }
        });
        caches.add(cluster, &cache, CacheNeed::Required);
        let (watched, control) = (Arc::clone(&cache), control.clone());
        let watch = panics::keep(PanicPlace::Watch, "namespaces".to_owned(), move || {
            Arc::clone(&watched).watch(control.clone(), Api::all, WatchTiming::CONTROL)
        });
        NamespaceWatch { cache, _watch: watch }
    }
}

/// The target that a Namespace names; it is unknown if the Namespace does not exist or cannot be decoded.
fn target_of(change: &ObjectChange<MetadataOfNamespace>, label: &str) -> Option<TargetId> {
    let labels = change.new.as_ref()?.metadata.labels.as_ref()?;
    labels.get(label).filter(|name| !name.is_empty()).map(|name| TargetId::named(name))
}
