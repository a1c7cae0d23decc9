//! The Deployment `machine-controller-manager` of a namespace as its switch, in a seed of Gardener.
//!
//! Gardener and its dependency-watchdog scale the Deployment to 0 while machines must be left alone: in a hibernation, a migration,
//! a restore, or while Nodes cannot report. A Go program ends then. A process that serves many namespaces runs on, so it reads the
//! Deployment. Unknown is off: what may have been switched off is not touched.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use kube::Client;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::{Key, ObjectCache, ObjectChange},
    fence::LeaseFence,
    handlers::NamespaceHandlers,
    panics::{self, PanicPlace},
    scope::CellScope,
    trust::{CacheNeed, CacheRegistry, CacheTrust, WatchTiming},
};

/// The name of the Deployment.
pub const DEPLOYMENT: &str = "machine-controller-manager";

/// The Deployments of a cell, watched until this is dropped.
pub struct DeploymentSwitch {
    cache: Arc<ObjectCache<Deployment>>,
    /// Of the namespaces that were admitted.
    fences: Mutex<BTreeMap<String, LeaseFence>>,
    pub(super) opened: NamespaceHandlers,
    watch: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl DeploymentSwitch {
    /// Watches the Deployments in the scope of a cell. `cluster` names the control cluster in `/readyz` and metrics.
    pub fn start(control: &Client, scope: &CellScope, cluster: &str, caches: &CacheRegistry) -> Arc<Self> {
        let cache = ObjectCache::<Deployment>::new(&[], |deployment| {
            deployment.metadata.managed_fields = None;
            deployment.metadata.annotations = None;
            deployment.metadata.labels = None;
            let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            deployment.spec = Some(DeploymentSpec { replicas, ..DeploymentSpec::default() });
            deployment.status = None;
        });
        let switch = Arc::new(Self {
            cache: Arc::clone(&cache),
            fences: Mutex::default(),
            opened: NamespaceHandlers::default(),
            watch: Mutex::default(),
        });
        let (of_changes, of_trust) = (Arc::downgrade(&switch), Arc::downgrade(&switch));
        cache.on_change(move |change| {
            if let Some(switch) = of_changes.upgrade() {
                switch.changed(change);
            }
        });
        cache.on_trust(move |trust| {
            if let Some(switch) = of_trust.upgrade() {
                switch.trust_changed(trust);
            }
        });
        caches.add(cluster, &cache, CacheNeed::Required);
        let (control, scope) = (control.clone(), scope.clone());
        *switch.watch.lock() = Some(panics::keep(PanicPlace::Watch, "deployments".to_owned(), move || {
            let scope = scope.clone();
            let fields = Some(format!("metadata.name={DEPLOYMENT}"));
            Arc::clone(&cache).watch_fields(
                control.clone(),
                move |client| scope.api(&client),
                fields,
                WatchTiming::TARGET,
            )
        }));
        switch
    }

    /// The fence of work in a namespace, which closes when its Deployment is switched off or is unknown.
    ///
    /// # Errors
    /// It is off or unknown; the text has the reason why the work waits.
    pub(super) fn admit(&self, namespace: &str) -> Result<LeaseFence, String> {
        // A change that is stored while this reads is followed by its handler, which waits for this lock.
        let mut fences = self.fences.lock();
        if let Some(problem) = self.cache.trust().problem() {
            return Err(format!("the Deployment {namespace}/{DEPLOYMENT} to become known: {problem}"));
        }
        let obstacle = match self.cache.get(&Key::new(namespace, DEPLOYMENT)) {
            None => format!("a Deployment {namespace}/{DEPLOYMENT}, without which the namespace is parked"),
            Some(deployment) if deployment.metadata.deletion_timestamp.is_some() => {
                format!(
                    "a new Deployment {namespace}/{DEPLOYMENT}: this one is being deleted, so the namespace is parked"
                )
            }
            Some(deployment) if !is_on(&deployment) => {
                format!("the Deployment {namespace}/{DEPLOYMENT} to have replicas: with 0 the namespace is parked")
            }
            Some(_) => return Ok(fences.entry(namespace.to_owned()).or_default().clone()),
        };
        Err(obstacle)
    }

    /// The Deployment of a namespace has no replicas, or does not exist. False while that is unknown.
    pub(super) fn is_off(&self, namespace: &str) -> bool {
        let is_switched_on = || self.cache.get(&Key::new(namespace, DEPLOYMENT)).is_some_and(|one| is_on(&one));
        self.cache.trust().is_trusted() && !is_switched_on()
    }

    fn changed(&self, change: &ObjectChange<Deployment>) {
        let namespace = &change.key.namespace;
        if change.new.as_ref().is_some_and(|deployment| is_on(deployment)) {
            // A Deployment of the first list was not off before.
            let was_on = change.old.as_ref().map_or_else(|| !self.cache.trust().is_trusted(), |old| is_on(old));
            if !was_on {
                tracing::info!(namespace, "the Deployment is on: the namespace is no longer parked");
            }
            self.opened.each(|handler| handler(namespace));
        } else if let Some(fence) = self.fences.lock().remove(namespace) {
            fence.close();
            tracing::info!(namespace, "the Deployment is off: the namespace is parked");
        }
    }

    fn trust_changed(&self, trust: &CacheTrust) {
        if trust.is_trusted() {
            for deployment in self.cache.all() {
                let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
                self.opened.each(|handler| handler(namespace));
            }
        } else {
            std::mem::take(&mut *self.fences.lock()).into_values().for_each(|fence| fence.close());
        }
    }
}

impl Drop for DeploymentSwitch {
    fn drop(&mut self) {
        self.cache.forget_handlers();
        self.fences.lock().values().for_each(LeaseFence::close);
    }
}

/// The replicas that a Deployment will have: none once it is being deleted, and 1 if they are not set.
pub fn wanted_replicas(deployment: &Deployment) -> i32 {
    match deployment.metadata.deletion_timestamp {
        Some(_) => 0,
        None => deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
    }
}

fn is_on(deployment: &Deployment) -> bool {
    wanted_replicas(deployment) > 0
}
